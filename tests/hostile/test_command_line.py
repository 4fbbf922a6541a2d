"""Each command with wrong words or damaged files ends with a valid exit status and at most one line of error."""

import importlib.util
import io
import json
import pickle
import resource
import shutil
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from sptc.cli import main
from sptc.isa.names import subject_named
from sptc.sim.coverage.groups import Coverage
from sptc.tests.hostile.mutation import Trap, mutated_bytes, mutated_text
from sptc.tests.verify.register_files import tensor_memory_file
from sptc.verify.conformance import choose_pack, write_pack
from sptc.verify.register_file import read, shipped, write

#: The regression runs SHARES times SHARE command lines (2,000). The quick tier runs QUICK command lines.
SHARE, SHARES, QUICK = 500, 4, 40
#: Limits for a command: bytes of memory beyond the memory that the test process already has, and processor seconds
#: until the command is interrupted. Some changed words request days of work.
MEMORY, SECONDS = 3 << 30, 30
#: After this elapsed time in seconds, a command is interrupted. If it then runs for this time again, the test fails.
#: The time is long because other work may slow the machine.
PATIENCE = 600
#: Smallest number in a command line that can request more work than the limits SECONDS and MEMORY allow.
MUCH = 100
MMA = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
#: Valid command lines. Names in capitals are files and folders that the commands write.
LINES = (
    "run mma.npz --backend golden --json",
    "run wgmma.npz tcgen05.npz --backend golden --limit 1 --metadata software",
    "coverage coverage.json --missing 3",
    "report . --output OUT.html",
    "explain --nibble 0b0110",
    f"explain {MMA} --selector 1 --operand metadata --json",
    "compress matrix.npy --granularity 2:4 --format e4m3 --output OUT.npz",
    "compress matrix.safetensors --tensor weight --prune --to cutlass3-sm90 --output OUT.safetensors",
    "compress matrices.npz --tensor a --check --json",
    "gemm --a matrix.npy --b matrices.npz --b-tensor b --format f16 --backend golden --jobs 1 --output OUT.npy",
    "gemm --random 16 32 8 --format s8 --backend golden --seed 3 --jobs 1 --json",
    "gemm --a matrix.npy --b transpose.npy --instruction mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "--split-k 1,1 --tile 1 --promote 1 --order tree --result bf16 --relu --c product.npy --beta 2 --bias product.npy "
    "--backend golden --jobs 1 --output OUT.npy",
    "gemm --random 9 9 99 --swapped --result f16 --split-k 2 --backend golden --jobs 1 --json",
    "gemm --a matrix.npy --b matrices.npz --b-tensor b --way way.json --backend golden --jobs 1 --json",
    "identify --a matrix.npy --b transpose.npy --y product.npy --format f16 --result f32 --bias product.npy --json",
    "identify --probe OUT --format e4m3 --result bf16 --shape 8 8 256 --seed 3",
    "instructions m16n8k32 --json",
    "presets",
    "prove metadata.legal --list",
    # The tests hide Yosys and the C++ compiler. The following commands that need one of these end with an error.
    "prove metadata.legal --preset tiny --jobs 1 --json",
    "sweep --formats f16 --step-bytes 16 --liberty cells.lib --jobs 1 --json",
    "area --config config.json --unit-only --liberty cells.lib --jobs 1",
    "campaign --shards 1 --arch sm_90 --state STATE --jobs 1",
    "gpu info --json",
    f"pack {MMA} --arch sm_90 --jobs 1 --output OUT.npz",
    "judge pack.npz results.hex --json",
    f"vectors {MMA} --tiles 3 --seed 5 --nibbles all --level row --preset hopper --format hex --output OUT",
    "trace mma.npz --case 1 --row 3 --column 2 --golden-only --json",
    f"trace {MMA} --golden-only --seed 5 --distribution wide",
)

_WORDS = ("-1", "0", "9" * 20, "nan", "", "-", "--", "--help", ".")
_NAMES = ("missing", "/dev/full", "/proc/self/mem", "a\x00b", "\udcff")


@contextmanager
def limited() -> Iterator[None]:
    """Limit the enclosed code: too much memory raises a `MemoryError`, too much time a `KeyboardInterrupt`."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, before[1]))
    timers = {signal.ITIMER_PROF: (signal.SIGPROF, SECONDS), signal.ITIMER_REAL: (signal.SIGALRM, PATIENCE)}
    previous = {number: signal.signal(number, _late) for number, _ in timers.values()}
    for timer, (_, seconds) in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _late(number: int, frame: object) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(PATIENCE)
    raise KeyboardInterrupt


def _too_late(number: int, frame: object) -> None:
    raise AssertionError(f"the command did not end within {PATIENCE} s of an interruption, or this machine is too slow")


class Lines:
    """Draws random command lines, and writes their files, valid or damaged, to a folder."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self.folder, self.files = folder, files

    def draw(self, rng: np.random.Generator) -> list[str]:
        """Draw a valid command line, and damage its files, its words, or both. Return its words."""
        words = LINES[int(rng.integers(len(LINES)))].split()
        for name in self.files.keys() & set(words):
            content = self.files[name]
            (self.folder / name).write_bytes(spoiled(name, content, rng) if rng.random() < 0.6 else content)
        if rng.random() < 0.6:
            self._spoil(words, rng)
        return words

    def _spoil(self, words: list[str], rng: np.random.Generator) -> None:
        place = int(rng.integers(1, len(words))) if len(words) > 1 else 0
        match int(rng.integers(7)):
            case 0:
                del words[place]
            case 1:
                words.insert(place, words[int(rng.integers(len(words)))])
            case 2:
                words[place] = str(rng.choice(_WORDS))
            case 3:
                words[place] = str(rng.choice([*self.files, *_NAMES]))
            case _:
                words[place] = mutated_text(words[place], rng)


@pytest.fixture
def lines(tmp_path: Path, rng: np.random.Generator, liberty: Path, monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Random command lines in a new folder. Compiler and Yosys are hidden, so that every valid command ends soon."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "cache"))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *at: None if name == "pyosys" else find(name, *at))
    (tmp_path / "files").mkdir()
    files = good_files(tmp_path / "files", rng, liberty)
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    for name, content in files.items():
        (place / name).write_bytes(content)
    return Lines(place, files)


def status_of(words: list[str]) -> int:
    try:
        with limited():
            return main(words)
    except SystemExit as left:
        return int(left.code or 0)


def is_much(word: str) -> bool:
    try:
        return int(word) >= MUCH
    except ValueError:
        return False


@pytest.mark.parametrize("count", [QUICK, *[pytest.param(SHARE, marks=pytest.mark.regression)] * SHARES])
def test_lines(count: int, lines: Lines, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    results = {0: 0, 1: 0, 2: 0, 130: 0}
    for number in range(count):
        words = lines.draw(rng)
        try:
            status = status_of(words)
        except BaseException as error:
            kept = Path(f"{lines.folder}-kept")
            shutil.copytree(lines.folder, kept, dirs_exist_ok=True)
            raise AssertionError(f"line {number}, {words} on {kept}: {type(error).__name__}: {error}") from error
        output = capsys.readouterr()
        assert status in results, (words, output.err)
        results[status] += 1
        if status == 130:  # before the interruption, the command may have printed its progress
            assert any(map(is_much, words)), (words, f"no end within {SECONDS} processor seconds")
            assert output.err.endswith("interrupted\n"), (words, output.err)
            continue
        assert (status == 2) == bool(output.err.strip()) or status == 1, (words, status, output.err)
        assert "there is not enough memory" not in output.err or any(map(is_much, words)), (words, output.err)
        lines_of_error = output.err.splitlines()
        if output.err.endswith("add words, or take a name from the list\n"):
            del lines_of_error[:-1]  # the numbered list of matching instructions
        assert len(lines_of_error) <= 1, (words, output.err)
        assert sum(map(len, lines_of_error)) < 3_000, (words, "the message is too long")
    assert results[2] > 0.3 * count
    # About a fifth of the commands succeeds. In the quick tier, with 40 commands, at least one must succeed.
    assert results[0] > (0.1 * count if count > QUICK else 0)


def test_no_pickle_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, mark = tmp_path / "traps", tmp_path / "mark"
    folder.mkdir()
    for path in traps(folder, mark):
        for words in (["run"], ["compress"], ["coverage"], ["gemm", "--b", str(path), "--a"], ["area", "--config"]):
            assert status_of([*words, str(path)]) == 2, (words, path.name)
            assert len(capsys.readouterr().err.splitlines()) == 1
            assert not mark.exists(), (words, path.name)
    np.load(folder / "trap.npy", allow_pickle=True)
    assert mark.exists(), "loading the pickle does not create the file"


def good_files(folder: Path, rng: np.random.Generator, liberty: Path) -> dict[str, bytes]:
    """Return the contents of valid files by name. Each file is read by some command of the tests."""
    for family, name in (("mma.sp", "mma.npz"), ("wgmma", "wgmma.npz")):
        write(folder / name, next(read(path) for path in shipped() if path.name.startswith(family)))
    pack = choose_pack(subject_named(MMA), "sm_90", 0)
    write_pack(folder / "pack.npz", pack)
    assert pack.file.d is not None
    (folder / "results.hex").write_text("\n".join(f"{word:08x}" for word in pack.file.d.ravel()))
    write(folder / "tcgen05.npz", tensor_memory_file("tcgen05.mma.sp.cta_group::1.kind::f16", rng, 1))
    values = rng.standard_normal((16, 32)).astype(np.float32)
    values.reshape(16, 8, 4)[..., 2:] = 0
    np.save(folder / "matrix.npy", values)
    np.save(folder / "transpose.npy", values.T)
    np.save(folder / "product.npy", values @ values.T)
    np.savez(folder / "matrices.npz", a=values, b=values.T)
    (folder / "matrix.safetensors").write_bytes(save({"weight": values, "bias": values[0]}))
    Coverage().write(folder / "coverage.json")
    fields = {"name": "mine", "formats": ["s8"], "rows": 1, "columns": 1, "step_bytes": 4, "cuts": ["multiply"]}
    (folder / "config.json").write_text(json.dumps(fields))
    (folder / "cells.lib").write_bytes(liberty.read_bytes())
    way = {"instruction": "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "split_k": [1, 1], "swapped": False}
    (folder / "way.json").write_text(json.dumps({"exact": True, "way": way}))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def spoiled(name: str, content: bytes, rng: np.random.Generator) -> bytes:
    """Return the damaged content of a file. Most damaged archives get right checksums, so that commands read arrays."""
    draw = rng.random()
    if name.endswith(".npz") and draw < 0.7:
        return _spoiled_archive(content, rng)
    if name.endswith((".json", ".lib", ".hex")) and draw < 0.7:
        return mutated_text(content.decode(), rng).encode("utf-8", "surrogatepass")
    return mutated_bytes(content, rng)


def _spoiled_archive(content: bytes, rng: np.random.Generator) -> bytes:
    """Return an archive in which one array is replaced, damaged, missing, or also stored under another name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = sorted(members)
    one, other = (names[int(rng.integers(len(names)))] for _ in range(2))
    match int(rng.integers(6)):
        case 0:
            members[one] = members[other]
        case 1:
            del members[one]
        case 2:
            # zipfile truncates a name at its first NUL, and writes no empty name.
            name = mutated_text(one, rng).encode("ascii", "replace").decode().partition("\0")[0]
            members[name or "?"] = members[one]
        case 3:
            members[one] = _array(rng)
        case _:
            # Half of the time, only the header is damaged, where small changes have large effects.
            cut = 128 if rng.random() < 0.5 else len(members[one])
            members[one] = mutated_bytes(members[one][:cut], rng) + members[one][cut:]
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return stored.getvalue()


def _array(rng: np.random.Generator) -> bytes:
    shape = tuple(rng.integers(0, 5, int(rng.integers(4))).tolist())
    dtype = str(rng.choice(["?", "<u4", ">u4", "<f8", "<c16", "<U5", "|S3", "<M8[s]", "|V7", "<u8", "<i8"]))
    stored = io.BytesIO()
    np.save(stored, np.zeros(shape, dtype))
    return stored.getvalue()


def traps(folder: Path, mark: Path) -> list[Path]:
    """Write files of several formats. Unpickling any of them creates the file `mark`."""
    trap = np.array([Trap(mark)], dtype=object)
    np.save(folder / "trap.npy", trap, allow_pickle=True)
    np.savez(folder / "trap.npz", instruction=trap, A=trap, selector=trap)
    for suffix in ("pt", "safetensors", "json"):
        (folder / f"trap.{suffix}").write_bytes(pickle.dumps(Trap(mark)))
    return sorted(folder.iterdir())
