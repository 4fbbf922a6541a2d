"""Operand checks for all instructions, and computation of a batch in blocks of limited size."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..errors import MetadataError, NibblePlace, OperandError, shown
from ..isa.fragments import RegisterMap
from ..isa.instructions import Instruction
from ..isa.memory import ADDRESS_SPACE, SharedMap
from ..isa.tensor_memory import TensorMap
from ..isa.text import is_word_of
from ..operands.packing import common_batch

__all__ = [
    "METADATA_POLICIES",
    "Places",
    "Registers",
    "check_choice",
    "check_image",
    "check_metadata",
    "check_number",
    "check_presence",
    "check_scales",
    "checked_ids",
    "checked_selector",
    "describe",
    "in_blocks",
    "is_integer",
    "registers",
]

Registers = NDArray[np.uint32]
#: Type of a map: for each metadata nibble, shape (m, chunks), the lane and the bits that hold the nibble, in a register
#: or in a column of tensor memory.
Places = RegisterMap | TensorMap

METADATA_POLICIES = ("strict", "software", "silicon")
#: Maximum number of batch elements that are computed at once. It limits the memory that a call needs in addition to the
#: memory of operands and result.
_BLOCK_TILES = 1024


def check_choice(name: str, value: str, accepted: Sequence[str], error: type[Exception]) -> None:
    """Raise `error` unless `value` is one of the accepted texts."""
    if not is_word_of(value, accepted):
        raise error(f"{name} must be {' or '.join(map(repr, accepted))}, not {shown(value)}")


def describe(value: object) -> str:
    """Return the type of a rejected operand as text for a message. For an array, the text also gives the shape."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is a Python or numpy integer, but not a bool or a ``timedelta64``."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def registers(name: str, value: object, tail: tuple[int, ...], instruction: object) -> Registers:
    """Return `value` if it is a uint32 array whose last axes have the lengths `tail`; else raise an `OperandError`."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint32 or value.shape[-len(tail) :] != tail:
        shape = ", ".join(map(str, ("...", *tail)))
        raise OperandError(f"{name} of {instruction} must be a uint32 array of shape ({shape}), not {describe(value)}")
    return value


def check_number(name: str, value: object, accepted: Sequence[int], instruction: Instruction) -> None:
    """Raise an `OperandError` unless an operand is one of the accepted integers."""
    if not is_integer(value) or value not in accepted:
        raise OperandError(f"{name} of {instruction} must be {' or '.join(map(str, accepted))}, not {shown(value)}")


def check_presence(instruction: object, sparse: object, **operands: object) -> None:
    """Raise an error if a sparse instruction lacks an operand (`e`, `selector`), or a dense instruction has it."""
    for name, value in operands.items():
        words = "metadata operand e" if name == "e" else name
        if sparse and value is None:
            raise OperandError(f"{instruction} is sparse and requires the {words}")
        if not sparse and value is not None:
            raise OperandError(f"{instruction} is dense and takes no {words}")


def check_scales(instruction: object, scaled: object, name: str, value: object) -> bool:
    """Return whether the instruction has block scales. Raise an error if scales are missing or superfluous."""
    if not scaled and value is not None:
        raise OperandError(f"{instruction} has no block scales and takes no {name}")
    if scaled and value is None:
        raise OperandError(f"{instruction} is block-scaled and requires {name}")
    return value is not None


def checked_selector(selector: int, instruction: Instruction) -> int:
    """Return a sparsity selector as a Python int, which is hashable. Raise an error if its value is not accepted."""
    if not is_integer(selector):
        raise OperandError(f"the selector of {instruction} must be an int, not {type(selector).__name__}")
    if not 0 <= selector < instruction.sparsity_selectors:
        last = instruction.sparsity_selectors - 1
        raise OperandError(
            f"the selector of {instruction} must be {f'0 to {last}' if last else '0'}, not {shown(selector)}"
        )
    return int(selector)


def checked_ids(name: str, byte_id: Any, thread_id: Any, i: Instruction) -> tuple[int, int]:
    """Return byte id and thread id of block scales in registers as Python ints, or raise an error."""
    assert i.scale_size
    byte_ids, threads = range(0, 4, i.scale_size), range(2 if name == "scale_a" else 4)
    for label, number, accepted in (("byte id", byte_id, byte_ids), ("thread id", thread_id, threads)):
        check_number(f"the {label} in {name}", number, accepted, i)
    return int(byte_id), int(thread_id)


def check_image(smem: object, instruction: str, maps: Mapping[str, SharedMap]) -> NDArray[np.uint8]:
    """Return a shared-memory image. Raise an error unless it is uint8 and contains every byte of the operands."""
    if not isinstance(smem, np.ndarray) or smem.dtype != np.uint8 or smem.ndim < 1:
        raise OperandError(f"smem of {instruction} must be a uint8 array of shape (..., bytes), not {describe(smem)}")
    for name, where in maps.items():
        size = smem.shape[-1]
        first = where.first_beyond(min(size, ADDRESS_SPACE))
        if first is not None:
            limit = f"smem has {size} bytes" if size <= ADDRESS_SPACE else f"descriptors address {ADDRESS_SPACE} bytes"
            raise OperandError(f"descriptor {name} of {instruction} reaches byte {first}, but {limit}")
    return smem


def check_metadata(
    instruction: Instruction,
    nibbles: NDArray[np.uint8],
    stored: Callable[[], NDArray],
    places: Places,
    policy: str,
) -> None:
    """Raise a `MetadataError` for the first metadata nibble that the caller's policy (`metadata`) does not accept.

    The policy is ``"strict"``, ``"software"`` or ``"silicon"``. The nibbles have the shape (batch, m, chunks); `places`
    are their positions in registers or tensor memory, shape (m, chunks). `stored` returns the stored elements of A,
    shape (batch, m, stored k), and is called only under policy ``"software"``. The batch index of the error counts from
    the start of the block; see :func:`in_blocks`.
    """
    rule, granularity = instruction.rule, instruction.granularity
    assert rule
    assert granularity
    if policy == "silicon":
        return
    legal = np.isin(np.arange(16), list(rule.legal))[nibbles]
    if legal.all():
        return
    if policy == "software":
        codes = stored() >> instruction.low_bit(instruction.a)
        magnitude = (1 << instruction.a.bits - (1 if instruction.a.signed and not instruction.a.is_integer else 0)) - 1
        zero = ((codes & magnitude) == 0).reshape(*nibbles.shape, granularity.stored).all(axis=-1)
        legal |= zero & (nibbles == 0)
        if legal.all():
            return
    case, row, chunk = (int(index) for index in np.argwhere(~legal)[0])
    columns = places.columns
    place = NibblePlace(
        batch=(case,),
        row=row,
        chunk=chunk,
        lane=int(places.lanes[row, chunk]),
        low_bit=int(places.low_bits[row, chunk]),
        column=None if columns is None else int(columns[row, chunk]),
    )
    raise MetadataError(place, int(nibbles[case, row, chunk]), rule.name, rule.meaning)


def in_blocks(
    operands: dict[str, NDArray[Any]],
    result_tail: tuple[int, ...],
    compute: Callable[[dict[str, NDArray[Any]]], Registers],
    *,
    tails: Mapping[str, int] | None = None,
    block_tiles: int = _BLOCK_TILES,
) -> Registers:
    """Broadcast the batch axes of operands, and compute at most `block_tiles` batch elements at a time to save memory.

    `tails` gives, for each operand, the number of axes that follow the batch axes; the default suits operands in
    registers and in shared memory.
    """
    tails = tails or {name: 1 if name in ("e", "smem", "scale_a", "scale_b") else 2 for name in operands}
    shapes = {name: value.shape[: value.ndim - tails[name]] for name, value in operands.items()}
    batch = common_batch(shapes)
    axes = batch or (1,)
    # Broadcast operands are views with stride 0, which need no memory. Each pass of the loop copies the operands of at
    # most `block_tiles` batch elements.
    views = {
        name: np.broadcast_to(value, (*axes, *value.shape[len(shapes[name]) :])) for name, value in operands.items()
    }
    tiles = math.prod(axes)
    result = np.empty((tiles, *result_tail), np.uint32)
    for start in range(0, tiles, block_tiles):
        block = slice(start, min(start + block_tiles, tiles))
        where = block if len(axes) == 1 else np.unravel_index(np.arange(block.start, block.stop), axes)
        try:
            result[block] = compute({name: view[where] for name, view in views.items()})
        except MetadataError as error:
            case = np.unravel_index(block.start + error.batch[0], axes) if batch else ()
            raise error.at(tuple(int(index) for index in case)) from None
    return result.reshape(*batch, *result_tail)
