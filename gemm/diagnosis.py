"""Results of a search for a way of summation, and of the diagnosis of a wrong matrix product."""

import re
from dataclasses import asdict, dataclass, field, replace
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..infra.counts import counted
from ..isa.formats import FORMATS
from ..tensors.encode import decode_codes
from .epilogue import Epilogue
from .faults import explain
from .index_maps import describe_set
from .matrices import Factors
from .setting import Problem
from .sums import stored
from .ways import Way

__all__ = ["Diagnosis", "Identification", "Miss", "Output", "Remaining", "diagnosis_of"]

#: Fields that the JSON record of a :class:`Miss` contains in addition to the fields of its way of summation.
_OF_MISS = ("differing", "row", "column", "wanted", "got")
#: Margin of evidence in bits. The evidence for an exact way of summation is weak if it differs from the next best way
#: of summation in fewer outputs than log2(number of tried ways) + margin. With 4 bits, the probability of a match by
#: chance is below 1/16.
_MARGIN = 4
#: Maximum number of printed ways of summation that give the same result bits by construction.
_SHOWN_ALIKE = 3
#: Words that are exchanged in the text of a diagnosis if the kernel computes the transposed product.
_EXCHANGED = {
    "row": "column", "rows": "columns", "A": "B", "down": "across",
    "column": "row", "columns": "rows", "B": "A", "across": "down",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Output:
    """One output of a matrix product, with all data that are needed to compute it again."""

    way: Way  #: Order and roundings of the additions. The K slices of this output replace a stream-K schedule.
    factors: Factors  #: The row of the left operand and the column of the right operand that give this output
    epilogue: Epilogue  #: Epilogue that is applied to this output

    def stored(self, total: NDArray) -> int:
        """Apply the epilogue to a float32 or int32 sum of shape (1, 1); return the code that is stored."""
        return int(stored(self.way, self.epilogue, total)[0, 0])


@dataclass(frozen=True)
class Miss:
    """Differences between a given result and the result of one way of summation."""

    way: Way
    differing: int  #: Number of outputs in which the way of summation differs from the given result
    #: Row and column of the first output in which the way of summation differs from the given result.
    row: int
    column: int
    #: Two codes of the first output that differs: its code in the given result, and its code by the way of summation.
    wanted: int
    got: int
    output: Output = field(repr=False, compare=False)  #: The first output that differs, with its operands


@dataclass(frozen=True)
class Remaining:
    """The first output that the diagnosis does not explain."""

    row: int
    column: int
    result: int  #: Code of the first unexplained output in the given result
    expected: int  #: Code of the first unexplained output, computed with the fault that explains the most outputs


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Diagnosis of the result of a kernel: whether the result is correct, or which fault explains the result."""

    explained: bool  #: Whether a fault or a correct way of summation explains every bit of the result
    kind: str  #: Kind of the diagnosis: ``correct``, a kind of :data:`sptc.gemm.setting.KINDS`, or ``unexplained``
    text: str  #: Text of the diagnosis for the user
    differing: NDArray[np.bool_]  #: For each output of the result, whether it differs from the correct product
    remaining: int  #: Number of outputs that the diagnosis does not explain
    way: Way | None  #: Order and roundings of the additions that give the correct matrix product
    first: Remaining | None  #: The first output that is not explained; None if all outputs are explained
    #: Way of summation with the fewest wrong outputs, and operands of the first of them; None if a way has none.
    nearest: Miss | None = None

    def record(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values. The value of ``differing`` is the number of outputs that differ."""
        rows, columns = (np.flatnonzero(self.differing.any(axis)) for axis in (1, 0)) if self.differing.ndim == 2 else (
            np.flatnonzero(self.differing), np.arange(1))  # fmt: skip
        return {
            "explained": self.explained,
            "kind": self.kind,
            "text": self.text,
            "outputs": self.differing.size,
            "differing": int(self.differing.sum()),
            "rows": rows.tolist(),
            "columns": columns.tolist() if self.differing.any() else [],
            "remaining": self.remaining,
            "way": self.way and asdict(self.way),
            "first": self.first and asdict(self.first),
        }

    def __str__(self) -> str:
        lines = [self.text]
        if self.way:
            lines.append(f"  {self.way}")
        if (first := self.first) and self.way:
            fmt, codes = FORMATS[self.way.result], (first.result, first.expected)
            values = decode_codes(np.array(codes, np.uint32), fmt)
            one, other = (
                f"0x{code:0{fmt.bits // 4}x} ({value:.9g})" for code, value in zip(codes, values, strict=True)
            )
            place = f"row {first.row}, column {first.column}"
            lines.append(f"first unexplained output: {place}: y holds {one}, the diagnosis expects {other}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Identification:
    """Result of a search for the way of summation of a matrix product."""

    exact: bool  #: Whether the search found a way of summation that reproduces the result bit for bit
    way: Way | None  #: The first way of summation found that reproduces the result bit for bit
    #: Number of outputs that were compared with the results of `way`, or of `nearest` if no way of summation is exact.
    compared: int
    #: Among the ways of summation with a wrong output, the one with the fewest wrong outputs. If `way` is exact,
    #: `nearest.differing` outputs distinguish it from `nearest`. None if every way that was tried is exact.
    nearest: Miss | None
    equal: tuple[Way, ...] = ()  #: Other ways of summation that give the same result bits for these operands
    #: If no way of summation is exact: a way of summation that explains every output if the slices of K may be added
    #: in another order for each output, as with atomic additions. The results of such an order are not
    #: deterministic, so `exact` is False.
    possible: Way | None = None
    tried: int = 0  #: Number of ways of summation (orders and roundings of additions) that were tried
    #: Other ways of summation that give the same bits as `way` for all operands; then other instructions that give the
    #: same bits as the instruction of `way`.
    alike: tuple[Way, ...] = ()
    instructions_alike: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  #: Sentences on how the operands were interpreted and converted
    diagnosis: Diagnosis | None = None  #: Diagnosis of the result if no way of summation reproduces it

    @property
    def weak_evidence(self) -> bool:
        """Whether `way` may give every bit by chance, because few outputs distinguish it from the next best way.

        Each of these outputs is counted as one bit of evidence. The evidence is weak if the number of these outputs is
        less than log2 of the number of tried ways, plus a margin of 4 bits.
        """
        return self.exact and self.nearest is not None and self.nearest.differing < log2(max(1, self.tried)) + _MARGIN

    def record(self) -> dict[str, Any]:
        """Return the search result as JSON values, without the operands of the first output that differs."""
        near = self.nearest
        return {
            "exact": self.exact,
            "way": self.way and asdict(self.way),
            "compared": self.compared,
            "weak_evidence": self.weak_evidence,
            "nearest": near and {name: getattr(near, name) for name in _OF_MISS} | {"way": asdict(near.way)},
            "equal": [asdict(way) for way in self.equal],
            "possible": self.possible and asdict(self.possible),
            "tried": self.tried,
            "alike": [asdict(way) for way in self.alike],
            "instructions_alike": list(self.instructions_alike),
            "notes": list(self.notes),
            "diagnosis": self.diagnosis and self.diagnosis.record(),
        }

    def __str__(self) -> str:
        near = self.nearest
        if self.exact:
            lines = [f"exact: all {self.compared} outputs", f"  {self.way}", *self.notes]
            if near:
                count = counted(near.differing, "output")
                lines.append(f"next best way of summation, which differs in {count}:\n  {near.way}")
            if near and self.weak_evidence:
                lines.append(
                    f"weak evidence: only {near.differing} of {self.compared} outputs distinguish this way from the "
                    "next best; a probe (`sptc identify --probe FOLDER`; see the guide) decides"
                )
            if self.equal:
                lines += ["other sums with the same bits for these operands:", *(f"  {way}" for way in self.equal)]
            elif not near:
                lines.append("all other ways of summation that were tried give the same bits")
            if self.alike or self.instructions_alike:
                lines += [
                    "other ways of summation and instructions with the same bits for all operands:",
                    *(f"  {way}" for way in self.alike[:_SHOWN_ALIKE]),
                ]
                lines += [f"  the first way with {name} as its instruction" for name in self.instructions_alike]
            always = len(self.alike) + len(self.instructions_alike)
            lines.append(
                f"not distinguished: {len(self.equal)} other sums with the same bits for these operands, {always} "
                "other ways of summation and instructions with the same bits for all operands, and m and n of the "
                "instruction"
            )
            return "\n".join(lines)
        lines = [
            f"none of the {self.tried} ways of summation that were tried gives all {self.compared} outputs",
            *self.notes,
        ]
        if self.possible:
            lines.append(f"each output is possible if its slices of K are added in some order:\n  {self.possible}")
        if self.diagnosis:
            lines.append(f"diagnosis: {self.diagnosis}")
        if near:
            where = f"row {near.row}, column {near.column}: y holds 0x{near.wanted:x}, this way computes 0x{near.got:x}"
            count = "1 output differs" if near.differing == 1 else f"{near.differing} outputs differ"
            lines.append(f"nearest way of summation, {count}, the first in {where}\n  {near.way}")
        return "\n".join(lines)


def diagnosis_of(problem: Problem) -> Diagnosis:
    """Search for the fault of a kernel that explains a result that no way of summation reproduces."""
    (fault, extent), result, way = explain(problem), problem.target, problem.ways[0]
    correct = problem.setting.codes(way) if fault is None else fault.correct
    expected = correct if fault is None else fault.codes
    differs, left = correct != result, expected != result
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    places = [describe_set(rows, len(differs), "rows")[0], describe_set(columns, differs.shape[1], "columns")[0]]
    text = f"{differs.sum()} of {differs.size} outputs differ, in {' and '.join(places)}; "
    if fault and fault.is_exact:
        text += f"every bit is explained by: {fault.kind}: {fault.text}"
        return _oriented(Diagnosis(True, fault.kind, text, differs, 0, fault.way, None))
    if fault:
        left_out = f"{left.sum()} outputs remain unexplained" if left.any() else "too few outputs to exclude chance"
        text += f"not explained: {fault.kind}: {fault.text} is nearest, {left_out}; {extent}"
        left = left if left.any() else differs
    else:
        text += f"not explained by any fault that was tried; {extent}"
    row, column = (int(index) for index in np.argwhere(left)[0])
    first = Remaining(row, column, int(result[row, column]), int(expected[row, column]))
    way = fault.way if fault else way
    return _oriented(Diagnosis(False, "unexplained", text, differs, int(left.sum()), way, first))


def _oriented(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis in terms of the caller's product, even if the kernel computes the transposed product."""
    if not (diagnosis.way and diagnosis.way.swapped):
        return diagnosis
    text = re.sub(r"\b(rows?|columns?|A|B|down|across)\b", lambda match: _EXCHANGED[match[1]], diagnosis.text)
    first = diagnosis.first and replace(diagnosis.first, row=diagnosis.first.column, column=diagnosis.first.row)
    return replace(diagnosis, text=text, differing=diagnosis.differing.T, first=first)
