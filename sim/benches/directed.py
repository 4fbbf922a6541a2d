"""Directed test vectors, stored as data; each vector detects a hardware fault that random vectors of benches missed.

``directed.json`` has two lists. A component vector has the input port values of one component, found by a prover. A dot
product has elements, block scales and an accumulator. The bench computes a dot product with every dense or sparse
instruction that has its formats; all other products of the instruction are zero. The dot products test that the
exponent of a zero accumulator does not count in the largest exponent, and that a NaN scale of any group gives NaN.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Const

from ...isa.instructions import Instruction
from ...isa.metadata import nibble
from ...isa.operands import MatrixOperands
from ...operands.registers import CONTAINERS
from ...rtl.config import CoreConfig
from ...rtl.round import ResultCode, RoundStage
from ..engine.ports import ports_of
from .bench import ComponentBench, Values

__all__ = ["DotProduct", "directed_operands", "dot_products", "with_directed_vectors"]

#: Metadata nibble that selects the first two of the four units of B in a chunk; every metadata rule defines it.
_FIRST_UNITS = nibble(0, 1)


@dataclass(frozen=True, kw_only=True)
class DotProduct:
    """Operands of one dot product from ``directed.json``, which a dot-product unit computes in one cycle."""

    formats: tuple[str, str, str]  #: Names of the number formats of A, B and D; C has the format of D
    container_bits: int  #: Number of bits of the container in which an element of A or B is stored
    scale_format: str | None = None  #: Name of the block scale format; None without block scales
    #: Codes of A and B along K, `container_bits` bits each; elements of A and B with equal index are multiplied.
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int  #: Code of the accumulator in the format of D
    #: Block scale codes of A and of B; each code applies to an equal share of the products. Empty without block scales.
    scale_a: tuple[int, ...] = ()
    scale_b: tuple[int, ...] = ()

    def fits(self, instruction: Instruction) -> bool:
        """Return whether an instruction can compute this dot product: equal formats, and at least as many products."""
        i = instruction
        return (
            (i.a.name, i.b.name, i.d.name) == self.formats
            and i.c == i.d
            and i.container_bits == self.container_bits
            and (i.scale_format.name if i.scale_format else None) == self.scale_format
            and len(self.scale_a) == (i.scale_size or 0)
            and i.stored_k >= len(self.a)
        )

    def operands(self, instruction: Instruction, rows: int, columns: int) -> MatrixOperands:
        """Return operand matrices for which every element of D is the dot product of `a` and `b` plus `c`."""
        i = instruction
        a, b = np.zeros((rows, i.stored_k), np.int64), np.zeros((i.k, columns), np.int64)
        a[:, : len(self.a)] = self.a
        slots = np.arange(len(self.b))
        if i.granularity:
            slots = slots // i.granularity.stored * i.granularity.logical + slots % i.granularity.stored
        b[slots] = np.array(self.b)[:, None]
        scales = [
            np.tile(np.array(codes, np.uint8), (1, lines, 1)) if codes else None
            for codes, lines in ((self.scale_a, rows), (self.scale_b, columns))
        ]
        nibbles = np.full((1, rows, i.chunks), _FIRST_UNITS, np.uint8) if i.rule else None
        container = CONTAINERS[i.container_bits]
        c = np.full((1, rows, columns), self.c, CONTAINERS[i.c.bits])
        return MatrixOperands(a[None].astype(container), b[None].astype(container), c, nibbles, *scales)


@cache
def _stored() -> dict[str, list[dict[str, Any]]]:
    return json.loads(Path(__file__).with_name("directed.json").read_text(encoding="utf-8"))


@cache
def dot_products() -> tuple[DotProduct, ...]:
    """Return all dot products in the file ``directed.json``."""
    return tuple(
        DotProduct(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
        for fields in _stored()["dot_products"]
    )


def directed_operands(instruction: Instruction, rows: int, columns: int) -> Iterator[MatrixOperands]:
    """Yield operand matrices of an instruction for each stored dot product that the instruction can compute."""
    yield from (one.operands(instruction, rows, columns) for one in dot_products() if one.fits(instruction))


def with_directed_vectors(config: CoreConfig, name: str, bench: ComponentBench) -> ComponentBench:
    """Return a bench in which stored test vectors of the component replace the first random test vectors."""
    of_component = [vector["ports"] for vector in _stored()["components"] if vector["component"] == name]
    vectors = [vector for vector in of_component if _can_carry(config, bench, vector)]

    def stimulus(rng: np.random.Generator, count: int) -> Values:
        drawn = {name: values.copy() for name, values in bench.stimulus(rng, count).items()}
        for place, vector in enumerate(vectors[:count]):
            for port, value in vector.items():
                drawn[port][place] = value
        return drawn

    return replace(bench, stimulus=stimulus) if vectors else bench


def _can_carry(config: CoreConfig, bench: ComponentBench, vector: dict[str, int]) -> bool:
    """Return whether a stored test vector fits a bench: values fit the ports, and the datapath has the formats."""
    ports = {port.name: port for port in ports_of(bench.component) if port.is_input}
    if not vector.keys() <= ports.keys():
        return False
    if isinstance(bench.component, RoundStage) and ResultCode(vector["result"]) not in bench.component.results:
        return False
    has_codes = all(vector[port] < len(config.elements) for port in bench.codes)
    return has_codes and all(Const(value, ports[name].value.shape()).value == value for name, value in vector.items())
