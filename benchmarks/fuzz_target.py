"""Fuzz one file reader in this process, or reproduce one finding.

`python fuzz_target.py READER FILE` reads the file of a finding and prints the traceback if the reader fails. `fuzz.py`
calls this script as `fuzz_target.py READER CORPUS FINDINGS SECONDS`, with the folders of the corpus and the findings.
"""

import importlib
import io
import random
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

#: Limits for reading one file: processor seconds, elapsed seconds (more, since other processes may slow the machine),
#: and MiB of memory.
SECONDS, PATIENCE, MEMORY = 10, 120, 2048
#: Number of bytes of an array's header, which are mutated more often than the data; and share of the mutations that
#: change a member of an archive instead of the bytes of the archive.
_HEADER, _IN_MEMBERS = 128, 0.85


def main() -> None:
    """Fuzz a file reader, or read again the file that caused a finding."""
    name, place, *more = sys.argv[1:]
    if not more:
        reader = importlib.import_module("fuzz_readers").READERS[name]
        with tempfile.TemporaryDirectory() as scratch:
            _read(reader, Path(place).read_bytes(), Path(scratch))
        return
    import atheris

    with atheris.instrument_imports(include=["sptc"]):
        reader = importlib.import_module("fuzz_readers").READERS[name]
    corpus, findings, seconds = Path(place), Path(more[0]), more[1]
    with tempfile.TemporaryDirectory() as scratch:
        for number, seed in enumerate(reader.seeds(Path(scratch))):
            (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY}", f"-timeout={PATIENCE}", "-max_len=1048576"]
    options += [f"-report_slow_units={PATIENCE}", "-print_final_stats=1", f"-artifact_prefix={findings}/"]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        target = Target(reader, Path(scratch), findings)
        is_archive = reader.file.endswith((".npz", ".pt"))
        words: dict[str, Any] = {"custom_mutator": archives_mutated(_mutate)} if is_archive else {}
        atheris.Setup([sys.argv[0], *options, str(corpus)], target, **words)
        atheris.Fuzz()


def _mutate(data: bytes, longest: int) -> bytes:
    import atheris  # no `from` import: libFuzzer replaces atheris.Mutate when fuzzing starts

    return atheris.Mutate(data[:longest], longest)  # type: ignore[no-any-return]


def _read(reader: Any, data: bytes, scratch: Path) -> None:
    from sptc.errors import Error

    for path in scratch.iterdir():
        path.unlink()
    (scratch / reader.file).write_bytes(data)
    try:
        reader.read(scratch / reader.file)
    except Error as error:
        message = str(error)
        if len(message) > 3_000:
            raise AssertionError(f"the error message has {len(message)} characters, more than 3,000") from None


class Target:
    """Function that libFuzzer calls with each input. It stores the first input for each kind of finding (error).

    The kind of a finding is the type of the exception and the line that raised it. An input that exceeds the limit of
    memory or of elapsed time ends the process, and libFuzzer stores the input.
    """

    def __init__(self, reader: Any, scratch: Path, findings: Path) -> None:
        self._reader, self._scratch, self._findings = reader, scratch, findings
        self._known: set[str] = set()

    def __call__(self, data: bytes) -> None:
        """Run the file reader on a file that contains `data`."""
        start = time.process_time()
        try:
            _read(self._reader, data, self._scratch)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            self._store(data, f"{type(error).__name__} at {frame.filename}:{frame.lineno}", traceback.format_exc())
        else:
            if (seconds := time.process_time() - start) > SECONDS:
                self._store(data, "slow", f"{seconds:.0f} seconds of processor time\n")

    def _store(self, data: bytes, kind: str, text: str) -> None:
        if kind in self._known:
            return
        self._known.add(kind)
        path = self._findings / f"finding-{sha256(kind.encode()).hexdigest()[:12]}"
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(f"{kind}\n{text}", encoding="utf-8")


def archives_mutated(mutate: Callable[[bytes, int], bytes]) -> Callable[[bytes, int, int], bytes]:
    """Return a mutator of zip archives that keeps checksums valid. ``mutate(data, n)`` returns at most `n` bytes."""

    def mutated(data: bytes, longest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = [(name, archive.read(name)) for name in archive.namelist()]
        except Exception:
            members = []
        if not members or rng.random() > _IN_MEMBERS:
            return mutate(data, longest)
        place = rng.randrange(len(members))
        name, content = members[place]
        match rng.randrange(8):
            case 0:
                del members[place]
            case 1:
                members[place] = (name, rng.choice(members)[1])
            case 2:
                members[place] = (
                    mutate(name.encode(), 40).decode("ascii", "replace").replace("\0", "?") or "?",
                    content,
                )
            case 3 | 4 | 5:
                members[place] = (name, mutate(content[:_HEADER], 2 * _HEADER) + content[_HEADER:])
            case _:
                members[place] = (name, mutate(content, max(len(content) + 64, 1)))
        stored = io.BytesIO()
        with zipfile.ZipFile(stored, "w", zipfile.ZIP_STORED) as archive:
            for number, (name, content) in enumerate(members):
                if name not in [other for other, _ in members[:number]]:
                    archive.writestr(name, content)
        return stored.getvalue()[:longest]

    return mutated


if __name__ == "__main__":
    main()
