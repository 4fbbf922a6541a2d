"""``sptc run``: replay register files and report, one line an instruction."""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..errors import Error, FileError
from ..isa.instructions import ARCHITECTURES
from ..operations import BACKENDS, METADATA_POLICIES
from ..sim.register_file import shipped
from ..sim.replay import Outcome, as_number, replay

__all__ = ["add_parser"]


def _at_least(least: int) -> Callable[[str], int]:
    def read(word: str) -> int:
        if not word.removeprefix("-").isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(f"must be an integer of {least} or more, not {word!r}")
        return int(word)

    return read


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "run",
        help="replay register files and compare with the recorded results",
        description="Replay register files on the golden model and compare with the D they record. Without a file, "
        "replay the recordings of an NVIDIA H200 that ship with the package.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.npz", help="register files")
    parser.add_argument("--backend", choices=BACKENDS, default=BACKENDS[0], help="what computes (default %(default)s)")
    parser.add_argument("--arch", choices=ARCHITECTURES, help="numerics to apply instead of what the files say")
    parser.add_argument("--metadata", choices=METADATA_POLICIES, help="policy for undefined metadata nibbles")
    parser.add_argument("--limit", type=_at_least(1), metavar="N", help="at most N tiles of each file")
    parser.add_argument(
        "--seed", type=_at_least(0), default=0, help="seed of the draw of --limit (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    outcomes = list(_outcomes(options))
    print(_as_json(outcomes) if options.json else _as_text(outcomes, options.limit))
    return int(any(outcome.mismatches for outcome in outcomes))


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    paths = options.files or list(shipped())
    for path in tqdm(paths, unit="file", leave=False, disable=None):
        try:
            yield replay(
                path,
                backend=options.backend,
                arch=options.arch,
                metadata=options.metadata,
                limit=options.limit,
                seed=options.seed,
            )
        except FileError:
            raise
        except Error as error:
            raise FileError(f"{path}: {error}") from None


def _by_instruction(outcomes: list[Outcome]) -> list[dict[str, object]]:
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[str(outcome.instruction), outcome.arch].append(outcome)
    return [
        {
            "instruction": instruction,
            "arch": arch,
            "tiles": sum(outcome.tiles for outcome in group),
            "outputs": sum(outcome.outputs for outcome in group),
            "mismatches": sum(outcome.mismatches for outcome in group),
            "evidence": group[0].evidence.value,
        }
        for (instruction, arch), group in groups.items()
    ]


def _total(outcomes: list[Outcome]) -> dict[str, int]:
    return {
        "files": len(outcomes),
        "tiles": sum(outcome.tiles for outcome in outcomes),
        "outputs": sum(outcome.outputs for outcome in outcomes),
        "mismatches": sum(outcome.mismatches for outcome in outcomes),
    }


def _first_mismatch(outcomes: list[Outcome]) -> dict[str, object] | None:
    for outcome in outcomes:
        if first := outcome.first:
            digits = outcome.instruction.d.bits // 4
            return {
                "file": str(outcome.path),
                "instruction": str(outcome.instruction),
                "case": first.case,
                "row": first.row,
                "column": first.column,
                "computed": f"0x{first.computed:0{digits}x}",
                "recorded": f"0x{first.recorded:0{digits}x}",
                "computed_number": repr(as_number(first.computed, outcome.instruction.d)),
                "recorded_number": repr(as_number(first.recorded, outcome.instruction.d)),
            }
    return None


def _as_json(outcomes: list[Outcome]) -> str:
    rows, total, first = _by_instruction(outcomes), _total(outcomes), _first_mismatch(outcomes)
    return json.dumps({"instructions": rows, "total": total, "first_mismatch": first}, indent=1)


def _as_text(outcomes: list[Outcome], limit: int | None) -> str:
    rows = _by_instruction(outcomes)
    width = max(len(str(row["instruction"])) for row in rows)
    lines = [f"{'instruction':{width}}  arch    {'tiles':>8} {'outputs':>9} {'mismatches':>10}  evidence"]
    lines += [
        f"{row['instruction']:{width}}  {row['arch']:6}  {row['tiles']:>8} {row['outputs']:>9} "
        f"{row['mismatches']:>10}  {row['evidence']}"
        for row in rows
    ]
    total = _total(outcomes)
    lines.append(
        f"{'total':{width}}  {'':6}  {total['tiles']:>8} {total['outputs']:>9} {total['mismatches']:>10}  "
        f"{len(rows)} instructions, {total['files']} files"
    )
    if first := _first_mismatch(outcomes):
        lines.append(
            f"first mismatch: {first['instruction']}, {first['file']}, "
            f"case {first['case']}{' of those drawn' if limit else ''}, row {first['row']}, column {first['column']}: "
            f"computed {first['computed']} ({first['computed_number']}), "
            f"recorded {first['recorded']} ({first['recorded_number']})"
        )
    return "\n".join(lines)
