"""Netlists, as RTLIL: of a unit, of what is around the units, and of the stages of a unit, each by itself."""

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

#: Name of the top module.
TOP = "top"
_MODULE = re.compile(r"^((?:attribute [^\n]*\n)*)module \\(\S+)\n(.*?)^end$", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  wire .*\b(?:input|output|inout) \d+ .*\n", re.MULTILINE)
_CELL = re.compile(r"^  cell \\(\S+) \\(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Netlist:
    """A design to synthesise.

    Attributes
    ----------
    name : str
        For messages.
    text : str
        RTLIL. Modules with the attribute ``blackbox`` have no size.
    top : str
        Name of its top module.
    """

    name: str
    text: str
    top: str = TOP

    def __str__(self) -> str:
        return self.name


def unit(config: CoreConfig, *, combinational: bool = False, fpga: bool = False) -> Netlist:
    """Return the netlist of a unit.

    Parameters
    ----------
    config : CoreConfig
        Which.
    combinational : bool
        Always enabled, so that its pipeline registers are in no loop and may be taken for wires.
    fpga : bool
        Arithmetic as operators, which an FPGA has of its own.
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
    """Return the netlist of a unit for an FPGA, always enabled, between registers of its step and of its result."""
    m = Module()
    m.submodules.unit = whole = Unit(config)
    step, result = Signal(unit_step_layout(config), name="step"), Signal(unit_result_layout(), name="result")
    m.d.comb += whole.enable.eq(1)
    for register, value in ((whole.step, step), (result, whole.result)):
        held = Signal(register.shape(), reset_less=True)
        m.d.sync += held.eq(value)
        m.d.comb += register.eq(held)
    ports = [step.as_value(), result.as_value()]
    name = "unit" if config.sparse else "dense unit"
    return Netlist(name, to_rtlil(m, TOP, ports=ports, platform=FPGA))


def around_units(config: CoreConfig, top: str) -> Netlist:
    """Return the netlist of an array or a warp whose units are black boxes.

    Parameters
    ----------
    config : CoreConfig
        Which.
    top : str
        ``core``, or ``warp``, which has the control of its core too.

    Raises
    ------
    Error
        The configuration does not serve a warp.
    """
    text = emit_around_units(config, top)
    return Netlist(f"{top} without units", text + "\n" + black_box_of_unit(config, unit_of(TOP)))


def emit_around_units(config: CoreConfig, top: str) -> str:
    """Return RTLIL of a top without its units, which are not even black boxes there; raise as :func:`around_units`."""
    failure = ""
    with warnings.catch_warnings():
        # Amaranth warns of a component that was made and not used, which one that refuses its configuration is.
        warnings.simplefilter("ignore", UnusedElaboratable)
        try:
            text = emit(config, top, TOP, language="rtlil", with_unit=False)
        except Error as error:
            failure = str(error)
        if failure:
            gc.collect()  # the component refers to itself, and would be missed later
            raise Error(failure)
    return text


def stages(whole: Netlist) -> tuple[dict[str, Netlist], Netlist]:
    """Take a netlist apart along its hierarchy.

    Parameters
    ----------
    whole : Netlist
        With submodules, as Amaranth names them: ``TOP.NAME``, whose own are ``TOP.NAME.NAME``.

    Returns
    -------
    parts : dict of str to Netlist
        The submodules of the top with all that is in them, by their names there. Two that differ in these alone have
        the same text.
    between : Netlist
        The top with these as black boxes.
    """
    found = modules(whole.text)
    parts, between = {}, [found[whole.top]]
    for module, name in _CELL.findall(found[whole.top]):
        if module not in found:
            continue
        inside = [text for other, text in found.items() if other == module or other.startswith(f"{module}.")]
        # What follows the name is the rest of a deeper one, or nothing.
        own = re.compile(rf"\\{re.escape(module)}(?=[.\s])")
        parts[name] = Netlist(name, own.sub(rf"\\{TOP}", "\n".join(inside)))
        between.append(black_box(module, found[module]))
    return parts, Netlist("between the stages", "\n".join(between), whole.top)


def modules(text: str) -> dict[str, str]:
    """Return the modules of RTLIL as Amaranth writes it, each with its attributes, by name."""
    return {match[2]: match[0] + "\n" for match in _MODULE.finditer(text)}


def black_box_of_unit(config: CoreConfig, name: str) -> str:
    """Return a module that has the ports of a unit and nothing in it."""
    sizes = {"clk": 1, "rst": 1, "enable": 1, "step": unit_step_layout(config).size}
    ports = [f"  wire width {size} input {place} \\{port}\n" for place, (port, size) in enumerate(sizes.items())]
    ports.append(f"  wire width {unit_result_layout().size} output {len(ports)} \\result\n")
    return black_box(name, "".join(ports))


def black_box(name: str, text: str) -> str:
    """Return a module that has the ports of another and nothing in it."""
    return "".join(["attribute \\blackbox 1\n", f"module \\{name}\n", *_PORT.findall(text), "end\n"])
