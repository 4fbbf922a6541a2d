"""Commands for the compiled tensor cores of a CTA or a CTA pair, results of a run, and test programs."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...isa.instruction_descriptor import InstructionDescriptor
from ...isa.tcgen05 import Opcode
from ...isa.tensor_memory import COLUMNS, LANES
from ...rtl.config import WARP_COLUMNS, CoreConfig
from ...rtl.fetch import descriptor_layout
from ...rtl.step import control_layout
from ...rtl.tcgen05 import CtaOperation, tcgen05_layout
from ...rtl.warp import ScaleSizeCode
from .ports import payload_words
from .steps import control_word

__all__ = ["COMMIT", "CtaCommand", "CtaProgram", "CtaRun", "cta_command"]

#: Shared-memory descriptor bits for features that the RTL lacks: 32-byte atoms and absolute leading addresses.
_NOT_BUILT = 1 << 61 | 1 << 52
#: Number of values of the sparsity selector that the RTL supports; the effect of larger values is not documented.
_SELECTORS = 2
#: Operands that are always in tensor memory. Keys: name of the command field without ``_column``. Values: name of the
#: operand in the argument `operands` of :func:`cta_command`.
_COLUMN_OPERANDS = {"d": "d", "metadata": "e", "scale_a": "scale_a", "scale_b": "scale_b"}
#: Smallest value of operand `a` that is a shared-memory descriptor; a smaller value is an address in tensor memory.
_SMALLEST_DESCRIPTOR = 1 << 46


@dataclass(frozen=True, eq=False)
class CtaCommand:
    """Command for the tensor cores of a CTA: a multiplication or a commit."""

    #: Fields of the command's payload, :func:`~sptc.rtl.tcgen05.tcgen05_layout`, except `odd`, in which the payloads of
    #: the two CTAs of a pair differ.
    fields: dict[str, Any]
    n: int = 0  #: Number of columns of D of a multiplication; 0 for a commit

    @cached_property
    def payloads(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The command as it is sent to each CTA of a pair, as 32-bit words. A single CTA gets the first of both."""
        numbers = [{"odd": cta} if self.n else {} for cta in range(2)]
        even, odd = (payload_words(tcgen05_layout(), self.fields | number) for number in numbers)
        return even, odd


@dataclass(frozen=True, eq=False)
class CtaRun:
    """Results and cycle numbers of all commands of a run on one CTA or a CTA pair."""

    tmem: NDArray[np.uint32]  #: Contents of tensor memory after the run, shape (CTAs, 128, 512)
    #: `taken`: cycle in which each command was accepted. `done`: cycle in which the last result of the command was
    #: written, -1 for a commit. Shape: (commands, CTAs).
    taken: NDArray[np.int64]
    done: NDArray[np.int64]
    #: For each command, undefined-nibble flags of its panels (eight columns) of D, in order, shape (CTAs, panels, 128,
    #: 16); no panels for a commit.
    illegal: list[NDArray[np.bool_]]
    arrivals: NDArray[np.int64]  #: For each CTA, number of commits that have arrived
    #: Flags of undefined operand placement, as words of :func:`~sptc.rtl.placement.placement_layout`, shape (commands,
    #: CTAs).
    undefined: NDArray[np.int64]
    broken: str  #: Interface rule that the hardware violated during the run, as text; empty for none


@dataclass(frozen=True, eq=False)
class CtaProgram:
    """Test program for a CTA pair: commands, initial memory contents, and expected results."""

    commands: list[CtaCommand]
    tmem: NDArray[np.uint32]  #: Initial contents of tensor memory of both CTAs, shape (2, 128, 512)
    smem: NDArray[np.uint8]  #: Initial contents of shared memory of both CTAs, shape (2, bytes)
    expected: NDArray[np.uint32]  #: Expected contents of tensor memory after the last command, shape (2, 128, 512)
    #: Expected undefined-nibble flags of every written panel (eight columns) of D, in order; shape (2, panels, 128,
    #: 16).
    flags: NDArray[np.bool_]


COMMIT = CtaCommand({"operation": CtaOperation.COMMIT})


def cta_command(
    config: CoreConfig,
    opcode: Opcode,
    descriptor: InstructionDescriptor,
    operands: dict[str, int],
    *,
    enable_input_d: bool = True,
) -> CtaCommand | None:
    """Return the command for a ``tcgen05.mma``, or None if the RTL does not support the instruction.

    The operands, for :func:`sptc.tcgen05_mma`, are descriptors and addresses of `a`, `b` and `d`, and of `e`, `scale_a`
    and `scale_b` where the instruction has them. With `enable_input_d`, D is added to the product.
    """
    i, shared = descriptor.instruction, operands["a"] >= _SMALLEST_DESCRIPTOR
    in_shared = [("b", descriptor.transpose_b), *([("a", descriptor.transpose_a)] if shared else [])]
    moved = any(transposed and i.container_bits != 16 for _, transposed in in_shared)
    other = any(operands[name] & _NOT_BUILT for name, _ in in_shared)
    narrow = not shared and i.a.bits < i.container_bits == 8
    lacks = opcode.weight_stationary or opcode.shifts_a or i.m != LANES * opcode.cta_group
    if lacks or moved or other or narrow or descriptor.sparsity_selector >= _SELECTORS:
        return None
    layout = descriptor_layout()
    columns = {f"{name}_column": operands.get(key, 0) % COLUMNS for name, key in _COLUMN_OPERANDS.items()}
    columns["a_column"] = 0 if shared else operands["a"] % COLUMNS
    return CtaCommand(
        {
            "operation": CtaOperation.MULTIPLY,
            "control": control_layout().from_bits(control_word(config, i, last=True)),
            "a_descriptor": layout.from_bits(operands["a"] if shared else 0),
            "b_descriptor": layout.from_bits(operands["b"]),
            "a_shared": shared,
            "a_transposed": descriptor.transpose_a,
            "b_transposed": descriptor.transpose_b,
            "negated": descriptor.negate_a != descriptor.negate_b,
            "add": enable_input_d,
            "last_panel": i.n // WARP_COLUMNS - 1,
            "sparsity_selector": descriptor.sparsity_selector,
            **columns,
            "scale_size": ScaleSizeCode.__members__[f"X{i.scale_size or 1}"],
            "byte_a": descriptor.scale_id_a,
            "byte_b": descriptor.scale_id_b,
            "pair": opcode.cta_group == 2,
        },
        i.n,
    )
