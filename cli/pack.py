"""``sptc pack`` and ``judge``: write conformance packs (test cases that reveal wrong models), and check results."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import FileError, InstructionError
from ..infra.files import create_folder, is_stream, require_writable
from ..isa.architectures import same_numerics
from ..isa.instructions import ARCHITECTURES
from ..isa.names import resolve, subject_named
from ..show.conformance import judgement_as_dict, packs_text, packs_total
from ..verify.conformance import choose_pack, judge, read_pack, read_results, write_pack
from ..verify.pack_files import every_subject, file_stem, require_placed
from .options import Commands, add, architecture
from .progress import bar, in_parallel
from .reports import Check, report
from .terminal import print_result

__all__ = ["ALL", "RESULTS", "add_parser", "architecture_or_all", "judge_results", "write_packs"]

#: Word that stands for all instructions or all architectures on the command line.
ALL = "all"
#: Help text of the argument that names a file with the results of a model.
RESULTS = (
    "computed D in C order: .npz with key D, JSON list of integers or of hexadecimal strings, or text with one 32-bit "
    "hexadecimal word per line"
)


def add_parser(commands: Commands) -> None:
    """Add the parsers of ``sptc pack`` and ``sptc judge`` to the command line."""
    parser = commands.add_parser(
        "pack",
        help="write test cases that reveal wrong models of an instruction",
        description="Write one conformance pack per instruction and architecture. A pack is a register file with a few "
        "cases that distinguish the model of sptc from its neighbours. A neighbour is a model with one wrong "
        "parameter or rule. `sptc judge` checks the results that another model computes for a pack.",
    )
    parser.add_argument(
        "instruction",
        nargs="+",
        metavar="INSTRUCTION",
        help="instructions in PTX syntax (tcgen05 with shape and types in brackets), or 'all'; each gets its own file",
    )
    add(
        parser,
        "arch",
        nargs="+",
        type=architecture_or_all,
        help="architectures, or 'all' (default: all that have the instruction)",
    )
    text = "folder for packs of test cases; or, for one pack, FILE.npz or - (standard output)"
    add(parser, "output", required=True, metavar="FOLDER", help=text)
    add(parser, "seed", default=0, note=" (default %(default)s)")
    add(parser, "jobs", "json")
    parser.set_defaults(execute=lambda options: write_packs(options, options.instruction))
    judge_parser = commands.add_parser(
        "judge",
        help="compare another model's results with a conformance pack",
        description="Compare the results that another model computed for a conformance pack with the expected results. "
        "If results differ, print the first difference and the models with one wrong parameter or rule that give these "
        "results. Exit status 0: all results are right. 1: a result differs.",
    )
    judge_parser.add_argument("pack", type=Path, metavar="PACK.npz", help="conformance pack that `sptc pack` wrote")
    judge_parser.add_argument("results", type=Path, metavar="RESULTS", help=RESULTS)
    add(judge_parser, "json", "junit", "github")
    judge_parser.set_defaults(execute=lambda options: judge_results(options, options.pack))


def judge_results(options: argparse.Namespace, path: Path) -> int:
    """Compare a model's results with the expected results in file `path`, print the verdict and return the status."""
    pack = read_pack(path)
    assert pack.file.d is not None
    judgement = judge(pack, read_results(options.results, pack.file.d.shape))
    values = judgement_as_dict(pack, judgement)
    verdict = str(values["verdict"])
    status = print_result(options, values, verdict, good=judgement.right)
    report(options, [Check(pack.file.arch, pack.file.name, "" if judgement.right else verdict)])
    return status


def architecture_or_all(word: str) -> str:
    """Parse an architecture or the word ``all``."""
    return word if word == ALL else architecture(word)


def write_packs(options: argparse.Namespace, instructions: Sequence[str]) -> int:
    """Write the conformance packs of the given instructions, print a line for each and return the exit status."""
    architectures = None if options.arch is None or ALL in options.arch else options.arch
    subjects = list(dict.fromkeys(_subjects(instructions, architectures)))
    folder: Path = options.output
    if folder.suffix == ".npz" or is_stream(folder):
        if len(subjects) > 1:
            raise FileError(
                f"--output {folder} can hold one conformance pack, not {len(subjects)}: --output must be a folder"
            )
        paths = [folder]
        require_writable(folder)
    else:
        create_folder(folder)
        paths = [folder / f"{file_stem(name)}.{arch}.npz" for name, arch in subjects]
    tasks = {
        f"the pack of {name} on {arch}": (name, arch, options.seed, path)
        for (name, arch), path in zip(subjects, paths, strict=True)
    }
    if is_stream(folder):  # written by this process, since a worker cannot report that the reader closed the stream
        rows = [_write_one(*task) for task in bar("pack", tasks.values())]
    else:
        rows = in_parallel("pack", _write_one, tasks, options.jobs)
    return print_result(options, {"packs": rows, "total": packs_total(rows)}, packs_text(rows))


def _subjects(instructions: Sequence[str], architectures: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield the instruction and the architecture of each conformance pack to write."""
    if ALL in instructions:
        if len(instructions) > 1:
            raise InstructionError("'all' already includes every instruction: leave out all other instructions")
        for arch in architectures or ARCHITECTURES:
            for subject in every_subject(arch):
                yield subject.name, same_numerics(arch)
        return
    for text in instructions:
        subject = resolve(text, architectures[0] if architectures else None)
        for arch in architectures or subject.instruction.architectures:
            yield subject.name, require_placed(subject, arch)


def _write_one(name: str, arch: str, seed: int, path: Path) -> dict[str, Any]:
    """Write a conformance pack and return its row of the printed table."""
    pack = choose_pack(subject_named(name), arch, seed)
    write_pack(path, pack)
    return {
        "file": str(path),
        "instruction": name,
        "arch": arch,
        "cases": pack.file.cases,
        "candidates": pack.candidates,
        "told_apart": list(pack.told_apart),
        "missed": pack.missed,
        "same": pack.same,
        "alike": pack.alike,
    }
