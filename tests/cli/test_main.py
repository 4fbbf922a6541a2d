"""Every command has help, examples that work, suggestions for misspelt words, and completion in shells."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sptc.cli import main
from sptc.cli.examples import EXAMPLES, commands
from sptc.cli.main import command_parser
from sptc.cli.options import words as comma_separated
from sptc.tests.cli.command_line import CommandLine, complaints
from sptc.tests.kernels.recorded import recorded
from sptc.tests.synth.power_library import TEXT as POWER

SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
#: Commands whose examples need a GPU.
GPU = [name for name in EXAMPLES if name.split()[0] == "gpu"]
#: Exit statuses of examples whose status is not 0. A few shards do not reach all coverage bins, so the status is 1.
STATUS = {EXAMPLES["coverage"][0]: 1}
#: Commands whose examples take more than a few seconds.
LONG = ("campaign", "coverage", "prove", "area", "energy", "sweep", "verilog", "gemm", "identify", "diagnose", "trace")


def test_without_words_there_is_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([]) == 0
    helped = capsys.readouterr()
    assert "COMMAND" in helped.out
    assert helped.err == ""
    monkeypatch.setattr("sys.argv", ["sptc"])
    assert main() == 0
    assert capsys.readouterr() == helped


def test_help_lists_each_command_on_one_line_in_a_group(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups = re.findall(r"^  (\S.*):\n((?:    \S.*\n)+)", cli.text(), re.MULTILINE)
    lines = [line for _, listed in groups for line in listed.splitlines()]
    assert sorted(line.split()[0] for line in lines) == sorted(name for name in EXAMPLES if " " not in name)
    assert all(re.fullmatch(r"    [a-z-]+ +\S.*", line) and len(line) <= 80 for line in lines)
    assert {"run and check", "GPU", "this installation"} < {title for title, _ in groups}


def test_near_misses(cli: CommandLine) -> None:
    for words, end in (
        (["veriog", "--preset", "tiny"], "did you mean verilog?\n"),
        (["ports", "--preset", "hoper"], "did you mean hopper?\n"),
        (["ports", "--preset", "kepler"], ""),
    ):
        output, errors = cli.streams(*words, status=2)
        assert (output, errors.count("\n")) == ("", 1)
        assert errors[errors.find("did you mean") :] == end if end else "did you mean" not in errors, words
    cli.refuses_each(
        (["explain", "--selctor", "1", "m16n8k32"], "unrecognized arguments: --selctor; did you mean --selector?"),
        (["explain", SPARSE.replace("k32", "k33")], f"The nearest instruction is {SPARSE}"),
        (["timing", SPARSE.replace("sp.", "sparse.")], f"The nearest instruction is {SPARSE}"),
        (["trace", "tcgen05.mma.sp.cta_group::1.kind::fp16"], "instruction is tcgen05.mma.sp.cta_group::1.kind::f16"),
    )
    assert "nearest" not in cli.streams("explain", "add.f32", status=2)[1]


def test_values_of_options_are_checked() -> None:
    """Every option that takes a number, an architecture or a list of names rejects the word ``?``."""
    free = (None, Path, comma_separated)  # argument types of options whose value may be any word
    actions = [action for _, command in commands(command_parser()) for action in command._actions]
    types = [action.type for action in actions if not action.choices and action.type not in free]
    assert len(types) > 100
    for read in types:
        with pytest.raises((ArgumentTypeError, ValueError)):
            read("?")


def test_unusual_words(cli: CommandLine) -> None:
    """Messages cut long words. A caller of ``main`` may pass a NUL or a surrogate, which no shell does."""
    assert len(cli.streams("presets", "--" + "json" * 5_000, status=2)[1]) < 2_100
    for word in ("a\0b", "\ud800.STATE"):
        cli.refuses("campaign", "--state", word, message="an argument cannot contain a NUL or an unpaired surrogate")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(cli: CommandLine) -> None:
    Path("own.npy").touch()
    Path("own").mkdir()
    script = cli.text("completion", "bash")
    for words, expected in (
        ("gem", {"gemm"}), ("gpu re", {"record"}), ("gemm --split", {"--split-k"}),
        ("verilog --preset ho", {"hopper"}), ("gemm --a ow", {"own", "own.npy"}), ("report ow", {"own"}),
        ("completion ", {"bash", "zsh", "fish"}),
    ):  # fmt: skip
        line = ["sptc", *words.split(" ")]
        ask = f"COMP_WORDS=({' '.join(word or repr('') for word in line)}); COMP_CWORD={len(line) - 1}; _shtab_sptc"
        text = f'{script}\n{ask}\nprintf "%s\n" "${{COMPREPLY[@]}}"'
        answer = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=True)
        assert answer.stderr == "", words
        assert set(answer.stdout.split()) - {"-h", "--help"} == expected, words


def test_completion_of_other_shells_has_every_command(cli: CommandLine) -> None:
    for shell in ("zsh", "fish"):
        text = cli.text("completion", shell)
        assert [name for name in EXAMPLES if not re.search(rf"\b{name.split()[-1]}\b", text)] == []


def test_the_help_of_every_command_ends_with_an_example() -> None:
    """The parser accepts every example, even an example that needs a GPU or much time."""
    parsers = dict(commands(command_parser()))
    assert parsers.keys() == EXAMPLES.keys()
    for name, command in parsers.items():
        lines = [line.strip() for line in command.format_help().splitlines()]
        assert lines[-len(EXAMPLES[name]) :] == list(EXAMPLES[name])
        assert name == "gpu" or all(f"{line} ".startswith(f"sptc {name} ") for line in EXAMPLES[name])
    for name in (*GPU, *LONG):
        for line in EXAMPLES[name]:
            assert command_parser().parse_args(shlex.split(line)[1:]).command == name.split()[0]


@pytest.mark.parametrize(
    ("names", "packages"),
    [
        pytest.param([name for name in EXAMPLES if name not in (*GPU, *LONG)], ["matplotlib"], id="short"),
        pytest.param([*LONG[:-1], "pack", LONG[-1]], ["pyosys", "bitwuzla"], id="long", marks=pytest.mark.regression),
    ],
)
def test_examples_work(names: list[str], packages: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in packages:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("weights.npy", rng.standard_normal((64, 128)).astype(np.float16) * np.tile(np.float16([1, 0, 0, 1]), 32))
    np.save("scales.npy", rng.integers(0, 255, (130, 6)).astype(np.uint8))
    Path("cells.lib").write_text(POWER, encoding="utf-8")
    recorded("triton.small.mma").write(Path())
    np.save("x.npy", rng.standard_normal((128, 32)).astype(np.float16))
    for line in (line for name in names for line in EXAMPLES[name]):
        assert main(shlex.split(line)[1:]) == STATUS.get(line, 0), line


def test_output_that_cannot_be_written(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["presets"], ["explain", "--help"]):
        with Path("/dev/full").open("w") as full:
            monkeypatch.setattr("sys.stdout", full)
            try:
                status = main(words)
            except SystemExit as left:
                status = left.code
        assert status == 2
        errors = capfd.readouterr().err
        assert errors == f"sptc {words[0]}: standard output cannot be written (No space left on device)\n"
    monkeypatch.setattr("sys.stdout", None)
    assert main(["presets"]) == 2
    assert capfd.readouterr().err == "sptc: standard output is closed\n"


def test_too_little_memory_and_a_defect_of_the_program(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, status, message in (
        (MemoryError(), 2, "there is not enough memory"),
        (MemoryError("Unable to allocate 2 GiB"), 2, "there is not enough memory (Unable to allocate 2 GiB)"),
        (KeyError("row\n5"), 70, "a defect of sptc: KeyError: 'row\\n5'; `sptc --debug ...` prints the traceback"),
    ):

        def execute(_options: object, error: Exception = error) -> int:
            raise error

        monkeypatch.setattr("sptc.cli.hardware._presets", execute)
        assert cli.streams("presets", status=status)[1] == f"sptc presets: {message}\n"
    with pytest.raises(KeyError):
        cli.status("--debug", "presets")


def test_outputs_of_one_name_or_without_a_usable_path(cli: CommandLine, tmp_path: Path) -> None:
    verilog = tmp_path / "x.v"
    words = ("--preset", "tiny", "--top", "unit", "--output", verilog, "--sv-package", tmp_path / "." / "x.v")
    cli.refuses("verilog", *words, message=f"--output and --sv-package name the same file {verilog}")
    assert not verilog.exists()
    for path in ("-", "/dev/stdout"):
        for words, option in ((("timing",), "--svg"), (("run", "x.npz"), "--junit")):
            cli.refuses(*words, "--json", option, path, message=f"--json and {option} both write to standard output")
    Path("circle").symlink_to("circle")
    for path, reason in (("circle", "Too many levels of symbolic links"), ("n" * 300, "File name too long")):
        for words in (("draw", "--preset", "tiny", "-o", path), ("run", "x.npz", "--junit", path)):
            cli.refuses(*words, message=f"{path} cannot be written ({reason})")


def test_a_file_alone_on_standard_output(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The report goes to standard error. Standard output and devices need no suffix."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sptc.cli.kernel.time", SimpleNamespace(monotonic=lambda: 0.0))
    recorded("triton.small.mma").write(Path())
    np.save("a.npy", np.tile(np.float16([1, 0, 0, 2]), (16, 8)))
    Path("folder").mkdir()
    for name, line in (
        ("c.npy", "gemm --a a.npy --b a.npy --transpose-b --backend golden -o"),
        ("d.npz", "compress a.npy -o"),
        ("e.npz", "compress a.npy --expand -o"),
        ("f.npz", f"pack {SPARSE} --arch sm_90 -o"),
        ("g.npz", "kernel run matmul.ptx --launch launch.json --backend golden -o"),
        ("folder/h.xml", "run f.npz --backend golden --junit"),
        ("i.svg", f"trace {SPARSE} --golden-only --svg"),
        ("j.svg", f"trace {SPARSE} --golden-only --datapath"),
        ("k.html", "report folder -o"),
        ("l.svg", "draw --preset tiny -o"),
    ):
        report = b""
        for output in (name, "-", "/dev/null"):
            assert main([*shlex.split(line), output]) == 0, (line, output)
            printed, errors = capfdbinary.readouterr()
            report = printed if output == name else report
            shown = report.replace(name.encode(), output.encode())
            expected = (Path(name).read_bytes(), shown.decode()) if output == "-" else (shown, "")
            assert (printed, complaints(errors.decode())) == expected, line


def test_standard_error_that_cannot_be_written(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status stays the same, and no message goes to standard output."""
    for stream in (os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", 1), None):
        monkeypatch.setattr("sys.stderr", stream)
        for words in (("compare", "none.npy", "none.npy"), ("explain", "mma.sp m16n8k32 f32")):
            assert cli.status(*words) == 2
        with suppress(OSError):  # the unwritten message is still buffered
            sys.stderr.close()
    monkeypatch.undo()
    assert cli.capsys.readouterr().out == ""
