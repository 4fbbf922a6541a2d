"""Text of a design, Verilog or RTLIL: how all that this project emits is written.

A design is millions of objects that live to the end; a collector would walk them again and again.
"""

import re
from collections.abc import Sequence

from amaranth.back import rtlil, verilog
from amaranth.back.verilog import YosysError
from amaranth.hdl import Elaboratable, Instance, Module, Value
from amaranth.lib import wiring

from ..errors import BackendError
from ..infra.collector import uncollected

__all__ = ["to_rtlil", "to_verilog"]

#: Yosys lets every ``always @*`` look at a register, whose first value starts it. In Verilog that comes with time 0; in
#: SystemVerilog before it, and what changes no input later stays unknown: so it is made to come at time 0. Verilator
#: needs no start, and is faster with a constant.
_TRIGGER = re.compile(r"^( *)reg (\\\$auto\$verilog_backend\S+dump_module\S+) += 0;$", re.MULTILINE)
_TRIGGERED = "`ifdef VERILATOR\n\\g<0>\n`else\n\\1reg \\2 ;\n\\1initial \\2 <= 0;\n`endif"


#: Amaranth gives the bits of all input ports of a top module one index of 16 bits, of which it uses some itself.
_MOST_INPUT_BITS = (1 << 16) - 64
#: What stands at the ports of a component in :class:`_Surroundings`.
_PORT = "sptc_port"


class _Surroundings(Elaboratable):
    """Contain a component, each port of which is connected to a cell of type :data:`_PORT`."""

    def __init__(self, component: wiring.Component) -> None:
        self._component = component

    def elaborate(self, platform: object) -> Module:
        """Build the component and the cells."""
        m = Module()
        m.submodules.component = self._component
        for name, is_input, port in _flattened(self._component):
            m.submodules[name] = Instance(_PORT, **{"o_port" if is_input else "i_port": port})
        return m


def to_rtlil(design: Elaboratable, name: str, *, ports: Sequence[Value] | None = None, platform: object = None) -> str:
    """Return RTLIL, for Yosys, that does not say where in the source anything stands.

    Parameters
    ----------
    design : Elaboratable
        What is written. A component with more bits of input ports than Amaranth takes becomes a module below one that
        has its ports.
    name : str
        Name of the top module.
    ports : sequence of Value, optional
        By default those of a component's signature.
    platform : object
        What components are elaborated for: with :data:`~sptc.rtl.cells.platforms.OPERATORS` multipliers are operators.
    """
    with uncollected():
        if ports is None and isinstance(design, wiring.Component):
            named = _flattened(design)
            if sum(len(port) for _, is_input, port in named if is_input) > _MOST_INPUT_BITS:
                text = rtlil.convert(_Surroundings(design), name=name, ports=(), platform=platform, emit_src=False)
                return _with_ports(str(text), name, {port: is_input for port, is_input, _ in named})
        return str(rtlil.convert(design, name=name, ports=ports, platform=platform, emit_src=False))


def to_verilog(
    design: Elaboratable, name: str, *, ports: Sequence[Value] | None = None, platform: object = None
) -> str:
    """Return Verilog without Amaranth's own attributes; parameters as of :func:`to_rtlil`.

    Raises
    ------
    BackendError
        Yosys, which writes it, is missing or fails.
    """
    text = to_rtlil(design, name, ports=ports, platform=platform)
    try:
        # What `verilog.convert` does with its own RTLIL; no public name of Amaranth takes text.
        text = str(verilog._convert_rtlil_text(text, strip_internal_attrs=True))
    except YosysError as error:
        lines = str(error).strip().splitlines() or ["no message"]
        raise BackendError(f"Yosys cannot write the Verilog of {name}: {lines[-1].strip()}") from None
    return _TRIGGER.sub(_TRIGGERED, text)


def _flattened(component: wiring.Component) -> list[tuple[str, bool, Value]]:
    """Return the name of each port of a component, whether it is an input, and its signal."""
    return [
        ("__".join(map(str, path)), member.flow is wiring.In, Value.cast(signal))
        for path, member, signal in component.signature.flatten(component)
    ]


def _with_ports(text: str, name: str, ports: dict[str, bool]) -> str:
    """Make ports of the wires at the cells of :class:`_Surroundings`, the top module of `text`."""
    start = text.index(f"module \\{name}\n")
    end = text.index("\nend\n", start)
    before, top, behind = text[:start], text[start:end], text[end:]
    top = re.sub(rf"^  cell \\{_PORT} .*?^  end\n", "", top, flags=re.MULTILINE | re.DOTALL)
    for number, (port, is_input) in enumerate(ports.items(), start=2):  # after clock and reset
        wire = re.compile(rf"^(  wire width \d+)( \\{port})$", re.MULTILINE)
        top, count = wire.subn(rf"\1 {'input' if is_input else 'output'} {number}\2", top)
        assert count == 1, port
    return before + top + behind
