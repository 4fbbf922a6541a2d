"""``tcgen05.mma`` as a Python function, which checks all operands before a back end computes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError, shown
from ..golden.accumulator import scale_accumulator
from ..isa.architectures import require_target
from ..isa.column_mask import ColumnMask, decode_column_mask
from ..isa.instruction_descriptor import InstructionDescriptor, decode_instruction_descriptor
from ..isa.memory import SharedMap, decode_descriptor
from ..isa.operands import TensorMemoryOperands
from ..isa.shared_tile import SharedTile, tile_shape
from ..isa.tcgen05 import Opcode, parse_opcode
from ..isa.tensor_memory import (
    COLUMNS,
    LANES,
    Layout,
    TensorMap,
    a_map,
    accumulator_map,
    decode_address,
    layout_for,
    metadata_map,
    scale_map,
)
from ..operands.tensor_memory import Placement, gather, gather_tensor, scatter_tensor, shift_rows
from .backends import Backend
from .backends import backend as backend_named
from .operands import (
    METADATA_POLICIES,
    check_choice,
    check_image,
    check_metadata,
    check_presence,
    check_scales,
    describe,
    in_blocks,
    is_integer,
)

__all__ = ["placement_of", "shared_image", "tcgen05_mma", "tensor_image"]

#: Smallest value of a shared-memory descriptor: bit 46 of every descriptor is 1. A smaller value of operand A is a
#: tensor-memory address.
_SMALLEST_DESCRIPTOR = 1 << 46
#: Maximum number of memory images (batch elements) that are computed at once. The number is small, since an image of a
#: CTA's tensor memory has 256 KiB.
_BLOCK_IMAGES = 16


def tcgen05_mma(
    instruction: str,
    tmem: NDArray[np.uint32],
    d: int,
    a: int,
    b: int,
    idesc: int,
    *,
    e: int | None = None,
    smem: NDArray[np.uint8],
    scale_a: int | None = None,
    scale_b: int | None = None,
    enable_input_d: bool = True,
    scale_input_d: int = 0,
    disable_output_lane: Sequence[int] | None = None,
    zero_column_mask: int | None = None,
    arch: str = "sm_100",
    backend: str | Backend = "golden",
    metadata: str = "strict",
) -> NDArray[np.uint32]:
    """Compute ``tcgen05.mma`` or ``tcgen05.mma.ws``, dense or ``.sp``: D = A B + D in tensor memory.

    The numerics follow published models. For 21 dense forms, the models reproduce one to eight published result words
    of a B200; all other forms were not compared with a GPU. :func:`sptc.evidence` returns the evidence for a form.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers, for example ``tcgen05.mma.sp.cta_group::1.kind::f16``.
    tmem : ndarray of uint32, shape (..., 128, 512)
        Tensor memory, lane then column; (2, ..., 128, 512) with ``.cta_group::2``, one for each CTA. The other leading
        axes are a batch and broadcast against those of `smem`.
    d : int
        Address of D in tensor memory, ``lane << 16 | column``.
    a : int
        Shared-memory descriptor of A (64 bits, always at least 2**46), or address of A in tensor memory.
    b : int
        Shared-memory descriptor of B. With ``.cta_group::2`` the shared memory of each CTA holds half of the columns.
    idesc : int
        Instruction descriptor (32 bits): shape, types, selector, transposition, negation, scale ids.
    e : int, optional
        Address of the sparsity metadata in tensor memory; required by a sparse instruction.
    smem : ndarray of uint8, shape (..., bytes)
        Shared-memory image that the descriptors address; (2, ..., bytes) with ``.cta_group::2``.
    scale_a, scale_b : int, optional
        Addresses of the block scales in tensor memory, for the block-scaled kinds. Each CTA reads its own scales.
    enable_input_d : bool
        Whether D is added; otherwise D = A B, whatever D held before.
    scale_input_d : int
        D is multiplied by ``2**-scale_input_d`` before it is added: 0 to 15, for kinds f16 and tf32 without ``.ws``.
    disable_output_lane : sequence of 4 int, optional
        Mask of the lanes of D that are not written: each number has the bits of 32 lanes, the first number those of
        lanes 0 to 31, lane 0 in bit 0.
    zero_column_mask : int, optional
        Zero-column mask descriptor of ``.ws`` (64 bits): which columns of B are zero, and the shift of the columns.
    arch : str
        ``"sm_100"``, or a target with its numerics: ``"sm_100a"``, ``"sm_103a"``, which lacks ``.kind::i8``, or
        ``"sm_110a"``.
    backend : str or Backend
        ``"golden"``: the numpy model; ``"rtl"``: the datapath of the hardware, compiled by Verilator; ``"pysim"``: the
        same datapath in Amaranth's simulator; ``"tcgen05"``: the whole hardware of a CTA or a pair, from shared and
        tensor memory to tensor memory, for instructions of 128 rows a CTA; ``"native"``: the model in C++. Or an object
        that implements :class:`sptc.api.backends.Backend`.
    metadata : str
        ``"strict"`` raises for a nibble that the instruction declares undefined; ``"software"`` also accepts nibble 0x0
        if every stored value of the chunk is zero; ``"silicon"`` computes with any nibble as the multiplexers do.

    Returns
    -------
    ndarray of uint32, shape of `tmem` with the broadcast batch
        Tensor memory with the new D and, with ``.ashift``, with A shifted. An f16 of D takes the low half of its word;
        the high half does not change. No operand is modified.

    Raises
    ------
    InstructionError
        The text does not parse, or `arch` does not have the instruction.
    OperandError
        An operand is missing, superfluous, misaligned, or of the wrong shape, type or range; copies that must be equal
        differ; or no public source states how the instruction treats the operand.
    MetadataError
        A metadata nibble is undefined. The error gives its row of A and its lane of tensor memory.
    BackendError
        The back end is unknown or does not execute the instruction, or a tool that it needs is missing.

    Notes
    -----
    Source: PTX ISA, ``tcgen05.mma``, ``tcgen05.mma.sp`` and the sections they refer to; CUTLASS for metadata and
    scales in tensor memory; the published models of the dense instruction for every bit of the result.
    """
    opcode = parse_opcode(instruction)
    computes = backend_named(backend)
    check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    descriptor = decode_instruction_descriptor(opcode, _integer("idesc", idesc, opcode))
    arch = require_target(descriptor.instruction, arch, opcode)
    if not isinstance(enable_input_d, (bool, np.bool_)):
        raise OperandError(f"enable_input_d of {opcode} must be True or False, not {shown(enable_input_d)}")
    _check_scale_input_d(scale_input_d, opcode)
    disabled = _disabled_lanes(disable_output_lane, opcode)
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    check_presence(opcode, opcode.sparse, e=e)
    addresses = {"d": d, "a": a, "b": b} | ({} if e is None else {"e": e})
    placement = placement_of(opcode, descriptor, addresses, scales, zero_column_mask)
    tmem, image = tensor_image(opcode, tmem), shared_image(opcode, placement, smem)
    addresses = {name: int(at) for name, at in (addresses | scales).items() if at is not None}
    in_use = {
        "scale_input_d": scale_input_d != 0,
        "disable_output_lane": disabled is not None,
        "zero_column_mask": placement.zero_columns is not None,
    }
    options = tuple(name for name, used in in_use.items() if used)

    def compute(block: dict[str, Any]) -> NDArray[np.uint32]:
        i, batch = descriptor.instruction, len(block["tmem"])
        tmem = block["tmem"].reshape(batch, opcode.cta_group, LANES, COLUMNS)
        smem = block["smem"].reshape(batch, opcode.cta_group, -1)
        _check_copies(opcode, placement, tmem.reshape(-1, LANES, COLUMNS))
        operands = gather(descriptor, placement, tmem, smem)
        if operands.nibbles is not None and placement.e:
            check_metadata(
                i,
                operands.nibbles.reshape(batch, i.m, i.chunks),
                lambda: operands.a.reshape(batch, i.m, i.stored_k),
                placement.e.below_each_other(opcode.cta_group),
                metadata,
            )
        images = TensorMemoryOperands(opcode, descriptor, addresses, tmem, smem, bool(enable_input_d), options)
        c = _accumulator(operands.c, descriptor, enable_input_d, int(scale_input_d), opcode)
        product = computes.multiply(i, arch, replace(operands, c=c, held=images))
        if product.tmem is not None:
            return product.tmem.reshape(block["tmem"].shape)
        # PTX does not define the high half of a 32-bit word whose low half receives an f16. This model leaves the high
        # half unchanged.
        result = np.array(tmem, order="C")
        scatter_tensor(result.reshape(-1, LANES, COLUMNS), placement.d, product.d, disabled)
        if opcode.shifts_a and isinstance(placement.a, TensorMap):
            shift_rows(result, placement.a)
        return result.reshape(block["tmem"].shape)

    ctas = () if opcode.cta_group == 1 else (2,)
    tail, tails = (*ctas, LANES, COLUMNS), {"tmem": len(ctas) + 2, "smem": len(ctas) + 1}
    result = in_blocks({"tmem": tmem, "smem": image}, tail, compute, tails=tails, block_tiles=_BLOCK_IMAGES)
    return np.moveaxis(result, -3, 0) if ctas else result


def tensor_image(opcode: Opcode, tmem: object) -> NDArray[np.uint32]:
    """Check and return an image of tensor memory. For a CTA pair, move the CTA axis behind the batch axes."""
    ctas = () if opcode.cta_group == 1 else (2,)
    is_image = isinstance(tmem, np.ndarray) and tmem.dtype == np.uint32 and tmem.shape[-2:] == (LANES, COLUMNS)
    if not isinstance(tmem, np.ndarray) or not is_image or tmem.shape[:-2][: len(ctas)] != ctas:
        shape = ", ".join(map(str, (*ctas, "...", LANES, COLUMNS)))
        raise OperandError(f"tmem of {opcode} must be a uint32 array of shape ({shape}), not {describe(tmem)}")
    return np.moveaxis(tmem, 0, -3) if ctas else tmem


def shared_image(opcode: Opcode, placement: Placement, smem: object) -> NDArray[np.uint8]:
    """Check and return an image of shared memory. For a CTA pair, move the CTA axis behind the batch axes."""
    ctas = () if opcode.cta_group == 1 else (2,)
    shared = {name: where for name, where in (("a", placement.a), ("b", placement.b)) if isinstance(where, SharedMap)}
    image = check_image(smem, str(opcode), shared)
    if image.shape[:-1][: len(ctas)] != ctas:
        raise OperandError(f"smem of {opcode} must be a uint8 array of shape (2, ..., bytes), not {describe(smem)}")
    return np.moveaxis(image, 0, -2) if ctas else image


def _accumulator(
    c: NDArray, descriptor: InstructionDescriptor, enable_input_d: bool, scale_input_d: int, opcode: Opcode
) -> NDArray:
    """Return the accumulator input of ``tcgen05.mma``: the old D, the scaled old D, or zero."""
    if not enable_input_d:
        return np.zeros_like(c)
    if not scale_input_d:
        return c
    scaled, known = scale_accumulator(c, descriptor.instruction.c, scale_input_d)
    if not known.all():
        raise OperandError(
            f"scale_input_d of {opcode} must not be {scale_input_d}, which makes an element of D "
            f"subnormal: no public source states how a subnormal number is normalised or rounded"
        )
    return scaled


def _integer(name: str, value: object, opcode: Opcode) -> int:
    if not is_integer(value):
        raise OperandError(f"{name} of {opcode} must be an int, not {type(value).__name__}")
    return int(value)


def _check_scale_input_d(value: int, opcode: Opcode) -> None:
    number = _integer("scale_input_d", value, opcode)
    if number and not opcode.scales_input_d:
        raise OperandError(
            f"scale_input_d of {opcode} must be 0, not {shown(number)}; only kinds f16 and tf32 have other values"
        )
    if not 0 <= number <= 15:
        raise OperandError(f"scale_input_d of {opcode} must be 0 to 15, not {shown(number)}")


def _disabled_lanes(masks: Sequence[int] | None, opcode: Opcode) -> NDArray[np.bool_] | None:
    if masks is None:
        return None
    if opcode.weight_stationary or opcode.scale_size:
        raise OperandError(f"{opcode} takes no disable_output_lane")
    if opcode.cta_group == 2:
        raise OperandError(
            f"disable_output_lane of {opcode} must be left out: no public source states which of its eight numbers "
            f"belong to which CTA"
        )
    is_list = isinstance(masks, Sequence) and not isinstance(masks, (str, bytes))
    is_list |= isinstance(masks, np.ndarray) and masks.ndim == 1
    words = [_integer("a number in disable_output_lane", mask, opcode) for mask in masks] if is_list else []
    if len(words) != LANES // 32 or not all(0 <= word < 1 << 32 for word in words):
        raise OperandError(f"disable_output_lane of {opcode} must be 4 numbers of 32 bits, not {shown(masks)}")
    return np.array([words[lane // 32] >> lane % 32 & 1 for lane in range(LANES)], np.bool_)


def placement_of(
    opcode: Opcode,
    descriptor: InstructionDescriptor,
    operands: dict[str, int],
    scales: dict[str, int | None],
    zero_column_mask: int | None,
) -> Placement:
    """Return, for each element of each operand, its position in memory, from the given addresses and descriptors.

    `operands` are the descriptors and addresses of `a`, `b`, `d`, and `e` for a sparse instruction; `scales` the
    addresses of `scale_a` and `scale_b`. The zero-column mask and the `OperandError` are those of :func:`tcgen05_mma`.
    """
    instruction = descriptor.instruction
    operands = {name: _integer(name, value, opcode) for name, value in operands.items()}
    mask = _column_mask(zero_column_mask, opcode, descriptor)
    layout = layout_for(opcode, instruction.m)
    a_is_shared = operands["a"] >= _SMALLEST_DESCRIPTOR
    if opcode.shifts_a and a_is_shared:
        raise OperandError(f"a of {opcode} must be in tensor memory, where '.ashift' shifts it, not in shared memory")
    where_d = accumulator_map(layout, instruction.n, instruction.d.bits, operands["d"])
    in_tensor_memory = [name for name in ("d", "e", "a") if name in operands and (name != "a" or not a_is_shared)]
    _check_alignment(opcode, layout, {name: operands[name] for name in in_tensor_memory})
    if a_is_shared:
        where_a: TensorMap | SharedMap = _shared("a", operands["a"], opcode, descriptor)
    elif descriptor.transpose_a:
        raise OperandError(f"a of {opcode} must be in shared memory to be transposed, not in tensor memory")
    else:
        where_a = a_map(layout, instruction, operands["a"])
    selector, e = descriptor.sparsity_selector, operands.get("e")
    placement = Placement(
        where_d,
        where_a,
        _shared("b", operands["b"], opcode, descriptor, mask.shift if mask else 0),
        None if e is None else metadata_map(layout, instruction, selector, e),
        _scales("scale_a", scales["scale_a"], opcode, layout.rows, descriptor.scale_id_a),
        _scales("scale_b", scales["scale_b"], opcode, instruction.n, descriptor.scale_id_b, layout.column_parts),
        mask.zero if mask else None,
    )
    for name in ("a", "e", "scale_a", "scale_b"):
        where = getattr(placement, name)
        if isinstance(where, TensorMap) and (where.words() & where_d.words()).any():
            raise OperandError(f"{name} of {opcode} must not overlap d in tensor memory")
    return placement


def _check_alignment(opcode: Opcode, layout: Layout, addresses: dict[str, int]) -> None:
    """If D uses half of the lanes, raise an error unless all operands in tensor memory start at the same lane."""
    if layout.half_lanes:
        lanes = {name: decode_address(address, name)[0] for name, address in addresses.items()}
        if len(set(lanes.values())) > 1:
            lanes_used = ", ".join(f"{name} at {lane}" for name, lane in lanes.items())
            raise OperandError(
                f"the operands of {opcode} in tensor memory must start at the same lane, not {lanes_used}"
            )


def _column_mask(value: int | None, opcode: Opcode, descriptor: InstructionDescriptor) -> ColumnMask | None:
    if value is None:
        return None
    if not opcode.weight_stationary:
        raise OperandError(f"{opcode} takes no zero_column_mask, which only '.ws' has")
    number, i = _integer("zero_column_mask", value, opcode), descriptor.instruction
    return decode_column_mask(number, i.m, i.n, descriptor.max_shift, str(opcode))


def _shared(name: str, value: int, opcode: Opcode, descriptor: InstructionDescriptor, shift: int = 0) -> SharedMap:
    """Return the position of each element of A or B in shared memory. B starts after the first `shift` columns."""
    shape, decoded = tile_shape(descriptor.instruction, name, opcode), decode_descriptor(value, "tcgen05")
    transposed = descriptor.transpose_a if name == "a" else descriptor.transpose_b
    atoms_of_32 = transposed and shape.fmt.name == "tf32"
    if (decoded.swizzle.atom_bytes == 32) != atoms_of_32:
        needed = "must" if atoms_of_32 else "must not"
        form = "transposed" if transposed else "K-major"
        raise OperandError(
            f"descriptor {name} of {opcode} {needed} use the swizzle '128B with 32B atoms' for {form} .{shape.fmt.name}"
        )
    where = replace(shape, mn=shift + shape.mn).map(SharedTile(decoded, "mn" if transposed else "k"))
    return replace(where, addresses=where.addresses[shift:], low_bits=where.low_bits[shift:])


def _scales(
    name: str, address: int | None, opcode: Opcode, lines: int, scale_id: int, parts: int = 1
) -> TensorMap | None:
    check_scales(opcode, opcode.scale_size, name, address)
    if opcode.scale_size is None:
        return None
    return scale_map(name, lines, opcode.scale_size, scale_id, _integer(name, address, opcode), parts)


def _check_copies(opcode: Opcode, placement: Placement, tmem: NDArray[np.uint32]) -> None:
    """Raise an error unless all copies of each operand in tensor memory are equal.

    No public source states which copy the hardware reads.
    """
    for name in ("a", "e", "scale_a", "scale_b"):
        where = getattr(placement, name)
        for copy in where.copies[1:] if isinstance(where, TensorMap) else ():
            differs = gather_tensor(tmem, where) != gather_tensor(tmem, where, copy)
            if differs.any():
                _, line, column = (int(index) for index in np.argwhere(differs)[0])
                lane = int(where.lanes[line, column])
                raise OperandError(
                    f"{name} of {opcode} must be the same in its {len(where.copies)} copies in tensor memory; those at "
                    f"lanes {lane} and {lane + copy}, column {int(where.columns[line, column])}, differ"
                )
