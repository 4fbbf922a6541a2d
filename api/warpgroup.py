"""``wgmma.mma_async`` as a Python function, which checks all operands before a back end computes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError, OperandError, shown
from ..isa.fragments import a_fragment, accumulator_fragment, metadata_map
from ..isa.instructions import Instruction
from ..isa.memory import SharedMap, decode_descriptor, operand_map
from ..isa.names import resolve
from ..isa.operands import HeldOperands, Immediates, MatrixOperands
from ..operands.registers import from_registers, to_registers, unpack_nibbles
from ..operands.shared_memory import gather_shared
from .backends import MODELS, Backend
from .backends import backend as backend_named
from .operands import (
    METADATA_POLICIES,
    Registers,
    check_choice,
    check_image,
    check_metadata,
    check_presence,
    checked_selector,
    describe,
    in_blocks,
    is_integer,
    registers,
)

__all__ = ["wgmma", "wgmma_chain"]


def wgmma(
    instruction: str,
    d: Registers,
    a: Registers | int,
    b: int,
    e: Registers | None = None,
    selector: int | None = None,
    *,
    smem: NDArray[np.uint8],
    scale_d: bool = True,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    imm_trans_a: int = 0,
    imm_trans_b: int = 0,
    backend: str | Backend = "golden",
    metadata: str = "strict",
) -> Registers:
    """Compute ``wgmma.mma_async`` or ``wgmma.mma_async.sp``, D = A B + D, as an H200 does.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers.
    d : ndarray of uint32, shape (..., 128, registers)
        Accumulator registers of the 128 threads.
    a : ndarray of uint32, shape (..., 128, registers), or int
        Registers of the 128 threads that hold A, or the shared-memory descriptor of A.
    b : int
        Shared-memory descriptor of B.
    e : ndarray of uint32, shape (..., 128), optional
        Metadata; required by the sparse form, not accepted by the dense one.
    selector : int, optional
        Sparsity selector; required by the sparse form, not accepted by the dense one.
    smem : ndarray of uint8, shape (..., bytes)
        Shared-memory image that the descriptors address; address 0 is its first byte.
    scale_d : bool
        Whether D is added; otherwise D = A B, whatever `d` holds.
    imm_scale_a, imm_scale_b : int
        -1 negates the products; floats only. If both are -1, the signs cancel. PTX states that the elements of A or B
        are negated; for B this would give other results where an undefined nibble combines halves of two tf32 elements.
    imm_trans_a, imm_trans_b : int
        0: K-major; 1: MN-major, only for f16 and bf16 in shared memory.
    backend, metadata : str
        As for :func:`sptc.mma`.

    Returns
    -------
    ndarray of uint32, shape (..., 128, registers)
        The new D. No operand is modified.

    Raises
    ------
    InstructionError, OperandError, MetadataError, BackendError
        As for :func:`sptc.mma`.
    """
    parsed = resolve(instruction, "sm_90", family="wgmma").instruction
    if parsed.family != "wgmma":
        raise InstructionError(f"{parsed} is not a wgmma instruction; use sptc.mma.")
    computes = backend_named(backend)
    check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    imm_scale, imm_trans = (imm_scale_a, imm_scale_b), (imm_trans_a, imm_trans_b)
    check_presence(parsed, parsed.sparse, e=e, selector=selector)
    sparsity_selector = 0 if selector is None else checked_selector(selector, parsed)
    immediates = _immediates(parsed, sparsity_selector, isinstance(a, np.ndarray), scale_d, imm_scale, imm_trans)
    accumulators = accumulator_fragment(parsed)
    operands: dict[str, NDArray[Any]] = {"d": registers("d", d, (128, accumulators.registers), parsed)}
    maps = {"b": _shared_operand("b", b, parsed, imm_trans_b)}
    if isinstance(a, np.ndarray):
        operands["a"] = registers("a", a, (128, a_fragment(parsed).registers), parsed)
    else:
        maps["a"] = _shared_operand("a", a, parsed, imm_trans_a)
    if parsed.sparse:
        operands["e"] = registers("e", e, (128,), parsed)
    operands["smem"] = check_image(smem, str(parsed), maps)
    descriptors = (0 if isinstance(a, np.ndarray) else int(a), int(b))

    def compute(block: dict[str, Any]) -> Registers:
        smem = block["smem"]
        register_operands = {"b": smem, "c": block["d"]} | {name: block[name] for name in ("a", "e") if name in block}
        stored = gather_shared(smem, maps["a"]) if "a" in maps else from_registers(block["a"], a_fragment(parsed))
        nibbles = None
        if parsed.sparse:
            nibbles = unpack_nibbles(block["e"], parsed, sparsity_selector)
            check_metadata(parsed, nibbles, lambda: stored, metadata_map(parsed, sparsity_selector), metadata)
        # Hardware applies the sign of B after the multiplexer (measured on an H200), so it is applied to A here. A sign
        # before the multiplexer would differ where an undefined nibble combines halves of two tf32 elements.
        if imm_scale_a != imm_scale_b:
            stored = stored ^ stored.dtype.type(1 << parsed.container_bits - 1)
        matrices = MatrixOperands(
            stored,
            gather_shared(smem, maps["b"]).swapaxes(1, 2),
            from_registers(block["d"] if scale_d else np.zeros_like(block["d"]), accumulators),
            nibbles,
            held=HeldOperands(register_operands, immediates, descriptors),
        )
        return to_registers(computes.multiply(parsed, "sm_90", matrices).d, accumulators)

    return in_blocks(operands, accumulators.rows.shape[:2], compute)


def wgmma_chain(
    instruction: str,
    d: Registers,
    steps: Sequence[tuple[Registers | int, int]],
    *,
    smem: NDArray[np.uint8],
    scale_d: bool = True,
    backend: str | Backend = "golden",
    **immediates: Any,
) -> Registers:
    """Compute consecutive dense ``wgmma`` on the same accumulators. The result equals repeated calls of :func:`wgmma`.

    Back ends that model every architecture compute all instructions as one product; other back ends execute each
    instruction. `steps` are A and B of each instruction. `scale_d` tells whether the first instruction adds D; all
    later instructions add D. Further immediate operands such as ``imm_scale_a`` are the same for all instructions. The
    other parameters and the errors are those of :func:`wgmma`.
    """
    parsed = resolve(instruction, "sm_90", family="wgmma").instruction
    if len(steps) == 1 or backend not in MODELS or parsed.sparse:
        options: dict[str, Any] = {"smem": smem, "backend": backend, **immediates}
        for number, (a, b) in enumerate(steps):
            d = wgmma(instruction, d, a, b, scale_d=scale_d or number > 0, **options)
        return d
    operands: dict[str, NDArray[Any]] = {"d": d}
    maps: dict[str, SharedMap] = {}
    for number, (a, b) in enumerate(steps):
        maps[f"b{number}"] = _shared_operand("b", b, parsed, immediates.get("imm_trans_b", 0))
        if isinstance(a, np.ndarray):
            operands[f"a{number}"] = a
        else:
            maps[f"a{number}"] = _shared_operand("a", a, parsed, immediates.get("imm_trans_a", 0))
    operands["smem"] = check_image(smem, instruction, maps)
    accumulators, computes = accumulator_fragment(parsed), backend_named(backend)

    def compute(block: dict[str, Any]) -> Registers:
        def joined(name: str) -> NDArray:
            return np.concatenate([
                gather_shared(block["smem"], maps[key]) if (key := f"{name}{number}") in maps
                else from_registers(block[key], a_fragment(parsed))
                for number in range(len(steps))
            ], -1)  # fmt: skip

        a = joined("a")
        if immediates.get("imm_scale_a", 1) != immediates.get("imm_scale_b", 1):
            a ^= a.dtype.type(1 << parsed.container_bits - 1)
        c = from_registers(block["d"] if scale_d else np.zeros_like(block["d"]), accumulators)
        matrices = MatrixOperands(a, joined("b").swapaxes(1, 2), c)
        return to_registers(computes.multiply(parsed, "sm_90", matrices).d, accumulators)

    tails = {name: 1 if name == "smem" else 2 for name in operands}
    return in_blocks(operands, accumulators.rows.shape[:2], compute, tails=tails)


def _immediates(
    instruction: Instruction,
    selector: int,
    a_in_registers: bool,
    scale_d: bool,
    imm_scale: tuple[int, int],
    imm_trans: tuple[int, int],
) -> Immediates:
    """Check the immediate operands of a ``wgmma`` (scale and transposition) and return them."""
    if not isinstance(scale_d, (bool, np.bool_)):
        raise OperandError(f"scale_d of {instruction} must be True or False, not {shown(scale_d)}")
    for name, value in zip(("imm_scale_a", "imm_scale_b"), imm_scale, strict=True):
        _check_immediate(name, value, (1,) if instruction.a.is_integer else (1, -1), instruction)
    trans_a, trans_b = imm_trans
    transposes = (0, 1) if instruction.container_bits == 16 else (0,)
    _check_immediate("imm_trans_b", trans_b, transposes, instruction)
    if not a_in_registers:
        _check_immediate("imm_trans_a", trans_a, transposes, instruction)
    elif not is_integer(trans_a) or trans_a:
        raise OperandError(f"imm_trans_a of {instruction} must be 0 where a is held in registers, not {shown(trans_a)}")
    return Immediates(
        sparsity_selector=selector,
        a_in_registers=a_in_registers,
        scale_d=bool(scale_d),
        imm_scale=imm_scale,
        imm_trans=imm_trans,
    )


def _check_immediate(name: str, value: object, accepted: tuple[int, ...], instruction: Instruction) -> None:
    if not is_integer(value) or value not in accepted:
        raise OperandError(f"{name} of {instruction} must be {' or '.join(map(str, accepted))}, not {shown(value)}")


def _shared_operand(name: str, value: object, instruction: Instruction, transposed: int) -> SharedMap:
    if not is_integer(value):
        accepted = "an array of registers or a descriptor (an int)" if name == "a" else "a descriptor (an int)"
        raise OperandError(f"{name} of {instruction} must be {accepted}, not {describe(value)}")
    descriptor = decode_descriptor(int(value), instruction.family)
    return operand_map(instruction, name, descriptor, transposed=bool(transposed))
