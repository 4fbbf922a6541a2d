"""Choose the top module (warp, warpgroup or CTA) for an instruction, and keep a compiled model of each top module."""

from functools import lru_cache

from ...errors import BackendError
from ...isa.instructions import Instruction
from ...isa.operands import TensorMemoryOperands
from ...isa.timing import ARCHITECTURE
from ...rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, WARP_ROWS, CoreConfig
from ...rtl.placement import placement_layout
from ...rtl.tcgen05 import TCGEN05_ARRAY
from .compiled_tcgen05 import CompiledTcgen05
from .compiled_warp import CompiledWarp
from .compiled_warpgroup import CompiledWarpgroup
from .steps import executes
from .tcgen05_commands import CtaCommand, cta_command
from .warpgroup_commands import is_executed

__all__ = ["command_of", "refusal", "tcgen05", "tops_of", "undefined_names", "warp_for", "warpgroup"]

#: Advice in messages about an instruction that no top-level module executes, but a single dot-product unit does.
_ON_A_ROW = "use back end 'rtl', a single dot-product unit: no top-level module executes the instruction"


def tops_of(instruction: Instruction, arch: str) -> tuple[str, ...]:
    """Return the names of the top modules that execute an instruction; each name is also the name of a back end.

    For ``tcgen05.mma`` the operands decide as well: see :func:`command_of`.
    """
    if instruction.family == "tcgen05":
        return ("tcgen05",)
    names = []
    if instruction.family == "mma" and instruction.m == WARP_ROWS and executes(_config(arch), instruction, arch):
        names.append("warp")
    if arch == ARCHITECTURE and is_executed(instruction):
        names.append("warpgroup")
    return tuple(names)


def refusal(name: str, instruction: Instruction, arch: str) -> BackendError:
    """Return the error for an instruction that a back end does not execute; the message names a suitable back end."""
    tops = tops_of(instruction, arch)
    other = f"use back end {tops[0]!r}" if tops else _ON_A_ROW
    return BackendError(f"back end {name!r} does not execute {instruction} of {arch}; {other}")


def _config(arch: str) -> CoreConfig:
    return PRESETS[PRESET_OF_ARCHITECTURE[arch]]


@lru_cache(maxsize=8)
def _warp(config: CoreConfig) -> CompiledWarp:
    return CompiledWarp(config)


def warp_for(arch: str) -> CompiledWarp:
    """Return the compiled warp with the datapath of an architecture, created on the first call."""
    return _warp(_config(arch))


@lru_cache(maxsize=1)
def warpgroup() -> CompiledWarpgroup:
    """Return the compiled warpgroup with the four tensor cores of an SM of sm_90, created on the first call."""
    return CompiledWarpgroup()


@lru_cache(maxsize=1)
def tcgen05() -> CompiledTcgen05:
    """Return the compiled tensor cores of an sm_100 CTA or CTA pair, created on the first call."""
    return CompiledTcgen05()


def command_of(operands: TensorMemoryOperands) -> CtaCommand:
    """Return the command for a ``tcgen05.mma``; raise a BackendError if the RTL does not support the instruction."""
    command = cta_command(
        TCGEN05_ARRAY, operands.opcode, operands.descriptor, operands.addresses, enable_input_d=operands.enable_input_d
    )
    if command is None or operands.options:
        options = "".join(f" with {name}" for name in operands.options)
        raise BackendError(
            f"back end 'tcgen05' does not execute {operands.opcode} "
            f"({operands.descriptor.instruction.shape_and_types}){options} with these operand locations; {_ON_A_ROW}"
        )
    return command


def undefined_names(word: int) -> list[str]:
    """Return the names of the flags that are set in a word of :func:`~sptc.rtl.placement.placement_layout`."""
    return [name for name, field in placement_layout() if word >> field.offset & 1]
