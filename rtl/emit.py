"""Verilog of a unit, of what holds many and of what feeds them; the unit is emitted once, however often it occurs."""

from amaranth.back import rtlil, verilog
from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, ShapeLike

from .config import CoreConfig
from .core import Core
from .tensor_memory import TensorMemoryReader
from .unit import Unit
from .warp import Warp
from .wgmma import WgmmaWarp

__all__ = ["TOPS", "emit"]

#: What can be emitted.
TOPS = ("unit", "core", "warp", "wgmma", "tensor_memory")


def emit(
    config: CoreConfig,
    top: str,
    name: str,
    *,
    tag_shape: ShapeLike = 0,
    language: str = "verilog",
    platform: object = None,
) -> str:
    """Return the Verilog of a component, or its RTLIL.

    Parameters
    ----------
    config : CoreConfig
        Which datapath; ``tensor_memory`` is the same for all.
    top : str
        One of :data:`TOPS`.
    name : str
        Name of the top module; the unit of an array is ``NAME_unit``.
    tag_shape : shape-like
        Of the tag that a core carries with each tile.
    language : str
        ``verilog``, or ``rtlil`` for Yosys, whose texts of a core or a warp are two designs one after the other.
    platform : object
        What components are elaborated for; with :data:`~sptc.rtl.booth.OPERATORS` a multiplier is one operator.
    """
    if top == "unit":
        return _convert(Unit(config), name, language, platform)
    if top == "tensor_memory":
        return _convert(TensorMemoryReader(), name, language, platform)
    unit_name = f"{name}_unit"

    class UnitInstance(Unit):
        """The unit as a module of its own: Amaranth would emit one for each place in the array."""

        def elaborate(self, platform: object) -> Module:
            m = Module()
            clock = {"i_clk": ClockSignal(), "i_rst": ResetSignal(), "i_enable": self.enable} if config.cuts else {}
            m.submodules.shared = Instance(unit_name, i_step=self.step, o_result=self.result, **clock)
            return m

    component: Core | Warp | WgmmaWarp
    if top == "core":
        component = Core(config, tag_shape, UnitInstance)
    else:
        component = {"warp": Warp, "wgmma": WgmmaWarp}[top](config, unit_class=UnitInstance)
    return _convert(component, name, language, platform) + "\n" + _convert(Unit(config), unit_name, language, platform)


def _convert(
    component: Unit | Core | Warp | WgmmaWarp | TensorMemoryReader, name: str, language: str, platform: object
) -> str:
    if language == "rtlil":
        return str(rtlil.convert(component, platform=platform, name=name, emit_src=False))
    return str(verilog.convert(component, platform=platform, name=name, strip_internal_attrs=True, emit_src=False))
