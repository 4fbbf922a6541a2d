"""Reports for continuous integration: JUnit XML and annotations of GitHub workflows (``--junit``, ``--github``)."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree

from ..infra.escapes import annotation, xml_text
from ..infra.files import write_whole

__all__ = ["Check", "report"]


@dataclass(frozen=True)
class Check:
    """Result of one check in a report for continuous integration."""

    group: str
    name: str  #: Name of the check within the group of checks `group`
    problem: str = ""  #: Description of the failure; empty if the check passed
    seconds: float = 0.0  #: Duration of the check in seconds; 0 if unknown


def report(options: argparse.Namespace, checks: Iterable[Check], seed: int | None = None) -> None:
    """Write the reports that ``--junit`` and ``--github`` request; `seed` is the seed of a random run, else None.

    Raise a `FileError` if a file cannot be written.
    """
    results = list(checks)
    if options.junit:
        write_whole(options.junit, _junit(options.command, results, seed))
    if options.github:
        for check in results:
            if check.problem:
                title = annotation(f"sptc {options.command}: {check.name}", title=True)
                print(f"::error title={title}::{annotation(check.problem)}", file=sys.stderr)
        wrong = sum(bool(check.problem) for check in results)
        print(f"::notice title=sptc {options.command}::{len(results) - wrong} right, {wrong} wrong", file=sys.stderr)


def _junit(command: str, checks: list[Check], seed: int | None) -> bytes:
    numbers = {"tests": str(len(checks)), "failures": str(sum(bool(check.problem) for check in checks))}
    root = ElementTree.Element("testsuites", numbers)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"sptc {command}", "errors": "0", **numbers})
    if seed is not None:
        properties = ElementTree.SubElement(suite, "properties")
        ElementTree.SubElement(properties, "property", {"name": "seed", "value": str(seed)})
    for check in checks:
        attributes = {"classname": f"sptc.{command}.{check.group}", "name": check.name, "time": f"{check.seconds:.3f}"}
        element = ElementTree.SubElement(suite, "testcase", {key: xml_text(value) for key, value in attributes.items()})
        if check.problem:
            first = check.problem.partition("\n")[0]
            failure = ElementTree.SubElement(element, "failure", {"message": xml_text(first)})
            failure.text = xml_text(check.problem)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"
