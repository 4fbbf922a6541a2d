"""A fault for each proved property of metadata and arithmetic. The proof of the property must detect the fault."""

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import Change, computes, fault, instead, register_all
from .circuits import amended, drives, named, reads


@amended("metadata.legal", "rtl.metadata", "NibbleDecoder")
def _(metadata: Any, self: Any, m: Module) -> Iterator[Any]:
    """The nibble 0b1010 with two equal indices counts as legal."""
    with m.If(self.nibble == 0b1010):
        yield self.legal.eq(1)


@amended("metadata.selects", "rtl.metadata", "NibbleDecoder")
def _(metadata: Any, self: Any, m: Module) -> Iterator[Any]:
    """Slot 1 selects a unit of B by the index of slot 0."""
    yield self.select1.eq(metadata._one_hot(self.index0))


@amended("metadata.exchange", "rtl.metadata", "NibbleDecoder", preset="blackwell")
def _(metadata: Any, self: Any, m: Module) -> Iterator[Any]:
    """Only one of the two conditions on a nibble that request an exchange of slots is checked."""
    n = self.nibble
    if self.mux == "mux3":
        yield self.swap.eq((self.rule == metadata.RuleCode.PLAIN) & n[0] & ~n[3])


def _gated(mux: Any, unit: int) -> Value:
    width = mux.unit_bits // mux.parts
    return mux.units[unit] & Cat(bit.replicate(width) for bit in mux.select[unit])


@amended("selection.step", "rtl.select", "SelectStage")
def _(select: Any, self: Any, m: Module) -> Iterator[Any]:
    """The first chunk selects from the units of the second chunk."""
    for slot in range(select.KEPT_UNITS):
        first, following = (m.submodules[f"select{slot}_{group}"] for group in (0, 1))
        yield from (unit.eq(other) for unit, other in zip(first.units, following.units, strict=True))


@amended("operands.unpack", "rtl.unpack", "Unpack")
def _(unpack: Any, self: Any, m: Module) -> Iterator[Any]:
    """Subnormals get the exponent 0, not that of the smallest normal number."""
    if self.slot.floats:
        fields = named(m, "fields")
        yield self.raw.exponent.eq(fields[len(self.raw.significand) : -1])


@amended("operands.accumulator", "rtl.unpack", "UnpackAccumulator")
def _(unpack: Any, self: Any, m: Module) -> Iterator[Any]:
    """A NaN accumulator is also flagged as an infinity."""
    formats = (unpack.FORMATS["f32"], unpack.FORMATS["f16"])
    single, half = (self.word[fmt.fraction_bits : fmt.bits - 1] for fmt in formats)
    yield self.inf.eq(Mux(self.half, half.all(), single.all()))


@instead("operands.products", "rtl.unpack", "Unpack._fields", preset="ampere")
def _(unpack: Any, right: Any, self: Any, element: Any, bits: Value) -> Value:
    """Signed integers are extended with zeros instead of their sign bit."""
    if not element.format.is_integer:
        return right(self, element, bits)
    return Cat(bits, Const(0, self.slot.significand_bits + 1 - len(bits) + unpack.EXPONENT_BITS + 1))


reads("scaling.offset", "rtl.scale", "ExponentOffset", "The exponent bias of A's format is also used for B.",
      lambda self: {"b": self.a})  # fmt: skip


@amended("scaling.group", "rtl.scale", "GroupScale", preset="blackwell")
def _(scale: Any, self: Any, m: Module) -> Iterator[Any]:
    """A ue4m3 scale counts as NaN only if its sign bit is set, although this bit should be ignored."""
    yield self.nan.eq((self.scale_a.all() | self.scale_b.all()) & (self.scale != scale.ScaleCode.NONE))


def _without_bit(self: Any) -> dict[str, Any]:
    bits = max(1, (self.shifted_bits - 1).bit_length())
    return {"shift_amount": Cat(self.shift_amount[:bits], Const(0, 1), self.shift_amount[bits + 1 :])}


reads("alignment.shift", "rtl.cells.shifter", "AlignmentShifter",
      "The shifter ignores the lowest shift-amount bit that alone shifts out a whole term.", _without_bit)  # fmt: skip


@amended("alignment.e_max", "rtl.multiply", "MultiplyStage")
def _(multiply: Any, self: Any, m: Module) -> Iterator[Any]:
    """The exponent of a product that is zero counts in the maximum of the exponents."""
    if self.widths.floating:
        packed = multiply.is_one_of(self.config, self.control.a, self.widths.packed)
        for index, port in enumerate(self.o.exponents):
            yield port.eq(Mux(packed, 0, m.submodules[f"multiply{index}"].product.exponent))


@instead("alignment.terms", "rtl.align", "AlignStage._align_product")
def _(align: Any, right: Any, self: Any, m: Module, slot: Any, magnitude: Value, e_max: Value) -> Value:
    """The largest exponent is truncated, not saturated, to the width of a slot's shift amount."""
    integers = [element for element in self.config.elements if element.format.is_integer]
    integer = align.is_one_of(self.config, self.control.a, integers)
    return right(self, m, slot, magnitude, Mux(integer, e_max, self.i.e_max[: len(e_max)])[: len(e_max)])


@instead("reduction.tree", "rtl.cells.carry_save_tree", "CarrySaveTree.row")
def _(
    carry_save_tree: Any, right: Any, self: Any, m: Module, first: Value, second: Value, third: Value, lowest: Value
) -> tuple[Value, Value]:
    """The carry of a full adder lacks the AND of its second and third input."""
    total, carry = right(self, m, first, second, third, lowest)
    m.d.comb += carry.eq(Cat(lowest, (first & second) | (third & first)))
    return total, carry


@amended("reduction.adder", "rtl.cells.adder", "Adder")
def _(adder: Any, self: Any, m: Module) -> Iterator[Any]:
    """In the adder, a group of bits that only propagates a carry also generates one."""
    for start in range(0, self.bits, adder._GROUP):
        yield named(m, f"carry_{start}").eq(named(m, f"makes_{start}") | named(m, f"passes_{start}"))


@amended("reduction.group", "rtl.product_group", "ProductGroup", preset="ampere")
def _(product_group: Any, self: Any, m: Module) -> Iterator[Any]:
    """The increment that completes the negation of the last product in a group is not added."""
    yield m.submodules["tree"].increments.eq(self.signs[:-1])


@fault("reduction.width", "rtl.widths")
def _(widths: Any, change: Change) -> None:
    """The word for the sum of all terms has two bits too few."""
    right = widths.Widths.total_bits.func
    change(widths.Widths, "total_bits", property(lambda self: right(self) - 2))


@amended("rounding.truncation", "rtl.round", "RoundStage")
def _(rounding: Any, self: Any, m: Module) -> Iterator[Any]:
    """The exponent field of each result is one too small."""
    if self.results - {rounding.ResultCode.S32}:
        shift_amount = m.submodules["leading"].count
        yield named(m, "field").eq(Mux(named(m, "magnitude")[-1], self.headroom - shift_amount, 0))


@amended("rounding.nearest", "rtl.round", "RoundStage")
def _(rounding: Any, self: Any, m: Module) -> Iterator[Any]:
    """Ties are rounded away from zero."""
    if rounding.ResultCode.F16 in self.results:
        yield named(m, "odd").eq(1)


@amended("rounding.integers", "rtl.round", "RoundStage")
def _(rounding: Any, self: Any, m: Module) -> Iterator[Any]:
    """Sums from 2**31 up to 2**32 wrap instead of saturating."""
    value = self.total[self.integer_bits :]
    if rounding.ResultCode.S32 in self.results:
        with m.If((self.result == rounding.ResultCode.S32) & ~value[32:].any()):
            yield self.output.eq(value[:32])


@amended("unit.floats", "rtl.align", "AlignStage")
def _(align: Any, self: Any, m: Module) -> Iterator[Any]:
    """The sign of a float accumulator is lost."""
    if self.widths.floating:
        integers = [element for element in self.config.elements if element.format.is_integer]
        with m.If(~align.is_one_of(self.config, self.control.a, integers)):
            yield self.o.addends.c_increment.eq(0)
            yield self.o.addends.c_term.eq(m.submodules["align_c"].output)


reads("unit.integers", "rtl.align", "AlignStage",
      "The sign of an integer accumulator that has exceeded 32 bits is taken from bit 31.",
      lambda self: {"c": self.c[:32].as_signed()})  # fmt: skip

register_all(drives, [
    ("metadata.chunk", "rtl.metadata", "MetadataStage",
     "The first chunk is decoded from the nibble of the second chunk.",
     lambda self, m: [m.submodules["metadata0"].nibble.eq(self.nibbles.word_select(1, 4))]),
    ("selection.units", "rtl.cells.operand_mux", "OperandMux",
     "A multiplexer never selects units 1 and 3 of its chunk.",
     lambda self, m: [named(m, f"half_{unit // 2}").eq(~_gated(self, unit)) for unit in (0, 2)]),
    ("selection.isolation", "rtl.cells.operand_mux", "OperandMux",
     "The lowest bit of unit 1 reaches the output of the multiplexer even if unit 1 is not selected.",
     lambda self, m: [named(m, "half_0").eq(~(_gated(self, 0) | _gated(self, 1) | self.units[1][0]))]),
    ("selection.tf32", "rtl.metadata", "NibbleDecoder",
     "The low bit of slot 1's index is always 0, so slot 1 never selects the upper half of a tf32 element.",
     lambda self, m: [self.index1.eq(Mux(self.swap, self.nibble[:2], self.nibble[2:] & 2))]),
    ("operands.multiply", "rtl.cells.slot_multiplier", "SlotMultiplier",
     "An infinity in A times zero in B is not flagged as NaN.",
     lambda self, m: [
         self.product.nan.eq((self.a.special & self.a.nan) | (self.b.special & (self.b.nan | self.a.zero)))
     ]),
])  # fmt: skip

register_all(computes, [
    ("operands.exact", "rtl.cells.multiplier", "Multiplier._recoded_row",
     "The increment of a negative partial product is added even if its lowest bit already includes the increment.",
     lambda multiplier, right, self, m, digit: (right(self, m, digit)[0], digit[2])),
    ("alignment.maximum", "rtl.cells.max_exponent", "Mux", "Exponents are compared without their sign bit.",
     lambda max_exponent, right, condition, one, other: right(one[:10] > other[:10], one, other)),
    ("rounding.specials", "rtl.round", "RoundStage._special",
     "The sum of two infinities of opposite signs is an infinity, not NaN.",
     lambda rounding, right, self, m, i, body, overflow, nan, *rest: right(self, m, i, body, overflow, i.nan, *rest)),
    ("unit.stages", "rtl.unit", "Unit._cut", "Signals of one bit bypass the registers of the multiply stage.",
     lambda unit, right, self, m, name, value:
         value if name == "multiply" and len(Value.cast(value)) == 1 else right(self, m, name, value)),
])  # fmt: skip
