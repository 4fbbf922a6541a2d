"""Measure the cycles of instructions on the GPU of this machine, in cycles of the SM clock."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..isa.instructions import Instruction, every_instruction
from ..isa.timing import is_sequence
from .device import device, load_cupy, load_kernel
from .loops import ENTRY, WORDS, Loop, kernel

__all__ = [
    "COLUMNS",
    "ELEMENTS",
    "Cycles",
    "arrangements",
    "beside_each_other",
    "chosen",
    "measure",
    "table",
    "written",
]

#: Numbers of loop iterations in a short and in a long run. The difference between the cycles of the two runs excludes
#: the fixed cost of a run.
_TIMES = (64, 192)
_RUNS = 5
#: Number of tensor cores of an SM. Each tensor core serves a fourth of the SM's warps.
_TENSOR_CORES = 4
_WARPGROUP = 4
_LANES = 32
#: Values of N for which ``wgmma`` is measured.
_SIZES = (8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256)
#: Two values of N: the largest N for which three warpgroups have enough registers for their accumulators, and the N for
#: which N elements of 16 bits fill one row of a swizzle pattern (128 bytes).
_SMALL, _PATTERN = 128, 64
#: Element formats whose instructions are measured. Every other format differs from one of these formats only in
#: signedness, or in the split between exponent and fraction.
ELEMENTS = ("f16", "bf16", "tf32", "e4m3", "s8")
#: Column names of the CSV table of cycles.
COLUMNS = (
    *("instruction", "a_from", "swizzle", "a_transposed", "b_transposed", "warps", "accumulators", "operands", "group"),
    *("pending", "beside", "beside_warps", "cycles"),
)


@dataclass(frozen=True)
class Cycles:
    """Measured cycles of one loop of instructions."""

    loop: Loop
    beside: Loop | None  #: Another loop that ran on other warps at the same time, or None
    #: Cycles from one instruction to the next on one tensor core (``wgmma``: on all tensor cores of an SM together).
    #: Infinite if the concurrent loop prevented all instructions of this loop.
    cycles: float


def chosen(arch: str) -> Iterator[Instruction]:
    """Yield the instructions whose cycles are measured on an architecture.

    Instructions that differ only in signedness, clamping or fp8 format take the same cycles, unless they are emulated.
    """
    for i in every_instruction():
        measured = i.a == i.b and i.a.name in ELEMENTS and not i.satfinite and (i.family == "mma" or i.n in _SIZES)
        if arch in i.architectures and (measured or is_sequence(i, arch)):
            yield i


def arrangements(instruction: Instruction, arch: str) -> Iterator[Loop]:
    """Yield loops that together measure the rate and the latency of one instruction.

    * ``mma``: one warp with dependent instructions; then more warps with eight accumulators each, on the same operands
      or on four sets of operands in turn.
    * ``wgmma``, with A in registers and in shared memory: commit groups of eight that overlap; commit groups of eight
      and fewer that do not; two warpgroups, and three if N is at most 128; for f16, if N fills whole swizzle patterns,
      every swizzle with K-major and MN-major operands.
    * An emulated sequence: one warp with dependent instructions; then more warps with four accumulators each. No value
      that is computed for one instruction can be reused by the next.
    """
    if is_sequence(instruction, arch):
        yield Loop(instruction, 1, group=8, fresh=True)
        yield from (Loop(instruction, warps, accumulators=4, group=8, fresh=True) for warps in (4, 8, 16))
        return
    if instruction.family == "mma":
        yield Loop(instruction, 1, group=32)
        for warps, operands in product((4, 8, 16), (1, 4)):
            yield Loop(instruction, warps, accumulators=8, operands=operands, group=32)
        return
    for a_from in ("registers", "shared"):
        plain = Loop(instruction, _WARPGROUP, a_from=a_from)
        yield plain
        yield from (replace(plain, group=group, pending=0) for group in (8, 4, 2, 1))
        yield replace(plain, warps=2 * _WARPGROUP)
        if instruction.n <= _SMALL:
            yield replace(plain, warps=3 * _WARPGROUP)
        if instruction.n % _PATTERN == 0 and instruction.a.name == "f16":
            of_a = (0, 1) if a_from == "shared" else (0,)
            for swizzle, a, b in product(("none", "32B", "64B", "128B"), of_a, (0, 1)):
                varied = replace(plain, swizzle=swizzle, transposed=(a, b))
                if varied != plain:
                    yield varied


def beside_each_other(instructions: Iterable[Instruction]) -> Iterator[tuple[Loop, Loop]]:
    """Yield pairs of loops that run concurrently on two warpgroups: ``wgmma.sp`` and ``mma``, both f16 with f32 D."""
    selected = [i for i in instructions if i.a.name == "f16" and i.d.name == "f32"]
    warps = [i for i in selected if i.family == "mma" and i.stored_k * i.container_bits == 8 * _LANES]
    warps = [i for i in warps if i.sparse != "sp::ordered_metadata"]
    for i, a_from, other in product(selected, ("registers", "shared"), warps):
        if i.family == "wgmma" and i.sparse and i.n % _PATTERN == 0:
            yield Loop(i, _WARPGROUP, a_from=a_from), Loop(other, _WARPGROUP, accumulators=8, group=32)


def measure(loop: Loop, beside: Loop | None = None) -> tuple[Cycles, ...]:
    """Measure the cycles of a loop, and of an optional concurrent loop on other warps. Return medians of a few runs.

    Raise a `BackendError` if there is no GPU, or the GPU cannot run the loops.
    """
    gpu, cupy, instruction = device(), load_cupy(), loop.instruction
    loops = [loop, *([beside] if beside else [])]
    try:
        runs = _runs(cupy, kernel(loops, gpu.arch), sum(one.warps for one in loops))
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise BackendError(f"the GPU, {gpu.name}, does not run {instruction} ({error})") from None
    others = (beside, loop)
    return tuple(
        Cycles(one, other, float(np.median([_slope(*pair, part, one) for pair in runs])))
        for one, other, part in zip(loops, others, _parts(loops), strict=False)
    )


def _runs(cupy: Any, text: str, warps: int) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the cycle and iteration counts of each warp for a few pairs of a short and a long run."""
    function = load_kernel(text, ENTRY)
    counts = cupy.zeros((warps, WORDS), cupy.uint64)
    results = cupy.zeros((warps, _LANES), cupy.uint32)

    def run(times: int) -> NDArray[np.float64]:
        function((1,), (_LANES * warps,), (counts, results, np.uint32(times)))
        cycles: NDArray[np.float64] = cupy.asnumpy(counts).astype(np.float64)
        return cycles

    run(_TIMES[0])
    return [(run(_TIMES[0]), run(_TIMES[1])) for _ in range(_RUNS)]


def _parts(loops: Sequence[Loop]) -> Iterator[slice]:
    first = 0
    for loop in loops:
        yield slice(first, first + loop.warps)
        first += loop.warps


def _slope(shorter: NDArray[np.float64], longer: NDArray[np.float64], part: slice, loop: Loop) -> float:
    """Return cycles per instruction of one tensor core, from a run with few and a run with many loop iterations."""
    cycles, rounds = (longer[part] - shorter[part]).mean(axis=0)
    sharing = max(1, loop.warps // _TENSOR_CORES)
    return float(cycles / (rounds * loop.group * sharing)) if rounds else np.inf


def table(about: str, measured: Iterable[Cycles]) -> str:
    """Return measurements as CSV: a line that describes the GPU, the column names :data:`COLUMNS`, and the rows."""

    def row(one: Cycles) -> list[object]:
        loop, other = one.loop, one.beside
        of_memory = (loop.a_from, loop.swizzle) if loop.instruction.family == "wgmma" else ("", "")
        others = (other.instruction, other.warps) if other else ("", "")
        repeated = (loop.warps, loop.accumulators, loop.operands, loop.group, loop.pending)
        return [loop.instruction, *of_memory, *loop.transposed, *repeated, *others, f"{one.cycles:.3f}"]

    return written(about, COLUMNS, map(row, measured))


def written(about: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return CSV text: a comment line with `about` (a description of the GPU), then the column names, then the rows."""
    text = io.StringIO(newline="")
    text.write(f"# {about}\n")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(rows)
    return text.getvalue()
