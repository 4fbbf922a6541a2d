"""RTLIL netlists of a dot-product unit, of each stage of a unit, and of the logic around units in an array."""

import gc
import re
import warnings
from dataclasses import dataclass

from amaranth import UnusedElaboratable
from amaranth.hdl import Module, Signal

from ..errors import Error
from ..rtl.cells.platforms import FPGA
from ..rtl.config import CoreConfig
from ..rtl.convert import to_rtlil
from ..rtl.emit import emit, unit_of
from ..rtl.step import unit_result_layout, unit_step_layout
from ..rtl.unit import Unit

__all__ = [
    "TOP",
    "Netlist",
    "around_units",
    "black_box",
    "black_box_of_unit",
    "emit_around_units",
    "modules",
    "registered_unit",
    "stages",
    "unit",
]

#: Name of the top module in all netlists.
TOP = "top"
_MODULE = re.compile(r"^((?:attribute [^\n]*\n)*)module \\(\S+)\n(.*?)^end$", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  wire .*\b(?:input|output|inout) \d+ .*\n", re.MULTILINE)
_CELL = re.compile(r"^  cell \\(\S+) \\(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Netlist:
    """A netlist to synthesise: name, RTLIL text and top module."""

    name: str  #: Name of the netlist in messages.
    text: str  #: RTLIL text. Modules with the attribute ``blackbox`` do not count as area.
    top: str = TOP  #: Name of the top module

    def __str__(self) -> str:
        return self.name


def unit(config: CoreConfig, *, combinational: bool = False, fpga: bool = False) -> Netlist:
    """Return the netlist of a dot-product unit.

    With `combinational`, the unit is always enabled, so that its pipeline registers are in no loop and can be replaced
    by wires. With `fpga`, arithmetic is written as operators, for which an FPGA has dedicated logic.
    """
    name, platform = "unit" if config.sparse else "dense unit", FPGA if fpga else None
    whole = Unit(config)
    if not combinational:
        return Netlist(name, to_rtlil(whole, TOP, platform=platform))
    m = Module()
    m.submodules.unit = whole
    step, result = Signal(unit_step_layout(config)), Signal(unit_result_layout())
    m.d.comb += [whole.step.eq(step), whole.enable.eq(1), result.eq(whole.result)]
    ports = [step.as_value(), result.as_value()]
    return Netlist(name, to_rtlil(m, TOP, ports=ports, platform=platform))


def registered_unit(config: CoreConfig) -> Netlist:
    """Return the netlist of an always enabled unit for an FPGA, with registers at its inputs and at its result."""
    m = Module()
    m.submodules.unit = whole = Unit(config)
    step, result = Signal(unit_step_layout(config), name="step"), Signal(unit_result_layout(), name="result")
    m.d.comb += whole.enable.eq(1)
    for register, value in ((whole.step, step), (result, whole.result)):
        stored = Signal(register.shape(), reset_less=True)
        m.d.sync += stored.eq(value)
        m.d.comb += register.eq(stored)
    ports = [step.as_value(), result.as_value()]
    name = "unit" if config.sparse else "dense unit"
    return Netlist(name, to_rtlil(m, TOP, ports=ports, platform=FPGA))


def around_units(config: CoreConfig, top: str) -> Netlist:
    """Return the netlist of an array (``core``) or of a ``warp`` with its array; dot-product units are black boxes.

    Raise an `Error` if the configuration does not serve a warp.
    """
    text = emit_around_units(config, top)
    return Netlist(f"{top} without units", text + "\n" + black_box_of_unit(config, unit_of(TOP)))


def emit_around_units(config: CoreConfig, top: str) -> str:
    """Return the RTLIL of a top module without its dot-product units. Raise the errors of :func:`around_units`."""
    failure = ""
    with warnings.catch_warnings():
        # Turn off Amaranth's warning about an unused component, which also appears for a rejected configuration.
        warnings.simplefilter("ignore", UnusedElaboratable)
        try:
            text = emit(config, top, TOP, language="rtlil", with_unit=False)
        except Error as error:
            failure = str(error)
        if failure:
            gc.collect()  # free the unused component (a reference cycle) before warnings are on again
            raise Error(failure)
    return text


def stages(whole: Netlist) -> tuple[dict[str, Netlist], Netlist]:
    """Split a netlist into the submodules of its top module, and the top module with these submodules as black boxes.

    The submodules are returned with their content, by name. Amaranth names a submodule ``TOP.NAME``, and a nested one
    ``TOP.NAME.NAME``. Submodules that differ only in name have the same text.
    """
    contents = modules(whole.text)
    parts, between = {}, [contents[whole.top]]
    for module, name in _CELL.findall(contents[whole.top]):
        if module not in contents:
            continue
        inside = [text for other, text in contents.items() if other == module or other.startswith(f"{module}.")]
        # The regular expression `own` matches the whole name of the module, or this name in front of a dot.
        own = re.compile(rf"\\{re.escape(module)}(?=[.\s])")
        parts[name] = Netlist(name, own.sub(rf"\\{TOP}", "\n".join(inside)))
        between.append(black_box(module, contents[module]))
    return parts, Netlist("between the stages", "\n".join(between), whole.top)


def modules(text: str) -> dict[str, str]:
    """Return the text of each module in Amaranth's RTLIL, by name, with the attributes in front of the module."""
    return {match[2]: match[0] + "\n" for match in _MODULE.finditer(text)}


def black_box_of_unit(config: CoreConfig, name: str) -> str:
    """Return the RTLIL of an empty module (black box) with the ports of a dot-product unit."""
    sizes = {"clk": 1, "rst": 1, "enable": 1, "step": unit_step_layout(config).size}
    ports = [f"  wire width {size} input {place} \\{port}\n" for place, (port, size) in enumerate(sizes.items())]
    ports.append(f"  wire width {unit_result_layout().size} output {len(ports)} \\result\n")
    return black_box(name, "".join(ports))


def black_box(name: str, text: str) -> str:
    """Return the RTLIL of an empty module (black box) with the ports in the RTLIL `text` of another module."""
    return "".join(["attribute \\blackbox 1\n", f"module \\{name}\n", *_PORT.findall(text), "end\n"])
