"""Benches of the components between registers and products: metadata, selection, unpacking, multiplication."""

from functools import partial

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray

from ...golden.decode import WIDE, decode
from ...golden.fused import accumulator_exponents
from ...golden.integer import decode_integer
from ...golden.select import kept_rows, undelivered
from ...isa.formats import FORMATS
from ...isa.metadata import GRANULARITIES, RULES, UNITS_PER_CHUNK, indices, reachable, swap_for_mux3
from ...rtl.config import CoreConfig, Element
from ...rtl.metadata import MetadataDecoder, RuleCode
from ...rtl.multiply import Multiply
from ...rtl.select import OperandSelect, Selector
from ...rtl.unpack import (
    ACCUMULATOR_SIGNIFICAND_BITS,
    ELEMENT_CODE_BITS,
    FormatDecoder,
    Unpack,
    UnpackAccumulator,
    raw_signature,
    significand_bits,
)
from ...rtl.widths import Widths
from ..stimulus import FLOAT_DISTRIBUTIONS, INTEGER_DISTRIBUTIONS, random_codes
from .bench import ComponentBench, Values

__all__ = ["operand_benches"]

#: Name and defined nibbles for every value of the field; a code of no rule defines none.
_RULES = [(code.name.lower(), RULES[code.name.lower()].legal) for code in RuleCode]
_RULES += [("", frozenset())] * (8 - len(_RULES))
_ELEMENT_CODES = 1 << ELEMENT_CODE_BITS


def operand_benches(config: CoreConfig) -> dict[str, ComponentBench]:
    """Return the benches of a configuration's components from metadata to products."""
    metadata = MetadataDecoder(config.selector)
    benches = {"metadata": ComponentBench(metadata, _nibbles, partial(_decoded_nibbles, config.selector))}
    widths = sorted({16 if element.container_bits >= 16 else 8 for element in config.elements})
    for bits in widths:
        selector = Selector(bits)
        benches[f"selector{bits}"] = ComponentBench(selector, partial(_units, bits), _selected_units)
    benches["select"] = ComponentBench(
        OperandSelect(config), partial(_step_operands, config, widths), partial(_selected_operands, config)
    )
    # The first slot serves every element, and the last only the narrowest.
    for slot in sorted({0, config.slots - 1}):
        unpack = FormattedUnpack(config, slot)
        benches[f"unpack{slot}"] = ComponentBench(unpack, partial(_containers, unpack), partial(_unpacked, unpack))
        multiply = Multiply(unpack.significand)
        benches[f"multiply{slot}"] = ComponentBench(multiply, partial(_raw_pairs, multiply.significand), _products)
    if Widths(config).floats or Widths(config).packed:
        halves = any(element.format.name == "f16" for element in config.elements)
        benches["accumulator"] = ComponentBench(
            UnpackAccumulator(), partial(_accumulators, halves), _unpacked_accumulators
        )
    return benches


class FormattedUnpack(wiring.Component):
    """The unpacking of one slot with the table of formats that it looks at.

    Parameters
    ----------
    config : CoreConfig
        Formats.
    slot : int
        Which element of the operand.

    Members
    -------
    operand : In(8 * step_bytes)
        All elements of a step, lowest first.
    element : In(4)
        Control code.
    raw : Out(raw_signature(significand))
        The element.
    """

    def __init__(self, config: CoreConfig, slot: int) -> None:
        self.config = config
        self.slot = slot
        self.served = config.elements_of_slot(slot)
        self.significand = significand_bits(self.served)
        super().__init__(
            {
                "operand": In(8 * config.step_bytes),
                "element": In(ELEMENT_CODE_BITS),
                "raw": Out(raw_signature(self.significand)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect both."""
        m = Module()
        elements = self.config.elements
        m.submodules.formats = formats = FormatDecoder(elements)
        coded = [(elements.index(element), element) for element in self.served]
        m.submodules.unpack = unpack = Unpack(self.slot, coded, self.significand, len(self.operand))
        m.d.comb += [
            formats.element.eq(self.element),
            unpack.operand.eq(self.operand),
            unpack.element.eq(self.element),
            unpack.specials.eq(formats.specials),
        ]
        wiring.connect(m, wiring.flipped(self.raw), unpack.raw)
        return m


def _nibbles(rng: np.random.Generator, count: int) -> Values:
    every = np.arange(16 * len(_RULES))
    drawn = np.resize(rng.permutation(every), count)
    return {"nibble": drawn % 16, "rule": drawn // 16}


def _decoded_nibbles(selector: str, given: Values) -> Values:
    rows = []
    for nibble, code in zip(given["nibble"].tolist(), given["rule"].tolist(), strict=True):
        rule, legal = _RULES[code]
        swapped = selector == "mux3" and rule == "plain" and swap_for_mux3(nibble)
        i0, i1 = indices(nibble)[:: -1 if swapped else 1]
        delivered = reachable(nibble, rule, selector)[:: -1 if swapped else 1]
        rows.append((i0, i1, delivered[0] << i0, delivered[1] << i1, swapped, nibble in legal))
    names = ("index0", "index1", "select0", "select1", "swap", "legal")
    return dict(zip(names, np.array(rows, np.int64).T, strict=True))


def _units(bits: int, rng: np.random.Generator, count: int) -> Values:
    units = {f"units__{i}": rng.integers(0, 1 << bits, count) for i in range(UNITS_PER_CHUNK)}
    one_hot = np.array([0, 1, 2, 4, 8])
    return units | {f"select{slot}": one_hot[rng.integers(0, 5, count)] for slot in range(2)}


def _selected_units(given: Values) -> Values:
    units = np.stack([np.zeros_like(given["units__0"]), *(given[f"units__{i}"] for i in range(UNITS_PER_CHUNK))])
    which = np.array([0, 1, 2, 0, 3, 0, 0, 0, 4])
    return {f"output{slot}": np.choose(which[given[f"select{slot}"]], units) for slot in range(2)}


def _step_operands(config: CoreConfig, widths: list[int], rng: np.random.Generator, count: int) -> Values:
    def wide_words(bits: int) -> NDArray:
        return _join(rng.integers(0, 256, (count, bits // 8), np.uint8))

    return {
        "a": wide_words(8 * config.step_bytes),
        "b": wide_words(16 * config.step_bytes),
        "nibbles": wide_words(4 * config.chunks),
        "wide": (rng.integers(0, 2, count) if len(widths) > 1 else np.full(count, widths[0] == 16)).astype(np.int64),
        "sparse": (rng.random(count) < 0.8).astype(np.int64),
        "rule": rng.integers(0, len(_RULES), count),
    }


def _join(octets: NDArray[np.uint8]) -> NDArray:
    return np.array([int.from_bytes(row.tobytes(), "little") for row in octets], object)


def _cut(words: NDArray, size: int) -> NDArray[np.uint8]:
    octets = b"".join(int(word).to_bytes(size, "little") for word in words)
    return np.frombuffer(octets, np.uint8).reshape(len(words), size)


def _selected_operands(config: CoreConfig, given: Values) -> Values:
    """Take the rows that the golden model keeps, element by element of 16 or 8 bits."""
    a, b = _cut(given["a"], config.step_bytes), _cut(given["b"], 2 * config.step_bytes)
    packed = _cut(given["nibbles"], config.chunks // 2)
    nibbles = np.stack([packed & 15, packed >> 4], 2).reshape(len(a), -1)
    stored, selected = a.copy(), b[:, : config.step_bytes].copy()
    illegal = np.zeros(len(a), np.int64)
    for width in (2, 1):
        for code, (name, legal) in enumerate(_RULES):
            of_kind = (given["wide"] == (width == 2)) & (given["sparse"] == 1) & (given["rule"] == code)
            where = np.flatnonzero(of_kind)
            if not where.size:
                continue
            some = nibbles[where, : config.chunks // width]
            units = np.ascontiguousarray(b[where]).view(f"<u{width}")
            taken = np.take_along_axis(units, kept_rows(some, GRANULARITIES["2:4"]), axis=1)
            missing = undelivered(some, GRANULARITIES["2:4"], name, config.selector)
            if missing is not None:
                taken[missing] = 0
            own = np.ascontiguousarray(a[where]).view(f"<u{width}")
            if config.selector == "mux3" and name == "plain":
                swapped = np.array([swap_for_mux3(nibble) for nibble in range(16)])[some][..., None]
                pairs = [part.reshape(len(where), -1, 2) for part in (own, taken)]
                own, taken = (np.where(swapped, pair[..., ::-1], pair).reshape(len(where), -1) for pair in pairs)
            stored[where], selected[where] = own.view(np.uint8), taken.view(np.uint8)
            broken = ~np.isin(some, list(legal))
            illegal[where] = (broken << np.arange(some.shape[1])).sum(axis=1)
    return {"stored": _join(stored), "selected": _join(selected), "illegal": illegal}


def _containers(unpack: FormattedUnpack, rng: np.random.Generator, count: int) -> Values:
    """Draw an element for every vector, and a code of it for the slot; everything around is noise."""
    config = unpack.config
    octets = rng.integers(0, 256, (count, config.step_bytes), np.uint8)
    codes = np.where(
        rng.random(count) < 0.9, rng.integers(0, len(config.elements), count), rng.integers(0, _ELEMENT_CODES, count)
    )
    for code, element in enumerate(config.elements):
        where = np.flatnonzero(codes == code)
        if element not in unpack.served:
            continue
        names = INTEGER_DISTRIBUTIONS if element.format.is_integer else FLOAT_DISTRIBUTIONS
        for name, part in zip(names, np.array_split(where, len(names)), strict=True):
            fresh = random_codes(element.format, name, (len(part),), rng) << element.low_bit
            kept = ((1 << element.format.bits) - 1) << element.low_bit
            _replace(octets, part, unpack.slot, element, fresh, kept)
    return {"operand": _join(octets), "element": codes}


def _replace(octets: NDArray[np.uint8], rows: NDArray, slot: int, element: Element, fresh: NDArray, kept: int) -> None:
    bits = element.container_bits
    if bits == 4:
        shift = 4 * (slot % 2)
        place = octets[rows, slot // 2]
        octets[rows, slot // 2] = place & ~np.uint8(15 << shift) | (fresh << shift).astype(np.uint8)
        return
    words = octets.view(f"<u{bits // 8}")
    words[rows, slot] = words[rows, slot] & ~words.dtype.type(kept) | fresh.astype(words.dtype)


def _element_codes(unpack: FormattedUnpack, operand: NDArray, element: Element) -> NDArray:
    octets = _cut(operand, unpack.config.step_bytes)
    bits = element.container_bits
    if bits == 4:
        return octets[:, unpack.slot // 2] >> np.uint8(4 * (unpack.slot % 2)) & np.uint8(15)
    return np.ascontiguousarray(octets.view(f"<u{bits // 8}")[:, unpack.slot])


def _unpacked(unpack: FormattedUnpack, given: Values) -> Values:
    count = len(given["element"])
    names = ("sign", "exponent", "significand", "zero", "special", "inf", "nan")
    fields = {name: np.ma.zeros(count, np.int64) for name in names}
    fields["zero"][:] = 1
    for element in unpack.served:
        where = given["element"] == unpack.config.elements.index(element)
        codes = _element_codes(unpack, given["operand"][where], element)
        for name, values in _raw(element, codes, unpack.significand).items():
            fields[name][where] = values
    # What a code of an absent element leaves beside its zero means nothing, nor do the fields of no ordinary number.
    absent = ~np.isin(given["element"], [unpack.config.elements.index(element) for element in unpack.served])
    fields["sign"][absent] = np.ma.masked
    fields["exponent"][absent | (fields["zero"] == 1) | (fields["special"] == 1)] = np.ma.masked
    fields["significand"][fields["special"] == 1] = np.ma.masked
    return {f"raw__{name}": values for name, values in fields.items()}


def _raw(element: Element, codes: NDArray, width: int) -> dict[str, NDArray]:
    """Return the raw form of codes of one element, by the golden decoder."""
    fmt = element.format
    if fmt.is_integer:
        values = decode_integer(codes, fmt).astype(np.int64)
        return {"sign": values < 0, "significand": np.abs(values), "zero": values == 0, "exponent": np.ma.masked}
    terms = decode(codes, fmt, WIDE, element.low_bit)
    plain = codes >> element.low_bit & (1 << fmt.bits) - 1
    classes = np.zeros(codes.shape, np.float32) if terms.classes is None else terms.classes
    exponents = terms.exponents.astype(np.int64)
    scale = 1 if element.packed_float else width - 1 - exponents
    significands = np.ldexp(np.abs(terms.values), scale)
    return {
        "sign": plain >> (fmt.bits - 1) & 1,
        "exponent": np.ma.masked if element.packed_float else exponents + fmt.bias,
        "significand": significands.astype(np.int64),
        "zero": (terms.values == 0) & np.isfinite(classes),
        "special": ~np.isfinite(classes),
        "inf": np.isinf(classes),
        "nan": np.isnan(classes),
    }


def _raw_pairs(width: int, rng: np.random.Generator, count: int) -> Values:
    """Draw two operands whose flags agree, with one-hot, full and random significands."""
    given: Values = {}
    for side in ("a", "b"):
        kind = rng.choice(4, count, p=(0.8, 0.1, 0.05, 0.05))  # ordinary, zero, Inf, NaN
        bits = rng.integers(1, width, count, endpoint=True)
        significand = np.maximum(1, rng.integers(0, 1 << bits))
        significand = np.where(rng.random(count) < 0.1, (1 << bits) - 1, significand)
        given |= {
            f"{side}__sign": rng.integers(0, 2, count),
            f"{side}__exponent": rng.integers(0, 256, count),
            f"{side}__significand": np.where(kind == 1, 0, significand),
            f"{side}__zero": kind == 1,
            f"{side}__special": kind >= 2,
            f"{side}__inf": kind == 2,
            f"{side}__nan": kind == 3,
        }
    return {name: values.astype(np.int64) for name, values in given.items()}


def _products(given: Values) -> Values:
    a, b = ({name[3:]: given[name] for name in given if name.startswith(side)} for side in ("a__", "b__"))
    value = [np.where(x["nan"], np.nan, np.where(x["inf"], np.inf, x["significand"])) for x in (a, b)]
    with np.errstate(invalid="ignore"):
        product = value[0] * value[1]
    special = (a["special"] | b["special"]).astype(bool)
    fields = {
        "sign": a["sign"] ^ b["sign"],
        "exponent": a["exponent"] + b["exponent"],
        "significand": np.ma.array(a["significand"] * b["significand"], mask=special),
        "zero": np.ma.array(product == 0, mask=special),
        "special": special,
        "inf": np.isinf(product),
        "nan": np.isnan(product),
    }
    return {f"product__{name}": values for name, values in fields.items()}


def _accumulators(halves: bool, rng: np.random.Generator, count: int) -> Values:
    half = rng.integers(0, 2, count) if halves else np.zeros(count, np.int64)
    names = np.array(FLOAT_DISTRIBUTIONS)[rng.integers(0, len(FLOAT_DISTRIBUTIONS), count)]
    word = rng.integers(0, 1 << 32, count)
    for name in FLOAT_DISTRIBUTIONS:
        for flag, fmt in ((0, FORMATS["f32"]), (1, FORMATS["f16"])):
            where = np.flatnonzero((names == name) & (half == flag))
            codes = random_codes(fmt, name, (len(where),), rng)
            word[where] = word[where] >> fmt.bits << fmt.bits | codes
    return {"word": word, "half": half}


def _unpacked_accumulators(given: Values) -> Values:
    half = given["half"].astype(bool)
    halves = (given["word"] & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
    value = np.where(half, halves, given["word"].astype(np.uint32).view(np.float32))
    exponents = [accumulator_exponents(value, FORMATS[name], 0) for name in ("f32", "f16")]
    exponent = np.where(half, exponents[1], exponents[0]).astype(np.int64)
    finite = np.isfinite(value)
    magnitude = np.abs(np.where(finite, value, 0).astype(np.float64))
    significand = np.ldexp(magnitude, ACCUMULATOR_SIGNIFICAND_BITS - 1 - exponent)
    return {
        "sign": np.signbit(value),
        "zero": value == 0,
        "inf": np.isinf(value),
        "nan": np.isnan(value),
        "exponent": np.ma.array(exponent, mask=~finite | (value == 0)),
        "significand": np.where(finite, significand, 0).astype(np.int64),
    }
