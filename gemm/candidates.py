"""The ways to sum that are searched, the likely ones first, each once however many words spell it."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, product
from typing import Any

from ..errors import OperandError
from ..isa.instructions import Instruction
from .ways import Way, combine

__all__ = ["Expressions", "any_order", "candidates"]

#: Words of a way.
_Words = dict[str, Any]
#: Numbers of slices of K: few, and so many that promotion is the likelier reason.
_FEW, _MANY = (2, 4, 8, 16, 3, *range(5, 8), *range(9, 16)), (18, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
#: Instructions after which partial sums are promoted.
_PROMOTIONS = (1, 2, 4, 8, 16, 32)
#: Instructions of a K tile.
_TILES = (1, 2, 4, 8)
#: Slices that are added in any order: more have too many orders to try.
_MOST_IN_ANY_ORDER = 8


class Expressions:
    """Numbers for the sums that ways form, equal where the bits must be: addition commutes, and nothing more.

    Parameters
    ----------
    instructions : callable
        Gives how many of an instruction K takes, by its text.
    """

    def __init__(self, instructions: Callable[[str], int]) -> None:
        self.instructions = instructions
        self._numbers: dict[Hashable, int] = {}

    def _number(self, part: Hashable) -> int:
        return self._numbers.setdefault(part, len(self._numbers))

    def of(self, way: Way) -> int:
        """Return the number of what a way computes.

        Raises
        ------
        OperandError
            K has too few tiles for the way.
        """

        def plus(one: int, other: int) -> int:
            return self._number(("plus", *sorted((one, other))))

        def added(one: int, other: int) -> int:
            return held(way.running, plus(one, other))

        def held(name: str, part: int) -> int:
            return self._number((name, part)) if name else part

        found = [
            reduce(plus, [self._number((way.instruction, of_chain.tobytes())) for of_chain in of_slice])
            for of_slice in way.slices(self.instructions(way.instruction))
        ]
        if len(found) > 1:
            found = [held(way.running, held(way.workspace, part)) for part in found]
        return self._number((way.swapped, way.result, way.rounding, combine(found, way.order, added)))


def candidates(instructions: Sequence[Instruction], plain: Way, expressions: Expressions) -> Iterator[Way]:
    """Yield the ways that are worth trying, the likely ones first; of those with the same bits one.

    Parameters
    ----------
    instructions : sequence of Instruction
        Which may have formed the chains.
    plain : Way
        Says what is known: architecture, result, and whether the factors are exchanged.
    expressions : Expressions
        Knows which were yielded.
    """
    integer = instructions[0].d.is_integer
    half = plain.result in ("f16", "bf16")
    kinds: list[Iterator[_Words]] = [iter([{}])]
    if not integer:
        kinds += [
            ({"split_k": split} for split in _FEW),
            ({"promote": number} for number in _PROMOTIONS),
            _slices(),
            ({**words, "order": order} for order in ("reverse", "tree", "halves") for words in _slices()),
            ({**words, "workspace": plain.result} for words in _slices() if half),
            ({**words, "running": plain.result} for words in _slices() if half),
            ({**words, "k_order": "descending"} for words in chain([{}], _slices())),
            ({"split_k": split, "cut": "in turn", "tile": tile} for split, tile in product((2, 3, 4, 8), _TILES)),
            ({**words, "promote": number} for number in _PROMOTIONS for words in _slices()),
            ({"promote": number, "k_order": "descending"} for number in _PROMOTIONS),
        ]
    if plain.result not in ("f32", "s32"):
        kinds.append({**words, "rounding": "RZ"} for words in chain([{}], [] if integer else _slices()))
    seen: set[int] = set()
    for kind in kinds:
        for words, i in product([*kind], instructions):
            yield from _new(replace(plain, instruction=str(i), **words), expressions, seen)
    if not integer:
        first = str(instructions[0])
        for number in range(1, expressions.instructions(first)):
            split = (number, expressions.instructions(first) - number)
            yield from _new(replace(plain, instruction=first, split_k=split), expressions, seen)


def _slices() -> Iterator[_Words]:
    """Yield the words of slices of K; tiles and cuts matter where a number of slices does not divide K."""
    for tile, cut, split in product(_TILES, ("rounded up", "balanced"), (*_FEW, *_MANY)):
        yield {"split_k": split, "tile": tile, "cut": cut}


def _new(way: Way, expressions: Expressions, seen: set[int]) -> Iterator[Way]:
    """Yield a way unless K is too short for it or another had the same bits."""
    try:
        number = expressions.of(way)
    except OperandError:
        return
    if number not in seen:
        seen.add(number)
        yield way


def any_order(instructions: Sequence[Instruction], plain: Way, expressions: Expressions) -> Iterator[Way]:
    """Yield ways whose slices are added in any order, in f32 or in the type of the result; parameters as above."""
    for split, i in product(range(3, _MOST_IN_ANY_ORDER + 1), instructions):
        for name in ("", plain.result) if plain.result in ("f16", "bf16") else ("",):
            way = replace(plain, instruction=str(i), split_k=split, order="any", workspace=name, running=name)
            if split <= expressions.instructions(way.instruction):
                yield way
