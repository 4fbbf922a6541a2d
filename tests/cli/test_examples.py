"""Every command shows in its help what to try, and that works as it stands there."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from sptc.cli import main
from sptc.cli.examples import EXAMPLES, commands
from sptc.cli.main import command_parser
from sptc.tests.kernels.recorded import recorded
from sptc.tests.synth.power_library import TEXT as POWER

#: What takes a GPU, and what takes more than seconds.
GPU = [name for name in EXAMPLES if name.split()[0] == "gpu"]
#: Few shards do not cover everything, which is a status of 1.
STATUS = {EXAMPLES["coverage"][0]: 1}
LONG = ("campaign", "coverage", "prove", "area", "energy", "sweep", "verilog", "gemm", "identify", "trace")


def test_the_help_of_every_command_ends_with_an_example() -> None:
    found = dict(commands(command_parser()))
    assert found.keys() == EXAMPLES.keys()
    for name, command in found.items():
        lines = [line.strip() for line in command.format_help().splitlines()]
        assert lines[-len(EXAMPLES[name]) :] == list(EXAMPLES[name])
        assert all(
            line.startswith(f"sptc {name} ") or line == f"sptc {name}" or name == "gpu" for line in EXAMPLES[name]
        )


def test_examples_are_words_that_the_command_line_knows() -> None:
    for name in (*GPU, *LONG):
        for line in EXAMPLES[name]:
            options = command_parser().parse_args(shlex.split(line)[1:])
            assert options.command == name.split()[0]


def run(names: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    np.save("weights.npy", rng.standard_normal((64, 128)).astype(np.float16) * np.tile(np.float16([1, 0, 0, 1]), 32))
    Path("cells.lib").write_text(POWER, encoding="utf-8")
    recorded("triton.small.mma").write(Path())
    np.save("x.npy", rng.standard_normal((128, 32)).astype(np.float16))
    for line in (line for name in names for line in EXAMPLES[name]):
        assert main(shlex.split(line)[1:]) == STATUS.get(line, 0), line


def test_examples_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run([name for name in EXAMPLES if name not in (*GPU, *LONG)], monkeypatch, tmp_path)


@pytest.mark.regression
def test_long_examples_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyosys")
    pytest.importorskip("bitwuzla")
    run([*LONG[:-1], "pack", LONG[-1]], monkeypatch, tmp_path)
