"""Benches of the datapath components up to the multipliers: metadata decoding, selection, unpacking, products."""

from functools import partial

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray

from ...golden.accumulator import accumulator_exponents, decode_accumulator
from ...golden.decode import WIDE, decode
from ...golden.integer import decode_integer
from ...golden.select import kept_rows, undelivered
from ...isa.formats import FORMATS
from ...isa.metadata import GRANULARITIES, RULES, UNITS_PER_CHUNK, split_nibbles, swap_for_mux3
from ...rtl.cells.operand_mux import OperandMux
from ...rtl.cells.raw import raw_signature
from ...rtl.cells.slot_multiplier import SlotMultiplier
from ...rtl.codes import ELEMENT_CODE_BITS
from ...rtl.config import CoreConfig, Element
from ...rtl.metadata import NibbleDecoder, RuleCode
from ...rtl.order import OrderedSelect, selected_byte
from ...rtl.slots import Slot
from ...rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS, FormatDecoder, Unpack, UnpackAccumulator
from ...rtl.widths import Widths
from ..coverage.operands import routes
from .bench import ComponentBench, Values
from .random_operands import FLOAT_DISTRIBUTIONS, INTEGER_DISTRIBUTIONS, random_codes

__all__ = ["operand_benches"]

#: For each code of a metadata rule, name of the rule and nibbles that the rule defines; unused codes define no nibble.
_RULES = [(code.name.lower(), RULES[code.name.lower()].legal) for code in RuleCode]
_RULES += [("", frozenset())] * (8 - len(_RULES))


def operand_benches(config: CoreConfig) -> dict[str, ComponentBench]:
    """Return the benches of all components from metadata decoder to multipliers. The keys are component names."""
    metadata = NibbleDecoder(config.mux)
    benches = {"metadata": ComponentBench(metadata, _nibbles, partial(_decoded_nibbles, config.mux))}
    widths = sorted({16 if element.wide else 8 for element in config.elements})
    for bits in widths:
        mux = OperandMux(bits)
        benches[f"mux{bits}"] = ComponentBench(mux, partial(_units, bits), _selected_units)
    benches["select"] = ComponentBench(
        OrderedSelect(config), partial(_step_operands, config, widths), partial(_selected_operands, config)
    )
    for slot in slots_of_each_kind(config):
        for side in ("a", "b"):
            unpack = FormattedUnpack(slot, side)
            benches[f"unpack_{side}{slot.index}"] = ComponentBench(
                unpack, partial(_containers, unpack), partial(_unpacked, unpack), ("element",)
            )
        multiply = SlotMultiplier(slot.significand_bits, slot.factor)
        benches[f"multiply{slot.index}"] = ComponentBench(multiply, partial(_raw_pairs, slot), _products)
    if Widths(config).floating:
        halves = any(element.format.name == "f16" for element in config.elements)
        benches["accumulator"] = ComponentBench(
            UnpackAccumulator(), partial(_accumulators, halves), _unpacked_accumulators
        )
    return benches


def slots_of_each_kind(config: CoreConfig) -> list[Slot]:
    """Return one slot (place of one multiplier) for each distinct set of supported formats; slot 0 supports all."""
    last = {slot.elements: slot for slot in Widths(config).slots}
    return [Slot(config, 0), *(slot for elements, slot in last.items() if elements != config.elements)]


class FormattedUnpack(wiring.Component):
    """Device under test: the unpacker of operand ``a`` or ``b`` of one multiplier, with its format decoder.

    Port ``operand`` has all elements of a step, the first in the lowest bits; the slot number determines which of them
    is unpacked. Port ``element`` is the element format code of the control word, and ``raw`` the unpacked element.
    """

    def __init__(self, slot: Slot, side: str) -> None:
        self.slot = slot
        self.side = side
        super().__init__(
            {
                "operand": In(8 * slot.config.step_bytes),
                "element": In(ELEMENT_CODE_BITS),
                "raw": Out(raw_signature(slot.significand_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the unpacker to the format decoder."""
        m = Module()
        m.submodules.formats = formats = FormatDecoder(self.slot.config)
        m.submodules.unpack = unpack = Unpack(self.slot.config, self.slot.index, self.side)
        m.d.comb += [
            formats.element.eq(self.element),
            unpack.operand.eq(self.operand),
            unpack.element.eq(self.element),
            unpack.traits.eq(formats.traits),
        ]
        wiring.connect(m, wiring.flipped(self.raw), unpack.raw)
        return m


def _nibbles(rng: np.random.Generator, count: int) -> Values:
    every = np.arange(16 * len(_RULES))
    drawn = np.resize(rng.permutation(every), count)
    return {"nibble": drawn % 16, "rule": drawn // 16}


def _decoded_nibbles(mux: str, inputs: Values) -> Values:
    rows = []
    for nibble, code in zip(inputs["nibble"].tolist(), inputs["rule"].tolist(), strict=True):
        rule, legal = _RULES[code]
        units, delivered, swapped = routes(rule, mux)
        rows.append((*units[nibble], *(delivered[nibble] << units[nibble]), swapped[nibble], nibble in legal))
    names = ("index0", "index1", "select0", "select1", "swap", "legal")
    return dict(zip(names, np.array(rows, np.int64).T, strict=True))


def _units(bits: int, rng: np.random.Generator, count: int) -> Values:
    units = {f"units__{i}": rng.integers(0, 1 << bits, count) for i in range(UNITS_PER_CHUNK)}
    chosen = rng.integers(-1, UNITS_PER_CHUNK, count)
    return units | {f"select__{i}": (chosen == i).astype(np.int64) for i in range(UNITS_PER_CHUNK)}


def _selected_units(inputs: Values) -> Values:
    return {"output": np.sum([inputs[f"units__{i}"] * inputs[f"select__{i}"] for i in range(UNITS_PER_CHUNK)], axis=0)}


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


def _selected_operands(config: CoreConfig, inputs: Values) -> Values:
    """Compute the expected outputs of operand selection from the golden model, for 16-bit and 8-bit elements."""
    a, b = _cut(inputs["a"], config.step_bytes), _cut(inputs["b"], 2 * config.step_bytes)
    nibbles = split_nibbles(_cut(inputs["nibbles"], config.chunks // 2))
    stored, selected = a.copy(), b[:, : config.step_bytes].copy()
    illegal = np.zeros(len(a), np.int64)
    for width in (2, 1):
        for code, (name, legal) in enumerate(_RULES):
            of_kind = (inputs["wide"] == (width == 2)) & (inputs["sparse"] == 1) & (inputs["rule"] == code)
            where = np.flatnonzero(of_kind)
            if not where.size:
                continue
            some = nibbles[where, : config.chunks // width]
            units = np.ascontiguousarray(b[where]).view(f"<u{width}")
            taken = np.take_along_axis(units, kept_rows(some, GRANULARITIES["2:4"]), axis=1)
            missing = undelivered(some, GRANULARITIES["2:4"], name, config.mux)
            if missing is not None:
                taken[missing] = 0
            own = np.ascontiguousarray(a[where]).view(f"<u{width}")
            if config.mux == "mux3" and name == "plain":
                swapped = np.array([swap_for_mux3(nibble) for nibble in range(16)])[some][..., None]
                pairs = [part.reshape(len(where), -1, 2) for part in (own, taken)]
                own, taken = (np.where(swapped, pair[..., ::-1], pair).reshape(len(where), -1) for pair in pairs)
            stored[where], selected[where] = own.view(np.uint8), taken.view(np.uint8)
            broken = ~np.isin(some, list(legal))
            illegal[where] = (broken << np.arange(some.shape[1])).sum(axis=1)
    return {"stored": _join(stored), "selected": _join(selected), "illegal": illegal}


def _containers(unpack: FormattedUnpack, rng: np.random.Generator, count: int) -> Values:
    """Choose for each vector a format, and the element that the tested unpacker reads. All other bits are random."""
    config = unpack.slot.config
    octets = rng.integers(0, 256, (count, config.step_bytes), np.uint8)
    codes = rng.integers(0, len(config.elements), count)
    for element in unpack.slot.elements:
        where = np.flatnonzero(codes == config.elements.index(element))
        names = INTEGER_DISTRIBUTIONS if element.format.is_integer else FLOAT_DISTRIBUTIONS
        words, place, shift = _container(unpack, octets, element)
        replaced = words.dtype.type(((1 << element.format.bits) - 1) << element.low_bit + shift)
        for name, part in zip(names, np.array_split(where, len(names)), strict=True):
            fresh = random_codes(element.format, name, (len(part),), rng) << element.low_bit + shift
            words[part, place] = words[part, place] & ~replaced | fresh.astype(words.dtype)
    return {"operand": _join(octets), "element": codes}


def _container(unpack: FormattedUnpack, octets: NDArray[np.uint8], element: Element) -> tuple[NDArray, int, int]:
    """Return operand bytes as words, and the word index and bit position of the element that the unpacker reads.

    Operand selection may reorder the bytes of B, which moves containers of at most eight bits.
    """
    bits, slot = element.container_bits, unpack.slot
    byte = slot.index * bits // 8
    if unpack.side == "b" and bits <= 8:
        byte = selected_byte(slot.config, byte, wide=False)
    word_bits = max(8, bits)
    return octets.view(f"<u{word_bits // 8}"), 8 * byte // word_bits, slot.index * bits % word_bits


def _unpacked(unpack: FormattedUnpack, inputs: Values) -> Values:
    slot = unpack.slot
    count = len(inputs["element"])
    names = ("sign", "exponent", "significand", "zero", "special", "inf", "nan")
    fields = {name: np.ma.zeros(count, np.int64) for name in names}
    fields["zero"][:] = 1
    absent = np.ones(count, bool)
    for element in slot.elements:
        where = inputs["element"] == slot.config.elements.index(element)
        words, place, shift = _container(unpack, _cut(inputs["operand"][where], slot.config.step_bytes), element)
        codes = words[:, place] >> shift & (1 << element.container_bits) - 1
        point = 0 if element.fixed_point else slot.point(element, unpack.side)
        for name, values in _raw(element, codes, point).items():
            fields[name][where] = values
        absent[where] = False
    # Mask the fields that the hardware leaves undefined: the exponent of zero, exponent and significand of Inf and NaN,
    # and for an element format that the multiplier does not support, all fields except the zero flag.
    fields["sign"][absent] = np.ma.masked
    fields["exponent"][absent | (fields["zero"] == 1) | (fields["special"] == 1)] = np.ma.masked
    fields["significand"][fields["special"] == 1] = np.ma.masked
    return {f"raw__{name}": values for name, values in fields.items()}


def _raw(element: Element, codes: NDArray, point: int) -> dict[str, NDArray]:
    """Return the unpacker's expected output fields for element codes; float significands have `point` fraction bits."""
    fmt = element.format
    if fmt.is_integer:
        values = decode_integer(codes, fmt).astype(np.int64)
        zeros = np.zeros_like(values)
        return {"sign": zeros, "exponent": zeros + 1, "significand": values, "zero": values == 0}
    terms = decode(codes, fmt, WIDE, element.low_bit)
    plain = codes >> element.low_bit & (1 << fmt.bits) - 1
    classes = np.zeros(codes.shape, np.float32) if terms.classes is None else terms.classes
    exponents = terms.exponents.astype(np.int64)
    scale = 1 if element.packed_float else point - exponents
    significands = np.ldexp(np.abs(terms.values), scale)
    return {
        "sign": plain >> (fmt.bits - 1) & 1,
        "exponent": np.ones_like(exponents) if element.packed_float else exponents + fmt.bias,
        "significand": significands.astype(np.int64),
        "zero": (terms.values == 0) & np.isfinite(classes),
        "special": ~np.isfinite(classes),
        "inf": np.isinf(classes),
        "nan": np.isnan(classes),
    }


def _raw_pairs(slot: Slot, rng: np.random.Generator, count: int) -> Values:
    """Draw unpacked operand pairs (floats or integers) with consistent flags, and extreme or random significands.

    A slot that serves only integers gets float pairs too, as a multiplier depends on widths, not on formats.
    """
    formats = [element.format for element in slot.elements if element.format.is_integer]
    lowest = -max((1 << fmt.bits - 1 for fmt in formats if fmt.signed), default=0)
    highest = max(((1 << fmt.bits - fmt.signed) - 1 for fmt in formats), default=0)
    integer = rng.random(count) < (0.4 if formats else 0)
    magnitude_bits = slot.factor.width - slot.factor.signed
    inputs: Values = {}
    for side in ("a", "b"):
        # Random class of each operand: 0 ordinary number, 1 zero, 2 Inf, 3 NaN.
        kind = rng.choice(4, count, p=(0.8, 0.1, 0.05, 0.05))
        kind = np.where(integer, np.minimum(kind, 1), kind)
        bits = rng.integers(1, magnitude_bits, count, endpoint=True)
        significand = np.maximum(1, rng.integers(0, 1 << bits))
        significand = np.where(rng.random(count) < 0.1, (1 << bits) - 1, significand)
        negative = (rng.random(count) < 0.5) & (lowest < 0)
        whole = np.where(negative, -np.minimum(significand, -lowest), np.minimum(significand, highest))
        ends = rng.random(count) < 0.2
        whole = np.where(ends, rng.choice([lowest, highest] if lowest else [highest], count), whole)
        # Some of the random integers use the full width of the multiplier's signed significand input, beyond the range
        # of the element formats.
        largest = (1 << magnitude_bits) - 1
        signed = rng.integers(1, largest, count, endpoint=True) * rng.choice([-1, 1][not slot.factor.signed :], count)
        whole = np.where(rng.random(count) < 0.3, signed, whole)
        significand = np.where(integer, whole, significand)
        inputs |= {
            f"{side}__sign": np.where(integer, 0, rng.integers(0, 2, count)),
            f"{side}__exponent": rng.integers(0, 256, count),
            f"{side}__significand": np.where(kind == 1, 0, significand),
            f"{side}__zero": kind == 1,
            f"{side}__special": kind >= 2,
            f"{side}__inf": kind == 2,
            f"{side}__nan": kind == 3,
        }
    return {name: values.astype(np.int64) for name, values in inputs.items()}


def _products(inputs: Values) -> Values:
    a, b = ({name[3:]: inputs[name] for name in inputs if name.startswith(side)} for side in ("a__", "b__"))
    value = [np.where(x["nan"], np.nan, np.where(x["inf"], np.inf, x["significand"])) for x in (a, b)]
    with np.errstate(invalid="ignore"):
        product = value[0] * value[1]
    special = (a["special"] | b["special"]).astype(bool)
    fields = {
        "sign": a["sign"] ^ b["sign"],
        "exponent": a["exponent"] + b["exponent"],
        "significand": np.ma.array(a["significand"] * b["significand"], mask=special),
        "zero": np.ma.array(product == 0, mask=np.isnan(product)),
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


def _unpacked_accumulators(inputs: Values) -> Values:
    half = inputs["half"].astype(bool)
    value = np.where(half, *(decode_accumulator(inputs["word"].astype(dtype)) for dtype in (np.uint16, np.uint32)))
    exponents = (accumulator_exponents(value, FORMATS[name], 0) for name in ("f16", "f32"))
    exponent = np.where(half, *exponents).astype(np.int64)
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
