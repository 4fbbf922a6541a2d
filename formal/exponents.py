"""Proofs about e_max, the largest exponent of the terms that a step (one cycle of a dot-product unit) adds up."""

from collections.abc import Iterator, Sequence

from amaranth.hdl import Cat, Const, Mux, Shape, Value, unsigned

from ..isa.formats import FORMATS
from ..isa.numerics import BLOCK_GROUP, zero_exponent_for
from ..rtl.cells.max_exponent import MaxExponent
from ..rtl.config import CoreConfig, Element
from ..rtl.multiply import MultiplyStage
from ..rtl.round import ResultCode
from ..rtl.scale import ScaleCode
from .harness import Harness
from .numerics import (
    ALIGNED_EXPONENT,
    EXPONENT_BITS,
    LARGEST_PACKED_EXPONENT,
    c_excess_bits,
    float_slots,
    grid_bits,
    groups,
    is_floating,
    kept_bits,
    parts,
    results,
    total_bits,
)
from .operands import Definition, definition_of
from .properties import Parameters, Topic, anonymous
from .rounding import headrooms

__all__ = ["ALIGNMENT", "DISTANCE_BITS", "GROUP_LIMIT", "PRODUCT_EXPONENT", "kinds", "scales_groups"]

ALIGNMENT = Topic("alignment")
#: Signal shape of the sum of the biased exponents of two elements.
PRODUCT_EXPONENT = unsigned(EXPONENT_BITS + 1)
#: Width in bits of the difference between the largest exponent and the exponent of any term.
DISTANCE_BITS = ALIGNED_EXPONENT.width - 1
#: Upper limit of the magnitude of e_max (largest exponent of the addends) with e2m1 operands, before e_max includes the
#: exponents of sums of 16 products.
GROUP_LIMIT = 256
_UE8M0_BIAS = 127
_RESULTS = FORMATS["f16"], FORMATS["f32"]


def scales_groups(config: CoreConfig) -> bool:
    """Return whether a datapath has packed e2m1, whose products it adds, scales and aligns in groups of 16."""
    return any(element.packed_float for element in config.elements)


def _exponents(config: CoreConfig) -> Iterator[Parameters]:
    """Yield the number, width and signedness of the inputs of each comparator tree that finds a largest exponent.

    One tree compares the products, one the accumulator with e_zero (the lower limit of e_max), and one compares e_max
    with the scaled groups.
    """
    if float_slots(config):
        yield float_slots(config), PRODUCT_EXPONENT.width, "unsigned"
    if is_floating(config):
        yield 2, ALIGNED_EXPONENT.width, "signed"
    if scales_groups(config):
        yield groups(config) + 1, ALIGNED_EXPONENT.width, "signed"


@ALIGNMENT.property("maximum", _exponents)
def _maximum(h: Harness, count: int, bits: int, sign: str) -> None:
    """The maximum tree outputs the largest exponent: no input exceeds the output, and at least one input equals it."""
    shape = Shape(bits, signed=sign == "signed")
    exponents = [h.free(f"exponent{index}", shape) for index in range(count)]
    tree = h.add("tree", MaxExponent(count, shape))
    h.m.d.comb += [port.eq(value) for port, value in zip(tree.exponents, exponents, strict=True)]
    e_max = h.named("e_max", tree.e_max)
    for index, exponent in enumerate(exponents):
        h.claim(f"bound{index}", e_max >= exponent)
    h.claim("attained", Cat(e_max == exponent for exponent in exponents).any())
    h.cover("only_last", Cat(exponent < exponents[-1] for exponent in exponents[:-1]).all())


def kinds(config: CoreConfig) -> Iterator[Parameters]:
    """Yield parameter sets: a datapath, and a set of its element formats that instructions can multiply together."""
    sets: dict[object, list[str]] = {}
    for element in config.elements:
        sets.setdefault((element.container_bits, element.fixed_point, element.packed_float), []).append(str(element))
    if is_floating(config):
        for words in sets.values():
            yield anonymous(config), tuple(words)


class _Running:
    """Sign, exponent and special values of an element whose format the control word selects."""

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
    """The multiply stage with free variables as operands, and reference values of products and accumulator.

    Attribute `half` is 1 if the result is an f16, and `scale_nan` is 1 if a block scale is NaN. `offset` is the biased
    exponent of a product minus its true exponent, which includes the block scales.
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
            h.assume(Cat(this for this, _ in runs[name]).any())
        packed = elements[0].packed_float
        codes_of_results = {ResultCode.F32} if packed else results(config) - {ResultCode.S32}
        # Assumptions exclude combinations that no instruction has: block scales with integers or with elements of
        # more than eight bits, and f16 results of packed 4-bit floats.
        h.assume(Cat(result == code for code in sorted(codes_of_results, key=lambda code: int(code.value))).any())
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
        self.scale_nan = scaled & Cat(code == 0xFF for code in scales).any()
        biases: Value = Const(0)
        for this, element in (*runs["a"], *runs["b"]):
            biases = biases + Mux(this, 0 if packed else element.format.bias, 0)
        offset = biases - (scales[0] - _UE8M0_BIAS) - (scales[1] - _UE8M0_BIAS)
        self.offset = h.named("offset", offset, ALIGNED_EXPONENT)


@ALIGNMENT.property("e_max", kinds)
def _largest(h: Harness, config: CoreConfig, words: tuple[str, ...]) -> None:
    """The multiply stage finds E: the maximum of e_zero and the exponents of all nonzero products and accumulators.

    None of these exponents is larger than E, and at least one of them equals E. The distances of E from the exponents
    of the accumulator and of the smallest normal number are right, and fit the widths of their signals. The exponent of
    a zero product is zero. The stage flags products and accumulators that are NaN or infinite, and scales that are NaN.
    All claims hold for every encoding of the operands.
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
    if packed and parts(config) > 1:
        _claim_group_exponents(h, config, elements[0], running.stage)
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
    of_products = Cat(~product.zero & (e_max == product.exponent) for product in products).any()
    of_c, at_floor = ~c.zero & (e_max == c_exponent), e_max == floor
    h.claim("attained", of_products | of_c | at_floor)
    some = Cat(~product.zero for product in products).any()
    h.claim("product_fits", ~some | ((e_max >= 0) & (e_max < 1 << PRODUCT_EXPONENT.width)))
    h.claim("c_grid_exponent", o.c_grid_exponent == c_exponent - (grid_bits(config) - kept + c_excess_bits(config)))
    shift_amount = e_max - o.c_grid_exponent
    h.claim("c_fits", c.zero | ((shift_amount >= 0) & (shift_amount < 1 << DISTANCE_BITS)))
    minimum = Mux(half, *(fmt.minimum_exponent for fmt in _RESULTS))
    headroom = e_max - offset - kept + (total_bits(config) - 1) - minimum
    h.claim("headroom", e_max + o.headroom_offset == headroom)
    h.claim("room_fits", (headroom >= 0) & (headroom < headrooms(o.headroom_offset)))
    if packed:
        h.claim("group_fits", (e_max >= -GROUP_LIMIT) & (e_max < GROUP_LIMIT))
    h.claim("c_sign", o.c_sign == c.sign)
    nan = Cat([*(product.nan for product in products), c.nan, running.scale_nan]).any()
    h.claim("nan", o.nan == nan)
    for name, negative in (("positive_inf", 0), ("negative_inf", 1)):
        infinite = Cat([*(p.inf & (p.sign == negative) for p in products), c.inf & (c.sign == negative)]).any()
        h.claim(name, nan | (getattr(o, name) == infinite))
    h.cover("c", of_c & ~of_products & ~at_floor)
    h.cover("floor", at_floor & ~of_products & ~of_c)
    if products:
        h.cover("product", of_products & ~of_c & ~at_floor)
        h.cover("infinite", ~nan & o.positive_inf & o.negative_inf)


def _claim_group_exponents(h: Harness, config: CoreConfig, element: Element, stage: MultiplyStage) -> None:
    """Claim that the multiply stage finds the largest exponent of the nonzero products of each group of 16."""
    for group, port in enumerate(stage.o.group_exponents):
        exponents = []
        for slot in range(group * BLOCK_GROUP, (group + 1) * BLOCK_GROUP):
            pair = [definition_of(config, element, slot, name, getattr(stage, name)).magnitude for name in "ab"]
            exponent = sum(Mux(magnitude >= 8, 2, Mux(magnitude >= 4, 1, 0)) for magnitude in pair)
            exponents.append(Mux((pair[0] == 0) | (pair[1] == 0), 0, exponent))
        h.claim(f"group_bound{group}", Cat(port >= exponent for exponent in exponents).all())
        h.claim(f"group_attained{group}", Cat(port == exponent for exponent in exponents).any())
        h.cover(f"largest{group}", port == LARGEST_PACKED_EXPONENT)
    h.claim("c_grid_exponent_fits", stage.o.c_grid_exponent >= -GROUP_LIMIT)
