"""Trace of an output of the hardware, from the values of signals in Amaranth's simulator."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import Instruction
from ..isa.numerics import BLOCK_GROUP
from ..isa.operands import MatrixOperands
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, CoreConfig
from ..rtl.order import byte_order, selected_byte
from ..rtl.product_group import SCALED_GROUP_FRACTION_BITS
from ..rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS
from ..rtl.widths import Widths
from ..sim.coverage.operands import operation_of
from ..sim.engine.emulation import taken, widen_fp8
from ..sim.engine.engine import Engine, Execution, multiply_with
from ..sim.engine.signals import Signals, WatchedRow
from .replay import as_number
from .trace import OutputTrace, Product, Step, Term, integer_step, selected_halves, special_term

__all__ = ["hardware_traces"]

_ROUNDINGS = {"F32": "RZ-f32", "E8M13": "RZ-E8M13", "F16": "RNE-f16"}


def hardware_traces(
    instruction: Instruction, arch: str, operands: MatrixOperands, row: WatchedRow | None = None
) -> Iterator[OutputTrace]:
    """Yield the trace of every output by tile, row and column, as the datapath of an architecture computes it.

    `operands` are as for :func:`~sptc.verify.trace_golden.golden_traces`. `row` is the simulated row of the datapath,
    if it is already built. Raise a `BackendError` if the datapath lacks a format.
    """
    config = PRESETS[PRESET_OF_ARCHITECTURE[arch]]
    parts: list[Instruction] = []

    def compute(unit: Engine) -> NDArray:
        def execute(part: Instruction, matrices: MatrixOperands) -> Execution:
            parts.append(part)
            return unit.multiply(part, matrices)

        return multiply_with(execute, unit.config, instruction, arch, operands).d

    codes, signals = (row or WatchedRow(config)).run(compute)
    emulated = parts[0] is not instruction
    for number, place in enumerate(np.ndindex(*codes.shape)):
        step_signals = iter(signals[number :: codes.size])
        c, d, steps = int(operands.c[place]), int(codes[place]), []
        for odd, part in enumerate(parts):
            elements, rows = _places(instruction, part, odd)
            steps += [
                _View(config, instruction, part, next(step_signals), elements, rows, first).step()
                for first in range(0, part.stored_k, operation_of(config, part).slots)
            ]
        if instruction.a.is_integer:
            steps = [_merged(steps, c if emulated else steps[0].c, instruction, d, emulated)]
        yield OutputTrace(
            instruction=instruction,
            arch=arch,
            model="hardware",
            steps=tuple(steps),
            added=c if emulated and not instruction.a.is_integer else None,
            d=d,
        )


def _places(i: Instruction, part: Instruction, odd: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of stored elements of A and rows of B that instruction `part`, a part of `i`, multiplies."""
    elements, rows = np.arange(i.stored_k), np.arange(i.k)
    if part is i:
        return elements, rows
    if i.a.is_integer:
        return taken(elements, 1, odd, axis=0), taken(rows, 1, odd, axis=0)
    return taken(elements, 2, odd, axis=0), taken(rows, 4 if i.sparse else 2, odd, axis=0)


def _merged(steps: Sequence[Step], c: int, i: Instruction, d: int, emulated: bool) -> Step:
    """Merge the partial sums of an integer instruction into one, because the order of an exact sum is irrelevant."""
    total = steps[-1].total
    assert total is not None
    products = sorted((product for step in steps for product in step.products), key=lambda product: product.element)
    return integer_step(tuple(products), c, total + int(as_number(c, i.c)) if emulated else total, d, i)


@dataclass(eq=False)
class _View:
    """Converts the hardware signals of one cycle, which computes a part of one output, to a trace record."""

    config: CoreConfig
    #: Traced instruction, and instruction that the hardware executes; with emulation, it computes only some products.
    instruction: Instruction
    part: Instruction
    signals: Signals
    #: Indices, in the traced instruction, of the stored elements of A and the rows of B of the hardware instruction.
    elements: NDArray[np.intp]
    rows: NDArray[np.intp]
    first: int  #: Index, in the hardware instruction, of the first stored element of A in this step

    def __post_init__(self) -> None:
        part, signals = self.part, self.signals
        self._operation, self._widths = operation_of(self.config, part), Widths(self.config)
        self._floating = not part.a.is_integer
        self._count = min(self._operation.slots, part.stored_k - self.first)  # number of products in the step
        # Number of groups of products that share block scales. 0 if elements are not packed e2m1.
        self._groups = self._count // BLOCK_GROUP if self._operation.grouped else 0
        self._special = False  # whether a NaN or Inf decides the result of the step
        if self._floating:
            flags = [("unit.multiply", f"o__{name}") for name in ("nan", "positive_inf", "negative_inf")]
            flags += [(f"unit.align.group{g}", "nan") for g in range(self._groups)]
            self._special = any(signals.unsigned(*flag) for flag in flags)
            # For integers, the signals of exponents have no meaning.
            self._biases = part.a.bias + part.b.bias
            self._offset = signals.signed("unit.multiply", "offset")
            place = ("unit.align", "e_max") if self._widths.scaled_groups else ("unit.multiply", "o__e_max")
            self._e_max = signals.signed(*place) - self._offset  # largest exponent without the datapath's bias

    def step(self) -> Step:
        """Return the trace of this cycle of the hardware, as a record."""
        rounding = self.signals.word("unit.multiply", "control.result")
        total = self.signals.signed("unit.reduce.adder", "total")
        elements = list(self.elements)  # order of the products in the trace
        pairs = sorted(
            ((self._element(slot), slot) for slot in range(self._count)), key=lambda pair: elements.index(pair[0])
        )
        ordinary = self._floating and not self._special
        return Step(
            c=self.signals.unsigned("unit.multiply", "c") & (1 << self.part.c.bits) - 1,
            products=tuple(self._product(element, slot) for element, slot in pairs),
            terms=tuple(self._terms(pairs)) if self._floating else (),
            e_max=self._e_max if ordinary else None,
            alignment_bits=self._operation.alignment_bits if ordinary else None,
            total=total if ordinary else None if self._floating else total >> self._widths.integer_bits,
            rounding=_ROUNDINGS.get(rounding, rounding),
            d=self.signals.unsigned("unit.round", "output") & (1 << self.part.d.bits) - 1,
        )

    def _byte(self, slot: int) -> int:
        return slot * self.part.container_bits // 8

    def _lane(self, byte: int) -> tuple[int, int]:
        """Return the index of the metadata decoder that gets a stored byte of A, and the byte's index (0, 1) in it."""
        unit = 2 if self.part.wide else 1
        chunk, kept = byte // (2 * unit), byte // unit % 2
        return (2 * chunk if self.part.wide and self.config.interleaved else chunk), kept

    def _element(self, slot: int) -> int:
        """Return the index of the stored element of A that a multiplier gets. The decoder may swap two neighbours."""
        byte = self._byte(slot)
        lane, kept = self._lane(byte)
        if self.config.mux == "mux3" and self.signals.unsigned(f"decode.metadata{lane}", "swap"):
            unit = 2 if self.part.wide else 1
            moved = byte + (-unit if kept else unit)
            slot += (moved - byte) * 8 // self.part.container_bits
        return int(self.elements[self.first + slot])

    def _source(self, byte: int) -> int | None:
        """Return the index of the byte of B selected for a stored byte of A in this cycle; None if none is selected."""
        place = selected_byte(self.config, byte, wide=self.part.wide)
        size = 2 if self.config.always_wide or self.config.interleaved else 1
        parts = 2 if self.config.interleaved else 1
        group, kept = place // size // 2, place // size % 2
        lane = parts * group + (place % size if parts == 2 else 0)
        select = self.signals.unsigned(f"decode.metadata{lane}", f"select{kept}")
        if not select:
            return None
        taken_from = (4 * group + select.bit_length() - 1) * size + place % size
        return byte_order(self.config, wide=self.part.wide, sparse=bool(self.part.sparse))[taken_from]

    def _selected(self, slot: int) -> str:
        bits, byte = self.part.container_bits, self._byte(slot)
        before = self.first * (2 if self.part.sparse else 1) * bits // 8  # bytes per column of B in earlier steps
        if bits == 32:
            sources = (self._source(byte), self._source(byte + 2))
            return selected_halves(*(None if source is None else (source + before) // 2 for source in sources))
        source = self._source(byte)
        if source is None:
            return "none"
        inside = slot * bits % 8 // bits if bits < 8 else 0
        return str(int(self.rows[(source + before) * 8 // bits + inside]))

    def _product(self, element: int, slot: int) -> Product:
        i = self.instruction
        chunk = element // i.granularity.stored if i.granularity else None
        lane, _ = self._lane(self._byte(slot))
        return Product(
            element=element,
            chunk=chunk,
            nibble=None if chunk is None else self.signals.unsigned(f"decode.metadata{lane}", "nibble"),
            selected=self._selected(slot),
            a=self._code("a", self._byte(slot), slot),
            b=self._code("b", selected_byte(self.config, self._byte(slot), wide=self.part.wide), slot),
            value=self._value(slot),
        )

    def _code(self, operand: str, byte: int, slot: int) -> int:
        bits = self.part.container_bits
        word = self.signals.unsigned("unit.multiply", operand)
        code = word >> (8 * byte + slot * bits % 8) & (1 << bits) - 1
        if self.part is self.instruction:
            return code
        fmt = getattr(self.instruction, operand)
        if fmt.is_integer:
            return code & (1 << fmt.bits) - 1
        octets = np.arange(256, dtype=np.uint8)
        return int(np.flatnonzero(widen_fp8(octets, fmt.name) == code)[0])

    def _value(self, slot: int) -> float | int:
        component = f"unit.multiply.multiply{slot}"
        significand = self.signals.signed(component, "product__significand")
        if not self._floating:
            return significand
        sign = -1 if self.signals.unsigned(component, "product__sign") else 1
        if self._groups:  # each factor has one fraction bit, so the product has two fraction bits
            return sign * significand / 4
        if self.signals.unsigned(component, "product__nan"):
            return float("nan")
        if self.signals.unsigned(component, "product__special"):
            return sign * float("inf")
        if self.signals.unsigned(component, "product__zero"):
            return 0.0
        place = self._widths.slots[slot]
        point = place.point(self._operation.a, "a") + place.point(self._operation.b, "b")
        exponent = self.signals.unsigned(component, "product__exponent") - self._biases - point
        return float(np.ldexp(float(sign * significand), exponent))

    def _terms(self, pairs: Sequence[tuple[int, int]]) -> Iterator[Term]:
        groups = range(self._groups)
        names = [tuple(pairs[BLOCK_GROUP * g + at][0] for at in range(BLOCK_GROUP)) for g in groups]
        names = names or [(element,) for element, _ in pairs]
        if self._special:
            yield from map(special_term, [*names, ()])
            return
        for place, name in enumerate(names):
            yield self._group(place, name) if self._groups else self._aligned(pairs[place][1], name)
        yield self._accumulator()

    def _term(self, elements: tuple[int, ...], value: float, exponent: int | None, shift: int, kept: int) -> Term:
        bits = self._operation.alignment_bits
        return Term(
            elements=elements,
            value=value,
            exponent=exponent,
            shift=None if exponent is None else min(shift, bits + 2),
            kept=kept,
            cut=float(np.ldexp(value, bits - self._e_max)) - kept,
        )

    def _aligned(self, slot: int, elements: tuple[int, ...]) -> Term:
        component, place = f"unit.multiply.multiply{slot}", self._widths.slots[slot]
        exponent = self.signals.unsigned(component, "product__exponent") - self._offset
        value = float(np.ldexp(self._value(slot), self._biases - self._offset))  # exact product, block scales included
        zero = self.signals.unsigned(component, "product__zero")
        shift = self.signals.unsigned(f"unit.align.align{slot}", "shift_amount")
        kept = self.signals.signed("unit.align", f"o__addends__terms__{slot}", place.term_bits)
        kept += self.signals.unsigned("unit.align", f"o__addends__increments__{slot}")
        return self._term(elements, value, None if zero else exponent, shift, kept)

    def _group(self, number: int, elements: tuple[int, ...]) -> Term:
        component = f"unit.align.group{number}"
        sign = -1 if self.signals.unsigned(component, "sign") else 1
        exponent = self.signals.signed(component, "exponent")
        magnitude = self.signals.unsigned(component, "magnitude")
        value = float(np.ldexp(float(sign * magnitude), exponent - SCALED_GROUP_FRACTION_BITS))
        counts = self.signals.unsigned(component, "participates")
        first = number * self._widths.parts
        shift = self.signals.unsigned(f"unit.align.align_group{first}", "shift_amount")
        increments = self.signals.unsigned("unit.align", "o__addends__group_increments")
        kept = sum(
            self.signals.signed("unit.align", f"o__addends__group_terms__{part}") + (increments >> part & 1)
            for part in range(first, first + self._widths.parts)
        )
        return self._term(elements, value, exponent if counts else None, shift, kept)

    def _accumulator(self) -> Term:
        component = "unit.multiply.accumulator"
        sign = -1 if self.signals.unsigned(component, "sign") else 1
        exponent = self.signals.signed(component, "exponent")
        significand = self.signals.unsigned(component, "significand")
        value = float(np.ldexp(float(sign * significand), exponent - ACCUMULATOR_SIGNIFICAND_BITS + 1))
        dropped = self._widths.grid_bits - self._operation.alignment_bits + self._widths.c_excess_bits
        shift = self.signals.unsigned("unit.align.align_c", "shift_amount") - dropped
        kept = self.signals.signed("unit.align", "o__addends__c_term")
        kept += self.signals.unsigned("unit.align", "o__addends__c_increment")
        return self._term((), value, None if self.signals.unsigned(component, "zero") else exponent, shift, kept)
