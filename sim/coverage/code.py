"""Reader of Verilator's line and toggle coverage (``coverage.dat``): merges files and summarises the hits."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import FileError
from ...infra.reading import opened, read_text

__all__ = ["CodeCoverage"]

_MAGIC = "# SystemC::Coverage-3"
#: For each kind of code coverage point (Verilator's name of the kind), a description of the points that were hit.
_KINDS = {
    "line": "blocks of statements that ran",
    "branch": "branches that were taken",
    "toggle": "bits that rose and that fell",
}


@dataclass(frozen=True)
class CodeCoverage:
    """Hit counts of all line, branch and toggle points of one or more designs. Keys: kind and name of the point."""

    hits: Mapping[tuple[str, str], int]

    @classmethod
    def read(cls, path: Path) -> "CodeCoverage":
        """Read a ``coverage.dat`` file; raise a FileError if it cannot be read or has another format."""
        lines = read_text(path, "is no coverage file (not text)").splitlines()
        if not lines or lines[0] != _MAGIC:
            raise FileError(f"{path} is no coverage file of Verilator")
        hits: Counter[tuple[str, str]] = Counter()
        for line in lines[1:]:
            try:
                _, text, count = line.split("'")
                fields = dict(field.split("\x02", 1) for field in text.split("\x01") if field)
                hits[fields["t"], f"{fields['h']} line {fields['l']} {fields['o']}"] += int(count)
            except (KeyError, ValueError):
                raise FileError(f"{path} is a damaged coverage file of Verilator (a line lacks a hit count)") from None
        return cls(hits)

    @staticmethod
    def is_one(path: Path) -> bool:
        """Return whether a file starts with the header line of Verilator's ``coverage.dat`` format."""
        try:
            with opened(path) as file:
                return file.read(len(_MAGIC)) == _MAGIC.encode()
        except FileError:
            return False

    def merge(self, other: "CodeCoverage") -> "CodeCoverage":
        """Return code coverage in which each hit count is the sum of the hit counts in two coverage objects."""
        points = {**self.hits, **other.hits}
        return CodeCoverage({point: self.hits.get(point, 0) + other.hits.get(point, 0) for point in points})

    def report(self, limit: int = 10) -> dict[str, Any]:
        """Return JSON data: counts for each kind of code coverage point, and the first points without a hit."""
        report = {}
        for kind, meaning in _KINDS.items():
            points = {name: count for (point_kind, name), count in self.hits.items() if point_kind == kind}
            missing = [name for name, count in points.items() if not count]
            hit = len(points) - len(missing)
            if points:
                report[kind] = {
                    "meaning": meaning,
                    "points": len(points),
                    "hit": hit,
                    "percentage": 100.0 * hit / len(points),
                    "missing": missing[:limit],
                }
        return report

    def table(self, limit: int = 10) -> str:
        """Return the code coverage report as text."""
        lines = []
        for kind, counts in self.report(limit).items():
            lines.append(
                f"{kind}: {counts['hit']} of {counts['points']} {counts['meaning']}, {counts['percentage']:.2f} %"
            )
            lines += [f"  not: {name}" for name in counts["missing"]]
        return "\n".join(lines)
