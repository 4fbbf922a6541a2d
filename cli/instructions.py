"""``sptc instructions``: list the modelled instructions by architecture, with the evidence for each."""

import argparse
from collections import Counter

from ..errors import InstructionError
from ..isa.architectures import require_target
from ..isa.names import Subject, subject_named
from ..show.instructions import (
    EVIDENCE_LEVELS,
    instruction_rows,
    instructions_as_dicts,
    markdown_table,
    one_as_dict,
    one_row,
    text_table,
)
from .options import Commands, add, switch
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc instructions`` to the command line."""
    parser = commands.add_parser(
        "instructions",
        help="list the modelled instructions and the evidence for them",
        description=f"List the modelled instructions with the evidence for each. {' '.join(EVIDENCE_LEVELS)}",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="list only instructions with all of these words, e.g. m16n8k32 or e4m3, or the instruction with this full "
        "name (default: all)",
    )
    add(parser, "arch", help="list only instructions of this architecture")
    sparsity = parser.add_mutually_exclusive_group()
    switch(sparsity, "--sparse", "list only instructions with sparse A")
    switch(sparsity, "--dense", "list only instructions with dense A")
    form = parser.add_mutually_exclusive_group()
    switch(form, "--markdown", "print a Markdown table")
    add(form, "json", help="print one JSON object with every instruction, and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    words = Counter(word for text in options.words for word in text.replace(".", " ").split())
    sparse = True if options.sparse else False if options.dense else None
    subject = _named(" ".join(options.words))
    if subject and sparse not in (None, bool(subject.instruction.sparse)):
        subject = None
    if subject and options.arch:
        require_target(subject.instruction, options.arch, subject.opcode)
    rows = [one_row(subject)] if subject else instruction_rows(words, options.arch, sparse)
    if not rows:
        raise InstructionError("no instruction matches these words and options; `sptc instructions` lists all")
    if options.json:
        arch = options.arch
        entries = [one_as_dict(subject, arch)] if subject else instructions_as_dicts(words, arch, sparse)
        return print_result(options, {"instructions": entries}, "")
    print(markdown_table(rows) if options.markdown else text_table(rows, options.arch))
    return 0


def _named(text: str) -> Subject | None:
    """Return the instruction whose full name is `text`; None for search words, and for ``tcgen05`` without types."""
    try:
        subject = subject_named(text)
    except InstructionError:
        return None
    return subject if subject.opcode is None or "(" in text else None
