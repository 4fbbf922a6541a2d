"""Test cases of ``tcgen05.mma`` with random operands, whose addresses come from formulas of the PTX manual, not from
the package's maps.

Section numbers are within section 9.7.16 of the PTX ISA: 4.1 shared-memory descriptor, 4.2 instruction descriptor,
10.4 packing, 10.5 data path layouts, 10.7 block scales, 10.8 sparse matrices. For the metadata, the copies of A, and
the scales in layout B, the manual has only figures; their addresses here follow CUTLASS's fragments.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import sptc
from numpy.typing import NDArray
from sptc.api.tcgen05 import placement_of
from sptc.golden.matrix import multiply
from sptc.isa.formats import Format
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import Opcode, instructions_of, parse_opcode
from sptc.isa.tensor_memory import TensorMap
from sptc.operands.registers import CONTAINERS, random_nibbles
from sptc.sim.benches.random_operands import random_codes

Random = np.random.Generator

SP, SP2 = "tcgen05.mma.sp.cta_group::1", "tcgen05.mma.sp.cta_group::2"
WS = "tcgen05.mma.ws.sp.cta_group::1"
DENSE, DENSE2 = "tcgen05.mma.cta_group::1", "tcgen05.mma.cta_group::2"
DENSE_WS = "tcgen05.mma.ws.cta_group::1"
F16, F16_2 = f"{SP}.kind::f16", f"{SP2}.kind::f16"
MXF8 = f"{SP}.kind::mxf8f6f4.block_scale"
NVF4 = f"{SP}.kind::mxf4nvf4.block_scale.block16"

#: First column of each operand in tensor memory. D, which may take 256 of the 512 columns, gets the upper half.
AT = SimpleNamespace(d=256, a=3, e=40, scale_a=60, scale_b=90)
#: For each swizzle mode: bytes in a row of the pattern, bytes in an atom, and the code in the descriptor.
PATTERNS = {
    "none": (16, 16, 0), "32B": (32, 16, 6), "64B": (64, 16, 4), "128B": (128, 16, 2),
    "128B with 32B atoms": (128, 32, 1),
}  # fmt: skip
#: Codes of element types in the instruction descriptor (tables 42 to 44). Kinds mxf4 and mxf4nvf4 encode e2m1 as 1.
TYPE_CODES = {"tf32": 2, "f16": 0, "bf16": 1, "u8": 0, "s8": 1, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}


@dataclass
class Case:
    """One instruction with random operands: the operand matrices, and the memory images that contain them."""

    text: str
    instruction: Instruction
    arguments: dict[str, Any]
    a: NDArray  # A, shape (m, stored k), with signs inverted if the descriptor negates the products
    b: NDArray  # B, shape (k, n)
    c: NDArray  # C, shape (m, n)
    nibbles: NDArray[np.uint8] | None
    scale_a: NDArray[np.uint8] | None
    scale_b: NDArray[np.uint8] | None  # block scales of B, shape (CTAs, n, scales along K)
    d: TensorMap
    ctas: int

    def run(self, **changes: Any) -> NDArray[np.uint32]:
        return sptc.tcgen05_mma(**{"instruction": self.text, **self.arguments, **changes})

    def matrix(self, c: NDArray | None = None) -> NDArray:
        """Return D computed from the operand matrices, shape (CTAs, rows of a CTA, n)."""
        rows = (self.a, self.c if c is None else c, self.nibbles, self.scale_a)
        a, c, nibbles, scale_a = (None if each is None else cut(each, self.ctas) for each in rows)
        operands = MatrixOperands(a, np.stack([self.b] * self.ctas), c, nibbles, scale_a, self.scale_b)
        return multiply(self.instruction, "sm_100", operands)

    def expected(self, c: NDArray | None = None) -> NDArray[np.uint32]:
        tmem = self.arguments["tmem"].copy()
        fill_tensor(tmem.reshape(self.ctas, 128, 512), self.d, self.matrix(c))
        return tmem


def fill_tensor(tmem: NDArray[np.uint32], where: TensorMap, codes: NDArray) -> None:
    mask = np.uint32((1 << where.element_bits) - 1) << where.low_bits.astype(np.uint32)
    for cta, copy in np.ndindex(len(tmem), len(where.copies)):
        places = (where.lanes + where.copies[copy], where.columns)
        np.bitwise_and.at(tmem[cta], places, ~mask)
        np.bitwise_or.at(tmem[cta], places, codes[cta].astype(np.uint32) << where.low_bits.astype(np.uint32))


def place_shared(
    smem: NDArray[np.uint8], start: int, matrix: NDArray, fmt: Format, padded: bool, transposed: bool, swizzle: str
) -> tuple[int, int]:
    """Write codes, shape (M or N, K), to shared memory. Return the descriptor and the next free multiple of 1024."""
    width, atom, code = PATTERNS[swizzle]
    bits = fmt.container_bits
    per_unit = 16 if padded else 128 // bits
    period = 4 if atom == 32 else 8
    mn, k = np.indices(matrix.shape)
    inner, outer = (mn, k) if transposed else (k, mn)
    rows_step = period * width + 16 * (swizzle == "none")  # without swizzle, groups of rows may have gaps
    units_step = (outer.max() // period + 1) * rows_step
    unit = inner // per_unit
    addresses = start + outer % period * width + outer // period * rows_step
    addresses += unit // (width // 16) * units_step + unit % (width // 16) * 16
    addresses ^= ((addresses >> 7) % (width // atom)) * atom
    places = 8 * addresses[..., None] + (inner % per_unit * bits)[..., None] + np.arange(bits)
    flat = np.unpackbits(smem, bitorder="little")
    flat[places] = matrix[..., None] >> np.arange(bits) & 1
    smem[:] = np.packbits(flat, bitorder="little")
    end = int(places.max()) // 8 + 1
    leading, stride = int(units_step), rows_step
    if transposed and swizzle == "none":
        leading, stride = stride, leading
    return (start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | code << 61), -(-end // 1024) * 1024


class Manual:
    """Addresses in a CTA's tensor memory, from the PTX manual. Operands in half of the lanes start at `lane`."""

    def __init__(self, opcode: Opcode, descriptor: InstructionDescriptor, lane: int) -> None:
        i = descriptor.instruction
        self.instruction, self.descriptor, self.lane = i, descriptor, lane
        self.rows = i.m // opcode.cta_group
        if opcode.weight_stationary:
            layout = {32: "G", 64: "E", 128: "D"}[i.m]
        elif opcode.cta_group == 1:
            layout = {64: "F", 128: "D"}[i.m]
        else:
            layout = "A" if i.m == 256 else "C" if opcode.sparse else "B"
        self.layout = layout
        #: Number of parts into which the columns of D are split. Each part lies on its own lanes.
        self.parts = {"B": 2, "E": 2, "G": 4}.get(layout, 1)
        self.copies = tuple(self.rows * part for part in range(self.parts))

    def lanes(self, row: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the lane that holds column 0 of each row of D (figures in sections 10.5.1 to 10.5.7)."""
        return self.lane + 32 * (row // 16) + row % 16 if self.layout in "CF" else row

    def d(self, base: int) -> TensorMap:
        """Return the addresses of D. Elements of 16 bits use the low half of a word (10.4.1)."""
        i = self.instruction
        row, column = np.indices((self.rows, i.n))
        width = i.n // self.parts
        lanes = self.lanes(row) + self.rows * (column // width)
        return TensorMap(lanes, base + column % width, np.zeros_like(row), i.d.bits)

    def metadata(self, base: int) -> TensorMap:
        """Return the addresses of the metadata (10.8). A nibble describes two tf32, eight packed 4-bit, or four other
        elements of the uncompressed A. For each part of the columns of D, there is a copy of all nibbles.
        """
        i = self.instruction
        row, chunk = np.indices((self.rows, i.k // {"tf32": 2, "mxf4": 8, "mxf4nvf4": 8}.get(i.kind, 4)))
        if i.kind in ("f16", "tf32"):  # a word holds the nibbles of four chunks of row r and of row r + 8
            line = row // 16 * 16 + chunk // 4 * 8 + row % 8
            column = np.full_like(row, base + self.descriptor.sparsity_selector)
            low = row % 16 // 8 * 16 + chunk % 4 * 4
        else:
            line, column, low = row, base + chunk // 8, chunk % 8 * 4
        return TensorMap(self.lanes(line), column, low, 4, self.copies)

    def a(self, base: int) -> TensorMap:
        """Return the addresses of A. Its elements fill each word from the lowest bits (10.4.3, 10.4.5)."""
        bits = self.instruction.container_bits
        row, k = np.indices((self.rows, self.instruction.stored_k))
        return TensorMap(self.lanes(row), base + k * bits // 32, k * bits % 32, bits, self.copies)

    def scales(self, name: str, base: int) -> TensorMap:
        """Return the addresses of the block scales of a CTA's A or of B (10.7). A scale has one byte."""
        lines, parts = (self.rows, 1) if name == "a" else (self.instruction.n, self.parts)
        line, scale = np.indices((lines, self.instruction.scale_size or 0))
        per_part = lines // parts
        lanes = line // per_part * (128 // parts) + line % per_part % 32
        low = 8 * (getattr(self.descriptor, f"scale_id_{name}") + scale)
        return TensorMap(lanes, base + line % per_part // 32, low, 8, tuple(range(0, 128 // parts, 32)))

    def idesc(self) -> int:
        """Return the instruction descriptor (tables 42 to 44)."""
        i, descriptor = self.instruction, self.descriptor
        a, b = (1 if "mxf4" in i.kind else TYPE_CODES[fmt.name] for fmt in (i.a, i.b))
        value = bool(i.sparse) << 2 | a << 7 | b << 10 | i.n >> 3 << 17 | i.m >> 4 << 24
        for low, name in enumerate(("negate_a", "negate_b", "transpose_a", "transpose_b"), 13):
            value |= getattr(descriptor, name) << low
        if i.scale_format:
            is_ue8m0 = i.scale_format.name == "ue8m0"
            return value | descriptor.scale_id_b << 4 | is_ue8m0 << 23 | descriptor.scale_id_a << 29
        value |= descriptor.sparsity_selector | i.satfinite << 3 | {"f16": 0, "f32": 1, "s32": 2}[i.d.name] << 4
        return value | (0, 8, 16, 32).index(descriptor.max_shift) << 30


def cut(rows: NDArray, ctas: int) -> NDArray:
    return rows.reshape(ctas, -1, rows.shape[-1])


def is_padded(i: Instruction, fmt: Format) -> bool:
    """Return whether elements are padded in shared memory. Does not use :meth:`Instruction.padded_unit`."""
    return fmt.bits < 8 and "mxf4" not in i.kind


def instruction_for(opcode: Opcode, attributes: dict[str, object]) -> Instruction:
    attributes = {"m": 32 if opcode.weight_stationary else 128 * opcode.cta_group, **attributes}
    return next(
        i for i in instructions_of(opcode)
        if all(getattr(getattr(i, name), "name", getattr(i, name)) == value for name, value in attributes.items())
    )  # fmt: skip


def descriptor_for(i: Instruction, options: dict[str, Any], rng: Random) -> InstructionDescriptor:
    """Return a descriptor with the given options. Other selectors and scale IDs are random."""
    ids = rng.permutation(range(0, 4, i.scale_size or 4))
    drawn = {"sparsity_selector": int(rng.integers(i.sparsity_selectors))}
    drawn |= {"scale_id_a": int(ids[0]), "scale_id_b": int(ids[-1])}
    return InstructionDescriptor(instruction=i, **drawn | options)


def containers(i: Instruction, codes: NDArray, fmt: Format, negated: bool) -> NDArray:
    """Return codes of A or B in the containers of the golden model, with inverted signs if `negated`."""
    flipped = codes ^ (1 << fmt.bits + fmt.ignored_low_bits - 1 if negated else 0)
    return (flipped << 2 * (is_padded(i, fmt) and fmt.bits == 4)).astype(CONTAINERS[i.container_bits])


def case(
    text: str,
    rng: Random,
    *,
    distribution: str = "",
    a_in: str = "shared",
    swizzles: tuple[str, str] = ("none", "none"),
    options: dict[str, Any] | None = None,
    any_nibble: bool = False,
    **attributes: object,
) -> Case:
    """Build a case with random operands, and with random bits around the operands.

    `options` are fields of the instruction descriptor, and `lane`, the first lane of the operands in tensor memory.
    The instruction is `attributes["instruction"]`, or the first that has all `attributes`. Raises
    :class:`sptc.OperandError` if no public source states where the operands lie in tensor memory.
    """
    opcode = parse_opcode(text)
    i = attributes.pop("instruction", None) or instruction_for(opcode, attributes)
    assert isinstance(i, Instruction)
    options = {"lane": 0, **(options or {})}
    lane = options.pop("lane")
    descriptor = descriptor_for(i, options, rng)
    distribution = distribution or ("uniform" if i.a.is_integer else "mid")
    codes_a, codes_b = (
        random_codes(fmt, distribution, shape, rng) << fmt.ignored_low_bits
        | rng.integers(0, 1 << fmt.ignored_low_bits, shape)
        for fmt, shape in ((i.a, (i.m, i.stored_k)), (i.b, (i.n, i.k)))
    )
    c = random_codes(i.c, distribution, (i.m, i.n), rng).astype(CONTAINERS[i.c.bits])
    nibbles = random_nibbles(i, 1, rng, any_nibble=any_nibble)[0] if i.rule else None
    ctas, manual = opcode.cta_group, Manual(opcode, descriptor, lane)
    tmem = rng.integers(0, 1 << 32, (ctas, 128, 512), dtype=np.uint32)
    smem = rng.integers(0, 256, (ctas, 1 << 17), dtype=np.uint8)

    addresses: dict[str, int] = {"d": lane << 16 | AT.d}
    placed = [(manual.d(AT.d), cut(c, ctas))]
    end, in_shared = 0, [("b", codes_b, i.b, descriptor.transpose_b, swizzles[1])]
    if a_in == "shared":
        in_shared.insert(0, ("a", codes_a, i.a, descriptor.transpose_a, swizzles[0]))
    else:
        addresses["a"] = lane << 16 | AT.a
        placed.append((manual.a(AT.a), cut(codes_a, ctas)))
    for name, codes, fmt, transposed, swizzle in in_shared:  # each CTA holds a part of the rows of A and columns of B
        start = end
        for image, part in zip(smem, cut(codes, ctas), strict=True):
            addresses[name], end = place_shared(image, start, part, fmt, is_padded(i, fmt), transposed, swizzle)
    if nibbles is not None:
        addresses["e"] = lane << 16 | AT.e
        placed.append((manual.metadata(AT.e), cut(nibbles, ctas)))
    scales: dict[str, NDArray[np.uint8]] = {}
    for name, lines, base in (("a", manual.rows, AT.scale_a), ("b", i.n, AT.scale_b)) if i.scale_size else ():
        assert i.scale_format
        scales[name] = random_codes(i.scale_format, "mid", (ctas, lines, i.scale_size), rng).astype(np.uint8)
        placed.append((manual.scales(name, base), scales[name]))
    at = {f"scale_{name}": {"a": AT.scale_a, "b": AT.scale_b}[name] for name in scales}
    assert encode_instruction_descriptor(opcode, descriptor) == manual.idesc()
    placement_of(opcode, descriptor, addresses, {name: at.get(name) for name in ("scale_a", "scale_b")}, None)
    for where, codes in placed:
        fill_tensor(tmem, where, codes)

    arguments: dict[str, Any] = {"idesc": manual.idesc(), **addresses, **at}
    arguments |= {name: image if ctas == 2 else image[0] for name, image in (("tmem", tmem), ("smem", smem))}
    a = containers(i, codes_a, i.a, descriptor.negate_a != descriptor.negate_b)
    b = containers(i, codes_b, i.b, False).T
    scale_a = scales["a"].reshape(i.m, -1) if scales else None
    return Case(text, i, arguments, a, b, c, nibbles, scale_a, scales.get("b"), placed[0][0], ctas)
