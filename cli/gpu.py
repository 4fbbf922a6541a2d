"""``sptc gpu``: compare a GPU with golden model and RTL, record its results, and measure cycles and energy."""

import argparse
from dataclasses import asdict, replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path

import numpy as np

from .. import __version__
from ..errors import InstructionError
from ..gpu.cycles import arrangements, beside_each_other, chosen, measure, table
from ..gpu.device import Device, device
from ..gpu.energy import Meter, works
from ..gpu.energy import table as energy_table
from ..infra.counts import counted
from ..infra.files import create_folder, require_writable, write_whole
from ..infra.pools import local_pool
from ..isa.instructions import Instruction, every_instruction, require_architecture
from ..isa.names import in_registers
from ..verify.campaign import campaign_record
from ..verify.register_file import write
from ..verify.shards import LEAST, Plan, draw
from .campaign import add_limits, common, conduct
from .gpu_pack import add_actions
from .options import Commands, add, integer, switch
from .progress import bar
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc gpu`` to the command line."""
    parser = commands.add_parser(
        "gpu",
        help="compare an NVIDIA GPU with the model, or record its results",
        description="Run sparse and dense mma and wgmma on this machine's NVIDIA GPU (needs pip install 'sptc[cuda]').",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    info = actions.add_parser("info", help="print the name of the GPU and how many modelled instructions it supports")
    add(info, "json")
    info.set_defaults(execute=_info)

    verify = actions.add_parser(
        "verify",
        help="compare GPU and golden model on random operands until a mismatch, or a limit such as --seconds",
        description="Compare the GPU with the golden model on seeded random shards. The shards cover every sparse and "
        "dense instruction of the GPU, wgmma with every N, and every operand distribution. Some shards draw all "
        "sixteen metadata nibbles. At the first mismatch, stop and write a register file with one tile that has a "
        "mismatch.",
    )
    switch(verify, "--rtl", "also compare the compiled RTL")
    add_limits(verify)
    verify.add_argument(
        "--record",
        type=Path,
        metavar="FILE.json.gz",
        help="write the number of compared outputs of each instruction, with the GPU and the versions of software",
    )
    verify.set_defaults(execute=_verify, scheduler=None, coverage=False)

    record = actions.add_parser(
        "record",
        help="write files (.npz) with random operands and the GPU's results",
        description="Run random tiles on the GPU and write one register file per instruction. Each file names the GPU, "
        "the CUDA version of its driver, and the date. `sptc run` replays the files on any machine.",
    )
    record.add_argument("folder", type=Path, metavar="FOLDER", help="folder to write to, created if missing")
    add(record, "instruction", nargs="+", default=[], help="instructions to record (default: all that the GPU has)")
    add(record, "tiles", default=64, help="number of random tiles per instruction (default %(default)s)")
    switch(record, "--least", "draw floats near the smallest exponent instead of random bits")
    add(record, "seed", default=0, note=" (default %(default)s)")
    record.set_defaults(execute=_record)

    _add_measurements(actions)
    add_actions(actions)


def _add_measurements(actions: Commands) -> None:
    cycles = actions.add_parser(
        "cycles",
        help="count the cycles that instructions take",
        description="Repeat instructions on one SM and count the cycles from one instruction to the next. Loops "
        "differ in the number of warps, in the overlap of wgmma groups, in the location of A (registers or "
        "shared memory) and in the swizzle. Further loops run wgmma and mma together. Operands are zero. "
        "For emulated instructions, operands are computed again before each instruction.",
    )
    add(
        cycles,
        "instruction",
        nargs="+",
        default=[],
        help="instructions to measure (default: all, but only one of those that take equal numbers of cycles)",
    )
    add(cycles, "output", required=True, metavar="FILE.csv")
    cycles.set_defaults(execute=_cycles)

    energy = actions.add_parser(
        "energy",
        help="measure the energy of instructions",
        description="Repeat instructions on several SMs, with operands of several distributions, and read the GPU's "
        "energy counter. Subtract the energy of the same SMs with sleeping warps. The result is in pJ per kept "
        "product. Nothing else may run on the GPU.",
    )
    add(energy, "instruction", nargs="+", default=[], help="instructions to measure (default: all supported)")
    energy.add_argument(
        "--sms", type=integer(1), default=44, metavar="N", help="number of SMs to use (default %(default)s)"
    )
    energy.add_argument(
        "--seconds", type=integer(1), default=1, metavar="N", help="seconds per measurement (default %(default)s)"
    )
    add(energy, "seed", default=0, note=" (default %(default)s)")
    add(energy, "output", required=True, metavar="FILE.csv")
    energy.set_defaults(execute=_energy)


def _info(options: argparse.Namespace) -> int:
    gpu = device()
    counts = dict.fromkeys(("sparse", "dense"), 0)
    for instruction in _instructions(gpu):
        counts["sparse" if instruction.sparse else "dense"] += 1
    values = {**asdict(gpu), **{f"{word}_instructions": count for word, count in counts.items()}}
    kinds = " and ".join(f"{count} {word}" for word, count in counts.items())
    return print_result(options, values, f"{gpu.name}, {gpu.arch}, CUDA {gpu.cuda}: {kinds} instructions")


def _verify(options: argparse.Namespace) -> int:
    if options.record:
        require_writable(options.record)
    # The process that forks the workers must not open the GPU, so a separate process queries the GPU.
    with local_pool(1) as pool:
        [gpu] = chain.from_iterable(pool.run(device, [()]))
    if not options.json:
        print(f"{gpu.name}, {gpu.arch}, CUDA {gpu.cuda}", flush=True)
    plan = Plan(
        seed=0,
        architectures=(gpu.arch,),
        backends=("cuda", "rtl") if options.rtl else ("cuda",),
        every_n=True,
        **common(options),
    )
    chosen = ["--rtl"] if options.rtl else []
    status, record = conduct(options, plan, ["sptc", "gpu", "verify"], chosen)
    if options.record:
        date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
        origin = {"sptc": __version__, "gpu": gpu.name, "cuda": gpu.cuda, "driver": gpu.driver, "date": date}
        write_whole(options.record, campaign_record(record, origin))
    return status


def _record(options: argparse.Namespace) -> int:
    gpu = device()
    chosen = _chosen(options, gpu) or [i for i in _instructions(gpu) if not (options.least and i.a.is_integer)]
    if integers := [i for i in chosen if options.least and i.a.is_integer]:
        raise InstructionError(f"--least needs an instruction that multiplies floats, not {integers[0]}")
    recorded = f"{gpu.name}, CUDA {gpu.cuda}, {datetime.now(timezone.utc):%Y-%m-%d}"
    plan = Plan(seed=options.seed, architectures=(gpu.arch,), tiles=options.tiles, every_n=True)
    create_folder(options.folder)
    distribution = LEAST if options.least else "bits"
    for number, instruction in enumerate(bar("file", chosen)):
        shard = replace(plan.shard(0), index=number, arch=gpu.arch, instruction=instruction)
        file = draw(replace(shard, distribution=distribution, any_nibble=False))
        file = file.with_fields(d=file.run("cuda"), recorded=recorded)
        write(options.folder / f"{str(instruction).replace('::', '-')}{'.least' * options.least}.npz", file)
    print(f"{counted(len(chosen), 'register file')} in {options.folder}, recorded on {recorded}")
    return 0


def _cycles(options: argparse.Namespace) -> int:
    require_writable(options.output)
    gpu = device()
    instructions = _chosen(options, gpu) or [*chosen(gpu.arch)]
    alone = [(loop,) for instruction in instructions for loop in arrangements(instruction, gpu.arch)]
    work = [*alone, *beside_each_other(instructions)]
    results = [one for loops in bar("loop", work) for one in measure(*loops)]
    write_whole(options.output, table(_origin(gpu), results).encode())
    measurements = counted(len(results), "measurement")
    print(f"{measurements} of {counted(len(instructions), 'instruction')} in {options.output}")
    return 0


def _energy(options: argparse.Namespace) -> int:
    require_writable(options.output)
    gpu = device()
    instructions, supported = _chosen(options, gpu), [*works(gpu.arch)]
    for instruction in instructions:
        if all(work.loop.instruction != instruction for work in supported):
            raise InstructionError(f"the energy of {instruction} cannot be measured")
    chosen_works = [work for work in supported if not instructions or work.loop.instruction in instructions]
    meter = Meter(options.sms, float(options.seconds))
    measured = meter.measure(chosen_works, np.random.default_rng(options.seed))
    results = [*bar("loop", measured, total=len(chosen_works))]
    write_whole(options.output, energy_table(_origin(gpu), results).encode())
    print(f"{len(results)} measurements in {options.output}")
    return 0


def _chosen(options: argparse.Namespace, gpu: Device) -> list[Instruction]:
    """Return the instructions that the options name; raise an `InstructionError` if the GPU lacks one of them."""
    instructions = [in_registers(text, gpu.arch) for text in dict.fromkeys(options.instruction)]
    for instruction in instructions:
        require_architecture(instruction, gpu.arch)
    return instructions


def _origin(gpu: Device) -> str:
    """Return the first line of a table of measurements: GPU, CUDA version, driver version and date."""
    return f"{gpu.name}, CUDA {gpu.cuda}, driver {gpu.driver}, {datetime.now(timezone.utc):%Y-%m-%d}"


def _instructions(gpu: Device) -> list[Instruction]:
    return [i for i in every_instruction() if gpu.arch in i.architectures]
