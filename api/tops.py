"""Back ends ``warp``, ``warpgroup`` and ``tcgen05``: simulate top-level hardware modules and count clock cycles."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction
from ..isa.memory import ADDRESS_SPACE
from ..isa.operands import HeldOperands, MatrixOperands, Product, StepFlags, TensorMemoryOperands
from ..isa.tensor_memory import COLUMNS, LANES, accumulator_map, layout_for
from ..operands.registers import from_registers, unpack_nibbles
from ..operands.tensor_memory import gather_tensor
from ..sim.engine.tops import command_of, refusal, tcgen05, tops_of, undefined_names, warp_for, warpgroup
from ..sim.engine.warpgroup_commands import multiplication, warp_instruction
from .tiles import Execute, multiply_held

__all__ = ["RegisterBackend", "Tcgen05Backend"]


class RegisterBackend:
    """Back end of a top-level module with operands in registers: ``warp`` or ``warpgroup``.

    ``warp`` simulates the RTL module `Warp` of an architecture, which executes ``mma``; ``warpgroup`` simulates the
    four tensor cores of an SM of sm_90, which execute ``wgmma`` and ``mma``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._compile, self._execute = _TOPS[name]

    def make_ready(self, arch: str) -> None:
        """Compile the top-level module. Raise a `BackendError` if the simulator or a compiler is missing."""
        self._compile(arch)

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute D by successive instructions along K for each tile. The next instruction is always waiting."""
        if self.name not in tops_of(instruction, arch):
            raise refusal(self.name, instruction, arch)
        return multiply_held(self._execute, instruction, arch, operands)


def _on_warp(instruction: Instruction, arch: str, operands: HeldOperands) -> Product:
    run = warp_for(arch).run(instruction, operands)
    flags = _flags(instruction, operands, run.illegal[:, None])
    return Product(
        from_registers(run.d, accumulator_fragment(instruction)), flags, int(run.done.max() - run.accepted.min())
    )


def _on_warpgroup(instruction: Instruction, arch: str, operands: HeldOperands) -> Product:
    hardware, cases = warpgroup(), range(len(operands.arrays["c"]))
    if instruction.family == "mma":
        completions = hardware.run_on_all(
            [warp_instruction(hardware.config, instruction, operands, case) for case in cases]
        )
    else:
        completions = hardware.run([multiplication(hardware.config, instruction, operands, case) for case in cases])
    d = from_registers(np.stack([one.d for one in completions]), accumulator_fragment(instruction))
    flags = _flags(instruction, operands, np.stack([one.illegal for one in completions]))
    cycles = max(one.done for one in completions) - min(one.taken for one in completions)
    return Product(d, flags, cycles)


#: Key: name of a back end. Value: function that compiles its top-level module, and function that executes an
#: instruction on this module.
_TOPS: dict[str, tuple[Callable[[str], object], Execute]] = {
    "warp": (warp_for, _on_warp),
    "warpgroup": (lambda arch: warpgroup(), _on_warpgroup),
}


def _flags(instruction: Instruction, operands: HeldOperands, illegal: NDArray[np.bool_]) -> tuple[StepFlags, ...]:
    """Return the metadata flags of each panel (8 columns of B). `illegal` has the shape (batch, panels, m, 16)."""
    if not instruction.rule:
        return ()
    nibbles = unpack_nibbles(operands.arrays["e"], instruction, operands.immediates.sparsity_selector)
    return _panels(instruction, nibbles, illegal)


def _panels(instruction: Instruction, nibbles: NDArray[np.uint8], illegal: NDArray[np.bool_]) -> tuple[StepFlags, ...]:
    chunks = slice(instruction.chunks)
    return tuple(StepFlags(instruction, nibbles, illegal[:, panel, :, chunks]) for panel in range(illegal.shape[1]))


class Tcgen05Backend:
    """Back end of top-level module `Tcgen05`: tensor cores of a CTA or CTA pair of sm_100 execute ``tcgen05.mma``."""

    def make_ready(self, arch: str) -> None:
        """Compile the tensor cores. Raise a `BackendError` if the simulator or a compiler is missing."""
        tcgen05()

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Execute the instruction on each batch element's memory images. Reset the hardware before each execution."""
        if "tcgen05" not in tops_of(instruction, arch):
            raise refusal("tcgen05", instruction, arch)
        images = operands.held
        if not isinstance(images, TensorMemoryOperands):
            raise BackendError(
                f"back end 'tcgen05' takes the operands of {instruction} from tensor memory and shared memory, as "
                f"sptc.tcgen05_mma does, not as matrices"
            )
        command = command_of(images)
        smem = images.smem[..., :ADDRESS_SPACE]
        runs = [tcgen05().run([command], *case) for case in zip(images.tmem, smem, strict=True)]
        for run in runs:
            if run.undefined.any():
                names = ", ".join(undefined_names(int(np.bitwise_or.reduce(run.undefined, axis=None))))
                raise BackendError(f"back end 'tcgen05' flags undefined operand addresses of {images.opcode}: {names}")
        tmem = np.stack([run.tmem for run in runs])
        where = accumulator_map(
            layout_for(images.opcode, instruction.m), instruction.n, instruction.d.bits, images.addresses["d"]
        )
        d = gather_tensor(tmem.reshape(-1, LANES, COLUMNS), where)
        flags: tuple[StepFlags, ...] = ()
        if instruction.rule:
            assert operands.nibbles is not None
            flags = _panels(instruction, operands.nibbles, np.concatenate([run.illegal[0] for run in runs]))
        return Product(d, flags, sum(int(run.done.max() - run.taken.min()) for run in runs), tmem)
