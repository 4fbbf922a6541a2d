"""``sptc run``: replay register files and print one line per instruction."""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..api.backends import BACKENDS, MODELS
from ..api.operands import METADATA_POLICIES
from ..errors import Error, FileError
from ..infra.files import require_writable
from ..isa.evidence import weakest
from ..isa.instructions import Instruction
from ..isa.timing import timing
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from ..verify.dot_products import shipped_dot_products
from ..verify.register_file import shipped
from ..verify.replay import Outcome, as_number, replay
from ..verify.timing import Cycles, modelled
from .options import add, integer
from .reports import Check, check_reports, report

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "run",
        help="replay register files and compare with the recorded results",
        description="Replay register files on the hardware and on the golden model. Compare the results with each "
        "other and with the D in the files. Without FILE.npz, replay the shipped recordings of an NVIDIA H200. "
        "Unless the back end is a GPU or --arch is given, also replay dot products of seven GPUs that others recorded. "
        "Cycles are interval/latency of one instruction. For wgmma they are given for A in registers, then "
        "for A in shared memory. With back ends warp, warpgroup and tcgen05, --json also has simulated_cycles: the "
        "cycles of all tiles in the simulated hardware, from the first instruction accepted to the last result.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.npz", help="register files")
    add(parser, "backend", choices=BACKENDS, default="rtl", note=" (default %(default)s)")
    add(parser, "arch", note=" (default: that of each file)")
    parser.add_argument("--metadata", choices=METADATA_POLICIES, help="policy for undefined metadata nibbles")
    parser.add_argument("--limit", type=integer(1), metavar="N", help="replay at most N random tiles of each file")
    add(parser, "seed", default=0, note=" of --limit (default %(default)s)")
    parser.add_argument(
        "--waves", type=Path, metavar="FILE.vcd", help="simulate one tile of one register file in pysim and write waves"
    )
    add(parser, "json", "junit", "github")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    check_reports(options)
    limit = 1 if options.waves else options.limit
    files = _with_waves(options) if options.waves else list(_replayed(options, options.backend, limit))
    outcomes = [outcome for file in files for outcome in file]
    total = {"files": len(files), **_total(outcomes)}
    print(_as_json(outcomes, total) if options.json else _as_text(outcomes, total, limit))
    report(options, _checks(outcomes, limit))
    return int(any(outcome.mismatches for outcome in outcomes))


def _with_waves(options: argparse.Namespace) -> list[list[Outcome]]:
    """Replay one tile in Amaranth's simulator and write its waves."""
    from ..sim.engine.engine import engine_for

    if len(options.files) != 1:
        raise FileError(f"--waves takes exactly one register file, not {len(options.files)}")
    # Report errors in the file first: Amaranth warns of a simulator that is created and never run.
    [checked] = _replayed(options, "golden", 1)
    if len(checked) != 1:
        raise FileError(f"--waves takes one register file, but {options.files[0]} holds {len(checked)} sets")
    require_writable(options.waves)
    with engine_for(checked[0].arch, "amaranth").waves(options.waves):
        return list(_replayed(options, "pysim", 1))


def _replayed(options: argparse.Namespace, backend: str, limit: int | None) -> Iterator[list[Outcome]]:
    """Yield the outcomes of each file: one for a register file, several for a file of dot products."""
    paths: list[Path] = options.files or [*shipped()]
    if not paths:
        raise FileError("the shipped recordings are not installed: install them with `pip install sptc-recordings`")
    if not options.files and backend in MODELS and not options.arch:
        paths = [*paths, *shipped_dot_products()]
    for path in tqdm(paths, unit="file", leave=False, disable=None):
        try:
            yield replay(
                path,
                backend=backend,
                arch=options.arch,
                metadata=options.metadata,
                limit=limit,
                seed=options.seed,
            )
        except FileError:
            raise
        except Error as error:
            raise FileError(f"{path}: {error}") from None


def _by_instruction(outcomes: list[Outcome]) -> list[dict[str, object]]:
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.name, outcome.arch].append(outcome)
    return [
        {
            "instruction": instruction,
            "arch": arch,
            "tiles": sum(outcome.tiles for outcome in group),
            "outputs": sum(outcome.outputs for outcome in group),
            "mismatches": sum(outcome.mismatches for outcome in group),
            "flags": sum(outcome.flags for outcome in group),
            "cycles": _by_place(group, arch, _hardware),
            "silicon_cycles": _by_place(group, arch, _silicon),
            **_simulated_cycles(group),
            "evidence": weakest(outcome.evidence for outcome in group).value,
        }
        for (instruction, arch), group in groups.items()
    ]


def _simulated_cycles(group: list[Outcome]) -> dict[str, int]:
    """Return the cycles of all tiles on a simulated top; an empty dict for other back ends."""
    counts = [outcome.cycles for outcome in group if outcome.cycles is not None]
    return {"simulated_cycles": sum(counts)} if counts else {}


def _by_place(group: list[Outcome], arch: str, cycles: Callable[[Instruction, str, str], Cycles | None]) -> object:
    """Return the cycles of an instruction; a dict by place of A if its files have both places."""
    places = {outcome.a_from or "registers": outcome.instruction for outcome in group}
    found = {a_from: cycles(instruction, arch, a_from) for a_from, instruction in places.items()}
    return dict(sorted(found.items())) if len(found) > 1 else next(iter(found.values()))


def _hardware(instruction: Instruction, arch: str, a_from: str) -> Cycles | None:
    return modelled(PRESETS[PRESET_OF_ARCHITECTURE[arch]], instruction, arch, a_from)


def _silicon(instruction: Instruction, arch: str, a_from: str) -> Cycles | None:
    """Return the cycles of an instruction on silicon, None if they were not measured."""
    found = timing(instruction, arch, a_from)
    return Cycles(found.interval, found.latency) if found else None


def _cycles(cycles: object) -> str:
    if isinstance(cycles, dict):
        return " ".join(map(_cycles, cycles.values()))
    return f"{cycles.interval:g}/{cycles.latency:g}" if isinstance(cycles, Cycles) else "-"


def _total(outcomes: list[Outcome]) -> dict[str, int]:
    return {
        "tiles": sum(outcome.tiles for outcome in outcomes),
        "outputs": sum(outcome.outputs for outcome in outcomes),
        "mismatches": sum(outcome.mismatches for outcome in outcomes),
        "flags": sum(outcome.flags for outcome in outcomes),
    }


def _first_mismatch(outcomes: list[Outcome]) -> dict[str, object] | None:
    for outcome in outcomes:
        if first := outcome.first:
            beside_d = first.cta is not None
            digits = 1 if first.is_flag else 8 if beside_d else outcome.instruction.d.bits // 4
            codes = {"computed": first.computed, "expected": first.expected}
            return {
                "file": str(outcome.path),
                "instruction": outcome.name,
                "case": first.case,
                **({"cta": first.cta, "lane": first.row} if beside_d else {"row": first.row}),
                "chunk" if first.is_flag else "column": first.column,
                "reference": first.reference,
                **{name: f"0x{code:0{digits}x}" for name, code in codes.items()},
                **{
                    f"{name}_number": repr(
                        code if beside_d or first.is_flag else as_number(code, outcome.instruction.d)
                    )
                    for name, code in codes.items()
                },
            }
    return None


def _checks(outcomes: list[Outcome], limit: int | None) -> Iterator[Check]:
    for row in _by_instruction(outcomes):
        name, arch = str(row["instruction"]), str(row["arch"])
        group = [outcome for outcome in outcomes if (outcome.name, outcome.arch) == (name, arch)]
        problem = ""
        if row["mismatches"]:
            problem = f"{row['mismatches']} of {row['outputs']} outputs and {row['flags']} flags differ\n"
            problem += _mismatch_as_text(_first_mismatch(group), limit)
        yield Check(arch, name, problem)


def _as_json(outcomes: list[Outcome], total: dict[str, int]) -> str:
    rows, first = _by_instruction(outcomes), _first_mismatch(outcomes)
    return json.dumps({"instructions": rows, "total": total, "first_mismatch": first}, indent=1, default=asdict)


def _as_text(outcomes: list[Outcome], total: dict[str, int], limit: int | None) -> str:
    rows = _by_instruction(outcomes)
    width = max(len(str(row["instruction"])) for row in rows)
    wide = max(7, *(len(_cycles(row[name])) for row in rows for name in ("cycles", "silicon_cycles")))
    lines = [
        f"{'instruction':{width}}  arch    {'tiles':>8} {'outputs':>9} {'mismatches':>10}  "
        f"{'cycles':>{wide}} {'silicon':>{wide}}  evidence"
    ]
    lines += [
        f"{row['instruction']:{width}}  {row['arch']:6}  {row['tiles']:>8} {row['outputs']:>9} "
        f"{row['mismatches']:>10}  {_cycles(row['cycles']):>{wide}} {_cycles(row['silicon_cycles']):>{wide}}  "
        f"{row['evidence']}"
        for row in rows
    ]
    flags = f", {total['flags']} flags of metadata" if total["flags"] else ""
    lines.append(
        f"{'total':{width}}  {'':6}  {total['tiles']:>8} {total['outputs']:>9} {total['mismatches']:>10}  "
        f"{len(rows)} instructions, {total['files']} files{flags}"
    )
    if first := _first_mismatch(outcomes):
        lines.append(_mismatch_as_text(first, limit))
    return "\n".join(lines)


def _mismatch_as_text(first: dict[str, object] | None, limit: int | None) -> str:
    if first is None:
        return ""
    place = f"column {first['column']}" if "column" in first else f"flag of chunk {first['chunk']}"
    line = f"row {first['row']}" if "row" in first else f"tensor memory of CTA {first['cta']}, lane {first['lane']}"
    return (
        f"first mismatch: {first['instruction']}, {first['file']}, "
        f"case {first['case']}{' of those drawn' if limit else ''}, {line}, {place}: "
        f"computed {first['computed']} ({first['computed_number']}), "
        f"{first['reference']} {first['expected']} ({first['expected_number']})"
    )
