"""Coverage-guided fuzzing of every file reader and of the C interface: executions, edges and findings.

A finding is an exception other than `sptc.Error`, more than 2 GiB of memory, more than ten seconds of processor time,
or a report of a sanitizer. The input of each finding is stored in the folder of findings, and the command that
reproduces the finding is printed.
Python readers (`fuzz_readers.py`) need the extra ``fuzz``; the C interface (`tests/native/fuzz.cpp`) needs clang.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fuzz_readers import READERS
from measure import Row, options, show

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "libsptc"
#: Default duration of a whole run in seconds, and number of failures after which a reader is no longer fuzzed.
_WHOLE, _MOST_ENDS = 3600, 20
_SANITIZERS = "-O1 -g -fno-sanitize-recover=all -fsanitize=address,undefined"
#: Maximum number of bytes of an input for the C interface. The first line of such an input is the instruction.
_MOST_BYTES = 1 << 12


@dataclass
class Outcome:
    """Result of fuzzing one file reader."""

    name: str
    executions: int
    edges: int
    findings: list[Path]


class CannotStartError(Exception):
    """The process of a fuzzing target ended before the process executed an input."""


def fuzz(name: str, command: list[str], folder: Path, seconds: float) -> Outcome:
    """Run the fuzzing process of a target until the time is over. Restart the process after a finding ends it."""
    findings, executions, edges, ends = folder / "findings", 0, 0, 0
    start = time.monotonic()
    while (left := round(seconds - (time.monotonic() - start))) > 0 and ends < _MOST_ENDS:
        before = {*findings.iterdir()}
        words = [word.format(seconds=left) for word in command]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        printed = done.stdout.decode(errors="replace")
        counts = re.findall(r"stat::number_of_executed_units: (\d+)|^#(\d+)\t", printed, re.MULTILINE)
        if not counts:
            raise CannotStartError(f"{name}: {' '.join(printed.split())[-500:]}")
        executions += max(int(final or status) for final, status in counts)
        edges = max([edges, *map(int, re.findall(r" cov: (\d+) ", printed))])
        if done.returncode and before == {*findings.iterdir()}:
            raise CannotStartError(f"{name} ended with status {done.returncode}: {printed.splitlines()[-1]}")
        ends += done.returncode != 0
    return Outcome(name, executions, edges, [path for path in sorted(findings.iterdir()) if path.suffix != ".txt"])


def fuzz_library(folder: Path) -> list[str]:
    """Compile the C interface with clang, libFuzzer and sanitizers, write the corpus, and return the fuzzing command.

    Raise a `CannotStartError` if clang is not installed.
    """
    from sptc.isa.tcgen05 import every_opcode
    from sptc.native.tables import forms
    from sptc.native.vendor import write_files

    clang = shutil.which(os.environ.get("CLANGXX", "clang++"))
    if clang is None:
        raise CannotStartError("fuzzing libsptc needs clang++: install it (on Debian or Ubuntu, `apt install clang`)")
    write_files(folder / "sources")
    flags = f"{_SANITIZERS} -fsanitize=fuzzer-no-link"
    make = ["make", "-s", "-C", str(folder / "sources"), f"CXX={clang}", f"CXXFLAGS={flags}", "build/libsptc.a"]
    subprocess.run(make, check=True, capture_output=True)
    program, source = folder / "fuzz", ROOT / "tests" / "native" / "fuzz.cpp"
    words = [clang, "-std=c++17", *_SANITIZERS.split(), "-fsanitize=fuzzer", "-DSPTC_LIBFUZZER", str(source)]
    words += [f"-I{folder}/sources/include", f"{folder}/sources/build/libsptc.a", "-pthread", "-o", str(program)]
    subprocess.run(words, check=True)
    seeds = [f"{form.instruction}\t{form.instruction.architectures[0]}\n" for form in forms()]
    seeds += [f"{opcode}\tsm_100\n" for opcode in every_opcode()]
    for number, line in enumerate(seeds[:: max(1, len(seeds) // 200)]):
        (folder / "corpus" / f"seed-{number}").write_bytes(line.encode() + bytes(range(64)))
    limits = [f"-max_len={_MOST_BYTES}", "-rss_limit_mb=2048", "-timeout=120", "-report_slow_units=120"]
    places = [f"-artifact_prefix={folder}/findings/", str(folder / "corpus")]
    return [str(program), "-max_total_time={seconds}", "-print_final_stats=1", *limits, *places]


def command_of(name: str, folder: Path) -> list[str]:
    """Return the command that fuzzes a target, with the placeholder ``{seconds}``.

    Findings of earlier runs are moved to the folder `earlier`. Findings that did not end the process are also copied to
    the corpus, so that the target reads these inputs first.
    """
    for part in ("corpus", "findings", "earlier"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for path in (folder / "findings").iterdir():
        if path.name.startswith("finding-") and not path.suffix:
            shutil.copy(path, folder / "corpus")
        path.replace(folder / "earlier" / path.name)
    if name == LIBRARY:
        return fuzz_library(folder)
    script = Path(__file__).with_name("fuzz_target.py")
    return [sys.executable, str(script), name, str(folder / "corpus"), str(folder / "findings"), "{seconds}"]


def outcomes(names: list[str], folder: Path, seconds: float) -> Iterator[Outcome]:
    """Fuzz the targets one after the other. If a target cannot start, print the reason on standard error."""
    for name in names:
        try:
            yield fuzz(name, command_of(name, folder / name), folder / name, seconds)
        except CannotStartError as error:
            print(error, file=sys.stderr)


def main() -> None:
    """Fuzz all targets, and print a table and the commands that repeat findings. Return 1 if there are findings."""
    parser = options((__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--readers", nargs="+", choices=(*READERS, LIBRARY), default=[*READERS, LIBRARY], metavar="READER",
        help=f"file readers and C interface to fuzz, any of {', '.join((*READERS, LIBRARY))} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="seconds of fuzzing per file reader (default: an hour divided by the number of file readers)",
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "fuzz", metavar="FOLDER",
        help="folder for inputs that cause failures, and for initial inputs of the next run (default %(default)s)",
    )  # fmt: skip
    chosen = parser.parse_args()
    if find_spec("atheris") is None and {*chosen.readers} != {LIBRARY}:
        print("this benchmark needs atheris: install it with `pip install -e '.[fuzz]'`", file=sys.stderr)
        sys.exit(2)
    seconds = chosen.seconds or (1 if chosen.small else _WHOLE / len(chosen.readers))
    results = [*outcomes(chosen.readers, chosen.folder.resolve(), seconds)]
    if not results:
        sys.exit(2)
    if chosen.json:
        values = [(each.name, {**vars(each), "findings": len(each.findings)}) for each in results]
        keys = ("executions", "edges", "findings")
        show([Row(f"{name}, {key}", key, fields[key]) for name, fields in values for key in keys], as_json=True)
    else:
        print(f"{'reader':14}  executions   edges  findings")
        for each in results:
            print(f"{each.name:14}  {each.executions:10}  {each.edges:6}  {len(each.findings):8}")
    for each in results:
        for path in each.findings:
            script = Path(__file__).with_name("fuzz_target.py")
            program = str(path.parents[1] / "fuzz") if each.name == LIBRARY else f"python {script} {each.name}"
            print(f"repeat with: {program} {path}", file=sys.stderr)
    sys.exit(any(each.findings for each in results))


if __name__ == "__main__":
    main()
