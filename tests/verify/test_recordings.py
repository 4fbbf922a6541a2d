"""The golden model and the hardware against recordings of a real GPU: every output bit, shipped and complete."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.isa.evidence import Evidence
from sptc.isa.instructions import every_instruction, parse
from sptc.verify import register_file
from sptc.verify.register_file import RegisterFile, manifest
from sptc.verify.replay import replay

SHIPPED = list(register_file.shipped())


def check_recordings(paths: Iterable[Path]) -> None:
    """Compare the hardware, the golden model and the recording with each other."""
    wrong = []
    for path in paths:
        (outcome,) = replay(path, backend="rtl")
        assert outcome.outputs == outcome.tiles * outcome.instruction.m * outcome.instruction.n > 0, path.name
        assert (outcome.path, outcome.arch, outcome.evidence) == (path, "sm_90", Evidence.RECORDED)
        if outcome.mismatches or outcome.first:
            wrong.append(f"{path.name}: {outcome.first}")
    assert not wrong, "\n".join(wrong)


def test_some_shipped_recordings(rng: np.random.Generator) -> None:
    """Of every instruction one."""
    files: dict[str, list[Path]] = defaultdict(list)
    for path in SHIPPED:
        files[path.name.partition(".selector")[0]].append(path)
    check_recordings(paths[int(rng.integers(len(paths)))] for paths in files.values())


@pytest.mark.regression
def test_shipped_recordings_are_whole() -> None:
    """Every sm_90 mma instruction, selector and policy; every recorded wgmma form; every distribution."""
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    words: dict[str, set[str]] = defaultdict(set)
    for path in SHIPPED:
        file = register_file.read(path)
        found[str(file.instruction)].add((file.sparsity_selector, file.metadata))
        with np.load(path) as archive:
            distribution = str(archive["distribution"]).split(",")
            assert "NVIDIA H200" in str(archive["recorded"])
        assert len(distribution) == file.cases
        words[file.instruction.family] |= set(distribution)
    for instruction in every_instruction("mma"):
        if "sm_90" in instruction.architectures:
            policies = ("strict", "silicon") if instruction.sparse else ("strict",)
            expected = {*itertools.product(range(instruction.sparsity_selectors), policies)}
            assert found[str(instruction)] == expected, str(instruction)
    of_wgmma = {name for name in found if name.startswith("wgmma")}
    assert sum(".sp." in name for name in of_wgmma) == 48
    # Dense ones: of every type pair and result at least one.
    rows = {(i.a, i.b, i.d, i.satfinite) for i in every_instruction("wgmma") if not i.sparse}
    dense = [parse(name) for name in of_wgmma if ".sp." not in name]
    assert {(i.a, i.b, i.d, i.satfinite) for i in dense} == rows
    assert words["mma"] >= {"narrow", "mid", "wide", "special", "uniform", "extreme", "anymeta", "ends", "tiny", "huge"}
    assert words["wgmma"] >= {"narrow", "mid", "wide", "special", "uniform", "anymeta"}


@pytest.mark.parametrize("backend", ["golden", "rtl"])
def test_every_recorded_set(recorded_sets: Iterator[tuple[str, RegisterFile]], backend: str) -> None:
    """All 354 sets, where the complete recordings are present."""
    sets, outputs = 0, 0
    for key, file in recorded_sets:
        assert file.d is not None
        assert np.array_equal(replace(file, d=None).run(backend), file.d), key
        sets, outputs = sets + 1, outputs + file.d.size
    assert sets == 354
    print(f"{outputs} registers of {sets} sets agree")


def test_the_manifest_is_that_of_the_files() -> None:
    path = Path(__file__).parents[2] / "recordings" / "manifest.json"
    assert path.read_text(encoding="utf-8") == manifest(), "run `python -m sptc.verify.register_file`"
