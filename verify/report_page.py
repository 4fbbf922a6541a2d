"""The page of a regression: what ran, failed, was covered, proved and measured, and what is missing."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from .. import __version__
from .markup import Markup, bar, element, joined, page, table
from .report_files import Area, Case, Figure, Findings, Proof

__all__ = ["report_page"]

#: Most entries of a list, and most characters of a message.
_MOST, _LONGEST = 200, 20_000
_SLOWEST = 25
#: Unit of the figures that ``benchmarks/faults.py`` prints.
_KILLED = "% killed"


def report_page(found: Findings) -> bytes:
    """Return the page as HTML, made only from the findings.

    Parameters
    ----------
    found : Findings
        Content of a folder.
    """
    figures = [row for row in found.figures if row.unit != _KILLED]
    sections = (
        ("Results", _verdict_of_results(found), _results(found)),
        ("Coverage", _verdict_of_coverage(found), _coverage(found)),
        ("Faults", _verdict_of_faults(found), _faults(found)),
        ("Proofs", _verdict_of_proofs(found), _proofs(found)),
        ("Area", f"{len(found.areas)} measured" if found.areas else "", _areas(found.areas)),
        ("Figures", f"{len(figures)} rows" if figures else "", _figures(figures)),
    )
    tiles = (
        element("a", name, element("b", verdict or element("span", "missing", class_="quiet")), href=f"#{name}")
        for name, verdict, _ in sections
    )
    return page(
        "Regression",
        element("p", f"{found.folder}, read by sptc {__version__}", class_="quiet"),
        element("nav", *tiles),
        *(joined(element("h2", name, id=name), content) for name, _, content in sections),
        element("h2", "Files"),
        _folded("read", [f"{name}: {kind}" for name, kind in found.read]),
        _folded("passed over", [f"{name}: {why}" for name, why in found.passed_over]),
    )


def _missing(what: str) -> Markup:
    return element("p", f"Missing: {what}", class_="quiet")


def _verdict(right: bool, text: str) -> Markup:
    return element("span", text, class_="good" if right else "bad")


def _listed(items: Sequence[object]) -> Markup:
    """Return a list; a long one is cut, with the number of the remaining entries."""
    rest = len(items) - _MOST
    shown = [element("li", item) for item in items[:_MOST]]
    return element("ul", *shown, *([element("li", f"and {rest} more")] if rest > 0 else []))


def _folded(what: str, items: Sequence[object]) -> Markup:
    return element("details", element("summary", f"{len(items)} {what}"), _listed(items)) if items else Markup("")


def _message(title: object, text: str) -> Markup:
    """Return an expanded message; a very long one is cut."""
    cut = f"{text[:_LONGEST]}\n[{len(text) - _LONGEST} more letters]" if len(text) > _LONGEST else text
    return element("details", element("summary", title), element("pre", cut or "(nothing more is known)"), open=True)


def _messages(messages: Sequence[tuple[str, str]]) -> Markup:
    rest = len(messages) - _MOST
    more = [element("p", f"and {rest} more")] if rest > 0 else []
    return joined(*(_message(title, text) for title, text in messages[:_MOST]), *more)


def _failures(cases: Iterable[Case]) -> list[tuple[str, str]]:
    return [(f"{case.group}::{case.name}", case.failure) for case in cases if case.failure is not None]


def _verdict_of_results(found: Findings) -> Markup:
    if not found.cases:
        return Markup("")
    failed = len(_failures(found.cases))
    return _verdict(
        not failed, f"{failed} of {len(found.cases)} failed" if failed else f"{len(found.cases)}, none failed"
    )


def _counts(cases: Sequence[Case]) -> tuple[int, int, int, str]:
    """Return the numbers of passed, failed and skipped tests, and their total time."""
    failed = sum(case.failure is not None for case in cases)
    skipped = sum(case.skipped is not None for case in cases)
    return len(cases) - failed - skipped, failed, skipped, f"{sum(case.seconds for case in cases):.1f}"


def _results(found: Findings) -> Markup:
    if not found.cases:
        return _missing("JUnit XML, as `make regression`, and `--junit FILE` of `sptc`, write it.")
    folders: dict[str, list[Case]] = defaultdict(list)
    files: dict[str, list[Case]] = defaultdict(list)
    reasons: dict[str, list[str]] = defaultdict(list)
    for case in found.cases:
        folders[case.group.rpartition(".")[0] or case.group].append(case)
        files[case.group].append(case)
        if case.skipped is not None:
            reasons[case.skipped or "no reason given"].append(f"{case.group}::{case.name}")
    rows = [(name.replace(".", "/"), *_counts(cases)) for name, cases in sorted(folders.items())]
    rows.append((element("b", "total"), *_counts(found.cases)))
    slowest = sorted(files.items(), key=lambda item: -sum(case.seconds for case in item[1]))[:_SLOWEST]
    seeds = f"Seeds of the random tests: {', '.join(sorted(found.seeds))}." if found.seeds else "No seed is named."
    return joined(
        _messages(_failures(found.cases)),
        table(("folder", "passed", "failed", "skipped", "seconds"), rows, numbers=4),
        *(_folded(f"skipped: {reason}", names) for reason, names in sorted(reasons.items())),
        element("h3", "Slowest"),
        table(
            ("file", "tests", "seconds"),
            [(name.replace(".", "/"), len(cases), _counts(cases)[3]) for name, cases in slowest],
            numbers=2,
        ),
        element("p", seeds),
    )


def _verdict_of_coverage(found: Findings) -> Markup:
    report = found.coverage.report(0)
    if not report["reachable"]:
        return Markup("")
    return _verdict(report["complete"], f"{_share(report['reached'], report['reachable'])} of bins")


def _share(part: int, whole: int) -> str:
    """Return a share in per cent; 100 only if nothing is missing."""
    if not whole:
        return "-"
    return "100 %" if part == whole else f"{min(100 * part / whole, 99.99):.2f} %"


def _coverage(found: Findings) -> Markup:
    groups = found.coverage.report(10)["groups"]
    code = found.code.report(10)
    if not groups and not code:
        return _missing("coverage, as `sptc campaign --coverage --state FOLDER` and the benches write it.")
    rows = [
        (
            f"{group['configuration']}: {group['name']}",
            bar(group["reached"], group["reachable"]),
            group["reached"],
            group["reachable"],
            _share(group["reached"], group["reachable"]),
        )
        for group in groups
    ]
    wrong = [f"{group['configuration']} {group['name']}: {name}" for group in groups for name in group["contradicted"]]
    return joined(
        table(("group", "", "reached", "of", "share"), rows, numbers=3) if rows else _missing("functional coverage."),
        _messages([("reached, although nothing can", "\n".join(wrong))] if wrong else []),
        *(
            _folded(f"first missing of {group['configuration']}: {group['name']}", group["missing"])
            for group in groups
            if group["missing"]
        ),
        *(
            _folded(f"reasons why bins of {group['configuration']}: {group['name']} cannot be reached", reasons)
            for group in groups
            if (reasons := [f"{entry['bins']}: {entry['reason']}" for entry in group["unreachable"]])
        ),
        *(
            element("p", f"{kind}: {counts['hit']} of {counts['points']} {counts['meaning']}")
            for kind, counts in code.items()
        ),
    )


def _verdict_of_faults(found: Findings) -> Markup:
    verdicts = Counter(fault.verdict for fault in found.faults.values())
    if effective := verdicts.total() - verdicts["equivalent"]:
        return _verdict(verdicts["killed"] == effective, f"{_share(verdicts['killed'], effective)} killed")
    rows = [row for row in found.figures if row.unit == _KILLED]
    return element("span", f"{rows[-1].value:.2f} % killed") if rows else Markup("")


def _faults(found: Findings) -> Markup:
    figures = [(row.name, f"{row.value:.2f}") for row in found.figures if row.unit == _KILLED]
    if not figures and not found.faults:
        return _missing("faults, as `benchmarks/faults.py --json` prints them, or its outcomes.jsonl.")
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    for fault in found.faults.values():
        verdicts[f"{fault.preset} {fault.top}"][fault.verdict] += 1
    names = ["killed", "equivalent"]
    names += sorted({fault.verdict for fault in found.faults.values()} - {*names})
    rows = [(top, *(counts[name] for name in names)) for top, counts in sorted(verdicts.items())]
    left = [
        f"{fault.verdict}: {fault.preset} {fault.top}: {fault.command}"
        for fault in found.faults.values()
        if fault.verdict not in names[:2]
    ]
    return joined(
        table(("top", *names), rows, numbers=len(names)) if rows else "",
        _folded("neither killed nor equivalent", left),
        table(("faults", _KILLED), figures, numbers=1) if figures else "",
    )


def _verdict_of_proofs(found: Findings) -> Markup:
    if not found.proofs:
        return Markup("")
    proved = sum(not _is_open(proof) for proof in found.proofs.values())
    return _verdict(proved == len(found.proofs), f"{proved} of {len(found.proofs)} proved")


def _is_open(proof: Proof) -> bool:
    return proof.result != "proved"


def _proofs(found: Findings) -> Markup:
    if not found.proofs:
        return _missing("proofs, as `sptc prove --json` prints them and `--junit FILE` writes them.")
    proofs = sorted(found.proofs.values(), key=lambda proof: (not _is_open(proof), proof.name))
    rows = [(proof.name, _verdict(not _is_open(proof), proof.result), f"{proof.seconds:.1f}") for proof in proofs]
    every = table(("property", "result", "seconds"), rows, numbers=1)
    return joined(
        _messages([(f"{proof.name}: {proof.result}", proof.problem) for proof in proofs if _is_open(proof)]),
        element("details", element("summary", f"{len(proofs)} properties"), every),
    )


def _areas(areas: Sequence[Area]) -> Markup:
    if not areas:
        return _missing("area, as `sptc area --json` prints it.")
    return joined(*map(_area, areas))


def _area(area: Area) -> Markup:
    rows = [
        (part, *(f"{amounts[name]:,.1f}" if name in amounts else "-" for name in area.units))
        for part, amounts in area.parts.items()
    ]
    added = ", ".join(f"{value:+.1f} % {name}" for name, value in area.sparsity.items())
    return joined(
        element("h3", area.name),
        table(("part", *(f"{name}, {unit}" for name, unit in area.units.items())), rows, numbers=len(area.units)),
        element("p", f"Sparsity, against the dense unit: {added}.") if added else "",
    )


def _figures(figures: Sequence[Figure]) -> Markup:
    if not figures:
        return _missing("figures, as `benchmarks/*.py --json` print them.")
    return table(("figure", "value", "unit"), [(row.name, f"{row.value:,.2f}", row.unit) for row in figures])
