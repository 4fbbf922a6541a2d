"""Top modules compiled by Verilator, in which a separate library simulates the dot-product units.

One Verilator model of a whole top module would contain a copy of the code for each unit and take gigabytes. Moreover,
the unit library can be replaced by a faster library that is specialised for one control word.
"""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal

from ...infra.cache import built
from ...infra.compiler import progress
from ...infra.loader import load_library
from ...infra.verilator import compile_library
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.convert import to_verilog
from ...rtl.emit import emit, unit_of
from ...rtl.step import unit_result_layout, unit_step_layout
from ...rtl.warp import Warp
from .driver import CompiledModel, driver
from .fingerprint import fingerprint
from .libraries import Libraries
from .ports import ports_only

__all__ = ["ARRAY", "ArrayInstance", "CompiledTop", "StandIn", "TopModel", "unit_module"]

_Model = TypeVar("_Model")
#: Name of the Verilog module that :class:`ArrayInstance` instantiates, an array of dot-product units.
ARRAY = "dot_array"
#: Names of the functions that a C++ library of dot-product units has, in the order of ``Library`` in ``units.h``.
_FUNCTIONS = ("create", "destroy", "add", "clock")
#: C++ compiler options for a top module whose arrays are replaced by a :class:`StandIn`: little optimisation, since
#: runs of such a module are short.
_STAND_IN_OPTIMISATION = ("-O1",)
_UNIT_MODULE = """
module {name}(input [{step}:0] step, input clk, input rst, input enable, output reg [{result}:0] result);
    import "DPI-C" function chandle unit_create();
    import "DPI-C" function void unit_clock(
        input chandle unit, input bit [{step}:0] step, output bit [{result}:0] result
    );
    chandle unit;
    bit [{result}:0] following;
    initial unit = unit_create();
    always @(posedge clk) if (enable) begin
        unit_clock(unit, step, following);
        result <= following;
    end
endmodule
"""


class ArrayInstance(Warp):
    """Replacement for a `Warp`: an instance of the Verilog module :data:`ARRAY`, which has the ports of a `Warp`."""

    def elaborate(self, platform: object) -> Module:
        """Connect the input stream and the result stream to an instance of the module :data:`ARRAY`."""
        m = Module()
        m.submodules.array = Instance(
            ARRAY,
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_i__payload=self.i.payload,
            i_i__valid=self.i.valid,
            o_i__ready=self.i.ready,
            o_o__payload=self.o.payload,
            o_o__valid=self.o.valid,
            i_o__ready=self.o.ready,
        )
        return m


@dataclass(frozen=True)
class StandIn:
    """Replacement for the arrays of dot-product units in a compiled top module, to test control without a datapath."""

    #: Verilog text of module :data:`ARRAY`. It calls the functions `unit_create` and `unit_clock` of `library`.
    module: str
    library: Path  #: Path of the shared library with the functions that ``drivers/units.h`` calls


def _unit_libraries(config: CoreConfig) -> Libraries:
    """Return libraries of dot-product units: one with Verilator's model, others with a generated C++ function."""
    step, result = (-(-layout.size // 32) for layout in (unit_step_layout(config), unit_result_layout()))
    constants = {"step_words": step, "result_words": result, "latency": config.latency}
    return Libraries(
        config, "unit", driver("clocked_units.cpp", {}, top="unit"), driver("computed_units.cpp", constants)
    )


class TopModel(CompiledModel):
    """Model of a top module. The dot-product units are in the library `units`, or in `library` if `units` is None."""

    def __init__(self, library: ctypes.CDLL, units: Path | None = None) -> None:
        # the function pointers stay null if the top module's own library contains the dot-product units
        functions = (ctypes.c_void_p * len(_FUNCTIONS))()
        if units:
            loaded = load_library(units)
            functions[:] = [ctypes.cast(getattr(loaded, f"units_{name}"), ctypes.c_void_p).value for name in _FUNCTIONS]
        super().__init__(library, functions)


def unit_module(name: str, step_bits: int, result_bits: int) -> str:
    """Return the Verilog text of a module that calls a separate library, for example in place of a dot-product unit.

    All outputs come from registers, so no combinational path crosses the module.
    """
    return _UNIT_MODULE.format(name=name, step=step_bits - 1, result=result_bits - 1)


class CompiledTop(Generic[_Model]):
    """Top module compiled by Verilator and loaded into this process.

    The model is built on first use and cached in :func:`~sptc.infra.cache.cache_folder`. Raise a `BackendError` if the
    simulator or a compiler is missing or fails; the message names the tool to install.

    Parameters
    ----------
    config : CoreConfig
        Datapath of an array of dot-product units.
    component : callable
        Function that creates the top module. With a stand-in, the function gets the argument `warp_class`.
    constants : mapping of str to int
        Constants of the C++ driver `source`.
    create : callable
        Function that creates a model of the top module from the loaded library and the path of a unit library.
    stand_in : StandIn, optional
        Replacement for the arrays of dot-product units; the replacement computes the results.
    """

    #: Names of the top module in Verilog (`top`) and in messages (`title`); file of its C++ driver (`source`).
    top: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]

    def __init__(
        self,
        config: CoreConfig,
        component: Callable[..., Any],
        constants: Mapping[str, int],
        create: Callable[[ctypes.CDLL, Path], _Model],
        stand_in: StandIn | None = None,
    ) -> None:
        self.config, self._component, self._create, self._stand_in = config, component, create, stand_in
        self._sources = driver(self.source, constants, top=self.top, ports=ports_only(component))
        others = () if stand_in is None else (stand_in.module, *_STAND_IN_OPTIMISATION)
        name = f"{self.top}-{fingerprint(config, self._sources, *others)}.so"
        self._library = load_library(built(name, self._build))
        self._units = _unit_libraries(config)
        self._models: dict[Path, _Model] = {}
        if stand_in is None:
            self._units.of_every_instruction()

    def _build(self, library: Path) -> None:
        progress(f"building the {self.config.name} {self.title}: elaborating")
        if self._stand_in is None:
            assert self.config.cuts[-1:] == ("round",), "the result of a unit must come from a register"
            text = emit(self.config, self.top, self.top, platform=OPERATORS, with_unit=False)
            text += unit_module(unit_of(self.top), unit_step_layout(self.config).size, unit_result_layout().size)
            compile_library(text, self.top, self._sources, library)
        else:
            component = self._component(warp_class=ArrayInstance)
            text = to_verilog(component, self.top, platform=OPERATORS) + self._stand_in.module
            compile_library(text, self.top, self._sources, library, optimisation=_STAND_IN_OPTIMISATION)

    def _model(self, steps: Mapping[int, int]) -> _Model:
        """Return the model with the fastest library for a run; `steps` has the number of cycles per control word."""
        path = self._units.of(steps) if self._stand_in is None else self._stand_in.library
        if path not in self._models:
            self._models[path] = self._create(self._library, path)
        return self._models[path]
