"""The multiply stage computes exact products, and e_max: the largest exponent of products and accumulator."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, PureInterface

from ..isa.formats import FORMATS
from ..isa.numerics import BLOCK_GROUP, zero_exponent_for
from .cells.described import DescribedSignature
from .cells.max_exponent import ALIGNED_EXPONENT_BITS, LEAST_EXPONENT, MaxExponent
from .cells.pipeline import delayed
from .cells.raw import PRODUCT_EXPONENT_BITS
from .cells.slot_multiplier import SlotMultiplier
from .codes import is_one_of
from .config import CoreConfig
from .product_group import GROUP_EXPONENT_BITS, GroupExponent
from .round import SPECIAL_VALUES, ResultCode
from .scale import ExponentOffset, ScaleCode
from .slots import kept_bits
from .step import control_layout
from .unpack import ACCUMULATOR_SIGNIFICAND_BITS, FormatDecoder, Unpack, UnpackAccumulator
from .widths import Widths

__all__ = ["MultiplyStage", "products_signature"]

_EXPONENT = signed(ALIGNED_EXPONENT_BITS)


def products_signature(config: CoreConfig) -> DescribedSignature:
    """Return the signature of the multiply stage's outputs: products, exponents and special values."""
    widths = Widths(config)
    product_bits = max(slot.product_bits for slot in widths.slots)
    significands = "Exact products of significands, sign-extended to the widest."
    exponents = "Sums of biased exponents: zero for products that do not participate in e_max, and two for integers."
    c_grid_exponent = (
        "Exponent of the accumulator with the bias of products, minus the difference between the largest F and F of "
        "the step's format, minus the number of bits by which the accumulator can exceed e_max. The shift amount of "
        "the accumulator is e_max minus c_grid_exponent."
    )
    e_max = "Largest exponent of products, accumulator and e_zero, with the bias of products. Groups are not included."
    ports = {"significands": (Out(signed(product_bits)).array(config.slots), significands)}
    if widths.parts > 1:
        group_exponents = "Largest exponents of the products of each scaled group, without block scales."
        ports["group_exponents"] = Out(GROUP_EXPONENT_BITS).array(widths.scaled_groups), group_exponents
    if widths.floating:
        ports |= {
            "signs": (Out(1).array(config.slots), "Signs of products of floats."),
            "exponents": (Out(PRODUCT_EXPONENT_BITS).array(widths.float_slots), exponents),
            "c_sign": (Out(1), "Sign of the accumulator as a float."),
            "c_significand": (Out(ACCUMULATOR_SIGNIFICAND_BITS), "Significand of the accumulator as a float."),
            "c_grid_exponent": (Out(_EXPONENT), c_grid_exponent),
            "e_max": (Out(_EXPONENT), e_max),
            "headroom_offset": (Out(_EXPONENT), "Headroom (input of the round stage) minus the e_max of all terms."),
            **{name: (Out(1), meaning) for name, meaning in SPECIAL_VALUES.items()},
        }
    return DescribedSignature(ports)


class MultiplyStage(wiring.Component):
    """Unpack and multiply the operands of all multipliers (product slots), and find e_max, the largest exponent.

    Combinational, or with a register after the products and a latency of one enabled cycle.

    Source: products are exact and not normalised, E = max(product exponents, exp(c), e_zero), the priority of NaN and
    infinities: measured on an H200. Block scales: published models (modelled).

    Parameters
    ----------
    config : CoreConfig
        The datapath; its cut ``product`` is in this stage.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.widths = Widths(config)
        bits = 8 * config.step_bytes
        ports = {
            "enable": (In(1, init=1), "Clock enable of the pipeline register."),
            "control": (In(control_layout()), "Control word of the step."),
            "a": (In(bits), "Stored elements of A."),
            "b": (In(bits), "Selected elements of B, in the order of the select stage."),
            "c": (In(32), "Accumulator."),
            "scale_a": (In(8), "Block scale of A of the step."),
            "scale_b": (In(8), "Block scale of B of the step."),
            "o": (Out(products_signature(config)), "Products, exponents and special values."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the product slots (multipliers) of the dot-product unit, and the logic that all slots share."""
        m = Module()
        products = self._multiply(m)
        for port, product in zip(self.o.significands, products, strict=True):
            self._hand_on(m, port, product.significand)
        if self.widths.floating:
            for port, product in zip(self.o.signs, products, strict=True):
                self._hand_on(m, port, product.sign)
            self._find_exponent(m, products[: self.widths.float_slots])
        return m

    def _multiply(self, m: Module) -> list[PureInterface]:
        products, traits, raws = [], {}, []
        for name, code in (("a", self.control.a), ("b", self.control.b)):
            m.submodules[f"format_{name}"] = decoder = FormatDecoder(self.config)
            m.d.comb += decoder.element.eq(code)
            traits[name] = decoder.traits
        for slot in self.widths.slots:
            m.submodules[f"multiply{slot.index}"] = multiply = SlotMultiplier(slot.significand_bits, slot.factor)
            raws.append((multiply.a, multiply.b))
            for name, port in zip("ab", raws[-1], strict=True):
                m.submodules[f"unpack_{name}{slot.index}"] = unpack = Unpack(self.config, slot.index, name)
                m.d.comb += [
                    unpack.operand.eq(getattr(self, name)),
                    unpack.element.eq(getattr(self.control, name)),
                    unpack.traits.eq(traits[name]),
                ]
                wiring.connect(m, unpack.raw, port)
            products.append(multiply.product)
        if self.widths.parts > 1:
            self._find_group_exponents(m, raws)
        return products

    def _find_group_exponents(self, m: Module, raws: list[tuple[PureInterface, PureInterface]]) -> None:
        """Find the largest exponent of the products of each group of packed e2m1."""
        for index, port in enumerate(self.o.group_exponents):
            m.submodules[f"group_exponent{index}"] = group = GroupExponent()
            for place, (a, b) in enumerate(raws[index * BLOCK_GROUP : (index + 1) * BLOCK_GROUP]):
                m.d.comb += [group.a[place].eq(a.significand), group.b[place].eq(b.significand)]
            self._hand_on(m, port, group.exponent)

    def _find_exponent(self, m: Module, floats: list[PureInterface]) -> None:
        """Find e_max, the largest exponent, and the special values NaN and Inf."""
        config, control = self.config, self.control
        # Exponents of products include the biases of their formats and exclude the block scales. The offset for biases
        # and block scales is added to the exponents of the accumulator c and of e_zero (the lower bound of e_max)
        # instead: two additions, not one for each of up to 32 products. Exponents of products arrive late, so two
        # maximum trees run in parallel. `floor` is compared with the last two candidates of the products' tree:
        #
        #     c, e_zero     signed, 11 bits     -> floor -------------------------------+
        #     products      unsigned, 9 bits    -> 2 candidates  -> compare with floor -+-> e_max
        #
        # A zero product enters the tree with the exponent 0. The exponent of a nonzero product is two or more.
        packed = is_one_of(config, control.a, self.widths.packed)
        half = (control.result == ResultCode.F16) if ResultCode.F16 in self.widths.results else Const(0)
        m.submodules.accumulator = accumulator = UnpackAccumulator()
        m.submodules.offset = offset = ExponentOffset(config)
        m.d.comb += [
            accumulator.word.eq(self.c),
            accumulator.half.eq(half),
            offset.a.eq(control.a),
            offset.b.eq(control.b),
            offset.enable.eq((control.scale == ScaleCode.UE8M0) & ~packed),
            offset.scale_a.eq(self.scale_a),
            offset.scale_b.eq(self.scale_b),
        ]
        c_exponent = Signal(_EXPONENT)
        m.d.comb += c_exponent.eq(accumulator.exponent + offset.offset)
        candidates = [
            Mux(accumulator.zero, LEAST_EXPONENT, c_exponent),
            self._zero_exponent(half, packed) + offset.offset,
        ]
        exponents = list(self.o.exponents)
        for port, product in zip(exponents, floats, strict=True):
            self._hand_on(m, port, Mux(product.zero | packed, 0, product.exponent))
        floor = e_max = self._registered(m, self._largest(m, "floor", candidates, _EXPONENT).e_max)
        if floats:
            tree = self._largest(m, "largest_of_products", exponents, PRODUCT_EXPONENT_BITS)
            any_product = self._registered(m, ~(Cat(product.zero for product in floats).all() | packed))
            # `floor`, the maximum of e_zero and the exponent of c, is available before the exponents of products. Only
            # the comparison of its low bits waits for the products. The high bits are compared with zero.
            low, beyond = floor[:PRODUCT_EXPONENT_BITS], floor[PRODUCT_EXPONENT_BITS:-1].any()
            higher = Cat(exponent > low for exponent in tree.finalists).any()
            above = (floor < 0) | (~beyond & higher)
            e_max = Mux(any_product & above, tree.e_max, floor)
        # Headroom = (E - F + total_bits - 1) - exponent of the smallest normal number. The term in parentheses is the
        # exponent of the sum's sign bit. E is `e_max - offset`, and F is `grid_bits - dropped`. All of these values
        # except `e_max` are available early.
        dropped = self._dropped_bits()
        top = self.widths.total_bits - 1 - self.widths.grid_bits
        headrooms = {name: top - FORMATS[name].minimum_exponent for name in ("f16", "f32")}
        c_grid_exponent = c_exponent - dropped
        if self.widths.c_excess_bits:
            c_grid_exponent = c_grid_exponent - self.widths.c_excess_bits
        m.d.comb += self.o.e_max.eq(e_max)
        handed_on = {
            "c_sign": accumulator.sign,
            "c_significand": accumulator.significand,
            "c_grid_exponent": c_grid_exponent,
            "headroom_offset": dropped - offset.offset + Mux(half, headrooms["f16"], headrooms["f32"]),
            # The sign of a NaN product does not matter, because the NaN determines the result.
            "nan": _any([product.nan for product in floats]) | accumulator.nan | offset.nan,
            "positive_inf": _any([product.special & ~product.sign for product in floats])
            | (accumulator.inf & ~accumulator.sign),
            "negative_inf": _any([product.special & product.sign for product in floats])
            | (accumulator.inf & accumulator.sign),
        }
        for name, value in handed_on.items():
            self._hand_on(m, getattr(self.o, name), value)

    def _hand_on(self, m: Module, port: Value, value: Value) -> None:
        """Connect an output that does not depend on e_max, through the pipeline register ``product`` if present."""
        m.d.comb += port.eq(self._registered(m, value))

    def _registered(self, m: Module, value: Value) -> Value:
        """Return a value, delayed by the pipeline register after the products if the datapath has this register."""
        return delayed(m, value, int("product" in self.config.cuts), self.enable, "product")

    def _largest(self, m: Module, name: str, exponents: Sequence[Value], shape: ShapeLike) -> MaxExponent:
        m.submodules[name] = tree = MaxExponent(len(exponents), shape)
        m.d.comb += [port.eq(value) for port, value in zip(tree.exponents, exponents, strict=True)]
        return tree

    def _dropped_bits(self) -> Value:
        """Return how many bits fewer alignment keeps now than in the float format for which it keeps the most."""
        bits: Value = Const(0)
        for element in self.widths.floats:
            if dropped := self.widths.grid_bits - kept_bits(self.config, element):
                bits = bits | Mux(is_one_of(self.config, self.control.a, [element]), dropped, 0)
        return bits

    def _zero_exponent(self, half: Value, packed: Value) -> Value:
        """Return e_zero, the lower limit of the largest exponent e_max, for the formats in the control word."""
        bits, floor = self.config.alignment_bits, self.config.exponent_floor
        value: Value = Const(zero_exponent_for(bits, floor=floor), _EXPONENT)
        if ResultCode.F16 in self.widths.results:
            value = Mux(half, zero_exponent_for(bits, half_result=True, floor=floor), value)
        if self.widths.packed:
            value = Mux(packed, zero_exponent_for(self.config.block_alignment_bits, grouped=True), value)
        return value


def _any(bits: list[Value]) -> Value:
    return reduce(or_, bits, Const(0))
