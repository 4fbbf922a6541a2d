"""Functions that make random register files of every family, and read archives and error messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.isa.instructions import parse
from sptc.sim.benches.random_operands import random_operands
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

MakeTensorMemory = Callable[..., TensorMemoryFile]
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


def file_of(text: str, rng: Random, make: MakeTensorMemory, cases: int = 3) -> Any:
    """Return a random register file for an instruction of any family. `make` is the fixture `tensor_memory_file`."""
    return make(text, rng, cases=cases) if text.startswith("tcgen05") else random_file(text, rng, cases)


def contents(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def refusal(path: Path) -> str:
    """Return the error of reading a file, without the file name. The message must be one line with this name first."""
    with pytest.raises(sptc.Error) as caught:
        read(path)
    assert type(caught.value) is sptc.FileError
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    return message.removeprefix(str(path))
