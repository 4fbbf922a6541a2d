"""A fault for each property of metadata and arithmetic that is proved: the proof must see it."""

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import Change, fault
from .circuits import amend, named, read_otherwise


@fault("metadata.legal", "rtl.metadata")
def _(metadata: Any, change: Change) -> None:
    """Two equal indices, 0b1010, count as legal."""

    def legal(self: Any, m: Module) -> Iterator[Any]:
        with m.If(self.nibble == 0b1010):
            yield self.legal.eq(1)

    amend(change, metadata.NibbleDecoder, legal)


@fault("metadata.selects", "rtl.metadata")
def _(metadata: Any, change: Change) -> None:
    """Slot 1 selects by the index of slot 0."""
    amend(change, metadata.NibbleDecoder, lambda self, m: [self.select1.eq(metadata._one_hot(self.index0))])


@fault("metadata.exchange", "rtl.metadata", preset="blackwell")
def _(metadata: Any, change: Change) -> None:
    """Of the two nibbles' bits that ask for an exchange, only one pair is looked at."""

    def exchange(self: Any, m: Module) -> Iterator[Any]:
        n = self.nibble
        if self.mux == "mux3":
            yield self.swap.eq((self.rule == metadata.RuleCode.PLAIN) & n[0] & ~n[3])

    amend(change, metadata.NibbleDecoder, exchange)


@fault("metadata.chunk", "rtl.metadata")
def _(metadata: Any, change: Change) -> None:
    """The first chunk is decoded from the nibble of the second."""
    amend(
        change,
        metadata.MetadataStage,
        lambda self, m: [m.submodules["metadata0"].nibble.eq(self.nibbles.word_select(1, 4))],
    )


@fault("selection.units", "rtl.cells.operand_mux")
def _(operand_mux: Any, change: Change) -> None:
    """Units 1 and 3 never come out."""
    amend(
        change,
        operand_mux.OperandMux,
        lambda self, m: [named(m, f"half_{unit // 2}").eq(~_gated(self, unit)) for unit in (0, 2)],
    )


def _gated(mux: Any, unit: int) -> Value:
    width = mux.unit_bits // mux.parts
    return mux.units[unit] & Cat(bit.replicate(width) for bit in mux.select[unit])


@fault("selection.isolation", "rtl.cells.operand_mux")
def _(operand_mux: Any, change: Change) -> None:
    """The lowest bit of unit 1 comes out whether it is selected or not."""
    amend(
        change,
        operand_mux.OperandMux,
        lambda self, m: [
            named(m, "half_0").eq(~(_gated(self, 0) | _gated(self, 1) | self.units[1][0])),
        ],
    )


@fault("selection.tf32", "rtl.metadata")
def _(metadata: Any, change: Change) -> None:
    """The low bit of slot 1's index is lost: half-slots 1 and 3 are never its operand."""
    amend(
        change,
        metadata.NibbleDecoder,
        lambda self, m: [self.index1.eq(Mux(self.swap, self.nibble[:2], self.nibble[2:] & 2))],
    )


@fault("selection.step", "rtl.select")
def _(select: Any, change: Change) -> None:
    """The first chunk is offered the units of the second."""

    def second(self: Any, m: Module) -> Iterator[Any]:
        for slot in range(select.KEPT_UNITS):
            first, following = (m.submodules[f"select{slot}_{group}"] for group in (0, 1))
            yield from (unit.eq(other) for unit, other in zip(first.units, following.units, strict=True))

    amend(change, select.SelectStage, second)


@fault("operands.unpack", "rtl.unpack")
def _(unpack: Any, change: Change) -> None:
    """Subnormals get the exponent 0, not that of the smallest normal number."""

    def zero_exponent(self: Any, m: Module) -> Iterator[Any]:
        if self.slot.floats:
            fields = named(m, "fields")
            yield self.raw.exponent.eq(fields[len(self.raw.significand) : -1])

    amend(change, unpack.Unpack, zero_exponent)


@fault("operands.accumulator", "rtl.unpack")
def _(unpack: Any, change: Change) -> None:
    """A NaN in the accumulator is an infinity too."""

    def also_infinite(self: Any, m: Module) -> Iterator[Any]:
        single, half = (
            self.word[unpack.FORMATS[name].fraction_bits : unpack.FORMATS[name].bits - 1] for name in ("f32", "f16")
        )
        yield self.inf.eq(Mux(self.half, half.all(), single.all()))

    amend(change, unpack.UnpackAccumulator, also_infinite)


@fault("operands.multiply", "rtl.cells.slot_multiplier")
def _(slot_multiplier: Any, change: Change) -> None:
    """An infinity in A times zero in B is no NaN."""

    def no_nan(self: Any, m: Module) -> Iterator[Any]:
        a, b = self.a, self.b
        yield self.product.nan.eq((a.special & a.nan) | (b.special & (b.nan | a.zero)))

    amend(change, slot_multiplier.SlotMultiplier, no_nan)


@fault("operands.exact", "rtl.cells.multiplier")
def _(multiplier: Any, change: Change) -> None:
    """The one of a negative row is added even where the row's lowest bit has absorbed it."""
    right = multiplier.Multiplier._recoded_row

    def row(self: Any, m: Module, digit: Value) -> tuple[Value, Value]:
        return right(self, m, digit)[0], digit[2]

    change(multiplier.Multiplier, "_recoded_row", row)


@fault("operands.products", "rtl.unpack", preset="ampere")
def _(unpack: Any, change: Change) -> None:
    """Signed integers are extended with zeros."""
    right = unpack.Unpack._fields

    def fields(self: Any, element: Any, bits: Value) -> Value:
        if not element.format.is_integer:
            return right(self, element, bits)
        return Cat(bits, Const(0, self.slot.significand_bits + 1 - len(bits) + unpack.EXPONENT_BITS + 1))

    change(unpack.Unpack, "_fields", fields)


@fault("scaling.offset", "rtl.scale")
def _(scale: Any, change: Change) -> None:
    """The bias of A's format counts for B too."""
    read_otherwise(change, scale.ExponentOffset, lambda self: {"b": self.a})


@fault("scaling.group", "rtl.scale", preset="blackwell")
def _(scale: Any, change: Change) -> None:
    """The sign bit of a ue4m3 scale, which is ignored, must be set for a NaN."""
    amend(
        change,
        scale.GroupScale,
        lambda self, m: [self.nan.eq((self.scale_a.all() | self.scale_b.all()) & (self.scale != scale.ScaleCode.NONE))],
    )


@fault("alignment.maximum", "rtl.cells.max_exponent")
def _(max_exponent: Any, change: Change) -> None:
    """Exponents are compared without their sign bit."""

    def larger(condition: Value, right: Value, left: Value) -> Value:
        return Mux(right[:10] > left[:10], right, left)

    change(max_exponent, "Mux", larger)


@fault("alignment.shift", "rtl.cells.shifter")
def _(shifter: Any, change: Change) -> None:
    """The lowest bit of a shift amount that shifts everything out is not looked at."""

    def without_bit(self: Any) -> dict[str, Any]:
        bits = max(1, (self.shifted_bits - 1).bit_length())
        return {"shift_amount": Cat(self.shift_amount[:bits], Const(0, 1), self.shift_amount[bits + 1 :])}

    read_otherwise(change, shifter.AlignmentShifter, without_bit)


@fault("alignment.e_max", "rtl.multiply")
def _(multiply: Any, change: Change) -> None:
    """The exponent of a product that is zero counts in the maximum."""

    def all_exponents(self: Any, m: Module) -> Iterator[Any]:
        if self.widths.floating:
            packed = multiply.is_one_of(self.config, self.control.a, self.widths.packed)
            for index, port in enumerate(self.o.exponents):
                yield port.eq(Mux(packed, 0, m.submodules[f"multiply{index}"].product.exponent))

    amend(change, multiply.MultiplyStage, all_exponents)


@fault("alignment.terms", "rtl.align")
def _(align: Any, change: Change) -> None:
    """The largest exponent is cut to a slot's width, and does not saturate there."""
    right = align.AlignStage._align_product

    def cut(self: Any, m: Module, slot: Any, magnitude: Value, e_max: Value) -> Value:
        integers = [element for element in self.config.elements if element.format.is_integer]
        integer = align.is_one_of(self.config, self.control.a, integers)
        return right(self, m, slot, magnitude, Mux(integer, e_max, self.i.e_max[: len(e_max)])[: len(e_max)])

    change(align.AlignStage, "_align_product", cut)


@fault("reduction.tree", "rtl.cells.carry_save_tree")
def _(carry_save_tree: Any, change: Change) -> None:
    """A full adder has no carry from its second and third bit."""
    right = carry_save_tree.CarrySaveTree._row

    def row(self: Any, m: Module, first: Value, second: Value, third: Value, lowest: Value) -> tuple[Value, Value]:
        total, carry = right(self, m, first, second, third, lowest)
        m.d.comb += carry.eq(Cat(lowest, (first & second) | (third & first)))
        return total, carry

    change(carry_save_tree.CarrySaveTree, "_row", row)


@fault("reduction.adder", "rtl.cells.adder")
def _(adder: Any, change: Change) -> None:
    """A group of bits that passes a carry on makes one."""

    def carries(self: Any, m: Module) -> Iterator[Any]:
        for start in range(0, self.bits, adder._GROUP):
            yield named(m, f"carry_{start}").eq(named(m, f"makes_{start}") | named(m, f"passes_{start}"))

    amend(change, adder.Adder, carries)


@fault("reduction.group", "rtl.product_group", preset="ampere")
def _(product_group: Any, change: Change) -> None:
    """The one of the last product of a group is not added."""
    amend(
        change,
        product_group.ProductGroup,
        lambda self, m: [m.submodules["tree"].increments.eq(self.signs[:-1])],
    )


@fault("reduction.width", "rtl.widths")
def _(widths: Any, change: Change) -> None:
    """The sum has two bits too few."""
    right = widths.Widths.total_bits.func
    change(widths.Widths, "total_bits", property(lambda self: right(self) - 2))


@fault("rounding.truncation", "rtl.round")
def _(rounding: Any, change: Change) -> None:
    """Exponents are one too small."""

    def one_less(self: Any, m: Module) -> Iterator[Any]:
        if self.results - {rounding.ResultCode.S32}:
            shift_amount = m.submodules["leading"].count
            yield named(m, "field").eq(Mux(named(m, "magnitude")[-1], self.headroom - shift_amount, 0))

    amend(change, rounding.RoundStage, one_less)


@fault("rounding.nearest", "rtl.round")
def _(rounding: Any, change: Change) -> None:
    """Ties are rounded away from zero."""

    def always_odd(self: Any, m: Module) -> Iterator[Any]:
        if rounding.ResultCode.F16 in self.results:
            yield named(m, "odd").eq(1)

    amend(change, rounding.RoundStage, always_odd)


@fault("rounding.specials", "rtl.round")
def _(rounding: Any, change: Change) -> None:
    """Two infinities of opposite signs are an infinity."""
    right = rounding.RoundStage._special

    def special(
        self: Any, m: Module, i: Any, negative: Value, body: Value, overflow: Value, nan: Value, *others: Any
    ) -> Value:
        return right(self, m, i, negative, body, overflow, i.nan, *others)

    change(rounding.RoundStage, "_special", special)


@fault("rounding.integers", "rtl.round")
def _(rounding: Any, change: Change) -> None:
    """Sums from 2**31 up to 2**32 wrap where they must clamp."""

    def wrapped(self: Any, m: Module) -> Iterator[Any]:
        value = self.total[self.integer_bits :]
        if rounding.ResultCode.S32 in self.results:
            with m.If((self.result == rounding.ResultCode.S32) & ~value[32:].any()):
                yield self.output.eq(value[:32])

    amend(change, rounding.RoundStage, wrapped)


@fault("unit.floats", "rtl.align")
def _(align: Any, change: Change) -> None:
    """The sign of a float accumulator is lost."""

    def positive(self: Any, m: Module) -> Iterator[Any]:
        if self.widths.floating:
            integers = [element for element in self.config.elements if element.format.is_integer]
            with m.If(~align.is_one_of(self.config, self.control.a, integers)):
                yield self.o.addends.c_increment.eq(0)
                yield self.o.addends.c_term.eq(m.submodules["align_c"].output)

    amend(change, align.AlignStage, positive)


@fault("unit.integers", "rtl.align")
def _(align: Any, change: Change) -> None:
    """The sign of an integer accumulator that left 32 bits is taken from bit 31."""
    read_otherwise(change, align.AlignStage, lambda self: {"c": self.c[:32].as_signed()})


@fault("unit.stages", "rtl.unit")
def _(unit: Any, change: Change) -> None:
    """Single bits pass by the registers behind the multiply stage."""
    right = unit.Unit._cut

    def cut(self: Any, m: Module, name: str, value: Any) -> Any:
        return value if name == "multiply" and len(Value.cast(value)) == 1 else right(self, m, name, value)

    change(unit.Unit, "_cut", cut)
