"""Energy per product of a stored element of A, simulated and measured on an H200, by format, distribution and sparsity.

``python benchmarks/energy.py --liberty osu018_stdcells.lib`` simulates the mapped unit of the preset ``hopper`` with
the instructions and distributions of ``recordings/energy``. Debian's package qflow-tech-osu018 contains the cell
library. Absolute energies differ from the recordings, since the cells are old and the recordings measure a whole GPU.
The script therefore compares the order of the cases by energy, and the ratios of f16 energies. Before the ratios are
formed, a fitted constant is subtracted from the simulated energies, since the recordings contain little of the energy
of registers.
"""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from measure import Row, options, show
from sptc.errors import Error
from sptc.isa.instructions import parse
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.energy.measure import MappedUnit
from sptc.synth.energy.operands import drawn
from sptc.synth.liberty import Library
from tqdm import tqdm

RECORDING = Path(__file__).parents[1] / "recordings" / "energy" / "h200-2026-11-22.csv"
#: Instructions by their names in the recorded measurements.
INSTRUCTIONS = {
    "mma.sp.f16.k32": "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.f16.k16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp.bf16.k32": "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    "mma.bf16.k16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sp.tf32.k16": "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "mma.tf32.k8": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sp.s8.k64": "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
    "mma.s8.k32": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
}
F16 = ("mma.sp.f16.k32", "mma.f16.k16")
COMPARED = ("zeros", "half", "positive", "normal")
#: Configuration of an array with the throughput of an H200 tensor core. With `--small`, the array supports only s8.
CONFIG = replace(PRESETS["hopper"], rows=8, columns=4)
SMALL = CoreConfig(name="small", formats=("s8",), step_bytes=16, rows=8, columns=4)
CYCLES, SMALL_CYCLES = 4_000, 200
Case = tuple[str, str]


def silicon(names: set[str]) -> dict[Case, float]:
    """Return the energy per product in pJ that was measured on an H200, by instruction and operand distribution."""
    lines = [line for line in RECORDING.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {
        (row["instruction"], row["a"]): float(row["pj_per_kept_mac"])
        for row in csv.DictReader(lines)
        if row["instruction"] in names and row["a"] == row["b"] and row["metadata"] == "random"
    }


def ranks(values: list[float]) -> np.ndarray:
    """Return the rank of each value by size. Equal values get the mean of their ranks."""
    array = np.array(values)
    return (array[:, None] > array).sum(axis=1) + ((array[:, None] == array).sum(axis=1) - 1) / 2


def rows_of(cases: dict[Case, float], ours: dict[Case, float]) -> list[Row]:
    """Return table rows: simulated and measured energies, their rank correlation, and ratios of f16 energies."""
    rows = []
    for (name, distribution), measured in cases.items():
        rows.append(Row(f"{name} {distribution}, H200", "pJ", measured))
        rows.append(Row(f"{name} {distribution}, mapped unit", "pJ", ours[name, distribution]))
    order = float(np.corrcoef(ranks(list(cases.values())), ranks([ours[case] for case in cases]))[0, 1])
    rows.append(Row(f"rank correlation, mapped unit and H200, {len(cases)} cases", "", order, "at least 0.9"))
    for name in F16:
        if (name, "normal") in ours:
            rows += _ratios(name, cases, ours)
    return rows


def _ratios(name: str, cases: dict[Case, float], ours: dict[Case, float]) -> list[Row]:
    """Return table rows of energies relative to normal operands. Simulated energies are reduced by a fitted offset."""
    theirs = np.array([cases[name, of] for of in COMPARED])
    model = np.array([ours[name, of] for of in COMPARED])
    _, constant = np.polyfit(theirs, model, 1)
    fitted = model - constant
    rows = [Row(f"{name}, constant subtracted from the unit's energies", "pJ", float(constant))]
    for place, of in enumerate(COMPARED[:-1]):
        ratio = f"{name}, energy ratio of {of} to normally distributed operands"
        rows.append(Row(f"{ratio}, H200", "", float(theirs[place] / theirs[-1])))
        rows.append(Row(f"{ratio}, unit", "", float(fitted[place] / fitted[-1]), "within 25 %"))
    return rows


def main() -> None:
    """Compare the simulated energy of a dot-product unit of library cells with measured energies of an H200."""
    parser = options(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--liberty", type=Path, nargs="+", required=True, metavar="FILE", help="standard-cell library with power tables"
    )
    chosen = parser.parse_args()
    config, cycles = (SMALL, SMALL_CYCLES) if chosen.small else (CONFIG, CYCLES)
    names = {name for name in INSTRUCTIONS if not chosen.small or ".s8." in name}
    cases = silicon(names)
    try:
        unit = MappedUnit(config, CellLibrary.of(Library.read(*chosen.liberty)), by_module=True)
        ours = {}
        for name, distribution in tqdm(cases, disable=None):
            instruction, rng = parse(INSTRUCTIONS[name]), np.random.default_rng(0)
            operands = drawn(instruction, distribution, unit.tiles(instruction, cycles), rng)
            ours[name, distribution] = unit.measure(instruction, "sm_90", operands, distribution).total / 1000
    except Error as error:
        sys.exit(str(error))
    show(rows_of(cases, ours), chosen.json)


if __name__ == "__main__":
    main()
