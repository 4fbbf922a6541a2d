"""``wgmma.mma_async`` as a Python function, which checks all operands before a back end computes."""

from collections.abc import Sequence
from dataclasses import replace
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
    check_number,
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
        are negated; a negation of the elements of B would give other results if an undefined nibble combines halves of
        two tf32 elements.
    imm_trans_a, imm_trans_b : int
        0: K-major; 1: MN-major, only for f16 and bf16 in shared memory.
    backend, metadata : str
        As for :func:`sptc.mma`.

    Returns
    -------
    ndarray of uint32, shape (..., 128, registers)
        Registers of the new D. No operand is modified.

    Raises
    ------
    InstructionError, OperandError, MetadataError, BackendError
        As for :func:`sptc.mma`.
    """
    parsed = resolve(instruction, "sm_90", family="wgmma").instruction
    if parsed.family != "wgmma":
        raise InstructionError(f"{parsed} is not a wgmma instruction; use sptc.mma")
    computes = backend_named(backend)
    check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    check_presence(parsed, parsed.sparse, e=e, selector=selector)
    sparsity_selector = 0 if selector is None else selector
    imm_scale, imm_trans = (imm_scale_a, imm_scale_b), (imm_trans_a, imm_trans_b)
    immediates = Immediates(sparsity_selector, scale_d=scale_d, imm_scale=imm_scale, imm_trans=imm_trans)
    return _chained(parsed, d, [(a, b)], e, smem, immediates, computes, metadata)


def wgmma_chain(
    instruction: str,
    d: Registers,
    steps: Sequence[tuple[Registers | int, int]],
    e: Registers | None = None,
    *,
    smem: NDArray[np.uint8],
    immediates: Immediates,
    backend: str | Backend = "golden",
    metadata: str = "strict",
) -> Registers:
    """Compute consecutive ``wgmma`` on the same accumulators. The result equals repeated calls of :func:`wgmma`.

    Back ends that model every architecture compute all dense instructions as one product; other back ends execute each
    instruction. `steps` are A and B of each instruction. `immediates` are the immediate operands of all instructions;
    except for the first instruction, D is always added. The other parameters and the errors are those of :func:`wgmma`.
    """
    parsed, computes = resolve(instruction, "sm_90", family="wgmma").instruction, backend_named(backend)
    check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    check_presence(parsed, parsed.sparse, e=e)
    if len(steps) == 1 or (backend in MODELS and not parsed.sparse):
        return _chained(parsed, d, steps, e, smem, immediates, computes, metadata)
    for step in steps:
        d = _chained(parsed, d, [step], e, smem, immediates, computes, metadata)
        immediates = replace(immediates, scale_d=True)
    return d


def _chained(
    parsed: Instruction,
    d: Registers,
    steps: Sequence[tuple[Registers | int, int]],
    e: Registers | None,
    smem: NDArray[np.uint8],
    immediates: Immediates,
    computes: Backend,
    metadata: str,
) -> Registers:
    """Check operands and compute D, for one instruction or several dense instructions on the same accumulators."""
    immediates = _checked(parsed, immediates, isinstance(steps[0][0], np.ndarray))
    accumulators, of_a = accumulator_fragment(parsed), a_fragment(parsed)
    operands: dict[str, NDArray[Any]] = {"d": registers("d", d, (128, accumulators.registers), parsed)}
    maps: list[dict[str, SharedMap]] = []
    names = ["a", *(f"a{number}" for number in range(1, len(steps)))]
    for name, (a, b) in zip(names, steps, strict=True):
        maps.append({"b": _shared_operand("b", b, parsed, immediates.imm_trans[1])})
        if isinstance(a, np.ndarray):
            operands[name] = registers("a", a, (128, of_a.registers), parsed)
        else:
            maps[-1]["a"] = _shared_operand("a", a, parsed, immediates.imm_trans[0])
    if parsed.sparse:
        operands["e"] = registers("e", e, (128,), parsed)
    for of_step in maps:
        operands["smem"] = check_image(smem, str(parsed), of_step)
    a, b = steps[0]
    descriptors = (0 if isinstance(a, np.ndarray) else int(a), int(b))
    selector, (scale_a, scale_b) = immediates.sparsity_selector, immediates.imm_scale

    def compute(block: dict[str, Any]) -> Registers:
        smem = block["smem"]
        parts = [gather_shared(smem, where["a"]) if "a" in where else from_registers(block[name], of_a)
                 for name, where in zip(names, maps, strict=True)]  # fmt: skip
        stored, b = _joined(parts), _joined([gather_shared(smem, where["b"]) for where in maps])
        nibbles = None
        if parsed.sparse:
            nibbles = unpack_nibbles(block["e"], parsed, selector)
            check_metadata(parsed, nibbles, lambda: stored, metadata_map(parsed, selector), metadata)
        arrays = {"b": smem, "c": block["d"]} | {name: block[name] for name in ("a", "e") if name in block}
        one_instruction = HeldOperands(arrays, immediates, descriptors) if len(steps) == 1 else None
        # Hardware applies the sign of B after the multiplexer (measured on an H200), so the model applies this sign to
        # A. A sign before the multiplexer would give other results if an undefined nibble combines halves of two tf32
        # elements.
        a = stored if scale_a == scale_b else stored ^ stored.dtype.type(1 << parsed.container_bits - 1)
        c = from_registers(block["d"] if immediates.scale_d else np.zeros_like(block["d"]), accumulators)
        matrices = MatrixOperands(a, b.swapaxes(1, 2), c, nibbles, held=one_instruction)
        return to_registers(computes.multiply(parsed, "sm_90", matrices).d, accumulators)

    return in_blocks(operands, accumulators.rows.shape[:2], compute)


def _joined(parts: list[NDArray]) -> NDArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, -1)


def _checked(instruction: Instruction, given: Immediates, a_in_registers: bool) -> Immediates:
    """Check the immediate operands of a ``wgmma`` and return them; the selector of a dense instruction becomes 0."""
    selector = checked_selector(given.sparsity_selector, instruction) if instruction.sparse else 0
    if not isinstance(given.scale_d, (bool, np.bool_)):
        raise OperandError(f"scale_d of {instruction} must be True or False, not {shown(given.scale_d)}")
    for name, value in zip(("imm_scale_a", "imm_scale_b"), given.imm_scale, strict=True):
        check_number(name, value, (1,) if instruction.a.is_integer else (1, -1), instruction)
    trans_a, trans_b = given.imm_trans
    transposes = (0, 1) if instruction.container_bits == 16 else (0,)
    check_number("imm_trans_b", trans_b, transposes, instruction)
    if not a_in_registers:
        check_number("imm_trans_a", trans_a, transposes, instruction)
    elif not is_integer(trans_a) or trans_a:
        raise OperandError(f"imm_trans_a of {instruction} must be 0 if operand a is in registers, not {shown(trans_a)}")
    return replace(given, sparsity_selector=selector, a_in_registers=a_in_registers, scale_d=bool(given.scale_d))


def _shared_operand(name: str, value: object, instruction: Instruction, transposed: int) -> SharedMap:
    if not is_integer(value):
        accepted = "an array of registers or a descriptor (an int)" if name == "a" else "a descriptor (an int)"
        raise OperandError(f"{name} of {instruction} must be {accepted}, not {describe(value)}")
    descriptor = decode_descriptor(int(value), instruction.family)
    return operand_map(instruction, name, descriptor, transposed=bool(transposed))
