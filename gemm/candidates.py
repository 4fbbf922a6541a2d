"""Generate candidate ways of summation for a search, likely ways first. Of ways with equal sums, only one is tried."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import chain, islice, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.instructions import Instruction
from ..isa.numerics import Method, numerics
from .stream_k import StreamK
from .ways import GROUP_SCALINGS, INTERLEAVES, Way, combine, instruction_named

__all__ = ["Expressions", "any_order", "candidates", "streams"]

#: Type of a dictionary. Key: name of an attribute of :class:`Way`. Value: value of this attribute.
_Words = dict[str, Any]
#: Numbers of slices of K to try. Ways of summation with `_FEW` slices are tried first, then ways that add the results
#: of short chains of instructions to f32 registers, then ways with `_MANY` slices, which kernels rarely use.
_FEW, _MANY = (2, 4, 8, 16, 3, *range(5, 8), *range(9, 16)), (18, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
#: Numbers of instructions per chain to try. The result of each chain is added to f32 registers (promotion).
_PROMOTIONS = (1, 2, 4, 8, 16, 32)
#: Numbers of instructions to try for a K tile (group of successive instructions along K).
_TILES = (1, 2, 4, 8)
#: Numbers of stream-K workers to try: the SM counts of GPUs, by architecture.
_WORKERS = {
    "sm_80": (108, 56), "sm_86": (84, 82, 72, 10), "sm_89": (142, 128, 58, 20), "sm_90": (132, 114, 78),
    "sm_100": (148, 152), "sm_120": (170, 188),
}  # fmt: skip
#: Numbers of rows and columns of stream-K output tiles to try.
_OUTPUT_TILES = ((128, 128), (128, 256), (256, 128), (64, 128), (128, 64), (64, 64), (64, 256), (256, 64), (256, 256))
#: Orders to try for adding the slices of K in stream-K. Minimum numbers of K tiles per slice to try: 1 and `_LEAST`.
_ORDERS, _LEAST = ("in order", "last first", "reverse"), 8
#: Maximum number of stream-K schedules that are generated, and maximum number of schedules that are tried; only
#: schedules with distinct result bits are tried.
_MOST_ASKED, _MOST_STREAMS = 20_000, 1_000
#: Number of iterators at the beginning of :func:`_kinds` that yield likely ways of summation. These iterators are used
#: with every family of instructions before any other iterator is used.
_LIKELY = 3
#: Maximum number of ways of summation with equal result bits that the search keeps.
_MOST_ALIKE = 8
#: Numbers n to try: 2^n slices of K are added in a tree of n levels. Each level adds pairs of slices whose numbers
#: differ in one bit, and every order of the bits is tried.
_BITS = (2, 3, 4, 5)
#: Maximum number of slices of K for which every order of addition is tried.
_MOST_IN_ANY_ORDER = 8


class Expressions:
    """Assign equal numbers to ways of summation whose sums have equal bits by construction.

    Exchanging the two terms of an addition changes no bit. Chains with equal sequences of steps (see
    :mod:`sptc.isa.numerics`) give equal bits, even if their instructions have different numbers of steps.
    `instructions` returns the number of instructions along K, given the text of the instruction; `shape` is the shape
    of the product, transposed if the factors are exchanged.
    """

    def __init__(self, instructions: Callable[[str], int], shape: tuple[int, int]) -> None:
        self.instructions, self.shape = instructions, shape
        self._numbers: dict[Hashable, int] = {}
        self._chains: dict[tuple[str | int | bytes, ...], int] = {}
        self._of_ways: dict[Way, int] = {}
        self._seen: dict[int, list[Way]] = {}

    def new(self, way: Way) -> bool:
        """Return whether K is long enough for `way`, and no way of summation passed earlier gives equal bits."""
        try:
            number = self.of(way)
        except OperandError:
            return False
        alike = self._seen.setdefault(number, [])
        if not alike:
            alike.append(way)
            return True
        is_trivial = way.stream_k or way.promote >= self.instructions(way.instruction)
        if len(alike) < _MOST_ALIKE and not is_trivial and way not in alike:
            alike.append(way)
        return False

    def alike(self, way: Way) -> tuple[Way, ...]:
        """Return the recorded ways of summation, other than `way`, that give the same bits as `way` by construction."""
        return tuple(other for other in self._seen.get(self.of(way), ()) if other != way)

    def _number(self, part: Hashable) -> int:
        return self._numbers.setdefault(part, len(self._numbers))

    def of(self, way: Way) -> int:
        """Return a number for a way of summation. Ways of summation with the same number give the same result bits.

        Raise an `OperandError` if K cannot be divided as the way of summation requires.
        """
        tiles, ways = way.of_tiles(self.shape, self.instructions(way.instruction))
        for tile_way in ways:
            if tile_way not in self._of_ways:
                self._of_ways[tile_way] = self._of_one(tile_way)
        numbers = [self._of_ways[tile_way] for tile_way in ways]
        tile_numbers = [[numbers[number] for number in row] for row in tiles.tolist()]
        if len({number for row in tile_numbers for number in row}) == 1:
            return tile_numbers[0][0]
        assert way.stream_k
        rows, columns = min(way.stream_k.rows, self.shape[0]), min(way.stream_k.columns, self.shape[1])
        return self._number((rows, columns, str(tile_numbers)))

    def _of_chain(self, way: Way, chain_of_way: NDArray[np.intp]) -> int:
        """Return a number for a chain of dependent instructions; chains with equal numbers give equal result bits."""
        name = way.arch, *way.operands, chain_of_way.tobytes()
        if name not in self._chains:
            step, number = _step(way.instruction, way.arch)
            steps = chain_of_way[:, None] * number + np.arange(number)
            # With interleaved operands, the K of the instruction also determines which elements are summed together.
            interleaved = way.interleave and (way.interleave, way.parsed.k)
            self._chains[name] = self._number((way.convert_a, way.convert_b, interleaved, step, steps.tobytes()))
        return self._chains[name]

    def _of_one(self, way: Way) -> int:
        """Return a number for a way of summation without stream-K. Equal numbers mean equal result bits."""

        def plus(one: int, other: int) -> int:
            return self._number(("plus", *sorted((one, other))))

        def added(one: int, other: int) -> int:
            return rounded(way.running, plus(one, other))

        def rounded(name: str, part: int) -> int:
            return self._number((name, part)) if name else part

        def total(chains: Sequence[NDArray[np.intp]]) -> int:
            parts = [self._of_chain(way, of_chain) for of_chain in chains]
            if not way.group_scaling:
                return reduce(plus, parts)
            order, _, addition = way.group_scaling.partition(", ")
            parts = [self._number(("scaled", order, part)) for part in parts]
            if addition == "rounded":
                return reduce(plus, parts)
            return reduce(lambda one, other: self._number(("fused", one, other)), parts)

        slice_numbers = [total(slice_chains) for slice_chains in way.slices(self.instructions(way.instruction))]
        if len(slice_numbers) > 1:
            slice_numbers = [rounded(way.running, rounded(way.workspace, part)) for part in slice_numbers]
        ending = way.swapped, way.result, way.rounding, way.scale_order
        return self._number((*ending, combine(slice_numbers, way.order, added)))


@lru_cache(maxsize=256)
def _step(instruction: str, arch: str) -> tuple[Hashable, int]:
    """Return what determines the bits of one step (rounded sum) of an instruction, and the instruction's step count."""
    i = instruction_named(instruction, arch)
    parameters = replace(numerics(i, arch), source="")
    whole = parameters.method in (Method.FUSED, Method.GROUPED) and i.stored_k % parameters.step == 0
    length = parameters.step if whole else i.stored_k
    return (parameters, i.a.name, i.b.name, i.d.name, bool(i.sparse), i.span, i.satfinite, length), i.stored_k // length


def candidates(
    families: Sequence[Sequence[Instruction]],
    plain: Way,
    expressions: Expressions,
    variants: Sequence[_Words] = ({},),
    group: int = 0,
) -> Iterator[Way]:
    """Yield ways of summation to try, likely ways first; of several ways with equal result bits, only one is yielded.

    `families` are groups of possible instructions of the chains, such as sparse and dense instructions; likely ways are
    tried with all families. `plain` is a way with the known attributes: architecture, result, whether factors are
    exchanged. `expressions` holds the sums of the ways yielded so far, and `variants` attributes that are tried with
    each way, such as conversions of the operands. `group` is the number of elements that share a group scale; 0 without
    group scales.
    """
    kinds = {i: [[*kind] for kind in _kinds(i, plain.result, group)] for family in families for i in family}
    numbers = range(max(map(len, kinds.values())))
    likely = product(numbers[:_LIKELY], families)
    for number, family in chain(likely, ((number, one) for one in families for number in numbers[_LIKELY:])):
        kind_words = [kinds[i][number] if number < len(kinds[i]) else [] for i in family]
        for place in range(max(map(len, kind_words))):
            for i, every in zip(family, kind_words, strict=True):
                for variant in variants if place < len(every) else ():
                    way = replace(plain, **{**every[place], **variant, "instruction": str(i)})
                    ends_with_groups = not group or (way.promote and group % (way.promote * i.k) == 0)
                    if ends_with_groups and expressions.new(way):
                        yield way
    if group or families[0][0].d.is_integer:
        return
    for family, variant in product(families, variants):
        first = str(family[0])
        for number in range(1, expressions.instructions(first)):
            split = (number, expressions.instructions(first) - number)
            yield from filter(expressions.new, [replace(plain, instruction=first, split_k=split, **variant)])


def _kinds(i: Instruction, result: str, group: int) -> list[Iterator[_Words]]:
    """Return iterators over arguments of :class:`Way`: one for each kind of summation; likely kinds come first."""
    if group:
        return _grouped_kinds(group // i.k if group % i.k == 0 else 0, result)
    half, few = result in ("f16", "bf16"), [{}, *({"split_k": split} for split in _FEW)]
    kinds: list[Iterator[_Words]] = [iter([{}])]
    if not i.d.is_integer:
        kinds += [
            ({"split_k": split} for split in _FEW),
            ({"promote": number} for number in _PROMOTIONS),
            _slices(),
            ({**words, "order": order} for order in ("reverse", "tree", "halves") for words in _slices()),
            (
                {**words, "interleave": bits}
                for bits in INTERLEAVES[1:]
                for words in few
                if not (i.sparse or i.scale_format)
            ),
            ({**words, "workspace": result} for words in _slices() if half),
            ({**words, "running": result} for words in _slices() if half),
            ({**words, "k_order": "descending"} for words in chain([{}], _slices())),
            (
                {"split_k": 1 << bits, "order": " ".join(["tree", *order])}
                for bits in _BITS  # each tree level adds pairs of slices of K whose slice numbers differ in one bit
                for order in permutations(map(str, range(bits)))
                if not i.sparse
            ),
            ({"split_k": split, "cut": "in turn", "tile": tile} for split, tile in product((2, 3, 4, 8), _TILES)),
            ({**words, "promote": number} for number in _PROMOTIONS for words in _slices()),
            ({"promote": number, "k_order": "descending"} for number in _PROMOTIONS),
        ]
    if result not in ("f32", "s32"):
        kinds.append({**words, "rounding": "RZ"} for words in chain([{}], [] if i.d.is_integer else _slices()))
    return kinds


def _grouped_kinds(instructions: int, result: str) -> list[Iterator[_Words]]:
    """Return iterators over arguments of :class:`Way` for group scales that each cover `instructions` instructions."""
    if not instructions:
        return []
    scalings: list[_Words] = [{"group_scaling": scaling} for scaling in GROUP_SCALINGS]
    whole = [{**words, "promote": instructions} for words in scalings]
    shorter = [number for number in _PROMOTIONS if number < instructions and instructions % number == 0]
    # Slices of K consist of whole scale groups, so that chains of instructions begin and end with a scale group.
    split = [{**words, "tile": words["tile"] * instructions} for words in _slices()]
    orders: list[_Words] = [{"order": order} for order in ("reverse", "tree", "halves")]
    orders += [{name: result} for name in ("workspace", "running") if result in ("f16", "bf16")]
    kinds = [
        iter(whole),
        ({**words, "promote": number} for number in shorter for words in scalings),
        ({**words, "split_k": number, "tile": instructions} for number in _FEW for words in whole),
        ({**words, **other} for other in split for words in whole),
        ({**words, "k_order": "descending"} for words in whole),
        ({**words, **other, **order} for order in orders for other in split for words in whole),
    ]
    if result != "f32":
        kinds.append({**words, "rounding": "RZ"} for words in whole)
    return kinds


def _slices() -> Iterator[_Words]:
    """Yield `split_k`, `tile` and `cut` for :class:`Way`. If slices of K are equally long, the last two do nothing."""
    for tile, cut, split in product(_TILES, ("rounded up", "balanced"), (*_FEW, *_MANY)):
        yield {"split_k": split, "tile": tile, "cut": cut}


def streams(
    instructions: Sequence[Instruction], plain: Way, expressions: Expressions, workers: int | None = None
) -> Iterator[Way]:
    """Yield a limited number of stream-K schedules with different result bits, as ways of summation.

    `workers` is the number of workers (default: all SM counts of GPUs of the architecture, and half of each). For the
    other arguments see :func:`candidates`.
    """
    known = _WORKERS.get(plain.arch, ())
    counts = (workers,) if workers else (*known, *(number // 2 for number in known))

    def every() -> Iterator[Way]:
        shapes = [
            *dict.fromkeys((min(r, expressions.shape[0]), min(c, expressions.shape[1])) for r, c in _OUTPUT_TILES)
        ]
        forms = [("all", True), ("two waves", True), ("one wave", True), ("two waves", False), ("one wave", False)]
        rasters = ("row-major", "column-major")
        likelier = product(_ORDERS, (1, _LEAST), instructions, ("balanced", "rounded up"), forms, rasters)
        for order, least, i, cut, (streamed, first), raster in likelier:
            words: _Words = {"instruction": str(i), "cut": cut, "order": order}
            for number, tile, (rows, columns) in product(counts, _TILES, shapes):
                dealing = StreamK(
                    workers=number, rows=rows, columns=columns, streamed=streamed, first=first, raster=raster,
                    least=least,
                )  # fmt: skip
                yield replace(plain, **words, tile=tile, stream_k=dealing)

    if not instructions[0].d.is_integer:
        yield from islice(filter(expressions.new, islice(every(), _MOST_ASKED)), _MOST_STREAMS)


def any_order(instructions: Sequence[Instruction], plain: Way, expressions: Expressions) -> Iterator[Way]:
    """Yield ways of summation that add their slices of K in an arbitrary order; see :func:`candidates`."""
    for split, i in product(range(3, _MOST_IN_ANY_ORDER + 1), instructions):
        for name in ("", plain.result) if plain.result in ("f16", "bf16") else ("",):
            way = replace(plain, instruction=str(i), split_k=split, order="any", workspace=name, running=name)
            if split <= expressions.instructions(way.instruction):
                yield way
