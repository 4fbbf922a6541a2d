"""``sptc explain``: print operand layout and numerics of an instruction, or explain a descriptor or metadata nibble."""

import argparse
import re
from collections.abc import Callable
from contextlib import suppress

from ..errors import InstructionError, OperandError, shown
from ..infra.files import write_whole
from ..isa.memory import SWIZZLES
from ..isa.names import completed_name
from ..isa.shared_tile import MAJORS
from ..show.descriptor import explained_descriptor
from ..show.layout import TileChoice, layout
from ..show.layout_choice import Choice
from ..show.nibble import nibble_as_dict, nibble_text
from ..show.sass import machine_instruction
from .options import Commands, add, integer, refuse_others
from .terminal import print_result

__all__ = ["add_parser"]

_OPERANDS = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")
_TILE_OPTIONS = ("swizzle", "major", "leading_offset", "stride_offset", "start", "base_offset")


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc explain`` to the command line."""
    parser = commands.add_parser(
        "explain",
        help="explain an instruction, a descriptor or a metadata nibble",
        description="Print which lane, register and bits hold each element of A, B, C, D and the metadata of an "
        "instruction. Print the numerics with which an architecture computes it. With --nibble, print instead which "
        "elements one metadata nibble selects.",
    )
    parser.add_argument(
        "instruction",
        nargs="*",
        default=[],
        metavar="INSTRUCTION",
        help="instruction (mma, wgmma or tcgen05) in PTX syntax, with or without operands; some words of its name, "
        "e.g. `m16n8k32 f16 f32`; a name of SASS, e.g. HMMA.SP.16832.F32; or a descriptor in hexadecimal, alone or "
        "before an instruction. After tcgen05, the shape and types of the instruction descriptor may follow in "
        "brackets, e.g. 'tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)'",
    )
    add(parser, "selector", type=int)
    add(parser, "arch", note=" (default: sm_90, or the first architecture that has the instruction)")
    parser.add_argument("--operand", choices=_OPERANDS, help="print only this operand")
    parser.add_argument(
        "--row",
        type=integer(0),
        metavar="N",
        help="print only this row of D and of the operands with the same rows, such as A and C",
    )
    parser.add_argument(
        "--lane",
        type=integer(0),
        metavar="N",
        help="print only the elements in this thread, or in this lane of tensor memory",
    )
    parser.add_argument(
        "--byte", type=_bytes, metavar="N", help="print only the elements in this byte of shared memory"
    )
    parser.add_argument(
        "--element",
        type=_element,
        metavar="I,J",
        help="print only the element with these indices: row and stored column of A, k and n of B, row and column of D",
    )
    _add_tile_options(parser)
    parser.add_argument(
        "--nibble",
        type=_nibble,
        metavar="N",
        help="explain this metadata nibble instead of an instruction, e.g. 0b0110 or 6",
    )
    add(parser, "svg", help="draw the layouts (needs pip install 'sptc[area]')")
    add(parser, "json", help="print one JSON object with every element, and nothing else")
    parser.set_defaults(execute=_execute)


def _number(most: int, such: str) -> Callable[[str], int]:
    """Return an argument type that accepts decimal, hexadecimal and binary numbers from 0 to `most`."""

    def read(word: str) -> int:
        with suppress(ValueError):
            if 0 <= (value := int(word, 0)) <= most:
                return value
        raise argparse.ArgumentTypeError(f"the value must be from 0 to {most}, such as {such}, not {shown(word)}")

    return read


_nibble = _number(15, "6, 0x6 or 0b0110")
_bytes = _number((1 << 32) - 1, "128 or 0x80")


def _element(word: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9}),(\d{1,9})", word)
    if not match:
        raise argparse.ArgumentTypeError(f"the value must be two indices such as 3,5, not {shown(word)}")
    return int(match[1]), int(match[2])


def _tiles(options: argparse.Namespace) -> TileChoice | None:
    """Return how the options place tiles in shared memory; None if no option for this placement is given."""
    named = {name: value for name in _TILE_OPTIONS if (value := getattr(options, name)) is not None}
    return TileChoice(**named) if named else None


def _add_tile_options(parser: argparse.ArgumentParser) -> None:
    tiles = parser.add_argument_group(
        "tiles in shared memory",
        "With one of these options, A and B of wgmma and tcgen05 are shown in shared memory, as a matrix descriptor "
        "with these fields places them.",
    )
    tiles.add_argument("--swizzle", choices=SWIZZLES, help="swizzle mode of the matrix descriptor (default none)")
    tiles.add_argument(
        "--major", choices=MAJORS, help="dimension along which elements of A and B are adjacent in memory (default k)"
    )
    for name, words in (("lbo", "leading"), ("sbo", "stride")):
        text = f"{words} byte offset of the matrix descriptor (default: the offset in a tile without gaps)"
        tiles.add_argument(f"--{name}", type=_bytes, metavar="BYTES", help=text, dest=f"{words}_offset")
    tiles.add_argument("--start", type=_bytes, metavar="BYTES", help="descriptor's start address (default 0)")
    tiles.add_argument("--base-offset", type=integer(0, 7), metavar="N", help="descriptor's base offset (default 0)")


def _execute(options: argparse.Namespace) -> int:
    if options.nibble is not None:
        refuse_others(options, ("nibble", "json"), "cannot be combined with --nibble, but --json can")
        return print_result(options, nibble_as_dict(options.nibble), nibble_text(options.nibble))
    if not options.instruction:
        raise InstructionError("INSTRUCTION or --nibble is required; `sptc instructions` lists the instructions")
    if options.svg and (options.row, options.lane, options.byte, options.element) != (None,) * 4:
        raise OperandError("--svg draws whole operands: leave out --row, --lane, --byte and --element")
    text = " ".join(options.instruction)
    if machine := machine_instruction(text, options.arch):
        reason = "cannot be combined with the name of a SASS instruction, but --arch and --json can"
        refuse_others(options, ("instruction", "arch", "json"), reason)
        return print_result(options, machine.as_dict(), machine)
    if descriptor := explained_descriptor(text, options.operand, options.major):
        reason = "cannot be combined with a descriptor, but an instruction, --operand, --major and --json can"
        refuse_others(options, ("instruction", "operand", "major", "json"), reason)
        return print_result(options, descriptor.as_dict(), descriptor)
    selected = layout(
        text,
        options.arch,
        selector=options.selector,
        operand=options.operand,
        choice=Choice(options.row, options.lane, options.byte, options.element),
        tiles=_tiles(options),
    )
    if options.svg:
        write_whole(options.svg, selected.as_svg())
    _, added = completed_name(text)
    if added and not options.json:
        print(f"{added} is missing in the name of the instruction and was added")
    return print_result(options, selected.as_dict, selected, indent=None)
