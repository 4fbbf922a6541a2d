"""Write ``tcgen05.mma`` operands to fixed places in tensor memory and shared memory, and read them back."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from ..isa.instructions import Instruction
from ..isa.memory import UNIT_BYTES, SharedMap
from ..isa.operands import MatrixOperands
from ..isa.shared_tile import packed_tile, tile_shape
from ..isa.tcgen05 import Opcode
from ..isa.tensor_memory import COLUMNS, LANES, TensorMap, accumulator_map, layout_for, metadata_map, scale_map
from .shared_memory import scatter_shared
from .tensor_memory import Placement, gather

__all__ = ["Arrangement", "arrangement"]

#: First tensor-memory column of D, of the metadata and of each operand's block scales. D occupies at most 256 columns.
#: The metadata, the scales of A and the scales of B occupy at most eight columns each.
_COLUMNS = {"d": 0, "e": 256, "scale_a": 264, "scale_b": 272}


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Placement of the operands of a ``tcgen05.mma``. A and B are K-major in shared memory, without swizzle."""

    opcode: Opcode  #: PTX opcode, which must not have ``.ashift``
    instruction: Instruction
    sparsity_selector: int
    #: Key: name of an operand. Value: matrix descriptor of A or B, or tensor-memory address of another operand.
    addresses: dict[str, int]
    placement: Placement  #: Position of each operand element in tensor memory or shared memory

    @property
    def _descriptor(self) -> InstructionDescriptor:
        return InstructionDescriptor(instruction=self.instruction, sparsity_selector=self.sparsity_selector)

    @property
    def idesc(self) -> int:
        """Instruction descriptor: the 32-bit operand that states shape and types of the instruction."""
        return encode_instruction_descriptor(self.opcode, self._descriptor)

    def images(self, matrices: MatrixOperands) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Return images of tensor memory and shared memory that hold a batch of operands. All other bytes are zero.

        The operands have the rows of all CTAs. The memories have the shapes (batch, CTAs, 128, 512), uint32, and
        (batch, CTAs, bytes), uint8.
        """
        i, where, ctas = self.instruction, self.placement, self.opcode.cta_group
        batch = len(matrices.a)
        tmem = np.zeros((batch, ctas, LANES, COLUMNS), np.uint32)
        assert isinstance(where.a, SharedMap)
        smem = np.zeros((batch, ctas, max(_end(where.a), _end(where.b))), np.uint8)
        for place, codes, fmt in ((where.a, matrices.a, i.a), (where.b, matrices.b.swapaxes(1, 2), i.b)):
            share = (codes >> _shift(i, fmt, place)).reshape(batch * ctas, -1, codes.shape[2])
            scatter_shared(smem.reshape(batch * ctas, -1), place, share)
        scale_b = None if matrices.scale_b is None else np.tile(matrices.scale_b, (1, ctas, 1))
        maps = where.d, where.e, where.scale_a, where.scale_b
        for in_tensor, code in zip(maps, (matrices.c, matrices.nibbles, matrices.scale_a, scale_b), strict=True):
            if in_tensor is not None:
                assert code is not None
                self.put(tmem, in_tensor, code)
        return tmem, smem

    def put(self, tmem: NDArray[np.uint32], where: TensorMap, codes: NDArray) -> None:
        """Write a matrix and its copies into zeroed words of `tmem`. Each CTA gets an equal part of the rows."""
        batch, ctas = tmem.shape[:2]
        share = codes.reshape(batch * ctas, -1, codes.shape[2])
        flat, elements = tmem.reshape(batch * ctas, -1), np.uint32((1 << where.element_bits) - 1)
        if where.fills_words:
            for copy in where.copies:
                flat[:, (where.lanes + copy) * COLUMNS + where.columns] = share
            return
        # Elements that begin at the same bit are in different 32-bit words, so one assignment can write all of them.
        for low_bit in np.unique(where.low_bits):
            there = np.s_[:] if (where.low_bits == low_bit).all() else where.low_bits == low_bit
            words = (share[:, there].astype(np.uint32) & elements) << np.uint32(low_bit)
            for copy in where.copies:
                flat[:, ((where.lanes + copy) * COLUMNS + where.columns)[there]] |= words

    def matrices(self, tmem: NDArray[np.uint32], smem: NDArray[np.uint8]) -> MatrixOperands:
        """Return the operands in images of tensor memory and shared memory: the inverse of :meth:`images`."""
        i, ctas, batch = self.instruction, self.opcode.cta_group, len(tmem)
        of_ctas = gather(self._descriptor, self.placement, tmem, smem)

        def together(codes: NDArray | None) -> NDArray | None:
            return None if codes is None else codes.reshape(batch, i.m, -1)

        a, c = together(of_ctas.a), together(of_ctas.c)
        assert a is not None
        assert c is not None
        scale_b = None if of_ctas.scale_b is None else of_ctas.scale_b[::ctas]
        return MatrixOperands(a, of_ctas.b[::ctas], c, together(of_ctas.nibbles), together(of_ctas.scale_a), scale_b)


@lru_cache(maxsize=16)
def arrangement(opcode: Opcode, instruction: Instruction, sparsity_selector: int = 0) -> Arrangement:
    """Return the placement of the operands of a ``tcgen05`` instruction. The opcode must not have ``.ashift``."""
    i, layout = instruction, layout_for(opcode, instruction.m)
    addresses, shared, start = {"d": _COLUMNS["d"]}, {}, 0
    for name in ("a", "b"):
        tile = packed_tile(i, name, opcode, start=start)
        addresses[name] = tile.encoded("tcgen05")
        shared[name] = tile_shape(i, name, opcode).map(tile)
        start = _end(shared[name])
    e = scale_a = scale_b = None
    if i.sparse:
        addresses["e"] = _COLUMNS["e"]
        e = metadata_map(layout, i, sparsity_selector, addresses["e"])
    if i.scale_size:
        addresses |= {name: _COLUMNS[name] for name in ("scale_a", "scale_b")}
        scale_a = scale_map("scale_a", layout.rows, i.scale_size, 0, addresses["scale_a"])
        scale_b = scale_map("scale_b", i.n, i.scale_size, 0, addresses["scale_b"], layout.column_parts)
    d = accumulator_map(layout, i.n, i.d.bits, addresses["d"])
    placement = Placement(d, shared["a"], shared["b"], e, scale_a, scale_b)
    return Arrangement(opcode, i, sparsity_selector, addresses, placement)


def _end(place: SharedMap) -> int:
    return -(-int(place.addresses.max() + 4) // UNIT_BYTES) * UNIT_BYTES


def _shift(instruction: Instruction, fmt: Format, place: SharedMap) -> int:
    """Return the number of low bits of an element's container that are not stored in shared memory."""
    return instruction.low_bit(fmt) if place.element_bits < instruction.container_bits else 0
