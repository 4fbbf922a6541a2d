"""The golden model against ``mmasim``: every modelled float row of ``mma`` and ``mma.sp``, 100,000 outputs a row.

``mmasim`` models dense instructions. A sparse one is held against the dense one whose K equals the stored K: its
``dpa`` takes the operand vectors of each output, so B is gathered here first, by a formula of its own.
"""

from collections import defaultdict

import numpy as np
import pytest
import torch
from mmasim.arithmetic.helper import decode_uint8_to_fp6_fp4
from mmasim.nv_ptx import MMA, MMABlockScale
from mmasim.nv_ptx.isa_mma import mma_block_scale_shape_and_type, mma_shape_and_type
from numpy.typing import NDArray
from sptc import mma
from sptc.isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.numerics import Method, numerics
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS, Operands, random_operands

from .torch_codes import TORCH_TYPES, result_codes, tensor

torch.set_num_threads(1)  # the tensors are small: on a busy machine its threads mostly wait for each other

#: sm_86 has the numerics of sm_80; sm_90 is measured and needs no oracle.
ORACLE_ARCHITECTURES = {
    "sm_80": "Ampere",
    "sm_86": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_100": "Blackwell",
    "sm_120": "RTX Blackwell",
}
#: Their operand selectors are two 3:1 multiplexers, which leave some undefined nibbles without an operand.
MUX3_ARCHITECTURES = ("sm_100", "sm_120")
OUTPUTS = 100_000


def _rows() -> dict[tuple[str, str], list[Instruction]]:
    """Float rows that are not recorded here, by architecture and text; both spellings of a sparse one share one."""
    rows = defaultdict(list)
    for instruction in every_instruction("mma"):
        for arch in instruction.architectures:
            row = numerics(instruction, arch)
            if arch != "sm_90" and row.method is not Method.INTEGER:
                rows[arch, str(instruction).replace("sp::ordered_metadata", "sp")].append(instruction)
    return dict(rows)


def _oracle_name(instruction: Instruction) -> str:
    shape = f"m{instruction.m}n{instruction.n}k{instruction.stored_k}"
    types = f"{instruction.d.name}.{instruction.a.name}.{instruction.b.name}.{instruction.c.name}"
    if instruction.scale_format and instruction.scale_size:
        block = instruction.stored_k // instruction.scale_size
        return f"{shape}.kind::{instruction.kind}.block{block}.{types}.{instruction.scale_format.name}"
    return f"{shape}.kind::{instruction.kind}.{types}" if instruction.kind else f"{shape}.{types}"


def _is_known(arch: str, instruction: Instruction) -> bool:
    table = mma_block_scale_shape_and_type if instruction.scale_format else mma_shape_and_type
    return _oracle_name(instruction) in table.get(ORACLE_ARCHITECTURES[arch], ())


ROWS = _rows()
# fp8 without a kind on sm_100 is a sequence of f16 instructions that the assembler emits; mmasim models hardware alone.
KNOWN_ROWS = {row: instructions for row, instructions in ROWS.items() if _is_known(row[0], instructions[0])}


def _matrix(registers: NDArray[np.uint32], fragment: Fragment) -> NDArray[np.uint32]:
    """Read a matrix of containers from registers."""
    bits = fragment.element_bits
    elements = registers[..., None] >> np.arange(0, 32, bits, dtype=np.uint32) & np.uint32((1 << bits) - 1)
    matrix = np.empty((len(registers), *fragment.shape), np.uint32)
    matrix[:, fragment.rows, fragment.columns] = elements
    return matrix


def _units(containers: NDArray[np.uint32], bits: int) -> NDArray:
    """Split vectors into what one metadata index moves: half a tf32, one 16-bit or 8-bit element, two 4-bit ones."""
    if bits == 32:
        return np.ascontiguousarray(containers).view("<u2")
    if bits == 4:
        containers = containers[..., ::2] | containers[..., 1::2] << np.uint32(4)
    return containers.astype(np.uint16 if bits == 16 else np.uint8)


def _select(instruction: Instruction, arch: str, units: NDArray, e: NDArray[np.uint32], selector: int) -> NDArray:
    """Return the units of B that each output's kept slots meet, shape (tiles, m, n, kept)."""
    where = metadata_map(instruction, selector)
    nibbles = e[:, where.lanes] >> where.low_bits.astype(np.uint32) & 15
    pairs = np.stack([nibbles & 3, nibbles >> 2], -1) + 4 * np.arange(instruction.chunks)[:, None]
    picked = pairs.reshape(len(e), instruction.m, 1, -1).astype(np.intp)
    selected = np.take_along_axis(units[:, None], picked, axis=3)
    if arch in MUX3_ARCHITECTURES:
        # Slot 0 does not reach unit 3, nor slot 1 unit 0; plain metadata trades the slots where that helps.
        plain = instruction.sparse == "sp" and instruction.a.name != "tf32"
        lost = [nibbles == 15, nibbles == 0] if plain else [nibbles & 3 == 3, nibbles >> 2 == 0]
        if np.any(lost):
            selected[np.broadcast_to(np.stack(lost, -1).reshape(picked.shape), selected.shape)] = 0
    return selected


def _vectors(instruction: Instruction, name: str, units: NDArray) -> torch.Tensor:
    """Turn units of an operand into what the oracle takes."""
    if instruction.container_bits == 4:  # two elements a byte, the first one in the high half
        return torch.from_numpy(units >> 4 | units << 4)
    if instruction.container_bits == 32:
        return tensor(np.ascontiguousarray(units).view("<u4"), name)
    return tensor(units, name if name in TORCH_TYPES else "f16")


def _operand(instruction: Instruction, name: str, containers: NDArray[np.uint32]) -> NDArray:
    """Split vectors of an operand into units; six-bit and lone four-bit elements become f16 codes.

    The oracle's own decoder does that, ahead of the gather, where there is far less to decode.
    """
    units = _units(containers, instruction.container_bits)
    if instruction.container_bits == 8 and name not in TORCH_TYPES:
        decoded = decode_uint8_to_fp6_fp4(torch.arange(256, dtype=torch.uint8), name)
        return decoded.view(torch.int16).numpy().view(np.uint16).take(units)
    return units


def _scales(instruction: Instruction, operands: Operands) -> list[torch.Tensor]:
    """Return the scales of A and B, shapes (tiles, m, 1, scales) and (tiles, 1, n, scales)."""
    if instruction.scale_format is None:
        return []
    scales = []
    for operand, data, axis in (("a", operands.scale_a, 2), ("b", operands.scale_b, 1)):
        assert data is not None
        where = scale_map(instruction, operand, *data[1:])
        codes = data[0][:, where.lanes] >> (8 * where.bytes).astype(np.uint32) & 255
        scales.append(tensor(np.expand_dims(codes, axis), instruction.scale_format.name))
    return scales


def _expected(
    instruction: Instruction, arch: str, oracle: MMA | MMABlockScale, operands: Operands
) -> NDArray[np.uint32]:
    """Return what the oracle computes, as a matrix of codes."""
    a = _operand(instruction, instruction.a.name, _matrix(operands.a, a_fragment(instruction)))[:, :, None]
    columns = _matrix(operands.b, b_fragment(instruction)).transpose(0, 2, 1)
    b = _operand(instruction, instruction.b.name, columns)
    b = b[:, None] if operands.e is None else _select(instruction, arch, b, operands.e, operands.sparsity_selector)
    c = tensor(_matrix(operands.c, accumulator_fragment(instruction)), instruction.c.name)
    d = oracle.dpa(
        _vectors(instruction, instruction.a.name, a),
        _vectors(instruction, instruction.b.name, b),
        c,
        *_scales(instruction, operands),
    )
    return result_codes(d)


@pytest.mark.quick_cases(50)
@pytest.mark.parametrize("row", KNOWN_ROWS, ids=" ".join)
def test_row(row: tuple[str, str], rng: np.random.Generator) -> None:
    """Every distribution, spelling and selector; one spelling also with all sixteen nibbles."""
    arch, spellings = row[0], KNOWN_ROWS[row]
    block_scaled = spellings[0].scale_format is not None
    oracle = (MMABlockScale if block_scaled else MMA)(ORACLE_ARCHITECTURES[arch], _oracle_name(spellings[0]))
    forms = [(instruction, "strict") for instruction in spellings]
    if spellings[0].sparse:
        forms.append((spellings[0], "silicon"))
    tiles = -(-OUTPUTS // (len(FLOAT_DISTRIBUTIONS) * spellings[0].m * spellings[0].n))
    outputs = 0
    for number, distribution in enumerate(FLOAT_DISTRIBUTIONS):
        instruction, policy = forms[number % len(forms)]
        operands = random_operands(
            instruction,
            distribution,
            tiles,
            rng,
            sparsity_selector=number % instruction.sparsity_selectors,
            any_nibble=policy == "silicon",
        )
        d = mma(
            str(instruction),
            operands.a,
            operands.b,
            operands.c,
            operands.e,
            operands.sparsity_selector,
            scale_a=operands.scale_a,
            scale_b=operands.scale_b,
            arch=arch,
            metadata=policy,
        )
        got = _matrix(d, accumulator_fragment(instruction))
        expected = _expected(instruction, arch, oracle, operands)
        wrong = got != expected
        assert not wrong.any(), (
            f"{distribution}: {wrong.sum()} of {got.size} outputs differ, first at (tile, row, column) = "
            f"{np.argwhere(wrong)[0]}: got {got[wrong][0]:#x}, expected {expected[wrong][0]:#x}"
        )
        outputs += got.size
    assert outputs >= OUTPUTS


def test_every_modelled_row_is_known_but_the_emulated_ones() -> None:
    unknown = {row for row in ROWS if row not in KNOWN_ROWS}
    emulated = {row for row in ROWS if numerics(ROWS[row][0], row[0]).method is Method.EMULATED}
    assert unknown == emulated
    assert {arch for arch, _ in emulated} == {"sm_100"}
    assert {arch for arch, _ in KNOWN_ROWS} == set(ORACLE_ARCHITECTURES)


def test_a_planted_fault_is_seen(rng: np.random.Generator) -> None:
    """The comparison itself: another architecture's alignment must show in it."""
    (instruction,) = KNOWN_ROWS["sm_80", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"]
    operands = random_operands(instruction, "mid", 80, rng)
    expected = _expected(instruction, "sm_80", MMA("Ampere", _oracle_name(instruction)), operands)
    for arch, agrees in (("sm_80", True), ("sm_90", False)):
        d = mma(str(instruction), operands.a, operands.b, operands.c, arch=arch)
        assert np.array_equal(_matrix(d, accumulator_fragment(instruction)), expected) == agrees
