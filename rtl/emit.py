"""Verilog or RTLIL of one module: a dot-product unit (also with a metadata decoder), an array, or a top module."""

import re
from collections.abc import Callable
from functools import partial

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, ShapeLike
from amaranth.lib import wiring

from .config import CoreConfig
from .convert import to_rtlil, to_verilog
from .core import Core
from .row import Row
from .tcgen05 import Tcgen05
from .unit import Unit
from .warp import Warp
from .warpgroup import Warpgroup

__all__ = ["COMPONENTS", "TOPS", "emit", "module_name", "unit_instance", "unit_of"]

#: For each name of a top module that can be emitted, the function that creates its component.
COMPONENTS: dict[str, Callable[..., wiring.Component]] = {
    "unit": Unit,
    "row": Row,
    "core": Core,
    "warp": Warp,
    "warpgroup": Warpgroup,
    "warpgroups": partial(Warpgroup, count=2),
    "tcgen05": Tcgen05,
}
TOPS = tuple(COMPONENTS)


def emit(
    config: CoreConfig,
    top: str,
    name: str,
    *,
    tag_shape: ShapeLike = 0,
    language: str = "verilog",
    platform: object = None,
    with_unit: bool = True,
) -> str:
    """Return the Verilog or the RTLIL of a component.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    top : str
        One of :data:`TOPS`.
    name : str
        Name of the top module; :func:`unit_of` gives the name of its unit.
    tag_shape : shape-like
        Shape of the tag that accompanies each tile through a core.
    language : str
        ``verilog``, or ``rtlil`` for Yosys. RTLIL of a top module with many units is two designs: the top module, then
        the unit.
    platform : object
        Target of the elaboration: with :data:`~sptc.rtl.cells.platforms.OPERATORS` multipliers are operators.
    with_unit : bool
        Whether the module of the unit is appended to a top module with many units.
    """
    if top in ("unit", "row"):
        return _convert(COMPONENTS[top](config), name, language, platform)
    arguments = {"tag_shape": tag_shape} if top == "core" else {}
    component = COMPONENTS[top](config, unit_class=unit_instance(name), **arguments)
    text = _convert(component, name, language, platform)
    return f"{text}\n{_convert(Unit(config), unit_of(name), language, platform)}" if with_unit else text


def module_name(config: CoreConfig, top: str) -> str:
    """Return the default name of a top module: `config.name` and `top`, with invalid characters replaced."""
    return f"sptc_{re.sub(r'[^0-9A-Za-z]', '_', config.name)}_{top}"


def unit_instance(name: str) -> type[Unit]:
    """Return a class of dot-product units that share one module. Each unit of class `Unit` has a module of its own."""

    class UnitInstance(Unit):
        def elaborate(self, platform: object) -> Module:
            m = Module()
            clock = {"i_clk": ClockSignal(), "i_rst": ResetSignal()} if self.config.cuts else {}
            ports = {"i_step": self.step, "o_result": self.result, "i_enable": self.enable, **clock}
            m.submodules.shared = Instance(unit_of(name), **ports)
            return m

    return UnitInstance


def unit_of(name: str) -> str:
    """Return the name of the module that all dot-product units below a top module share."""
    return f"{name}_unit"


def _convert(component: wiring.Component, name: str, language: str, platform: object) -> str:
    return {"rtlil": to_rtlil, "verilog": to_verilog}[language](component, name, platform=platform)
