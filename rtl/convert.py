"""Conversion of an Amaranth design to Verilog or RTLIL, for all emitted designs.

Python's garbage collector is off during a conversion, since a design has millions of objects that stay in use.
"""

import re
from collections.abc import Sequence

from amaranth.back import rtlil, verilog
from amaranth.back.verilog import YosysError
from amaranth.hdl import Elaboratable, Instance, Module, Value
from amaranth.lib import wiring

from ..errors import BackendError
from ..infra.collector import uncollected
from .cells.platforms import OPERATORS

__all__ = ["to_rtlil", "to_verilog"]

#: Yosys triggers every ``always @*`` block through a register that the block reads. Verilog initialises the register at
#: time 0, which triggers the block. SystemVerilog initialises it before time 0, so the outputs of a block with constant
#: inputs stay unknown. The register is therefore assigned at time 0. Verilator needs no trigger, and is faster with a
#: constant.
_TRIGGER = re.compile(r"^( *)reg (\\\$auto\$verilog_backend\S+dump_module\S+) += 0;$", re.MULTILINE)
_TRIGGERED = "`ifdef VERILATOR\n\\g<0>\n`else\n\\1reg \\2 ;\n\\1initial \\2 <= 0;\n`endif"

#: Pattern for the name of a wire that is one field of a structure, such as ``i__payload.control.a``. Amaranth writes
#: these wires for waveforms, and no logic reads them. In a large top module with tens of thousands of these wires,
#: Verilator would spend most of its time on them.
_FIELD = r"\\[^\s.\[\]]+(?:\.\w+|\[\d+\])+(?:\$\d+)?"
_FIELDS = re.compile(
    rf"(?:^ *attribute \\enum_[^\n]*\n)*^ *wire [^\n]*{_FIELD}\n\n?|^ {{0,2}}connect {_FIELD} [^\n]*\n\n?", re.MULTILINE
)
#: Maximum number of input bits of a top module. Amaranth numbers input bits with 16 bits, and reserves some numbers.
_MOST_INPUT_BITS = (1 << 16) - 64
#: Type of the placeholder cells in :class:`_Surroundings`, one for each port of the component. :func:`_with_ports`
#: replaces these cells by ports of the top module.
_PORT = "sptc_port"


class _Surroundings(Elaboratable):
    """A top module around a component. Each port of the component is connected to a cell of type :data:`_PORT`."""

    def __init__(self, component: wiring.Component) -> None:
        self._component = component

    def elaborate(self, platform: object) -> Module:
        """Build the component, and connect a placeholder cell to each of its ports."""
        m = Module()
        m.submodules.component = self._component
        for name, is_input, port in _flattened(self._component):
            m.submodules[name] = Instance(_PORT, **{"o_port" if is_input else "i_port": port})
        return m


def to_rtlil(design: Elaboratable, name: str, *, ports: Sequence[Value] | None = None, platform: object = None) -> str:
    """Return a design as RTLIL for Yosys, without source locations.

    Parameters
    ----------
    design : Elaboratable
        Design to convert. A component with more input bits than Amaranth accepts is placed inside a top module that has
        the same ports.
    name : str
        Name of the top module.
    ports : sequence of Value, optional
        Ports of the top module; by default, the ports in the signature of a component.
    platform : object
        Target of the elaboration: with :data:`~sptc.rtl.cells.platforms.OPERATORS`, for compiled simulation,
        multipliers are operators and fields of structures have no wires.
    """
    with uncollected():
        text = _converted(design, name, ports, platform)
    return _FIELDS.sub("", text) if platform == OPERATORS else text


def to_verilog(
    design: Elaboratable, name: str, *, ports: Sequence[Value] | None = None, platform: object = None
) -> str:
    """Return a design as Verilog without Amaranth's internal attributes. The parameters are those of :func:`to_rtlil`.

    Raises
    ------
    BackendError
        Yosys, which writes the Verilog, is missing or fails.
    """
    text = to_rtlil(design, name, ports=ports, platform=platform)
    try:
        # The function `verilog.convert` runs Yosys in the same way, but on RTLIL that it generates itself. No public
        # function of Amaranth takes RTLIL text.
        text = str(verilog._convert_rtlil_text(text, strip_internal_attrs=True))
    except YosysError as error:
        lines = str(error).strip().splitlines() or ["no message"]
        raise BackendError(f"Yosys cannot write the Verilog of {name}: {lines[-1].strip()}") from None
    return _TRIGGER.sub(_TRIGGERED, text)


def _converted(design: Elaboratable, name: str, ports: Sequence[Value] | None, platform: object) -> str:
    """Return the RTLIL text that Amaranth writes for a design."""
    if ports is None and isinstance(design, wiring.Component):
        named = _flattened(design)
        if sum(len(port) for _, is_input, port in named if is_input) > _MOST_INPUT_BITS:
            text = rtlil.convert(_Surroundings(design), name=name, ports=(), platform=platform, emit_src=False)
            return _with_ports(str(text), name, {port: is_input for port, is_input, _ in named})
    return str(rtlil.convert(design, name=name, ports=ports, platform=platform, emit_src=False))


def _flattened(component: wiring.Component) -> list[tuple[str, bool, Value]]:
    """Return the ports of a component: the name, whether the port is an input, and the signal of each."""
    return [
        ("__".join(map(str, path)), member.flow is wiring.In, Value.cast(signal))
        for path, member, signal in component.signature.flatten(component)
    ]


def _with_ports(text: str, name: str, ports: dict[str, bool]) -> str:
    """In the RTLIL `text` of :class:`_Surroundings`, replace each placeholder cell by a port of the top module."""
    start = text.index(f"module \\{name}\n")
    end = text.index("\nend\n", start)
    before, top, behind = text[:start], text[start:end], text[end:]
    top = re.sub(rf"^  cell \\{_PORT} .*?^  end\n", "", top, flags=re.MULTILINE | re.DOTALL)
    for number, (port, is_input) in enumerate(ports.items(), start=2):  # RTLIL ports 0 and 1 are clock and reset
        wire = re.compile(rf"^(  wire width \d+)( \\{port})$", re.MULTILINE)
        top, count = wire.subn(rf"\1 {'input' if is_input else 'output'} {number}\2", top)
        assert count == 1, port
    return before + top + behind
