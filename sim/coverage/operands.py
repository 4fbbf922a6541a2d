"""Decoder from step words to the operands of every slot, by the rules of the instruction set alone."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...isa.metadata import UNITS_PER_CHUNK, indices, is_wide, reachable, split_nibbles, swap_for_mux3
from ...rtl.config import CoreConfig
from ...rtl.metadata import RuleCode
from ...rtl.order import byte_order, nibble_order
from ...rtl.round import ResultCode
from ...rtl.scale import ScaleCode
from ...rtl.step import control_layout
from ..engine.steps import step_words

__all__ = ["Control", "Operands", "StepReader"]

_CONTAINERS: dict[int, np.dtype] = {8: np.dtype("u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}


@dataclass(frozen=True)
class Control:
    """Fields of a control word, as names where they have one.

    Attributes
    ----------
    a, b : int
        Indices of the operand formats in the configuration.
    result, rule, scale : str
        Names in lower case; empty for an undefined code.
    saturate, sparse : bool
        Flags.
    """

    a: int
    b: int
    result: str
    saturate: bool
    sparse: bool
    rule: str
    scale: str


@dataclass(frozen=True, eq=False)
class Operands:
    """Operands of steps with the same control word.

    Attributes
    ----------
    a, b : ndarray of unsigned integers, shape (count, slots)
        Containers that each slot of the hardware multiplies, after selection and any swap.
    stored : ndarray, same shape
        A as stored, before any swap.
    candidates : ndarray of uint8 or uint16, shape (count, chunks, 4)
        Units of B at the inputs of the multiplexers.
    all_b : ndarray of unsigned integers, shape (count, 2 * slots)
        All of B, selected or not.
    nibbles : ndarray of uint8, shape (count, chunks)
        Metadata of the chunks.
    c : ndarray of uint32, shape (count,)
        Accumulators.
    overflow : ndarray of bool, shape (count,)
        Overflow of the previous step.
    scale_a, scale_b : ndarray of uint8, shape (count, 4)
        Block scales.
    """

    a: NDArray
    b: NDArray
    stored: NDArray
    candidates: NDArray
    all_b: NDArray
    nibbles: NDArray[np.uint8]
    c: NDArray[np.uint32]
    overflow: NDArray[np.bool_]
    scale_a: NDArray[np.uint8]
    scale_b: NDArray[np.uint8]


@lru_cache(maxsize=16)
def _routes(rule: str, mux: str) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return, by nibble: the unit of each slot of a chunk, whether it is delivered, whether the slots are swapped."""
    units, delivered = np.zeros((16, 2), np.intp), np.zeros((16, 2), np.bool_)
    exchanged = np.zeros(16, np.bool_)
    for nibble in range(16):
        exchanged[nibble] = mux == "mux3" and rule == "plain" and swap_for_mux3(nibble)
        order = slice(None, None, -1) if exchanged[nibble] else slice(None)
        units[nibble] = indices(nibble)[order]
        delivered[nibble] = reachable(nibble, rule, mux)[order]
    return units, delivered, exchanged


class StepReader:
    """Decoder of the step words of a configuration.

    Parameters
    ----------
    config : CoreConfig
        Datapath.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self._words = step_words(config)
        self._fields = {name: (field.offset, (1 << field.width) - 1) for name, field in control_layout()}
        # Amaranth's enumerations have no types, so their names are stored here by code.
        self._names: dict[str, dict[int, str]] = {
            field: {int(member.value): str(name).lower() for name, member in codes.__members__.items()}
            for field, codes in (("result", ResultCode), ("rule", RuleCode), ("scale", ScaleCode))
        }

    def control_words(self, steps: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the control word of every step, without the overflow bit in the same word."""
        return steps[:, self._words.control.start] & np.uint32((1 << self._words.overflow_bit) - 1)

    def control(self, word: int) -> Control:
        """Return the fields of a control word."""
        values = {name: word >> offset & mask for name, (offset, mask) in self._fields.items()}
        named = {name: self._names[name].get(values[name], "") for name in self._names}
        return Control(
            values["a"], values["b"], named["result"], bool(values["saturate"]), bool(values["sparse"]),
            named["rule"], named["scale"],
        )  # fmt: skip

    def nibbles(self, steps: NDArray[np.uint32], wide: bool) -> NDArray[np.uint8]:
        """Return the metadata of the chunks in use, shape (count, chunks); wide elements have half as many chunks."""
        taken = split_nibbles(self._octets(steps, self._words.metadata))
        order = nibble_order(self.config, wide=wide)
        return taken[:, [order.index(chunk) for chunk in range(self.config.chunks // (2 if wide else 1))]]

    def operands(self, steps: NDArray[np.uint32], control: Control) -> Operands:
        """Return the operands of steps that share a control word."""
        bits = self.config.elements[control.a].container_bits
        size, wide = self.config.step_bytes, is_wide(bits)
        unit = _CONTAINERS[16 if wide else 8]
        count = len(steps)
        stored = self._octets(steps, self._words.a)[:, :size].copy().view(unit)
        b = self._column(steps, wide=wide, sparse=control.sparse).view(unit)
        nibbles = self.nibbles(steps, wide)
        candidates = b.reshape(count, -1, UNITS_PER_CHUNK)
        if control.sparse:
            units, delivered, exchanged = _routes(control.rule, self.config.mux)
            selected = np.take_along_axis(candidates, units[nibbles], axis=2)
            if not delivered.all():
                selected = np.where(delivered[nibbles], selected, unit.type(0))
            a = stored.reshape(count, -1, 2)
            if exchanged.any():
                a = np.where(exchanged[nibbles][..., None], a[..., ::-1], a)
        else:
            selected, a = b[:, : stored.shape[1]], stored
        words = self._words
        return Operands(
            _elements(a.reshape(count, -1), bits),
            _elements(selected.reshape(count, -1), bits),
            _elements(stored, bits),
            candidates,
            _elements(b, bits),
            nibbles,
            np.ascontiguousarray(steps[:, words.c.start]),
            (steps[:, words.control.start] >> np.uint32(words.overflow_bit) & np.uint32(1)).astype(np.bool_),
            self._octets(steps, words.scale_a),
            self._octets(steps, words.scale_b),
        )

    def _column(self, steps: NDArray[np.uint32], *, wide: bool, sparse: bool) -> NDArray[np.uint8]:
        """Return the bytes of B in the order of the matrix; in a dense step the upper half is zero."""
        taken = self._octets(steps, self._words.b)
        if not self.config.sparse:
            return taken
        column = np.zeros_like(taken)
        for place, source in enumerate(byte_order(self.config, wide=wide, sparse=sparse)):
            if source is not None:
                column[:, source] = taken[:, place]
        return column

    def _octets(self, steps: NDArray[np.uint32], field: slice) -> NDArray[np.uint8]:
        return np.ascontiguousarray(steps[:, field]).view(np.uint8)


def _elements(units: NDArray, bits: int) -> NDArray:
    """Split rows of units into containers of `bits`."""
    if bits == 4:
        return split_nibbles(units)
    elements: NDArray = np.ascontiguousarray(units).view(_CONTAINERS[bits])
    return elements
