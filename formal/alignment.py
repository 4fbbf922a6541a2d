"""Proofs about alignment: e_max, the largest exponent of a step, and truncation of every term to F bits below it."""

from collections.abc import Iterable, Iterator, Sequence

from amaranth.hdl import Cat, Const, Mux, Shape, Value, signed, unsigned

from ..isa.formats import FORMATS
from ..isa.numerics import BLOCK_GROUP, zero_exponent_for
from ..rtl.align import AlignStage
from ..rtl.cells.max_exponent import MaxExponent
from ..rtl.cells.shifter import AlignmentShifter
from ..rtl.config import CoreConfig, Element
from ..rtl.multiply import MultiplyStage
from ..rtl.product_group import ProductGroup
from ..rtl.round import ResultCode
from ..rtl.scale import ScaleCode
from .harness import Harness
from .numerics import (
    ACCUMULATOR_BITS,
    ALIGNED_EXPONENT,
    EXPONENT_BITS,
    LARGEST_SCALED_GROUP,
    SCALED_GROUP_FRACTION_BITS,
    float_slots,
    grid_bits,
    groups,
    integer_place,
    is_floating,
    kept_bits,
    product_bits,
    product_place,
    results,
    total_bits,
)
from .operands import Definition, definition_of
from .properties import Parameters, Topic, anonymous
from .rounding import headrooms

__all__ = ["ALIGNMENT"]

ALIGNMENT = Topic("alignment")
#: Shape of a sum of the biased exponents of two elements.
_PRODUCT_EXPONENT = unsigned(EXPONENT_BITS + 1)
#: Width in bits of the difference between the largest exponent and the exponent of any term.
_DISTANCE_BITS = ALIGNED_EXPONENT.width - 1
#: Upper limit of the largest exponent in a step of packed e2m1, if scaled groups are not included.
_GROUP_LIMIT = 256
#: Exponent of a product of integers, which is a constant of the hardware.
_INTEGER_EXPONENT = 2
_UE8M0_BIAS = 127
_RESULTS = FORMATS["f16"], FORMATS["f32"]


def _scaled(config: CoreConfig) -> bool:
    """Return whether a datapath scales and aligns groups of products."""
    return any(element.packed_float for element in config.elements)


def _exponents(config: CoreConfig) -> Iterator[Parameters]:
    """Trees that find maximum exponents: of products, of accumulator and e_zero, and of scaled groups and e_max."""
    if float_slots(config):
        yield float_slots(config), _PRODUCT_EXPONENT.width, "unsigned"
    if is_floating(config):
        yield 2, ALIGNED_EXPONENT.width, "signed"
    if _scaled(config):
        yield groups(config) + 1, ALIGNED_EXPONENT.width, "signed"


@ALIGNMENT.property("maximum", _exponents)
def _maximum(h: Harness, count: int, bits: int, sign: str) -> None:
    """The maximum tree returns the largest exponent: no input is larger, and at least one input is equal."""
    shape = Shape(bits, signed=sign == "signed")
    exponents = [h.free(f"exponent{index}", shape) for index in range(count)]
    tree = h.add("tree", MaxExponent(count, shape))
    h.m.d.comb += [port.eq(value) for port, value in zip(tree.exponents, exponents, strict=True)]
    e_max = h.named("e_max", tree.e_max)
    for index, exponent in enumerate(exponents):
        h.claim(f"bound{index}", e_max >= exponent)
    h.claim("attained", Cat(e_max == exponent for exponent in exponents).any())
    h.cover("only_last", Cat(exponent < exponents[-1] for exponent in exponents[:-1]).all())


def _shifters(config: CoreConfig) -> Iterator[Parameters]:
    """Shifters of products, of the accumulator and of scaled groups, as arguments of :class:`AlignmentShifter`."""
    for slot in range(float_slots(config)):
        floats = [element for element in config.elements_of_slot(slot) if not element.fixed_point]
        # Products are below four, so they have two bits above the binary point.
        reach = max(kept_bits(config, element) for element in floats) + 2
        # A larger shift amount would also shift out every bit of a product, so the shift amount needs no more bits.
        farthest = max(map(_largest_exponent, floats)) + reach
        distance_bits = min(farthest.bit_length(), _PRODUCT_EXPONENT.width)
        yield product_bits(config, slot) - 1, product_place(config, slot), distance_bits, reach
    if is_floating(config):
        yield ACCUMULATOR_BITS, grid_bits(config) + 1 - ACCUMULATOR_BITS, _DISTANCE_BITS, None
    if _scaled(config):
        place = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        yield LARGEST_SCALED_GROUP.bit_length(), place, _DISTANCE_BITS, None


def _largest_exponent(element: Element) -> int:
    """Return the largest sum of the biased exponents of two elements of a format."""
    return 2 * ((1 << element.format.exponent_bits) - 1)


@ALIGNMENT.property("shift", _shifters)
def _shift(h: Harness, magnitude_bits: int, padding: int, shift_amount_bits: int, shifted_bits: int | None) -> None:
    """An alignment shifter truncates toward zero: a shift amount of n drops the n lowest bits.

    Bits above the reach of the shifter pass unchanged. A shift amount beyond the reach leaves none of the other bits.
    """
    align = h.add(
        "align",
        AlignmentShifter(magnitude_bits, padding, shift_amount_bits, shifted_bits),
        magnitude=h.free("magnitude", magnitude_bits),
        shift_amount=h.free("shift_amount", shift_amount_bits),
    )
    output, bits = h.named("output", align.output), align.shifted_bits
    padded = Cat(Const(0, max(padding, 0)), align.magnitude[max(-padding, 0) :])
    for shift_amount in range(bits):
        expected = Cat(padded[shift_amount:bits], Const(0, shift_amount))
        h.claim(f"distance{shift_amount}", (align.shift_amount != shift_amount) | (output[:bits] == expected))
        h.cover(f"distance{shift_amount}", (align.shift_amount == shift_amount) & output[:bits].any())
    h.claim("beyond", (align.shift_amount < bits) | ~output[:bits].any())
    h.cover("beyond", (align.shift_amount >= bits) & align.magnitude.all())
    if bits < len(output):
        h.claim("above", output[bits:] == padded[bits:])


def _kinds(config: CoreConfig) -> Iterator[Parameters]:
    """Sets of a datapath's element formats. An instruction can multiply any two formats of a set."""
    kinds: dict[object, list[str]] = {}
    for element in config.elements:
        kinds.setdefault((element.container_bits, element.fixed_point, element.packed_float), []).append(str(element))
    if is_floating(config):
        for words in kinds.values():
            yield anonymous(config), tuple(words)


def _any(bits: Iterable[Value]) -> Value:
    return Cat(bits).any()


class _Running:
    """Sign, exponent and special values of an element in the current format, from the definitions of all formats."""

    def __init__(
        self, config: CoreConfig, index: int, name: str, operand: Value, runs: Sequence[tuple[Value, Element]]
    ) -> None:
        self.sign, self.zero, self.inf, self.nan = (Const(0) for _ in range(4))
        self.exponent: Value = Const(0, EXPONENT_BITS)
        for this, element in runs:
            definition = definition_of(config, element, index, name, operand)
            self.sign = Mux(this, definition.sign_apart, self.sign)
            self.exponent = Mux(this, definition.exponent, self.exponent)
            self.zero = Mux(this, definition.zero, self.zero)
            self.inf, self.nan = Mux(this, definition.inf, self.inf), Mux(this, definition.nan, self.nan)


class _Product:
    """Sign, exponent and special values of the product of two elements."""

    def __init__(self, a: _Running, b: _Running) -> None:
        self.sign = a.sign ^ b.sign
        self.exponent = a.exponent + b.exponent
        self.zero = a.zero | b.zero
        self.nan = a.nan | b.nan | (a.inf & b.zero) | (b.inf & a.zero)
        self.inf = (a.inf | b.inf) & ~self.nan


class _Accumulator:
    """Sign, exponent and special values of the accumulator, in the format of the result."""

    def __init__(self, word: Value, half: Value) -> None:
        f16, f32 = (Definition(Element(fmt, fmt.bits), word[: fmt.bits]) for fmt in _RESULTS)
        self.sign, self.zero = Mux(half, f16.sign, f32.sign), Mux(half, f16.zero, f32.zero)
        self.inf, self.nan = Mux(half, f16.inf, f32.inf), Mux(half, f16.nan, f32.nan)
        self.exponent = Mux(half, f16.exponent - _RESULTS[0].bias, f32.exponent - _RESULTS[1].bias)


class _Stage:
    """The multiply stage with free operands of one kind, and reference values of its products and accumulator.

    `half`: the result is an f16. `offset`: bias of the exponents. `scale_nan`: a block scale is NaN.
    """

    def __init__(self, h: Harness, config: CoreConfig, elements: list[Element]) -> None:
        self.stage = stage = h.add("stage", MultiplyStage(config))
        ports = {name: h.free(name, getattr(stage, name).shape()) for name in ("a", "b", "c", "scale_a", "scale_b")}
        codes = {name: h.free(f"code_{name}", stage.control[name].shape()) for name in "ab"}
        result, scale = h.free("result", ResultCode), h.free("scale", ScaleCode)
        h.m.d.comb += [getattr(stage, name).eq(value) for name, value in ports.items()]
        h.m.d.comb += [
            stage.control.a.eq(codes["a"]),
            stage.control.b.eq(codes["b"]),
            stage.control.result.eq(result),
            stage.control.scale.eq(scale),
        ]
        runs = {name: [(code == config.elements.index(e), e) for e in elements] for name, code in codes.items()}
        for name in "ab":
            h.assume(_any(this for this, _ in runs[name]))
        packed = elements[0].packed_float
        codes_of_results = {ResultCode.F32} if packed else results(config) - {ResultCode.S32}
        # Assumptions exclude combinations that no instruction has: block scales with integers or with wider elements,
        # and f16 results of packed floats.
        h.assume(_any(result == code for code in sorted(codes_of_results, key=lambda code: int(code.value))))
        if elements[0].container_bits > 8 or elements[0].format.is_integer:
            h.assume(scale == ScaleCode.NONE)
        self.products = [
            _Product(*(_Running(config, index, name, ports[name], runs[name]) for name in "ab"))
            for index in range(config.slots_of(elements[0]))
        ]
        self.half = result == ResultCode.F16
        self.c = _Accumulator(ports["c"], self.half)
        scaled = (scale == ScaleCode.UE8M0) & ("ue8m0" in config.scales and not packed)
        scales = [Mux(scaled, ports[name], _UE8M0_BIAS) for name in ("scale_a", "scale_b")]
        self.scale_nan = scaled & _any(code == 0xFF for code in scales)
        biases: Value = Const(0)
        for this, element in (*runs["a"], *runs["b"]):
            biases = biases + Mux(this, 0 if packed else element.format.bias, 0)
        offset = biases - (scales[0] - _UE8M0_BIAS) - (scales[1] - _UE8M0_BIAS)
        self.offset = h.named("offset", offset, ALIGNED_EXPONENT)


@ALIGNMENT.property("e_max", _kinds)
def _largest(h: Harness, config: CoreConfig, words: tuple[str, ...]) -> None:
    """The multiply stage finds E, the largest exponent of e_zero and of the products and accumulator that are not zero.

    None of these exponents is larger than E, and one is equal. The stage also gives the distances of E from the
    exponent of the accumulator and from the smallest normal number, in widths that hold them. The exponent of a zero
    product is zero. The stage flags products and accumulators that are NaN or infinite, and scales that are NaN. All of
    this holds for every encoding.
    """
    elements = [Element.parse(word) for word in words]
    packed = elements[0].packed_float
    running = _Stage(h, config, elements)
    o, c, half, offset, products = running.stage.o, running.c, running.half, running.offset, running.products
    for index, product in enumerate(products):
        h.claim(f"sign{index}", o.signs[index] == product.sign)
    for index, exponent in enumerate(o.exponents):
        expected: Value = Const(0)
        if index < len(products) and not packed:
            expected = Mux(products[index].zero, 0, products[index].exponent)
        h.claim(f"exponent{index}", exponent == expected)
    if elements[0].format.is_integer:
        h.cover("integer", ~products[0].zero)
        return

    products = [] if packed else products
    kept, bits = kept_bits(config, elements[0]), config.alignment_bits
    if packed:
        zero_exponent: Value = Const(zero_exponent_for(kept, grouped=True), ALIGNED_EXPONENT)
    else:
        floors = (zero_exponent_for(bits, half_result=one, floor=config.exponent_floor) for one in (True, False))
        zero_exponent = Mux(half, *floors)
    floor, c_exponent = zero_exponent + offset, h.named("c_exponent", c.exponent + offset, ALIGNED_EXPONENT)
    e_max = h.named("e_max", o.e_max)
    for index, product in enumerate(products):
        h.claim(f"bound{index}", product.zero | (e_max >= product.exponent))
    h.claim("bound_c", c.zero | (e_max >= c_exponent))
    h.claim("bound_floor", e_max >= floor)
    of_products = _any(~product.zero & (e_max == product.exponent) for product in products)
    of_c, at_floor = ~c.zero & (e_max == c_exponent), e_max == floor
    h.claim("attained", of_products | of_c | at_floor)
    some = _any(~product.zero for product in products)
    h.claim("product_fits", ~some | ((e_max >= 0) & (e_max < 1 << _PRODUCT_EXPONENT.width)))
    h.claim("c_grid_exponent", o.c_grid_exponent == c_exponent - (grid_bits(config) - kept))
    shift_amount = e_max - o.c_grid_exponent
    h.claim("c_fits", c.zero | ((shift_amount >= 0) & (shift_amount < 1 << _DISTANCE_BITS)))
    minimum = Mux(half, *(fmt.minimum_exponent for fmt in _RESULTS))
    headroom = e_max - offset - kept + (total_bits(config) - 1) - minimum
    h.claim("headroom", e_max + o.headroom_offset == headroom)
    h.claim("room_fits", (headroom >= 0) & (headroom < headrooms(o.headroom_offset)))
    if packed:
        h.claim("group_fits", (e_max >= -_GROUP_LIMIT) & (e_max < _GROUP_LIMIT))
    h.claim("c_sign", o.c_sign == c.sign)
    nan = _any([*(product.nan for product in products), c.nan, running.scale_nan])
    h.claim("nan", o.nan == nan)
    for name, negative in (("positive_inf", 0), ("negative_inf", 1)):
        infinite = _any([*(p.inf & (p.sign == negative) for p in products), c.inf & (c.sign == negative)])
        h.claim(name, nan | (getattr(o, name) == infinite))
    h.cover("c", of_c & ~of_products & ~at_floor)
    h.cover("floor", at_floor & ~of_products & ~of_c)
    if products:
        h.cover("product", of_products & ~of_c & ~at_floor)
        h.cover("infinite", ~nan & o.positive_inf & o.negative_inf)


def _truncated(value: Value, place: int, shift_amount: Value) -> Value:
    """Return ``value * 2**(place - shift_amount)``, truncated to an integer."""
    padded = Cat(Const(0, place), value) if place >= 0 else value[-place:]
    return Mux(shift_amount >= len(padded), 0, padded >> shift_amount.as_unsigned()[: len(padded).bit_length()])


def _group_of(h: Harness, config: CoreConfig, stage: AlignStage, index: int) -> ProductGroup:
    """Return a reference model of a group of 16 products, with the inputs of a group in the align stage."""
    group, slots = h.add(f"group{index}", ProductGroup(config)), range(index * BLOCK_GROUP, (index + 1) * BLOCK_GROUP)
    if _scaled(config):  # products of integers already include their signs
        h.m.d.comb += group.signs.eq(Cat(stage.i.signs[slot] for slot in slots))
    h.m.d.comb += [port.eq(stage.i.significands[slot]) for port, slot in zip(group.products, slots, strict=True)]
    h.m.d.comb += [
        group.scale.eq(stage.control.scale),
        group.scale_a.eq(stage.scale_a.word_select(index, 8)),
        group.scale_b.eq(stage.scale_b.word_select(index, 8)),
    ]
    return group


@ALIGNMENT.property("terms", _kinds)
def _terms(h: Harness, config: CoreConfig, words: tuple[str, ...]) -> None:
    """The align stage truncates every product, scaled group and the accumulator toward zero at 2**(E - F).

    Products are any values below four, in units of the last place that their format needs. E is any exponent that is at
    least as large as theirs. Integers keep their places. Where groups participate, single products do not.
    """
    elements = [Element.parse(word) for word in words]
    stage = _free_align_stage(h, config, elements)
    e_max, product_groups = _claim_groups(h, config, elements[0], stage)
    _claim_products(h, config, elements, stage, e_max)
    i, o, addends = stage.i, stage.o, stage.o.addends
    if elements[0].format.is_integer:
        h.claim("c", addends.c_term + addends.c_increment == stage.c << integer_place(config))
        h.cover("smallest", stage.c == -(1 << 32))
        return
    shift_amount = h.named("shift_amount", e_max - i.c_grid_exponent)
    h.assume((i.c_significand == 0) | ((shift_amount >= 0) & (shift_amount < 1 << _DISTANCE_BITS)))
    kept = _truncated(i.c_significand, grid_bits(config) + 1 - ACCUMULATOR_BITS, shift_amount)
    h.claim("c", addends.c_term + addends.c_increment == Mux(i.c_sign, -kept, kept))
    h.claim("headroom", o.headroom == (e_max + i.headroom_offset)[: len(o.headroom)])
    h.claim("nan", o.nan == _any([i.nan, *(group.nan for group in product_groups)]))
    h.claim("infinities", Cat(o.positive_inf, o.negative_inf) == Cat(i.positive_inf, i.negative_inf))
    h.cover("negative", i.c_sign & (addends.c_term == -1) & addends.c_increment)


def _free_align_stage(h: Harness, config: CoreConfig, elements: list[Element]) -> AlignStage:
    """Return an align stage with free inputs. The products are below four, and all elements are of one kind."""
    element = elements[0]
    stage = h.add("stage", AlignStage(config), c=h.free("c", signed(33)))
    i = stage.i
    code, scale = h.free("code", stage.control.a.shape()), h.free("scale", ScaleCode)
    h.assume(_any(code == config.elements.index(other) for other in elements))
    h.m.d.comb += [stage.control.a.eq(code), stage.control.scale.eq(scale)]
    for port in ("scale_a", "scale_b"):
        h.m.d.comb += getattr(stage, port).eq(h.free(port, 32))
    for path, _, port in i.signature.flatten(i):
        if path[0] != "significands":
            h.m.d.comb += port.eq(h.free("_".join(map(str, path)), port.shape()))
    for slot in range(config.slots_of(element)):
        if element.fixed_point:
            shape = signed(product_bits(config, slot))
        else:  # below four
            shape = unsigned(kept_bits(config, element) - product_place(config, slot) + 2)
        h.m.d.comb += i.significands[slot].eq(h.free(f"product{slot}", shape))
    return stage


def _claim_groups(
    h: Harness, config: CoreConfig, element: Element, stage: AlignStage
) -> tuple[Value, list[ProductGroup]]:
    """Claim the outputs of the align stage for groups. Return the largest exponent of all terms, and the groups."""
    i, addends = stage.i, stage.o.addends
    count = config.slots_of(element) // BLOCK_GROUP if element.container_bits == 4 else 0
    product_groups = [_group_of(h, config, stage, index) for index in range(count)]
    e_max: Value = i.e_max
    if element.packed_float:
        h.assume((i.e_max >= -_GROUP_LIMIT) & (i.e_max < _GROUP_LIMIT))
        for index, group in enumerate(product_groups):
            larger = group.participates & (group.exponent > e_max)
            e_max = h.named(f"largest{index}", Mux(larger, group.exponent, e_max), ALIGNED_EXPONENT)
        for index, group in enumerate(product_groups):
            place = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
            kept = _truncated(group.magnitude, place, e_max - group.exponent)
            term = addends.group_terms[index] + addends.group_increments[index]
            h.claim(f"group{index}", term == Mux(group.sign, -kept, kept))
    else:
        for index, (term, increment) in enumerate(zip(addends.group_terms, addends.group_increments, strict=True)):
            h.claim(f"no_group{index}", term + increment == 0)
    if element.format.is_integer:
        for index, group in enumerate(product_groups):
            h.claim(f"group{index}", addends.group_sums[index] == group.total)
    return e_max, product_groups


def _claim_products(h: Harness, config: CoreConfig, elements: list[Element], stage: AlignStage, e_max: Value) -> None:
    """Claim the output of the align stage for each product that is not summed in a group."""
    element, floats = elements[0], not elements[0].fixed_point
    i, addends = stage.i, stage.o.addends
    most = max(map(_largest_exponent, elements)) if floats else _INTEGER_EXPONENT
    for slot in range(config.term_slots):
        place = product_place(config, slot)
        product, term = i.significands[slot], addends.terms[slot][: place + product_bits(config, slot)].as_signed()
        aligned, expected = term + addends.increments[slot], Const(0)
        if element.container_bits > 4 and slot < config.slots_of(element):
            exponent = i.exponents[slot] if slot < float_slots(config) else Const(_INTEGER_EXPONENT)
            if floats:
                h.assume((product == 0) | ((exponent <= e_max) & (e_max < 1 << _PRODUCT_EXPONENT.width)))
                h.assume(exponent <= most)
                kept = _truncated(product[: product.shape().width - 1], place, e_max - exponent)
                expected = Mux(i.signs[slot], -kept, kept)
            else:
                h.assume(((product == 0) | (exponent == _INTEGER_EXPONENT)) & ~i.signs[slot])
                expected = product << integer_place(config)
        h.claim(f"term{slot}", aligned == expected)
