"""Completion of the command line: bash asked for words, and the scripts of the other shells."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.cli.examples import EXAMPLES


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("gem", {"gemm"}),
        ("gpu re", {"record"}),
        ("gemm --split", {"--split-k"}),
        ("verilog --preset ho", {"hopper"}),
        ("gemm --a ow", {"own", "own.npy"}),
        ("report ow", {"own"}),
        ("completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(words: str, found: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "own.npy").touch()
    (tmp_path / "own").mkdir()
    line = ["sptc", *words.split(" ")]
    ask = f"COMP_WORDS=({' '.join(word or repr('') for word in line)}); COMP_CWORD={len(line) - 1}; _shtab_sptc\n"
    text = f'{script("bash", capsys)}\n{ask}printf "%s\\n" "${{COMPREPLY[@]}}"'
    answer = subprocess.run(["bash"], input=text, capture_output=True, text=True, cwd=tmp_path, check=True)
    words_found = set(answer.stdout.split()) - {"-h", "--help"}
    assert answer.stderr == ""
    assert words_found == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_hear_of_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert [name for name in EXAMPLES if not re.search(rf"\b{name.split()[-1]}\b", text)] == []
