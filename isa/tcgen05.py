"""Kinds, qualifiers and parser of ``tcgen05.mma``. Shape and types are in a separate instruction descriptor."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..errors import InstructionError
from .formats import FORMATS
from .instructions import Instruction, one_of
from .text import category, dotted, parser

__all__ = [
    "KINDS",
    "Kind",
    "Opcode",
    "build_instruction",
    "every_opcode",
    "instructions_of",
    "parse_opcode",
    "parse_shaped",
]

_TINY = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_F32 = {"f32": 1}
_F16_OR_F32 = {"f16": 0, "f32": 1}
_UE8M0 = {"ue8m0": 1}
_EITHER_SCALE = {"ue4m3": 0, "ue8m0": 1}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Types and options that one ``.kind::`` qualifier of ``tcgen05.mma`` allows.

    Source: PTX ISA, tables of kinds and shapes, of transpose and negate, of ``scale_vectorsize``, and the syntax of
    ``tcgen05.mma`` and ``tcgen05.mma.sp``. The default number of block scales of mxf8f6f4 is that of the CUDA 13.0
    assembler. Like CUTLASS, the model does not mix f16 and bf16; PTX does not state whether an instruction may.
    """

    k: int  #: K of the sparse instruction. K of the dense instruction is half of it.
    types: dict[str, int]  #: For each type of A and B, its code in the instruction descriptor
    #: For each type of D, its code in the instruction descriptor. The code of a block-scaled kind is unused: the
    #: descriptor of such a kind has no field for the type of D.
    accumulators: dict[str, int]
    #: For each ``.scale_vec`` or ``.block`` qualifier, the number of block scales per row of A and per column of B. The
    #: key "" stands for no such qualifier.
    scales: dict[str, int]
    #: For each number of block scales, the types that they may have, with their codes in the instruction descriptor.
    scale_types: dict[int, dict[str, int]]
    mixes: bool = True  #: Whether A and B may differ in type
    #: Whether the instruction descriptor may transpose operands, and whether it may negate operands.
    transposes: bool = True
    negates: bool = True


KINDS: dict[str, Kind] = {
    "tf32": Kind(k=16, types={"tf32": 2}, accumulators=_F32, scales={}, scale_types={}),
    "f16": Kind(k=32, types={"f16": 0, "bf16": 1}, accumulators=_F16_OR_F32, scales={}, scale_types={}, mixes=False),
    "f8f6f4": Kind(k=64, types=_TINY, accumulators=_F16_OR_F32, scales={}, scale_types={}),
    "i8": Kind(k=64, types={"u8": 0, "s8": 1}, accumulators={"s32": 2}, scales={}, scale_types={}, negates=False),
    "mxf8f6f4": Kind(
        k=64,
        types=_TINY,
        accumulators=_F32,
        scales={"": 1, "scale_vec::1X": 1, "block32": 1},
        scale_types={1: _UE8M0},
    ),
    "mxf4": Kind(
        k=128,
        types={"e2m1": 1},
        accumulators=_F32,
        scales={"": 2, "scale_vec::2X": 2, "block32": 2},
        scale_types={2: _UE8M0},
        transposes=False,
    ),
    "mxf4nvf4": Kind(
        k=128,
        types={"e2m1": 1},
        accumulators=_F32,
        scales={"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
        scale_types={2: _UE8M0, 4: _EITHER_SCALE},
        transposes=False,
    ),
}

#: For each category of qualifiers, the pattern that they match.
_QUALIFIERS = {
    "sp": "sp",
    "block_scale": "block_scale",
    "ashift": "ashift",
    "cta_group": "cta_group::.*",
    "kind": "kind::.*",
    "scale_vec": r"scale_vec::\w+|block\d+",
    "collector": "collector::(a|b[0-3])::(fill|use|lastuse|discard)",
}


@dataclass(frozen=True, kw_only=True)
class Opcode:
    """Opcode and qualifiers of one ``tcgen05.mma``.

    Source: PTX ISA. The kinds and collectors that allow ``.ashift`` are those that the CUDA 13.0 assembler accepts. A
    sparse CTA pair with 64 rows per CTA does not allow ``.ashift``, as in the public interpreter numsim of an SM100.
    """

    kind: str  #: Name of the ``.kind::`` qualifier, a key of :data:`KINDS`
    sparse: bool = True  #: Whether the opcode has ``.sp``
    cta_group: int  #: Number of CTAs that compute together: 1 or 2
    weight_stationary: bool = False  #: Whether the opcode has ``.ws``
    #: Qualifier that sets the number of block scales, as written, or empty for the default or without block scaling.
    scale_word: str = ""
    #: ``.collector`` qualifier as written, or empty. It permits reuse of operands and changes no result.
    collector: str = ""
    #: Whether the opcode has ``.ashift``: A in tensor memory is shifted by one row after the multiplication.
    shifts_a: bool = False

    @property
    def scale_size(self) -> int | None:
        """Number of block scales per row of A and per column of B, or None without block scaling."""
        return KINDS[self.kind].scales.get(self.scale_word)

    @property
    def k(self) -> int:
        """K of the instruction. K = 96 of dense 4-bit kinds is not modelled."""
        return KINDS[self.kind].k // (1 if self.sparse else 2)

    @property
    def selectors(self) -> int:
        """Number n of sparsity selectors that an instruction descriptor may hold: 0 to n - 1."""
        return 4 if self.sparse and self.kind in ("f16", "tf32") else 1

    @property
    def scales_input_d(self) -> bool:
        """Whether the instruction can scale the old D down before it is added."""
        return self.kind in ("f16", "tf32") and not self.weight_stationary

    @property
    def rows(self) -> tuple[int, ...]:
        """Values of M that an instruction descriptor may hold."""
        if self.weight_stationary:
            return 32, 64, 128
        largest = 128 * self.cta_group
        one_size = KINDS[self.kind].scales and (self.sparse or self.cta_group == 1)
        half_lanes = self.cta_group == 1 or self.sparse
        return (largest,) if one_size or (self.shifts_a and half_lanes) else (largest // 2, largest)

    @property
    def columns(self) -> tuple[int, ...]:
        """Values of N that an instruction descriptor may hold."""
        if self.weight_stationary:
            return (64, 128) if self.sparse else (64, 128, 256)
        if self.kind == "i8":
            return tuple(range(32, 257, 32)) if self.cta_group == 2 else (8, 16, 24, *range(32, 257, 16))
        step = 8 * self.cta_group
        return tuple(range(step, 257, step))

    def __str__(self) -> str:
        words = "tcgen05.mma", "ws" * self.weight_stationary, "sp" * self.sparse, f"cta_group::{self.cta_group}"
        scaled = "block_scale" * bool(KINDS[self.kind].scales)
        return dotted(*words, f"kind::{self.kind}", scaled, self.scale_word, self.collector, "ashift" * self.shifts_a)


@parser
def parse_opcode(text: str) -> Opcode:
    """Parse the opcode and qualifiers of ``tcgen05.mma`` or ``tcgen05.mma.ws``, with or without ``.sp``.

    For example ``tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale.block32``. The order of qualifiers after
    ``tcgen05.mma`` and ``.ws`` is free, as in the assembler. Raise an `InstructionError` if the text is not such an
    opcode; the message names the wrong part and what is accepted there.

    Source: PTX ISA, ``tcgen05.mma``, ``tcgen05.mma.sp``, ``tcgen05.mma.ws`` and ``tcgen05.mma.ws.sp``; compared with
    the CUDA 13.0 assembler.
    """
    words = text.strip().removesuffix(";").rstrip().split(".")
    if words[:2] != ["tcgen05", "mma"]:
        raise InstructionError(f"{'.'.join(words[:2])!r} in {text!r} is no known opcode; expected tcgen05.mma")
    weight_stationary = words[2:3] == ["ws"]
    qualifiers = _by_role(words[3 if weight_stationary else 2 :], text)
    cta_group = qualifiers["cta_group"].removeprefix("cta_group::")
    if cta_group not in ("1", "2"):
        raise InstructionError(f"{'.' + qualifiers['cta_group']!r} in {text!r} is not accepted; expected 1 or 2 CTAs")
    kind = qualifiers["kind"].removeprefix("kind::")
    if kind not in KINDS:
        kinds = one_of([f"'.kind::{name}'" for name in KINDS])
        raise InstructionError(f"'.kind::{kind}' in {text!r} is not accepted; expected {kinds}")
    if weight_stationary and cta_group == "2":
        raise InstructionError(f"'.cta_group::2' in {text!r} is not accepted; '.ws' takes '.cta_group::1'")
    if weight_stationary and KINDS[kind].scales:
        raise InstructionError(f"'.kind::{kind}' in {text!r} is not accepted; '.ws' takes no block-scaled kind")
    _check_scales(kind, qualifiers, text)
    collector = qualifiers.get("collector", "")
    _check_collector(collector, weight_stationary, text)
    if "ashift" in qualifiers:
        _check_shift(kind, weight_stationary, collector, text)
    return Opcode(
        kind=kind,
        sparse="sp" in qualifiers,
        cta_group=int(cta_group),
        weight_stationary=weight_stationary,
        scale_word=qualifiers.get("scale_vec", ""),
        collector=collector,
        shifts_a="ashift" in qualifiers,
    )


def _by_role(words: list[str], text: str) -> dict[str, str]:
    """Return the qualifiers by category. Raise an error if ``.cta_group`` or ``.kind`` is missing."""
    qualifiers: dict[str, str] = {}
    for word in words:
        name = category(word, _QUALIFIERS)
        if not name:
            raise InstructionError(
                f"{'.' + word!r} in {text!r} is no part of tcgen05.mma; accepted are .sp, .cta_group::…, .kind::…, "
                f".block_scale, .scale_vec::…, .block16, .block32, .collector::…::… and .ashift, and .ws directly "
                f"after tcgen05.mma"
            )
        if name in qualifiers:
            raise InstructionError(
                f"{text!r} has both '.{qualifiers[name]}' and '.{word}'; only one of them is allowed"
            )
        qualifiers[name] = word
    for name, example in (("cta_group", "cta_group::1"), ("kind", "kind::f16")):
        if name not in qualifiers:
            raise InstructionError(f"'.{name}' is missing in {text!r}; expected for example '.{example}'")
    return qualifiers


def _check_scales(kind: str, qualifiers: dict[str, str], text: str) -> None:
    scales = KINDS[kind].scales
    word = qualifiers.get("scale_vec", "")
    if not scales:
        if written := qualifiers.get("block_scale") or word:
            scaled = one_of([f"'.kind::{name}'" for name, other in KINDS.items() if other.scales])
            raise InstructionError(f"'.{written}' in {text!r} is not accepted; it belongs to {scaled}")
    elif "block_scale" not in qualifiers:
        raise InstructionError(f"'.block_scale' is missing in {text!r}; '.kind::{kind}' requires it")
    elif word not in scales:
        accepted = one_of([f"'.{choice}'" for choice in scales if choice])
        written = f"'.{word}' in {text!r} is not accepted" if word else f"'.scale_vec' is missing in {text!r}"
        raise InstructionError(f"{written}; '.kind::{kind}' takes {accepted}")


def _check_collector(collector: str, weight_stationary: bool, text: str) -> None:
    if collector and collector.startswith("collector::a") == weight_stationary:
        buffers = "'.collector::b0' to '.collector::b3'" if weight_stationary else "'.collector::a'"
        form = "with '.ws'" if weight_stationary else "without '.ws'"
        raise InstructionError(f"'.{collector}' in {text!r} is not accepted; {form} the collector is {buffers}")


def _check_shift(kind: str, weight_stationary: bool, collector: str, text: str) -> None:
    if weight_stationary:
        raise InstructionError(f"'.ashift' in {text!r} is not accepted; '.ws' does not shift A")
    if KINDS[kind].scales:
        kinds = one_of([f"'.kind::{name}'" for name, other in KINDS.items() if not other.scales])
        raise InstructionError(f"'.ashift' in {text!r} is not accepted; it belongs to {kinds}")
    if collector.endswith(("fill", "::use")):
        raise InstructionError(
            f"'.{collector}' in {text!r} is not accepted; with '.ashift' it must be '.collector::a::lastuse' or "
            f"'.collector::a::discard'"
        )


def build_instruction(
    opcode: Opcode, m: int, n: int, d: str, a: str, b: str, satfinite: bool = False, scale_type: str | None = None
) -> Instruction:
    """Build the instruction of an opcode with a given shape and types, which are not checked."""
    return Instruction(
        family="tcgen05",
        sparse="sp" if opcode.sparse else "",
        m=m,
        n=n,
        k=opcode.k,
        a=FORMATS[a],
        b=FORMATS[b],
        c=FORMATS[d],
        d=FORMATS[d],
        kind=opcode.kind,
        satfinite=satfinite,
        scale_size=opcode.scale_size,
        scale_format=FORMATS[scale_type] if scale_type else None,
        architectures=("sm_100",),
    )


def instructions_of(opcode: Opcode) -> Iterator[Instruction]:
    """Yield every instruction of an opcode, one for each shape and type that an instruction descriptor may hold."""
    kind = KINDS[opcode.kind]
    for d, a, b in product(kind.accumulators, kind.types, kind.types):
        if (a != b and not kind.mixes) or (d, a) == ("f16", "bf16"):
            continue
        scale_types: tuple[str | None, ...] = tuple(kind.scale_types.get(opcode.scale_size or 0, ())) or (None,)
        saturations = (False, True) if opcode.kind == "i8" else (False,)
        for m, n, satfinite, scale_type in product(opcode.rows, opcode.columns, saturations, scale_types):
            yield build_instruction(opcode, m, n, d, a, b, satfinite, scale_type)


def every_opcode() -> Iterator[Opcode]:
    """Yield every opcode without ``.collector`` and ``.ashift``, once for each number of block scales."""
    choices = product((True, False), (False, True), KINDS.items(), (1, 2))
    for sparse, stationary, (name, kind), cta_group in choices:
        if not stationary or (cta_group == 1 and not kind.scales):
            scales = kind.scales or {"": 0}
            first_words = {size: word for word, size in reversed(scales.items())}
            for word in reversed(first_words.values()):
                yield Opcode(
                    kind=name, sparse=sparse, cta_group=cta_group, weight_stationary=stationary, scale_word=word
                )


@parser
def parse_shaped(text: str) -> tuple[Opcode, Instruction]:
    """Parse a ``tcgen05.mma`` opcode that is followed by shape and types in brackets.

    For example ``tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)``. Without shape and types, the
    instruction with the largest M, the smallest N and the first types is returned. Raise an `InstructionError` if the
    opcode does not parse, or has no instruction with the shape and types in brackets.
    """
    word, _, added = text.strip().partition(" ")
    opcode = parse_opcode(word)
    every = {i.shape_and_types: i for i in instructions_of(opcode)}
    default = next(i for i in every.values() if i.m == opcode.rows[-1])
    shape_and_types = added.strip().removeprefix("(").removesuffix(")")
    if shape_and_types and shape_and_types not in every:
        raise InstructionError(
            f"{opcode} has no shape and types {shape_and_types!r}; an example is '{default.shape_and_types}'"
        )
    return opcode, every[shape_and_types] if shape_and_types else default
