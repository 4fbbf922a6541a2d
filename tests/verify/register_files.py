"""Functions that make random register files of every family, and read archives and error messages."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.instructions import parse
from sptc.isa.memory import encode_descriptor
from sptc.isa.tcgen05 import parse_opcode
from sptc.isa.tensor_memory import layout_for, metadata_map, scale_map
from sptc.sim.benches.random_operands import random_operands
from sptc.tests.api.tcgen05_case import instruction_for
from sptc.verify.register_file import RegisterFile, read
from sptc.verify.tensor_memory_file import TensorMemoryFile

SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
DENSE = "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32"
NVFP4 = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X"
NVFP4 += ".f32.e2m1.e2m1.f32.ue8m0"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16"
TCGEN05 = "tcgen05.mma.sp.cta_group::1.kind::f16"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::f16.collector::a::use"
MX = "tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16"
STATIONARY = "tcgen05.mma.ws.sp.cta_group::1.kind::i8"

Random = np.random.Generator


def random_file(text: str, rng: Random, cases: int = 3) -> RegisterFile:
    """Return a register file of random tiles. D is also random, because readers of files do not check D."""
    instruction = parse(text)
    if text == WGMMA:
        shapes = {"a": (cases, 128, 4), "b": (cases, 128), "c": (cases, 128, 2), "d": (cases, 128, 2)}
        arrays = {name: rng.integers(0, 1 << 32, shape, dtype=np.uint32) for name, shape in shapes.items()}
        e = np.full((cases, 128), 0x44444444, np.uint32)
        descriptors = rng.integers(0, 1 << 63, cases, dtype=np.uint64)
        return RegisterFile(instruction=instruction, sparsity_selector=1, e=e, b_descriptor=descriptors, **arrays)
    sparsity_selector = instruction.sparsity_selectors - 1
    distribution = "uniform" if instruction.a.is_integer else "mid"
    drawn = random_operands(instruction, distribution, cases, rng, sparsity_selector=sparsity_selector)
    options = {"scale_ids": drawn.immediates.scale_ids, "arch": "sm_120"} if instruction.scale_size else {}
    d = rng.integers(0, 1 << 32, drawn.arrays["c"].shape, dtype=np.uint32)
    return RegisterFile(instruction=instruction, sparsity_selector=sparsity_selector, d=d, **drawn.arrays, **options)


def tensor_memory_file(text: str, rng: Random, cases: int = 3, **shape: object) -> Any:
    """Return a tensor-memory file of ``tcgen05`` with random bits and with D from the golden model."""
    opcode = parse_opcode(text)
    shape = {"m": max(opcode.rows), "n": 64 if opcode.weight_stationary else 16, **shape}
    i = instruction_for(opcode, shape)
    layout = layout_for(opcode, i.m)
    ctas = (2,) if opcode.cta_group == 2 else ()
    tmem = rng.integers(0, 1 << 32, (cases, *ctas, 128, 512), dtype=np.uint32)
    smem = rng.integers(0, 256, (cases, *ctas, 1 << 15), dtype=np.uint8)
    # D is at column 256 and a shifted A at column 64. All words of metadata are equal, as are all words of scales.
    addresses = {"d": 256, "a": encode_descriptor(0, 2048, 128, family="tcgen05")}
    addresses["b"] = encode_descriptor(1 << 14, 2048, 128, family="tcgen05")
    if opcode.shifts_a:
        addresses["a"] = 64
    words: list[tuple[NDArray[np.bool_], int]] = []
    if i.sparse:
        addresses["e"] = 8
        words.append((metadata_map(layout, i, 0, 8).words(), 0x49CD4E86))
    if i.scale_size:
        addresses |= {"scale_a": 20, "scale_b": 40}
        for name, lines, parts in (("scale_a", layout.rows, 1), ("scale_b", i.n, layout.column_parts)):
            words.append((scale_map(name, lines, i.scale_size, 0, addresses[name], parts).words(), 0x7F7E7F80))
    for places, word in words:
        tmem[..., places] = word
    idesc = encode_instruction_descriptor(opcode, InstructionDescriptor(instruction=i))
    file = TensorMemoryFile(opcode=opcode, idesc=idesc, addresses=addresses, tmem=tmem, smem=smem)
    return replace(file, d=file.run())


def file_of(text: str, rng: Random, cases: int = 3) -> Any:
    return tensor_memory_file(text, rng, cases) if text.startswith("tcgen05") else random_file(text, rng, cases)


def contents(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def refusal(path: Path) -> str:
    """Return the error message of reading a file, without the file name at its start. The message must be one line."""
    with pytest.raises(sptc.Error) as caught:
        read(path)
    assert type(caught.value) is sptc.FileError
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    return message.removeprefix(str(path))
