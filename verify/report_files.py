"""Read the result files of a regression from a folder; the kind of a file is recognised by its content."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..errors import FileError
from ..infra.reading import parse_json, read_bytes
from ..sim.coverage.code import CodeCoverage
from ..sim.coverage.groups import Coverage

__all__ = ["Area", "Case", "Findings", "Proof", "read_findings"]


@dataclass(frozen=True)
class Case:
    """Result of one test."""

    #: File or topic of the test, with dots instead of slashes (`group`), and name of the test in this file (`name`).
    group: str
    name: str
    seconds: float = 0.0  #: Duration of the test in seconds
    #: Failure message, and reason why the test was skipped; both are None if the test passed.
    failure: str | None = None
    skipped: str | None = None


def _case(element: ElementTree.Element) -> Case:
    failure = None
    for report in (*element.findall("failure"), *element.findall("error")):
        message, text = report.get("message", ""), report.text or ""
        details = text if message.partition("\n")[0] in text else f"{message}\n{text}".strip()
        failure = details if failure is None else f"{failure}\n{details}"
    skipped = element.find("skipped") if failure is None else None
    seconds = float(element.get("time", "0"))
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"the duration of a test must be a finite number of 0 or more, not {element.get('time')}")
    return Case(
        element.get("classname", ""),
        element.get("name", ""),
        seconds,
        failure,
        None if skipped is None else skipped.get("message", ""),
    )


#: Maximum size of a result file in bytes: a hundred times the size of a coverage file of all datapaths.
_LARGEST = 1 << 26
_MOST_TESTS = 100_000
#: Name of the test suites that ``sptc prove --junit`` writes.
_PROOFS = "sptc prove"
#: Start of the names of groups of test cases that report a campaign; the name of the preset follows.
_CAMPAIGN = "sptc.campaign."
_FIGURE = {"name", "unit", "value"}


@dataclass(frozen=True)
class Proof:
    """Result of ``sptc prove`` for one property."""

    name: str  #: Name of the property, and parameters of the proof
    result: str  #: ``proved``, or the reason why the property is not proved
    seconds: float  #: Duration of the proof in seconds
    problem: str = ""  #: Details if the property is not proved


@dataclass(frozen=True)
class Area:
    """Result of ``sptc area`` for one datapath."""

    name: str  #: Name of the datapath
    units: dict[str, str]  #: Unit of each measured quantity
    parts: dict[str, dict[str, float]]  #: Value of each quantity, by part of the datapath
    #: Cost of sparsity in a dot-product unit: increase of each quantity, in per cent of the dense unit.
    sparsity: dict[str, float]


@dataclass
class Findings:
    """All results of a regression that were read from a folder."""

    folder: Path
    cases: list[Case] = field(default_factory=list)  #: Results of tests; results of proofs are in `proofs`
    seeds: set[str] = field(default_factory=set)  #: Seeds of all test runs in the result files
    #: Functional coverage, merged from all files.
    coverage: Coverage = field(default_factory=Coverage)
    code: CodeCoverage = field(default_factory=lambda: CodeCoverage({}))
    #: Injected faults that ``benchmarks/faults.py`` stored. Key: datapath, top module and fault number. Value: Yosys
    #: command that injects the fault, and verdict: ``killed`` (detected), ``equivalent``, or why the fault is neither.
    faults: dict[tuple[str, str, int], tuple[str, str]] = field(default_factory=dict)
    figures: list[tuple[str, float, str]] = field(default_factory=list)  #: Name, value and unit of benchmark figures
    proofs: dict[str, Proof] = field(default_factory=dict)  #: Result of each proof, by name of the proved property
    areas: list[Area] = field(default_factory=list)  #: Areas of datapaths, in the order in which files were read
    #: Files that were read, each with its kind, and files that were skipped, each with the reason.
    read: list[tuple[str, str]] = field(default_factory=list)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    _outcomes: dict[str, list[Case]] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Read a result file, or record the reason why the file cannot be read."""
        name = str(path.relative_to(self.folder))
        try:
            kind = self._taken(path)
        except FileError as error:
            self.passed_over.append((name, str(error).replace(str(path), "it")))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            self.passed_over.append((name, "it is damaged"))
        else:
            (self.read if kind else self.passed_over).append((name, kind or "unknown kind of file"))

    def _taken(self, path: Path) -> str:
        """Read a result file and return the kind of its content; empty if the kind is unknown."""
        if CodeCoverage.is_one(path):
            self.code = self.code.merge(CodeCoverage.read(path))
            return "code coverage from Verilator"
        data = read_bytes(path, _LARGEST)
        begin = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
        if begin.startswith(b"<"):
            return self._take_suites(data, path)
        if not begin.startswith((b"{", b"[")):
            return ""
        first, _, rest = data.partition(b"\n")
        if rest.lstrip().startswith(b"[{") and b'"faults"' in first:
            return self._take_faults(rest)
        return self._take_json(parse_json(data, str(path)), path)

    def _take_json(self, content: Any, path: Path) -> str:
        if isinstance(content, list):
            if not content or not all(isinstance(row, dict) and row.keys() >= _FIGURE for row in content):
                return ""
            self.figures += [(_text(row["name"]), _number(row["value"]), _text(row["unit"])) for row in content]
            return "figures of a benchmark"
        if {"kind", "groups"} <= content.keys():
            self.coverage = self.coverage.merge(Coverage.read(path))
            return "functional coverage"
        if {"proofs", "proved", "failed"} <= content.keys():
            for proof in [_proof(row) for row in content["proofs"]]:
                self._prove(proof)
            return "proofs"
        if {"configuration", "unit", "units", "array"} <= content.keys():
            self._take_area(content)
            return "area"
        if {"seed", "pairs", "total"} <= content.keys():
            rows = [(_text(row["preset"]), _text(row["pair"]), _number(row["mismatches"])) for row in content["pairs"]]
            self.seeds.add(str(_number(content["seed"])))
            for preset, pair, wrong in rows:
                case = Case(f"{_CAMPAIGN}{preset}", pair, failure=f"wrong outputs: {wrong:,}" if wrong else None)
                self._outcomes.setdefault(case.group, []).append(case)
            return "a campaign"
        if {"file", "passed", "failed", "skipped", "seconds", "seed"} <= content.keys():
            self._take_outcome(content)
            return "results of a test file"
        return ""

    def _take_suites(self, data: bytes, path: Path) -> str:
        """Store the results in `data`, the content of the file `path`; raise a `FileError` if it is not JUnit XML."""
        if b"<!DOCTYPE" in data:  # entities of a document type can expand without bound; JUnit XML has none
            raise FileError(f"{path} is no JUnit XML (it declares a document type)")
        try:
            root = ElementTree.fromstring(data)
            if root.tag not in ("testsuites", "testsuite"):
                raise FileError(f"{path} is no JUnit XML (its root element is {root.tag})")
            suites = [(suite, [*map(_case, suite.iterfind("testcase"))]) for suite in root.iter("testsuite")]
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise FileError(f"{path} is no JUnit XML ({error})") from None
        for suite, cases in suites:
            self.seeds.update(each.get("value", "") for each in suite.iterfind("properties/property[@name='seed']"))
            if suite.get("name") != _PROOFS:
                self.cases += cases
                continue
            for case in cases:
                name = f"{case.group.removeprefix('sptc.prove.')}.{case.name}"
                self._prove(Proof(name, "not proved" if case.failure else "proved", case.seconds, case.failure or ""))
        return "JUnit XML"

    def _prove(self, proof: Proof) -> None:
        """Store the result of a proof; a failed result of the same property is never replaced."""
        if proof.name not in self.proofs or not self.proofs[proof.name].problem:
            self.proofs[proof.name] = proof

    def _take_area(self, content: dict[str, Any]) -> None:
        units = {_text(name): _text(unit) for name, unit in content["units"].items()}
        array, warp = content["array"] or {}, content["warp"] or {}
        parts = {
            "unit": content["unit"],
            "unit, full adders": content["unit_with_full_adders"],
            "dense unit": content["dense_unit"],
            "dense unit, full adders": content["dense_unit_with_full_adders"],
            "array": array.get("sum"),
            "warp": warp.get("sum"),
        }
        known = {
            part: {name: _number(amounts[name]) for name in units if amounts.get(name) is not None}
            for part, amounts in parts.items()
            if amounts
        }
        sparsity = {_text(name): _number(value) for name, value in (content["sparsity_percent"] or {}).items()}
        self.areas.append(Area(_text(content["configuration"]["name"]), units, known, sparsity))

    def _take_outcome(self, content: dict[str, Any]) -> None:
        group = _text(content["file"]).removesuffix(".py").replace("/", ".")
        seconds, passed, seed = (_number(content[name]) for name in ("seconds", "passed", "seed"))
        if not 0 <= passed <= _MOST_TESTS:
            raise ValueError(f"the number of passed tests must be 0 to {_MOST_TESTS}, not {passed}")
        cases = [Case(group, f"test {number}", seconds / passed) for number in range(int(passed))]
        cases += [Case(group, _text(name), failure="") for name in content["failed"]]
        cases += [Case(group, name, skipped=_text(reason)) for name, reason in content["skipped"].items()]
        self._outcomes[group] = cases
        self.seeds.add(str(seed))

    def settle(self) -> None:
        """Add the results of test files that have no JUnit XML, and failures that no JUnit XML reports."""
        known = {case.group for case in self.cases}
        failed = {(case.group, case.name) for case in self.cases if case.failure is not None}
        broken = {group for group, _ in failed}
        for group, cases in self._outcomes.items():
            # JUnit XML uses the same names as `_outcomes` for format pairs of a campaign, but not for tests of a file.
            if group not in broken or group.startswith(_CAMPAIGN):
                new = [case for case in cases if (group, case.name) not in failed]
                self.cases += [case for case in new if case.failure is not None or group not in known]

    def _take_faults(self, lines: bytes) -> str:
        """Read outcomes of injected faults from the lines of a file. For each fault, the last line counts."""
        faults = {}  # outcomes of faults, stored only if all lines of the file are valid
        for line in lines.splitlines():
            if line.rstrip().endswith(b"]"):  # an interrupted run leaves an incomplete last line
                for row in json.loads(line):
                    preset, top, command, verdict = (_text(row[key]) for key in ("preset", "top", "command", "verdict"))
                    faults[preset, top, int(_number(row["number"]))] = command, verdict
        self.faults |= faults
        return "faults"


def read_findings(folder: Path) -> Findings:
    """Read the results in a folder and its subfolders, such as the folder that ``make regression`` writes.

    Raise a `FileError` if `folder` is no folder, cannot be listed, or holds no file for a report.
    """
    findings = Findings(folder)

    def refuse(error: OSError) -> None:
        if error.filename == str(folder):
            raise ValueError(error.strerror)
        name = str(Path(error.filename).relative_to(folder))
        findings.passed_over.append((name, f"it cannot be read ({error.strerror})"))

    try:
        paths = [Path(place) / name for place, _, names in os.walk(folder, onerror=refuse) for name in names]
    except ValueError as error:  # `refuse` raised it, or the folder's name is invalid (contains NUL)
        raise FileError(f"{folder} cannot be read ({error})") from None
    for path in sorted(paths):
        findings.add(path)
    findings.settle()
    if not findings.read:
        raise FileError(f"{folder} has {len(paths)} files, but none with results of a regression")
    return findings


def _proof(row: dict[str, Any]) -> Proof:
    result = _text(row["result"])
    values = [f"{name} = {value}" for cycle in row["counterexample"] for name, value in cycle.items()]
    problem = "" if result == "proved" else "\n".join([_text(row["statement"]), *values])
    return Proof(f"{_text(row['property'])} {_text(row['parameters'])}", result, _number(row["seconds"]), problem)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a field of a result file must be a string")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < float("inf"):
        raise TypeError("a field of a result file must be a finite number")
    return value
