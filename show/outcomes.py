"""Results of replayed register files (recorded operands and results), as a table and as JSON values."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ..infra.counts import counted
from ..isa.architectures import same_numerics
from ..isa.evidence import weakest
from ..isa.instructions import Instruction
from ..isa.timing import timing
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from ..verify.replay import Outcome, as_number
from ..verify.timing import Cycles, modelled

__all__ = ["by_instruction", "first_mismatch", "mismatch_text", "outcomes_as_dict", "outcomes_table"]


def by_instruction(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """Return, for each instruction and architecture, the numbers of tiles and outputs, mismatches, cycles, evidence."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.name, outcome.arch].append(outcome)
    rows: list[dict[str, object]] = []
    for (instruction, arch), group in groups.items():
        same = same_numerics(arch)
        simulated = [outcome.cycles for outcome in group if outcome.cycles is not None]
        rows.append(
            {
                "instruction": instruction,
                "arch": arch,
                **_total(group),
                "cycles": _by_place(group, same, partial(modelled, PRESETS[PRESET_OF_ARCHITECTURE[same]])),
                "silicon_cycles": _by_place(group, same, _silicon),
                **({"simulated_cycles": sum(simulated)} if simulated else {}),
                "evidence": weakest(outcome.evidence for outcome in group).value,
            }
        )
    return rows


def _by_place(group: list[Outcome], arch: str, cycles: Callable[[Instruction, str, str], Cycles | None]) -> object:
    """Return an instruction's cycles; if files have A both in registers and in shared memory, one entry for each."""
    places = {outcome.a_from or "registers": outcome.instruction for outcome in group}
    counts = {a_from: cycles(instruction, arch, a_from) for a_from, instruction in places.items()}
    return dict(sorted(counts.items())) if len(counts) > 1 else next(iter(counts.values()))


def _silicon(instruction: Instruction, arch: str, a_from: str) -> Cycles | None:
    """Return the cycles of an instruction on a real GPU; None if no cycles are known."""
    measured = timing(instruction, arch, a_from)
    return Cycles(measured.interval, measured.latency) if measured else None


def _cycles(cycles: object) -> str:
    if isinstance(cycles, dict):
        return " ".join(map(_cycles, cycles.values()))
    return f"{cycles.interval:g}/{cycles.latency:g}" if isinstance(cycles, Cycles) else "-"


def _total(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return {
        "tiles": sum(outcome.tiles for outcome in outcomes),
        "outputs": sum(outcome.outputs for outcome in outcomes),
        "mismatches": sum(outcome.mismatches for outcome in outcomes),
        "flags": sum(outcome.flags for outcome in outcomes),
    }


def first_mismatch(outcomes: Iterable[Outcome]) -> dict[str, object] | None:
    """Return the first mismatch of replayed files as JSON values; None if there is no mismatch."""
    for outcome in outcomes:
        if first := outcome.first:
            beside_d = first.cta is not None
            digits = 1 if first.is_flag else 8 if beside_d else outcome.instruction.d.bits // 4
            codes = {"computed": first.computed, "expected": first.expected}
            number = int if beside_d or first.is_flag else partial(as_number, fmt=outcome.instruction.d)
            return {
                "file": str(outcome.path),
                "instruction": outcome.name,
                "case": first.case,
                **({"cta": first.cta, "lane": first.row} if beside_d else {"row": first.row}),
                "chunk" if first.is_flag else "column": first.column,
                "reference": first.reference,
                **{name: f"0x{code:0{digits}x}" for name, code in codes.items()},
                **{f"{name}_number": repr(number(code)) for name, code in codes.items()},
            }
    return None


def outcomes_as_dict(outcomes: Sequence[Outcome], files: int) -> dict[str, object]:
    """Return results of replayed files by instruction, totals and first wrong output; cycles are `Cycles` objects."""
    total = {"files": files, **_total(outcomes)}
    return {"instructions": by_instruction(outcomes), "total": total, "first_mismatch": first_mismatch(outcomes)}


def outcomes_table(outcomes: Sequence[Outcome], files: int) -> str:
    """Return the results of replayed files as a table by instruction, with totals."""
    rows, total = by_instruction(outcomes), _total(outcomes)
    width = max(len(str(row["instruction"])) for row in rows)
    wide = max(7, *(len(_cycles(row[name])) for row in rows for name in ("cycles", "silicon_cycles")))
    lines = [
        f"{'instruction':{width}}  arch     {'tiles':>8} {'outputs':>9} {'mismatches':>10}  "
        f"{'cycles':>{wide}} {'silicon':>{wide}}  evidence"
    ]
    lines += [
        f"{row['instruction']:{width}}  {row['arch']:7}  {row['tiles']:>8} {row['outputs']:>9} "
        f"{row['mismatches']:>10}  {_cycles(row['cycles']):>{wide}} {_cycles(row['silicon_cycles']):>{wide}}  "
        f"{row['evidence']}"
        for row in rows
    ]
    flags = f", {total['flags']} metadata flags" if total["flags"] else ""
    lines.append(
        f"{'total':{width}}  {'':7}  {total['tiles']:>8} {total['outputs']:>9} {total['mismatches']:>10}  "
        f"{counted(len(rows), 'instruction')}, {counted(files, 'file')}{flags}"
    )
    return "\n".join(lines)


def mismatch_text(first: Mapping[str, object] | None, limit: int | None) -> str:
    """Return the first mismatch, a result of :func:`first_mismatch`, as one line of text; empty for None.

    `limit` is the number of random tiles of each file that were replayed; None if all tiles were replayed.
    """
    if first is None:
        return ""
    place = f"column {first['column']}" if "column" in first else f"flag of chunk {first['chunk']}"
    line = f"row {first['row']}" if "row" in first else f"tensor memory of CTA {first['cta']}, lane {first['lane']}"
    return (
        f"first mismatch: {first['instruction']}, {first['file']}, "
        f"case {first['case']}{' of the random tiles' if limit else ''}, {line}, {place}: "
        f"computed {first['computed']} ({first['computed_number']}), "
        f"{first['reference']} {first['expected']} ({first['expected_number']})"
    )
