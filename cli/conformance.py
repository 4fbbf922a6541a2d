"""Part of ``sptc vectors`` that writes conformance packs and checks the results of one."""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FileError, InstructionError, OperandError
from ..infra.files import require_writable
from ..infra.pools import cores, local_pool
from ..isa.instructions import ARCHITECTURES
from ..verify.conformance import Judgement, Pack, choose_pack, judge, read_pack, read_results, write_pack
from ..verify.pack_files import every_subject, require_placed, subject_named
from ..verify.replay import as_number
from .arguments import architecture, integer, processes
from .progress import progress_bar
from .reports import Check, add_reports, check_reports, report

__all__ = ["add_options", "execute"]

_ALL = "all"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    writing = parser.add_argument_group("writing packs")
    writing.add_argument(
        "--pack",
        nargs="+",
        metavar="INSTRUCTION",
        help="write one pack per instruction: in PTX syntax, for tcgen05 with shape and types in brackets, or 'all'",
    )
    writing.add_argument(
        "--arch",
        nargs="+",
        type=_architecture,
        metavar="ARCH",
        help="architectures (default: all that have the instruction)",
    )
    writing.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="folder to write to, or FILE.npz for one pack"
    )
    writing.add_argument("--seed", type=integer(0), default=0, help="seed of the packs (default %(default)s)")
    writing.add_argument("--jobs", type=processes, metavar="N", help="processes (default: one per core)")
    judging = parser.add_argument_group("checking results")
    judging.add_argument("--check", type=Path, metavar="PACK.npz", help="pack that another model computed")
    judging.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="computed D in C order: .npz with the key D, JSON list, or text with one 32-bit hexadecimal word per line",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_reports(parser)


def _architecture(word: str) -> str:
    return word if word == _ALL else architecture(word)


def execute(options: argparse.Namespace) -> int:
    """Write packs or check results, as the options say; return the exit status."""
    if bool(options.pack) == bool(options.check):
        raise OperandError(
            "name an instruction, or say what to write with --pack or to judge with --check and --results"
        )
    if options.check:
        if not options.results:
            raise OperandError("--check takes the results of the pack: --results FILE")
        if options.output or options.arch:
            raise OperandError("--output and --arch are for --pack, not for --check")
        check_reports(options)
        return _judge(options)
    if options.results:
        raise OperandError("--results is for --check, not for --pack")
    if not options.output:
        raise OperandError("--pack takes where to write: --output FOLDER, or FILE.npz for one")
    if options.junit or options.github:
        raise OperandError("--junit and --github are for --check, not for --pack")
    return _write(options)


@dataclass(frozen=True)
class _Job:
    """One pack to write."""

    name: str
    arch: str
    seed: int
    path: Path

    def __str__(self) -> str:
        return f"the pack of {self.name} on {self.arch}"


def _jobs(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield instruction and architecture of each pack, without duplicates."""
    wanted = None if options.arch is None or _ALL in options.arch else options.arch
    if _ALL in options.pack:
        if len(options.pack) > 1:
            raise InstructionError("'all' stands for every instruction; name no other beside it")
        for arch in wanted or ARCHITECTURES:
            for subject in every_subject(arch):
                yield subject.name, arch
        return
    for text in options.pack:
        subject = subject_named(text)
        for arch in wanted or subject.instruction.architectures:
            require_placed(subject, arch)
            yield subject.name, arch


def _write(options: argparse.Namespace) -> int:
    asked = list(dict.fromkeys(_jobs(options)))
    folder: Path = options.output
    if folder.suffix == ".npz":
        if len(asked) > 1:
            raise FileError(f"{folder} holds one pack, not {len(asked)}; name a folder")
        paths = [folder]
        require_writable(folder)
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} cannot be made a folder ({error.strerror})") from None
        paths = [folder / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name).strip('-')}.{arch}.npz" for name, arch in asked]
    jobs = [_Job(name, arch, options.seed, path) for (name, arch), path in zip(asked, paths, strict=True)]
    rows = list(_written(jobs, options.jobs or cores()))
    places = {each: place for place, each in enumerate(asked)}
    rows.sort(key=lambda row: places[row["instruction"], row["arch"]])
    total = _total(rows)
    print(json.dumps({"packs": rows, "total": total}, indent=1) if options.json else _written_as_text(rows, total))
    return 0


def _written(jobs: list[_Job], processes: int) -> Iterator[dict[str, Any]]:
    waiting = iter(jobs)
    with progress_bar("pack") as progress, local_pool(min(processes, len(jobs))) as pool:
        done = 0
        while done < len(jobs):
            while pool.accepts and (job := next(waiting, None)):
                pool.submit(_write_one, job)
            for row in pool.collect():
                done += 1
                yield row
            progress(done, len(jobs))


def _write_one(job: _Job) -> dict[str, Any]:
    """Write a pack; return its row of the report."""
    pack = choose_pack(subject_named(job.name), job.arch, job.seed)
    write_pack(job.path, pack)
    return {
        "file": str(job.path),
        "instruction": job.name,
        "arch": job.arch,
        "cases": pack.file.cases,
        "candidates": pack.candidates,
        "told_apart": list(pack.told_apart),
        "missed": pack.missed,
        "same": pack.same,
        "alike": pack.alike,
    }


def _total(rows: list[dict[str, Any]]) -> dict[str, int]:
    counted = {key: sum(len(row[key]) for row in rows) for key in ("told_apart", "missed", "same")}
    return {"packs": len(rows), "cases": sum(row["cases"] for row in rows), **counted}


def _written_as_text(rows: list[dict[str, Any]], total: dict[str, int]) -> str:
    lines = []
    for row in rows:
        lines.append(f"{row['file']}: {row['instruction']} on {row['arch']}, {row['cases']} cases of "
                     f"{row['candidates']} candidates, tells {len(row['told_apart'])} neighbours apart")  # fmt: skip
        if len(rows) == 1:
            lines += [f"  {name}: cannot differ, since {reason}" for name, reason in row["same"].items()]
        lines += [f"  {name}: {sentence}" for name, sentence in row["missed"].items()]
        lines += [f"  the same results: {'; '.join(names)}" for names in row["alike"]]
    pairs = total["told_apart"] + total["missed"]
    lines.append(
        f"total: {total['packs']} packs, {total['cases']} cases; {total['told_apart']} of {pairs} pairs of instruction "
        f"and neighbour told apart; {total['same']} that cannot differ"
    )
    return "\n".join(lines)


def _judge(options: argparse.Namespace) -> int:
    pack = read_pack(options.check)
    assert pack.file.d is not None
    judgement = judge(pack, read_results(options.results, pack.file.d.shape))
    said = _said(pack, judgement)
    verdict = _verdict(pack, judgement)
    print(json.dumps({**said, "verdict": verdict}, indent=1) if options.json else verdict)
    report(options, [Check(pack.file.arch, pack.file.name, "" if judgement.right else verdict)])
    return int(not judgement.right)


def _said(pack: Pack, judgement: Judgement) -> dict[str, object]:
    fmt, first = pack.file.instruction.d, judgement.first
    place = None
    if first:
        codes = {"wanted": first.expected, "got": first.computed}
        place = {
            "case": first.case,
            "row": first.row,
            "column": first.column,
            **{name: f"0x{code:0{fmt.bits // 4}x}" for name, code in codes.items()},
            **{f"{name}_number": repr(as_number(code, fmt)) for name, code in codes.items()},
        }
    return {
        "instruction": pack.file.name,
        "arch": pack.file.arch,
        "neighbours": list(pack.told_apart),
        "outputs": judgement.outputs,
        "differing": judgement.differing,
        "first": place,
        "beside": judgement.beside,
        "explained_by": list(judgement.explained_by),
        "nearest": judgement.nearest or None,
        "explained": judgement.explained,
    }


def _verdict(pack: Pack, judgement: Judgement) -> str:
    """Return the verdict on the results as text."""
    what, outputs = f"{pack.file.name} on {pack.file.arch}", judgement.outputs
    if judgement.right:
        return f"all {outputs} outputs of {what} are right; {len(pack.told_apart)} neighbours would have shown"
    lines = [f"{judgement.differing} of {outputs} outputs of {what} differ"]
    if judgement.beside:
        lines.append(f"{judgement.beside} words of tensor memory beside D differ")
    place = _said(pack, judgement)["first"]
    if isinstance(place, dict):
        lines.append(
            f"first: case {place['case']}, row {place['row']}, column {place['column']}: wanted {place['wanted']} "
            f"({place['wanted_number']}), got {place['got']} ({place['got_number']})"
        )
        if judgement.explained_by:
            lines.append(f"these are the results with {', as well as with '.join(judgement.explained_by)}")
        elif judgement.nearest:
            lines.append(f"nearest: {judgement.nearest}, which gives {judgement.explained} of {outputs} outputs")
        else:
            lines.append(f"nearest: the right model, which gives {judgement.explained} of {outputs} outputs")
    return "\n".join(lines)
