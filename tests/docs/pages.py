"""Pages of README and site, split into code blocks, and functions that run the blocks as a reader would."""

import io
import re
import shlex
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sptc.cli import main

__all__ = ["PAGES", "ROOT", "Block", "blocks_of", "run_page"]

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.relative_to(ROOT).parts),
]
#: Languages of blocks that are run, and the language of blocks that show output.
RUN, SHOWN = ("python", "sh"), "text"
#: A comment in front of a block controls the test: `slow`, `shown`, `not run: reason`, or code that prepares files.
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*?)\s*-->\n)?^```(?P<language>\S+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_SET_UP = re.compile(r"^<!-- set-up\n(?P<text>.*?)^-->$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block of a page, or hidden code in front of a block."""

    language: str  #: Word after the opening fence
    text: str  #: Text between the fences
    mark: str = ""  #: Comment in front of the block


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    results = [(match.start(), Block("python", match["text"])) for match in _SET_UP.finditer(text)]
    for match in _BLOCK.finditer(text):
        mark = (match["mark"] or "") if not (match["mark"] or "").startswith("set-up") else ""
        results.append((match.start("language"), Block(match["language"], match["text"], mark)))
    return [block for _, block in sorted(results, key=lambda each: each[0])]


def run_page(page: Path, *, slow: bool) -> int:
    """Run the blocks of a page in the current folder, one after the other. Return the number of compared lines.

    Raises
    ------
    AssertionError
        A command ends otherwise than the page says, or does not print what stands below it.
    """
    names: dict[str, Any] = {"__name__": page.stem}
    printed, compared = "", 0
    for block in blocks_of(page):
        if block.language in RUN:
            left_out = block.mark.startswith("not run: ") or (block.mark == "slow" and not slow)
            printed = "" if left_out else _run(block, page, names)
        elif block.language == SHOWN and block.mark != "shown" and printed:
            missing = [line for line in block.text.splitlines() if not _is_printed(line, printed)]
            assert not missing, (missing, printed)
            compared += len(block.text.splitlines())
    return compared


def _run(block: Block, page: Path, names: dict[str, Any]) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
        else:
            for line in block.text.splitlines():
                _call(line)
    return printed.getvalue()


def _call(line: str) -> None:
    """Run a command of a page. A redirection of its output, or its exit status, may follow the command."""
    command, _, remark = line.partition("  # ")
    command, _, target = command.partition(" > ")
    word, *words = shlex.split(command)
    assert word == "sptc", line
    status = re.fullmatch(r"exit status (\d)", remark.strip())
    with redirect_stdout(io.StringIO()) as printed:
        assert main(words) == (int(status[1]) if status else 0), line
    if target:
        Path(target.strip()).write_text(printed.getvalue(), encoding="utf-8")
    else:
        print(printed.getvalue(), end="")


def _is_printed(line: str, printed: str) -> bool:
    """Return whether a line was printed. Dots in the line stand for any text."""
    start, dots, _ = line.strip().partition("...")
    return any(of.strip().startswith(start) if dots else of.strip() == line.strip() for of in printed.splitlines())
