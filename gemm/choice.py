"""Choose the default instruction as a library would, and the fastest available back end as the default back end."""

from dataclasses import replace
from functools import lru_cache

from ..api.backends import Backend, backend
from ..errors import BackendError, InstructionError, OperandError, shown
from ..isa.architectures import target_named
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction, every_instruction
from ..isa.numerics import Method, numerics
from ..isa.tcgen05 import every_opcode
from ..isa.tcgen05 import instructions_of as tcgen05_instructions_of
from ..isa.text import is_word_of

__all__ = ["fastest", "formats_of", "in_factor_order", "instructions_alike", "instructions_for"]

#: Accumulator types of float instructions (key False) and of integer instructions (key True), the usual type first.
_ACCUMULATORS = {False: ("f32", "f16"), True: ("s32",)}


@lru_cache(maxsize=64)
def instructions_for(
    fmt: str, arch: str, *, dense: bool = False, accumulate: str | None = None, scales: str | None = None
) -> tuple[Instruction, ...]:
    """Return instructions for a format that give different result bits; the first is the likely choice of a library.

    Instructions of tensor cores come before emulated instructions. Further criteria are, in this order: the usual
    accumulator, the latest family, and a large K. `fmt` is the format of both operands, or the formats of A and B with
    a comma between them; `accumulate` is the type of the accumulator (default: any), `scales` the format of the block
    scales (default: no block scales). Raise an `InstructionError` or `OperandError` if there is no such instruction,
    format or architecture.
    """
    modelled = target_named(arch).arch
    different: dict[object, Instruction] = {}
    for i in _every_instruction_for(fmt, arch, dense, accumulate, scales):
        different.setdefault(_bits_of(i, modelled), i)
    return tuple(different.values())


def instructions_alike(i: Instruction, arch: str) -> tuple[Instruction, ...]:
    """Return instructions of each other family, sparsity or ``.kind`` that give the same result bits as `i`."""
    instructions, modelled = dict[object, Instruction](), target_named(arch).arch
    scales = i.scale_format.name if i.scale_format else None
    for other in _every_instruction_for(f"{i.a.name},{i.b.name}", arch, not i.sparse, i.d.name, scales):
        if _bits_of(other, modelled) == _bits_of(i, modelled):
            instructions.setdefault((other.family, other.sparse, other.kind), other)
    instructions.pop((i.family, i.sparse, i.kind), None)
    return tuple(instructions.values())


def formats_of(fmt: str) -> tuple[str, str]:
    """Return the formats of A and B from one or two comma-separated names; raise an `OperandError` for a wrong name."""
    a, comma, b = fmt.partition(",") if isinstance(fmt, str) else ("", "", "")
    if not (is_word_of(a, FORMATS) and (b in FORMATS if comma else True)):
        raise OperandError(f"the format must be one of {', '.join(FORMATS)}, not {shown(fmt)}")
    return a, b if comma else a


def in_factor_order(fmt: str, swapped: bool) -> str:
    """Return the formats of the left and the right factor of an instruction, given those of A and B.

    With `swapped`, B is the left factor.
    """
    return ",".join(reversed(fmt.split(","))) if swapped else fmt


def _bits_of(i: Instruction, arch: str) -> object:
    """Return the properties of an instruction that determine its result bits, for operands of given formats."""
    return replace(numerics(i, arch), source=""), bool(i.sparse), i.k, i.span, i.d.name, i.satfinite


@lru_cache(maxsize=64)
def _every_instruction_for(
    fmt: str, arch: str, dense: bool, accumulate: str | None, scales: str | None
) -> tuple[Instruction, ...]:
    """Return all instructions for an element format in the order of :func:`instructions_for`: likely choices first."""
    formats, name, arch = formats_of(fmt), arch, target_named(arch).arch
    integer = FORMATS[formats[0]].is_integer
    accepted = (accumulate,) if accumulate else _ACCUMULATORS[integer]
    every = [*every_instruction()]
    every += [
        i for opcode in every_opcode()
        if bool(opcode.scale_size) == bool(scales) and not opcode.weight_stationary and opcode.cta_group == 1
        for i in tcgen05_instructions_of(opcode)
    ]  # fmt: skip
    matching = [
        i for i in every
        if arch in i.architectures and bool(i.sparse) != dense
        if (i.scale_format.name if i.scale_format else None) == scales
        if (i.a.name, i.b.name) == formats and i.c is i.d and i.d.name in accepted
    ]  # fmt: skip
    if not matching:
        kind = "dense" if dense else "sparse"
        scaled = f" with block scales of {scales}" if scales else ""
        into = f" that accumulates in {accumulate}" if accumulate else ""
        named = " by ".join(dict.fromkeys(formats))
        raise InstructionError(f"{name} has no {kind} instruction for {named}{scaled}{into}")

    def preferred(i: Instruction) -> tuple[bool, int, int, int, bool, bool, int, int]:
        native = numerics(i, arch).method is not Method.EMULATED
        families = ("mma", "wgmma", "tcgen05")
        rank = -accepted.index(i.d.name), families.index(i.family)
        return native, *rank, i.k, i.satfinite, i.sparse != "sp::ordered_metadata", -i.m, -i.n

    return tuple(sorted(matching, key=preferred, reverse=True))


def fastest(name: str | None, arch: str) -> Backend:
    """Return the named back end. If `name` is None, return libsptc, or the golden model if libsptc cannot be compiled.

    Raise a `BackendError` if there is no such back end, or it cannot run on this machine.
    """
    if name is not None:
        return backend(name)
    try:
        native = backend("native")
        native.make_ready(arch)
    except BackendError:
        return backend("golden")
    return native
