"""Default choices: the instruction that a library would use, and the fastest available back end."""

from dataclasses import replace
from functools import lru_cache

from ..api.backends import Backend, backend
from ..errors import BackendError, InstructionError, OperandError
from ..isa.architectures import target_named
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction, every_instruction
from ..isa.numerics import Method, numerics
from ..isa.tcgen05 import every_opcode
from ..isa.tcgen05 import instructions_of as tcgen05_instructions_of
from ..isa.text import is_word_of

__all__ = ["fastest", "instructions_for"]

#: Accumulator types of float and integer instructions, the usual one first.
_ACCUMULATORS = {False: ("f32", "f16"), True: ("s32",)}


@lru_cache(maxsize=64)
def instructions_for(
    fmt: str, arch: str, *, dense: bool = False, accumulate: str | None = None, scales: str | None = None
) -> tuple[Instruction, ...]:
    """Return the instructions of a format that give different bits, the likely choice of a library first.

    Instructions of tensor cores come before emulated ones, then the latest family, the usual accumulator, and large K.

    Parameters
    ----------
    fmt : str
        Format of both operands.
    arch : str
        Architecture.
    dense : bool
        Return dense instructions instead of sparse ones.
    accumulate : str, optional
        Accumulator type (default: all).
    scales : str, optional
        Format of block scales, for ``mma`` (default: no block scales).

    Raises
    ------
    InstructionError, OperandError
        There is no such instruction, format or architecture.
    """
    if not is_word_of(fmt, FORMATS):
        raise OperandError(f"the format must be one of {', '.join(FORMATS)}, not {fmt!r}")
    name, arch = arch, target_named(arch).arch
    integer = FORMATS[fmt].is_integer
    accepted = (accumulate,) if accumulate else _ACCUMULATORS[integer]
    every = [*every_instruction()]
    every += [
        i for opcode in every_opcode()
        if not opcode.scale_size and not opcode.weight_stationary and opcode.cta_group == 1
        for i in tcgen05_instructions_of(opcode)
    ]  # fmt: skip
    found = [
        i for i in every
        if arch in i.architectures and bool(i.sparse) != dense
        if (i.scale_format.name if i.scale_format else None) == scales
        if i.a.name == i.b.name == fmt and i.c is i.d and i.d.name in accepted
    ]  # fmt: skip
    if not found:
        kind = "dense" if dense else "sparse"
        scaled = f" with block scales of {scales}" if scales else ""
        into = f" that accumulates in {accumulate}" if accumulate else ""
        raise InstructionError(f"{name} has no {kind} instruction for {fmt}{scaled}{into}")

    def preferred(i: Instruction) -> tuple[bool, int, int, int, bool, bool, int, int]:
        native = numerics(i, arch).method is not Method.EMULATED
        families = ("mma", "wgmma", "tcgen05")
        rank = -accepted.index(i.d.name), families.index(i.family)
        return native, *rank, i.k, i.satfinite, i.sparse != "sp::ordered_metadata", -i.m, -i.n

    different: dict[object, Instruction] = {}
    for i in sorted(found, key=preferred, reverse=True):
        parameters = replace(numerics(i, arch), source="")
        different.setdefault((parameters, i.k, i.span, i.d.name, i.satfinite), i)
    return tuple(different.values())


def fastest(name: str | None, arch: str) -> Backend:
    """Return a back end by name (default: libsptc, or the golden model if libsptc cannot be compiled).

    Raises
    ------
    BackendError
        There is no such back end, or it cannot run on this machine.
    """
    if name is not None:
        return backend(name)
    try:
        native = backend("native")
        native.make_ready(arch)
    except BackendError:
        return backend("golden")
    return native
