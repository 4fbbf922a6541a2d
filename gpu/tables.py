"""Format measurements as CSV text."""

import csv
import io
from collections.abc import Iterable, Sequence

__all__ = ["written"]


def written(about: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return CSV text: the line `about` that describes the GPU, then the column names, then the rows."""
    text = io.StringIO(newline="")
    text.write(f"# {about}\n")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(rows)
    return text.getvalue()
