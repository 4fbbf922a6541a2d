"""Reports of energy measurements as a table, as JSON and as CSV."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...infra.files import write_whole
from ..price import versions
from ..report import columns
from .measure import Measured
from .netlist import CellLibrary
from .stages import STAGES

__all__ = ["as_dict", "notes", "table", "write_csv"]

#: Notes of every report: on the figures, and on glitches.
_NOTES = (
    "fJ of a kept product: half of C V^2 of pins that a toggle charges, and what cells take inside by the library's "
    "tables; clock and registers included, leakage not; without wires, {}"
)
_NOTES_OF_GATES = (
    "gate equivalents (four transistors) that switch, for a kept product: those of every gate whose output toggles; of "
    "registers one at each edge of the clock, and three for what they hold; {}"
)
_SETTLED = "without glitches (gates without delay)"
_IN_TIME = (
    "with glitches as if every gate took a unit of time and let the shortest pulse pass, which is more than there is"
)


def notes(found: Sequence[Measured], cells: CellLibrary) -> str:
    """Return the notes of a report on its figures."""
    return (_NOTES if cells.library.text else _NOTES_OF_GATES).format(
        _SETTLED if any(of.glitches is None for of in found) else _IN_TIME
    )


def table(found: Sequence[Measured], cells: CellLibrary) -> str:
    """Return the measurements as text."""
    stages = [stage for stage in STAGES if any(stage in of.stages for of in found)]
    rows = [["instruction", "operands", "total", *stages]]
    for of in found:
        values = [of.total, *(of.stages.get(stage, 0.0) for stage in stages)]
        rows.append([str(of.instruction), of.operands, *(f"{value:.{cells.electrical.digits}f}" for value in values)])
    lines = ["  ".join(f"{name} {version}" for name, version in versions().items())]
    library = cells.library
    lines += [
        f"library: {library.name}  SHA-256 {library.sha256}" if library.text else library.name,
        notes(found, cells),
        "",
    ]
    return "\n".join([*lines, *columns(rows, 2), *_of_glitches(found), *_against_dense(found), *_what_if(found)])


def _of_glitches(found: Sequence[Measured]) -> list[str]:
    """Return lines with the additional energy of glitches."""
    lines = [
        f"{of.instruction}, {of.operands}: glitches add {100 * of.glitches / settled:.0f} %"
        for of in found
        if of.glitches is not None and (settled := of.total - of.glitches)
    ]
    return ["", *lines] if lines else []


def _against_dense(found: Sequence[Measured]) -> list[str]:
    """Return lines that compare the energy per kept product of sparse and dense instructions on equal operands."""
    dense = {_key(of): of for of in found if not of.instruction.sparse}
    lines = []
    for of in found:
        if of.instruction.sparse and (twin := dense.get(_key(of))) and twin.total:
            ratio = of.total / twin.total
            lines.append(
                f"{of.instruction.a.name}, {of.operands}: a kept product takes {_changed(ratio)} than the dense "
                f"instruction's, and a logical one {_changed(ratio / 2)}"
            )
    return ["", *lines] if lines else []


def _what_if(found: Sequence[Measured]) -> list[str]:
    """Return lines with the savings of changes of the design."""
    lines = []
    for of in found:
        settled = of.total - (of.glitches or 0.0)
        if of.what_if and settled:
            lines += ["", f"{of.instruction}, {of.operands}, if"]
            for what, taken in of.what_if.items():
                lines.append(f"  {what}: {'cannot be' if taken is None else _changed(taken / settled)}")
    return lines


def _changed(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):.1f} % {'less' if ratio < 1 else 'more'}"


def _key(of: Measured) -> tuple[str, ...]:
    i = of.instruction
    return i.family, i.a.name, i.b.name, i.d.name, of.operands


def as_dict(found: Sequence[Measured], cells: CellLibrary) -> dict[str, Any]:
    """Return the measurements as plain values."""
    library = cells.library
    return {
        "versions": versions(),
        "library": {"file": library.name, "sha256": library.sha256} if library.text else None,
        "unit": f"{cells.electrical.unit} of a kept product",
        "notes": notes(found, cells),
        "measured": [
            {
                "instruction": str(of.instruction),
                "operands": of.operands,
                "cycles": of.cycles,
                "kept_products_per_cycle": of.products,
                "total": of.total,
                "stages": of.stages,
                "toggles_per_cycle": of.toggles,
                "glitches": of.glitches,
                "what_if": of.what_if,
            }
            for of in found
        ],
    }


def write_csv(found: Sequence[Measured], cells: CellLibrary, path: Path) -> None:
    """Write one CSV row per stage of each measurement: component, action with arguments, and energy.

    An action is a kept product of one instruction on one distribution. Energy estimators such as Accelergy look it up.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    amount, scale = ("energy_pj", 1e-3) if cells.library.text else ("gate_equivalents", 1.0)
    writer.writerow(["component", "action", "operands", amount])
    for of in found:
        for stage, taken in of.stages.items():
            writer.writerow([stage, str(of.instruction), of.operands, f"{scale * taken:.6g}"])
    write_whole(path, text.getvalue().encode())
