"""Register files of random tiles and of given matrices, in registers and, for ``wgmma``, shared memory."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..operands.images import Layout, image, random_image
from ..operands.registers import pack_nibbles, pack_scales, to_registers
from ..sim.benches.random_operands import Operands, random_matrices, random_metadata, random_operands
from .register_file import RegisterFile

__all__ = ["further_file", "matrices_file", "random_register_file"]


def random_register_file(
    instruction: Instruction,
    arch: str,
    distribution: str,
    cases: int,
    rng: np.random.Generator,
    *,
    sparsity_selector: int = 0,
    any_nibble: bool = False,
    spread: bool = False,
) -> RegisterFile:
    """Return random tiles of an ``mma`` or ``wgmma``, with metadata policy ``silicon``.

    Parameters
    ----------
    instruction : Instruction
        An ``mma`` or ``wgmma`` instruction.
    arch : str
        Architecture that has the instruction.
    distribution, cases, rng, sparsity_selector, any_nibble
        As for :func:`random_operands`.
    spread : bool
        As for :func:`~sptc.operands.images.random_image`.

    Notes
    -----
    Operands of ``wgmma`` lie in random images made by :func:`~sptc.operands.images.random_image`.
    """
    if instruction.family == "mma":
        operands = random_operands(
            instruction, distribution, cases, rng, sparsity_selector=sparsity_selector, any_nibble=any_nibble
        )
        return _mma_file(instruction, arch, operands)
    a, b, c = random_matrices(instruction, distribution, cases, rng)
    return _wgmma_file(
        instruction,
        a,
        b,
        c,
        random_metadata(instruction, sparsity_selector, any_nibble, cases, rng),
        sparsity_selector,
        rng,
        spread=spread,
    )


def matrices_file(
    instruction: Instruction,
    arch: str,
    matrices: MatrixOperands,
    rng: np.random.Generator,
    *,
    sparsity_selector: int = 0,
) -> RegisterFile:
    """Return a register file of matrices for an ``mma`` or ``wgmma``, with metadata policy ``silicon``.

    Parameters
    ----------
    instruction : Instruction
        An ``mma`` or ``wgmma`` instruction.
    arch : str
        Architecture that has the instruction.
    matrices : MatrixOperands
        Content of registers and memory.
    rng : Generator
        Draws the bits beside metadata and scales in their registers, byte and thread ids, and for ``wgmma`` the same
        properties as :func:`random_register_file`.
    sparsity_selector : int
        Sparsity selector.
    """
    e = _packed_metadata(instruction, matrices, sparsity_selector, rng)
    if instruction.family == "wgmma":
        return _wgmma_file(instruction, matrices.a, matrices.b, matrices.c, e, sparsity_selector, rng)
    held = Operands(
        to_registers(matrices.a, a_fragment(instruction)),
        to_registers(matrices.b, b_fragment(instruction)),
        to_registers(matrices.c, accumulator_fragment(instruction)),
        e,
        sparsity_selector,
        _packed_scales(instruction, "a", matrices.scale_a, rng),
        _packed_scales(instruction, "b", matrices.scale_b, rng),
    )
    return _mma_file(instruction, arch, held)


def further_file(file: RegisterFile, matrices: MatrixOperands, rng: np.random.Generator) -> RegisterFile:
    """Return a register file of other matrices in the same places as in `file`; without D.

    Parameters
    ----------
    file : RegisterFile
        Result of :func:`matrices_file`. Its selector, ids, descriptors and immediates are kept.
    matrices : MatrixOperands
        Content of registers and memory.
    rng : Generator
        Draws the bits beside the matrices.
    """
    i = file.instruction
    e = _packed_metadata(i, matrices, file.sparsity_selector, rng)
    held = replace(file, c=to_registers(matrices.c, accumulator_fragment(i)), e=e, d=None)
    a = None if file.a is None else to_registers(matrices.a, a_fragment(i))
    if i.family == "mma":
        byte_a, thread_a, byte_b, thread_b = file.scale_ids
        scale_a = _scales_placed(i, "a", matrices.scale_a, (byte_a, thread_a), rng)
        scale_b = _scales_placed(i, "b", matrices.scale_b, (byte_b, thread_b), rng)
        return replace(held, a=a, b=to_registers(matrices.b, b_fragment(i)), scale_a=scale_a, scale_b=scale_b)
    found = {"a": file.a_descriptor, "b": file.b_descriptor}
    descriptors = {name: int(of_cases[0]) for name, of_cases in found.items() if of_cases is not None}
    transposed = {name: bool(value) for name, value in zip("ab", file.imm_trans, strict=True)}
    operands = {"a": matrices.a, "b": matrices.b.swapaxes(1, 2)}
    layout = Layout(descriptors, transposed, 4 * file.b.shape[1])
    shared = image(i, {name: operands[name] for name in descriptors}, layout, rng)
    of_cases = {name: np.full(len(matrices.a), value, np.uint64) for name, value in descriptors.items()}
    return replace(held, a=a, b=shared.words, a_descriptor=of_cases.get("a"), b_descriptor=of_cases["b"])


def _packed_metadata(
    instruction: Instruction, matrices: MatrixOperands, sparsity_selector: int, rng: np.random.Generator
) -> NDArray[np.uint32] | None:
    if matrices.nibbles is None:
        return None
    others = rng.integers(0, 1 << 32, (len(matrices.a), instruction.threads), dtype=np.uint32)
    return pack_nibbles(matrices.nibbles, instruction, sparsity_selector, others)


def _packed_scales(
    instruction: Instruction, operand: str, scales: NDArray[np.uint8] | None, rng: np.random.Generator
) -> tuple[NDArray[np.uint32], int, int] | None:
    """Pack scales into registers with random byte and thread ids."""
    if scales is None or instruction.scale_size is None:
        return None
    byte_id = instruction.scale_size * int(rng.integers(0, 4 // instruction.scale_size))
    thread_id = int(rng.integers(0, 2 if operand == "a" else 4))
    placed = _scales_placed(instruction, operand, scales, (byte_id, thread_id), rng)
    assert placed is not None
    return placed, byte_id, thread_id


def _scales_placed(
    instruction: Instruction,
    operand: str,
    scales: NDArray[np.uint8] | None,
    ids: tuple[int, int],
    rng: np.random.Generator,
) -> NDArray[np.uint32] | None:
    if scales is None:
        return None
    return pack_scales(scales, instruction, operand, ids, rng.integers(0, 256, (len(scales), 32, 4), dtype=np.uint8))


def _mma_file(instruction: Instruction, arch: str, operands: Operands) -> RegisterFile:
    """Return a register file of ``mma`` operands, with metadata policy ``silicon``."""
    scale_a, scale_b = operands.scale_a, operands.scale_b
    return RegisterFile(
        instruction=instruction,
        sparsity_selector=operands.sparsity_selector,
        a=operands.a,
        b=operands.b,
        c=operands.c,
        e=operands.e,
        arch=arch,
        metadata="silicon",
        scale_a=scale_a and scale_a[0],
        scale_b=scale_b and scale_b[0],
        scale_ids=(*scale_a[1:], *scale_b[1:]) if scale_a and scale_b else (0, 0, 0, 0),
    )


def _wgmma_file(
    instruction: Instruction,
    a: NDArray,
    b: NDArray,
    c: NDArray,
    e: NDArray[np.uint32] | None,
    sparsity_selector: int,
    rng: np.random.Generator,
    *,
    spread: bool = False,
) -> RegisterFile:
    """Return a register file of matrices for ``wgmma``, with metadata policy ``silicon``.

    Parameters
    ----------
    instruction : Instruction
        A ``wgmma`` instruction.
    a, b, c : ndarray, shape (cases, m, stored k), (cases, k, n) and (cases, m, n)
        Containers of A and B, accumulator codes.
    e : ndarray of uint32, shape (cases, 128)
        Metadata.
    sparsity_selector : int
        Sparsity selector that `e` was packed for.
    rng : Generator
        Draws whether A is in registers, places of operands in shared memory, imm-scale and scale-d.
    spread : bool
        As for :func:`~sptc.operands.images.random_image`.
    """
    in_registers = bool(rng.integers(2))
    shared = random_image(instruction, ({} if in_registers else {"a": a}) | {"b": b.swapaxes(1, 2)}, rng, spread=spread)
    descriptors = {name: np.full(len(b), value, np.uint64) for name, value in shared.descriptors.items()}
    signs = (1,) if instruction.a.is_integer else (1, 1, -1)
    return RegisterFile(
        instruction=instruction,
        sparsity_selector=sparsity_selector,
        a=to_registers(a, a_fragment(instruction)) if in_registers else None,
        b=shared.words,
        c=to_registers(c, accumulator_fragment(instruction)),
        e=e,
        arch="sm_90",
        metadata="silicon",
        a_descriptor=descriptors.get("a"),
        b_descriptor=descriptors["b"],
        scale_d=bool(rng.random() < 0.9),
        imm_scale=(int(rng.choice(signs)), int(rng.choice(signs))),
        imm_trans=(int(shared.transposed.get("a", False)), int(shared.transposed["b"])),
    )
