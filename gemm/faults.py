"""Search for the fault of a kernel that gives every bit of its result.

A fault is a small change: of operands, of the epilogue, of how results are stored, or of where they stand. Each is
first computed for a few outputs that differ (a probe), by one way of summation; the right fault comes near there even
if the way is another one. Faults that come near are then computed by other ways and compared with the whole result.
Only equality of all bits explains a result, and only if the outputs that differ hold far more bits than the explanation
has free parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.formats import FORMATS
from ..tensors.encode import decode_codes
from .fault_probe import LEAST, PROBE, Explanation, Probe, Problem, chosen, near, numbers
from .faults_metadata import metadata
from .faults_operands import k_maps, layouts, rounded_words, types
from .faults_outputs import Moved, finishes, moved
from .faults_scales import ARRAYS, block_scales, epilogues
from .faults_sums import beyond_the_end, not_cleared, slices_of_k, weights
from .index_maps import Outputs, describe_map, describe_set
from .setting import Fault, Grid, Setting
from .ways import Way

__all__ = ["explain"]

#: Rows and columns of the sample on which slices of K are fitted.
_SAMPLE = (96, 96)
#: Fraction of the outputs of a probe to which a fault must come near, and faults that are then tried by all ways.
_CLOSE, _TRIED = 0.85, 8
#: Fraction of the outputs that differ which come near if only roundings differ.
_FINE = 0.98
#: Ways by which results are stored otherwise or moved, and ways of the faults that come near.
_STORED_WAYS, _MOVED_WAYS, _NEAR_WAYS = 60, 3, 600
#: Bits of choosing one fault and one way among all, and the margin of an explanation.
_CHOICE, _MARGIN, _FACTOR = 12, 16, 2
#: Rows or columns for which each is tried in place of each other.
_SOLVED = 512
#: Outputs of a row or column that are compared for this.
_LINE = 64


def explain(problem: Problem) -> Explanation | None:
    """Return the fault that gives every bit of a result, or the one that leaves the fewest outputs unexplained.

    None if no fault explains any output that differs.
    """
    return _Examination(problem).run()


class _Examination:
    """State of a search for faults."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.setting, self.wanted = problem, problem.setting, problem.wanted
        self.fmt = FORMATS[problem.ways[0].result]
        self._correct: dict[Way, NDArray] = {}
        self.best: Explanation | None = None
        self._near: list[Fault] = []  # faults that come near on a probe, the nearest first
        self.values = decode_codes(self.wanted, self.fmt)

    def correct(self, way: Way) -> NDArray:
        """Return the correct product by a way."""
        if way not in self._correct:
            if len(self._correct) > 2 * _MOVED_WAYS:
                self._correct.clear()
            self._correct[way] = self.setting.codes(way)
        return self._correct[way]

    def run(self) -> Explanation | None:
        """Try all kinds of faults until one explains every bit."""
        way = self.problem.ways[0]
        self.differs = self.correct(way) != self.wanted
        if self.differs.sum() < LEAST:
            return None
        correct = decode_codes(self.correct(way), self.fmt)
        with np.errstate(invalid="ignore", over="ignore"):
            self._is_fine = near(correct, self.values, self.values)[self.differs].mean() > _FINE
        with np.errstate(invalid="ignore", over="ignore", divide="ignore", under="ignore"):
            for search in (
                self._stored,
                *(() if self._is_fine else (self._moved, self._slices)),
                self._near_faults,
                *(() if self._is_fine else (self._uncleared, self._lines)),
                self._by_all_ways,
            ):
                for found in search():
                    if self.best is None or found.remaining(self.wanted) < self.best.remaining(self.wanted):
                        self.best = found
                    if found.is_exact:
                        return found
        return self.best

    def judged(self, kind: str, text: str, way: Way, codes: NDArray, bits: float) -> Explanation | None:
        """Return an explanation, of the whole result or of the rows and columns that differ; None if it explains none.

        Parameters
        ----------
        kind, text : str
            The fault.
        way : Way
            Way by which the correct product is computed.
        codes : ndarray
            The product with the fault.
        bits : float
            Bits of free parameters of the fault.
        """
        correct, wanted = self.correct(way), self.wanted
        before = correct != wanted
        candidates = [(codes, text, bits)]
        rows, columns = np.flatnonzero(before.any(1)), np.flatnonzero(before.any(0))
        if len(rows) and (len(rows) < len(before) or len(columns) < before.shape[1]):
            part = np.ix_(rows, columns)
            joined = correct.copy()
            joined[part] = codes[part]
            names = [describe_set(rows, len(before), "rows"), describe_set(columns, before.shape[1], "columns")]
            where = f"{text}; in {names[0][0]}, {names[1][0]}"
            candidates.append((joined, where, bits + names[0][1] + names[1][1]))
        for given, words, parameters in sorted(candidates, key=lambda one: int((one[0] != wanted).sum())):
            left = int((given != wanted).sum())
            gained = before & (given == wanted)
            if left >= before.sum() or gained.sum() < LEAST:
                continue
            convinces = self._evidence(correct[gained], wanted[gained]) >= _FACTOR * (_CHOICE + parameters) + _MARGIN
            if left and not convinces:
                continue
            return Explanation(kind, words, way, given, correct, parameters, left == 0 and convinces)
        return None

    def _evidence(self, correct: NDArray, wanted: NDArray) -> float:
        """Return the bits that the distances of results from the correct ones hold."""
        one, other = (self._ordinals(part) for part in (correct, wanted))
        return float(np.log2(1 + np.abs(one - other)).sum())

    def _ordinals(self, codes: NDArray) -> NDArray[np.int64]:
        """Return integers in the order of the numbers."""
        wide = codes.astype(np.int64)
        sign = 1 << self.fmt.bits - 1
        if self.fmt.is_integer:
            return np.where(wide & sign, wide - 2 * sign, wide)
        return np.where(wide & sign, -(wide & sign - 1), wide)

    # Results that are stored otherwise or in other places.

    def _sample(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return rows and columns with many outputs that differ."""
        return chosen(self.differs, *_SAMPLE)

    def _stored(self) -> Iterator[Explanation]:
        """Try other roundings of the result."""
        rows, columns = self._sample()
        grid, wanted = Grid(self.setting, rows, columns), self.wanted[np.ix_(rows, columns)]
        for way in self.problem.ways[:_STORED_WAYS]:
            values = grid.values(way)
            for kind, text, finish in finishes(way.result):
                if values.dtype == np.float32 or way.result == "s8":
                    stored = finish(values, way)
                    if np.array_equal(stored, wanted) and (found := self._finished(kind, text, way, finish)):
                        yield found

    def _finished(
        self, kind: str, text: str, way: Way, finish: Callable[[NDArray, Way], NDArray]
    ) -> Explanation | None:
        return self.judged(kind, text, way, replace(self.setting, finish=finish).codes(way), 0)

    def _moved(self) -> Iterator[Explanation]:
        """Look for the outputs of the correct product in other places."""
        rows, columns = self._sample()
        grid, known = Grid(self.setting, rows, columns), np.unique(self.wanted)

        def elsewhere(way: Way) -> float:
            return float(np.isin(grid.codes(way), known).mean())

        conversions = {(way.convert_a, way.convert_b) for way in self.problem.ways}
        ways = self._ways() if len(conversions) > 1 else self.problem.ways
        tried = islice(ways, _STORED_WAYS * len(conversions))
        ranked = sorted(tried, key=elsewhere, reverse=True)[:_MOVED_WAYS]
        result = Outputs(self.wanted, self.values)
        for number, way in enumerate(dict.fromkeys([ranked[0], self.problem.ways[0], *ranked[1:]])):
            correct = self.correct(way)
            for found in moved(Outputs(correct, decode_codes(correct, self.fmt)), result):
                best = self._moved_by(found, way)
                yield from best
                if number == 0 and best and not best[0].is_exact:
                    yield from self._by_other_ways(found, best[0])

    def _moved_by(self, found: Moved, way: Way) -> list[Explanation]:
        codes = found.applied(self.correct(way))
        explanation = self.judged("outputs in other places", found.text, way, codes, found.bits)
        return [explanation] if explanation else []

    def _by_other_ways(self, found: Moved, nearest: Explanation) -> Iterator[Explanation]:
        """Try a placement with the ways that give some of the outputs that it leaves unexplained."""
        left = np.flatnonzero(nearest.codes.ravel() != self.wanted.ravel())
        if not 0 < 4 * len(left) < self.wanted.size:
            return
        left = left[found.index[left] >= 0][:: max(1, len(left) // 16)]
        places = np.divmod(found.index[left], self.wanted.shape[1])
        rows, columns = (np.unique(part) for part in places)
        grid = Grid(self.setting, rows, columns)
        where = np.searchsorted(rows, places[0]), np.searchsorted(columns, places[1])
        tried = 0
        for way in self._ways():
            if (grid.codes(way)[where] == self.wanted.ravel()[left]).all():
                yield from self._moved_by(found, way)
                if (tried := tried + 1) == _TRIED:
                    return

    # Faults of operands, which change the sums.

    def _unit(self) -> int:
        return min(i.k for i in self.problem.instructions)

    def _faults(self) -> Iterator[Fault]:
        """Yield faults of operands, metadata, scales and the epilogue; only other roundings if results come near."""
        setting, i = self.setting, self.problem.instructions[0]
        if i.a.name == "tf32":
            yield from rounded_words(setting)
        for text, changed in self.problem.rounded():
            yield Fault("rounding of operands", text, partial(_instead, changed=changed))
        if self._is_fine:
            return
        yield from epilogues(setting)
        yield from block_scales(setting, i)
        if setting.nibbles is not None:
            yield from metadata(setting, i.container_bits)
        yield from types(i)
        yield from k_maps(setting, self._unit())
        yield from layouts(setting, i)
        if not setting.has_scales_along_k:
            yield from beyond_the_end(setting)

    def _near_faults(self) -> Iterator[Explanation]:
        """Try each fault on a probe, and the nearest by the likely ways."""
        probe = Probe(self.problem, self.differs)
        close = []
        for number, fault in enumerate(self._faults()):
            score, far = probe.distance(fault)
            if far == 0 and (found := self._whole(fault, self.problem.ways[0])):
                yield found
            if score >= _CLOSE:
                close.append((far, number, fault))
        self._near = [fault for _, _, fault in sorted(close, key=lambda one: one[:2])]
        for fault in self._near[: 4 * _TRIED]:
            yield from self._by_ways(fault, probe, self.problem.ways[:_STORED_WAYS])

    def _by_all_ways(self) -> Iterator[Explanation]:
        """Try the nearest faults by all ways."""
        probe = Probe(self.problem, self.differs)
        for fault in self._near[:_TRIED]:
            yield from self._by_ways(fault, probe, self._ways())

    def _ways(self) -> Iterator[Way]:
        return chain(self.problem.ways[:_STORED_WAYS], islice(self.problem.more_ways(), _NEAR_WAYS))

    def _by_ways(self, fault: Fault, probe: Probe, ways: Sequence[Way] | Iterator[Way]) -> Iterator[Explanation]:
        """Yield the explanations of a fault with the ways that give most outputs of a probe."""
        grid, wanted, differs = probe.grid(fault), probe.wanted, probe.differs
        best, most, tried = None, 0, 0
        rest: tuple[Grid, NDArray] | None = None
        for way in ways:
            changed = fault.types(way) if fault.types else way
            try:
                equal = int((grid.codes(changed) == wanted)[differs].sum())
            except OperandError:  # a fault changed K, and the way has slices of given lengths
                continue
            if equal > most:
                best, most = way, equal
            if equal < differs.sum() or (rest and not np.array_equal(rest[0].codes(changed), rest[1])):
                continue
            if found := self._whole(fault, way):
                yield found
                # A further way must also give some of the outputs that this one leaves unexplained.
                rows, columns = chosen(found.codes != self.wanted, *PROBE)
                rest = Grid(fault.change(self.setting), rows, columns), self.wanted[np.ix_(rows, columns)]
            if (tried := tried + 1) == _TRIED:
                return
        if best and not tried and 2 * most > differs.sum() and (found := self._whole(fault, best)):
            yield found

    def _whole(self, fault: Fault, way: Way) -> Explanation | None:
        changed = fault.change(self.setting)
        codes = changed.codes(fault.types(way) if fault.types else way)
        return self.judged(fault.kind, fault.text, way, codes, fault.bits)

    def _slices(self) -> Iterator[Explanation]:
        """Fit how often each slice of K counts."""
        target = self._sums_of_result()
        if target is None:
            return
        rows, columns = self._sample()
        unit = self._unit()
        padded = self.setting.in_blocks(unit)
        a, b = numbers(padded.take(rows, columns), self.problem.instructions[0])
        count = padded.k // unit
        parts = np.stack([a[:, k : k + unit] @ b[k : k + unit] for k in range(0, padded.k, unit)]).reshape(count, -1)
        fitted = weights(parts, target[np.ix_(rows, columns)].ravel())
        if fitted is None:
            return
        probe = Probe(self.problem, self.differs)
        for fault in slices_of_k(self.setting, unit, fitted):
            yield from self._by_ways(fault, probe, self._ways())

    def _sums_of_result(self) -> NDArray[np.float64] | None:
        """Return the sums from which a result was made, without its epilogue; None if that cannot be undone."""
        epilogue, values = self.setting.epilogue, self.values
        if epilogue.relu or self.setting.has_scales_along_k or epilogue.alpha == 0:
            return None
        for addend, factor in ((epilogue.bias, 1.0), (epilogue.c, epilogue.beta)):
            values = values if addend is None else values - factor * addend.astype(np.float64)
        values = values / epilogue.alpha
        for scale in (epilogue.scale_a, epilogue.scale_b):
            values = values if scale is None else values / scale
        return values

    def _uncleared(self) -> Iterator[Explanation]:
        """Try output tiles that begin from the accumulator of the tile before."""
        if not self.setting.epilogue.is_empty or self.setting.has_scales_along_k:
            return
        way = next((way for way in self.problem.ways if _is_one_chain(way)), None)
        if way is None:
            return
        product = decode_codes(self.correct(way), self.fmt)
        for text, tiles, size in not_cleared(self.wanted.shape):
            predicted, total = np.empty_like(product), np.zeros(tuple(size))
            for row, column in tiles:
                part = slice(row, row + size[0]), slice(column, column + size[1])
                predicted[part] = total = total + product[part]
            if near(predicted, self.values, self.values).mean() < _CLOSE:
                continue
            for one in [way for way in self.problem.ways[:_STORED_WAYS] if _is_one_chain(way)]:
                codes = self._carried(one, tiles, size)
                words = f"the accumulator is not cleared between output tiles: {text}"
                if found := self.judged("accumulator", words, one, codes, 4):
                    yield found

    def _carried(self, way: Way, tiles: NDArray[np.intp], size: NDArray[np.intp]) -> NDArray:
        """Return the product if each tile begins from the accumulator of the one before."""
        i, codes = way.parsed, np.empty_like(self.wanted)
        raw = replace(way, result=i.d.name)
        start = None
        for row, column in tiles:
            rows, columns = np.arange(row, row + size[0]), np.arange(column, column + size[1])
            tile = replace(self.setting.take(rows, columns), start=start)
            codes[np.ix_(rows, columns)] = tile.codes(way)
            start = tile.codes(raw)
        return codes

    # Each row or column, with the metadata or the scale of each other.

    def _lines(self) -> Iterator[Explanation]:
        if self.setting.nibbles is not None and len(self.wanted) <= _SOLVED:
            for way in self._line_ways():
                yield from self._solved_metadata(way)
        for name, noun in ARRAYS.items():
            array = getattr(self.setting.epilogue, name)
            if array is None:
                continue
            whole = np.broadcast_to(array, self.wanted.shape)
            for axis, word in enumerate(("rows", "columns")):
                if self.wanted.shape[axis] <= _SOLVED and not (whole == whole.take([0], axis)).all():
                    for way in self._line_ways():
                        yield from self._solved_epilogue(way, name, noun, axis, word)

    def _line_ways(self) -> Iterator[Way]:
        """Yield the nearest way, then the way of the nearest explanation, which tells near lines apart."""
        yield self.problem.ways[0]
        if self.best and self.best.way != self.problem.ways[0]:
            yield self.best.way

    def _solved_metadata(self, way: Way) -> Iterator[Explanation]:
        nibbles, count = self.setting.nibbles, len(self.wanted)
        assert nibbles is not None
        index = np.arange(count)
        for row in np.flatnonzero(self.differs.any(1)):
            columns = np.flatnonzero(self.differs[row])[:_LINE]
            every = np.full(count, row)
            grid = Grid(self.setting, every, columns).setting
            codes = replace(grid, nibbles=nibbles).codes(way)
            index[row] = self._nearest_line(codes, self.values[row, columns], int(row))
        if (index != np.arange(count)).any():
            text, bits = describe_map(index, "rows")
            words = f"metadata of other rows: the metadata of {text}"
            fault = Fault("metadata", words, lambda held: replace(held, nibbles=nibbles[index]), bits=bits)
            yield from self._by_ways(fault, Probe(self.problem, self.differs), self._ways())

    def _nearest_line(self, codes: NDArray, values: NDArray[np.float64], own: int) -> int:
        """Return the row of `codes` that is nearest to `values`; `own` unless another is much nearer."""
        far = np.abs(decode_codes(codes, self.fmt) - values)
        distances = np.where(np.isfinite(far), far, 0).sum(1)
        nearest = int(distances.argmin())
        return nearest if 2 * distances[nearest] < distances[own] else own

    def _solved_epilogue(self, way: Way, name: str, noun: str, axis: int, word: str) -> Iterator[Explanation]:
        shape, epilogue = self.wanted.shape, self.setting.epilogue
        whole = np.broadcast_to(getattr(epilogue, name), shape)
        count, lines = shape[axis], np.arange(shape[1 - axis])[:_LINE]
        index = np.arange(count)
        for place in np.flatnonzero(self.differs.any(1 - axis)):
            own = np.full(count, place)
            rows, columns = (own, lines) if axis == 0 else (lines, own)
            grid = self.setting.take(rows, columns)
            words: dict[str, Any] = {name: whole[:, lines] if axis == 0 else whole[lines]}
            codes = replace(grid, epilogue=replace(grid.epilogue, **words)).codes(way)
            values = self.values[np.ix_(rows, columns)]
            index[place] = self._nearest_line(codes.T if axis else codes, values.T if axis else values, int(place))
        if (index != np.arange(count)).any():
            text, bits = describe_map(index, word)
            other: dict[str, Any] = {name: whole.take(index, axis)}
            changed = replace(epilogue, **other)
            kind = "scale" if name.startswith("scale") else "C" if name == "c" else "bias"
            text = f"{noun} is that of other {word}: {text}"
            fault = Fault(kind, text, lambda held: replace(held, epilogue=changed), bits=bits)
            yield from self._by_ways(fault, Probe(self.problem, self.differs), self._ways())


def _instead(setting: Setting, changed: Setting) -> Setting:
    """Return another setting in place of the correct one."""
    return changed


def _is_one_chain(way: Way) -> bool:
    return way.split_k == 1 and not way.promote and way.stream_k is None
