"""Proofs about sums: carry-save trees and their adders, the final adder, sums of 16 products, and widths of sums."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from amaranth.hdl import Cat, Const, Fragment, Module, Mux, Signal, Value, signed

from ..isa.formats import FORMATS
from ..isa.numerics import BLOCK_GROUP
from ..rtl.cells.adder import Adder
from ..rtl.cells.carry_save_tree import CarrySaveTree
from ..rtl.config import CoreConfig, Element
from ..rtl.product_group import ProductGroup
from ..rtl.reduce import ReduceStage
from ..rtl.scale import GroupScale, ScaleCode
from .harness import Harness, opened
from .numerics import (
    LARGEST_SCALED_GROUP,
    SCALED_GROUP_FRACTION_BITS,
    c_excess_bits,
    groups,
    integer_place,
    is_floating,
    kept_bits,
    largest_product,
    parts,
    product_bits,
    product_place,
    total_bits,
)
from .properties import Parameters, Topic, anonymous

__all__ = ["REDUCTION"]

REDUCTION = Topic("reduction")
#: Number of bits by which the sum in the reference model is wider than the sum in the hardware.
_SPARE_BITS = 8
#: Width in bits of the adder that rounds a float: exponent field and fraction, without the sign.
_ROUNDED_BITS = FORMATS["f32"].bits - 1
#: Largest magnitude of a product of two 4-bit integers, and of a product of two packed e2m1 (in units of 1/4).
_PRODUCT_BOUND, _PACKED_BOUND = 15 * 15, 12 * 12
#: Width in bits, with sign, of a product of 4-bit elements.
_GROUP_PRODUCT_BITS = _PRODUCT_BOUND.bit_length() + 1


def _sum_bits(count: int) -> int:
    """Return the width in bits, with sign, of a sum of `count` products of 4-bit elements."""
    return _GROUP_PRODUCT_BITS + (count - 1).bit_length()


def _counts(config: CoreConfig) -> list[int]:
    """Return how many block-scaled products a datapath sums before it truncates: 16 and, in some datapaths, fewer."""
    return list(dict.fromkeys((BLOCK_GROUP, config.group))) if groups(config) else []


class _SeenRows(CarrySaveTree):
    """A carry-save tree that records the widths of the three input words of each carry-save adder in `rows`."""

    def __init__(self, term_bits: Sequence[int], total_bits: int) -> None:
        super().__init__(term_bits, total_bits)
        self.rows: dict[tuple[int, ...], None] = {}
        Fragment.get(self, "formal")

    def row(self, m: Module, first: Value, second: Value, third: Value, lowest: Value) -> tuple[Value, Value]:
        """Build one carry-save adder of the tree, and record the widths of its input words."""
        self.rows[len(first), len(second), len(third)] = None
        return super().row(m, first, second, third, lowest)


class _AnyRows(CarrySaveTree):
    """A carry-save tree with abstract adders. One output word of an adder is free, and the other makes the sum correct.

    In each adder the free variable `constant` replaces a constant input word, so that every addend is a variable.
    `constants` contains the values of the replaced words.
    """

    def __init__(self, h: Harness, term_bits: Sequence[int], total_bits: int) -> None:
        super().__init__(term_bits, total_bits)
        self._free = iter([h.free(f"row{row}", total_bits) for row in range(len(term_bits) - 1)])
        self.constant = h.free("constant", total_bits)
        self.constants: list[int] = []

    def row(self, m: Module, first: Value, second: Value, third: Value, lowest: Value) -> tuple[Value, Value]:
        """Return two words whose sum is that of the inputs. The first may have any value, the second is the rest."""
        word, rest = next(self._free), Signal(self.total_bits)
        value: Value = lowest - word
        for other in (first, second, third):
            if isinstance(other, Const):
                self.constants.append(other.value)
                other = self.constant
            value = value + other
        m.d.comb += rest.eq(value)
        return word, rest


def _step_terms(config: CoreConfig) -> list[int]:
    """Return the widths in bits of all terms that a dot-product unit adds up, in the order of its carry-save tree."""
    narrow = [element for element in config.elements if element.container_bits == 4]
    of_group = LARGEST_SCALED_GROUP.bit_length() + config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
    return [
        *(_term_bits(config, slot) for slot in range(config.term_slots)),
        *[_sum_bits(BLOCK_GROUP) + integer_place(config)] * (groups(config) * any(e.format.is_integer for e in narrow)),
        *[of_group + 1] * (groups(config) * parts(config) * any(e.packed_float for e in narrow)),
        total_bits(config),
    ]


def _term_bits(config: CoreConfig, slot: int) -> int:
    """Return the width in bits of a multiplier's product before the alignment shift, counted from bit 0 of the sum."""
    return product_place(config, slot) + product_bits(config, slot)


def _trees(config: CoreConfig) -> Iterator[Parameters]:
    """Yield, for the carry-save trees of a dot-product unit, the number of terms of each width, and the sum width."""
    runs = [(len(list(alike)), bits) for bits, alike in groupby(_step_terms(config))]
    yield tuple(f"{count}x{bits}" for count, bits in runs), total_bits(config)
    if groups(config):
        for count in _counts(config):
            yield (f"{count}x{_GROUP_PRODUCT_BITS}",), _sum_bits(count)


@REDUCTION.property("tree", _trees)
def _tree(h: Harness, terms: tuple[str, ...], bits: int) -> None:
    """The output words of a carry-save tree add up to the sum of all terms and carry-in bits, modulo ``2**width``.

    The proof has three parts. The outputs of each carry-save adder, at its widths in the tree, have the same sum as its
    three input words and one increment bit. If each adder is replaced by an abstract adder with this property, the
    output words of the tree add up to the increments, a constant, and the terms with inverted sign bits as unsigned
    numbers. The constant cancels the values that the inversion of the sign bits adds.
    """
    term_bits = [int(each) for count, each in (word.split("x") for word in terms) for _ in range(int(count))]
    tree = h.add("tree", opened(_AnyRows(h, term_bits, bits)))
    unsigned = [h.free(f"unsigned{index}", each) for index, each in enumerate(term_bits)]
    added = {}
    for term, word in zip(tree.terms, unsigned, strict=True):
        h.m.d.comb += term.eq(Cat(word[:-1], ~word[-1]))
        added[len(word)] = word == term + (1 << len(word) - 1)
    increments = h.free("increments", len(term_bits))
    h.m.d.comb += tree.increments.eq(increments)
    left = (tree.word0 + tree.word1 + tree.carry)[:bits]
    for addend in (*unsigned, *increments):
        left = (left - addend)[:bits]
    # The claim `sum` must be the first: a solver that uses the other claims in its proof does not find that all terms
    # of the sum cancel.
    h.claim("sum", left == tree.constant)
    for width, holds in added.items():
        h.claim(f"sign_{width}", holds)
    inverted = sum(1 << each - 1 for each in term_bits)
    h.claim("constant", Const((sum(tree.constants) + inverted) % (1 << bits), bits) == 0)
    seen = _SeenRows(term_bits, bits)
    words, lowest = [h.free(f"word{index}", bits) for index in range(3)], h.free("lowest")
    for widths in list(seen.rows):
        cut = [word[:width] for word, width in zip(words, widths, strict=True)]
        total, carry = seen.row(h.m, *cut, lowest)
        kept = cut[0] + cut[1] + cut[2] + lowest
        h.claim("row_" + "_".join(map(str, widths)), (total + carry)[:bits] == kept[:bits])
    h.cover("carries", (words[0] & words[1] & words[2]).all() & lowest)
    h.cover("all", increments.all() & Cat(word == 0 for word in unsigned).all())


def _adders(config: CoreConfig) -> Iterator[Parameters]:
    """Yield the widths of two adders: one adds the output words of the carry-save tree, the other rounds floats."""
    yield (total_bits(config),)
    if is_floating(config):
        yield (_ROUNDED_BITS,)


@REDUCTION.property("adder", _adders)
def _adder(h: Harness, bits: int) -> None:
    """A carry-skip adder outputs the sum of its two input words and its input carry, modulo ``2**width``."""
    words, carry = [h.free(f"word{index}", bits) for index in range(2)], h.free("carry")
    adder = h.add("adder", Adder(bits), word0=words[0], word1=words[1], carry=carry)
    h.claim("sum", h.named("total", adder.total) == (words[0] + words[1] + carry)[:bits])
    h.cover("through", carry & ~words[0].any() & words[1].all())


def _sum(terms: list[Value]) -> Value:
    """Return the sum of values, computed by a balanced tree of additions."""
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [left + right for left, right in pairs] + terms[len(terms) // 2 * 2 :]
    return terms[0]


def _keep_sum(h: Harness, tree: CarrySaveTree, term_bits: list[int], bits: int) -> None:
    """Assume that a carry-save tree preserves the sum of its terms, as `reduction.tree` proves for these widths."""
    assert (list(tree.term_bits), tree.total_bits) == (term_bits, bits)
    total = _sum([term + increment for term, increment in zip(tree.terms, tree.increments, strict=True)])
    words = tree.word0 + tree.word1 + tree.carry
    h.assume(words[: tree.total_bits] == total[: tree.total_bits])


@REDUCTION.property("group", lambda config: [(anonymous(config), count) for count in _counts(config)])
def _group(h: Harness, config: CoreConfig, count: int) -> None:
    """Products that share block scales are summed exactly, and the sum is multiplied by both scales' significands.

    The largest exponent includes the group (`participates`) if at least one product and both scales are not zero, even
    if the sum of the products is zero. The proof assumes that the group's tree preserves the sum, as `reduction.tree`
    proves.
    """
    group = h.add("group", opened(ProductGroup(config, count)), signs=h.free("signs", count))
    _keep_sum(h, group.parts.tree, [_GROUP_PRODUCT_BITS] * count, _sum_bits(count))
    products, terms = [], []
    for index, port in enumerate(group.products):
        product = h.free(f"product{index}", port.shape())
        h.m.d.comb += port.eq(product)
        h.assume((product <= _PRODUCT_BOUND) & (product >= -_PRODUCT_BOUND))
        products.append(product)
        terms.append(Mux(group.signs[index], -product, product))
    total = h.named("total", _sum(terms))
    h.claim("total", group.total == total)
    h.cover("cancels", (total == 0) & Cat(term != 0 for term in terms).any())
    h.cover("largest", total == count * _PRODUCT_BOUND)
    if not config.scales:
        return
    scale, codes = h.free("scale", ScaleCode), [h.free(f"scale_{name}", 8) for name in ("a", "b")]
    scales = h.add("scales", GroupScale(config), scale=scale, scale_a=codes[0], scale_b=codes[1])
    h.m.d.comb += [group.scale.eq(scale), group.scale_a.eq(codes[0]), group.scale_b.eq(codes[1])]
    packed = Cat((product >= 0) & (product <= _PACKED_BOUND) for product in products).all()
    magnitude = Mux(group.total < 0, -group.total, group.total)[: _sum_bits(count) - 1]
    h.claim("magnitude", ~packed | (group.magnitude == magnitude * scales.significand))
    h.claim("sign", group.sign == (group.total < 0))
    h.claim("exponent", group.exponent == scales.exponent)
    h.claim("nan", group.nan == scales.nan)
    some = Cat(term != 0 for term in terms).any()
    h.claim("participates", group.participates == (some & (scales.significand != 0)))
    h.cover("counts_though_zero", packed & group.participates & (total == 0))
    h.cover("zero_scale", some & ~group.participates)


@REDUCTION.property("width", lambda config: [(anonymous(config), word) for word in config.formats])
def _width(h: Harness, config: CoreConfig, word: str) -> None:
    """The sum in a dot-product unit never overflows, even if all terms have the largest magnitude of their format.

    The total is compared with a sum that is eight bits wider. The proof assumes that the tree and the adder of the
    reduce stage are right, as `reduction.tree` and `reduction.adder` prove.
    """
    element, unit = Element.parse(word), integer_place(config)
    slots, product = config.slots_of(element), largest_product(config, element)
    used = {"terms": (0, 0), "group_sums": (0, 0), "group_terms": (0, 0)}
    c_smallest, c_largest = -(1 << 32) << unit, ((1 << 32) - 1) << unit
    if element.packed_float:
        place = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        used["group_terms"] = slots // BLOCK_GROUP * parts(config), LARGEST_SCALED_GROUP << place
    elif element.container_bits == 4:
        used["group_sums"] = slots // BLOCK_GROUP, BLOCK_GROUP * product
    elif element.fixed_point:
        used["terms"] = slots, product << unit
    else:
        used["terms"] = slots, product << kept_bits(config, element) - 2 * element.format.fraction_bits
    if not element.format.is_integer:
        c_largest = (2 << kept_bits(config, element) + element.packed_float * c_excess_bits(config)) - 1
        c_smallest = -c_largest
    stage = h.add("accumulate", opened(ReduceStage(config)))
    tree, adder = stage.parts.tree, stage.parts.adder
    assert adder.bits == total_bits(config)
    _keep_sum(h, tree, _step_terms(config), adder.bits)
    h.assume(adder.total == (adder.word0 + adder.word1 + adder.carry)[: adder.bits])
    integers = element.format.is_integer and element.container_bits == 4
    h.m.d.comb += stage.integer_groups.eq(integers)
    extremes: list[Value] = []
    addends: list[Value] = []
    bounded: list[Value] = []
    for name, (count, bound) in used.items():
        ports = getattr(stage.i, name)
        increments = {"terms": stage.i.increments, "group_terms": stage.i.group_increments}.get(name)
        for index, port in enumerate(ports):
            if index >= count:
                addends.append(Const(0, 1))
                continue
            bits = _term_bits(config, index) if name == "terms" else len(port)
            term = h.free(f"{name}{index}", signed(bits))
            h.m.d.comb += port.eq(term)
            addend: Value = term
            if increments is not None:
                increment = h.free(f"{name}_increment{index}")
                h.m.d.comb += increments[index].eq(increment)
                addend = term + increment
            bounded.append(addend)
            if len(bounded) == (parts(config) if name == "group_terms" else 1):
                # `bound` is the largest magnitude of the sum of all 16 products of a group, not of a part of them.
                whole = _sum(bounded)
                h.assume((whole >= -bound) & (whole <= bound))
                extremes.append(whole == bound)
                addends.append(whole << (unit if name == "group_sums" else 0))
                bounded = []
    c, c_increment = h.free("c", signed(adder.bits)), h.free("c_increment")
    h.m.d.comb += [stage.i.c_term.eq(c), stage.i.c_increment.eq(c_increment)]
    h.assume((c + c_increment >= c_smallest) & (c + c_increment <= c_largest))
    addends.append(c + c_increment)
    extremes.append(addends[-1] == c_largest)
    wide = h.named("wide", _sum(addends), signed(adder.bits + _SPARE_BITS))
    h.claim("exact", h.named("total", stage.total) == wide)
    h.cover("largest", Cat(extremes).all())
