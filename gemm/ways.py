"""Ways of summation: all that determines the bits of a matrix product, except its operands.

An output is a sum of chains of instructions along K. A tensor core computes a chain: the result of each instruction is
the accumulator of the next instruction. The results of chains are added in f32 under IEEE rules, round to nearest even
(RNE):

    K        | instr 0 | instr 1 | instr 2 | instr 3 | instr 4 | instr 5 | instr 6 | instr 7 |
    slices   |                 slice 0               |                 slice 1               |   split_k = 2
    chains   |     chain 0.0     |     chain 0.1     |     chain 1.0     |     chain 1.1     |   promote = 2
    result     (chain 0.0 + chain 0.1) + (chain 1.0 + chain 1.1)                                 in order

With stream-K each output tile has its own slices, see :mod:`sptc.gemm.stream_k`.

With group scales, the result of each chain is scaled before it is added, see :mod:`sptc.gemm.group_scales`.

At the end the epilogue, if any, is applied to the sum (see :mod:`sptc.gemm.epilogue`), and the result is rounded to the
result type.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..api.operands import check_choice
from ..errors import InstructionError, OperandError, shown
from ..infra.counts import counted
from ..isa.architectures import same_numerics
from ..isa.instructions import Instruction, require_architecture
from ..isa.names import resolve
from ..isa.text import is_word_of
from .epilogue import SCALE_ORDERS
from .stream_k import StreamK, convert_numpy_scalars

__all__ = [
    "CONVERSIONS", "CUTS", "GROUP_SCALINGS", "INTERLEAVES", "K_ORDERS", "ORDERS", "Way", "combine",
    "instruction_named",
]  # fmt: skip

#: Order in which the slices of K are added. ``in order``: from the first slice. ``reverse``: from the last slice.
#: ``last first``: the last slice, then the other slices in order. ``tree``: neighbouring slices in pairs, then
#: neighbouring sums. ``halves``: the second half is added to the first half slice by slice, repeatedly. ``any``: the
#: order of atomic additions. Furthermore, 2^n slices can be added in a tree over the n bits of their numbers: with
#: ``tree 1 2 0``, the slices whose numbers differ only in bit 1 are added first. Reductions of Triton and XLA over
#: registers, lanes and warps have such orders.
ORDERS = ("in order", "reverse", "last first", "tree", "halves", "any")
#: Order of the instructions within a slice of K.
K_ORDERS = ("ascending", "descending")
#: Assignment of K tiles to slices of K. ``rounded up``: each slice gets the same number of tiles, rounded up; the last
#: slice gets the remaining tiles. ``balanced``: the numbers of tiles differ by at most one; larger slices are first.
#: ``in turn``: K tile t belongs to slice t mod the number of slices.
CUTS = ("rounded up", "balanced", "in turn")
#: Arithmetic of group scales: the order in which the result of a chain of instructions is multiplied by its two
#: scales, and how the product is added to the f32 accumulator. ``fused``: the last multiplication and the addition
#: are one FMA. ``rounded``: the product is rounded before the addition.
GROUP_SCALINGS = tuple(f"{order}, {addition}" for addition in ("fused", "rounded") for order in (
    "product", "a then b", "b then a"
))  # fmt: skip
#: Conversion of f32 numbers to tf32 before the instruction. Empty: no conversion, and the instruction drops the low 13
#: bits. ``cvt.rna``: round to nearest, ties away from zero. ``cvt.rn``: round to nearest even.
CONVERSIONS = ("", "cvt.rna", "cvt.rn")
#: Possible values of :attr:`Way.interleave`: number of bits of A and of B along K that two instructions take in turn.
INTERLEAVES = (0, 32, 64)
_ACCEPTED = {
    "k_order": K_ORDERS,
    "cut": CUTS,
    "rounding": ("RNE", "RZ"),
    "group_scaling": ("", *GROUP_SCALINGS),
    "scale_order": SCALE_ORDERS,
    "convert_a": CONVERSIONS,
    "convert_b": CONVERSIONS,
}

Term = TypeVar("Term")


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of summation: the order and the roundings of the additions in a matrix product."""

    #: Instruction that is repeated along K, in PTX syntax. It also determines the accumulator type. M and N of the
    #: instruction do not affect the result bits.
    instruction: str
    arch: str = "sm_90"  #: Architecture whose numerics the instructions use
    #: Number of slices of K, or a sequence: for each slice, its number of K tiles (groups of instructions).
    split_k: int | tuple[int, ...] = 1
    #: Order in which the sums of slices of K are added: one of :data:`ORDERS`, or a tree over bits of slice numbers.
    order: str = "in order"
    k_order: str = "ascending"  #: Order of the instructions within a slice of K, one of :data:`K_ORDERS`
    #: Number of bits of A and B along K that two consecutive dense instructions take in turn, one of
    #: :data:`INTERLEAVES`. Kernels of Triton that widen a narrow operand in registers use this interleaving. If the
    #: number is 0, each instruction takes successive elements.
    interleave: int = 0
    #: Instructions per chain. The result of a chain is added to f32 registers, and the next chain begins from zero.
    #: If the number is 0, each slice of K is one chain.
    promote: int = 0
    tile: int = 1  #: Instructions per K tile. Slices of K begin and end at the boundaries of K tiles.
    #: Assignment of K tiles to slices of K, one of :data:`CUTS`. With stream-K: assignment of K tiles to workers,
    #: which is ``rounded up`` or ``balanced``.
    cut: str = "rounded up"
    #: Assignment of work to the workers of stream-K. With stream-K, `split_k` is 1.
    stream_k: StreamK | None = None
    #: Type to which the sum of each slice of K is rounded (RNE) before it is added; empty for no rounding.
    workspace: str = ""
    #: Type to which each running sum of slices is rounded (RNE), as if the output matrix held it; empty for f32.
    running: str = ""
    swapped: bool = False  #: Whether B is the sparse operand, so that (B^T A^T)^T is computed
    result: str = "f32"
    rounding: str = "RNE"  #: Rounding mode of the result: ``RNE``, or ``RZ`` (toward zero)
    group_scaling: str = ""  #: Arithmetic of group scales, one of :data:`GROUP_SCALINGS`; empty without group scales
    scale_order: str = "a then b"  #: Order of the epilogue's scales, one of :data:`~sptc.gemm.epilogue.SCALE_ORDERS`
    #: Conversion of f32 numbers in A and in B to tf32, one of :data:`CONVERSIONS`.
    convert_a: str = ""
    convert_b: str = ""

    def __post_init__(self) -> None:
        convert_numpy_scalars(self)
        for name, accepted in _ACCEPTED.items():
            check_choice(name, getattr(self, name), accepted, OperandError)
        if not is_word_of(self.order, ORDERS) and not _bits_of(self.order):
            words = " or ".join(map(repr, ORDERS))
            raise OperandError(
                f"order must be {words}, or a tree over bits of slice indices, e.g. 'tree 1 0', not {shown(self.order)}"
            )
        if type(self.interleave) is not int or self.interleave not in INTERLEAVES:
            raise OperandError(f"interleave must be 0, 32 or 64 bits, not {shown(self.interleave)}")
        counts = self.split_k if isinstance(self.split_k, tuple) else (self.split_k,)
        for name in ("instruction", "arch", "workspace", "running", "result"):
            if not isinstance(getattr(self, name), str):
                raise OperandError(f"{name} must be a text, not {shown(getattr(self, name))}")
        object.__setattr__(self, "arch", same_numerics(self.arch))
        if not isinstance(self.swapped, bool):
            raise OperandError(f"swapped must be True or False, not {shown(self.swapped)}")
        numbers = (("split_k", 1, counts or (0,)), ("promote", 0, (self.promote,)), ("tile", 1, (self.tile,)))
        for name, least, values in numbers:
            if any(isinstance(value, bool) or not isinstance(value, int) or value < least for value in values):
                raise OperandError(f"{name} must be an integer of {least} or more, not {shown(getattr(self, name))}")
        if self.stream_k is not None:
            if not isinstance(self.stream_k, StreamK):
                raise OperandError(f"stream_k must be a StreamK, not {shown(self.stream_k)}")
            if self.split_k != 1 or self.cut == "in turn":
                raise OperandError("with stream_k, split_k must be 1, and cut must not be 'in turn'")

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "Way":
        """Return a way of summation from its JSON record, made by :meth:`sptc.gemm.diagnosis.Identification.record`.

        Raise an `OperandError` if `record` is not a JSON object, has an unknown field, names no instruction, or
        describes an invalid way.
        """
        if not isinstance(record, Mapping):
            raise OperandError(f"a method of summation must be an object of attributes and values, not {shown(record)}")
        words = dict(record)
        dealing = words.get("stream_k")
        for name, values, kind in (("a way of summation", words, cls), ("stream-K", dealing, StreamK)):
            if isinstance(values, dict):
                known = {field.name: field.default is MISSING for field in fields(kind)}
                unknown = [word for word in values if word not in known]
                missing = [word for word, is_needed in known.items() if is_needed and word not in values]
                if unknown or missing:
                    what = f"the unknown attribute {shown(unknown[0])}" if unknown else f"no attribute {missing[0]!r}"
                    raise OperandError(f"the JSON record of {name} has {what}")
        if isinstance(dealing, dict):
            words["stream_k"] = StreamK(**dealing)
        if isinstance(words.get("split_k"), list):
            words["split_k"] = tuple(words["split_k"])
        return cls(**words)

    @property
    def parsed(self) -> Instruction:
        """Instruction that is repeated along K, parsed from its PTX syntax."""
        return instruction_named(self.instruction, self.arch)

    @property
    def has_slices(self) -> bool:
        """Whether each output is a sum of several slices of K."""
        count = len(self.split_k) if isinstance(self.split_k, tuple) else self.split_k
        return self.stream_k is not None or count > 1

    @property
    def operands(self) -> tuple[str, str, str, int]:
        """Attributes that determine an instruction's operands: name, conversions of A and B, and interleaving."""
        return self.instruction, self.convert_a, self.convert_b, self.interleave

    def of_tiles(self, shape: tuple[int, int], instructions: int) -> tuple[NDArray[np.intp], list["Way"]]:
        """Return for each output tile the index of its way of summation, and the distinct ways of summation.

        A stream-K schedule becomes the K slices of the tile. Without stream-K the whole product is one tile. `shape` is
        the shape of the product that the kernel computes, and `instructions` the number of instructions along K.
        """
        if self.stream_k is None:
            return np.zeros((1, 1), np.intp), [self]
        numbers, cuts = self.stream_k.dealt(shape, -(-instructions // self.tile), self.cut)
        return numbers, [replace(self, stream_k=None, split_k=of_tile if len(of_tile) > 1 else 1) for of_tile in cuts]

    def chains(self, shape: tuple[int, int], instructions: int) -> int:
        """Return the largest number of instruction chains that one output needs; arguments as for :meth:`of_tiles`."""
        ways = self.of_tiles(shape, instructions)[1]
        return max(sum(len(of_slice) for of_slice in way.slices(instructions)) for way in ways)

    def check_interleave(self, instructions: int) -> None:
        """Raise an `OperandError` if instructions are interleaved along K, and the number of instructions is odd."""
        if self.interleave and instructions % 2:
            raise OperandError(f"interleave needs an even number of instructions along K, not {instructions}")

    def slices(self, instructions: int) -> list[list[NDArray[np.intp]]]:
        """Return the chains of each slice of K. A chain is an array of instruction indices. Not valid for stream-K.

        Raise an `OperandError` if there are more slices than K tiles, the given lengths of slices do not add up to K,
        or K cannot be interleaved.
        """
        self.check_interleave(instructions)
        tile = min(self.tile, instructions)  # A K tile that is longer than K is cut to the length of K.
        tiles, chains = -(-instructions // tile), []
        for of_tiles in self._dealt(tiles):
            taken = (of_tiles[:, None] * tile + np.arange(tile)).ravel()
            taken = taken[taken < instructions]
            if self.k_order == "descending":
                taken = taken[::-1]
            length = self.promote or len(taken)
            chains.append([taken[start : start + length] for start in range(0, len(taken), length)])
        return chains

    def _dealt(self, tiles: int) -> list[NDArray[np.intp]]:
        """Return, for each separately summed part of K, the indices of its K tiles (successive instructions)."""
        every = np.arange(tiles)
        if isinstance(self.split_k, tuple):
            if sum(self.split_k) != tiles:
                raise OperandError(f"split_k is {self.split_k}, but its sum must be {tiles}, the number of K tiles")
            return np.split(every, [*accumulate(self.split_k[:-1])])
        if self.split_k > tiles:
            raise OperandError(f"split_k is {self.split_k}, but K has only {tiles} tiles of {self.tile} instructions")
        if self.cut == "in turn":
            return [every[first :: self.split_k] for first in range(self.split_k)]
        if self.cut == "balanced":
            return np.array_split(every, self.split_k)
        return np.split(every, range(-(-tiles // self.split_k), tiles, -(-tiles // self.split_k)))

    def __str__(self) -> str:
        parts = [f"{self.instruction} on {self.arch}"]
        if self.swapped:
            parts.append("A and B exchanged")
        tile = "" if self.tile == 1 else f" tiles of {self.tile} instructions,"
        if self.stream_k:
            parts.append(f"{self.stream_k},{tile} {self.cut}, {_added(self.order)}")
        elif isinstance(self.split_k, tuple):
            parts.append(f"slices of {', '.join(map(str, self.split_k))} K tiles,{tile} {_added(self.order)}")
        elif self.split_k > 1:
            cut = "" if self.cut == "rounded up" else f" {self.cut},"
            parts.append(f"{self.split_k} slices of K,{tile}{cut} {_added(self.order)}")
        elif self.stream_k is None:
            parts.append("one chain along K" if not self.promote else "K in one slice")
        if self.promote:
            parts.append(f"partial sums promoted to f32 every {counted(self.promote, 'instruction')}")
        if self.k_order == "descending":
            parts.append("K descending")
        if self.interleave:
            parts.append(f"two instructions take {self.interleave} bits along K in turn")
        parts += [f"slice results rounded to {self.workspace}"] if self.workspace and self.has_slices else []
        parts += [f"running sum in {self.running}"] if self.running and self.has_slices else []
        if self.group_scaling:
            order, _, addition = self.group_scaling.partition(", ")
            parts.append(f"partial sums scaled by groups: {_SCALED[order]}, {_GROUP_ADDITIONS[addition]}")
        parts += [f"scaled {_SCALED[self.scale_order]}"] if self.scale_order != "a then b" else []
        of_name = {"A": self.convert_a, "B": self.convert_b}
        for conversion in CONVERSIONS[1:]:
            if names := [name for name, other in of_name.items() if other == conversion]:
                parts.append(f"{' and '.join(names)} rounded by {conversion}.tf32")
        # Without an epilogue, s32 sums are not rounded, so the default rounding is not printed.
        is_exact = (self.result, self.rounding) == ("s32", "RNE")
        return f"{'; '.join(parts)}; result {self.result}{'' if is_exact else f' ({self.rounding})'}"


_ADDED = {
    "in order": "added in order",
    "reverse": "added in reverse order",
    "last first": "added in order to the last slice",
    "tree": "added in a tree of neighbours",
    "halves": "added in a tree of halves",
    "any": "added in any order",
}
_SCALED = {
    "product": "by the product of both scales",
    "a then b": "by the scale of A, then of B",
    "b then a": "by the scale of B, then of A",
}
_GROUP_ADDITIONS = {"fused": "added by FMA", "rounded": "rounded and added"}


def _bits_of(order: object) -> tuple[int, ...]:
    """Return the bit numbers that an order such as ``tree 1 0`` lists, here (1, 0). Return () for any other order."""
    words = order.split(" ") if isinstance(order, str) else []
    digits = words[1:] if words[:1] == ["tree"] else []
    bits = tuple(map(int, digits)) if {*digits} <= {*"0123456789"} else ()
    return bits if sorted(bits) == [*range(len(bits))] else ()


def _added(order: str) -> str:
    bits = _bits_of(order)
    return f"added in a tree over bits {', '.join(map(str, bits))} of their numbers" if bits else _ADDED[order]


def combine(terms: Sequence[Term], order: str, add: Callable[[Term, Term], Term]) -> Term:
    """Return the sum of terms in an order of :data:`ORDERS`, or in a tree of pairs whose indices differ in one bit.

    Raise an `OperandError` if the order is ``any``, or if the order is a tree over bits for another number of terms.
    """
    parts = list(terms)
    if bits := _bits_of(order):
        if len(parts) != 1 << len(bits):
            raise OperandError(f"order {order!r} needs {1 << len(bits)} slices of K, but there are {len(parts)}")
        numbered = dict(enumerate(parts))
        for bit in bits:  # Add all pairs of slices whose slice numbers differ only in `bit`.
            numbered = {n: add(part, numbered[n | 1 << bit]) for n, part in numbered.items() if not n >> bit & 1}
        return numbered[0]
    if order in ("in order", "reverse"):
        return reduce(add, parts if order == "in order" else parts[::-1])
    if order == "last first":
        return reduce(add, [parts[-1], *parts[:-1]])
    if order == "any":
        raise OperandError("the sum of slices of K depends on their order: name an order other than 'any'")
    while len(parts) > 1:
        half, odd = divmod(len(parts), 2)
        if order == "tree":
            ones, others, rest = parts[: 2 * half : 2], parts[1::2], parts[2 * half :]
        else:
            ones, others, rest = parts[:half], parts[half + odd :], parts[half : half + odd]
        parts = [*map(add, ones, others), *rest]
    return parts[0]


@lru_cache(maxsize=256)
def instruction_named(text: str, arch: str) -> Instruction:
    """Return the instruction for matrix products that a text names; check that architecture `arch` supports it.

    Raise an `InstructionError` if no instruction or more than one has this name, or `arch` lacks the instruction.
    """
    if isinstance(text, str) and text.startswith("tcgen05.") and "(" not in text:
        raise InstructionError(
            f"{shown(text)} must be a tcgen05.mma with shape and types in brackets, such as "
            "'tcgen05.mma.sp.kind::f16 (m128n64k32.f32.f16.f16)'"
        )
    subject = resolve(text, arch, product=True)
    if (opcode := subject.opcode) and opcode.weight_stationary:
        raise InstructionError(f"{opcode} is not supported in matrix products: use an instruction without '.ws'")
    require_architecture(subject.instruction, arch)
    return subject.instruction
