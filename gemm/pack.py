"""Functions ``sptc.pack`` and ``sptc.random_metadata``: copy matrices into an instruction's registers and memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.operands import (
    METADATA_POLICIES,
    Places,
    check_choice,
    check_metadata,
    checked_ids,
    checked_selector,
    describe,
    is_integer,
)
from ..errors import MetadataError, OperandError, shown
from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment, metadata_map
from ..isa.instructions import Instruction
from ..isa.names import resolve
from ..isa.tensor_memory import layout_for
from ..isa.tensor_memory import metadata_map as tensor_metadata_map
from ..operands.arrangement import arrangement
from ..operands.packing import (
    matrices_to_registers,
    metadata_to_registers,
    scales_to_registers,
    to_shared_memory,
    to_tensor_memory,
)
from ..operands.registers import CONTAINERS, pack_nibbles, random_nibbles
from ..tensors.compressed import Compressed
from .matrices import accumulator_codes, as_array, dense_codes, in_containers, sparse_codes

__all__ = ["pack", "random_metadata"]

#: Maximum number of tiles (operands A of one instruction each) for which random metadata is generated.
_MOST_TILES = 1 << 16


def pack(
    instruction: str,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    nibbles: NDArray[np.uint8] | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    selector: int = 0,
    a_from: str | None = None,
    swizzle: str = "none",
    metadata: str = "strict",
) -> dict[str, Any]:
    """Put the matrices of an instruction into its registers, shared memory or tensor memory.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers, or words that name it, as for :func:`sptc.evidence`; for ``tcgen05`` followed by
        shape and types in brackets, e.g. ``tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)``.
    a : array, tensor or Compressed, shape (..., m, K), or with `nibbles` (..., m, stored K)
        Matrix A of one instruction: a structured-sparse matrix with its zeros, or with `nibbles` its stored values.
        Arrays hold numbers or codes, as for :func:`sptc.gemm`. Numbers are rounded to the format; a NaN remains a NaN.
    b : array or tensor, shape (..., K, n)
        Matrix B of one instruction.
    c : array or tensor, shape (..., m, n), optional
        Accumulator, numbers of its type or codes (default: zero). Leading axes are a batch.
    nibbles : ndarray of uint8, shape (..., m, chunks), optional
        Metadata of A, if `a` holds only the stored values of A.
    scale_a, scale_b : ndarray of uint8, shape (..., m, scales) and (..., n, scales), optional
        Codes of block scales, required for block-scaled kinds; for ``mma`` also a tuple (codes, byte id, thread id).
    selector : int
        Sparsity selector.
    a_from : str, optional
        For ``wgmma``: A is in ``"registers"`` (the default) or in ``"shared"`` memory.
    swizzle : str
        For ``wgmma``: swizzle of shared memory, ``none``, ``32B``, ``64B`` or ``128B``.
    metadata : str
        Policy for undefined `nibbles`, as for :func:`sptc.mma`.

    Returns
    -------
    dict of str to object
        Keyword arguments of :func:`sptc.mma`, :func:`sptc.wgmma` or :func:`sptc.tcgen05_mma`, such as for
        ``sptc.mma(**sptc.pack(...))``. Operands in memory are K-major and consecutive. Bits that the instruction does
        not read are zero. For ``tcgen05``, `instruction` is the opcode without shape and types, which are in the
        descriptor `idesc`.

    Raises
    ------
    InstructionError
        The text does not parse.
    OperandError, SparsityError
        An operand is missing, superfluous, or of the wrong shape, type or range. A is not sparse. No public source
        states the placement of all operands of this ``tcgen05`` instruction.
    MetadataError
        A nibble is undefined.
    """
    subject = resolve(instruction)
    opcode, i = subject.opcode, subject.instruction
    check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    selector = checked_selector(selector, i)
    accepted = ("registers", "shared") if i.family == "wgmma" else ("shared" if opcode else "registers",)
    if a_from is not None:
        check_choice(f"a_from of {i}", a_from, accepted, OperandError)
    swizzles = ("none", "32B", "64B", "128B") if i.family == "wgmma" else ("none",)
    check_choice(f"swizzle of {i}", swizzle, swizzles, OperandError)
    stored, selected = _stored(i, a, nibbles)
    right = as_array("b", b)
    _check_shape("b", right, (i.k, i.n), i)
    right = in_containers(_flat(dense_codes, "b", right, i.b, "keep"), i, i.b)
    codes = np.zeros((i.m, i.n), CONTAINERS[i.c.bits]) if c is None else accumulator_codes(as_array("c", c), i)
    _check_shape("c", codes, (i.m, i.n), i)
    scales = {name: _checked_scale(name, scale, i) for name, scale in (("scale_a", scale_a), ("scale_b", scale_b))}
    of_tensor_memory = arrangement(opcode, i, selector) if opcode else None
    if selected is not None:
        where = of_tensor_memory.placement.e if of_tensor_memory else None
        places = where.below_each_other(opcode.cta_group) if opcode and where else metadata_map(i, selector)
        _check_nibbles(i, selected, stored, places, metadata)
    if of_tensor_memory:
        return to_tensor_memory(of_tensor_memory, stored, right, codes, selected, scales)
    fields: dict[str, Any] = {"instruction": str(i), "a": matrices_to_registers(stored, a_fragment(i))}
    if selected is not None:
        fields["e"], fields["selector"] = metadata_to_registers(i, selected, selector), selector
    if i.family == "mma":
        scale_registers = {name: scale and scales_to_registers(i, name, *scale) for name, scale in scales.items()}
        fields |= {
            "b": matrices_to_registers(right, b_fragment(i)),
            "c": matrices_to_registers(codes, accumulator_fragment(i)),
        }
        return fields | {name: scale for name, scale in scale_registers.items() if scale}
    shared = {"b": right.swapaxes(-1, -2)} | ({"a": stored} if a_from == "shared" else {})
    return fields | {"d": matrices_to_registers(codes, accumulator_fragment(i))} | to_shared_memory(i, shared, swizzle)


def random_metadata(
    instruction: str, rng: np.random.Generator | int, tiles: int = 1, *, selector: int = 0
) -> NDArray[np.uint32]:
    """Return random metadata words of a sparse instruction, with legal nibbles only.

    Parameters
    ----------
    instruction : str
        As for :func:`sptc.pack`.
    rng : Generator or int
        Source of randomness, or a seed.
    tiles : int
        Number of instructions.
    selector : int
        Sparsity selector, which decides the position of the nibbles in the words. All other bits are random.

    Returns
    -------
    ndarray of uint32, shape (tiles, threads), or for ``tcgen05`` (tiles, 128, columns)
        Register `e` of the threads; or the words of tensor memory from column `e` on. With ``.cta_group::2`` there is
        a leading axis of 2.

    Raises
    ------
    InstructionError
        The text does not parse.
    OperandError
        The instruction is dense, or an argument is of the wrong type or range.
    """
    subject = resolve(instruction)
    opcode, i = subject.opcode, subject.instruction
    if not i.sparse:
        raise OperandError(f"{i} is dense and has no metadata")
    selector = checked_selector(selector, i)
    if not is_integer(tiles) or not 1 <= tiles <= _MOST_TILES:
        raise OperandError(f"tiles must be an integer of 1 to {_MOST_TILES}, not {shown(tiles)}")
    if not isinstance(rng, np.random.Generator):
        if not is_integer(rng) or rng < 0:
            raise OperandError(f"rng must be a numpy.random.Generator or a seed of 0 or more, not {shown(rng)}")
        rng = np.random.default_rng(rng)
    nibbles = random_nibbles(i, int(tiles), rng)
    if opcode is None:
        others = rng.integers(0, 1 << 32, (len(nibbles), i.threads), dtype=np.uint32)
        return pack_nibbles(nibbles, i, selector, others)
    where = tensor_metadata_map(layout_for(opcode, i.m), i, selector, 0)
    share = nibbles.reshape(-1, *where.lanes.shape).astype(np.uint32)
    words = rng.integers(0, 1 << 32, (len(share), 128, int(where.columns.max()) + 1), dtype=np.uint32)
    for copy in where.copies:
        for row, chunk in np.ndindex(where.lanes.shape):
            place = slice(None), where.lanes[row, chunk] + copy, where.columns[row, chunk]
            low_bit = np.uint32(where.low_bits[row, chunk])
            words[place] = words[place] & ~(np.uint32(15) << low_bit) | share[:, row, chunk] << low_bit
    return np.moveaxis(words.reshape(len(nibbles), 2, *words.shape[1:]), 1, 0) if opcode.cta_group == 2 else words


def _check_shape(name: str, array: NDArray, tail: tuple[int, ...], i: Instruction) -> None:
    if array.shape[-len(tail) :] != tail or not array.size:
        expected = ", ".join(map(str, ("...", *tail)))
        raise OperandError(f"{name} of {i} must be of shape ({expected}), not {array.shape}")


def _flat(function: Callable[..., NDArray], name: str, array: NDArray, *options: Any) -> NDArray:
    """Apply a function of one matrix to a batch of matrices, by stacking the matrices along the rows."""
    return function(name, array.reshape(-1, array.shape[-1]), *options).reshape(array.shape)


def _stored(i: Instruction, a: Any, nibbles: Any) -> tuple[NDArray, NDArray[np.uint8] | None]:
    """Return the stored elements of A, each in 8, 16 or 32 bits, and the metadata if the instruction is sparse."""
    if isinstance(a, Compressed):
        if nibbles is not None:
            raise OperandError("a is compressed and contains its metadata: do not pass the argument nibbles")
        a, nibbles = a.stored, a.nibbles
    if nibbles is not None and not i.sparse:
        raise OperandError(f"{i} is dense and takes no metadata")
    values = as_array("a", a)
    if nibbles is not None:
        _check_shape("a with its nibbles", values, (i.m, i.stored_k), i)
        whole = isinstance(nibbles, np.ndarray) and nibbles.dtype == np.uint8 and bool((nibbles < 16).all())
        if not whole or nibbles.shape != (*values.shape[:-1], i.chunks):
            expected = (*values.shape[:-1], i.chunks)
            raise OperandError(f"nibbles of {i} must be uint8 below 16 of shape {expected}, not {describe(nibbles)}")
    else:
        _check_shape("a", values, (i.m, i.k), i)
    if nibbles is None and i.sparse:
        sparse, lead = sparse_codes("a", values.reshape(-1, i.k), i, nan="keep"), values.shape[:-1]
        assert sparse.nibbles is not None
        return in_containers(sparse.codes, i, i.a).reshape(*lead, -1), sparse.nibbles.reshape(*lead, -1)
    return in_containers(_flat(dense_codes, "a", values, i.a, "keep"), i, i.a), nibbles


def _check_nibbles(i: Instruction, nibbles: NDArray[np.uint8], stored: NDArray, places: Places, policy: str) -> None:
    lead = nibbles.shape[:-2]
    try:
        check_metadata(
            i, nibbles.reshape(-1, i.m, i.chunks), lambda: stored.reshape(-1, i.m, i.stored_k), places, policy
        )
    except MetadataError as error:
        case = np.unravel_index(error.batch[0], lead) if lead else ()
        raise error.at(tuple(int(index) for index in case)) from None


def _checked_scale(name: str, value: Any, i: Instruction) -> tuple[NDArray[np.uint8], int, int] | None:
    """Return codes, byte id and thread id of block scales, or None without block scales. Only ``mma`` uses the ids."""
    if i.scale_size is None:
        if value is not None:
            raise OperandError(f"{i} has no block scales and takes no {name}")
        return None
    byte_id = thread_id = 0
    if isinstance(value, tuple) and len(value) == 3 and i.family == "mma":
        value, byte_id, thread_id = value
        byte_id, thread_id = checked_ids(name, byte_id, thread_id, i)
    lines = i.m if name == "scale_a" else i.n
    if not isinstance(value, np.ndarray) or value.dtype.itemsize != 1 or value.dtype.kind not in "uV":
        raise OperandError(f"{name} of {i} must be codes in uint8 of shape (..., {lines}, {i.scale_size}), "
                           f"not {describe(value)}")  # fmt: skip
    _check_shape(name, value, (lines, i.scale_size), i)
    return np.ascontiguousarray(value).view(np.uint8), byte_id, thread_id
