"""Registers and shared memory through the C interface: recordings of silicon, and the golden model on random tiles."""

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.errors import MetadataError
from sptc.golden.registers import unpack_nibbles
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.native.library import Input, MmaOperands, Output
from sptc.sim.benches.random_operands import distributions
from sptc.verify.register_file import RegisterFile, read, shipped
from sptc.verify.stimulus import random_register_file

from .held import RefusedError, given, opened, run_file, shape_of
from .products import available

EVERY = list(every_instruction())
#: One of each that differs in more than sparse spelling or N.
FEW = list({(i.family, i.a, i.b, i.d, i.k, i.kind, bool(i.sparse), i.scale_format): i for i in EVERY}.values())
F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


def parts_of(file: RegisterFile) -> list[RegisterFile]:
    """Return the cases of each pair of descriptors by themselves."""
    if file.b_descriptor is None:
        return [file]
    pairs = np.stack([file.b_descriptor if x is None else x for x in (file.a_descriptor, file.b_descriptor)], 1)
    pairs = np.broadcast_to(pairs, (file.cases, 2)) if len(pairs) == 1 else pairs
    _, which = np.unique(pairs, axis=0, return_inverse=True)
    return [file.take(np.flatnonzero(which.reshape(-1) == number)) for number in range(which.max() + 1)]


@pytest.mark.parametrize("kernels", available())
def test_recordings(kernels: str) -> None:
    """What an H200 computed, from the registers that it was given."""
    outputs = 0
    for path in shipped():
        file = read(path)
        if not isinstance(file, RegisterFile) or file.d is None:
            continue
        for part in parts_of(file):
            np.testing.assert_array_equal(run_file(part, 2, kernels), part.d, Path(path).name)
            outputs += part.c.size
    assert outputs > 1_400_000


def check(instruction: Instruction, arch: str, rng: np.random.Generator) -> None:
    for distribution in distributions(instruction):
        selector = int(rng.integers(instruction.sparsity_selectors))
        file = random_register_file(
            instruction, arch, distribution, 2, rng, sparsity_selector=selector, any_nibble=bool(rng.integers(2))
        )
        wanted = file.run("golden")
        found = np.concatenate([run_file(part) for part in parts_of(file)]) if file.b_descriptor is None else None
        if found is None:
            found = np.empty_like(wanted)
            for case in range(file.cases):
                found[case : case + 1] = run_file(file.take(slice(case, case + 1)))
        np.testing.assert_array_equal(found, wanted, f"{instruction} on {arch}, {distribution}")


@pytest.mark.parametrize("instruction", FEW, ids=str)
def test_random_tiles(instruction: Instruction, rng: np.random.Generator) -> None:
    check(instruction, instruction.architectures[-1], rng)


@pytest.mark.regression
@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_every_instruction(family: str, rng: np.random.Generator) -> None:
    for instruction in EVERY:
        for arch in instruction.architectures if instruction.family == family else ():
            check(instruction, arch, rng)


@pytest.mark.parametrize("instruction", EVERY[::7], ids=str)
def test_shapes(instruction: Instruction) -> None:
    with opened(str(instruction), instruction.architectures[0]) as handle:
        found = shape_of(handle)
        assert handle.text == str(instruction)
        assert (found.m, found.n, found.k) == (instruction.m, instruction.n, instruction.k)
        assert (found.stored_k, found.chunks) == (instruction.stored_k, instruction.chunks)
        assert (found.selectors, found.threads) == (instruction.sparsity_selectors, instruction.threads)
        assert found.scales == (instruction.scale_size or 0)


@pytest.mark.parametrize("policy", ["strict", "software"])
def test_undefined_metadata(policy: str, rng: np.random.Generator) -> None:
    """The same nibble is refused as by the golden model, in the same words, and nothing is written."""
    refused = 0
    for instruction in [i for i in FEW if i.sparse]:
        file = random_register_file(instruction, instruction.architectures[-1], distributions(instruction)[0], 3, rng)
        spoilt = np.where(rng.random(file.e.shape) < 0.02, 0, file.e).astype(np.uint32)
        if file.a is not None and policy == "software":
            file = replace(file, a=np.where(rng.random(file.a.shape) < 0.5, 0, file.a).astype(np.uint32))
        file = replace(file.take(slice(0, 1)), e=spoilt[:1], metadata=policy)
        try:
            wanted = file.run("golden")
        except MetadataError as error:
            with pytest.raises(RefusedError) as caught:
                run_file(file)
            said = str(error).replace("batch 0", "tile 0")
            assert (str(caught.value), caught.value.status) == (f"{said}.", 11)
            refused += 1
        else:
            np.testing.assert_array_equal(run_file(file), wanted)
    assert refused > 10


def test_nothing_is_written_unless_all_metadata_is_taken(rng: np.random.Generator) -> None:
    instruction = parse(F16)
    file = random_register_file(instruction, "sm_90", "narrow", 100, rng)
    file.e[73] = 0
    file = replace(file, metadata="strict")
    d = np.full_like(file.c, 0x55555555)
    with opened(F16) as handle:
        operands = MmaOperands(
            100, *map(given, (file.a, file.b, file.c, file.e)), file.sparsity_selector, 0, Input(), Input(), 0, 0, 0, 0,
            given(d, Output),
        )  # fmt: skip
        with pytest.raises(RefusedError, match="undefined metadata at tile 73, row 0, chunk 0"):
            handle.call("mma", ctypes.byref(operands), 2)
    assert (d == 0x55555555).all()


@pytest.mark.parametrize("instruction", [i for i in FEW if i.sparse][::3], ids=str)
def test_metadata_is_decoded(instruction: Instruction, rng: np.random.Generator) -> None:
    e = rng.integers(0, 1 << 32, (4, instruction.threads), dtype=np.uint32)
    selector = instruction.sparsity_selectors - 1
    wanted = unpack_nibbles(e, instruction, selector)
    nibbles, defined = np.empty_like(wanted), np.empty_like(wanted)
    with opened(str(instruction), instruction.architectures[0]) as handle:
        handle.call("metadata", len(e), given(e), selector, given(nibbles, Output), given(defined, Output))
    np.testing.assert_array_equal(nibbles, wanted)
    assert instruction.rule
    np.testing.assert_array_equal(defined, np.isin(wanted, list(instruction.rule.legal)))
