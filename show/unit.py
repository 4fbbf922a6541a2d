"""Block diagram of a dot-product unit: stages from left to right, their widths, and pipeline registers between them."""

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any

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

__all__ = ["HEADS", "Stages", "UnitDrawing", "name_of"]

_WIDTH = 1000
#: Key: title of a stage. Value: left edge and width, in pixels, of the column in which the stage is drawn.
HEADS: dict[str, tuple[float, float]] = {
    "operands": (14, 90), "select": (136, 112), "multiply": (304, 136), "align": (486, 136), "reduce": (666, 100),
    "round": (806, 104), "result": (936, 52),
}  # fmt: skip
#: Key: cut (position of a pipeline register in the datapath). Value: horizontal position in the drawing, in pixels. The
#: register of ``align`` is inside the box of the sum.
_CUT_PLACES = {
    "select": 276, "product": 424, "multiply": 462, "align": 680, "tree": 750, "reduce": 788, "count": 836,
    "normalise": 874, "round": 924,
}  # fmt: skip
_TOP, _ROW, _GAP = 96, 66, 16
#: Height in pixels below which a drawn multiplexer has room for only two lines of text.
_TALL = 72
_RESULTS = {"F32": "f32 toward zero", "E8M13": "f32 of 13 bits", "F16": "f16 to nearest", "S32": "s32 wrap, clamp"}


def name_of(config: CoreConfig) -> str:
    """Return the name of a configuration for titles. A configuration from command-line options has the name ``own``."""
    return "an own configuration" if config.name == "own" else config.name


def _right_of(column: str) -> float:
    left, width = HEADS[column]
    return left + width


class Stages(Diagram):
    """Diagram with a title, a line of text, and a column per stage with the name of the stage above the column."""

    def __init__(self, title: str, words: str, height: float, theme: Theme) -> None:
        super().__init__(_WIDTH, height, title, words, theme)
        for name, (left, width) in HEADS.items():
            self.text(left + width / 2, 76, name, size=13, kind="strong")

    def draw_cuts(self, config: CoreConfig, bottom: float) -> None:
        """Draw each pipeline register as a line down to `bottom`, labelled with the number of the cycle it ends."""
        for cycle, cut in enumerate(config.cuts, 1):
            self.register(_CUT_PLACES[cut], 62, bottom + 6, f"cycle {cycle}")

    def stage(self, column: str, top: float, height: float, lines: Sequence[str], fill: str, **style: Any) -> None:
        """Draw a box that is as wide as the column of a stage of the datapath."""
        left, width = HEADS[column]
        self.box((left, top, width, height), lines, fill, **style)

    def connect(self, source: str, target: str, y: float) -> None:
        """Draw an arrow from the right edge of one column to the left edge of another column."""
        self.arrow((_right_of(source), y), (HEADS[target][0], y))


class UnitDrawing(Stages):
    """Drawing of a dot-product unit, which computes the dot product of a row of A and a column of B.

    The drawing has one row for each kind of multiplier slot, one for the accumulator, and, if the unit has them, one
    for the groups of 4-bit products and one for the exponents.
    """

    def __init__(self, config: CoreConfig, theme: Theme) -> None:
        self.config, self.widths = config, Widths(config)
        #: Product slots (one multiplier each) of the unit, as lists of neighbouring slots with identical hardware.
        self.lanes = [[*slots] for _, slots in groupby(self.widths.slots, key=_hardware)]
        rows = len(self.lanes) + 1 + bool(self.widths.groups) + self.widths.floating
        bottom = _place(rows) - _GAP
        words = f"{config.slots} product slots and an accumulator, summed exactly and rounded once; "
        words += f"latency {config.latency} cycles, one step per cycle"
        super().__init__(f"unit of {name_of(config)}", words, bottom + 34, theme)
        self.draw_cuts(config, bottom)
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
        """Draw the operands A and B and the multiplexers, with a bus from each operand to the multiplier slots."""
        config, (left, width) = self.config, HEADS["operands"]
        height = _place(len(self.lanes)) - _GAP - _TOP
        of_b, bits = height * 0.6, 8 * config.step_bytes
        of_a = (left, _TOP + of_b + 10, width, height - of_b - 10)
        self.box((left, _TOP, width, of_b), ["B", f"{2 * bits} bits"], "operand")
        self.box(of_a, ["kept A", f"{bits} bits"] if of_a[3] > 30 else [f"A {bits} bits"], "operand")
        beside = {"b": _TOP + of_b / 2, "a": of_a[1] + of_a[3] / 2}
        buses = {"b": _CUT_PLACES["select"] - 16, "a": _CUT_PLACES["select"] - 8}
        self.arrow((left + width, beside["b"]), (buses["b"], beside["b"]), head=False)
        self.arrow((left + width, beside["a"]), (buses["a"], beside["a"]), head=False)
        self._draw_multiplexers(of_b)
        places = [_place(number) + _ROW / 2 for number in range(len(self.lanes))]
        for operand, shift in (("b", -10), ("a", 10)):
            ends = [beside[operand], *(place + shift for place in places)]
            self.arrow((buses[operand], min(ends)), (buses[operand], max(ends)), head=False)
            for place in places:
                self.arrow((buses[operand], place + shift), (HEADS["multiply"][0], place + shift))

    def _draw_multiplexers(self, height: float) -> None:
        config, (left, width) = self.config, HEADS["select"]
        if not config.sparse:
            self.text(left + width / 2, _TOP + height / 2 - 9, "low half of B, unchanged", kind="quiet")
            return
        parts, unit_bits = 2 if config.interleaved else 1, 16 if config.always_wide else 8
        nibbles = len(list(selects_layout(config)))
        count = f"{nibbles} nibble{'s' * (nibbles != 1)}"
        inputs = UNITS_PER_CHUNK - (config.mux == "mux3")
        words = [f"{KEPT_UNITS * nibbles // parts} x {inputs}:1", f"units of {parts * unit_bits} bits"]
        if height > _TALL:
            words += [count, "of metadata"]
        else:
            below = f"{count} of metadata"
            self.text(left + width / 2, _TOP + height + 8, below, size=9, kind="quiet")
        self.multiplexer((left, _TOP, width, height), words)

    def _draw_lane(self, lane: list[Slot], top: float) -> None:
        """Draw one kind of multiplier slot: multipliers, and shifters or a bypass for products that are not aligned."""
        slot, middle = lane[0], top + _ROW / 2
        words = [f"{len(lane)} x ({slot.significand_bits} x {slot.significand_bits} bits)"]
        words += wrap(" ".join(map(str, slot.elements)), 23)
        self.stage("multiply", top, _ROW, words, "logic", copies=len(lane), size=10)
        if slot.index >= self.config.term_slots:
            left, width = HEADS["align"]
            self.text(left + width / 2, middle, "only in groups", size=10, kind="quiet")
            return
        kept = sorted({kept_bits(self.config, element) for element in slot.floats})
        words = [f"{len(lane)} x {slot.term_bits} bits", "shifted right" if slot.floats else "as they are"]
        words += [f"F {' or '.join(map(str, kept))}"] if kept else []
        self.stage("align", top, _ROW, words, "logic", copies=len(lane), size=10)
        self.connect("multiply", "align", middle)
        self.connect("align", "reduce", middle)

    def _draw_accumulator(self, top: float) -> None:
        middle = top + _ROW / 2
        self.stage("operands", top + 8, _ROW - 16, ["C", "32 bits"], "operand")
        last, stages = "operands", {}
        if self.widths.floating:
            stages["multiply"] = ["unpack C", f"{ACCUMULATOR_SIGNIFICAND_BITS} bits"]
            stages["align"] = ["shift C", f"{self.widths.total_bits} bits"]
        for column, words in stages.items():
            self.stage(column, top + 8, _ROW - 16, words, "logic")
            self.connect(last, column, middle)
            last = column
        self.connect(last, "reduce", middle)

    def _draw_groups(self, top: float) -> None:
        """Draw the sums of groups of 16 products of 4-bit elements, with or without block scales."""
        widths, middle, left = self.widths, top + _ROW / 2, HEADS["align"][0]
        bits = SCALED_GROUP_BITS if widths.scaled_groups else GROUP_SUM_BITS
        words = [f"{widths.groups} groups of {BLOCK_GROUP}", f"4-bit products, {bits} bits"]
        if widths.scaled_groups:
            words.append(f"scaled, shifted, F {self.config.block_alignment_bits}")
            self.stage("operands", top + 8, _ROW - 16, ["scales", *self.config.scales], "operand", size=10)
            self.connect("operands", "align", middle + 14)
        self.stage("align", top, _ROW, words, "logic", copies=widths.groups, size=10)
        start = _right_of("multiply")
        self.text(start, middle - 8, f"{BLOCK_GROUP * widths.groups} products", size=10, anchor="end", kind="quiet")
        self.arrow((start + 4, middle - 8), (left, middle - 8))
        self.connect("align", "reduce", middle)

    def _draw_exponents(self, top: float) -> None:
        """Draw the logic that finds the largest exponent, and the signals that bypass the sum."""
        middle, right = top + _ROW / 2, _right_of("multiply")
        words = ["e_max", f"largest of {self.widths.float_slots} exponents,", "of C's and e_zero"]
        words += ["(block scales offset these)"] if "ue8m0" in self.config.scales else []
        self.stage("multiply", top, _ROW, words, "logic", size=10)
        of_c = len(self.lanes)
        floats = [*(number for number, lane in enumerate(self.lanes) if lane[0].floats), of_c]
        exponents, shifts = _CUT_PLACES["multiply"] - 12, HEADS["align"][0] - 12
        for number in floats:
            place = _place(number) + _ROW / 2 + 14
            self.arrow((right, place), (exponents, place), head=False)
        first = _place(floats[0]) + _ROW / 2
        self.arrow((exponents, first + 14), (exponents, middle - 12), (right, middle - 12))
        self.arrow((right, middle), (shifts, middle), (shifts, first - 14), head=False)
        for number in [*floats, *([of_c + 1] if self.widths.scaled_groups else [])]:
            place = _place(number) + _ROW / 2 - 14
            self.arrow((shifts, place), (HEADS["align"][0], place))
        target = HEADS["round"][0] + HEADS["round"][1] / 2
        around = middle + 16
        self.arrow((right, around), (target, around), (target, self._rounding(top + _ROW)[1]))
        left, width = HEADS["align"]
        self.text(left + width / 2, around - 9, "headroom, NaN, infinities", size=10, kind="quiet")

    def _rounding(self, bottom: float) -> tuple[float, float]:
        """Return the vertical positions of the top and bottom edge of the box for rounding."""
        middle = (_TOP + bottom - (_ROW + _GAP) * self.widths.floating) / 2
        return middle - 60, middle + 60

    def _draw_sum(self, bottom: float) -> None:
        """Draw the sum, the rounding and the result of a dot-product unit."""
        widths = self.widths
        terms = self.config.term_slots + widths.groups + 1
        words = ["exact sum", f"{terms} terms", "carry-save tree", f"adder, {widths.total_bits} bits"]
        end = bottom - (_ROW + _GAP) * widths.floating
        self.stage("reduce", _TOP, end - _TOP, words, "exact")
        start, stop = self._rounding(bottom)
        middle = (start + stop) / 2
        results = [_RESULTS[code.name] for code in sorted(widths.results, key=lambda code: code.name)]
        self.connect("reduce", "round", middle)
        words = ["round once", f"normalise, {normalised_bits(widths.total_bits)} bits", *results]
        self.stage("round", start, stop - start, words, "result", size=10)
        self.connect("round", "result", middle)
        self.stage("result", middle - 24, 48, ["D", "32 bits"], "operand")


def _hardware(slot: Slot) -> tuple[object, ...]:
    return tuple(map(str, slot.elements)), slot.significand_bits, slot.term_bits


def _place(number: int) -> float:
    return _TOP + number * (_ROW + _GAP)
