"""``tcgen05.mma``, dense and sparse, against the dense one of ``mmasim``: 10,240 outputs a row, or ten times that.

The operands go through tensor memory and shared memory. The oracle takes vectors of kept products: B is gathered here
first, by a formula of its own. ``mmasim`` has no integers; those of :mod:`sptc.golden.integer` are exact sums.
"""

from typing import Any

import numpy as np
import pytest
import sptc
import torch
from mmasim.arithmetic.helper import decode_uint8_to_fp6_fp4
from mmasim.nv_ptx import TCGen05MMA, TCGen05MMABlockScale
from numpy.typing import NDArray
from sptc.isa.formats import Format
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.instructions import Instruction
from sptc.isa.memory import decode_descriptor, encode_descriptor, shared_map
from sptc.isa.tcgen05 import instructions_of, parse_opcode
from sptc.isa.tensor_memory import LAYOUTS, TensorMap, accumulator_map, metadata_map, scale_map
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS, random_codes

from .torch_codes import TORCH_TYPES, result_codes, tensor

torch.set_num_threads(1)  # the tensors are small: on a busy machine its threads mostly wait for each other

KINDS = [
    *("tf32", "f16", "f8f6f4"),
    *(f"{kind}.block_scale" for kind in ("mxf8f6f4", "mxf4")),
    *(f"mxf4nvf4.block_scale.{word}" for word in ("block32", "block16")),
]
TEXTS = [f"tcgen05.mma{sp}.cta_group::1.kind::{kind}" for sp in (".sp", "") for kind in KINDS]
D_AT, E_AT, SFA_AT, SFB_AT = 0, 400, 410, 420


def _rows(n: int) -> list[tuple[str, Instruction]]:
    return [(text, i) for text in TEXTS for i in instructions_of(parse_opcode(text)) if (i.m, i.n) == (128, n)]


def _name(row: tuple[str, Instruction]) -> str:
    return str(row[1])


def _oracle(i: Instruction) -> TCGen05MMA | TCGen05MMABlockScale:
    name = f"m{i.m}n{i.n}k{i.stored_k}.kind::{i.kind}"
    types = f"{i.d.name}.{i.a.name}.{i.b.name}"
    if i.scale_format and i.scale_size:
        block = i.stored_k // i.scale_size
        return TCGen05MMABlockScale("Blackwell", f"{name}.block{block}.{types}.{i.scale_format.name}")
    return TCGen05MMA("Blackwell", f"{name}.{types}")


def _accumulators(i: Instruction, distribution: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return C: as the distribution has it, or with the exponents that products reach."""
    own = random_codes(i.c, distribution, (i.m, i.n), rng)
    low = max(1, i.a.minimum_exponent + i.b.minimum_exponent - 30 + i.c.bias)
    high = min(i.a.maximum_exponent + i.b.maximum_exponent + 2, i.c.maximum_exponent) + i.c.bias
    fields = rng.integers(low, high, own.shape, endpoint=True) << i.c.fraction_bits
    near = fields | rng.integers(0, 1 << i.c.fraction_bits, own.shape) | rng.integers(0, 2, own.shape) << i.c.bits - 1
    return np.where(rng.random(own.shape) < 0.5, own, near)


def _put(tmem: NDArray[np.uint32], where: TensorMap, codes: NDArray) -> None:
    """Place a matrix in tensor memory that is zero there."""
    for copy in where.copies:
        words = (codes.astype(np.uint64) << where.low_bits.astype(np.uint64)).astype(np.uint32)
        np.bitwise_or.at(tmem, (where.lanes + copy, where.columns), words)


def _write(smem: NDArray[np.uint8], start: int, matrix: NDArray, bits: int, padded: bool) -> int:
    """Place a matrix (mn, k), K-major without swizzle, in shared memory that is zero there; return its descriptor."""
    groups = -(-matrix.shape[0] // 8)
    value = encode_descriptor(start, groups * 128, 128, family="tcgen05")
    unit = 16 if padded else 0
    where = shared_map(decode_descriptor(value, "tcgen05"), *matrix.shape, bits, unit_elements=unit)
    shifted = matrix.astype(np.uint64) << where.low_bits.astype(np.uint64)
    for octet in range(-(-(bits + 7) // 8)):
        np.bitwise_or.at(smem, where.addresses + octet, (shifted >> np.uint64(8 * octet) & np.uint64(255)).astype("u1"))
    return value


def _units(i: Instruction, fmt: Format, codes: NDArray) -> NDArray:
    """Split vectors (mn, k) into what one metadata index moves: half a tf32, an element, or two 4-bit ones.

    Six-bit and lone four-bit elements become f16 codes by the oracle's own decoder.
    """
    if i.container_bits == 32:
        return np.ascontiguousarray(codes.astype("<u4")).view("<u2")
    if i.container_bits == 4:
        return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
    if fmt.name not in TORCH_TYPES:
        low_bit = 2 if fmt.bits == 4 else 0
        decoded = decode_uint8_to_fp6_fp4(torch.arange(256, dtype=torch.uint8), fmt.name)
        return decoded.view(torch.int16).numpy().view(np.uint16).take(codes << low_bit)
    return codes.astype(f"u{i.container_bits // 8}")


def _vectors(i: Instruction, fmt: Format, units: NDArray) -> torch.Tensor:
    if i.container_bits == 4:  # two elements a byte, the first one in the high half
        return torch.from_numpy(units >> 4 | units << 4)
    if i.container_bits == 32:
        return tensor(np.ascontiguousarray(units).view("<u4"), fmt.name)
    return tensor(units, fmt.name if fmt.name in TORCH_TYPES else "f16")


def _select(i: Instruction, columns: NDArray, nibbles: NDArray | None) -> NDArray:
    """Return the units of B that the kept slots of each output meet, shape (m or 1, n, kept units)."""
    if nibbles is None:
        return columns[None]
    pairs = np.stack([nibbles & 3, nibbles >> 2], -1).astype(np.intp)
    picked = (pairs + 4 * np.arange(i.chunks)[:, None]).reshape(i.m, -1)
    selected = columns[:, picked].swapaxes(0, 1).copy()
    # Slot 0 does not reach unit 3, nor slot 1 unit 0: they meet zero.
    lost = np.stack([pairs[..., 0] == 3, pairs[..., 1] == 0], -1).reshape(i.m, 1, -1)
    selected[np.broadcast_to(lost, selected.shape)] = 0
    return selected


def _compare(
    text: str,
    i: Instruction,
    oracle: TCGen05MMA | TCGen05MMABlockScale,
    distribution: str,
    any_nibble: bool,
    rng: np.random.Generator,
) -> int:
    """Compute one tile both ways; return the number of outputs that were compared."""
    a = random_codes(i.a, distribution, (i.m, i.stored_k), rng)
    b = random_codes(i.b, distribution, (i.n, i.k), rng)
    if distribution == "cancelling":  # equal magnitudes of A, opposite signs, rows of B that are equal
        a[:, 1::2] = a[:, ::2] ^ 1 << i.a.bits - 1
        b[:, 1:] = b[:, :1]
    a, b = (codes << fmt.ignored_low_bits for codes, fmt in ((a, i.a), (b, i.b)))
    c = _accumulators(i, distribution, rng)
    nibbles = None
    if i.rule:
        legal = np.array(range(16) if any_nibble else sorted(i.rule.legal), np.uint8)
        nibbles = legal[rng.integers(0, len(legal), (i.m, i.chunks))]
    selector = int(rng.integers(i.sparsity_selectors))
    tmem, smem = np.zeros((128, 512), np.uint32), np.zeros(1 << 16, np.uint8)
    where_d = accumulator_map(LAYOUTS["D"], i.n, i.d.bits, D_AT)
    _put(tmem, where_d, c)
    given: dict[str, Any] = {"d": D_AT}
    if nibbles is not None:
        _put(tmem, metadata_map(LAYOUTS["D"], i, selector, E_AT), nibbles)
        given["e"] = E_AT
    for name, start, fmt, codes in (("a", 0, i.a, a), ("b", 1 << 15, i.b, b)):
        given[name] = _write(smem, start, codes, fmt.container_bits, i.container_bits == 8 and fmt.bits < 8)
    scales = []
    if i.scale_format and i.scale_size:
        for name, lines, base in (("a", i.m, SFA_AT), ("b", i.n, SFB_AT)):
            codes = random_codes(i.scale_format, distribution, (lines, i.scale_size), rng)
            _put(tmem, scale_map(name, lines, i.scale_size, 0, base), codes)
            given[f"scale_{name}"] = base
            scales.append(tensor(np.expand_dims(codes, 1 if name == "a" else 0), i.scale_format.name))
    descriptor = InstructionDescriptor(instruction=i, sparsity_selector=selector)
    given["idesc"] = encode_instruction_descriptor(parse_opcode(text), descriptor)
    result = sptc.tcgen05_mma(text, tmem, smem=smem, metadata="silicon" if any_nibble else "strict", **given)
    got = result[where_d.lanes, where_d.columns]

    vectors = _vectors(i, i.a, _units(i, i.a, a)[:, None]), _vectors(i, i.b, _select(i, _units(i, i.b, b), nibbles))
    d = oracle.dpa(*vectors, tensor(c, i.c.name), *scales)
    expected = result_codes(d)
    wrong = got != expected
    assert not wrong.any(), (
        f"{distribution}: {wrong.sum()} of {got.size} outputs differ, first at (row, column) = "
        f"{np.argwhere(wrong)[0]}: got {got[wrong][0]:#x}, expected {expected[wrong][0]:#x}"
    )
    return got.size


def _row(row: tuple[str, Instruction], rng: np.random.Generator) -> int:
    """Compare a tile of every distribution, in turns with legal nibbles and with all sixteen."""
    oracle = _oracle(row[1])
    return sum(_compare(*row, oracle, name, number % 2 == 1, rng) for number, name in enumerate(FLOAT_DISTRIBUTIONS))


@pytest.mark.quick_cases(40)
@pytest.mark.parametrize("row", _rows(8), ids=_name)
def test_row(row: tuple[str, Instruction], rng: np.random.Generator) -> None:
    assert _row(row, rng) >= 10_000


@pytest.mark.regression
@pytest.mark.parametrize("row", _rows(80), ids=_name)
def test_row_at_length(row: tuple[str, Instruction], rng: np.random.Generator) -> None:
    assert _row(row, rng) >= 100_000


def test_every_float_instruction_is_a_row() -> None:
    """By types: one tf32, three of 16 bits, 25 pairs with two accumulators, 25 scaled pairs, four of packed e2m1."""
    for sparse in ("sp", ""):
        rows = [[i for _, i in _rows(n) if i.sparse == sparse] for n in (8, 80)]
        assert [sum(i.kind == kind for i in rows[0]) for kind in ("tf32", "f16", "f8f6f4")] == [1, 3, 50]
        assert [sum(i.kind == kind for i in rows[1]) for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4")] == [25, 1, 3]
    assert {i.d.name for _, i in _rows(8)} == {"f16", "f32"}


def test_a_planted_fault_is_seen(rng: np.random.Generator) -> None:
    """The comparison itself: an oracle that keeps one bit less must differ."""
    for row in (row for row in _rows(8) if row[1].a.name == "bf16"):
        oracle = _oracle(row[1])
        _compare(*row, oracle, "mid", False, rng)
        oracle.arithmetic_op.F -= 1
        with pytest.raises(AssertionError, match="outputs differ"):
            _compare(*row, oracle, "mid", False, rng)
