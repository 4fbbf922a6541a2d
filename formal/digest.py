"""Digest of a property to prove: a hash of the logic that drives its claims, covers and assumptions, without names."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Fragment, _ir, _nir

from ..infra.collector import uncollected
from .harness import Harness

__all__ = ["problem_digest"]

#: Fields of a netlist cell that do not affect the proof: source location, hierarchy, attributes and name.
_UNIMPORTANT = frozenset({"src_loc", "module_idx", "attributes", "name"})


def problem_digest(harness: Harness) -> str:
    """Return a digest of 16 hexadecimal digits of everything that affects whether a property is true.

    This function elaborates the harness. A walk leads from the claims, covers and assumptions back to the free
    variables, and numbers the cells in the order of the walk. Netlists with equal digests are therefore equal except
    for names of signals and components, the order of ports and cells, and source locations. Another order of the
    claims, covers or assumptions changes the digest. Raise a `TypeError` if the netlist has a memory, an instance of a
    foreign module or another cell that the walk cannot compare.
    """
    ports: list[Any] = [*harness.ports, *(harness.flags[name] for name in harness.covers)]
    with uncollected():
        # The private API of Amaranth is used, because its only public netlist format is text.
        netlist = _ir.build_netlist(Fragment.get(harness.m, "formal"), ports=ports, name="top")
        walk = _Walk(netlist.cells, harness.any_state)
        for cell in netlist.cells:
            if isinstance(cell, (_nir.AsyncProperty, _nir.SyncProperty)):
                walk.enter([cell.kind, cell.test, cell.en])
        return walk.finish()


@dataclass
class _Walk:
    """Walk over a netlist. It begins at the claims, numbers the cells in the order of the walk and hashes them.

    With `any_state`, registers of components begin with any value, and registers of the harness begin with their
    initial values. The digest therefore includes, for each register, whether it belongs to the harness.
    """

    cells: list[Any]
    any_state: bool
    numbers: dict[int, int] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    def enter(self, row: list[Any]) -> None:
        """Hash a list of values, in which each net is replaced by its cell number and bit number."""
        self.digest.update(repr(self._plain(row)).encode())

    def finish(self) -> str:
        """Hash all cells on which the claims depend, and return the digest."""
        while self.pending:
            cell = self.cells[self.pending.pop()]
            if not isinstance(cell, _COMPARED):
                raise TypeError(f"the digest of a netlist cannot include a cell of type {type(cell).__name__}")
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
        """Return a constant net's value; for other nets, numbers of the driving cell (or free bit) and its output."""
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
