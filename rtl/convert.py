"""Text of a design, Verilog or RTLIL: how all that this project emits is written.

A design is millions of objects that live to the end; a collector would walk them again and again.
"""

import re
from collections.abc import Sequence

from amaranth.back import rtlil, verilog
from amaranth.back.verilog import YosysError
from amaranth.hdl import Elaboratable, Value

from ..errors import BackendError
from ..infra.collector import uncollected

__all__ = ["to_rtlil", "to_verilog"]

#: Yosys lets every ``always @*`` look at a register, whose first value starts it. In Verilog that comes with time 0; in
#: SystemVerilog before it, and what changes no input later stays unknown: so it is made to come at time 0. Verilator
#: needs no start, and is faster with a constant.
_TRIGGER = re.compile(r"^( *)reg (\\\$auto\$verilog_backend\S+dump_module\S+) += 0;$", re.MULTILINE)
_TRIGGERED = "`ifdef VERILATOR\n\\g<0>\n`else\n\\1reg \\2 ;\n\\1initial \\2 <= 0;\n`endif"


def to_rtlil(design: Elaboratable, name: str, *, ports: Sequence[Value] | None = None, platform: object = None) -> str:
    """Return RTLIL, for Yosys, that does not say where in the source anything stands.

    Parameters
    ----------
    design : Elaboratable
        What is written.
    name : str
        Name of the top module.
    ports : sequence of Value, optional
        By default those of a component's signature.
    platform : object
        What components are elaborated for: with :data:`~sptc.rtl.cells.platforms.OPERATORS` multipliers are operators.
    """
    with uncollected():
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
    with uncollected():
        try:
            text = verilog.convert(
                design, name=name, ports=ports, platform=platform, strip_internal_attrs=True, emit_src=False
            )
        except YosysError as error:
            lines = str(error).strip().splitlines() or ["no message"]
            raise BackendError(f"Yosys cannot write the Verilog of {name}: {lines[-1].strip()}") from None
    return _TRIGGER.sub(_TRIGGERED, str(text))
