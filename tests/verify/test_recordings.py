"""The golden model and the hardware against recordings of a real GPU: every output bit, shipped and complete."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.isa.instructions import every_instruction, parse
from sptc.verify import register_file
from sptc.verify.register_file import RegisterFile
from sptc.verify.replay import replay

SHIPPED = list(register_file.shipped())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recording(path: Path) -> None:
    """The hardware, the golden model and the recording, with each other."""
    (outcome,) = replay(path, backend="rtl")
    assert outcome.outputs > 0
    assert outcome.mismatches == 0


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
            wanted = {(sparsity_selector, "strict") for sparsity_selector in range(instruction.sparsity_selectors)}
            if instruction.sparse:
                wanted |= {
                    (sparsity_selector, "silicon") for sparsity_selector in range(instruction.sparsity_selectors)
                }
            assert found[str(instruction)] == wanted, str(instruction)
    of_wgmma = {name for name in found if name.startswith("wgmma")}
    assert sum(".sp." in name for name in of_wgmma) == 48
    # Dense ones: of every type pair and result at least one.
    rows = {(i.a, i.b, i.d, i.satfinite) for i in every_instruction("wgmma") if not i.sparse}
    dense = [parse(name) for name in of_wgmma if ".sp." not in name]
    assert {(i.a, i.b, i.d, i.satfinite) for i in dense} == rows
    assert words["mma"] >= {"narrow", "mid", "wide", "special", "uniform", "extreme", "anymeta", "ends", "tiny", "huge"}
    assert words["wgmma"] >= {"narrow", "mid", "wide", "special", "uniform", "anymeta"}


def test_a_planted_fault_is_seen(tmp_path: Path) -> None:
    file = register_file.read(SHIPPED[0])
    assert file.d is not None
    file.d[0, 5, 0] ^= 1
    register_file.write(tmp_path / "fault.npz", file)
    (outcome,) = replay(tmp_path / "fault.npz")
    assert outcome.mismatches == 1
    assert outcome.first is not None
    assert outcome.first.computed ^ outcome.first.expected == 1


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
