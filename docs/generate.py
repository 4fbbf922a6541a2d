"""Generate the pages of the site from code and records: commands, ports, instructions, numerics, proofs and others."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from area_page import area_page
from instruction_pages import instruction_pages
from numerics_page import numerics_page
from page_text import ROOT, escaped, index, printed, table
from sptc.cli.examples import commands
from sptc.cli.main import command_parser
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import TOPS
from verification_pages import verification_pages

__all__ = ["PAGES", "write"]


def write(folder: Path) -> None:
    """Write all generated pages below a folder. Unchanged files are not written, so that Sphinx skips these files."""
    for name, make in PAGES.items():
        for file, text in make(folder):
            path = folder / name / file
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")


# ---- commands


def _commands(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each command of ``sptc``, with the help text in lines of 100 characters."""
    parsers = sorted(commands(command_parser()))
    yield index("Commands", "The help text of each command of `sptc`.", (name.replace(" ", "-") for name, _ in parsers))
    for name, command in parsers:
        command.formatter_class = partial(command.formatter_class, width=100)
        description = command.description or ""
        text = command.format_help()
        yield f"{name.replace(' ', '-')}.md", f"# sptc {name}\n\n{escaped(description)}\n\n```text\n{text}```\n"


# ---- ports


def _ports(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each preset and top-level module, with every field of every port."""
    names = []
    for preset in PRESETS:
        for top in TOPS:
            names.append(f"{preset}-{top}")
            text = printed("ports", "--preset", preset, "--top", top)
            yield f"{names[-1]}.md", f"# Ports of `{preset}`, top `{top}`\n\n```text\n{text}```\n"
    words = "The pages list every field of the Verilog ports. `sptc ports` prints such a list for your own datapaths."
    yield index("Ports", words, names)


# ---- benchmarks


def _benchmarks(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the page with the recorded results of the speed benchmarks."""
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    parts = [
        f"## `benchmarks/{name}.py`\n\n{escaped(entry['what'])}\n\n{entry['date']}, {entry['machine']}\n\n"
        + table(
            ["figure", "value", "unit"],
            ((row["name"].strip(), f"{row['value']:.4g}", row["unit"]) for row in entry["rows"]),
        )
        for name, entry in results.items()
    ]
    words = (
        "`python benchmarks/record.py` recorded the speeds on this page. Each table names date and machine, and its "
        "values hold for this machine. A ratio compares two measurements of one run. Another page "
        "compares [areas, delays and energies](../area/index.md) in three cell libraries."
    )
    yield "index.md", "\n".join(["# Benchmarks", "", words, "", *parts])


#: Function that generates the pages of a folder, by name of the folder.
PAGES: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "commands": _commands,
    "ports": _ports,
    "instructions": instruction_pages,
    "numerics": numerics_page,
    "verification": verification_pages,
    "benchmarks": _benchmarks,
    "area": area_page,
}
