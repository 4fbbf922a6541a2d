"""Division of a top module into parts along the module hierarchy. A part excludes the parts nested in its module."""

import re
from collections import Counter
from dataclasses import dataclass

from ..rtl.config import CoreConfig
from ..rtl.emit import unit_of
from .netlist import TOP, Netlist, black_box, black_box_of_unit, emit_around_units, modules

__all__ = ["TOPS", "Part", "names_of", "parts_of"]

#: Key: name of a top module that can be divided into parts. Value: hierarchical name of the array of dot-product units,
#: and a dictionary of modules outside the array: keys are hierarchical module names without instance numbers, values
#: are names of parts. A module that is not listed belongs to the part of the module that contains it.
TOPS = {
    "warp": ("core", {"": "registers to operands, results to registers"}),
    "warpgroup": (
        "tensor_cores.core.warp.core",
        {
            "": "wgmma groups, waits and flags",
            "tensor_cores": "instruction slots",
            "tensor_cores.stored_a": "storage of A",
            "tensor_cores.fetch": "fetch of operands",
            "tensor_cores.operands": "panels to operands",
            "tensor_cores.core": "panels or mma",
            "tensor_cores.core.warp": "registers to operands, results to registers",
        },
    ),
    "tcgen05": (
        "array.core",
        {
            "": "commands, commits and requests",
            "slots": "instruction slots",
            "fetch": "fetch of operands",
            "tensor_operands": "fetch of metadata and scales",
            "accumulators": "accumulators in tensor memory",
            "stored_a": "storage of A",
            "words": "storage of metadata and scales",
            "operands": "panels to operands",
            "array": "registers to operands, results to registers",
        },
    ),
}
#: For each module inside an array of dot-product units (name without instance numbers), name of the part.
_OF_ARRAY = {
    "": "control of an array",
    ".unit": "unit",
    ".decode_row": "decoder of a row",
    ".order_row": "order of a row",
    ".order_column": "order of a column",
}


@dataclass(frozen=True)
class Part:
    """A part of a top module, without the parts that are nested in the module of this part."""

    name: str
    count: int  #: Number of times that the top module contains this part (a submodule)
    #: Netlist of one instance of the part, or None for the dot-product units, which are measured separately.
    netlist: Netlist | None


def names_of(top: str) -> dict[str, str]:
    """Return the names of a top module's parts. The keys are hierarchical module names without instance numbers."""
    array, names = TOPS[top]
    return names | {f"{array}{module}": name for module, name in _OF_ARRAY.items()}


def parts_of(config: CoreConfig, top: str) -> list[Part]:
    """Return the parts of a top module (a key of :data:`TOPS`), beginning with the dot-product units.

    Raise an `Error` if the configuration cannot form the top module.
    """
    contents, unit, part_names = modules(emit_around_units(config, top)), unit_of(TOP), names_of(top)
    counts: Counter[str] = Counter()
    netlists: dict[str, Netlist | None] = {_OF_ARRAY[".unit"]: None}
    waiting = [TOP]
    while waiting:
        module = waiting.pop()
        name = part_names[_place(module)]
        counts[name] += 1
        inside = [other for other in contents if other.startswith(f"{module}.")]
        others = [other for other in inside if _place(other) in part_names and other.rpartition(".")[0] == module]
        waiting += others
        if name in netlists:
            continue
        own = [other for other in inside if not any(f"{other}.".startswith(f"{box}.") for box in others)]
        top = contents[module].replace(f"module \\{module}\n", f"module \\{TOP}\n", 1)
        boxes = [*(black_box(other, contents[other]) for other in others), black_box_of_unit(config, unit)]
        netlists[name] = Netlist(name, "\n".join([top, *(contents[other] for other in own), *boxes]))
    return [Part(name, counts[name], netlist) for name, netlist in netlists.items()]


def _place(module: str) -> str:
    """Return the hierarchical name of a module without numbers and without the name of the top module."""
    return re.sub(r"(_\d+)+\b", "", module.removeprefix(TOP).removeprefix("."))
