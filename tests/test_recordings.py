"""The golden model and the hardware against recordings of a real GPU: every output bit, shipped and complete."""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from sptc.isa.instructions import every_instruction, parse
from sptc.sim import register_file
from sptc.sim.register_file import RegisterFile
from sptc.sim.replay import replay

FULL = Path(__file__).parents[2] / "shared" / "silicon"
SHIPPED = list(register_file.shipped())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recording(path: Path) -> None:
    """The hardware, the golden model and the recording, with each other."""
    outcome = replay(path, backend="rtl")
    assert outcome.outputs > 0
    assert outcome.mismatches == 0


def test_shipped_recordings_are_whole() -> None:
    """Every sm_90 mma instruction, selector and policy; every recorded wgmma form; every distribution."""
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    words: dict[str, set[str]] = defaultdict(set)
    for path in SHIPPED:
        file = register_file.read(path)
        found[str(file.instruction)].add((file.selector, file.metadata))
        with np.load(path) as archive:
            distribution = str(archive["distribution"]).split(",")
            assert "NVIDIA H200" in str(archive["recorded"])
        assert len(distribution) == file.cases
        words[file.instruction.family] |= set(distribution)
    for instruction in every_instruction("mma"):
        if "sm_90" in instruction.architectures:
            wanted = {(selector, "strict") for selector in range(instruction.selectors)}
            if instruction.sparse:
                wanted |= {(selector, "silicon") for selector in range(instruction.selectors)}
            assert found[str(instruction)] == wanted, str(instruction)
    assert sum(name.startswith("wgmma") for name in found) == 38
    assert words["mma"] >= {"narrow", "mid", "wide", "special", "uniform", "extreme", "anymeta", "ends", "tiny", "huge"}
    assert words["wgmma"] >= {"narrow", "mid", "wide", "special", "uniform", "anymeta"}


def test_a_planted_fault_is_seen(tmp_path: Path) -> None:
    file = register_file.read(SHIPPED[0])
    assert file.d is not None
    file.d[0, 5, 0] ^= 1
    register_file.write(tmp_path / "fault.npz", file)
    outcome = replay(tmp_path / "fault.npz")
    assert outcome.mismatches == 1
    assert outcome.first is not None
    assert outcome.first.computed ^ outcome.first.expected == 1


def _names() -> dict[str, str]:
    table = (FULL / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(\w+)` \| `([^`]+)`", table, re.MULTILINE))


@pytest.mark.skipif(not FULL.is_dir(), reason="the complete recordings lie beside the checkout only where it is built")
@pytest.mark.parametrize("backend", ["golden", "rtl"])
def test_every_recorded_set(backend: str) -> None:
    """All 354 sets, where the complete recordings are present."""
    names, sets, outputs = _names(), 0, 0
    for path in sorted(FULL.glob("*.npz")):
        with np.load(path) as archive:
            for key in sorted({key.rsplit("|", 1)[0] for key in archive.files}):
                name, selector, distribution = key.split("|")
                instruction = parse(names[name])
                a, b, c, d, e = (archive[f"{key}|{operand}"] for operand in "ABCDE")
                file = RegisterFile(
                    instruction=instruction,
                    selector=int(selector),
                    a=a,
                    b=b,
                    c=c,
                    e=e if instruction.sparse else None,
                    metadata="silicon" if distribution == "anymeta" else "strict",
                    b_descriptor=np.full(len(b), 128 >> 4 << 16, np.uint64),
                )
                computed = file.run(backend)
                assert np.array_equal(computed, d), key
                sets, outputs = sets + 1, outputs + d.size
    assert sets == 354
    print(f"{outputs} registers of {sets} sets agree")
