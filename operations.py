"""The instructions as functions: operands are checked here, once, whatever back end computes them."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import golden
from .errors import BackendError, InstructionError, MetadataError, OperandError
from .golden.matrix import multiply
from .golden.registers import unpack, unpack_nibbles
from .golden.warp import Multiply
from .isa.fragments import a_fragment, accumulator_fragment, b_fragment, metadata_map
from .isa.instructions import Instruction, parse, require_architecture
from .isa.memory import b_addresses, decode_descriptor
from .isa.numerics import evidence as evidence_of

__all__ = ["BACKENDS", "METADATA_POLICIES", "evidence", "mma", "wgmma"]

Registers = NDArray[np.uint32]
#: Scale data with byte id and thread id.
ScaleOperand = tuple[Registers, int, int]

BACKENDS = ("golden", "rtl", "pysim")
METADATA_POLICIES = ("strict", "software", "silicon")
#: Tiles worked on at once; bounds the memory of a call beside its operands and result.
_BLOCK_TILES = 1024


def evidence(instruction: str, arch: str) -> str:
    """Say what the numerics of an instruction on an architecture rest on.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers.
    arch : str
        For example ``"sm_90"``.

    Returns
    -------
    str
        ``"measured"``: the model reproduces every recorded output of a real GPU; ``"modelled"``: it follows published
        models of the dense instruction, unmeasured for the sparse one.
    """
    return evidence_of(parse(instruction), arch).value


def mma(
    instruction: str,
    a: Registers,
    b: Registers,
    c: Registers,
    e: Registers | None = None,
    selector: int = 0,
    *,
    scale_a: ScaleOperand | None = None,
    scale_b: ScaleOperand | None = None,
    arch: str = "sm_90",
    backend: str = "golden",
    metadata: str = "strict",
) -> Registers:
    """Compute ``mma`` or ``mma.sp`` exactly as the tensor core of an architecture does.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers.
    a, b, c : ndarray of uint32, shape (..., 32, registers)
        What the 32 threads hold. Leading axes are a batch and broadcast against each other.
    e : ndarray of uint32, shape (..., 32), optional
        Metadata; required by ``mma.sp``, not accepted by dense ``mma``.
    selector : int
        Sparsity selector: which lanes of each quad contribute metadata.
    scale_a, scale_b : (ndarray of uint32, shape (..., 32), int, int), optional
        Scale data, byte id and thread id of the block-scaled kinds.
    arch : str
        ``"sm_80"``, ``"sm_86"``, ``"sm_89"``, ``"sm_90"``, ``"sm_100"`` or ``"sm_120"``.
    backend : str
        ``"golden"``: the numpy model; ``"rtl"``: the hardware, compiled by Verilator; ``"pysim"``: the same hardware in
        Amaranth's simulator, which is slow and needs no compiler.
    metadata : str
        ``"strict"`` raises for a nibble that the instruction declares undefined; ``"software"`` also takes 0x0 where
        every stored value of the chunk is zero; ``"silicon"`` computes what the multiplexers do with any nibble.

    Returns
    -------
    ndarray of uint32, shape (..., 32, registers)
        D. No operand is modified.

    Raises
    ------
    InstructionError
        The text does not parse, or `arch` does not have the instruction.
    OperandError
        An operand is missing, superfluous, or of the wrong shape, type or range.
    MetadataError
        An undefined nibble.
    BackendError
        The back end is unknown.
    """
    parsed = parse(instruction)
    if parsed.family != "mma":
        raise InstructionError(f"{parsed} is not an mma instruction; use sptc.wgmma.")
    require_architecture(parsed, arch)
    _check_choice("backend", backend, BACKENDS, BackendError)
    _check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    accumulators = accumulator_fragment(parsed)
    operands = {
        "a": _registers("a", a, (32, a_fragment(parsed).registers), parsed),
        "b": _registers("b", b, (32, b_fragment(parsed).registers), parsed),
        "c": _registers("c", c, (32, accumulators.registers), parsed),
    }
    if e is not None and not parsed.sparse:
        raise OperandError(f"{parsed} is dense and takes no metadata operand e")
    if parsed.sparse:
        if e is None:
            raise OperandError(f"{parsed} is sparse and requires the metadata operand e")
        operands["e"] = _registers("e", e, (32,), parsed)
    _check_selector(selector, parsed)
    scale_ids: dict[str, tuple[int, int]] = {}
    for name, scale, threads in (("scale_a", scale_a, 2), ("scale_b", scale_b, 4)):
        if checked := _scale(name, scale, threads, parsed):
            operands[name] = checked[0]
            scale_ids[name] = checked[1:]

    def compute(block: dict[str, Registers]) -> Registers:
        if parsed.sparse:
            _check_metadata(parsed, block["e"], selector, block["a"], metadata)
        scales = {name: (block[name], *ids) for name, ids in scale_ids.items()}
        return golden.mma(
            parsed,
            arch,
            block["a"],
            block["b"],
            block["c"],
            block.get("e"),
            selector,
            scales.get("scale_a"),
            scales.get("scale_b"),
            _multiply_on(backend),
        )

    return _in_blocks(operands, accumulators.rows.shape[:2], compute)


def wgmma(
    instruction: str,
    d: Registers,
    a: Registers,
    b: int,
    e: Registers,
    selector: int,
    *,
    smem: NDArray[np.uint8],
    scale_d: bool = True,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    imm_trans_a: int = 0,
    imm_trans_b: int = 0,
    backend: str = "golden",
    metadata: str = "strict",
) -> Registers:
    """Compute ``wgmma.mma_async.sp`` with A from registers: D = A B + D, as an H200 does.

    Covered so far: B K-major without swizzle and n = 8, the forms whose recordings ship with the package.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers.
    d, a : ndarray of uint32, shape (..., 128, registers)
        Accumulator and A as the 128 threads hold them.
    b : int
        Shared-memory descriptor of B.
    e : ndarray of uint32, shape (..., 128)
        Metadata.
    selector : int
        Sparsity selector.
    smem : ndarray of uint8, shape (..., bytes)
        Shared-memory image that the descriptor points into.
    scale_d : bool
        Whether D is added; otherwise D = A B, whatever `d` holds.
    imm_scale_a, imm_scale_b : int
        -1 negates the elements of A or B, of floats only.
    imm_trans_a, imm_trans_b : int
        0, K-major; MN-major (1) is not covered yet.
    backend, metadata : str
        As for :func:`mma`.

    Returns
    -------
    ndarray of uint32, shape (..., 128, registers)
        The new D. No operand is modified.

    Raises
    ------
    InstructionError, OperandError, MetadataError, BackendError
        As for :func:`mma`.
    """
    parsed = parse(instruction)
    if parsed.family != "wgmma":
        raise InstructionError(f"{parsed} is not a wgmma instruction; use sptc.mma.")
    if parsed.n != 8:
        raise InstructionError(f"{parsed} has n = {parsed.n}; only n = 8 is supported, where recordings settle it.")
    _check_choice("backend", backend, BACKENDS, BackendError)
    _check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    if not isinstance(scale_d, (bool, np.bool_)):
        raise OperandError(f"scale_d of {parsed} must be True or False, not {scale_d!r}")
    for name, value in (("imm_scale_a", imm_scale_a), ("imm_scale_b", imm_scale_b)):
        accepted = (1,) if parsed.a.is_integer else (1, -1)
        if isinstance(value, bool) or value not in accepted:
            raise OperandError(f"{name} of {parsed} must be {' or '.join(map(str, accepted))}, not {value!r}")
    for name, value in (("imm_trans_a", imm_trans_a), ("imm_trans_b", imm_trans_b)):
        if isinstance(value, bool) or value != 0:
            raise OperandError(f"{name} of {parsed} must be 0, not {value!r}: only K-major operands are covered")
    if isinstance(b, bool) or not isinstance(b, (int, np.integer)):
        raise OperandError(f"b of {parsed} must be a descriptor (an int), not {type(b).__name__}")
    addresses = b_addresses(decode_descriptor(int(b)), parsed)
    accumulators = accumulator_fragment(parsed)
    operands: dict[str, NDArray[Any]] = {
        "d": _registers("d", d, (128, accumulators.registers), parsed),
        "a": _registers("a", a, (128, a_fragment(parsed).registers), parsed),
        "e": _registers("e", e, (128,), parsed),
    }
    _check_selector(selector, parsed)
    if not isinstance(smem, np.ndarray) or smem.dtype != np.uint8 or smem.ndim < 1:
        raise OperandError(f"smem of {parsed} must be a uint8 array of shape (..., bytes), not {_describe(smem)}")
    beyond = addresses.max() + parsed.container_bits // 8
    if smem.shape[-1] < beyond:
        raise OperandError(f"descriptor b of {parsed} reaches byte {beyond - 1}, but smem has {smem.shape[-1]} bytes")
    operands["smem"] = smem

    def compute(block: dict[str, Any]) -> Registers:
        _check_metadata(parsed, block["e"], selector, block["a"], metadata)
        accumulator = block["d"] if scale_d else np.zeros_like(block["d"])
        operands = (accumulator, block["a"], block["smem"], addresses, block["e"])
        negated = (imm_scale_a == -1, imm_scale_b == -1)
        return golden.wgmma(parsed, *operands, selector, *negated, _multiply_on(backend))

    return _in_blocks(operands, accumulators.rows.shape[:2], compute)


def _multiply_on(backend: str) -> Multiply:
    """Return what computes matrices on a back end; the hardware is imported only when asked for."""
    if backend == "golden":
        return multiply
    from .sim import engine

    return partial(engine.multiply, backend)


def _check_choice(name: str, value: str, accepted: Sequence[str], error: type[Exception]) -> None:
    if value not in accepted:
        raise error(f"{name} must be {' or '.join(map(repr, accepted))}, not {value!r}")


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def _registers(name: str, value: object, tail: tuple[int, ...], instruction: Instruction) -> Registers:
    """Return `value` if it is a uint32 array whose shape ends in `tail`."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint32 or value.shape[-len(tail) :] != tail:
        wanted = ", ".join(map(str, ("...", *tail)))
        raise OperandError(
            f"{name} of {instruction} must be a uint32 array of shape ({wanted}), not {_describe(value)}"
        )
    return value


def _check_selector(selector: int, instruction: Instruction) -> None:
    if isinstance(selector, bool) or not isinstance(selector, (int, np.integer)):
        raise OperandError(f"the selector of {instruction} must be an int, not {type(selector).__name__}")
    if not 0 <= selector < instruction.selectors:
        last = instruction.selectors - 1
        raise OperandError(f"the selector of {instruction} must be {f'0 to {last}' if last else '0'}, not {selector}")


def _scale(
    name: str, value: ScaleOperand | None, threads: int, instruction: Instruction
) -> tuple[Registers, int, int] | None:
    """Check one block-scale operand."""
    if instruction.scale_size is None:
        if value is not None:
            raise OperandError(f"{instruction} has no block scales and takes no {name}")
        return None
    if value is None:
        raise OperandError(f"{instruction} is block-scaled and requires {name}")
    if not isinstance(value, tuple) or len(value) != 3:
        raise OperandError(
            f"{name} of {instruction} must be a tuple (data, byte id, thread id), not {_describe(value)}"
        )
    data, byte_id, thread_id = value
    byte_ids = range(0, 4, instruction.scale_size)
    for label, number, accepted in (("byte id", byte_id, byte_ids), ("thread id", thread_id, range(threads))):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number not in accepted:
            choices = " or ".join(map(str, accepted))
            raise OperandError(f"the {label} in {name} of {instruction} must be {choices}, not {number!r}")
    return _registers(name, data, (32,), instruction), int(byte_id), int(thread_id)


def _check_metadata(instruction: Instruction, e: Registers, selector: int, a: Registers, policy: str) -> None:
    """Raise for the first nibble that `policy` does not take. `batch` is relative to the block; see `_in_blocks`."""
    rule, granularity = instruction.rule, instruction.granularity
    assert rule
    assert granularity
    if policy == "silicon":
        return
    nibbles = unpack_nibbles(e, instruction, selector)
    legal = np.isin(np.arange(16), list(rule.legal))[nibbles]
    if legal.all():
        return
    if policy == "software":
        codes = unpack(a, a_fragment(instruction)) >> instruction.low_bit(instruction.a)
        magnitude = (1 << instruction.a.bits - (1 if instruction.a.signed and not instruction.a.is_integer else 0)) - 1
        zero = ((codes & magnitude) == 0).reshape(*nibbles.shape, granularity.stored).all(axis=-1)
        legal |= zero & (nibbles == 0)
        if legal.all():
            return
    case, row, chunk = (int(index) for index in np.argwhere(~legal)[0])
    where = metadata_map(instruction, selector)
    raise MetadataError(
        (case,),
        row,
        chunk,
        int(where.lanes[row, chunk]),
        int(where.low_bits[row, chunk]),
        int(nibbles[case, row, chunk]),
        rule.name,
        rule.meaning,
    )


def _in_blocks(
    operands: dict[str, NDArray[Any]],
    result_tail: tuple[int, ...],
    compute: Callable[[dict[str, NDArray[Any]]], Registers],
) -> Registers:
    """Broadcast the batch axes and compute blocks of tiles, none of which copies more than itself."""
    tails = {name: 1 if name in ("e", "smem", "scale_a", "scale_b") else 2 for name in operands}
    shapes = {name: value.shape[: value.ndim - tails[name]] for name, value in operands.items()}
    try:
        batch = np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise OperandError(f"the batch axes of the operands do not broadcast: {listed}") from None
    axes = batch or (1,)
    # Stride-0 views: a broadcast operand is never copied whole, only block by block.
    views = {
        name: np.broadcast_to(value, (*axes, *value.shape[len(shapes[name]) :])) for name, value in operands.items()
    }
    tiles = math.prod(axes)
    result = np.empty((tiles, *result_tail), np.uint32)
    for start in range(0, tiles, _BLOCK_TILES):
        block = slice(start, min(start + _BLOCK_TILES, tiles))
        where = block if len(axes) == 1 else np.unravel_index(np.arange(block.start, block.stop), axes)
        try:
            result[block] = compute({name: view[where] for name, view in views.items()})
        except MetadataError as error:
            case = np.unravel_index(block.start + error.batch[0], axes) if batch else ()
            raise error.at(tuple(int(index) for index in case)) from None
    return result.reshape(*batch, *result_tail)
