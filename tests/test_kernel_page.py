"""The page on kernels: its blocks run one after the other, and print what stands below them."""

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from sptc.cli import main
from sptc.gemm.ways import ORDERS, Way

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "is-my-kernel-exact.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def run(language: str, block: str, names: dict[str, Any]) -> str:
    """Run a block and return what it prints."""
    with redirect_stdout(StringIO()) as printed:
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), names)
        else:
            for line in block.splitlines():
                command, _, status = line.partition("# exit status ")
                word, *words = shlex.split(command)
                assert word == "sptc"
                assert main(words) == int(status or 0)
    return printed.getvalue()


def is_printed(line: str, printed: str) -> bool:
    """Tell whether a line of the page was printed, up to dots that stand for the rest of it."""
    start, dots, _ = line.strip().partition("...")
    return any(of.strip().startswith(start) if dots else of.strip() == line.strip() for of in printed.splitlines())


def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed, compared = "", 0
    for language, block in BLOCKS:
        if language == "text":
            compared += bool(printed)
            assert [line for line in block.splitlines() if printed and not is_printed(line, printed)] == []
            printed = ""
        else:
            printed = run(language, block, names)
    assert compared == 3


def test_blocks_are_of_known_languages() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh", "text"}
    assert TEXT.count("```") == 2 * len(BLOCKS)


def test_every_word_of_a_way_is_explained() -> None:
    explained = {
        word for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }
    assert explained == {*Way.__dataclass_fields__}
    assert all(f"`{order}`" in TEXT for order in ORDERS)


def test_the_readme_leads_to_it() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(docs/is-my-kernel-exact.md)" in readme
    assert "\n## Limitations\n" in readme
