"""``sptc run`` holds a back end against the recording and against the golden model: one that differs is enough.

Back ends are stand-ins that change chosen outputs of the golden model, so that each of the three can be at fault alone.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.api.backends import backend as backend_named
from sptc.api.recorder import Recorder
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.archive import Recorded
from sptc.verify.register_file import RegisterFile, read, shipped, write
from sptc.verify.tensor_memory_file import TensorMemoryFile

COMMAND = "run"
#: Elements of a result, as numpy counts them, whose lowest bit is flipped.
Flips = tuple[int, ...]


@dataclass(frozen=True)
class Sources:
    """Where outputs of the three are changed, as flat indices; there is no recording if its is None."""

    recording: Flips | None = ()
    golden: Flips = ()
    rtl: Flips = ()

    @property
    def mismatches(self) -> int:
        """Outputs of the RTL that differ from the recording, the golden model or both."""
        references = [self.golden] if self.recording is None else [self.recording, self.golden]
        return len(set().union(*({*self.rtl} ^ {*flips} for flips in references)))

    @property
    def reference(self) -> str | None:
        """What the first mismatch is held against: the recording, if the RTL differs from it."""
        if self.recording is not None and {*self.recording} != {*self.rtl}:
            return "recorded"
        return "golden model" if {*self.golden} != {*self.rtl} else None

    def moved(self, start: int) -> "Sources":
        """Return the same changes with outputs counted from `start`."""
        return Sources(*(flips and tuple(start + place for place in flips) for flips in vars(self).values()))


#: The three pairs that agree while the third differs, and what else a comparison could lose.
CASES = {
    "all agree": Sources(),
    "all agree on another result": Sources((4,), (4,), (4,)),
    "golden model alone": Sources(golden=(4,)),
    "recording alone": Sources(recording=(4,)),
    "RTL alone": Sources(rtl=(4,)),
    "golden model in two outputs": Sources(golden=(1, 4)),
    "recording and golden model, in different outputs": Sources(recording=(1,), golden=(4,)),
    "recording and golden model, in the same output": Sources(recording=(4,), golden=(4,)),
    "no recording, golden model differs": Sources(recording=None, golden=(4,)),
    "no recording, RTL differs": Sources(recording=None, rtl=(4,)),
}


def flipped(result: NDArray, flips: Flips) -> NDArray:
    changed = result.copy()
    for place in flips:
        changed.reshape(-1)[place] ^= changed.dtype.type(1)
    return changed


@contextmanager
def stand_ins(kind: type[Recorded], sources: Sources) -> Iterator[set[str]]:
    """Let register files of a class run on stand-ins; yield the set of back ends that have run."""
    compute, backends = kind.run, set[str]()

    def run(file: Recorded, backend: str | Recorder) -> NDArray:
        name = backend if isinstance(backend, str) else {backend_named("rtl"): "rtl"}[backend.computes]
        backends.add(name)
        return flipped(compute(file, "golden"), {"golden": sources.golden, "rtl": sources.rtl}[name])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "run", run)
        yield backends


def check(path: Path, sources: Sources, cli: CommandLine) -> None:
    """Status, text, JSON and JUnit XML all tell of a mismatch, or all tell of none."""
    junit, status = path.with_suffix(".xml"), int(sources.mismatches > 0)
    text = cli.text(path, "--backend", "rtl", "--junit", junit, status=status)
    total = next(line for line in text.splitlines() if line.startswith("total ")).split()
    assert int(total[3]) == sources.mismatches, text
    assert ('failures="0"' in junit.read_text(encoding="utf-8")) == (sources.mismatches == 0)
    last = text.splitlines()[-1]
    sentence = re.search(r"^first mismatch: .*: computed (0x\w+) \(.*\), ([a-z ]+) (0x\w+) \(.*\)$", last)
    assert (sentence[2] if sentence else None) == sources.reference, text
    found = cli.json(path, "--backend", "rtl", status=status)
    assert found["total"]["mismatches"] == sources.mismatches
    first = found["first_mismatch"]
    assert (first["reference"] if first else None) == sources.reference
    if first:
        assert sentence
        assert (first["computed"], first["expected"]) == (sentence[1], sentence[3])
        assert int(first["computed"], 16) ^ int(first["expected"], 16) == 1, first


def check_cases(file: RegisterFile | TensorMemoryFile, start: int, cli: CommandLine) -> None:
    """Check every case, with outputs counted from a place of the result."""
    right, path = file.run("golden"), Path("file.npz")
    for name, case in CASES.items():
        sources = case.moved(start)
        recorded = None if sources.recording is None else flipped(right, sources.recording)
        write(path, replace(file, d=recorded))
        try:
            with stand_ins(type(file), sources) as backends:
                check(path, sources, cli)
        except AssertionError as error:
            raise AssertionError(f"{file.name}, {name}: {error}") from error
        assert backends == {"golden", "rtl"}, f"{file.name}, {name}"


def test_each_of_the_three_may_be_at_fault(cli: CommandLine) -> None:
    """Outputs of 32 bits, two outputs of 16 bits in a register, and registers of four warps."""
    for prefix in ("mma.m8n8k16.s32", "mma.sp-ordered.m16n8k32.f16.f16", "wgmma"):
        file = read(next(path for path in shipped() if path.name.startswith(prefix)))
        assert isinstance(file, RegisterFile)
        check_cases(file.take(slice(0, 2)), 0, cli)


def test_each_of_the_three_may_be_at_fault_in_tensor_memory(
    tensor_memory_file: Callable[..., Any], rng: np.random.Generator, cli: CommandLine
) -> None:
    """In D, which begins at column 256; and beside it, where the back end must change nothing."""
    file = tensor_memory_file("tcgen05.mma.sp.cta_group::1.kind::f16", rng, cases=2, n=8, d="f32")
    check_cases(file, 256, cli)
    for sources in (Sources(golden=(17,)), Sources(recording=(17,))):
        write(Path("file.npz"), replace(file, d=flipped(file.d, sources.recording or ())))
        with stand_ins(TensorMemoryFile, sources):
            check(Path("file.npz"), sources, cli)
