"""Coverage of a datapath: decodes the words of steps and results, and counts them in every group."""

import numpy as np
from numpy.typing import NDArray

from ...isa.metadata import RULES
from ...rtl.config import CoreConfig
from ...rtl.step import row_result_layout
from .alignment import AlignmentCoverage
from .arithmetic import evaluate
from .groups import Axis, Coverage, Group
from .integers import IntegersCoverage
from .operands import Control, Operands, StepReader
from .operations import Operation, operations_of
from .rounding import RoundingCoverage
from .scales import ScalesCoverage
from .selection import SelectionCoverage
from .specials import SpecialsCoverage

__all__ = ["StepCoverage"]

#: Steps evaluated at once. It bounds the memory and keeps the terms of a step in the second-level cache.
_BLOCK = 1024


class StepCoverage:
    """Functional coverage of the steps that a datapath computes.

    Its own groups are ``operations``: formats with result and scaling, dense and sparse; and ``results``: whether the
    result of a step is the one that its operands give. (A wrong result is declared unreachable, so that it shows as a
    contradiction.) The others are those of :class:`~sptc.sim.coverage.selection.SelectionCoverage`,
    :class:`~sptc.sim.coverage.alignment.AlignmentCoverage`, :class:`~sptc.sim.coverage.specials.SpecialsCoverage`,
    :class:`~sptc.sim.coverage.rounding.RoundingCoverage`, :class:`~sptc.sim.coverage.integers.IntegersCoverage` and
    :class:`~sptc.sim.coverage.scales.ScalesCoverage`, as far as the formats of the datapath need them.

    A step with formats that no instruction combines (for example f16 times bf16) counts only for ``legality``.

    Parameters
    ----------
    config : CoreConfig
        Datapath.

    Attributes
    ----------
    config : CoreConfig
        Datapath.
    coverage : Coverage
        Coverage sampled so far.

    Notes
    -----
    All expected values are computed from the step words with the golden model's arithmetic, never from the hardware.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self._reader = StepReader(config)
        self._fields = {name: field.offset for name, field in row_result_layout(config)}
        self._operations = operations_of(config)
        place = config.elements.index
        self._by_control = {(place(o.a), place(o.b), o.result, o.scale): o for o in self._operations}
        floats = tuple(o for o in self._operations if not o.integer)
        integers = tuple(o for o in self._operations if o.integer)
        scaled = tuple(o for o in self._operations if o.scale != "none")
        name = config.name
        self._asked = Group(
            name,
            "operations",
            "A step of this operation ran.",
            (Axis("operation", tuple(map(str, self._operations))), Axis("operands", ("dense", "sparse"))),
        )
        self._result_names = [*dict.fromkeys(o.result for o in self._operations)]
        self._results = Group(
            name,
            "results",
            "The result of a step was the one that follows from its operands, or another.",
            (Axis("result", tuple(self._result_names)), Axis("agreement", ("as derived", "another"))),
        )
        self._results.declare_unreachable([False, True], "The hardware computes what follows from the operands.")
        self._selection = SelectionCoverage(config, self._operations)
        self._alignment = AlignmentCoverage(name, floats)
        self._specials = SpecialsCoverage(name, floats)
        self._rounding = RoundingCoverage(name, floats)
        self._integers = IntegersCoverage(name, integers)
        self._scales = ScalesCoverage(name, scaled)
        topics = (self._selection, self._alignment, self._specials, self._rounding, self._integers, self._scales)
        groups = [self._asked, self._results, *(group for topic in topics for group in topic.groups)]
        self.coverage = Coverage(group for group in groups if group.bins)

    def sample(self, steps: NDArray[np.uint32], results: NDArray[np.uint64]) -> None:
        """Count steps and their results.

        Parameters
        ----------
        steps : ndarray of uint32, shape (count, words)
            Steps in the layout of :func:`sptc.sim.engine.steps.steps_of`.
        results : ndarray of uint64, shape (count,)
            Results in the layout of :func:`sptc.rtl.step.row_result_layout`.

        Raises
        ------
        AssertionError
            The flags of undefined nibbles of a step contradict its rule.
        """
        words = self._reader.control_words(steps)
        for word in np.unique(words):
            control = self._reader.control(int(word))
            if max(control.a, control.b) >= len(self.config.elements) or control.rule not in RULES:
                continue
            rows = np.flatnonzero(words == word)
            for start in range(0, len(rows), _BLOCK):
                block = rows[start : start + _BLOCK]
                self._sample(steps[block], results[block], control)

    def _sample(self, steps: NDArray[np.uint32], results: NDArray[np.uint64], control: Control) -> None:
        first = self._fields["illegal"]
        bits = np.arange(first, first + self.config.chunks, dtype=np.uint64)
        self._selection.sample_legality(self._reader, steps, results[:, None] >> bits & np.uint64(1), control)
        operation = self._by_control.get((control.a, control.b, control.result, control.scale))
        if operation is None:
            return
        self._asked.hits[self._operations.index(operation), int(control.sparse)] += len(steps)
        operands = self._reader.operands(steps, control)
        if control.sparse:
            self._selection.sample(operation, operands, control.rule)
        d = (results >> np.uint64(self._fields["d"])).astype(np.uint32)
        if operation.integer:
            wanted, overflow = self._integers.sample(operation, operands, control.saturate)
            agrees = (d == wanted) & ((results >> np.uint64(self._fields["overflow"]) & np.uint64(1) == 1) == overflow)
        else:
            agrees = d == self._sample_float(operation, operands, control.sparse)
        self._results.count(self._result_names.index(operation.result), (~agrees).astype(np.intp))

    def _sample_float(self, operation: Operation, operands: Operands, sparse: bool) -> NDArray[np.uint32]:
        evaluation = evaluate(operation, operands)
        self._alignment.sample(evaluation)
        self._specials.sample(evaluation, sparse)
        self._rounding.sample(evaluation)
        if operation.scale != "none":
            self._scales.sample(evaluation)
        return evaluation.codes
