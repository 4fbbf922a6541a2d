"""Conversion of matrices to register files (``.npz``) of any instruction and back, for packs of test cases."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ..errors import FileError, OperandError
from ..isa.architectures import require_target, target_named
from ..isa.fragments import a_fragment, accumulator_fragment
from ..isa.instructions import every_instruction
from ..isa.names import Subject
from ..isa.operands import HeldOperands, MatrixOperands
from ..isa.tcgen05 import every_opcode, instructions_of
from ..isa.tensor_memory import COLUMNS, LANES, TensorMap, layout_for, metadata_map
from ..operands.arrangement import Arrangement, arrangement
from ..operands.registers import from_registers, gather_warp, pack_nibbles, unpack_nibbles
from ..operands.shared_memory import gather_shared
from ..operands.tensor_memory import gather_tensor
from .archive import Replayable
from .register_file import RegisterFile
from .stimulus import Given, matrices_file
from .tensor_memory_file import TensorMemoryFile

__all__ = ["every_subject", "file_of", "file_stem", "given_of", "require_placed"]


def file_stem(name: str) -> str:
    """Return the name of an instruction with characters that are valid in the name of a file or folder."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-")


def every_subject(arch: str) -> Iterator[Subject]:
    """Yield a target's instructions; of ``tcgen05`` that differ in N, only the smallest with documented placement."""
    target = target_named(arch)
    for i in every_instruction():
        if target.has(i):
            yield Subject(i)
    for opcode in every_opcode():
        seen = set()
        for i in instructions_of(opcode):
            form = replace(i, n=0)
            if target.has(i) and form not in seen:
                with suppress(OperandError):  # skip an instruction if the placement of its operands is unknown
                    arrangement(opcode, i)
                    seen.add(form)
                    yield Subject(i, opcode)


def require_placed(subject: Subject, arch: str) -> str:
    """Check that a conformance pack of the instruction can be made; return the architecture with the target's numerics.

    Raise an `InstructionError` if the architecture does not have the instruction, and an `OperandError` if no public
    source states where all operands are stored, or the instruction shifts A.
    """
    numerics_of = require_target(subject.instruction, arch, subject.opcode)
    if subject.opcode and subject.opcode.shifts_a:
        raise OperandError(
            f"no conformance pack can be made for {subject.opcode}, because '.ashift' shifts A in tensor memory"
        )
    if subject.opcode:
        arrangement(subject.opcode, subject.instruction)
    return numerics_of


def file_of(
    subject: Subject, arch: str, operands: Given, rng: np.random.Generator, sparsity_selector: int
) -> RegisterFile | TensorMemoryFile:
    """Return the operands as a register file (``.npz``), without D. Its policy ``silicon`` accepts any nibble.

    `rng` draws the same properties as for :func:`~sptc.verify.stimulus.matrices_file`. Raise an `OperandError` if no
    public source states where all operands are stored.
    """
    i = subject.instruction
    if subject.opcode:
        return _tensor_memory_file(arrangement(subject.opcode, i, sparsity_selector), arch, operands)
    file = matrices_file(i, arch, operands.matrices, rng, sparsity_selector=sparsity_selector)
    if operands.elsewhere is not None:
        assert file.e is not None
        following = (sparsity_selector + 1) % i.sparsity_selectors
        file = replace(file, e=pack_nibbles(operands.elsewhere, i, following, file.e))
    return replace(file, scale_d=True, imm_scale=(1, 1))


def given_of(file: Replayable) -> Given:
    """Return the operands of a register file (``.npz``) as matrices; their placement must be that of :func:`file_of`.

    Raise a `FileError` if ``tcgen05`` operands have other addresses than :func:`file_of` uses, if descriptors of
    ``wgmma`` differ between cases, or if ``wgmma`` negates operands or does not add the old D.
    """
    if isinstance(file, TensorMemoryFile):
        return _of_tensor_memory(file)
    assert isinstance(file, RegisterFile)
    i = file.instruction
    if not file.scale_d or file.imm_scale != (1, 1):
        raise FileError(f"a conformance pack of {i} must have scale_d = 1 and imm_scale = (1, 1)")
    held = HeldOperands(file.operands, file.immediates)
    matrices = _of_wgmma(file) if i.family == "wgmma" else gather_warp(i, held)
    elsewhere = None
    if file.e is not None and i.sparsity_selectors > 1:
        elsewhere = unpack_nibbles(file.e, i, (file.sparsity_selector + 1) % i.sparsity_selectors)
    return Given(matrices, elsewhere)


def _tensor_memory_file(where: Arrangement, arch: str, operands: Given) -> TensorMemoryFile:
    tmem, smem = where.images(operands.matrices)
    if operands.elsewhere is not None:
        where.put(tmem, _elsewhere(where), operands.elsewhere)
    cases, ctas = tmem.shape[:2]
    axis = (ctas,) if ctas > 1 else ()
    return TensorMemoryFile(
        opcode=where.opcode,
        idesc=where.idesc,
        addresses=where.addresses,
        tmem=tmem.reshape(cases, *axis, LANES, COLUMNS),
        smem=smem.reshape(cases, *axis, -1),
        arch=arch,
        metadata="silicon",
    )


def _of_tensor_memory(file: TensorMemoryFile) -> Given:
    i, ctas = file.instruction, file.opcode.cta_group
    expected = (arrangement(file.opcode, i, selector) for selector in range(i.sparsity_selectors))
    where = next((one for one in expected if (one.idesc, one.addresses) == (file.idesc, file.addresses)), None)
    if where is None:
        raise FileError(f"the operands of {file.name} are not at the addresses that `sptc pack` uses")
    tmem = file.tmem.reshape(file.cases, ctas, LANES, COLUMNS)
    matrices, elsewhere = where.matrices(tmem, file.smem.reshape(file.cases, ctas, -1)), None
    if i.sparse and i.sparsity_selectors > 1:
        elsewhere = gather_tensor(tmem.reshape(-1, LANES, COLUMNS), _elsewhere(where)).reshape(file.cases, i.m, -1)
    return Given(matrices, elsewhere)


def _elsewhere(where: Arrangement) -> TensorMap:
    """Return where in tensor memory the metadata of the next sparsity selector is (after the last: selector 0)."""
    i = where.instruction
    following = (where.sparsity_selector + 1) % i.sparsity_selectors
    return metadata_map(layout_for(where.opcode, i.m), i, following, where.addresses["e"])


def _of_wgmma(file: RegisterFile) -> MatrixOperands:
    i, smem = file.instruction, np.ascontiguousarray(file.b).view(np.uint8)
    for name, descriptors in (("a", file.a_descriptor), ("b", file.b_descriptor)):
        if descriptors is not None and (descriptors != descriptors[0]).any():
            raise FileError(f"a conformance pack of {i} must have one descriptor of {name.upper()} for all cases")
    shared = {name: gather_shared(smem, where) for name, where in file.shared_maps.items()}
    return MatrixOperands(
        shared["a"] if file.a is None else from_registers(file.a, a_fragment(i)),
        shared["b"].swapaxes(1, 2),
        from_registers(file.c, accumulator_fragment(i)),
        None if file.e is None else unpack_nibbles(file.e, i, file.sparsity_selector),
    )
