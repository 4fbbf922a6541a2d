"""Faults of the hardware that tests must detect, in routing, order, rounding and formats."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import Change, computes, fault, holds, instead, register_all
from .circuits import amended, drives, exchanged, named, outlives_reset, reads


@amended("rtl.select.parts", "rtl.select", "SelectStage")
def _(select: Any, self: Any, m: Module) -> Iterator[Any]:
    """Two interleaved chunks of 8-bit elements select with each other's metadata."""
    lanes = list(self.selects)
    for group in range(len(lanes) // 2 if self.config.interleaved else 0):
        for slot in range(select.KEPT_UNITS):
            for unit, port in enumerate(m.submodules[f"select{slot}_{group}"].select):
                yield port.eq(Cat(lanes[2 * group + 1][slot][unit], lanes[2 * group][slot][unit]))


@instead("rtl.warp.flags", "rtl.warp", "Warp._collect")
def _(warp: Any, right: Any, self: Any, m: Module, core: Any, *others: Any) -> None:
    """For elements of 16 bits, the flags of the second step overwrite the flags of the first step."""
    result = core.o.payload
    tag = exchanged(result.tag, wide=Const(0), step=result.tag.step & ~result.tag.wide)
    other = SimpleNamespace(payload=exchanged(result, tag=tag.as_value()), ready=core.o.ready, valid=core.o.valid)
    right(self, m, SimpleNamespace(o=other), *others)


@instead("rtl.warp.scales", "rtl.warp", "Warp._scales")
def _(warp: Any, right: Any, self: Any, held: Any, operand: str, index: int) -> Value:
    """With two block scales per row, successive groups of products use the two scales alternately."""
    value = right(self, held, operand, index)
    return Mux(held.scale_size == warp.ScaleSizeCode.X2, Cat(value[:8], value[16:24], value[:8], value[16:24]), value)


@amended("rtl.fetch.strides", "rtl.fetch", "CoreMatrixAddress")
def _(fetch: Any, self: Any, m: Module) -> Iterator[Any]:
    """Leading and stride offset of an MN-major operand are exchanged with every swizzle, not only without swizzle."""
    descriptor, exponent = self.request.descriptor, named(m, "exponent")
    units = self.request.panel
    with m.If(self.request.mn_major):
        yield named(m, "base").eq(
            descriptor.start
            + self.segment * descriptor.leading
            + (units >> exponent) * descriptor.stride
            + (units & named(m, "mask"))
        )


@amended("rtl.round.sticky", "rtl.round", "RoundStage")
def _(rounding: Any, self: Any, m: Module) -> Iterator[Any]:
    """The sticky bit of an f16 result ignores the bits below the fraction of an f32."""
    if rounding.ResultCode.F16 in self.results:
        low = -1 - rounding._F32.fraction_bits
        yield named(m, "sticky").eq(named(m, "shifted")[low : -2 - rounding._F16.fraction_bits].any())


@amended("rtl.multiply.grid", "rtl.multiply", "MultiplyStage")
def _(multiply: Any, self: Any, m: Module) -> Iterator[Any]:
    """The accumulator is truncated with the largest F of all formats, not with the F of the current format."""
    if self.widths.floating:
        yield self.o.c_grid_exponent.eq(m.submodules["accumulator"].exponent + m.submodules["offset"].offset)


@instead("rtl.round.register", "rtl.round", "RoundStage._behind")
def _(rounding: Any, right: Any, self: Any, m: Module, cut: str, values: Any) -> Any:
    """The shifted sum bypasses the pipeline register after the shift."""
    delayed = right(self, m, cut, values)
    if hasattr(values, "shifted"):
        delayed.shifted = values.shifted
    return delayed


@fault("rtl.slots.factor", "rtl.slots")
def _(slots: Any, change: Change) -> None:
    """A slot for both signed and unsigned integers lacks the sign bit."""
    right = slots.Slot.factor.fget

    def factor(self: Any) -> Any:
        shape = right(self)
        return slots.Shape(8, True) if shape == slots.Shape(9, True) else shape

    change(slots.Slot, "factor", property(factor))


@amended("rtl.unpack.specials", "rtl.unpack", "FormatDecoder")
def _(unpack: Any, self: Any, m: Module) -> Iterator[Any]:
    """All e4m3 codes with the largest exponent field are NaN, not only the code with all fraction bits set."""
    for code, element in enumerate(self.config.elements):
        if element.format.specials is unpack.Specials.NAN:
            with m.If(self.element == code):
                yield self.traits.ignore[: unpack._LONE_NAN_FRACTION_BITS].eq(~0)


@amended("rtl.warpgroup.wait", "rtl.warpgroup", "Commands")
def _(warpgroup: Any, self: Any, m: Module) -> Iterator[Any]:
    """A wait of a warpgroup ends immediately, although groups are pending."""
    with m.If(self.i.payload.operation == warpgroup.Operation.WAIT):
        yield self.i.ready.eq(1)


@amended("rtl.warpgroup.groups", "rtl.warpgroup", "Warpgroup")
def _(warpgroup: Any, self: Any, m: Module) -> Iterator[Any]:
    """Results of any warpgroup complete a commit group of the first warpgroup."""
    o = m.submodules["tensor_cores"].o
    yield m.submodules["commands_0"].delivered.eq(o.valid & o.ready)


holds("rtl.placement.end", "rtl.placement", "COLUMNS", "A panel of D counts as seven columns wide instead of eight.", 7)

register_all(reads, [
    ("rtl.order.column", "rtl.order", "ColumnOrder",
     "The component that reorders a column of B exchanges its inputs `wide` and `sparse`.",
     lambda self: {"wide": self.sparse, "sparse": self.wide}),
    ("rtl.order.dense", "rtl.order", "RowOrder",
     "A dense step uses the metadata at the input instead of the nibble that selects the first two units.",
     lambda self: {"sparse": Const(1)}),
    ("rtl.reduce.groups", "rtl.reduce", "ReduceStage",
     "Sums of groups of 4-bit integers are added for all element formats.",
     lambda self: {"integer_groups": Const(1)}),
    ("rtl.stored_a.registers", "rtl.stored_a", "StoredA",
     "The two segments of K of an operand A from shared memory are swapped.",
     lambda self: {"core_matrix": exchanged(self.core_matrix, segment=~self.core_matrix.segment)}),
    ("rtl.operand_fetch.slot", "rtl.operand_fetch", "OperandFetch",
     "Core matrices of A arrive with the tag of the other instruction slot.", lambda self: {"a_tag": ~self.a_tag}),
    ("rtl.tensor_core.panels", "rtl.tensor_core", "TensorCore",
     "An `mma` begins although a panel of `wgmma` waits for the other arrays.", lambda self: {"panel_waits": Const(0)}),
    ("rtl.life_cycle.wait", "rtl.life_cycle", "LifeCycle",
     "After a wait, one group more than the wait guarantees counts as complete.",
     lambda self: {"pending": (self.pending - (self.pending != 0))[:3]}),
    ("rtl.life_cycle.shape", "rtl.life_cycle", "LifeCycle",
     "Multiplications with different N count as multiplications of the same shape.",
     lambda self: {"last_panel": Const(0, 5)}),
])  # fmt: skip

register_all(drives, [
    ("rtl.core.scales", "rtl.core", "Core", "Every column gets the block scales of the first column.",
     lambda self, m: [
         m.submodules[f"unit_{row}_{column}"].step.scale_b.eq(self.i.payload.scale_b[0])
         for row in range(self.config.rows) for column in range(self.config.columns)
     ]),
    ("rtl.tensor_cores.delivery", "rtl.tensor_cores", "RegisterDelivery",
     "A reset does not clear the cycle counter of a register delivery, so the next delivery starts in its middle.",
     lambda self, m: outlives_reset(m, "cycle")),
    ("rtl.tensor_core.results", "rtl.tensor_core", "TensorCore",
     "Results of `mma` also appear at the output for results of panels.",
     lambda self, m: [self.panel_result.valid.eq(m.submodules["warp"].o.valid)]),
    ("rtl.tensor_cores.length", "rtl.tensor_cores", "TensorCores",
     "Panels of B of a dense instruction are read with the length of a sparse instruction.",
     lambda self, m: [m.submodules["requests_b"].short.eq(0)]),
    ("rtl.warpgroup.results", "rtl.warpgroup", "Owners", "The results of all warpgroups go to the first warpgroup.",
     lambda self, m: [m.submodules["panels"].entry.eq(0)]),
    ("rtl.tcgen05.port", "rtl.tcgen05", "Tcgen05",
     "Panels of B of a dense instruction are read with the length of a sparse instruction.",
     lambda self, m: [m.submodules["fetch"].b.payload.short.eq(0)]),
    ("rtl.tcgen05.tensor_memory", "rtl.tcgen05", "Tcgen05",
     "An operand A in shared memory is also read from tensor memory, and this read overwrites the right values.",
     lambda self, m: [m.submodules["tensor_operands"].i.payload.a_shared.eq(0)]),
    ("rtl.stored_a.complete", "rtl.stored_a", "StoredA",
     "An operand A from shared memory counts as complete after the first half of its last panel.",
     lambda self, m: [
         self.complete[slot].eq(
             self.arriving & (self.core_matrix.tag == slot) & (self.core_matrix.panel == self._panels - 1)
         )
         for slot in range(len(self.complete))
     ]),
    ("rtl.tcgen05.pair", "rtl.tcgen05", "Tcgen05",
     "The CTAs of a pair read block scales of B in the order of multiplication instead of the order of columns.",
     lambda self, m: [m.submodules["words"].panel.eq(m.submodules["slots"].panel)]),
])  # fmt: skip

register_all(computes, [
    ("rtl.warp.metadata", "rtl.warp", "Warp._metadata_row", "Rows 8 to 15 use the metadata of rows 0 to 7.",
     lambda warp, right, self, held, row, step: right(self, held, row % 8, step)),
    ("rtl.multiply.register", "rtl.multiply", "MultiplyStage._registered",
     "The lower limit of e_max bypasses the pipeline register after the products.",
     lambda multiply, right, self, m, value: value if value.shape() == multiply._EXPONENT else right(self, m, value)),
    ("rtl.tensor_core.pace", "rtl.tensor_core", "RegisterCycles",
     "A dense `mma` takes as many cycles of the register file as a sparse one.",
     lambda tensor_core, right: right(of_mma={**right().of_mma, (False, False): 6})),
    ("rtl.tensor_cores.registers", "rtl.tensor_cores", "RegisterCycles",
     "The delivery of A from registers takes a cycle less than measured.", lambda tensor_cores, right: right(wide=17)),
    ("rtl.accumulators.overlap", "rtl.accumulators", "_overlap",
     "Pending results that begin before the first column of a read do not count as overlapping the read.",
     lambda accumulators, right, a, b: (a - b)[: accumulators.COLUMN_BITS] < accumulators.COLUMNS),
    ("rtl.warp.byte", "rtl.warp", "Warp._scales", "Rows 8 to 15 ignore the byte id of their block scales.",
     lambda warp, right, self, held, operand, index: right(
         self, exchanged(held, byte_a=warp.Const(0, 2)) if index >= 8 else held, operand, index)),
    ("rtl.warp.short", "rtl.warp", "Warp._b_column",
     "The upper half of B of a short sparse instruction has the content of unused registers instead of zeros.",
     lambda warp, right, self, held, column, step: warp.Mux(
         held.control.sparse, right(self, exchanged(held, long=warp.Const(1, 1)), column, step),
         right(self, held, column, step))),
    ("rtl.core.flags", "rtl.core", "delayed",
     "The flags of undefined metadata leave the array one cycle before the result of the same step.",
     lambda core, right, m, value, cycles, enable, name:
         right(m, value, max(0, cycles - name.startswith("illegal")), enable, name)),
    ("rtl.carry_save_tree.register", "rtl.cells.carry_save_tree", "CarrySaveTree._registered",
     "Increments that are not yet added bypass the pipeline register of the sum words.",
     lambda carry_save_tree, right, self, m, values:
         values if all(len(value) == 1 for value in values) else right(self, m, values)),
    ("rtl.order.nibbles", "rtl.order", "nibble_order",
     "The decoders of two interleaved chunks get the metadata of two wide chunks instead of the same chunk.",
     lambda order, right, config, *, wide: [
         lane % (config.chunks // 2) if wide and config.interleaved else nibble
         for lane, nibble in enumerate(right(config, wide=wide))]),
])  # fmt: skip


@amended("rtl.warpgroup.early_wait", "rtl.warpgroup", "Commands")
def _(warpgroup: Any, self: Any, m: Any) -> Any:
    """A wait that may leave groups pending ends one group too early."""
    allowed = self.i.payload.pending
    with m.If(self.i.payload.operation == warpgroup.Operation.WAIT):
        yield self.i.ready.eq(m.submodules["commits"].pending <= allowed + (allowed != 0))


@instead("rtl.life_cycle.groups", "rtl.life_cycle", "LifeCycle.elaborate")
def _(life_cycle: Any, right: Any, self: Any, platform: object) -> Any:
    """A commit group for which no wait has waited is forgotten after eight later commits."""
    m = right(self, platform)
    groups = named(m, "groups")
    with m.If(self.taken & (self.operation == life_cycle.Operation.COMMIT)):
        m.d.sync += groups[-1].eq(groups[-2])
    return m


@instead("rtl.operand_fetch.major", "rtl.operand_fetch", "OperandFetch.elaborate")
def _(operand_fetch: Any, right: Any, self: Any, platform: object) -> Any:
    """Core matrices of A are transposed if the requested panel of B is MN-major."""
    m = right(self, platform)
    m.d.sync += named(m, "arriving_mn_major").eq(self.b.payload.mn_major)
    return m


@instead("rtl.tensor_operands.first", "rtl.tensor_operands", "TensorOperands.elaborate")
def _(tensor_operands: Any, right: Any, self: Any, platform: object) -> Any:
    """The first operand that is read is the one after the previous instruction's last operand, instead of metadata."""
    m = right(self, platform)
    with m.If(self.memory.read & self.i.ready):
        m.d.sync += named(m, "first").eq(named(m, "operand") + 1)
    return m


@fault("rtl.slots.shift_amount", "rtl.slots")
def _(slots: Any, change: Change) -> None:
    """The shift amount of a product is one bit too narrow."""
    right = slots.Slot.shift_amount_bits.fget
    change(slots.Slot, "shift_amount_bits", property(lambda self: right(self) - bool(self.floats)))


@instead("rtl.round.parity", "rtl.round", "RoundStage._float")
def _(rounding: Any, right: Any, self: Any, m: Any, i: Any) -> Any:
    """Ties of negative sums are rounded to an odd f16."""
    result = right(self, m, i)
    if rounding.ResultCode.F16 in self.results:
        m.d.comb += named(m, "odd").eq(i.shifted[-1 - rounding._F16.fraction_bits])
    return result


@amended("rtl.scale.nan", "rtl.scale", "ExponentOffset", preset="blackwell")
def _(scale: Any, self: Any, m: Any) -> Any:
    """A NaN ue8m0 scale of B is ignored."""
    if "ue8m0" in self.config.scales:
        yield self.nan.eq(self.enable & self.scale_a.all())
