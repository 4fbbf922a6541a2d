"""Static CMOS gates as the default cell library. Energies are areas of the gates that switch, in gate equivalents."""

from functools import cached_property

from ..liberty import Cell, Library
from .electrical import CellLibrary, ElectricalCell, ElectricalPin, EnergyArc, Table

__all__ = ["GATES"]

_REGISTER, _CLOCK, _DATA, _OUTPUT = "$_DFF_P_", "C", "D", "Q"
#: Gates of Yosys: input pins, function and number of transistors. `sptc area` uses the same transistor counts.
_COMPUTED = {
    "$_BUF_": ("A", "A", 4),
    "$_NOT_": ("A", "!A", 2),
    "$_AND_": ("AB", "A B", 6),
    "$_NAND_": ("AB", "!(A B)", 4),
    "$_OR_": ("AB", "A+B", 6),
    "$_NOR_": ("AB", "!(A+B)", 4),
    "$_XOR_": ("AB", "A^B", 12),
    "$_XNOR_": ("AB", "!(A^B)", 12),
    "$_MUX_": ("ABS", "(A !S)+(B S)", 12),
    "$_NMUX_": ("ABS", "!((A !S)+(B S))", 10),
    "$_AOI3_": ("ABC", "!((A B)+C)", 6),
    "$_OAI3_": ("ABC", "!((A+B) C)", 6),
    "$_AOI4_": ("ABCD", "!((A B)+(C D))", 8),
    "$_OAI4_": ("ABCD", "!((A+B) (C+D))", 8),
}
#: Transistors of a register: 12 that switch when the stored bit changes, and four in the clock inverters, which switch
#: at both clock edges.
_REGISTER_TRANSISTORS, _CLOCK_TRANSISTORS = 12, 4
_OF_GATE = 4  #: Number of transistors of a gate equivalent, a NAND2


class _Gates(Library):
    """Cell library that consists of the gates that Yosys uses."""

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Return the gates of Yosys as library cells. Areas are in gate equivalents."""
        gates = [
            Cell(name, transistors / _OF_GATE, tuple(inputs), (("Y", function),))
            for name, (inputs, function, transistors) in _COMPUTED.items()
        ]
        area = (_REGISTER_TRANSISTORS + _CLOCK_TRANSISTORS) / _OF_GATE
        return (*gates, Cell(_REGISTER, area, (_DATA, _CLOCK), ((_OUTPUT, "held"),)))


def _pin(transistors: int, *, output: bool = False) -> ElectricalPin:
    def always(value: float) -> dict[str, Table]:
        return dict.fromkeys(("rise", "fall"), Table((0.0,), (0.0,), ((value,),)))

    energies = (EnergyArc("", always(transistors / _OF_GATE)),) if transistors else ()
    return ElectricalPin(0.0, energies, (("", always(0.0)),) if output else ())


def _electrical() -> dict[str, ElectricalCell]:
    cells = {
        name: ElectricalCell({**{pin: _pin(0) for pin in inputs}, "Y": _pin(transistors, output=True)})
        for name, (inputs, _, transistors) in _COMPUTED.items()
    }
    pins = {_DATA: _pin(0), _CLOCK: _pin(_CLOCK_TRANSISTORS), _OUTPUT: _pin(_REGISTER_TRANSISTORS, output=True)}
    cells[_REGISTER] = ElectricalCell(pins, _DATA, _CLOCK, ("held", "not_held"))
    return cells


#: Cell library of Yosys' gates. Energies are areas of the gates that switch, in gate equivalents (NAND2 gates).
GATES = CellLibrary(_Gates("static CMOS", ""), 0.0, _electrical(), unit="gate equivalents", scale=1.0, digits=1)
