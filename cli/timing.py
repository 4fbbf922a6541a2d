"""``sptc timing``: cycles of instructions on silicon, and the resource that limits them."""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import InstructionError, OperandError
from ..infra.files import require_writable
from ..isa.instructions import Instruction, every_instruction, parse, require_architecture
from ..isa.kernel_timing import Tile, dense_twin, product_timing
from ..isa.tcgen05 import Opcode, every_opcode, instructions_of, parse_shaped
from ..isa.timing import A_PLACES, Timing, tcgen05_timing, timing
from .arguments import integer
from .timing_plot import draw

__all__ = ["add_parser"]

_ARCH = "sm_90"
#: Values of N of ``wgmma`` in the list of all kinds.
_LISTED = (8, 32, 64, 128, 256)
#: Values of N of ``tcgen05`` in that list, and its kinds. Other kinds differ only in products per cycle.
_LISTED_TCGEN05 = (64, 128, 256)
_LISTED_KINDS = (("f16", "bf16"), ("i8", "s8"), ("mxf4", "e2m1"))


@dataclass(frozen=True)
class _Row:
    text: str
    instruction: Instruction
    a_from: str
    timing: Timing

    def as_dict(self) -> dict[str, object]:
        i, cycles = self.instruction, self.timing
        return {
            "instruction": self.text,
            "sparse": bool(i.sparse),
            "element": i.a.name,
            "n": i.n,
            "a_from": self.a_from,
            "interval": cycles.interval,
            "latency": cycles.latency,
            "bound_by": cycles.bound_by.value,
            "kept_mac_per_cycle": cycles.kept_mac_per_cycle,
            "source": cycles.source.value,
        }


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "timing",
        help="print the cycles of instructions on silicon, and the resource that limits them",
        description="Print the cycles of sparse and dense mma and wgmma on the tensor cores of an H200, by a formula "
        "that reproduces the measurements. The columns are: the interval from one instruction to the next in cycles, "
        "for mma on one of the four tensor cores of an SM, for wgmma on all four; the latency in cycles; the kept MACs "
        "per cycle of one tensor core; the resource that limits the interval. For dense tcgen05 the formula reproduces "
        "measurements that others made on a B200. For sparse tcgen05 it is a model.",
    )
    parser.add_argument(
        "instruction",
        nargs="?",
        metavar="INSTRUCTION",
        help="instruction in PTX syntax; shape and types may follow tcgen05 in brackets (default: list all kinds)",
    )
    parser.add_argument(
        "--arch",
        choices=("sm_90", "sm_100"),
        help="architecture whose instructions are listed (default sm_90); --arch cannot be combined with INSTRUCTION",
    )
    parser.add_argument(
        "--product",
        nargs=3,
        type=integer(1),
        metavar=("M", "N", "K"),
        help="estimate the cycles of a kernel that computes this product with wgmma INSTRUCTION on all SMs of an H200, "
        "sparse and dense",
    )
    parser.add_argument(
        "--tile", type=_tile, metavar="ROWSxCOLUMNS", help="with --product: output tile of a CTA (default 128x256)"
    )
    parser.add_argument(
        "--result-bytes",
        type=integer(1),
        metavar="N",
        help="with --product: bytes per element of the result in memory (default: those of the accumulator)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of all instructions and nothing else")
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="draw the rate of wgmma over N, and its limits (extra: area)"
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if (options.tile or options.result_bytes) and not options.product:
        raise InstructionError("--tile and --result-bytes are of a --product")
    if options.arch and options.instruction:
        raise InstructionError("--arch cannot be combined with INSTRUCTION")
    if options.product:
        return _product(options)
    if options.svg and options.arch not in (None, _ARCH):
        raise InstructionError(f"--svg is of wgmma on {_ARCH}")
    if options.svg:
        require_writable(options.svg)
    rows = [*_rows(options.instruction, options.arch)]
    if options.svg:
        draw(options.svg)
    if options.json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
        return 0
    if options.instruction is None:
        rows = [row for row in rows if _is_listed(row)]
    print(_as_text(rows))
    return 0


def _tile(text: str) -> Tile:
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be ROWSxCOLUMNS such as 128x256, not {text!r}")
    try:
        return Tile(int(rows), int(columns))
    except OperandError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _product(options: argparse.Namespace) -> int:
    """Print the cycles of a product by an instruction; if it is sparse, also by its dense twin, and the speed-up."""
    if options.instruction is None or options.svg:
        raise InstructionError("--product needs an INSTRUCTION, and has no picture")
    instruction = parse(options.instruction)
    require_architecture(instruction, _ARCH)
    of = [instruction, *([dense_twin(instruction)] if instruction.sparse else [])]
    found = [product_timing(i, tuple(options.product), options.tile, options.result_bytes) for i in of]
    if options.json:
        rows = [{"instruction": str(i)} | asdict(cycles) for i, cycles in zip(of, found, strict=True)]
        print(json.dumps(rows, indent=1))
        return 0
    width = max(len(str(i)) for i in of)
    print(f"{'instruction':{width}} {'cycles':>10} {'waves':>6} {'multiplying':>12} {'storing':>10}  bound by")
    for i, cycles in zip(of, found, strict=True):
        print(
            f"{i!s:{width}} {cycles.cycles:10} {cycles.waves:6} {cycles.multiplying:12} {cycles.storing:10}  "
            f"{cycles.bound_by}"
        )
    if len(of) > 1:
        gain = found[1].cycles / found[0].cycles
        print(f"the sparse product takes {gain:.2f} times less; estimated, by the law and three fitted figures")
    return 0


def _rows(text: str | None, arch: str | None) -> Iterator[_Row]:
    of_tcgen05 = arch == "sm_100" if text is None else text.strip().startswith("tcgen05.")
    if of_tcgen05:
        yield from _rows_of_tcgen05([parse_shaped(text)] if text else _every_tcgen05())
        return
    for i in every_instruction() if text is None else [parse(text)]:
        if text is not None:
            require_architecture(i, _ARCH)
        for a_from in ("registers", "shared") if i.family == "wgmma" else ("registers",):
            if cycles := timing(i, _ARCH, a_from):
                yield _Row(str(i), i, a_from, cycles)


def _every_tcgen05() -> Iterator[tuple[Opcode, Instruction]]:
    for opcode in every_opcode():
        if not opcode.weight_stationary:
            yield from ((opcode, i) for i in instructions_of(opcode))


def _rows_of_tcgen05(asked: Iterable[tuple[Opcode, Instruction]]) -> Iterator[_Row]:
    for opcode, i in asked:
        for a_from in A_PLACES:
            yield _Row(f"{opcode} ({i.shape_and_types})", i, a_from, tcgen05_timing(opcode, i, a_from))


def _is_listed(row: _Row) -> bool:
    i = row.instruction
    plain = not i.satfinite and i.a == i.b and i.d.name in ("f32", "s32") and i.a.name not in ("e5m2", "u8")
    if i.family == "tcgen05":
        return plain and (i.kind, i.a.name) in _LISTED_KINDS and i.n in _LISTED_TCGEN05
    return plain and i.sparse != "sp::ordered_metadata" and (i.family == "mma" or i.n in _LISTED)


def _as_text(rows: list[_Row]) -> str:
    width = max(len(row.text) for row in rows)
    lines = [
        f"{'instruction':{width}}  {'A from':9} {'interval':>8} {'latency':>8} {'kept MAC':>8}  bound by       known"
    ]
    lines += [
        f"{row.text:{width}}  {row.a_from:9} {row.timing.interval:8g} {row.timing.latency:8g} "
        f"{row.timing.kept_mac_per_cycle:8.1f}  {row.timing.bound_by.value:13}  {row.timing.source.value}"
        for row in rows
    ]
    return "\n".join(lines)
