"""Reports of energy measurements as a table, as JSON and as CSV."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...infra.escapes import one_line
from ...infra.files import write_whole
from ..price import versions
from ..report import columns
from .electrical import CellLibrary
from .measure import Measured
from .stages import STAGES

__all__ = ["as_dict", "notes", "table", "write_csv"]

#: Notes in every energy report. They state what the energies include, and how glitches are counted.
_NOTES = (
    "fJ per kept product: half of C V^2 of the pins on a net that toggles, and the internal energy of cells by the "
    "library's tables; clock and registers are included, leakage and wires are not; {}"
)
_NOTES_OF_GATES = (
    "switched gate equivalents (four transistors each) per kept product: each toggle of a gate's output counts the "
    "area of the gate; a register counts one at each clock edge, and three more when its content changes; {}"
)
_SETTLED = "without glitches (gates without delay)"
_IN_TIME = "with glitches of gates that have one unit of delay and pass the shortest pulse, more than in real hardware"


def notes(results: Sequence[Measured], cells: CellLibrary) -> str:
    """Return the notes that explain the figures of an energy report."""
    return (_NOTES if cells.library.text else _NOTES_OF_GATES).format(
        _SETTLED if any(result.glitches is None for result in results) else _IN_TIME
    )


def table(results: Sequence[Measured], cells: CellLibrary) -> str:
    """Return energy measurements as the text lines of a report."""
    stages = [stage for stage in STAGES if any(stage in result.stages for result in results)]
    rows = [["instruction", "operands", "total", *stages]]
    for result in results:
        values = [result.total, *(result.stages.get(stage, 0.0) for stage in stages)]
        numbers = (f"{value:.{cells.digits}f}" for value in values)
        rows.append([str(result.instruction), result.operands, *numbers])
    lines = ["  ".join(f"{name} {version}" for name, version in versions().items())]
    library = cells.library
    lines += [
        f"library: {one_line(library.name)}  SHA-256 {library.sha256}" if library.text else library.name,
        notes(results, cells),
        "",
    ]
    return "\n".join([*lines, *columns(rows, 2), *_of_glitches(results), *_against_dense(results), *_what_if(results)])


def _of_glitches(results: Sequence[Measured]) -> list[str]:
    """Return report lines with the additional energy that glitches cause."""
    lines = [
        f"{result.instruction}, {result.operands}: glitches add {100 * result.glitches / settled:.0f} %"
        for result in results
        if result.glitches is not None and (settled := result.total - result.glitches)
    ]
    return ["", *lines] if lines else []


def _against_dense(results: Sequence[Measured]) -> list[str]:
    """Return report lines that compare the energies per kept product of sparse and dense instructions."""
    dense = {_key(result): result for result in results if not result.instruction.sparse}
    lines = []
    for result in results:
        if result.instruction.sparse and (twin := dense.get(_key(result))) and twin.total:
            ratio, name = result.total / twin.total, result.instruction.a.name
            lines.append(
                f"{name}, {result.operands}: energy per kept product {_changed(ratio)} than for the dense instruction, "
                f"per kept or skipped product {_changed(ratio / 2)}"
            )
    return ["", *lines] if lines else []


def _what_if(results: Sequence[Measured]) -> list[str]:
    """Return report lines with the energy that possible changes of the design would save."""
    lines = []
    for result in results:
        settled = result.total - (result.glitches or 0.0)
        if result.what_if and settled:
            lines += ["", f"{result.instruction}, {result.operands}: energy per kept product if"]
            for what, taken in result.what_if.items():
                lines.append(f"  {what}: {'impossible' if taken is None else _changed(taken / settled)}")
    return lines


def _changed(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):.1f} % {'less' if ratio < 1 else 'more'}"


def _key(result: Measured) -> tuple[str, ...]:
    i = result.instruction
    return i.family, i.a.name, i.b.name, i.d.name, result.operands


def as_dict(results: Sequence[Measured], cells: CellLibrary) -> dict[str, Any]:
    """Return energy measurements as plain values for JSON."""
    library = cells.library
    return {
        "versions": versions(),
        "library": {"file": library.name, "sha256": library.sha256} if library.text else None,
        "unit": f"{cells.unit} of a kept product",
        "notes": notes(results, cells),
        "measured": [
            {
                "instruction": str(result.instruction),
                "operands": result.operands,
                "cycles": result.cycles,
                "kept_products_per_cycle": result.products,
                "total": result.total,
                "stages": result.stages,
                "toggles_per_cycle": result.toggles,
                "glitches": result.glitches,
                "what_if": result.what_if,
            }
            for result in results
        ],
    }


def write_csv(results: Sequence[Measured], cells: CellLibrary, path: Path) -> None:
    """Write one CSV row per stage of each measurement: component, action with arguments, and energy of the action.

    An action is a kept product of one instruction on one distribution. Estimators such as Accelergy look up the energy.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    amount, scale = ("energy_pj", 1e-3) if cells.library.text else ("gate_equivalents", 1.0)
    writer.writerow(["component", "action", "operands", amount])
    for result in results:
        for stage, taken in result.stages.items():
            writer.writerow([stage, str(result.instruction), result.operands, f"{scale * taken:.6g}"])
    write_whole(path, text.getvalue().encode())
