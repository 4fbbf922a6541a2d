"""Markdown of generated pages: tables, indexes, and the output of commands."""

import io
import re
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from sptc.cli import main

__all__ = ["ROOT", "escaped", "index", "printed", "table"]

ROOT = Path(__file__).resolve().parents[1]


def printed(*words: str) -> str:
    """Return the text that a command of ``sptc`` prints."""
    with redirect_stdout(io.StringIO()) as output:
        status = main(words)
    assert status == 0, words
    return output.getvalue()


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    lines = [[*heads], [*("---" for _ in heads)], *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def index(title: str, words: str, names: Iterable[str], *, hidden: bool = False) -> tuple[str, str]:
    """Return the file name and the text of the index page of a folder.

    Parameters
    ----------
    title, words : str
        Title and text of the index.
    names : iterable of str
        Names of the pages, in order.
    hidden : bool
        Whether the list of pages appears only in the navigation bar, because `words` already links to the pages.
    """
    option = ":hidden:" if hidden else ":maxdepth: 1"
    entries = "\n".join(names)
    return "index.md", f"# {title}\n\n{words}\n\n```{{toctree}}\n{option}\n\n{entries}\n```\n"


def escaped(text: str) -> str:
    """Return text with backslashes before characters that have a meaning in Markdown, except in `` `code` ``."""
    return re.sub(r"(`[^`\n]*`)|([*_<>\[\]`])", lambda match: match[1] or f"\\{match[2]}", text)
