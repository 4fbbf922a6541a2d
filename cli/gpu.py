"""``sptc gpu``: the GPU of this machine against golden model and hardware, and recordings of it."""

import argparse
import json
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from .. import __version__
from ..errors import FileError, InstructionError
from ..gpu.cycles import arrangements, beside_each_other, chosen, measure, table
from ..gpu.device import Device, device
from ..gpu.energy import Meter, works
from ..gpu.energy import table as energy_table
from ..infra.files import require_writable, write_whole
from ..infra.pools import local_pool
from ..isa.instructions import Instruction, every_instruction, parse, require_architecture
from ..verify.campaign_state import Record, campaign_record
from ..verify.register_file import write
from ..verify.shards import LEAST, Plan, draw
from .arguments import integer
from .campaign import add_limits, common, conduct

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "gpu",
        help="compare an NVIDIA GPU with the golden model, or record it",
        description="Run mma and wgmma, sparse and dense, on the NVIDIA GPU of this machine (extra: cuda).",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    info = actions.add_parser("info", help="say which GPU it is and how many instructions it has")
    info.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    info.set_defaults(execute=_info)

    verify = actions.add_parser(
        "verify",
        help="compare GPU and golden model on random operands until a limit or a mismatch",
        description="Compare the GPU with the golden model on seeded random shards, which visit every "
        "instruction that the GPU has, sparse and dense, wgmma with every n, under every distribution of operands "
        "and, in part, all sixteen nibbles. At the first mismatch, stop and write a register file of one tile that "
        "shows it.",
    )
    verify.add_argument("--rtl", action="store_true", help="compare the compiled hardware too")
    add_limits(verify)
    verify.add_argument(
        "--record", type=Path, metavar="FILE.json.gz", help="write there what was compared, form by form, and with what"
    )
    verify.set_defaults(execute=_verify, scheduler=None, coverage=False)

    record = actions.add_parser(
        "record",
        help="write register files with the GPU's results",
        description="Run random tiles of instructions on the GPU and write one register file for each, with its name, "
        "the version of CUDA of its driver, and the date; `sptc run` replays them anywhere.",
    )
    record.add_argument("folder", type=Path, metavar="FOLDER", help="where to; made if it does not exist")
    record.add_argument(
        "--instruction", nargs="+", default=[], metavar="TEXT", help="which (default: every one that the GPU has)"
    )
    record.add_argument("--tiles", type=integer(1), default=64, metavar="N", help="tiles of each (default %(default)s)")
    record.add_argument(
        "--least", action="store_true", help="tiles around the least exponent of floats, instead of random bits"
    )
    record.add_argument("--seed", type=integer(0), default=0, metavar="N", help="seed (default %(default)s)")
    record.set_defaults(execute=_record)

    _add_measurements(actions)


def _add_measurements(actions: "argparse._SubParsersAction[Any]") -> None:
    """Add what measures cycles and energy."""
    cycles = actions.add_parser(
        "cycles",
        help="count the cycles that instructions take",
        description="Repeat instructions on one SM and count the cycles from one to the next: alone and on more warps, "
        "in groups that overlap and that do not, A in registers and in shared memory, with every swizzle, and wgmma "
        "beside mma. Operands are zero, and of emulated instructions made anew each time.",
    )
    cycles.add_argument(
        "--instruction", nargs="+", default=[], metavar="TEXT", help="which (default: every kind that the GPU has)"
    )
    cycles.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.csv", help="where to")
    cycles.set_defaults(execute=_cycles)

    energy = actions.add_parser(
        "energy",
        help="measure the energy of instructions",
        description="Repeat instructions on some SMs, on operands of several distributions, while the GPU's counter of "
        "energy is read, and take off what the same SMs take while their warps sleep: pJ of a kept product. The GPU "
        "must do nothing else.",
    )
    energy.add_argument(
        "--instruction", nargs="+", default=[], metavar="TEXT", help="of those that are measured, which (default: all)"
    )
    energy.add_argument("--sms", type=integer(1), default=44, metavar="N", help="SMs that run (default %(default)s)")
    energy.add_argument(
        "--seconds", type=integer(1), default=1, metavar="N", help="how long each is measured (default %(default)s)"
    )
    energy.add_argument("--seed", type=integer(0), default=0, metavar="N", help="of the operands (default %(default)s)")
    energy.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.csv", help="where to")
    energy.set_defaults(execute=_energy)


def _info(options: argparse.Namespace) -> int:
    held = device()
    counts = dict.fromkeys(("sparse", "dense"), 0)
    for instruction in _instructions(held):
        counts["sparse" if instruction.sparse else "dense"] += 1
    if options.json:
        print(json.dumps({**asdict(held), **{f"{word}_instructions": n for word, n in counts.items()}}, indent=1))
    else:
        listed = " and ".join(f"{count} {word}" for word, count in counts.items())
        print(f"{held.name}, {held.arch}, CUDA {held.cuda}: {listed} instructions")
    return 0


def _verify(options: argparse.Namespace) -> int:
    if options.record:
        require_writable(options.record)
    # The process that forks the workers must not have touched the GPU, so one of its own asks.
    with local_pool(1) as pool:
        pool.submit(device)
        found: list[Device] = []
        while not found:
            found = pool.collect()
    (held,) = found
    if not options.json:
        print(f"{held.name}, {held.arch}, CUDA {held.cuda}", flush=True)
    plan = Plan(
        seed=0,
        architectures=(held.arch,),
        backends=("cuda", "rtl") if options.rtl else ("cuda",),
        every_n=True,
        **common(options),
    )
    chosen = ["--rtl"] if options.rtl else []
    return conduct(
        options, plan, ["sptc", "gpu", "verify"], chosen, lambda record: _write(options.record, record, held)
    )


def _write(path: Path | None, record: Record, held: Device) -> None:
    """Write the record of a campaign, if it is asked for."""
    if path:
        date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
        about = {"sptc": __version__, "gpu": held.name, "cuda": held.cuda, "driver": held.driver, "date": date}
        write_whole(path, campaign_record(record, about))


def _record(options: argparse.Namespace) -> int:
    held = device()
    chosen = [parse(text) for text in dict.fromkeys(options.instruction)] or _instructions(held)
    if options.least and not options.instruction:
        chosen = [i for i in chosen if not i.a.is_integer]
    for instruction in chosen:
        require_architecture(instruction, held.arch)
        if options.least and instruction.a.is_integer:
            raise InstructionError(f"{instruction} multiplies integers; --least is of floats.")
    recorded = f"{held.name}, CUDA {held.cuda}, {datetime.now(timezone.utc):%Y-%m-%d}"
    plan = Plan(seed=options.seed, architectures=(held.arch,), tiles=options.tiles, every_n=True)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{options.folder} cannot be made ({error.strerror})") from None
    files = 0
    distribution = LEAST if options.least else "bits"
    for number, instruction in enumerate(tqdm(chosen, unit="file", leave=False, disable=None)):
        shard = replace(plan.shard(0), index=number, arch=held.arch, instruction=instruction)
        file = draw(replace(shard, distribution=distribution, any_nibble=False))
        file = replace(file, d=file.run("cuda"), recorded=recorded)
        path = _path(options.folder, instruction, ".least" if options.least else "")
        try:
            write(path, file)
        except OSError as error:
            raise FileError(f"{path} cannot be written ({error.strerror})") from None
        files += 1
    print(f"{files} register files in {options.folder}, recorded on {recorded}")
    return 0


def _cycles(options: argparse.Namespace) -> int:
    require_writable(options.output)
    held = device()
    instructions = [parse(text) for text in dict.fromkeys(options.instruction)] or [*chosen(held.arch)]
    for instruction in instructions:
        require_architecture(instruction, held.arch)
    alone = [(loop,) for instruction in instructions for loop in arrangements(instruction, held.arch)]
    work = [*alone, *beside_each_other(instructions)]
    found = [one for loops in tqdm(work, unit="loop", leave=False, disable=None) for one in measure(*loops)]
    write_whole(options.output, table(_about(held), found).encode())
    if str(options.output) != "-":
        print(f"{len(found)} measurements of {len(instructions)} instructions in {options.output}")
    return 0


def _energy(options: argparse.Namespace) -> int:
    require_writable(options.output)
    held = device()
    asked = [parse(text) for text in dict.fromkeys(options.instruction)]
    known = [*works(held.arch)]
    for instruction in asked:
        require_architecture(instruction, held.arch)
        if all(work.loop.instruction != instruction for work in known):
            raise InstructionError(f"{instruction} is not one of those whose energy is measured")
    chosen_works = [work for work in known if not asked or work.loop.instruction in asked]
    meter = Meter(options.sms, float(options.seconds))
    measured = meter.measure(chosen_works, np.random.default_rng(options.seed))
    found = [*tqdm(measured, total=len(chosen_works), unit="loop", leave=False, disable=None)]
    write_whole(options.output, energy_table(_about(held), found).encode())
    if str(options.output) != "-":
        print(f"{len(found)} measurements in {options.output}")
    return 0


def _about(held: Device) -> str:
    """Return what a table says of the GPU, and when that was."""
    return f"{held.name}, CUDA {held.cuda}, driver {held.driver}, {datetime.now(timezone.utc):%Y-%m-%d}"


def _instructions(held: Device) -> list[Instruction]:
    return [i for i in every_instruction() if held.arch in i.architectures]


def _path(folder: Path, instruction: Instruction, suffix: str) -> Path:
    return folder / f"{str(instruction).replace('::', '-')}{suffix}.npz"
