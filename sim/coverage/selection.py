"""Coverage of operand selection: the nibbles at each slot, swaps by rule, and flags of undefined nibbles."""

import numpy as np
from numpy.typing import NDArray

from ...isa.metadata import RULES, is_wide
from ...rtl.config import CoreConfig
from .groups import Axis, Group
from .operands import Control, Operands, StepReader
from .operations import Operation

__all__ = ["SelectionCoverage"]

_NIBBLES = Axis("nibble", tuple(f"nibble 0b{nibble:04b}" for nibble in range(16)))
_RULES = Axis("rule", tuple(f"rule {rule}" for rule in RULES))


class SelectionCoverage:
    """Groups ``selection`` (one for each width of elements), ``exchange`` and ``legality``.

    ``selection of 16 bits`` and so on: pair of formats x nibble x stored slot of the step. A slot counts if its element
    is nonzero and the four units of its chunk are not all equal, so that another selection would change the product.
    The granularity follows from the width and is named with the pair: a chunk has two stored elements under 2:4, one
    under 1:2 (tf32, two units), four under 4:8 (4-bit elements, two in a unit).

    ``exchange``, only with 3:1 multiplexers: unit width x rule x nibble x slot of the chunk, under the same condition,
    since there the rule decides which slots are swapped and which of them get zero.

    ``legality``: rule x nibble x chunk of a sparse step, whose flag must agree with the rule. Every rule counts on
    every datapath, whatever its formats, as the rule is a field of the control word.

    Source: metadata rules of the PTX ISA (:mod:`sptc.isa.metadata`).

    Parameters
    ----------
    config : CoreConfig
        Datapath.
    operations : sequence of Operation
        Operations of the datapath.
    """

    def __init__(self, config: CoreConfig, operations: tuple[Operation, ...]) -> None:
        self._config = config
        self._pairs: dict[int, list[str]] = {}
        for operation in operations:
            of_width = self._pairs.setdefault(operation.a.container_bits, [])
            if operation.pair not in of_width:
                of_width.append(operation.pair)
        self._selection = {bits: _selection(config, bits, pairs) for bits, pairs in sorted(self._pairs.items())}
        self._widths = [*dict.fromkeys(16 if is_wide(bits) else 8 for bits in self._pairs)]
        self._exchange = _exchange(config, self._widths) if config.mux == "mux3" else None
        chunks = config.chunks if 8 in self._widths else config.chunks // 2
        self._legality = Group(
            config.name,
            "legality",
            "A sparse step held this nibble against this rule, and the flag said what the rule says.",
            (_RULES, _NIBBLES, Axis("chunk", tuple(f"chunk {chunk}" for chunk in range(chunks)))),
        )
        own = [*self._selection.values(), self._exchange, self._legality]
        self.groups = tuple(group for group in own if group)

    def sample(self, operation: Operation, operands: Operands, rule: str) -> None:
        """Count the selections of sparse steps of one operation."""
        bits = operation.a.container_bits
        differ = (operands.candidates != operands.candidates[..., :1]).any(axis=2)
        per_chunk = operation.slots // operands.nibbles.shape[1]
        slots = np.arange(operation.slots)
        chunk = slots // per_chunk
        shows = (_magnitudes(operands.stored, operation) != 0) & differ[:, chunk]
        nibbles = operands.nibbles[:, chunk]
        self._selection[bits].count(self._pairs[bits].index(operation.pair), nibbles, slots, where=shows)
        if self._exchange and per_chunk > 1:
            half = slots % per_chunk * 2 // per_chunk
            width = self._widths.index(16 if is_wide(bits) else 8)
            self._exchange.count(width, [*RULES].index(rule), nibbles, half, where=shows)

    def sample_legality(self, reader: StepReader, steps: NDArray[np.uint32], flags: NDArray, control: Control) -> None:
        """Count the nibbles of steps with one control word, and compare their flags with the rule.

        Parameters
        ----------
        reader : StepReader
            Reader of the same datapath.
        steps : ndarray of uint32, shape (count, words)
            Steps.
        flags : ndarray of unsigned integers, shape (count, chunks)
            Flags in the results of the steps.
        control : Control
            Fields of the control word.

        Raises
        ------
        AssertionError
            A flag contradicts the rule.
        """
        if not control.sparse:
            assert not flags.any(), f"{self._config.name}: a dense step has the flag of an illegal nibble"
            return
        nibbles = reader.nibbles(steps, self._config.elements[control.a].wide)
        chunks = nibbles.shape[1]
        legal = np.isin(np.arange(16), [*RULES[control.rule].legal])
        wrong = (flags[:, :chunks] == 1) == legal[nibbles]
        if wrong.any():
            row, chunk = np.argwhere(wrong)[0]
            verb = "defines" if legal[nibbles[row, chunk]] else "does not define"
            raise AssertionError(
                f"{self._config.name}: chunk {chunk} holds nibble 0b{nibbles[row, chunk]:04b}, which the rule "
                f"{control.rule} {verb}, yet its flag is {int(flags[row, chunk])}"
            )
        assert not flags[:, chunks:].any(), f"{self._config.name}: a chunk that the format does not use is flagged"
        self._legality.count([*RULES].index(control.rule), nibbles, np.arange(chunks))


def _selection(config: CoreConfig, bits: int, pairs: list[str]) -> Group:
    return Group(
        config.name,
        f"selection of {bits} bits",
        "This stored slot, not zero, took its operand by this nibble from units that were not all alike.",
        (
            Axis("pair", tuple(pairs)),
            _NIBBLES,
            Axis("slot", tuple(f"slot {slot}" for slot in range(config.step_bytes * 8 // bits))),
        ),
    )


def _exchange(config: CoreConfig, widths: list[int]) -> Group:
    return Group(
        config.name,
        "exchange",
        "A stored slot of a chunk, not zero, was routed by this nibble under this rule.",
        (
            Axis("units", tuple(f"{width}-bit units" for width in widths)),
            _RULES,
            _NIBBLES,
            Axis("slot", ("slot 0 of the chunk", "slot 1 of the chunk")),
        ),
    )


def _magnitudes(codes: NDArray, operation: Operation) -> NDArray:
    """Return the bits of the elements of A without ignored bits and, for floats, without the sign."""
    fmt = operation.a.format
    bits = fmt.bits if fmt.is_integer else fmt.bits - 1
    return codes >> operation.a.low_bit & ((1 << bits) - 1)
