"""Split of a warpgroup at its module hierarchy into parts. A part excludes the parts that are nested in its module."""

import re
from collections import Counter
from dataclasses import dataclass

from ..rtl.config import CoreConfig
from ..rtl.emit import unit_of
from .netlist import TOP, Netlist, black_box, black_box_of_unit, emit_around_units, modules

__all__ = ["Part", "warpgroup_parts"]

#: Hierarchical name of an array within a warpgroup.
_ARRAY = "tensor_cores.core.warp.core"
#: Names of the parts by hierarchical module name without numbers. A module that is not listed belongs to the part
#: around it.
_NAMES = {
    "": "wgmma groups, waits and flags",
    "tensor_cores": "instruction slots",
    "tensor_cores.stored_a": "storage of A",
    "tensor_cores.fetch": "fetch of operands",
    "tensor_cores.operands": "panels to operands",
    "tensor_cores.core": "panels or mma",
    "tensor_cores.core.warp": "registers to operands, results to registers",
    _ARRAY: "control of an array",
    f"{_ARRAY}.unit": "unit",
    f"{_ARRAY}.decode_row": "decoder of a row",
    f"{_ARRAY}.order_row": "order of a row",
    f"{_ARRAY}.order_column": "order of a column",
}


@dataclass(frozen=True)
class Part:
    """A part of a warpgroup, without the parts that are nested in its module."""

    name: str
    count: int  #: Number of instances of the part in a warpgroup
    #: Netlist of one instance of the part, or None for the dot-product units, which are measured separately.
    netlist: Netlist | None


def warpgroup_parts(config: CoreConfig) -> list[Part]:
    """Return the parts of a warpgroup, the units first. Raise an `Error` if the configuration cannot form a warp."""
    contents, unit = modules(emit_around_units(config, "warpgroup")), unit_of(TOP)
    counts: Counter[str] = Counter()
    netlists: dict[str, Netlist | None] = {_NAMES[f"{_ARRAY}.unit"]: None}
    waiting = [TOP]
    while waiting:
        module = waiting.pop()
        name = _NAMES[_place(module)]
        counts[name] += 1
        inside = [other for other in contents if other.startswith(f"{module}.")]
        others = [other for other in inside if _place(other) in _NAMES and other.rpartition(".")[0] == module]
        waiting += others
        if name in netlists:
            continue
        own = [other for other in inside if not any(f"{other}.".startswith(f"{box}.") for box in others)]
        top = contents[module].replace(f"module \\{module}\n", f"module \\{TOP}\n", 1)
        boxes = [*(black_box(other, contents[other]) for other in others), black_box_of_unit(config, unit)]
        netlists[name] = Netlist(name, "\n".join([top, *(contents[other] for other in own), *boxes]))
    return [Part(name, counts[name], netlist) for name, netlist in netlists.items()]


def _place(module: str) -> str:
    """Return the hierarchical name of a module, without numbers and without the top module."""
    return re.sub(r"(_\d+)+\b", "", module.removeprefix(TOP).removeprefix("."))
