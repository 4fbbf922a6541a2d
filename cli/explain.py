"""``sptc explain``: where every bit of an instruction lies, how it computes, and what a metadata nibble does."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..api.operands import checked_selector
from ..errors import InstructionError, OperandError
from ..isa.instructions import Instruction
from ..isa.placement import Memory, OperandPlacement, Placements, placements
from ..isa.tcgen05 import Opcode
from ..verify.search import subject_of_words
from .arguments import architecture, integer
from .explain_choice import Choice
from .explain_nibble import nibble_as_dict, nibble_text
from .explain_text import explanation, numerics_as_dict, title

__all__ = ["add_parser"]

_OPERANDS = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")
#: The architecture that was recorded most of.
_ARCH = "sm_90"
#: Names that are listed where several are meant.
_CANDIDATES = 20


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "explain",
        help="where every bit of an instruction lies, and what a metadata nibble does",
        description="Print which lane, register and bits hold each element of A, B, C, D and the metadata of an "
        "instruction, and how an architecture computes it; or, with --nibble, what one metadata nibble does.",
    )
    parser.add_argument(
        "instruction",
        nargs="*",
        default=[],
        metavar="INSTRUCTION",
        help="mma, wgmma or tcgen05 with its qualifiers, as PTX spells it, or some of its words, as in `m16n8k32 f16`; "
        "behind tcgen05, what the instruction descriptor adds may stand in brackets, as in "
        "'tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)'",
    )
    parser.add_argument("--selector", type=int, default=0, metavar="N", help="sparsity selector (default 0)")
    parser.add_argument(
        "--arch",
        type=architecture,
        metavar="ARCH",
        help=f"whose numerics to print (default: {_ARCH}, or the first that has the instruction)",
    )
    parser.add_argument("--operand", choices=_OPERANDS, help="of this operand alone")
    parser.add_argument("--row", type=integer(0), metavar="N", help="elements of this row alone, of what has rows of D")
    parser.add_argument(
        "--lane", type=integer(0), metavar="N", help="elements of this thread, or this lane of tensor memory, alone"
    )
    parser.add_argument("--nibble", type=_nibble, metavar="N", help="explain a nibble instead, such as 0b0110 or 6")
    parser.add_argument("--svg", type=Path, metavar="FILE.svg", help="draw the maps (extra: area)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every element")
    parser.set_defaults(execute=_execute)


def _nibble(word: str) -> int:
    try:
        value = int(word, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= 15:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 15, such as 6, 0x6 or 0b0110, not {word!r}")
    return value


def _execute(options: argparse.Namespace) -> int:
    choice = Choice(options.row, options.lane)
    if options.nibble is not None:
        if any(
            (options.instruction, options.svg, options.arch, options.operand, options.selector, not choice.everything)
        ):
            raise OperandError("--nibble stands alone or with --json")
        print(json.dumps(nibble_as_dict(options.nibble), indent=1) if options.json else nibble_text(options.nibble))
        return 0
    if not options.instruction:
        raise InstructionError("an instruction or --nibble is missing; `sptc instructions --json` lists the former")
    if options.svg and not choice.everything:
        raise OperandError("--row and --lane are of text and --json; a picture shows the whole")
    subject, candidates = subject_of_words(" ".join(options.instruction))
    if subject is None:
        if not options.json:
            more = [f"and {len(candidates) - _CANDIDATES} more"] if len(candidates) > _CANDIDATES else []
            print("\n".join([*candidates[:_CANDIDATES], *more]))
        raise InstructionError(f"{len(candidates)} instructions have these words; say which")
    instruction, opcode = subject.instruction, subject.opcode
    checked_selector(options.selector, instruction)
    arch = options.arch or (_ARCH if _ARCH in instruction.architectures else instruction.architectures[0])
    numbers = numerics_as_dict(instruction, arch)
    found = _only(placements(instruction, options.selector, opcode), options.operand, instruction, opcode)
    found = choice.keep(found)
    if options.svg:
        from .explain_picture import draw

        draw(instruction, title(instruction, opcode), found, options.selector, options.svg)
    if options.json:
        print(json.dumps(_as_dict(instruction, opcode, found, options.selector, numbers, choice)))
    else:
        print(explanation(instruction, opcode, found, options.selector, numbers, choice))
    return 0


def _only(found: Placements, operand: str | None, i: Instruction, opcode: Opcode | None) -> Placements:
    """Keep the maps of one operand, if one is named; C shares those of D."""
    if operand is None:
        return found
    name = "d" if operand == "c" else operand
    kept = tuple(place for place in found.operands if place.operand == name)
    unknown = {key: reason for key, reason in found.unknown.items() if key.split()[0] == name}
    if not kept and not unknown:
        lacking = "dense and has no metadata" if operand == "metadata" else "not block-scaled"
        raise OperandError(f"{title(i, opcode)} is {lacking}")
    return Placements(tuple(replace(place, operand=operand) for place in kept), unknown)


def _as_dict(
    i: Instruction, opcode: Opcode | None, found: Placements, selector: int, numbers: dict[str, object], choice: Choice
) -> dict[str, object]:
    sparsity = None
    if i.granularity and i.rule:
        sparsity = {
            "granularity": i.granularity.name,
            "stored": i.granularity.stored,
            "logical": i.granularity.logical,
            "chunks": i.chunks,
            "rule": i.rule.name,
            "legal": sorted(i.rule.legal),
            "selectors": i.sparsity_selectors,
            "selector": selector,
        }
    places: list[OperandPlacement] = []
    for place in found.operands:
        alone = len({other.operand for other in found.operands}) == 1
        places += [replace(place, operand="c")] if place.operand == "d" and not alone else []
        places.append(place)
    return {
        "instruction": title(i, opcode),
        "shape": {"m": i.m, "n": i.n, "k": i.k},
        "types": {name: getattr(i, name).name for name in "abcd"},
        "architectures": list(i.architectures),
        "sparsity": sparsity,
        "operands": [_operand_as_dict(place, i.family == "wgmma", choice) for place in places],
        "unknown": dict(found.unknown),
        "numerics": numbers,
    }


def _operand_as_dict(place: OperandPlacement, warpgroup: bool, choice: Choice) -> dict[str, object]:
    return {
        "operand": place.operand,
        "memory": place.memory.value,
        "shape": list(place.shape),
        "bits": place.bits,
        "value_low_bit": place.value_low_bit,
        "value_bits": place.value_bits,
        "formulas": dict(place.formulas),
        "notes": list(place.notes),
        "elements": [
            _element(place, (row, column), warpgroup) for row, column in np.argwhere(choice.of(place)).tolist()
        ],
    }


def _element(place: OperandPlacement, at: tuple[int, int], warpgroup: bool) -> dict[str, int]:
    entry = dict(zip(place.indices, at, strict=True))
    lane, low_bit = int(place.lanes[at]), int(place.low_bits[at])
    if place.memory is Memory.REGISTERS and warpgroup:
        entry |= {"warp": lane // 32, "lane": lane % 32}
    elif place.memory is not Memory.SHARED:
        entry["lane"] = lane
    return {
        **entry,
        place.memory.word: int(place.words[at]),
        "low_bit": low_bit,
        "high_bit": low_bit + place.bits - 1,
    }
