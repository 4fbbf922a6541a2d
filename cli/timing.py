"""``sptc timing``: what instructions take on silicon, and which resource decides it."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InstructionError
from ..infra.files import require_writable
from ..isa.instructions import Instruction, every_instruction, parse, require_architecture
from ..isa.timing import Timing, timing
from .timing_plot import draw

__all__ = ["add_parser"]

_ARCH = "sm_90"
#: Columns of ``wgmma`` that are listed where no instruction is named.
_LISTED = (8, 32, 64, 128, 256)


@dataclass(frozen=True)
class _Row:
    instruction: Instruction
    a_from: str
    timing: Timing

    def as_dict(self) -> dict[str, object]:
        i, cycles = self.instruction, self.timing
        return {
            "instruction": str(i),
            "sparse": bool(i.sparse),
            "element": i.a.name,
            "n": i.n,
            "a_from": self.a_from,
            "interval": cycles.interval,
            "latency": cycles.latency,
            "bound_by": cycles.bound_by.value,
            "kept_mac_per_cycle": cycles.kept_mac_per_cycle,
        }


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "timing",
        help="say what instructions take on silicon, and which resource decides it",
        description="Cycles of mma and wgmma, sparse and dense, on the tensor cores of an H200, by a law that gives "
        "what was measured: the interval from one instruction to the next, of mma on one of the SM's four tensor "
        "cores, of wgmma on all four; the latency; kept multiplications a cycle of one tensor core; and what decides "
        "the interval. Emulated instructions are sequences of others and have no line.",
    )
    parser.add_argument("instruction", nargs="?", metavar="INSTRUCTION", help="which (default: a list of all kinds)")
    parser.add_argument("--json", action="store_true", help="print a JSON list, of every instruction, and nothing else")
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="draw the rate of wgmma over N, and what bounds it (extra: plot)"
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if options.svg:
        require_writable(options.svg)
    rows = [*_rows(options.instruction)]
    if options.svg:
        draw(options.svg)
    if options.json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
        return 0
    if options.instruction is None:
        rows = [row for row in rows if _is_listed(row.instruction)]
    print(_as_text(rows))
    return 0


def _rows(text: str | None) -> Iterator[_Row]:
    for i in every_instruction() if text is None else [parse(text)]:
        if text is not None:
            require_architecture(i, _ARCH)
        for a_from in ("registers", "shared") if i.family == "wgmma" else ("registers",):
            cycles = timing(i, _ARCH, a_from)
            if cycles:
                yield _Row(i, a_from, cycles)
            elif text is not None:
                raise InstructionError(
                    f"{i} is emulated on {_ARCH} by a sequence that the assembler weaves into what is around it, and "
                    f"has no cycles of its own"
                )


def _is_listed(i: Instruction) -> bool:
    plain = not i.satfinite and i.a == i.b and i.d.name in ("f32", "s32") and i.a.name not in ("e5m2", "u8")
    return plain and i.sparse != "sp::ordered_metadata" and (i.family == "mma" or i.n in _LISTED)


def _as_text(rows: list[_Row]) -> str:
    width = max(len(str(row.instruction)) for row in rows)
    lines = [f"{'instruction':{width}}  {'A from':9} {'interval':>8} {'latency':>8} {'kept MAC':>8}  bound by"]
    lines += [
        f"{row.instruction!s:{width}}  {row.a_from:9} {row.timing.interval:8g} {row.timing.latency:8g} "
        f"{row.timing.kept_mac_per_cycle:8.1f}  {row.timing.bound_by.value}"
        for row in rows
    ]
    return "\n".join(lines)
