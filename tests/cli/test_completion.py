"""Completion of the command line: bash asked for words, and the scripts of the other shells."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sptc.cli.examples import EXAMPLES
from sptc.tests.cli.command_line import CommandLine

COMMAND = "completion"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(cli: CommandLine) -> None:
    Path("own.npy").touch()
    Path("own").mkdir()
    script = cli.text("bash")
    for words, expected in (
        ("gem", {"gemm"}),
        ("gpu re", {"record"}),
        ("gemm --split", {"--split-k"}),
        ("verilog --preset ho", {"hopper"}),
        ("gemm --a ow", {"own", "own.npy"}),
        ("report ow", {"own"}),
        ("completion ", {"bash", "zsh", "fish"}),
    ):
        line = ["sptc", *words.split(" ")]
        ask = f"COMP_WORDS=({' '.join(word or repr('') for word in line)}); COMP_CWORD={len(line) - 1}; _shtab_sptc"
        text = f'{script}\n{ask}\nprintf "%s\n" "${{COMPREPLY[@]}}"'
        answer = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=True)
        assert answer.stderr == "", words
        assert set(answer.stdout.split()) - {"-h", "--help"} == expected, words


def test_other_shells_hear_of_every_command(cli: CommandLine) -> None:
    for shell in ("zsh", "fish"):
        text = cli.text(shell)
        assert [name for name in EXAMPLES if not re.search(rf"\b{name.split()[-1]}\b", text)] == []
