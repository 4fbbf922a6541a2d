"""Verilog of a unit, a row, a core, and of the three tops that execute instructions; a unit is emitted once for all."""

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

#: What can be emitted.
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
    """Return the Verilog of a component, or its RTLIL.

    Parameters
    ----------
    config : CoreConfig
        Which datapath.
    top : str
        One of :data:`TOPS`.
    name : str
        Name of the top module; that of an array's unit is :func:`unit_of` it.
    tag_shape : shape-like
        Of the tag that a core carries with each tile.
    language : str
        ``verilog``, or ``rtlil`` for Yosys, whose texts of what holds many units are two designs one after the other.
    platform : object
        What components are elaborated for: with :data:`~sptc.rtl.cells.platforms.OPERATORS` multipliers are operators.
    with_unit : bool
        What holds many units comes with the module of its unit.
    """
    if top in ("unit", "row"):
        return _convert(COMPONENTS[top](config), name, language, platform)
    arguments = {"tag_shape": tag_shape} if top == "core" else {}
    component = COMPONENTS[top](config, unit_class=unit_instance(name), **arguments)
    text = _convert(component, name, language, platform)
    return f"{text}\n{_convert(Unit(config), unit_of(name), language, platform)}" if with_unit else text


def module_name(config: CoreConfig, top: str) -> str:
    """Return what the module of a top is called where nobody says it: its datapath, without what no identifier has."""
    return f"sptc_{re.sub(r'[^0-9A-Za-z]', '_', config.name)}_{top}"


def unit_instance(name: str) -> type[Unit]:
    """Return a unit that is the module :func:`unit_of` a top: Amaranth would emit one for each place."""

    class UnitInstance(Unit):
        def elaborate(self, platform: object) -> Module:
            m = Module()
            clock = {"i_clk": ClockSignal(), "i_rst": ResetSignal(), "i_enable": self.enable}
            m.submodules.shared = Instance(
                unit_of(name), i_step=self.step, o_result=self.result, **(clock if self.config.cuts else {})
            )
            return m

    return UnitInstance


def unit_of(name: str) -> str:
    """Return the name of the unit's module below a top module."""
    return f"{name}_unit"


def _convert(component: wiring.Component, name: str, language: str, platform: object) -> str:
    return {"rtlil": to_rtlil, "verilog": to_verilog}[language](component, name, platform=platform)
