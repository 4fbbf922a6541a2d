"""Picture of one step of a trace: each value is drawn at the part of the datapath that computes the value."""

from textwrap import wrap

from ..errors import OperandError
from ..infra.diagram import Diagram, Theme
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from ..verify.trace import OutputTrace, Product, Step, Term, as_code, as_decimal
from ..verify.trace_output import TracedOutput
from .unit import HEADS, Stages

__all__ = ["draw_step"]

_TOP, _ROW, _PITCH = 92, 22, 25


def draw_step(traced: TracedOutput, number: int = 0, theme: Theme = Theme.AUTO) -> Diagram:
    """Draw the values of one step of a trace in a diagram of the datapath, which a notebook displays.

    The golden trace of `traced`, a result of :func:`sptc.verify.trace_output.trace`, is drawn. `number` is the index
    of the step, from 0. Raise an `OperandError` if the output has no such step.
    """
    steps = len(traced.golden.steps)
    if not 0 <= number < steps:
        raise OperandError(f"the index of the step must be 0 to {steps - 1}, not {number}")
    return _StepDrawing(traced.title, traced.golden, number, theme)


class _StepDrawing(Stages):
    """Drawing of one rounded sum of a trace, with one row per product and a last row for the accumulator."""

    def __init__(self, title: str, trace: OutputTrace, number: int, theme: Theme) -> None:
        self.trace, self.step = trace, trace.steps[number]
        rows = len(self.step.products) + 1
        bottom = _TOP + rows * _PITCH
        words = f"step {number + 1} of {len(trace.steps)}, {trace.model}; {_scale(self.step)}"
        super().__init__(title, words, bottom + 30, theme)
        self.draw_cuts(PRESETS[PRESET_OF_ARCHITECTURE[trace.arch]], bottom)
        for row, product in enumerate(self.step.products):
            self._draw_product(product, _TOP + row * _PITCH)
        self._draw_terms()
        self._draw_result(bottom)

    def _draw_product(self, product: Product, top: float) -> None:
        """Draw the element of A, the element of B that metadata selects, and their product."""
        middle, bits = top + _ROW / 2, self.trace.instruction.container_bits
        self.connect("operands", "multiply", top + _ROW - 2)
        self.stage("operands", top, _ROW, [f"A[{product.element}] {as_code(product.a, bits)}"], "operand", size=10)
        selected = f"B[{product.selected}] {as_code(product.b, bits)}"
        if product.nibble is None:
            self.stage("select", top, _ROW - 5, [selected], "operand", size=10)
        else:
            left, width = HEADS["select"]
            self.multiplexer((left, top, width, _ROW - 5), [f"{product.nibble:04b}: {selected}"], size=9)
        self.connect("select", "multiply", middle - 3)
        self.stage("multiply", top, _ROW, [as_decimal(product.value)], "logic", size=10)

    def _draw_terms(self) -> None:
        """Draw each term next to its products, and the accumulator in the last row."""
        rows = {product.element: row for row, product in enumerate(self.step.products)}
        of_c = len(rows)
        code = as_code(self.step.c, self.trace.instruction.c.bits)
        self.stage("operands", _TOP + of_c * _PITCH, _ROW, [f"C {code}"], "operand", size=10)
        for term in self.step.terms:
            first, last = (rows[term.elements[0]], rows[term.elements[-1]]) if term.elements else (of_c, of_c)
            self._draw_term(term, first, last)
        if not any(term.elements for term in self.step.terms):
            for row in rows.values():
                self.connect("multiply", "reduce", _TOP + row * _PITCH + _ROW / 2)

    def _draw_term(self, term: Term, first: int, last: int) -> None:
        top, height = _TOP + first * _PITCH, (last - first) * _PITCH + _ROW
        for row in range(first, last + 1):
            source = "multiply" if term.elements else "operands"
            self.connect(source, "align", _TOP + row * _PITCH + _ROW / 2)
        if term.shift is None or term.kept is None:
            words = [as_decimal(term.value)]
        else:
            words = [f">> {term.shift}: {term.kept}"]
        self.stage("align", top, height, words, "logic" if term.cut in (None, 0) else "choice", size=10)
        self.connect("align", "reduce", top + height / 2)

    def _draw_result(self, bottom: float) -> None:
        step, middle, (left, width) = self.step, (_TOP + bottom) / 2, HEADS["result"]
        words = ["sum", str(step.total)] if step.total is not None else ["special value", "decides"]
        self.stage("reduce", _TOP, bottom - _TOP - _PITCH + _ROW, words, "exact", size=10)
        self.connect("reduce", "round", middle)
        self.stage("round", middle - 30, 60, wrap(step.rounding, 17), "result", size=10)
        self.connect("round", "result", middle)
        code = as_code(step.d, self.trace.instruction.d.bits)
        self.box((left - 8, middle - 20, width + 16, 40), [code], "operand", size=10)


def _scale(step: Step) -> str:
    if step.e_max is None or step.alignment_bits is None:
        return "exact integers" if step.total is not None else "no sum is formed"
    unit = step.e_max - step.alignment_bits
    return (
        f"e_max {step.e_max}, F {step.alignment_bits}: kept and summed in units of 2^{unit}; orange where bits are cut"
    )
