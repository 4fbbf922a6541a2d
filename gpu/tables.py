"""Measurements as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence

__all__ = ["written"]


def written(about: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows below the names of their columns, behind a line that says of what GPU they are."""
    text = io.StringIO(newline="")
    text.write(f"# {about}\n")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(rows)
    return text.getvalue()
