"""From operands in registers and memory, the C interface computes the results of an H200 and of the golden model."""

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.errors import MetadataError
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.native.library import MmaOperands, Output, Shape
from sptc.sim.benches.random_operands import distributions
from sptc.verify.register_file import RegisterFile, read, shipped
from sptc.verify.stimulus import random_register_file

from .held import RefusedError, given, opened, refuses, run_file
from .products import available

EVERY = list(every_instruction())
#: One instruction for each combination of family, types, K, kind, sparsity (in either spelling) and scale format.
FEW = list({(i.family, i.a, i.b, i.d, i.k, i.kind, bool(i.sparse), i.scale_format): i for i in EVERY}.values())
F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
FEW_FORMS = [(i, i.architectures[-1]) for i in FEW]
EVERY_FORM = [(i, arch) for i in EVERY for arch in i.architectures]


def parts_of(file: RegisterFile) -> list[RegisterFile]:
    """Return parts of a register file. All cases of a part have the same descriptors of A and B."""
    if file.b_descriptor is None:
        return [file]
    pairs = np.stack([file.b_descriptor if x is None else x for x in (file.a_descriptor, file.b_descriptor)], 1)
    pairs = np.broadcast_to(pairs, (file.cases, 2)) if len(pairs) == 1 else pairs
    _, which = np.unique(pairs, axis=0, return_inverse=True)
    return [file.take(np.flatnonzero(which.reshape(-1) == number)) for number in range(which.max() + 1)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kernels", available())
def test_recordings(kernels: str) -> None:
    outputs = 0
    for path in shipped():
        file = read(path)
        if not isinstance(file, RegisterFile) or file.d is None:
            continue
        for part in parts_of(file):
            np.testing.assert_array_equal(run_file(part, 2, kernels), part.d, Path(path).name)
            outputs += part.c.size
    assert outputs > 1_400_000


@pytest.mark.parametrize("forms", [FEW_FORMS, pytest.param(EVERY_FORM, marks=pytest.mark.regression)], ids=len)
def test_random_tiles(forms: list[tuple[Instruction, str]], rng: np.random.Generator) -> None:
    """For each instruction, results of tiles from three random operand distributions equal the golden model."""
    cases = ((i, arch, kind) for i, arch in forms for kind in rng.permutation(distributions(i))[:3].tolist())
    for instruction, arch, distribution in cases:
        selector = int(rng.integers(instruction.sparsity_selectors))
        options = {"sparsity_selector": selector, "any_nibble": bool(rng.integers(2))}
        for part in parts_of(random_register_file(instruction, arch, distribution, 2, rng, **options)):
            message = f"{instruction} on {arch}, {distribution}, selector {selector}"
            np.testing.assert_array_equal(run_file(part), part.run("golden"), message)


def test_shapes() -> None:
    for i in EVERY[::7]:
        with opened(str(i), i.architectures[0]) as handle:
            shape = Shape()
            handle.call("get_shape", ctypes.byref(shape))
            assert handle.text == str(i)
        assert (shape.m, shape.n, shape.k, shape.stored_k, shape.chunks) == (i.m, i.n, i.k, i.stored_k, i.chunks), i
        assert (shape.selectors, shape.threads, shape.scales) == (i.sparsity_selectors, i.threads, i.scale_size or 0), i


@pytest.mark.parametrize("policy", ["strict", "software"])
def test_undefined_metadata(policy: str, rng: np.random.Generator) -> None:
    refused = 0
    for instruction in [i for i in FEW if i.sparse] * 3:
        file = random_register_file(instruction, instruction.architectures[-1], distributions(instruction)[0], 3, rng)
        words = rng.integers(0, 1 << 32, file.e.shape, dtype=np.uint32) * rng.integers(2, dtype=np.uint32)
        spoilt = np.where(rng.random(file.e.shape) < 0.02, words, file.e).astype(np.uint32)
        if file.a is not None and policy == "software":
            file = replace(file, a=np.where(rng.random(file.a.shape) < 0.5, 0, file.a).astype(np.uint32))
        file = replace(file.take(slice(0, 1)), e=spoilt[:1], metadata=policy)
        try:
            expected = file.run("golden")
        except MetadataError as error:
            with pytest.raises(RefusedError) as caught:
                run_file(file)
            said = str(error).replace("batch 0", "tile 0")
            assert (str(caught.value), caught.value.status) == (f"{said}.", 11)
            refused += 1
        else:
            np.testing.assert_array_equal(run_file(file), expected)
    assert refused > 30


def test_nothing_is_written_after_undefined_metadata(rng: np.random.Generator) -> None:
    file = random_register_file(parse(F16), "sm_90", "narrow", 100, rng)
    file.e[73] = 0
    file = replace(file, metadata="strict")
    d = np.full_like(file.c, 0x55555555)
    with opened(F16) as handle:
        inputs = map(given, (file.a, file.b, file.c, file.e))
        operands = MmaOperands(100, *inputs, file.sparsity_selector, 0, d=given(d, Output))
        with refuses("undefined metadata at tile 73, row 0, chunk 0"):
            handle.call("mma", ctypes.byref(operands), 2)
    assert (d == 0x55555555).all()
