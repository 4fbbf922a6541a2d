"""Which row of B a stored element meets: of each nibble at each end of a row, alone among legal ones.

A has a single one in each row, and rows of B spell their own number, a bit a column, so that D spells the row that was
met. The last column of B is all ones: D has a zero there if the multiplexers deliver nothing.
"""

import numpy as np
import pytest
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.formats import Format
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import every_opcode, instructions_of

#: Codes of 1 in their containers.
ONE = {
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "tf32": 0x3F800000,
    "e4m3": 0x38,
    "e5m2": 0x3C,
    "e3m2": 0x0C,
    "e2m3": 0x08,
    "e2m1": 0x2,
    "s8": 1,
    "u8": 1,
    "s4": 1,
    "u4": 1,
    "ue8m0": 127,
    "ue4m3": 0x38,
}
LEGAL = {
    "plain": [1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14],
    "wgmma": [1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14],
    "ordered": [4, 8, 9, 12, 13, 14],
    "tcgen05": [4, 6, 8, 9, 12, 13, 14],
    "tf32": [4, 14],
}
#: Bits of the row's number, of up to 128 rows.
NUMBER_BITS = 7


def _one(i: Instruction, fmt: Format) -> int:
    return ONE[fmt.name] << (2 if fmt.name == "e2m1" and i.container_bits == 8 else 0)


def _kinds(arch: str) -> list[Instruction]:
    """Return one sparse instruction of each rule, format, K and scale, of every family."""
    found: dict[tuple[object, ...], Instruction] = {}
    of_tensor_memory = [next(instructions_of(opcode)) for opcode in every_opcode() if opcode.sparse]
    for i in (*every_instruction(), *of_tensor_memory):
        if i.sparse and arch in i.architectures:
            found.setdefault((i.family, i.sparse, i.a.name, i.k, i.container_bits, i.scale_size), i)
    return [*found.values()]


def _delivered(i: Instruction, nibbles: np.ndarray, arch: str) -> np.ndarray:
    """Return whether slots 0 and 1 of each chunk get a unit, on a last axis."""
    if arch not in ("sm_100", "sm_120"):
        return np.ones((*nibbles.shape, 2), bool)
    assert i.rule
    if i.rule.name == "plain":  # slots trade places where one of two 3:1 multiplexers would not reach its unit
        return np.stack([nibbles != 15, nibbles != 0], -1)
    return np.stack([nibbles & 3 != 3, nibbles >> 2 != 0], -1)


def _expected(i: Instruction, nibbles: np.ndarray, arch: str, b: np.ndarray) -> np.ndarray:
    """Return the container of B that meets the one of each row, shape (batch, rows, n)."""
    assert i.granularity
    units = np.stack([nibbles & 3, nibbles >> 2], -1).astype(np.intp)
    delivered = _delivered(i, nibbles, arch)
    slot = np.arange(i.stored_k)
    chunk, within = slot // i.granularity.stored, slot % i.granularity.stored
    if i.granularity.stored == 1:  # the low half from the first unit, the high half from the second
        halves = np.stack([b & 0xFFFF, b >> 16], 1).reshape(-1, b.shape[1])
        low, high = (
            np.where(delivered[:, slot, chunk, half, None], halves[4 * chunk + units[:, slot, chunk, half]], 0)
            for half in (0, 1)
        )
        return (high << 16 | low) & 0xFFFFE000
    of_unit = i.granularity.stored // 2
    place = within // of_unit
    rows = chunk * i.granularity.logical + units[:, slot, chunk, place] * of_unit + within % of_unit
    return np.where(delivered[:, slot, chunk, place, None], b[rows], 0)


def _product(i: Instruction, arch: str, nibbles: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return D of a matrix A with a one in each row, at the stored element of the row's number."""
    cases, container = len(nibbles), CONTAINERS[i.container_bits]
    a = np.stack([np.eye(i.stored_k, dtype=container) * container.type(_one(i, i.a))] * cases)
    c = np.zeros((cases, i.stored_k, b.shape[1]), CONTAINERS[i.d.bits])
    scales = []
    if i.scale_format and i.scale_size:
        shapes = ((cases, lines, i.scale_size) for lines in c.shape[1:])
        scales = [np.full(shape, ONE[i.scale_format.name], np.uint8) for shape in shapes]
    return multiply(i, arch, MatrixOperands(a, np.stack([b] * cases), c, nibbles, *scales))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_each_nibble_alone_among_legal_ones(arch: str, rng: np.random.Generator) -> None:
    """Every nibble in the first chunk, one in the middle, and the last; then once more the legal ones alone."""
    for i in _kinds(arch):
        assert i.rule
        legal = LEGAL[i.rule.name]
        places = (0, int(rng.integers(1, i.chunks - 1)), i.chunks - 1)
        alone = [(place, nibble) for place in places for nibble in range(16)]
        nibbles = rng.choice(np.array(legal, np.uint8), (len(alone), i.stored_k, i.chunks))
        for case, (place, nibble) in enumerate(alone):
            nibbles[case, :, place] = nibble
        bits = np.arange(i.k)[:, None] >> np.arange(NUMBER_BITS) & 1
        b = (np.hstack([bits, np.ones((i.k, 1), int)]) * _one(i, i.b)).astype(CONTAINERS[i.container_bits])
        of_place = np.arange(len(alone)).reshape(len(places), 16)
        for cases in (*of_place, of_place[:, legal].ravel()):
            met, d = _expected(i, nibbles[cases], arch, b), _product(i, arch, nibbles[cases], b)
            for case, *place in np.argwhere(d != met if i.a.name == "tf32" else (d != 0) != (met != 0))[:1].tolist():
                chunk, nibble = alone[cases[case]]
                pytest.fail(f"{i}: nibble {nibble:#x} in chunk {chunk}, stored element and column {place}")
