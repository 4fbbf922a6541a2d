"""Operands and results of ``tcgen05.mma`` placed by the manual's text alone: own formulas, no map of the package.

Sections are of PTX ISA 9.7.16: shapes 2.1, shared-memory descriptor 4.1, instruction descriptor 4.2, packing 10.4, data
path layouts 10.5, block scales 10.7, sparse matrices 10.8. Where the manual has a picture only, CUTLASS's fragment is
read (metadata, copies of A, scales of layout B).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.int64]

#: Codes of types in the instruction descriptor (tables 42 to 44), and bits from one element to the next in memory.
TYPE_CODES = {
    "tf32": 2,
    "f16": 0,
    "bf16": 1,
    "u8": 0,
    "s8": 1,
    "e4m3": 0,
    "e5m2": 1,
    "e2m3": 3,
    "e3m2": 4,
    "e2m1": 5,
}
BITS = {"tf32": 32, "f16": 16, "bf16": 16, "u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}
DENSE_K = {"tf32": 8, "f16": 16, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SCALES = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 4}


@dataclass(frozen=True, kw_only=True)
class Form:
    """What an instruction and its descriptor say.

    Attributes
    ----------
    kind, a, b, d : str
        ``.kind::`` and types.
    m, n : int
        Rows and columns of D, of both CTAs of a pair.
    ctas : int
        ``.cta_group::``.
    sparse, stationary : bool
        ``.sp`` and ``.ws``.
    a_in_tensor : bool
        Whether A is in tensor memory.
    lane : int
        First lane of what takes half of them.
    selector, scale_ids, saturates : int, (int, int), bool
        Fields of the instruction descriptor.
    scales : int
        Block scales of a row; 0 without.
    """

    kind: str
    a: str
    b: str
    d: str
    m: int
    n: int
    ctas: int = 1
    sparse: bool = False
    stationary: bool = False
    a_in_tensor: bool = False
    lane: int = 0
    selector: int = 0
    scale_ids: tuple[int, int] = (0, 0)
    scale_type: str = "ue8m0"
    saturates: bool = False
    scales: int = 0

    @property
    def k(self) -> int:
        return DENSE_K[self.kind] * (2 if self.sparse else 1)

    @property
    def stored_k(self) -> int:
        return DENSE_K[self.kind]

    @property
    def packed(self) -> bool:
        """Whether two elements share a byte (10.4.5 and 10.4.6)."""
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def chunks(self) -> int:
        """Nibbles of a row: one for two logical tf32, eight 4-bit elements, or four others (10.8)."""
        return self.k // {"tf32": 2, "mxf4": 8, "mxf4nvf4": 8}.get(self.kind, 4)

    @property
    def rows(self) -> int:
        """Rows of D in one CTA."""
        return self.m // self.ctas

    @property
    def layout(self) -> str:
        """Table of 10.5."""
        if self.stationary:
            return {32: "G", 64: "E", 128: "D"}[self.m]
        if self.ctas == 1:
            return {64: "F", 128: "D"}[self.m]
        return "A" if self.m == 256 else "C" if self.sparse else "B"

    def lane_of(self, row: Bits) -> Bits:
        """Return the lane of a row of the CTA in column 0 (figures of 10.5.1 to 10.5.7)."""
        if self.layout in "CF":
            return self.lane + 32 * (row // 16) + row % 16
        return row

    @property
    def parts(self) -> int:
        """Parts of N that lie one below the other."""
        return {"B": 2, "E": 2, "G": 4}.get(self.layout, 1)

    def descriptor(self) -> int:
        """Return the instruction descriptor (tables 42 to 44)."""
        packed_code = 1 if self.packed else None
        value = self.sparse << 2 | (packed_code or TYPE_CODES[self.a]) << 7 | (packed_code or TYPE_CODES[self.b]) << 10
        value |= (self.n >> 3) << 17 | (self.m >> 4) << 24
        if self.scales:
            id_a, id_b = self.scale_ids
            return value | id_b << 4 | (self.scale_type == "ue8m0") << 23 | id_a << 29
        return value | self.selector | self.saturates << 3 | {"f16": 0, "f32": 1, "s32": 2}[self.d] << 4

    def text(self) -> str:
        words = ["tcgen05", "mma", *(["ws"] if self.stationary else []), *(["sp"] if self.sparse else [])]
        words += [f"cta_group::{self.ctas}", f"kind::{self.kind}"]
        if self.scales:
            words.append("block_scale")
        if self.kind == "mxf4nvf4":
            words.append("block16" if self.scales == 4 else "block32")
        return ".".join(words)


@dataclass
class Images:
    """Tensor memory and shared memory of the CTAs, with operands in them."""

    form: Form
    tmem: NDArray[np.uint32]
    smem: NDArray[np.uint8]

    def put(self, cta: int, lane: Bits, column: Bits, low: Bits | int, bits: int, value: Bits) -> None:
        """Write fields of words of tensor memory, one after the other as far as words are shared."""
        lane, column, low, value = np.broadcast_arrays(lane, column, low, value)
        mask = (1 << bits) - 1
        words = self.tmem[cta].astype(np.int64)
        np.bitwise_and.at(words, (lane, column), ~(mask << low))
        np.bitwise_or.at(words, (lane, column), (value.astype(np.int64) & mask) << low)
        self.tmem[cta] = words.astype(np.uint32)

    def put_d(self, codes: Bits, base: int) -> None:
        """Write D, (m, n); 16-bit elements take the low half of a word (10.4.1)."""
        form = self.form
        row, col = np.indices((form.rows, form.n))
        width = form.n // form.parts
        lane = form.lane_of(row) + form.rows * (col // width)
        for cta in range(form.ctas):
            part = codes[cta * form.rows : (cta + 1) * form.rows]
            self.put(cta, lane, base + col % width, 0, 16 if form.d == "f16" else 32, part)

    def put_metadata(self, nibbles: Bits, base: int) -> None:
        """Write nibbles (m, chunks), in every part of the lanes that the layout folds N into (10.8)."""
        form = self.form
        row, chunk = np.indices((form.rows, form.chunks))
        if form.kind in ("f16", "tf32"):  # four chunks of rows r and r + 8 in a word
            line, column = row // 16 * 16 + chunk // 4 * 8 + row % 8, base + form.selector
            low = row % 16 // 8 * 16 + chunk % 4 * 4
        else:
            line, column, low = row, base + chunk // 8, chunk % 8 * 4
        for cta in range(form.ctas):
            part = nibbles[cta * form.rows : (cta + 1) * form.rows]
            for copy in range(form.parts):
                self.put(cta, form.lane_of(line) + copy * form.rows, column, low, 4, part)

    def put_a_in_tensor(self, codes: Bits, base: int) -> None:
        """Write stored A (m, stored k): words packed from the low end (10.4.3, 10.4.5)."""
        form, bits = self.form, BITS[self.form.a]
        row, k = np.indices((form.rows, form.stored_k))
        for cta in range(form.ctas):
            part = codes[cta * form.rows : (cta + 1) * form.rows]
            for copy in range(form.parts):
                lane = form.lane_of(row) + copy * form.rows
                self.put(cta, lane, base + k * bits // 32, k * bits % 32, bits, part)

    def put_scales(self, name: str, codes: Bits, base: int) -> None:
        """Write block scales, (lines of a CTA's A or all of B, scales), by CTA; one byte each (10.7)."""
        form = self.form
        parts = form.parts if name == "b" else 1
        lines = codes.shape[1]
        line, scale = np.indices(codes.shape[1:])
        per_part = lines // parts
        for cta in range(form.ctas):
            for copy in range(4 // parts):
                lane = line // per_part * (128 // parts) + copy * 32 + line % per_part % 32
                low = 8 * (form.scale_ids[name == "b"] + scale)
                self.put(cta, lane, base + line % per_part // 32, low, 8, codes[cta])

    def put_shared(self, name: str, codes: Bits, start: int) -> int:
        """Write A or B, (lines of a CTA, k) by CTA, in core matrices of 8 lines of 16 bytes; return the descriptor.

        K-major without swizzle (3.1 and 4.1): 144 bytes from one core matrix to the next along M or N, so that there is
        a gap, and as much as all of these take along K. Elements of less than a byte are padded to 16 in 16 bytes
        (10.4.4), but for kinds that pack two in a byte.
        """
        form = self.form
        bits = BITS[getattr(form, name)]
        in_unit = 128 // bits if bits >= 8 or form.packed else 16
        line, k = np.indices(codes.shape[1:])
        along_lines = 144
        along_k = along_lines * -(-codes.shape[1] // 8)
        place = 8 * (start + line // 8 * along_lines + line % 8 * 16 + k // in_unit * along_k) + k % in_unit * bits
        for cta in range(form.ctas):
            flat = np.unpackbits(self.smem[cta], bitorder="little")
            for bit in range(bits):
                flat[place + bit] = codes[cta] >> bit & 1
            self.smem[cta] = np.packbits(flat, bitorder="little")
        return start >> 4 | along_k >> 4 << 16 | along_lines >> 4 << 32 | 1 << 46

    def as_arguments(self) -> dict[str, Any]:
        """Return both images as a call takes them."""
        pair = self.form.ctas == 2
        return {name: getattr(self, name) if pair else getattr(self, name)[0] for name in ("tmem", "smem")}
