"""What was measured of energy, as a table, as JSON and as rows of CSV."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..infra.files import write_whole
from ..synth.liberty import Library
from ..synth.price import versions
from ..synth.report import columns
from .measure import Measured
from .stages import STAGES

__all__ = ["NOTES", "as_dict", "table", "write_csv"]

#: What every report says of its figures.
NOTES = (
    "fJ of a kept product: half of C V^2 of pins that a toggle charges, and what cells take inside by the library's "
    "tables; clock and registers included, leakage not; without wires, without glitches (gates without delay)"
)


def table(found: Sequence[Measured], library: Library) -> str:
    """Return all that was measured, as text."""
    stages = [stage for stage in STAGES if any(stage in of.stages for of in found)]
    rows = [["instruction", "operands", "total", *stages]]
    rows += (
        [str(of.instruction), of.distribution, *(f"{value:.0f}" for value in (of.total, *map(of.stages.get, stages)))]
        for of in found
    )
    lines = ["  ".join(f"{name} {version}" for name, version in versions().items())]
    lines += [f"library: {library.name}  SHA-256 {library.sha256}", NOTES, ""]
    return "\n".join([*lines, *columns(rows, 2), *_against_dense(found)])


def _against_dense(found: Sequence[Measured]) -> list[str]:
    """Return what a kept product of a sparse instruction takes beside one of the dense one, on the same operands."""
    dense = {_key(of): of for of in found if not of.instruction.sparse}
    lines = []
    for of in found:
        if of.instruction.sparse and (twin := dense.get(_key(of))):
            ratio = of.total / twin.total
            lines.append(
                f"{of.instruction.a.name}, {of.distribution}: a kept product takes {100 * (ratio - 1):+.1f} % of the "
                f"dense instruction's, and a logical one {100 * (1 - ratio / 2):.1f} % less"
            )
    return ["", *lines] if lines else []


def _key(of: Measured) -> tuple[str, ...]:
    i = of.instruction
    return i.a.name, i.b.name, i.d.name, of.distribution


def as_dict(found: Sequence[Measured], library: Library) -> dict[str, Any]:
    """Return the same as plain values."""
    return {
        "versions": versions(),
        "library": {"file": library.name, "sha256": library.sha256},
        "unit": "fJ of a kept product",
        "notes": NOTES,
        "measured": [
            {
                "instruction": str(of.instruction),
                "distribution": of.distribution,
                "cycles": of.cycles,
                "kept_products_per_cycle": of.products,
                "total": of.total,
                "stages": of.stages,
                "toggles_per_cycle": of.toggles,
            }
            for of in found
        ],
    }


def write_csv(found: Sequence[Measured], path: Path) -> None:
    """Write a row for each stage of each measurement: a component, an action with its arguments, and its energy.

    An action is a kept product of one instruction on one distribution: what estimators such as Accelergy look up.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["component", "action", "operands", "energy_pj"])
    for of in found:
        for stage, taken in of.stages.items():
            writer.writerow([stage, str(of.instruction), of.distribution, f"{taken / 1000:.6g}"])
    write_whole(path, text.getvalue().encode())
