"""HTML page with the results of a regression: tests, coverage, faults, proofs, area, and missing results.

The page is the template ``report_page.html`` beside this file, filled with the findings. All text that is not markup is
escaped, so that names and messages cannot inject markup.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .. import __version__
from .report_files import Area, Case, Findings

__all__ = ["report_page"]

#: Maximum number of entries of a list on the report page, and maximum length of a message in characters.
_MOST, _LONGEST = 200, 20_000
_SLOWEST = 25
#: Unit of the benchmark rows in which ``benchmarks/faults.py`` reports the share of injected faults that were detected.
_KILLED = "% killed"


def report_page(findings: Findings) -> bytes:
    """Return the report of a regression as an HTML page."""
    environment = Environment(
        autoescape=True,
        finalize=_printable,
        loader=FileSystemLoader(Path(__file__).parent),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["shortened"] = _shortened
    environment.globals |= {"most": _MOST, "share": _share, "version": __version__}
    proofs = sorted(findings.proofs.values(), key=lambda proof: (proof.result == "proved", proof.name))
    content: dict[str, Any] = {
        "folder": findings.folder,
        "files_read": [f"{name}: {kind}" for name, kind in findings.read],
        "files_passed_over": [f"{name}: {why}" for name, why in findings.passed_over],
        "areas": list(map(_area, findings.areas)),
        "figures": [(name, f"{value:,.2f}", unit) for name, value, unit in findings.figures if unit != _KILLED],
        **_results(findings),
        **_coverage(findings),
        **_faults(findings),
        "proofs": proofs,
        "open_proofs": [
            (f"{proof.name}: {proof.result}", proof.problem) for proof in proofs if proof.result != "proved"
        ],
    }
    tiles = [
        (name, *((state, text) if text else ("quiet", "missing"))) for name, state, text in _tiles(findings, content)
    ]
    return environment.get_template("report_page.html").render(content, tiles=tiles).encode()


def _printable(value: object) -> object:
    """Return a value as text with escapes for unprintable characters. Do not change a value that is HTML markup."""
    if hasattr(value, "__html__"):
        return value
    return "".join(letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1] for letter in str(value))


def _shortened(text: str) -> str:
    return f"{text[:_LONGEST]}\n[{len(text) - _LONGEST} more characters]" if len(text) > _LONGEST else text


def _share(part: int, whole: int) -> str:
    """Return `part` in per cent of `whole`, as text. The result is "100 %" only if both numbers are equal."""
    if not whole:
        return "-"
    return "100 %" if part == whole else f"{min(100 * part / whole, 99.99):.2f} %"


def _tiles(findings: Findings, content: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, CSS colour class and one-line verdict of each page section; without results, the verdict is empty."""

    def state(right: bool) -> str:
        return "good" if right else "bad"

    tests, failed = len(findings.cases), len(content["failures"])
    verdict = f"{failed} of {tests} failed" if failed else f"{tests}, none failed"
    yield "Results", state(not failed), verdict if tests else ""
    coverage = findings.coverage.report(0)
    verdict = f"{_share(coverage['reached'], coverage['reachable'])} of bins" if coverage["reachable"] else ""
    yield "Coverage", state(coverage["complete"]), verdict
    verdicts = Counter(verdict for _, verdict in findings.faults.values())
    if effective := verdicts.total() - verdicts["equivalent"]:
        yield "Faults", state(verdicts["killed"] == effective), f"{_share(verdicts['killed'], effective)} killed"
    else:
        yield "Faults", "", f"{content['killed'][-1][1]} % killed" if content["killed"] else ""
    count, unproved = len(findings.proofs), len(content["open_proofs"])
    yield "Proofs", state(not unproved), f"{count - unproved} of {count} proved" if count else ""
    yield "Area", "", f"{len(findings.areas)} measured" if findings.areas else ""
    yield "Figures", "", f"{len(content['figures'])} rows" if content["figures"] else ""


def _counts(cases: Sequence[Case]) -> tuple[int, int, int, str]:
    """Return the numbers of passed, failed and skipped tests, and the total time of all tests in seconds as text."""
    failed = sum(case.failure is not None for case in cases)
    skipped = sum(case.skipped is not None for case in cases)
    return len(cases) - failed - skipped, failed, skipped, f"{sum(case.seconds for case in cases):.1f}"


def _results(findings: Findings) -> dict[str, Any]:
    folders: dict[str, list[Case]] = defaultdict(list)
    files: dict[str, list[Case]] = defaultdict(list)
    reasons: dict[str, list[str]] = defaultdict(list)
    for case in findings.cases:
        folders[case.group.rpartition(".")[0] or case.group].append(case)
        files[case.group].append(case)
        if case.skipped is not None:
            reasons[case.skipped or "no reason given"].append(f"{case.group}::{case.name}")
    failed = [case for case in findings.cases if case.failure is not None]
    slowest = sorted(files.items(), key=lambda item: -sum(case.seconds for case in item[1]))[:_SLOWEST]
    return {
        "failures": [(f"{case.group}::{case.name}", case.failure) for case in failed],
        "folders": [(name.replace(".", "/"), *_counts(cases)) for name, cases in sorted(folders.items())],
        "total": _counts(findings.cases),
        "skipped": sorted(reasons.items()),
        "slowest": [(name.replace(".", "/"), len(cases), _counts(cases)[3]) for name, cases in slowest],
        "seeds": sorted(findings.seeds),
    }


def _coverage(findings: Findings) -> dict[str, Any]:
    groups = findings.coverage.report(10)["groups"]
    for group in groups:
        group["label"] = f"{group['configuration']}: {group['name']}"
        group["reasons"] = [f"{entry['bins']}: {entry['reason']}" for entry in group["unreachable"]]
    wrong = [f"{group['configuration']} {group['name']}: {name}" for group in groups for name in group["contradicted"]]
    contradicted = [("bins declared unreachable, but hit", "\n".join(wrong))] if wrong else []
    return {"groups": groups, "code": findings.code.report(10), "contradicted": contradicted}


def _faults(findings: Findings) -> dict[str, Any]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (preset, top, _), (_, verdict) in findings.faults.items():
        counts[f"{preset} {top}"][verdict] += 1
    decided = ["killed", "equivalent"]
    verdicts = [*decided, *sorted({verdict for _, verdict in findings.faults.values()} - {*decided})]
    return {
        "verdicts": verdicts,
        "faults": [(top, *(counted[name] for name in verdicts)) for top, counted in sorted(counts.items())],
        "undecided": [
            f"{verdict}: {preset} {top}: {command}"
            for (preset, top, _), (command, verdict) in findings.faults.items()
            if verdict not in decided
        ],
        "killed_unit": _KILLED,
        "killed": [(name, f"{value:.2f}") for name, value, unit in findings.figures if unit == _KILLED],
    }


def _area(area: Area) -> tuple[str, list[str], list[tuple[str, ...]], str]:
    """Return the name of a datapath, the header and the rows of its table of areas, and the overhead of sparsity."""
    rows = [
        (part, *(f"{amounts[name]:,.1f}" if name in amounts else "-" for name in area.units))
        for part, amounts in area.parts.items()
    ]
    head = ["part", *(f"{name}, {unit}" for name, unit in area.units.items())]
    return area.name, head, rows, ", ".join(f"{value:+.1f} % {name}" for name, value in area.sparsity.items())
