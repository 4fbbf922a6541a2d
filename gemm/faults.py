"""Search for the fault of a kernel that explains every bit of its wrong result.

A fault of a kernel is a small change of operands, of the epilogue, of the conversion of results, or of the addresses of
results. The product with each fault is first computed by one way of summation, for a few outputs that differ (a probe).
With the right fault, these outputs are near the given result even if the kernel has another way of summation. Faults
with near outputs are then computed by other ways of summation and compared with the whole result. Only equality of all
bits explains a result, and only if the outputs that differ hold far more bits than the explanation has free parameters.
"""

from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.formats import FORMATS
from ..tensors.encode import decode_codes
from .faults_nibbles import wrong_nibbles
from .faults_operands import k_maps, layouts, metadata, rounded_words, types
from .faults_outputs import Moved, finishes, moved
from .faults_scales import LineArray, epilogue_faults, line_arrays, scale_faults
from .faults_sums import beyond_the_end, carried, not_cleared, slice_sums, slices_of_k, sums_before, weights
from .index_maps import Outputs, describe_map, describe_set
from .setting import LEAST, PROBE, Explanation, Fault, Grid, Problem, chosen, evidence, near
from .ways import Way

__all__ = ["explain"]

#: Numbers of rows and of columns of a sample of outputs. On this sample, faults in storing results and faults in adding
#: slices of K are tried.
_SAMPLE = (96, 96)
#: A kernel fault is near if it nearly reproduces at least the fraction `_CLOSE` of the compared outputs. The `_TRIED`
#: nearest faults are tried with every way of summation (order and roundings of additions).
_CLOSE, _TRIED = 0.85, 8
#: If more than this fraction of the wrong outputs has only small errors, the kernel may differ only in rounding.
_FINE = 0.98
#: Maximum numbers of ways of summation to try with a supposed fault of the kernel: wrong conversion of results, outputs
#: stored at wrong rows and columns, and any fault with which the model comes near to the kernel's result.
_STORED_WAYS, _MOVED_WAYS, _NEAR_WAYS = 60, 3, 600
#: If the ways of summation to try apply scales in several orders, the maximum numbers `_STORED_WAYS` and `_NEAR_WAYS`
#: are multiplied by the number of orders, at most by `_MOST_ORDERS`.
_MOST_ORDERS = 3
#: Each conversion of A and B to tf32 gives a matrix product whose distance from the kernel's result is computed. The
#: conversion is tried only if this distance is at most `_MOST_ERROR` times the smallest distance.
_MOST_ERROR = 16
#: A kernel fault is accepted if its evidence has at least `_FACTOR` * (`_CHOICE` + bits of free parameters) + `_MARGIN`
#: bits. `_CHOICE` is the information content of the choice of a fault and a way of summation.
_CHOICE, _MARGIN, _FACTOR = 12, 16, 2
#: Each row (or column) of a matrix product is tried with the metadata and scales of every other row only if there are
#: at most this many rows.
_SOLVED = 512
#: Maximum number of outputs of a row (or column) that are computed with the metadata or scales of other rows.
_LINE = 64


def explain(problem: Problem) -> tuple[Explanation | None, str]:
    """Return the kernel fault that explains every bit of a result, else the fault with the fewest unexplained outputs.

    The explanation is None if no fault explains any output that differs. The text states what was searched.
    """
    examination = _Examination(problem)
    return examination.run(), examination.extent()


class _Examination:
    """State of a search for the fault of a kernel."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.setting, self.target = problem, problem.setting, problem.target
        self.fmt = FORMATS[problem.ways[0].result]
        self._correct: dict[Way, NDArray] = {}
        self.best: Explanation | None = None
        self._known_ways = [*problem.ways]
        tried = {*problem.ways}
        self._more_ways = (way for way in problem.more_ways() if way not in tried)
        self.tried = 0  # number of faults that were tried on the sample of outputs
        self._is_limited = False  # whether some ways of summation were not tried
        self._conversions = [*dict.fromkeys((way.convert_a, way.convert_b) for way in problem.ways)]
        self._orders = min(_MOST_ORDERS, len({(way.scale_order, way.group_scaling) for way in problem.ways}))
        self._near: list[Fault] = []  # faults that nearly reproduce the sample of outputs, nearest first
        self.values = decode_codes(self.target, self.fmt)

    def correct(self, way: Way) -> NDArray:
        """Return the codes of the correct matrix product by a way of summation."""
        if way not in self._correct:
            if len(self._correct) > 2 * _MOVED_WAYS:
                self._correct.clear()
            self._correct[way] = self.setting.codes(way)
        return self._correct[way]

    def run(self) -> Explanation | None:
        """Try all kinds of faults of a kernel until one fault explains every bit of the result."""
        way = self.problem.ways[0]
        self.differs = self.correct(way) != self.target
        if self.differs.sum() < LEAST:
            return None
        self._probe = chosen(self.differs, *PROBE)
        self._sample = chosen(self.differs, *_SAMPLE)
        correct = decode_codes(self.correct(way), self.fmt)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore", under="ignore"):
            self._is_fine = near(correct, self.values, self.values)[self.differs].mean() > _FINE
            for search in (
                self._stored,
                *(() if self._is_fine else (self._moved, self._slices)),
                self._near_faults,
                *(() if self._is_fine else (self._uncleared,)),
                self._lines,
                self._nibbles,
                self._by_all_ways,
            ):
                for explanation in search():
                    if self.best is None or explanation.remaining < self.best.remaining:
                        self.best = explanation
                    if explanation.is_exact:
                        return explanation
        return self.best

    def extent(self) -> str:
        """Return a text that states how many faults and ways of summation were tried."""
        ways = f"the first {_NEAR_WAYS * self._orders}" if self._is_limited else "all"
        return (
            f"{self.tried} faults of operands, scales and sums were tried, the nearest of them by {ways} ways of "
            "summation"
        )

    def judged(self, kind: str, text: str, way: Way, codes: NDArray, bits: float) -> Explanation | None:
        """Return the explanation of the result by a fault of all outputs, or of only the rows and columns with errors.

        Return None if the fault explains fewer than `LEAST` wrong outputs, does not reduce the number of wrong outputs,
        or leaves some outputs unexplained with weak evidence. `codes` is the product with the fault, `way` computes the
        correct product, and `bits` is the information content of the fault's free parameters.
        """
        correct, target = self.correct(way), self.target
        before = correct != target
        candidates = [(codes, text, bits)]
        rows, columns = np.flatnonzero(before.any(1)), np.flatnonzero(before.any(0))
        if len(rows) and (len(rows) < len(before) or len(columns) < before.shape[1]):
            part = np.ix_(rows, columns)
            joined = correct.copy()
            joined[part] = codes[part]
            names = [describe_set(rows, len(before), "rows"), describe_set(columns, before.shape[1], "columns")]
            where = f"{text}; in {names[0][0]}, {names[1][0]}"
            candidates.append((joined, where, bits + names[0][1] + names[1][1]))
        for changed, words, parameters in sorted(candidates, key=lambda one: int((one[0] != target).sum())):
            left = int((changed != target).sum())
            gained = before & (changed == target)
            if left >= before.sum() or gained.sum() < LEAST:
                continue
            convinces = (
                evidence(correct[gained], target[gained], self.fmt) >= _FACTOR * (_CHOICE + parameters) + _MARGIN
            )
            if left and not convinces:
                continue
            return Explanation(kind, words, way, changed, correct, left, left == 0 and convinces)
        return None

    # Faults of a kernel in the stored result: wrong conversions of results, and outputs at wrong rows and columns.

    def _stored(self) -> Iterator[Explanation]:
        """Try kernel faults: results are rounded in another way, or NaN and infinity are stored as other codes."""
        grids = [(Grid(self.setting, *place), self.target[np.ix_(*place)]) for place in (self._probe, self._sample)]
        for way in self._ways() if self._is_fine else islice(self._every_way(), _STORED_WAYS * self._orders):
            likely = list(finishes(way.result))
            for grid, target in grids:
                values = grid.values(way)
                is_stored = values.dtype == np.float32 or way.result == "s8"
                likely = [one for one in likely if is_stored and np.array_equal(one[2](values, way), target)]
                if not likely:
                    break
            for kind, text, finish in likely:
                codes = replace(self.setting, finish=finish).codes(way)
                if explanation := self.judged(kind, text, way, codes, 0):
                    yield explanation

    def _moved(self) -> Iterator[Explanation]:
        """Try kernel faults: outputs of the correct product are stored at other rows and columns."""
        grid, known = Grid(self.setting, *self._sample), np.unique(self.target)

        def elsewhere(way: Way) -> float:
            return float(np.isin(grid.codes(way), known).mean())

        def variant(way: Way) -> tuple[str, ...]:
            return way.convert_a, way.convert_b, way.scale_order

        present = {name: elsewhere(way) for name, way in {variant(way): way for way in self.problem.ways[::-1]}.items()}
        likely = [name for name, share in present.items() if 2 * share >= max(present.values())]
        ways: Iterable[Way] = self.problem.ways if len(present) == 1 else self._ways()
        tried = islice((way for way in ways if variant(way) in likely), _STORED_WAYS)
        ranked = sorted(tried, key=elsewhere, reverse=True)[:_MOVED_WAYS]
        result = Outputs(self.target, self.values)
        for number, way in enumerate(dict.fromkeys([ranked[0], self.problem.ways[0], *ranked[1:]])):
            correct = self.correct(way)
            for change in moved(Outputs(correct, decode_codes(correct, self.fmt)), result):
                if explanation := self._moved_by(change, way):
                    yield explanation
                    if number == 0 and not explanation.is_exact:
                        yield from self._by_other_ways(change, explanation)

    def _moved_by(self, change: Moved, way: Way) -> Explanation | None:
        codes = change.applied(self.correct(way))
        return self.judged("outputs in other places", change.text, way, codes, change.bits)

    def _by_other_ways(self, change: Moved, nearest: Explanation) -> Iterator[Explanation]:
        """Try a permutation of outputs with more ways of summation, to explain the outputs that still differ."""
        left = np.flatnonzero(nearest.codes.ravel() != self.target.ravel())
        if not 0 < 4 * len(left) < self.target.size:
            return
        left = left[change.index[left] >= 0][:: max(1, len(left) // 16)]
        places = np.divmod(change.index[left], self.target.shape[1])
        rows, columns = (np.unique(part) for part in places)
        grid = Grid(self.setting, rows, columns)
        where = np.searchsorted(rows, places[0]), np.searchsorted(columns, places[1])
        tried = 0
        for way in self._ways():
            if (grid.codes(way)[where] == self.target.ravel()[left]).all():
                if explanation := self._moved_by(change, way):
                    yield explanation
                if (tried := tried + 1) == _TRIED:
                    return

    # Faults in how a kernel reads its operands. These faults change the sums along K.

    def _faults(self) -> Iterator[Fault]:
        """Yield faults to try: roundings, epilogue and scales. Unless errors are small, also yield misread operands."""
        setting, i = self.setting, self.problem.instructions[0]
        if i.a.name == "tf32":
            yield from rounded_words(setting)
        for text, changed in self.problem.rounded():
            yield Fault("rounding of operands", text, changed)
        yield from epilogue_faults(setting)
        yield from scale_faults(setting, i)
        if self._is_fine:
            return
        if setting.nibbles is not None:
            yield from metadata(setting, i.container_bits)
        yield from types(setting, i)
        yield from k_maps(setting, min(i.k for i in self.problem.instructions))
        yield from layouts(setting, i)
        if not setting.has_scales_along_k:
            yield from beyond_the_end(setting)

    def _near_faults(self) -> Iterator[Explanation]:
        """Try each fault on a sample of outputs, then try the nearest faults with the likely ways of summation."""
        close = []
        for number, fault in enumerate(self._faults()):
            self.tried += 1
            try:
                score, far = self._distance(fault, self.problem.ways[0])
            except OperandError:  # The way of summation does not allow K or scale groups of these operands.
                continue
            if far == 0 and (explanation := self._whole(fault, self.problem.ways[0])):
                yield explanation
            if score >= _CLOSE:
                close.append((far, number, fault))
        self._near = [fault for _, _, fault in sorted(close, key=lambda one: one[:2])]
        for fault in self._near[: 4 * _TRIED]:
            yield from self._by_ways(fault, few=True)

    def _distance(self, fault: Fault, way: Way) -> tuple[float, float]:
        """Return the fraction of wrong sample outputs that a fault nearly reproduces, and the sum of all errors."""
        way, place = fault.change_way(way) if fault.change_way else way, np.ix_(*self._probe)
        computed, values = decode_codes(Grid(fault.setting, *self._probe).codes(way), self.fmt), self.values[place]
        close = near(computed, values, self.values)[self.differs[place]]
        far = np.abs(computed - values)[self.differs[place]]
        return float(close.mean()), float(np.where(np.isfinite(far), far, 0).sum())

    def _by_all_ways(self) -> Iterator[Explanation]:
        for fault in self._near[:_TRIED]:
            yield from self._by_ways(fault)

    def _ways(self, conversions: Container[tuple[str, str]] | None = None, few: bool = False) -> Iterator[Way]:
        """Yield ways of summation with given tf32 conversions; with `few`, only those tried before the fault search."""
        most, count = (_STORED_WAYS if few else _NEAR_WAYS) * self._orders, 0
        for way in self.problem.ways if few else self._every_way():
            if conversions is None or (way.convert_a, way.convert_b) in conversions:
                if count == most:
                    self._is_limited |= not few
                    return
                count += 1
                yield way

    def _every_way(self) -> Iterator[Way]:
        """Yield each way of summation once: first those tried before the search for faults, then further ones."""
        yield from self._known_ways
        for way in self._more_ways:
            self._known_ways.append(way)
            yield way

    def _likely_conversions(self, fault: Fault) -> Container[tuple[str, str]]:
        """Return the conversions of A and B to tf32 with which a kernel with the fault comes nearest to the result."""
        if len(self._conversions) == 1:
            return self._conversions
        far = {}
        for a, b in self._conversions:
            far[a, b] = self._distance(fault, replace(self.problem.ways[0], convert_a=a, convert_b=b))[1]
        return [one for one, distance in far.items() if distance <= _MOST_ERROR * min(far.values())]

    def _by_ways(self, fault: Fault, few: bool = False) -> Iterator[Explanation]:
        """Yield explanations of the result by a fault, with the ways of summation that best reproduce some outputs."""
        place = np.ix_(*self._probe)
        grid, target, differs = Grid(fault.setting, *self._probe), self.target[place], self.differs[place]
        best, most, tried = None, 0, 0
        rest: tuple[Grid, NDArray] | None = None
        seen = set()
        for way in self._ways(self._likely_conversions(fault), few):
            changed = fault.change_way(way) if fault.change_way else way
            if changed in seen:
                continue
            seen.add(changed)
            try:
                equal = int((grid.codes(changed) == target)[differs].sum())
            except OperandError:
                # With way of summation `changed`, slices do not fill K, or a chain spans several scale groups.
                continue
            if equal > most:
                best, most = way, equal
            if equal < differs.sum() or (rest and not np.array_equal(rest[0].codes(changed), rest[1])):
                continue
            if explanation := self._whole(fault, way):
                yield explanation
                # Accept another way of summation only if it reproduces outputs that no accepted way reproduces.
                rows, columns = chosen(explanation.codes != self.target, *PROBE)
                rest = Grid(fault.setting, rows, columns), self.target[np.ix_(rows, columns)]
            if (tried := tried + 1) == _TRIED:
                return
        if best and not tried and 2 * most > differs.sum() and (explanation := self._whole(fault, best)):
            yield explanation

    def _whole(self, fault: Fault, way: Way) -> Explanation | None:
        """Return how a fault explains the whole result; None if :meth:`judged` finds the evidence too weak.

        Also return None if the changed way of summation gives the same product without the other changes of the fault.
        """
        changed = fault.change_way(way) if fault.change_way else way
        codes = fault.setting.codes(changed)
        if changed != way and fault.setting is not self.setting:
            # codes() raises an error if an instruction chain of `changed` spans several groups of correct scales.
            with suppress(OperandError):
                if np.array_equal(codes, self.setting.codes(changed)):
                    return None
        return self.judged(fault.kind, fault.text, way, codes, fault.bits)

    def _slices(self) -> Iterator[Explanation]:
        """Fit how many times a kernel added each part of K to the sum, and try kernel faults with these numbers."""
        sums = sums_before(self.setting.epilogue, self.values)
        if sums is None:
            return
        unit, i = min(i.k for i in self.problem.instructions), self.problem.instructions[0]
        parts = slice_sums(self.setting.in_blocks(unit).take(*self._sample), unit, i)
        fitted = weights(parts, sums[np.ix_(*self._sample)].ravel())
        for fault in () if fitted is None else slices_of_k(self.setting, unit, fitted):
            yield from self._by_ways(fault)

    def _uncleared(self) -> Iterator[Explanation]:
        """Yield explanations by the fault that each output tile begins with the accumulator of the previous tile."""
        if not self.setting.epilogue.is_empty or self.setting.has_scales_along_k:
            return
        ways = [way for way in self.problem.ways if way.split_k == 1 and not way.promote and way.stream_k is None]
        if not ways:
            return
        product = decode_codes(self.correct(ways[0]), self.fmt)
        for text, tiles, size in not_cleared(self.target.shape):
            predicted, total = np.empty_like(product), np.zeros(tuple(size))
            for row, column in tiles:
                part = slice(row, row + size[0]), slice(column, column + size[1])
                predicted[part] = total = total + product[part]
            if near(predicted, self.values, self.values).mean() < _CLOSE:
                continue
            for one in [way for way in self.problem.ways[:_STORED_WAYS] if way in ways]:
                codes = carried(self.setting, one, tiles, size)
                words = f"the accumulator is not cleared between output tiles: {text}"
                if explanation := self.judged("accumulator", words, one, codes, 4):
                    yield explanation

    # Faults by which a kernel uses, for a row or column, the metadata or the scales of another row or column.

    def _lines(self) -> Iterator[Explanation]:
        """Search, for each row or column, the other row or column whose metadata, scales, C or bias the kernel used."""
        for array in line_arrays(self.setting):
            if self.target.shape[array.axis] <= _SOLVED and not (self._is_fine and array.kind == "metadata"):
                nearest = self.problem.ways[0]
                yield from self._solved(array, nearest)
                # Arrays of similar rows give results that differ only in rounding errors. To choose among such rows,
                # also use the way of summation (order of additions) of the best explanation found so far.
                if self.best and self.best.way != nearest:
                    yield from self._solved(array, self.best.way)

    def _solved(self, array: LineArray, way: Way) -> Iterator[Explanation]:
        index = np.arange(self.target.shape[array.axis])
        differs, values = (one.T if array.axis else one for one in (self.differs, self.values))
        for line in np.flatnonzero(differs.any(1)):
            others = np.flatnonzero(differs[line])[:_LINE]
            codes = array.line_against_all(self.setting, int(line), others).codes(way)
            far = np.abs(decode_codes(codes.T if array.axis else codes, self.fmt) - values[line, others])
            distances = np.where(np.isfinite(far), far, 0).sum(1)
            nearest = distances.argmin()
            if 2 * distances[nearest] < distances[line]:  # replace a row only by a row that fits twice as well
                index[line] = nearest
        if (index != np.arange(len(index))).any():
            noun = ("rows", "columns")[array.axis]
            text, bits = describe_map(index, noun)
            setting = array.with_lines(self.setting, index)
            fault = Fault(array.kind, f"{array.name} of other {noun}: {text}", setting, bits=bits)
            yield from self._by_ways(fault)

    def _nibbles(self) -> Iterator[Explanation]:
        """Search for wrong metadata nibbles in each row, if neither scales along K nor an epilogue change the sums."""
        if self.setting.nibbles is None or self.setting.has_scales_along_k or not self.setting.epilogue.is_empty:
            return
        for way in dict.fromkeys([self.problem.ways[0], *([self.best.way] if self.best else [])]):
            correct = decode_codes(self.correct(way), self.fmt)
            if fault := wrong_nibbles(self.setting, way, correct, self.values):
                yield from self._by_ways(fault)
