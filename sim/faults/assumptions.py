"""Assumptions about the inputs of a design, as ``$assume`` cells, so that proofs exclude inputs that never occur."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Assume, Cat, Const, Elaboratable, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import data, wiring

from ...rtl.codes import is_wide
from ...rtl.config import CoreConfig
from ...rtl.round import ResultCode, RoundStage
from ...rtl.row import Row
from ...rtl.scale import ScaleCode
from ...rtl.step import control_layout
from ...rtl.tcgen05 import Tcgen05
from ...rtl.unit import Unit
from ...rtl.warp import Warp
from ..benches.bench import ComponentBench
from ..benches.blocks import native
from ..benches.components import Harness
from ..engine.array_units import ArrayInstance
from ..engine.steps import control_word
from .equivalence import Pipeline

__all__ = ["AssumedArray", "AssumedComponents", "AssumedSteps", "AssumedStream", "assumed_control", "step_pipeline"]


class AssumedComponents(Harness):
    """Combinational components under the assumption that their inputs select supported element and result formats."""

    def __init__(self, config: CoreConfig, benches: Mapping[str, ComponentBench]) -> None:
        super().__init__({name: bench.component for name, bench in benches.items()})
        self._elements = len(config.elements)
        self._codes = {f"{name}__{port}" for name, bench in benches.items() for port in bench.codes}

    def elaborate(self, platform: object) -> Module:
        """Instantiate the components and add the assumptions about their inputs."""
        m = super().elaborate(platform)
        m.submodules.assumption = assumption = Module()
        known = [port.value < self._elements for port in self.ports if port.name in self._codes]
        for name, component in self.components.items():
            if isinstance(component, RoundStage):
                (result,) = (port.value for port in self.of(name) if port.name == f"{name}__result")
                known.append(Cat(result == code for code in component.results).any())
        assumption.d.comb += Assume(Cat(known).all())
        return m


#: Fields of a control word for which proofs make assumptions; the instruction determines the values of these fields.
_DECIDED = ("a", "b", "result", "sparse", "rule", "scale")


def _decided(config: CoreConfig, arch: str) -> list[tuple[int, ...]]:
    """Return all value combinations of the control word's fields :data:`_DECIDED` in instructions of a datapath."""
    layout = control_layout()
    words = {control_word(config, instruction, last=True) for instruction in native(config, arch)}
    fields = [layout[name] for name in _DECIDED]
    return sorted({tuple((word >> field.offset) & (1 << field.width) - 1 for field in fields) for word in words})


def assumed_control(control: Any, config: CoreConfig, arch: str, valid: Value) -> Module:
    """Return a module with the assumption that a control word, if valid, belongs to an instruction of the datapath."""
    layout = control_layout()
    decided = Cat(Value.cast(control[name]) for name in _DECIDED)
    m = Module()
    known = Cat(
        decided == Cat(Const(code, layout[name].width) for name, code in zip(_DECIDED, codes, strict=True))
        for codes in _decided(config, arch)
    )
    m.d.comb += Assume(~valid | known.any())
    return m


def step_pipeline(config: CoreConfig, arch: str, layout: data.StructLayout) -> Pipeline:
    """Return the ports of :class:`AssumedSteps`, and the cases of its proof: one for each pair of formats of A and B.

    The datapath executes the instructions of `arch`; `layout` is that of a step.
    """
    fields, offset = control_layout(), layout["control"].offset
    elements = {codes[: _DECIDED.index("result")] for codes in _decided(config, arch)}
    cases = tuple(
        {
            offset + fields[name].offset + bit: code >> bit & 1
            for name, code in zip(_DECIDED, pair, strict=False)
            for bit in range(fields[name].width)
        }
        for pair in sorted(elements)
    )
    return Pipeline("enable", "step", cases)


class AssumedSteps(Elaboratable):
    """Dot-product unit under the assumption that its control word belongs to an instruction of the datapath."""

    def __init__(self, design: Row | Unit, arch: str) -> None:
        self._design, self._arch = design, arch
        self.step = Signal(Value.cast(design.step).shape())
        self.enable = Signal()
        self.result = Signal(Value.cast(design.result).shape())
        self.ports = [self.step, self.enable, self.result]

    def elaborate(self, platform: object) -> Module:
        """Instantiate the design and add the assumption that the control word belongs to an instruction."""
        m, design = Module(), self._design
        m.submodules[type(design).__name__.lower()] = design
        m.d.comb += [design.step.eq(self.step), design.enable.eq(self.enable), self.result.eq(design.result)]
        m.submodules.assumption = assumed_control(design.step.control, design.config, self._arch, Const(1))
        return m


class AssumedArray(Warp):
    """Array of dot-product units for proofs: a black box, with assumptions about the handshakes of the array.

    The array accepts no more items than it can hold, and an item only after one cycle for each block of the last item.
    A full array accepts no item, except that an array with a single block may accept one when another item leaves. The
    array returns no result without an item, and offers a result until the result is accepted. The proof ``warp.order``
    shows that arrays of dot-product units satisfy these assumptions. Inputs that the array ignores are zero.
    """

    def elaborate(self, platform: object) -> Module:
        """Instantiate the black box, count the inputs in flight, and assume that its handshakes obey the protocol."""
        m = Module()
        m.submodules.array = array = ArrayInstance(self.config)
        m.submodules.assumption = assumption = Module()
        enters, leaves = (Signal(name=name) for name in ("enters", "leaves"))
        m.d.comb += [
            enters.eq(self.i.valid & self.i.ready),
            leaves.eq(self.o.valid & self.o.ready),
            self.i.ready.eq(array.i.ready),
            array.i.valid.eq(enters),
            *_read_by_array(self.config, self.i.payload, array.i.payload, enters),
            self.o.valid.eq(array.o.valid),
            self.o.payload.eq(array.o.payload),
            array.o.ready.eq(leaves),
        ]
        most, blocks = self.config.warp_items, self.config.warp_blocks
        inside, left, waited = Signal(range(most + 1)), Signal(range(blocks)), Signal()
        assumption.d.sync += [
            inside.eq(inside + enters - leaves),
            left.eq(Mux(enters, blocks - 1, left - (left != 0))),
            waited.eq(self.o.valid & ~self.o.ready),
        ]
        room = inside != most if blocks > 1 else (inside != most) | leaves
        rules = (
            ~self.i.ready | (room & (left == 0)),
            ~self.o.valid | (inside != 0),
            ~waited | self.o.valid,
        )
        assumption.d.comb += Assume(Cat(rules).all())
        return m


def _read_by_array(config: CoreConfig, item: Any, result: Any, valid: Value) -> list[Any]:
    """Return assignments that copy from `item` to `result` the operands that the array reads; others become zero."""
    control, long = item.control, item.long
    sparse, half, wide = control.sparse, control.result == ResultCode.F16, is_wide(config, control.a)
    scaled = control.scale != ScaleCode.NONE
    # For each operand and each register of a lane, the condition under which the array of units reads it.
    registers = {
        "a": (Const(1), Const(1), long, long),
        "b": (Const(1), sparse | long, sparse & long, sparse & long),
        "c": (Const(1), Const(1), ~half, ~half),
    }
    selector = item.sparsity_selector & Cat(sparse & (wide | ~long), sparse & wide & ~long)
    copies: list[Any] = [result.sparsity_selector.eq(Mux(valid, selector, 0))]
    for lane, (to, of) in enumerate(zip(result.e, item.e, strict=True)):
        # In each quad (four neighbouring lanes), one lane, two lanes or all four lanes provide metadata, depending on
        # the instruction. `one` and `two`: whether this lane provides metadata if one lane or two lanes of a quad do.
        one, two = selector == lane % 4, selector[0] == lane // 2 % 2
        used = Mux(long, ~wide | two, Mux(wide, one, two))
        copies.append(to.eq(Mux(valid & sparse & used, of, 0)))
    for name, _ in item.shape():
        if name in registers:
            for to, of in zip(getattr(result, name), getattr(item, name), strict=True):
                copies += [to[n].eq(Mux(valid & used, of[n], 0)) for n, used in enumerate(registers[name])]
        elif name not in ("sparsity_selector", "e"):
            used = Const(1) if name in ("control", "long") else scaled
            copies.append(Value.cast(getattr(result, name)).eq(Mux(valid & used, Value.cast(getattr(item, name)), 0)))
    return copies


class AssumedStream(wiring.Component):
    """Stream component under the assumption that its inputs are valid instructions; unused outputs are forced to zero.

    The design becomes the submodule ``design``. It has an input stream ``i``, optional streams ``o``, ``c`` and
    ``mma``, and memory ports. A payload that waits at an input is assumed to stay constant. Outputs are zero in cycles
    in which the receiver ignores them: payloads that are not valid, addresses without a read, and the ready of an input
    during reset. The module `assumed` makes further assumptions.
    """

    def __init__(self, design: wiring.Component, assumed: Module | None = None) -> None:
        self._design, self._assumed = design, assumed
        super().__init__(design.signature)

    def elaborate(self, platform: object) -> Module:
        """Connect the ports of the design and add the assumptions about its inputs."""
        m = Module()
        m.submodules.design = design = self._design
        m.submodules.assumption = assumption = Module()
        if self._assumed:
            assumption.submodules.more = self._assumed
        ports = zip(self.signature.flatten(self), self.signature.flatten(design), strict=True)
        for (path, member, outer), (_, _, inner) in ports:
            if member.flow is wiring.In:
                m.d.comb += Value.cast(inner).eq(Value.cast(outer))
            else:
                assumption.d.comb += Value.cast(outer).eq(self._meant(path, Value.cast(inner)))
        for name in ("i", "c", "mma"):  # streams in fixed order, so that the netlist does not change from run to run
            if name in self.signature.members:
                self._stays(assumption, name, getattr(self, name))
        return m

    def _meant(self, path: tuple[str | int, ...], inner: Value) -> Value:
        """Return an output of the design, forced to zero in cycles in which the receiver ignores it."""
        design = self._design
        if "payload" in path:
            port: Any = design
            for step in path[: path.index("payload")]:
                port = port[step] if isinstance(step, int) else getattr(port, step)
            return Mux(port.valid, inner, 0)
        if path[0] in ("memory", "tensor", "accumulators") and path[1] not in ("read", "write"):
            memory = getattr(design, str(path[0]))
            return Mux(memory.write if str(path[1]).startswith("write") else memory.read, inner, 0)
        if isinstance(design, Tcgen05):
            meant = {
                "illegal": design.accumulators.write,
                "undefined": design.i.valid & design.i.ready,
                "panel": design.waits,
            }
            if path[0] in meant:
                return Mux(meant[path[0]], inner, 0)
        if path[-1] in ("ready", "mma_room"):
            return Mux(ResetSignal(), 0, inner)
        return inner

    @staticmethod
    def _stays(m: Module, name: str, source: Any) -> None:
        payload = Value.cast(source.payload)
        waited, before = Signal(name=f"{name}_waited"), Signal(len(payload), name=f"{name}_before")
        m.d.sync += [waited.eq(source.valid & ~source.ready), before.eq(payload)]
        reset = ResetSignal()
        m.d.comb += [
            Assume(~waited | reset | (source.valid & (payload == before))),
            Assume(~(source.valid & reset)),
        ]
