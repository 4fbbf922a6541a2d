"""The diagram of a unit: its stages from left to right, their widths, and the pipeline registers between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap

from ..infra.diagram import Diagram, Theme
from ..isa.metadata import UNITS_PER_CHUNK
from ..isa.numerics import BLOCK_GROUP
from ..rtl.config import CoreConfig
from ..rtl.metadata import KEPT_UNITS, selects_layout
from ..rtl.product_group import GROUP_SUM_BITS, SCALED_GROUP_BITS
from ..rtl.round import normalised_bits
from ..rtl.slots import Slot, kept_bits
from ..rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS
from ..rtl.widths import Widths

__all__ = ["CUT_PLACES", "HEADS", "WIDTH", "begin", "draw_cuts", "draw_unit", "right_of"]

WIDTH = 1000
#: Left edge and width of the column of each stage; the key is its title.
HEADS: dict[str, tuple[float, float]] = {
    "operands": (14, 90),
    "select": (136, 112),
    "multiply": (304, 136),
    "align": (486, 136),
    "reduce": (666, 100),
    "round": (806, 104),
    "result": (936, 52),
}
#: Horizontal position of each pipeline register; that of cut ``align`` is inside the sum.
CUT_PLACES = {
    "select": 276,
    "product": 424,
    "multiply": 462,
    "align": 680,
    "tree": 750,
    "reduce": 788,
    "count": 836,
    "normalise": 874,
    "round": 924,
}
_TOP, _ROW, _GAP = 96, 66, 16
_RESULTS = {"F32": "f32 toward zero", "E8M13": "f32 of 13 bits", "F16": "f16 to nearest", "S32": "s32 wrap, clamp"}


@dataclass(frozen=True)
class _Lane:
    """Slots with the same hardware."""

    slots: int
    slot: Slot  #: The first of these slots


def begin(title: str, words: str, height: float, theme: Theme) -> Diagram:
    """Return a diagram with a title, a line of text below it, and the name of each stage above its column."""
    picture = Diagram(WIDTH, height, title, words, theme)
    picture.heading(HEADS["operands"][0], title, words)
    for name, (left, width) in HEADS.items():
        picture.text(left + width / 2, 76, name, size=13, kind="strong")
    return picture


def draw_cuts(picture: Diagram, config: CoreConfig, bottom: float) -> None:
    """Draw the pipeline registers down to `bottom`, each labelled with the cycle that ends there."""
    for cycle, cut in enumerate(config.cuts, 1):
        picture.register(CUT_PLACES[cut], 62, bottom + 6, f"cycle {cycle}")


def right_of(column: str) -> float:
    """Return the right edge of a stage's column."""
    left, width = HEADS[column]
    return left + width


def draw_unit(config: CoreConfig, theme: Theme) -> Diagram:
    """Draw a unit."""
    return _UnitDrawing(config, theme).picture


class _UnitDrawing:
    """Drawing with a row for each kind of slot, then the accumulator, groups of 4-bit products, and exponents."""

    def __init__(self, config: CoreConfig, theme: Theme) -> None:
        self.config, self.widths = config, Widths(config)
        self.lanes = list(_lanes(self.widths))
        rows = len(self.lanes) + 1 + bool(self.widths.groups) + self.widths.floating
        bottom = _place(rows) - _GAP
        words = f"{config.slots} product slots and an accumulator, summed exactly and rounded once; "
        words += f"latency {config.latency} cycles, one step a cycle"
        self.picture = begin(f"unit of {config.name}", words, bottom + 34, theme)
        draw_cuts(self.picture, config, bottom)
        self._draw_operands()
        for number, lane in enumerate(self.lanes):
            self._draw_lane(lane, _place(number))
        self._draw_accumulator(_place(len(self.lanes)))
        if self.widths.groups:
            self._draw_groups(_place(len(self.lanes) + 1))
        self._draw_sum(bottom)
        if self.widths.floating:
            self._draw_exponents(_place(rows - 1))

    def _draw_operands(self) -> None:
        """Draw A, B and the multiplexers, with a bus from each to the slots."""
        picture, config = self.picture, self.config
        left, width = HEADS["operands"]
        height = _place(len(self.lanes)) - _GAP - _TOP
        of_b, bits = height * 0.6, 8 * config.step_bytes
        of_a = (left, _TOP + of_b + 10, width, height - of_b - 10)
        picture.box((left, _TOP, width, of_b), ["B", f"{2 * bits} bits"], "operand")
        picture.box(of_a, ["kept A", f"{bits} bits"] if of_a[3] > 30 else [f"A {bits} bits"], "operand")
        beside = {"b": _TOP + of_b / 2, "a": of_a[1] + of_a[3] / 2}
        buses = {"b": CUT_PLACES["select"] - 16, "a": CUT_PLACES["select"] - 8}
        picture.arrow((left + width, beside["b"]), (buses["b"], beside["b"]), head=False)
        picture.arrow((left + width, beside["a"]), (buses["a"], beside["a"]), head=False)
        self._draw_multiplexers(of_b)
        places = [_place(number) + _ROW / 2 for number in range(len(self.lanes))]
        for operand, shift in (("b", -10), ("a", 10)):
            ends = [beside[operand], *(place + shift for place in places)]
            picture.arrow((buses[operand], min(ends)), (buses[operand], max(ends)), head=False)
            for place in places:
                picture.arrow((buses[operand], place + shift), (HEADS["multiply"][0], place + shift))

    def _draw_multiplexers(self, height: float) -> None:
        config, (left, width) = self.config, HEADS["select"]
        if not config.sparse:
            self.picture.text(left + width / 2, _TOP + height / 2 - 9, "low half, as it is", kind="quiet")
            return
        parts, unit_bits = 2 if config.interleaved else 1, 16 if config.always_wide else 8
        nibbles = len(list(selects_layout(config)))
        inputs = UNITS_PER_CHUNK - (config.mux == "mux3")
        words = [f"{KEPT_UNITS * nibbles // parts} x {inputs}:1", f"units of {parts * unit_bits} bits"]
        self.picture.multiplexer((left, _TOP, width, height), [*words, f"{nibbles} nibbles", "of metadata"])

    def _draw_lane(self, lane: _Lane, top: float) -> None:
        """Draw one kind of slot: its multipliers, and its shifters or the pass-through of its products."""
        slot, middle = lane.slot, top + _ROW / 2
        left, width = HEADS["multiply"]
        words = [f"{lane.slots} x ({slot.significand_bits} x {slot.significand_bits} bits)"]
        words += wrap(" ".join(map(str, slot.elements)), 23)
        self.picture.box((left, top, width, _ROW), words, "logic", copies=lane.slots, size=10)
        left, width = HEADS["align"]
        if slot.index >= self.config.term_slots:
            self.picture.text(left + width / 2, middle, "only in groups", size=10, kind="quiet")
            return
        kept = sorted({kept_bits(self.config, element) for element in slot.floats})
        words = [f"{lane.slots} x {slot.term_bits} bits", "shifted right" if slot.floats else "as they are"]
        words += [f"F {' or '.join(map(str, kept))}"] if kept else []
        self.picture.box((left, top, width, _ROW), words, "logic", copies=lane.slots, size=10)
        self.picture.arrow((right_of("multiply"), middle), (left, middle))
        self.picture.arrow((left + width, middle), (HEADS["reduce"][0], middle))

    def _draw_accumulator(self, top: float) -> None:
        middle = top + _ROW / 2
        left, width = HEADS["operands"]
        self.picture.box((left, top + 8, width, _ROW - 16), ["C", "32 bits"], "operand")
        last, stages = left + width, {}
        if self.widths.floating:
            stages["multiply"] = ["unpack C", f"{ACCUMULATOR_SIGNIFICAND_BITS} bits"]
            stages["align"] = ["shift C", f"{self.widths.total_bits} bits"]
        for column, words in stages.items():
            left, width = HEADS[column]
            self.picture.box((left, top + 8, width, _ROW - 16), words, "logic")
            self.picture.arrow((last, middle), (left, middle))
            last = left + width
        self.picture.arrow((last, middle), (HEADS["reduce"][0], middle))

    def _draw_groups(self, top: float) -> None:
        """Draw the sums of groups of 16 products of 4-bit elements, scaled or not."""
        picture, widths, middle = self.picture, self.widths, top + _ROW / 2
        left, width = HEADS["align"]
        bits = SCALED_GROUP_BITS if widths.scaled_groups else GROUP_SUM_BITS
        words = [f"{widths.groups} groups of {BLOCK_GROUP}", f"4-bit products, {bits} bits"]
        if widths.scaled_groups:
            words.append(f"scaled, shifted, F {self.config.block_alignment_bits}")
            start, its_width = HEADS["operands"]
            picture.box((start, top + 8, its_width, _ROW - 16), ["scales", *self.config.scales], "operand", size=10)
            picture.arrow((start + its_width, middle + 14), (left, middle + 14))
        picture.box((left, top, width, _ROW), words, "logic", copies=widths.groups, size=10)
        start = right_of("multiply")
        picture.text(start, middle - 8, f"{BLOCK_GROUP * widths.groups} products", size=10, anchor="end", kind="quiet")
        picture.arrow((start + 4, middle - 8), (left, middle - 8))
        picture.arrow((left + width, middle), (HEADS["reduce"][0], middle))

    def _draw_exponents(self, top: float) -> None:
        """Draw the largest exponent and the signals that bypass the sum."""
        picture, middle = self.picture, top + _ROW / 2
        left, width = HEADS["multiply"]
        words = ["e_max", f"largest of {self.widths.float_slots} exponents,", "of C's and e_zero"]
        words += ["(block scales offset these)"] if "ue8m0" in self.config.scales else []
        picture.box((left, top, width, _ROW), words, "logic", size=10)
        of_c = len(self.lanes)
        floats = [*(number for number, lane in enumerate(self.lanes) if lane.slot.floats), of_c]
        exponents, shifts = CUT_PLACES["multiply"] - 12, HEADS["align"][0] - 12
        for number in floats:
            place = _place(number) + _ROW / 2 + 14
            picture.arrow((left + width, place), (exponents, place), head=False)
        first = _place(floats[0]) + _ROW / 2
        picture.arrow((exponents, first + 14), (exponents, middle - 12), (left + width, middle - 12))
        picture.arrow((left + width, middle), (shifts, middle), (shifts, first - 14), head=False)
        for number in [*floats, *([of_c + 1] if self.widths.scaled_groups else [])]:
            place = _place(number) + _ROW / 2 - 14
            picture.arrow((shifts, place), (HEADS["align"][0], place))
        target = HEADS["round"][0] + HEADS["round"][1] / 2
        around = middle + 16
        picture.arrow((left + width, around), (target, around), (target, self._rounding(top + _ROW)[1]))
        left, width = HEADS["align"]
        picture.text(left + width / 2, around - 9, "headroom, NaN, infinities", size=10, kind="quiet")

    def _rounding(self, bottom: float) -> tuple[float, float]:
        """Return the top and bottom edge of the rounding box."""
        middle = (_TOP + bottom - (_ROW + _GAP) * self.widths.floating) / 2
        return middle - 60, middle + 60

    def _draw_sum(self, bottom: float) -> None:
        """Draw the sum, its rounding and the result."""
        picture, widths = self.picture, self.widths
        left, width = HEADS["reduce"]
        terms = self.config.term_slots + widths.groups + 1
        words = ["exact sum", f"{terms} terms", "carry-save tree", f"adder, {widths.total_bits} bits"]
        end = bottom - (_ROW + _GAP) * widths.floating
        picture.box((left, _TOP, width, end - _TOP), words, "exact")
        left, width = HEADS["round"]
        start, stop = self._rounding(bottom)
        middle = (start + stop) / 2
        results = [_RESULTS[code.name] for code in sorted(widths.results, key=lambda code: code.name)]
        picture.arrow((right_of("reduce"), middle), (left, middle))
        words = ["round once", f"normalise, {normalised_bits(widths.total_bits)} bits", *results]
        picture.box((left, start, width, stop - start), words, "result", size=10)
        left, width = HEADS["result"]
        picture.arrow((right_of("round"), middle), (left, middle))
        picture.box((left, middle - 24, width, 48), ["D", "32 bits"], "operand")


def _lanes(widths: Widths) -> Iterator[_Lane]:
    """Yield the kinds of slots in order, each with the number of slots built alike."""

    def kind(slot: Slot) -> tuple[object, ...]:
        return tuple(map(str, slot.elements)), slot.significand_bits, slot.term_bits

    for _, group in groupby(widths.slots, key=kind):
        slots = list(group)
        yield _Lane(len(slots), slots[0])


def _place(number: int) -> float:
    return _TOP + number * (_ROW + _GAP)
