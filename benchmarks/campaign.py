"""RTL against golden: for every preset and format pair, outputs of random and adversarial operands, all nibbles."""

import os
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import sptc
from measure import Row, options, show
from sptc.isa.instructions import every_instruction, parse
from sptc.rtl.config import PRESET_OF_ARCHITECTURE
from sptc.sim.stimulus import distributions, random_operands
from tqdm import tqdm

#: One architecture for each datapath; sm_86 is sm_80 again.
ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")


@dataclass(frozen=True)
class Job:
    """Some tiles of one instruction with one distribution of operands."""

    arch: str
    instruction: str
    distribution: str
    any_nibble: bool
    tiles: int
    seed: int


def pair_of(job: Job) -> tuple[str, str]:
    """Return preset and format pair."""
    instruction = parse(job.instruction)
    kind = f" {instruction.kind}" if instruction.kind else ""
    scale = f" {instruction.scale_size}X {instruction.scale_format.name}" if instruction.scale_format else ""
    names = f"{instruction.a.name} x {instruction.b.name} to {instruction.d.name}"
    return PRESET_OF_ARCHITECTURE[job.arch], f"{names}{kind}{scale}"


def jobs(outputs: int, seed: int) -> Iterator[Job]:
    """Yield jobs that give every format pair of every preset at least so many outputs."""
    for arch in ARCHITECTURES:
        plan: dict[tuple[str, str], list[Job]] = {}
        for instruction in every_instruction("mma"):
            if arch not in instruction.architectures:
                continue
            for distribution in distributions(instruction):
                for any_nibble in (False, True) if instruction.sparse else (False,):
                    job = Job(arch, str(instruction), distribution, any_nibble, 0, seed)
                    plan.setdefault(pair_of(job), []).append(job)
        for shared in plan.values():
            for job in shared:
                instruction = parse(job.instruction)
                tiles = -(-outputs // (len(shared) * instruction.m * instruction.n))
                yield Job(arch, job.instruction, job.distribution, job.any_nibble, tiles, seed)


def run(job: Job) -> tuple[Job, int, int]:
    """Compute a job on both and return its outputs and how many differ."""
    instruction = parse(job.instruction)
    name = f"{job.arch}|{job.instruction}|{job.distribution}|{job.any_nibble}"
    rng = np.random.default_rng([job.seed, zlib.crc32(name.encode())])
    selector = int(rng.integers(instruction.selectors))
    operands = random_operands(
        instruction, job.distribution, job.tiles, rng, selector=selector, any_nibble=job.any_nibble
    )
    results = [
        sptc.mma(
            job.instruction,
            operands.a,
            operands.b,
            operands.c,
            operands.e,
            selector,
            scale_a=operands.scale_a,
            scale_b=operands.scale_b,
            arch=job.arch,
            backend=backend,
            metadata="silicon",
        )
        for backend in ("golden", "rtl")
    ]
    halves = np.uint16 if instruction.d.name == "f16" else np.uint32
    golden, rtl = (result.view(halves) for result in results)
    return job, golden.size, int((golden != rtl).sum())


def main() -> int:
    """Run the campaign, print a row for each format pair, and return 1 if anything differs."""
    parser = options(__doc__)
    parser.add_argument("--outputs", type=int, default=1_000_000, help="outputs for each pair (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    chosen = parser.parse_args()
    found: dict[tuple[str, str], list[int]] = {}
    work = list(jobs(chosen.outputs, chosen.seed))
    for arch in ARCHITECTURES:  # one build of each datapath before the workers need it
        run(next(job for job in work if job.arch == arch))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for job, outputs, differing in tqdm(pool.map(run, work), total=len(work), unit="job", disable=None):
            totals = found.setdefault(pair_of(job), [0, 0])
            totals[0] += outputs
            totals[1] += differing
            if differing:
                print(f"{differing} of {outputs} outputs differ: {job}", file=sys.stderr)
    rows = [Row(f"{preset}: {pair}", f"of {n} differ", bad, "none") for (preset, pair), (n, bad) in found.items()]
    total = sum(n for n, _ in found.values())
    wrong = sum(bad for _, bad in found.values())
    show([*rows, Row("all", f"of {total} differ", wrong, "none")], chosen.json)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
