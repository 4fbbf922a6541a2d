"""A reader of JUnit XML as pytest and ``sptc --junit`` write it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ..errors import FileError

__all__ = ["Case", "Suite", "read_suites"]


@dataclass(frozen=True)
class Case:
    """One test.

    Attributes
    ----------
    group, name : str
        File or topic of the test, with dots, and its name there.
    seconds : float
        Duration.
    failure, skipped : str or None
        Failure message, or reason of the skip; both None if it passed.
    """

    group: str
    name: str
    seconds: float = 0.0
    failure: str | None = None
    skipped: str | None = None


@dataclass(frozen=True)
class Suite:
    """Tests of one run.

    Attributes
    ----------
    name : str
        Name of the test runner.
    cases : tuple of Case
        Tests in the order of the file.
    seeds : tuple of str
        Values of the properties named ``seed``.
    """

    name: str
    cases: tuple[Case, ...]
    seeds: tuple[str, ...] = ()


def read_suites(data: bytes, path: Path) -> list[Suite]:
    """Return the suites of a file.

    Parameters
    ----------
    data : bytes
        Content of the file.
    path : Path
        Path of the file, for messages.

    Raises
    ------
    FileError
        The content is no JUnit XML.
    """
    if b"<!DOCTYPE" in data:  # JUnit XML needs none, and its entities can expand without bound
        raise FileError(f"{path} is no JUnit XML (it declares a document type)")
    try:
        root = ElementTree.fromstring(data)
        if root.tag not in ("testsuites", "testsuite"):
            raise FileError(f"{path} is no JUnit XML (its element is {root.tag})")
        return [
            Suite(suite.get("name", ""), tuple(map(_case, suite.findall("testcase"))), tuple(_seeds(suite)))
            for suite in root.iter("testsuite")
        ]
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise FileError(f"{path} is no JUnit XML ({error})") from None


def _seeds(suite: ElementTree.Element) -> Iterator[str]:
    for element in suite.iterfind("properties/property"):
        if element.get("name") == "seed":
            yield element.get("value", "")


def _case(element: ElementTree.Element) -> Case:
    failure = None
    for found in (*element.findall("failure"), *element.findall("error")):
        message, text = found.get("message", ""), found.text or ""
        said = text if message.partition("\n")[0] in text else f"{message}\n{text}".strip()
        failure = said if failure is None else f"{failure}\n{said}"
    skipped = element.find("skipped") if failure is None else None
    return Case(
        element.get("classname", ""),
        element.get("name", ""),
        _seconds(element.get("time", "0")),
        failure,
        None if skipped is None else skipped.get("message", ""),
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"a time of {text}")
    return value
