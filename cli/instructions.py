"""``sptc instructions``: what is covered, on which architecture, and what each entry rests on."""

import argparse
import json
from typing import Any

from ..isa.instructions import ARCHITECTURES, VARIANTS, Instruction, Variant, instructions_of
from ..isa.numerics import evidence

__all__ = ["add_parser", "markdown_table"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "instructions",
        help="list the instructions covered, by architecture, measured or modelled",
        description="List the instructions covered. Measured: the model reproduces every recorded output of a real "
        "GPU. Modelled: it follows published models of the dense instruction, unmeasured for the sparse one.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, every instruction spelled out")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if options.json:
        listed = [
            {"instruction": str(instruction), "evidence": {arch: _cell(instruction, arch) for arch in ARCHITECTURES}}
            for row in VARIANTS
            for instruction in instructions_of(row)
        ]
        print(json.dumps({"instructions": listed}, indent=1))
    else:
        print(markdown_table())
    return 0


def _cell(instruction: Instruction, arch: str) -> str:
    return evidence(instruction, arch).value if arch in instruction.architectures else ""


def _types(row: Variant) -> str:
    a, b = (list(dict.fromkeys(pair[side] for pair in row.pairs)) for side in (0, 1))
    pairs = "/".join(a) if len(row.pairs) == len(a) else f"{'/'.join(a)} x {'/'.join(b)}"
    return f"{pairs} to {'/'.join(d for d, _ in row.accumulators)}"


def _shapes(row: Variant) -> str:
    if row.family == "wgmma":
        return f"m64nNk{row.shapes[0].split('k')[1]}, N {row.shapes[0][4:].split('k')[0]} to 256"
    return ", ".join(row.shapes)


def _name(row: Variant) -> str:
    if row.family == "wgmma":
        return "`wgmma.mma_async.sp`"
    name = ", ".join(f"`mma.{variant}`" if variant else "`mma`" for variant in row.sparse)
    return f"{name} `.kind::{row.kind}`" if row.kind else name


def markdown_table() -> str:
    """Return the table of the README: one row for each row of the syntax, one column for each architecture."""
    lines = [
        f"| instruction | shapes | types | A is | {' | '.join(ARCHITECTURES)} |",
        f"|{'---|' * (4 + len(ARCHITECTURES))}",
    ]
    for row in VARIANTS:
        example = next(iter(instructions_of(row)))
        sparsity = example.granularity.name if example.granularity else "dense"
        scales = "".join(f", {size}X {name}" for size, name in row.scales)
        cells = " | ".join(_cell(example, arch) or "-" for arch in ARCHITECTURES)
        lines.append(f"| {_name(row)} | {_shapes(row)} | {_types(row)}{scales} | {sparsity} | {cells} |")
    return "\n".join(lines)
