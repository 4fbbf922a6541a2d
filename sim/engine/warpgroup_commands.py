"""Inputs and results of the compiled warpgroup: its commands, and concurrent ``mma`` instructions of single warps."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...isa.instructions import Instruction
from ...isa.memory import ADDRESS_SPACE, UNIT_BYTES
from ...isa.operands import HeldOperands, Immediates
from ...isa.timing import ARCHITECTURE, is_sequence, timing
from ...rtl.config import WARP_COLUMNS, CoreConfig
from ...rtl.fetch import descriptor_layout
from ...rtl.life_cycle import Operation
from ...rtl.step import control_layout
from ...rtl.tensor_cores import mma_layout
from ...rtl.warp import REGISTERS, ROWS
from .steps import control_word
from .warp_operands import warp_words

__all__ = [
    "COMMIT",
    "Command",
    "Completion",
    "WarpInstruction",
    "is_executed",
    "multiplication",
    "wait",
    "warp_instruction",
    "wgmma_fields",
]


@dataclass(frozen=True, eq=False)
class Command:
    """Command for a warpgroup: a multiplication, a commit or a wait."""

    #: Fields of the command's payload, :func:`~sptc.rtl.warpgroup.warpgroup_layout`, except `a` and `e`.
    fields: dict[str, Any]
    #: Registers of A, shape (128, 4); None if A is in shared memory.
    a: NDArray[np.uint32] | None = None
    e: NDArray[np.uint32] | None = None  #: Metadata registers, shape (128,); None for a dense multiplication
    #: Contents of shared memory in whole units of 16 bytes, shape (bytes,); empty for a commit or a wait.
    image: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    #: Accumulator registers, shape (128, registers); None if the results of the previous multiplication are the
    #: accumulators.
    c: NDArray[np.uint32] | None = None
    n: int = 0  #: Number of columns of D of a multiplication; 0 for a commit or a wait
    registers: int = REGISTERS  #: Number of accumulator registers per thread for each panel of eight columns of D


@dataclass(frozen=True, eq=False)
class Completion:
    """Results and cycle numbers of one warpgroup command or one ``mma`` instruction."""

    #: `taken`: cycle in which the command or instruction was accepted. `done`: cycle in which its last result was
    #: delivered, -1 for a commit or a wait.
    taken: int
    done: int
    #: Registers with the results D, shape (128, registers); for ``mma``, shape (32, registers).
    d: NDArray[np.uint32]
    #: Undefined-nibble flags of every panel (eight columns) of D, shape (panels, 64, 16); for ``mma``, shape (1, 16,
    #: 16).
    illegal: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class WarpInstruction:
    """``mma`` instruction for one of the four tensor cores of a warpgroup."""

    #: Payload words of :func:`~sptc.rtl.tensor_cores.mma_layout`, without the tensor core number.
    words: NDArray[np.uint32]
    control: int  #: Control word of the dot-product units, the same in all cycles of the instruction
    registers: int  #: Number of registers of D per thread
    surroundings: int  #: Part of the instruction's measured latency that is spent outside the tensor core, in cycles
    #: Index of an earlier instruction on the same tensor core whose D is this instruction's C; None if C is in
    #: registers.
    after: int | None = None


COMMIT = Command({"operation": Operation.COMMIT})


def is_executed(instruction: Instruction) -> bool:
    """Return whether the warpgroup RTL executes an instruction."""
    if instruction.family == "mma":
        is_single = ARCHITECTURE in instruction.architectures and not is_sequence(instruction, ARCHITECTURE)
        return instruction.m == ROWS and is_single
    return instruction.family == "wgmma"


def wait(pending: int) -> Command:
    """Return a wait command, which completes when at most `pending` commit groups are pending."""
    return Command({"operation": Operation.WAIT, "pending": pending})


def multiplication(config: CoreConfig, instruction: Instruction, operands: HeldOperands, case: int) -> Command:
    """Return the command for a ``wgmma`` instruction with the operands at index `case` of the batch."""
    arrays, layout = operands.arrays, descriptor_layout()
    a_descriptor, b_descriptor = (layout.from_bits(descriptor) for descriptor in operands.descriptors)
    fields = {"operation": Operation.MULTIPLY, "a_descriptor": a_descriptor, "b_descriptor": b_descriptor}
    fields |= wgmma_fields(config, instruction, operands.immediates)
    a, e = (arrays[name][case] if name in arrays else None for name in ("a", "e"))
    registers = REGISTERS * instruction.d.bits // 32
    # Shared memory is written in units of 16 bytes. Bytes beyond the address space are dropped, since no descriptor can
    # address them.
    image = arrays["b"][case, :ADDRESS_SPACE]
    image = np.pad(image, (0, -len(image) % UNIT_BYTES))
    return Command(fields, a, e, image, arrays["c"][case], instruction.n, registers)


def wgmma_fields(config: CoreConfig, instruction: Instruction, immediates: Immediates) -> dict[str, Any]:
    """Return the fields of the command for a ``wgmma``, without registers and descriptors.

    The fields are those of :func:`~sptc.rtl.tensor_cores.multiplication_layout`.
    """
    return {
        "control": control_layout().from_bits(control_word(config, instruction, last=True)),
        "a_shared": not immediates.a_in_registers,
        "a_transposed": immediates.imm_trans[0],
        "b_transposed": immediates.imm_trans[1],
        "negated": immediates.imm_scale[0] != immediates.imm_scale[1],
        "add": immediates.scale_d,
        "last_panel": instruction.n // WARP_COLUMNS - 1,
        "sparsity_selector": immediates.sparsity_selector,
    }


def warp_instruction(
    config: CoreConfig, instruction: Instruction, operands: HeldOperands, case: int, after: int | None = None
) -> WarpInstruction:
    """Return an ``mma`` with operands at index `case` of the batch. C is in registers, or D of the ``mma`` `after`.

    The instruction has 16 rows and no block scales.
    """
    (of_warp,) = warp_words(config, instruction, operands, slice(case, case + 1))
    words = np.zeros(-(-mma_layout().size // 32), np.uint32)
    words[: len(of_warp)] = of_warp
    control = control_word(config, instruction, last=True)
    measured = timing(instruction, ARCHITECTURE)
    assert measured
    surroundings = int(measured.latency) - config.warp_latency(1)
    return WarpInstruction(words, control, operands.arrays["c"].shape[2], surroundings, after)
