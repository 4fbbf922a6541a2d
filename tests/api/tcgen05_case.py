"""Instructions of ``tcgen05.mma`` with random operands, placed in memory as the manual lays them out."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sptc
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.formats import Format
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.instructions import Instruction
from sptc.isa.memory import encode_descriptor
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import Opcode, instructions_of, parse_opcode
from sptc.isa.tensor_memory import TensorMap, a_map, accumulator_map, layout_for, metadata_map, scale_map
from sptc.sim.benches.random_operands import random_codes

Random = np.random.Generator

SP, SP2 = "tcgen05.mma.sp.cta_group::1", "tcgen05.mma.sp.cta_group::2"
WS = "tcgen05.mma.ws.sp.cta_group::1"
DENSE, DENSE2 = "tcgen05.mma.cta_group::1", "tcgen05.mma.cta_group::2"
DENSE_WS = "tcgen05.mma.ws.cta_group::1"
F16, F16_2 = f"{SP}.kind::f16", f"{SP2}.kind::f16"
MXF8 = f"{SP}.kind::mxf8f6f4.block_scale"
NVF4 = f"{SP}.kind::mxf4nvf4.block_scale.block16"

#: Columns of tensor memory where the operands start; D may take 256.
D_AT, A_AT, E_AT, SFA_AT, SFB_AT = 256, 3, 40, 60, 90
#: Width of the pattern, and of what moves as a whole.
PATTERNS = {"none": (16, 16), "32B": (32, 16), "64B": (64, 16), "128B": (128, 16), "128B with 32B atoms": (128, 32)}


@dataclass
class Case:
    """One instruction with random operands: their matrices, and the images they were placed in."""

    text: str
    instruction: Instruction
    arguments: dict[str, Any]
    a: NDArray  # (m, stored k) containers, signs already flipped
    b: NDArray  # (k, n)
    c: NDArray  # (m, n)
    nibbles: NDArray[np.uint8] | None
    scale_a: NDArray[np.uint8] | None
    scale_b: NDArray[np.uint8] | None  # (CTAs, n, scales)
    d: TensorMap
    ctas: int = field(default=1)

    def run(self, **changes: Any) -> NDArray[np.uint32]:
        given = {"instruction": self.text, **self.arguments, **changes}
        return sptc.tcgen05_mma(**given)

    def matrix(self, c: NDArray | None = None) -> NDArray:
        """Return D as the matrices alone give it, (CTAs, rows of a CTA, n)."""
        operands = MatrixOperands(
            cut(self.a, self.ctas),
            np.stack([self.b] * self.ctas),
            cut(self.c if c is None else c, self.ctas),
            None if self.nibbles is None else cut(self.nibbles, self.ctas),
            None if self.scale_a is None else cut(self.scale_a, self.ctas),
            self.scale_b,
        )
        return multiply(self.instruction, "sm_100", operands)

    def expected(self, c: NDArray | None = None) -> NDArray[np.uint32]:
        """Return the tensor memory that holds it, all else as before."""
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
    """Write a matrix (mn, k) of codes as the manual lays it out; return its descriptor and the first byte behind."""
    width, atom = PATTERNS[swizzle]
    bits = fmt.container_bits
    per_unit = 16 if padded else 128 // bits
    period = 4 if atom == 32 else 8
    mn, k = np.indices(matrix.shape)
    inner, outer = (mn, k) if transposed else (k, mn)
    rows_step = period * width + 16 * (swizzle == "none")  # with a gap, where nothing asks for alignment
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
    return encode_descriptor(start, leading, stride, swizzle, family="tcgen05"), -(-end // 1024) * 1024


class Memory:
    """Tensor memory and shared memory of all CTAs of an instruction: random bits, and the operands placed among them.

    `arguments` holds where each operand starts, by the names of :func:`sptc.tcgen05_mma`.
    """

    def __init__(self, opcode: Opcode, descriptor: InstructionDescriptor, rng: Random) -> None:
        i, self.ctas = descriptor.instruction, opcode.cta_group
        self.descriptor = descriptor
        self.layout = layout_for(opcode, i.m)
        self.tmem = rng.integers(0, 1 << 32, (self.ctas, 128, 512), dtype=np.uint32)
        self.smem = rng.integers(0, 256, (self.ctas, 1 << 17), dtype=np.uint8)
        self.arguments: dict[str, Any] = {"idesc": encode_instruction_descriptor(opcode, descriptor)}
        self._end = 0  # of what is placed in shared memory

    def in_shared(self, name: str, codes: NDArray, fmt: Format, transposed: bool, swizzle: str) -> None:
        """Place A or B; its rows, or columns of B, are shared by the CTAs."""
        padded, start = is_padded(self.descriptor.instruction, fmt), self._end
        for image, part in zip(self.smem, cut(codes, self.ctas), strict=True):
            self.arguments[name], self._end = place_shared(image, start, part, fmt, padded, transposed, swizzle)

    def in_tensor(self, name: str, where: TensorMap, codes: NDArray, start: int) -> None:
        """Place an operand whose rows are shared by the CTAs."""
        fill_tensor(self.tmem, where, cut(codes, self.ctas))
        self.arguments[name] = start

    def scales(self, name: str, lines: int, base: int, rng: Random) -> NDArray[np.uint8]:
        """Place random block scales of A or B, and return them, (CTAs, lines, scales)."""
        i = self.descriptor.instruction
        assert i.scale_format
        assert i.scale_size
        codes = random_codes(i.scale_format, "mid", (self.ctas, lines, i.scale_size), rng).astype(np.uint8)
        scale_id = getattr(self.descriptor, f"scale_id_{name}")
        parts = self.layout.column_parts if name == "b" else 1
        fill_tensor(self.tmem, scale_map(name, lines, i.scale_size, scale_id, base, parts), codes)
        self.arguments[f"scale_{name}"] = base
        return codes

    def images(self) -> dict[str, NDArray]:
        """Return both as the instruction takes them."""
        return {
            name: image if self.ctas == 2 else image[0] for name, image in (("tmem", self.tmem), ("smem", self.smem))
        }


def cut(rows: NDArray, ctas: int) -> NDArray:
    """Return rows by CTA, (CTAs, rows of a CTA, elements)."""
    return rows.reshape(ctas, -1, rows.shape[-1])


def is_padded(i: Instruction, fmt: Format) -> bool:
    """Whether elements lie in memory as in :meth:`Instruction.padded_unit`, stated once more."""
    return fmt.bits < 8 and "mxf4" not in i.kind


def instruction_for(opcode: Opcode, wanted: dict[str, object]) -> Instruction:
    """Return the first instruction of an opcode whose attributes are as wanted."""
    wanted = {"m": 32 if opcode.weight_stationary else 128 * opcode.cta_group, **wanted}
    return next(
        i for i in instructions_of(opcode)
        if all(getattr(getattr(i, name), "name", getattr(i, name)) == value for name, value in wanted.items())
    )  # fmt: skip


def descriptor_for(i: Instruction, options: dict[str, Any], rng: Random) -> InstructionDescriptor:
    """Return the instruction descriptor with some options; selector and scale IDs are random if not among them."""
    options = {"sparsity_selector": int(rng.integers(i.sparsity_selectors)), **options}
    for name in ("scale_id_a", "scale_id_b"):
        options.setdefault(name, int(rng.choice(range(0, 4, i.scale_size))) if i.scale_size else 0)
    return InstructionDescriptor(instruction=i, **options)


def containers(i: Instruction, codes: NDArray, fmt: Format, negated: bool) -> NDArray:
    """Return codes with their signs flipped if asked for, in the containers of the golden model."""
    flipped = codes ^ (1 << fmt.bits + fmt.ignored_low_bits - 1 if negated else 0)
    return (flipped << 2 * (is_padded(i, fmt) and fmt.bits == 4)).astype(CONTAINERS[i.container_bits])


def random_nibbles(i: Instruction, any_nibble: bool, rng: Random) -> NDArray[np.uint8] | None:
    """Return metadata (m, chunks) of a sparse instruction, legal or any."""
    if i.rule is None:
        return None
    legal = np.array(range(16) if any_nibble else sorted(i.rule.legal), np.uint8)
    return legal[rng.integers(0, len(legal), (i.m, i.chunks))]


def case(
    text: str,
    rng: Random,
    *,
    distribution: str = "",
    a_in: str = "shared",
    swizzles: tuple[str, str] = ("none", "none"),
    options: dict[str, Any] | None = None,
    any_nibble: bool = False,
    **wanted: object,
) -> Case:
    """Build an instruction whose shape and types are as wanted, with random operands and random bits around them.

    `options` are those of its descriptor, and the lane at which operands in tensor memory start.
    """
    opcode = parse_opcode(text)
    i = instruction_for(opcode, wanted)
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
    nibbles = random_nibbles(i, any_nibble, rng)
    memory = Memory(opcode, descriptor, rng)
    d_at, a_at, e_at = (lane << 16 | column for column in (D_AT, A_AT, E_AT))
    where_d = accumulator_map(memory.layout, i.n, i.d.bits, d_at)
    memory.in_tensor("d", where_d, c, d_at)
    if nibbles is not None:
        memory.in_tensor("e", metadata_map(memory.layout, i, descriptor.sparsity_selector, e_at), nibbles, e_at)
    if a_in == "shared":
        memory.in_shared("a", codes_a, i.a, descriptor.transpose_a, swizzles[0])
    else:
        noise = rng.integers(0, 4, codes_a.shape) << 6 if is_padded(i, i.a) else 0
        memory.in_tensor("a", a_map(memory.layout, i, a_at), codes_a | noise, a_at)
    memory.in_shared("b", codes_b, i.b, descriptor.transpose_b, swizzles[1])
    scale_a = scale_b = None
    if i.scale_size:
        scale_a = memory.scales("a", memory.layout.rows, SFA_AT, rng).reshape(i.m, -1)
        scale_b = memory.scales("b", i.n, SFB_AT, rng)
    return Case(
        text,
        i,
        {**memory.arguments, **memory.images()},
        containers(i, codes_a, i.a, descriptor.negate_a != descriptor.negate_b),
        containers(i, codes_b, i.b, False).T,
        c,
        nibbles,
        scale_a,
        scale_b,
        where_d,
        opcode.cta_group,
    )
