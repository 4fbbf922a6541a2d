"""What proofs cost, as it was measured: which of them are quick, and which are begun first."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command that only names what is quick need not load the hardware
    from .properties import Case

__all__ = ["COSTS", "LEFT_OUT", "MEASURED", "NOT_THERE", "ONLY_OF_TINY", "Cost", "expected_seconds", "is_quick"]

#: How the figures were come by; other machines have others, in much the same proportions.
MEASURED = (
    "by the clock, one proof after another (--jobs 1) on a core of an AMD EPYC of which others had half: "
    "the quick set is 286 s of them, and 141 s of processor time"
)


@dataclass(frozen=True)
class Cost:
    """Seconds that a property takes.

    Attributes
    ----------
    tiny, hopper, every : float
        In all its cases of the smallest datapath, of one of silicon, and of every preset; 0 where it has none.
    """

    tiny: float
    hopper: float
    every: float

    def __str__(self) -> str:
        return f"{self.tiny:g} s of tiny, {self.hopper:g} s of hopper, {self.every:g} s of every preset"


#: By property.
COSTS: dict[str, Cost] = {
    "metadata.legal": Cost(0.2, 0.2, 0.4),
    "metadata.selects": Cost(0.2, 0.2, 0.3),
    "metadata.exchange": Cost(0.0, 0.0, 0.3),
    "metadata.chunk": Cost(6.6, 16.5, 56.9),
    "selection.units": Cost(0.7, 0.7, 1.3),
    "selection.isolation": Cost(0.8, 0.8, 1.6),
    "selection.tf32": Cost(0.3, 0.3, 0.6),
    "selection.step": Cost(1.9, 13.2, 31.7),
    "operands.unpack": Cost(1.6, 13.8, 107.1),
    "operands.accumulator": Cost(0.2, 0.2, 0.2),
    "operands.multiply": Cost(0.6, 0.6, 0.8),
    "operands.exact": Cost(3.2, 3.2, 3.5),
    "operands.products": Cost(2.6, 10.9, 111.6),
    "scaling.offset": Cost(0.3, 0.3, 3.1),
    "scaling.group": Cost(0.0, 0.0, 2.9),
    "alignment.maximum": Cost(0.7, 8.9, 10.5),
    "alignment.shift": Cost(1.3, 1.6, 6.5),
    "alignment.e_max": Cost(11.0, 133.9, 458.5),
    "alignment.terms": Cost(9.2, 8.2, 118.0),
    "reduction.tree": Cost(1.3, 13.7, 30.4),
    "reduction.adder": Cost(0.2, 0.2, 0.4),
    "reduction.group": Cost(0.0, 0.0, 16.7),
    "reduction.width": Cost(1.2, 6.5, 41.3),
    "rounding.truncation": Cost(1.9, 4.0, 12.8),
    "rounding.nearest": Cost(3.6, 3.1, 18.6),
    "rounding.specials": Cost(0.6, 2.0, 6.0),
    "rounding.integers": Cost(0.3, 0.2, 1.3),
    "unit.floats": Cost(26.8, 26.8, 60.4),
    "unit.integers": Cost(143.2, 143.2, 431.3),
    "unit.stages": Cost(34.3, 43.5, 169.1),
    "core.order": Cost(0.7, 2.5, 5.0),
    "core.reset": Cost(0.6, 3.7, 6.7),
    "core.operands": Cost(1.0, 26.2, 91.9),
    "core.dense": Cost(1.3, 20.1, 52.6),
    "core.validity": Cost(1.6, 17.9, 46.6),
    "warp.order": Cost(18.3, 15.7, 48.8),
    "warp.reset": Cost(209.9, 393.9, 1190.2),
    "warp.operands": Cost(157.1, 89.6, 443.0),
    "fetch.address": Cost(57.2, 57.2, 57.2),
    "fetch.panel": Cost(18.4, 18.4, 18.4),
    "fetch.both": Cost(80.0, 80.0, 80.0),
    "wgmma.order": Cost(91.7, 70.7, 391.8),
    "wgmma.negation": Cost(24.3, 15.4, 102.3),
    "wgmma.progress": Cost(113.5, 113.5, 113.5),
    "wgmma.shared": Cost(256.1, 256.1, 256.1),
    "tensor_core.order": Cost(15.0, 16.0, 46.9),
    "tensor_core.cta_progress": Cost(413.2, 413.2, 413.2),
    "tensor_memory.registers": Cost(47.0, 47.0, 47.0),
    "tensor_memory.order": Cost(5.0, 5.0, 5.0),
    "tensor_operands.columns": Cost(2.0, 2.0, 2.0),
    "accumulators.contents": Cost(3.0, 3.0, 3.0),
    "accumulators.order": Cost(15.0, 15.0, 15.0),
    "commits.order": Cost(0.7, 0.7, 0.7),
    "validity.warp": Cost(62.0, 49.4, 169.8),
    "validity.wgmma": Cost(32.0, 40.2, 103.9),
}
#: The most that a property of the quick set takes of the smallest datapath, and of any other.
_OF_TINY, _OF_OTHERS = 35.0, 14.0


#: Properties of which the quick set has nothing, though its datapaths have what they speak of.
LEFT_OUT = tuple(name for name, cost in COSTS.items() if cost.tiny > _OF_TINY and cost.hopper > _OF_OTHERS)
#: Of those that it has, what it has of the smallest datapath alone.
ONLY_OF_TINY = tuple(name for name, cost in COSTS.items() if cost.hopper > _OF_OTHERS and cost.tiny <= _OF_TINY)
#: What neither of its datapaths has.
NOT_THERE = tuple(name for name, cost in COSTS.items() if cost.tiny == cost.hopper == 0)


def is_quick(case: "Case") -> bool:
    """Tell whether a proof belongs to the quick set: its property takes so few seconds of such a datapath."""
    return expected_seconds(case) <= (_OF_TINY if "tiny" in case.presets else _OF_OTHERS)


def expected_seconds(case: "Case") -> float:
    """Return about how long a proof takes at most; nothing is known of a property that was never measured."""
    cost = COSTS.get(case.subject.name, Cost(0.0, 0.0, 0.0))
    return cost.tiny if "tiny" in case.presets else cost.hopper
