"""One output of the golden model, whose operands are placed by hand, for the directed tests."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from sptc import mma
from sptc.isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from sptc.isa.instructions import parse

#: Architectures whose sums keep 24 bits, and 25.
F24, F25 = ("sm_80", "sm_86", "sm_89"), ("sm_90", "sm_100", "sm_120")
ALL = (*F24, *F25)
INF, MAX, NAN, SIGN = 0x7F800000, 0x7F7FFFFF, 0x7FFFFFFF, 0x80000000


def sp(shape: str, types: str, words: str = "") -> str:
    return f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col{words}.{types}"


F16 = sp("m16n8k32", "f32.f16.f16.f32")
F16_F16 = sp("m16n8k32", "f16.f16.f16.f16")
BF16 = sp("m16n8k32", "f32.bf16.bf16.f32")
TF32 = sp("m16n8k16", "f32.tf32.tf32.f32")
E4M3 = sp("m16n8k64", "f32.e4m3.e4m3.f32")
E5M2 = sp("m16n8k64", "f32.e5m2.e5m2.f32")
E4M3_E5M2 = sp("m16n8k64", "f32.e4m3.e5m2.f32")
MXF8 = sp("m16n8k64", "f32.e4m3.e4m3.f32.ue8m0", ".kind::mxf8f6f4.block_scale")
MXF4 = sp("m16n8k128", "f32.e2m1.e2m1.f32.ue8m0", ".kind::mxf4.block_scale")
NVF4 = sp("m16n8k128", "f32.e2m1.e2m1.f32.ue4m3", ".kind::mxf4nvf4.block_scale.scale_vec::4X")

#: The output looked at; everything that belongs to no product of it is zero.
ROW, COLUMN = 11, 6


def place(fragment: Fragment, codes: dict[tuple[int, int], int]) -> NDArray[np.uint32]:
    """Put containers at their (row, column) into otherwise empty registers."""
    registers = np.zeros(fragment.rows.shape[:2], np.uint32)
    for (row, column), code in codes.items():
        ((lane, register, j),) = np.argwhere((fragment.rows == row) & (fragment.columns == column))
        registers[lane, register] |= np.uint32(code << j * fragment.element_bits)
    return registers


def output(
    text: str,
    arch: str,
    products: Iterable[tuple[int, int]] | dict[int, tuple[int, int]] = (),
    c: int = 0,
    *,
    b: dict[int, int] | None = None,
    nibble: int = 0b0100,
    scales: tuple[list[int], list[int]] | None = None,
) -> int:
    """Return the bits of one output.

    `products` are operand containers by kept slot. `b` overrides logical rows of B. `nibble` is that of every chunk;
    the B operands of `products` are placed as 0b0100 selects them: the first units of each chunk.
    """
    instruction = parse(text)
    slots = products if isinstance(products, dict) else dict(enumerate(products))
    stored, logical = (1, 1)
    if instruction.granularity:
        stored, logical = instruction.granularity.stored, instruction.granularity.logical
    b_codes = {logical * (slot // stored) + slot % stored: code for slot, (_, code) in slots.items()} | (b or {})
    e = None
    if instruction.sparse:
        e = np.zeros(32, np.uint32)
        where = metadata_map(instruction, 0)
        np.bitwise_or.at(e, where.lanes, np.uint32(nibble) << where.low_bits.astype(np.uint32))
    scale_operands = {}
    for operand, line, codes in zip("ab", (ROW, COLUMN), scales or (), strict=False):
        data, lanes = np.zeros(32, np.uint32), scale_map(instruction, operand, 0, 1)
        for lane, byte, code in zip(lanes.lanes[line], lanes.bytes[line], codes, strict=True):
            data[lane] |= np.uint32(code << 8 * byte)
        scale_operands[f"scale_{operand}"] = (data, 0, 1)
    accumulators = accumulator_fragment(instruction)
    d = mma(
        text,
        place(a_fragment(instruction), {(ROW, slot): code for slot, (code, _) in slots.items()}),
        place(b_fragment(instruction), {(k, COLUMN): code for k, code in b_codes.items()}),
        place(accumulators, {(ROW, COLUMN): c}),
        e,
        arch=arch,
        metadata="silicon",
        **scale_operands,
    )
    ((lane, register, j),) = np.argwhere((accumulators.rows == ROW) & (accumulators.columns == COLUMN))
    bits = accumulators.element_bits
    return int(d[lane, register]) >> int(j) * bits & (1 << bits) - 1
