"""Command line options and argument types that several commands share, each declared once with one help text."""

import argparse
from collections.abc import Callable, Container
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import InstructionError, OperandError, shown
from ..infra.diagram import Theme
from ..isa.architectures import target_named
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..isa.numerics import Method, Numerics, Rounding, numerics
from ..rtl.config import CUTS, MUXES, PRESETS
from ..tensors.quantise import NAN_POLICIES
from ..tensors.sparsify import PRODUCERS
from ..verify.stimulus import NIBBLES

__all__ = [
    "NUMERICS",
    "Commands",
    "add",
    "add_numerics",
    "architecture",
    "changed_numerics",
    "default_arch",
    "flag",
    "integer",
    "number",
    "positive",
    "refuse",
    "refuse_others",
    "replaced_numerics",
    "split",
    "switch",
    "words",
]

#: Type of the set of subcommands to which each module adds the parser of its command.
Commands: TypeAlias = "argparse._SubParsersAction[Any]"
#: Upper bounds of integer options: 1024 for a number of processes, else 2**63 - 1, since numpy takes C integers.
_MOST_PROCESSES, _LARGEST = 1024, (1 << 63) - 1
_DIGITS = 30
#: Upper bound of options that are positive numbers: a time in seconds, or a frequency.
_MOST = 1_000_000
#: Upper bounds for ``--split-k``: number of K tiles (groups of instructions) in a slice of K, and number of slices.
_MOST_TILES, _MOST_SLICES = 1 << 24, 4096


def architecture(word: str) -> str:
    """Parse the name of an architecture or of an assembler target."""
    try:
        return target_named(word).name
    except InstructionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def default_arch(i: Instruction) -> str:
    """Return the default architecture of an instruction: sm_90, or the first architecture that has the instruction."""
    return "sm_90" if "sm_90" in i.architectures else i.architectures[0]


def integer(least: int, most: int = _LARGEST) -> Callable[[str], int]:
    """Return an argument type that accepts integers from `least` to `most`."""

    def read(word: str) -> int:
        # Parse only 30 characters, because int() rejects thousands of digits. A longer number exceeds any bound anyway.
        value = int(word[:_DIGITS]) if word.removeprefix("-").isdecimal() else least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"the value must be an integer of {least} or more, not {shown(word)}")
        if value > most:
            raise argparse.ArgumentTypeError(f"the value must be an integer of at most {most}, not {shown(word)}")
        return value

    return read


def number(word: str) -> float:
    """Parse a finite number."""
    with suppress(ValueError):
        if isfinite(value := float(word)):
            return value
    raise argparse.ArgumentTypeError(f"the value must be a number, not {shown(word)}")


def positive(word: str) -> float:
    """Parse a number above 0 and at most 1,000,000."""
    with suppress(ValueError):
        if 0 < (value := float(word)) <= _MOST:
            return value
    raise argparse.ArgumentTypeError(f"the value must be a number above 0 and at most {_MOST:,}, not {shown(word)}")


def split(word: str) -> int | tuple[int, ...]:
    """Parse ``--split-k``: number of slices of K, or the length of each slice in K tiles (groups of instructions)."""
    first, *others = (integer(1, _MOST_TILES)(part) for part in word.split(",", _MOST_SLICES))
    return (first, *others) if others else first


def words(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of words."""
    return tuple(text.split(","))


def _cuts(text: str) -> tuple[str, ...]:
    """Parse comma-separated pipeline cuts (positions of pipeline registers), or the word ``none``."""
    chosen = () if text == "none" else words(text)
    for word in chosen:
        if word not in CUTS:
            raise argparse.ArgumentTypeError(
                f"the value must be 'none' or comma-separated words among {', '.join(CUTS)}, not {text!r}"
            )
    return tuple(cut for cut in CUTS if cut in chosen)


def _switch(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


#: Keyword arguments of ``add_argument`` for each shared option.
_SHARED: dict[str, dict[str, Any]] = {
    # Command line options that control the output
    "json": _switch("print one JSON object and nothing else"),
    "verbose": _switch("also print the results in detail"),
    "output": {"type": Path, "metavar": "FILE", "help": "file to write; - is standard output"},
    "junit": {"type": Path, "metavar": "FILE", "help": "also write the results as JUnit XML"},
    "github": _switch("also print annotations of GitHub workflows on standard error"),
    "plot": {"type": Path, "metavar": "FILE.svg", "help": "draw a diagram (needs pip install 'sptc[area]')"},
    "svg": {"type": Path, "metavar": "FILE.svg", "help": "draw a picture (needs pip install 'sptc[area]')"},
    "theme": {
        "choices": [theme.value for theme in Theme],
        "default": Theme.AUTO.value,
        "help": "colours of a block diagram; auto follows the viewer's system (default %(default)s)",
    },
    # Command line options that control how a command runs
    "jobs": {
        "type": integer(1, _MOST_PROCESSES),
        "metavar": "N",
        "help": "number of processes (default: one per core)",
    },
    "scheduler": {"metavar": "ADDRESS", "help": "run on the Dask cluster at ADDRESS (needs pip install 'sptc[dask]')"},
    "seed": {"type": integer(0), "metavar": "N", "help": "seed of the random numbers"},
    "tiles": {"type": integer(1), "metavar": "N", "help": "number of random tiles"},
    "backend": {"help": "back end that computes the results"},
    # Command line options that choose instructions and their operands
    "arch": {
        "type": architecture,
        "metavar": "ARCH",
        "help": "architecture or PTX target that determines the numerics",
    },
    "instruction": {"metavar": "TEXT", "help": "instruction in PTX syntax, or words such as 'm16n8k32 f16 f32'"},
    "selector": {"type": integer(0), "metavar": "N", "help": "sparsity selector (default 0)"},
    "distribution": {
        "metavar": "NAME",
        "help": "distribution of the operands (default: all that apply to the instruction, in turn)",
    },
    "nibbles": {
        "choices": tuple(NIBBLES),
        "help": "metadata nibbles to draw: legal (default), legal and 0x0 for empty chunks (software), or all sixteen",
    },
    # Command line options that describe a datapath or its synthesis
    "preset": {"choices": PRESETS, "help": "preset of the datapath; `sptc presets` lists all"},
    "formats": {"type": words, "metavar": "LIST", "help": "comma-separated element formats, e.g. f16,e4m3"},
    "alignment": {"type": integer(0), "metavar": "F", "help": "alignment bits: bits kept below the largest exponent"},
    "fp8_alignment": {
        "type": integer(0),
        "metavar": "F",
        "help": "alignment bits of 8-bit floats, if the datapath does not convert them to f16",
    },
    "products": {
        "type": integer(1),
        "metavar": "N",
        "help": "number of kept products (products of stored elements of A) that are added in one step",
    },
    "step_bytes": {"type": integer(1), "metavar": "N", "help": "bytes of stored A per unit and cycle"},
    "top": {
        "type": lambda word: "warpgroup" if word == "wgmma" else word,
        "help": "module of the datapath; wgmma is another name of warpgroup",
    },
    "mux": {"choices": MUXES, "help": "implementation of the operand multiplexers of the units"},
    "cuts": {"type": _cuts, "metavar": "LIST", "help": "comma-separated pipeline cuts that have a register, or none"},
    "liberty": {
        "type": Path,
        "nargs": "+",
        "action": "extend",
        "metavar": "FILE",
        "help": "standard cell library to map to: liberty files of one corner, plain or compressed",
    },
    "dont_use": {
        "nargs": "+",
        "action": "extend",
        "metavar": "PATTERN",
        "help": "names or shell patterns of cells not to use, or the word none (default: scan cells, ASAP7's cells "
        "below drive 1, and sky130's cells for power domains and delays)",
    },
    "orders": {
        "type": integer(1),
        "default": 1,
        "metavar": "N",
        "help": "with --liberty: measure with the ports in N orders, and report medians and scatter (default 1)",
    },
    "combinational": _switch("replace the pipeline registers of the unit by wires"),
    # Command line options for the files and the formats of matrices
    "tensor": {"metavar": "NAME", "help": "tensor to read from FILE, if FILE holds several"},
    "format": {"choices": FORMATS, "help": "number format"},
    "prune": _switch("keep the largest magnitudes in each chunk of A and set the others to zero"),
    "check": _switch("fail if A does not have the sparsity structure (default)"),
    "producer": {"choices": PRODUCERS, "help": "software whose metadata to write for chunks with few non-zeros"},
    "nan": {"choices": NAN_POLICIES, "help": "conversion of a NaN"},
}
_SHORT = {"output": ("-o",)}


def flag(name: str) -> str:
    """Return an option as it is written on the command line, e.g. ``--step-bytes`` for ``step_bytes``."""
    return f"--{name.replace('_', '-')}"


def refuse(options: argparse.Namespace, names: Container[str], reason: str) -> None:
    """Raise an `OperandError`, such as "--row needs --a", if an argument in `names` differs from its default."""
    for action in options.subparser._actions:
        if action.dest in names and getattr(options, action.dest) != action.default:
            raise OperandError(f"{[action.metavar, *action.option_strings][-1]} {reason}")


def refuse_others(options: argparse.Namespace, names: Container[str], reason: str) -> None:
    """Raise the error of :func:`refuse` if an argument that is not in `names` differs from its default."""
    refuse(options, [name for name in vars(options) if name not in names], reason)


def add(
    parser: "argparse.ArgumentParser | argparse._ArgumentGroup", *names: str, note: str = "", **changes: Any
) -> None:
    """Add shared options to a parser or a group of options, by names such as ``"step_bytes"``.

    `note` is appended to the help texts, e.g. ``" (default sm_90)"``. `changes` are keywords of
    :meth:`~argparse.ArgumentParser.add_argument` that differ for this command.
    """
    for name in names:
        keywords = _SHARED[name] | changes
        keywords["help"] += note
        parser.add_argument(*_SHORT.get(name, ()), flag(name), **keywords)


def switch(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", option: str, text: str, **others: Any) -> None:
    """Add an option that takes no value, with the help text `text`; `others` are keywords of ``add_argument``."""
    parser.add_argument(option, help=text, action="store_true", **others)


#: Options that change the numerics of an instruction, each with the argument of `Numerics.replace` that it sets.
NUMERICS = {
    "alignment": "alignment_bits",
    "fp8_alignment": "alignment_bits",
    "products": "products",
    "step_rounding": "rounding",
}


def add_numerics(parser: argparse.ArgumentParser) -> None:
    """Add the options for changed numerics parameters, which :func:`changed_numerics` reads."""
    group = parser.add_argument_group(
        "numerics that differ from those of the architecture",
        "Compute the results of a datapath with other parameters. Only back ends golden and native support these "
        "options.",
    )
    add(group, "alignment", note=", for all formats but natively summed 8-bit floats (--fp8-alignment)")
    add(group, "fp8_alignment", "products")
    group.add_argument(
        "--step-rounding",
        choices=[one.value for one in Rounding if one is not Rounding.EXACT],
        help="rounding of the exact sum of the products of one step (see --products): toward zero (RZ) or to nearest "
        "even (RNE), in f32, f16, or f32 with 13 fraction bits (E8M13)",
    )


def changed_numerics(options: argparse.Namespace, instruction: Instruction | None, arch: str) -> dict[str, Any]:
    """Return the changed numerics parameters as keyword arguments of :meth:`~sptc.isa.numerics.Numerics.replace`.

    Raise an `OperandError` if `instruction` is None, an option does not affect it, or a value is not accepted.
    """
    named = {name: value for name in NUMERICS if (value := getattr(options, name)) is not None}
    if not named:
        return {}
    if instruction is None:
        raise OperandError(f"{flag(next(iter(named)))} changes the numerics of one instruction: add --instruction")
    own = numerics(instruction, arch)
    is_fp8 = own.method is Method.FUSED and instruction.container_bits == 8
    effective, ineffective = ("fp8_alignment", "alignment") if is_fp8 else ("alignment", "fp8_alignment")
    if ineffective in named:
        raise OperandError(f"{flag(ineffective)} does not affect {instruction} on {arch}, but {flag(effective)} does")
    rounding = named.get("step_rounding")
    if rounding and own.method is not Method.INTEGER and rounding.endswith("f16") != own.rounds_to_half:
        results = "f16" if own.rounds_to_half else "f32 or E8M13"
        raise OperandError(f"--step-rounding {rounding} does not fit {instruction}, which rounds its sums to {results}")
    changes = {NUMERICS[name]: value for name, value in named.items()}
    own.replace(**changes)
    return changes


def replaced_numerics(options: argparse.Namespace, instruction: Instruction | None, arch: str) -> Numerics | None:
    """Return the numerics with the parameters that options change, or None without such an option.

    Raise the errors of :func:`changed_numerics`.
    """
    changes = changed_numerics(options, instruction, arch)
    return numerics(instruction, arch).replace(**changes) if instruction and changes else None
