"""A digest of what is to be proved: the netlist in front of claims, covers and assumptions, whatever its names are."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Fragment, _ir, _nir

from ..infra.collector import uncollected
from .harness import Harness

__all__ = ["problem_digest"]

#: Attributes of a cell that change nothing: where it stands in the source and in the hierarchy, and its name.
_UNIMPORTANT = frozenset({"src_loc", "module_idx", "attributes", "name"})


def problem_digest(harness: Harness) -> str:
    """Return 16 hexadecimal digits that stand for everything that decides whether a property holds.

    Cells are numbered in the order in which a walk from the claims, covers and assumptions back to the free variables
    meets them. So equal digests mean equal netlists but for the names of signals and components, the order of ports and
    cells, and places in source files. The order of claims, covers and assumptions counts.

    Parameters
    ----------
    harness : Harness
        The property of one set of parameters; it is elaborated.

    Raises
    ------
    TypeError
        The netlist has a memory, an instance of a foreign module or another cell that a walk along nets cannot compare.
    """
    ports: list[Any] = [*harness.ports, *(harness.flags[name] for name in harness.covers)]
    with uncollected():
        # Amaranth has no public form of its netlist but text, which would have to be parsed again.
        netlist = _ir.build_netlist(Fragment.get(harness.m, "formal"), ports=ports, name="top")
        walk = _Walk(netlist.cells, harness.any_state)
        for cell in netlist.cells:
            if isinstance(cell, (_nir.AsyncProperty, _nir.SyncProperty)):
                walk.enter([cell.kind, cell.test, cell.en])
        return walk.finish()


@dataclass
class _Walk:
    """Numbers cells and hashes them in that order.

    With `any_state` a register of a component holds anything at first and one of the harness its initial value, so
    that it counts whose a register is.
    """

    cells: list[Any]
    any_state: bool
    numbers: dict[int, int] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    def enter(self, row: list[Any]) -> None:
        """Hash one line, whose nets are numbered."""
        self.digest.update(repr(self._plain(row)).encode())

    def finish(self) -> str:
        """Hash all cells that were met, and those that they depend on."""
        while self.pending:
            cell = self.cells[self.pending.pop()]
            if not isinstance(cell, _COMPARED):
                raise TypeError(f"a netlist with a cell {type(cell).__name__} has no digest")
            kept = self.any_state and isinstance(cell, _nir.FlipFlop) and cell.module_idx == 0
            fields = [value for name, value in vars(cell).items() if name not in _UNIMPORTANT]
            self.enter([type(cell).__name__, kept, *fields])
        self.digest.update(bytes([self.any_state]))
        return str(self.digest.hexdigest()[:16])

    def _plain(self, value: Any) -> Any:
        if isinstance(value, _nir.Net):
            return self._number(value)
        if isinstance(value, _nir.Assignment):
            return [self._number(value.cond), value.start, self._plain(value.value)]
        if isinstance(value, (tuple, list)):
            return [self._plain(item) for item in value]
        return value

    def _number(self, net: Any) -> tuple[int, int] | str:
        """Return the number of the cell that drives a net, and which bit of it; bits of free variables are numbered."""
        if net.is_const:
            return str(net.const)
        is_free = net.cell == 0
        key = -int(net) if is_free else net.cell
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            if not is_free:
                self.pending.append(net.cell)
        return self.numbers[key], 0 if is_free else net.bit


_COMPARED = (
    _nir.Operator,
    _nir.Part,
    _nir.Matches,
    _nir.PriorityMatch,
    _nir.AssignmentList,
    _nir.FlipFlop,
    _nir.Initial,
    _nir.AnyValue,
)
