"""Measure the energy of instructions on the GPU of this machine, in pJ per product of a stored element of A.

Such a product is called a kept product. Some SMs repeat a loop on random operands for about a second, while NVIDIA's
energy counter is read. The baseline, the power of the GPU while warps of these SMs sleep, is subtracted. The baseline
depends on temperature and is therefore measured between the loops. The result includes all parts that an instruction
uses: register file or shared memory, tensor cores, accumulators.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BackendError
from ..isa.instructions import Instruction, every_instruction
from .cycles import ELEMENTS, written
from .device import device, load_cupy, load_kernel
from .distributions import DISTRIBUTIONS, operands
from .loops import ENTRY, WORDS, Loop, kernel
from .power import EnergyCounter

__all__ = ["COLUMNS", "Energy", "Meter", "Work", "table", "works"]

#: Column names of the CSV table of energies.
COLUMNS = (
    *("instruction", "a_from", "accumulators", "a", "b", "metadata", "sms", "clock_mhz", "temperature", "watts"),
    *("baseline_watts", "kept_mac_per_cycle_sm", "pj_per_kept_mac"),
)
#: Names of the operand distributions with which most formats are measured. Instructions on f16, and ``mma`` on s8, are
#: measured with all distributions.
_FEW = ("zeros", "normal", "bits")
_LANES, _WARPGROUP, _WARPS = 32, 4, 8
#: Number of iterations of a trial run that measures the time per iteration, and time in seconds between the start of a
#: loop and the first reading of the energy counter.
_TRIAL, _SETTLING = 2000, 0.25
#: Maximum time in seconds between two updates of a working energy counter.
_LONGEST_STEP = 5.0
#: Number of loops whose energy is measured before the baseline power is measured again.
_BETWEEN = 6


@dataclass(frozen=True)
class Work:
    """A loop of instructions for an energy measurement, with the distributions of its operands."""

    loop: Loop
    #: Names of the distributions of A and of B, items of :data:`~sptc.gpu.distributions.DISTRIBUTIONS`.
    a: str
    b: str
    #: Metadata: ``"random"`` (random defined nibbles) or ``"fixed"`` (one defined nibble). Ignored without sparsity.
    metadata: str = "random"


@dataclass(frozen=True)
class Energy:
    """Measured energy of a loop of instructions."""

    work: Work
    sms: int  #: Number of SMs that run the loop of instructions
    clock: float  #: SM clock frequency in MHz, from the SM's cycle counter
    temperature: int  #: Temperature of the GPU during the loop, in degrees Celsius
    #: Power of the whole GPU in W: while the loop runs, and while warps of the same SMs sleep (the baseline).
    watts: float
    baseline: float
    rate: float  #: Number of kept products (products of stored elements of A) per SM and cycle

    @property
    def picojoules(self) -> float:
        """Energy above the baseline, in pJ per kept product (product of a stored element of A)."""
        return 1e6 * (self.watts - self.baseline) / (self.rate * self.clock * self.sms)


def works(arch: str) -> Iterator[Work]:
    """Yield the loops that are measured to characterise the energy of an architecture's instructions.

    The loops differ in format, distribution, sparsity, and accumulators of 16 or 32 bits; for ``wgmma`` also in N and
    in the memory that contains A.
    """
    for i in every_instruction():
        if arch not in i.architectures or not _is_chosen(i):
            continue
        is_mma, is_f16 = i.family == "mma", i.a.name == "f16" and i.d.bits == 32
        plain = Loop(i, _WARPS if is_mma else _WARPGROUP, accumulators=8 if is_mma else 1, given=True, negated=True)
        if is_mma:
            plain = replace(plain, operands=2, group=16)
        of_memory = ("registers",) if is_mma else ("registers", "shared") if is_f16 else ("shared",)
        widest = is_mma or i.n == _WIDEST
        for a_from in of_memory:
            loop = replace(plain, a_from=a_from)
            kinds = DISTRIBUTIONS if widest and (is_f16 or (is_mma and i.a.name == "s8")) else _FEW
            yield from (Work(loop, kind, kind) for kind in (kinds if widest else ("normal",)))
            if widest and i.sparse:
                yield Work(loop, "normal", "normal", "fixed")
            if is_mma and is_f16:
                yield from (Work(loop, "normal", "zeros"), Work(loop, "zeros", "normal"))


#: Values of N with which ``wgmma`` is measured: the largest for all formats, the smaller values only for f16.
_WIDEST, _NARROWER = 256, (8, 32, 64, 128)


def _is_chosen(i: Instruction) -> bool:
    if i.a != i.b or i.a.name not in ELEMENTS or i.satfinite or i.sparse == "sp::ordered_metadata":
        return False
    if i.family == "mma":
        long = i.stored_k * i.container_bits == 8 * _LANES
        return long and i.m == 16 and i.a.name != "e4m3"
    if i.a.name == "f16" and i.d.bits == 32 and i.n in _NARROWER:
        return True
    return i.n == _WIDEST and (i.d.bits == 32 or i.a.name == "f16")


class Meter:
    """Runs loops on some SMs and measures the GPU's power. Each measurement takes a given number of seconds.

    The SMs in use, one CTA each, must be few enough that the GPU does not reach its power limit. Raise a `BackendError`
    if there is no GPU, its energy counter cannot be read, or the GPU has fewer than `sms` SMs.
    """

    def __init__(self, sms: int, seconds: float) -> None:
        self._gpu, self._cupy, self._counter = device(), load_cupy(), EnergyCounter()
        runtime = self._cupy.cuda.runtime
        there = runtime.getDeviceProperties(runtime.getDevice())["multiProcessorCount"]
        if sms > there:
            raise BackendError(f"the GPU, {self._gpu.name}, has only {there} SMs, but {sms} SMs are requested")
        self._sms, self._seconds = sms, seconds

    def measure(self, works: Sequence[Work], rng: np.random.Generator) -> Iterator[Energy]:
        """Measure the energy of each loop, in order, and the baseline power before the loops and after every few loops.

        The generator `rng` draws the operands. Raise a `BackendError` if the GPU cannot run a loop.
        """
        if not works:
            return
        idle = replace(works[0].loop, group=0)
        self._run(works[0], rng)  # Warm up the GPU before measuring, since a cold GPU uses less power.
        before = self._run(replace(works[0], loop=idle), rng)
        for first in range(0, len(works), _BETWEEN):
            some = works[first : first + _BETWEEN]
            taken = [self._run(work, rng) for work in some]
            behind = self._run(replace(works[0], loop=idle), rng)
            for number, one in enumerate(taken, 1):
                share = number / (len(some) + 1)
                yield replace(one, baseline=before.watts + share * (behind.watts - before.watts))
            before = behind

    def _run(self, work: Work, rng: np.random.Generator) -> Energy:
        """Run a loop and measure its energy. The baseline, which is measured separately, is zero in the result."""
        cupy, loop = self._cupy, work.loop
        try:
            function = load_kernel(kernel([loop], self._gpu.arch), ENTRY)
            inputs = cupy.asarray(operands(loop, work.a, work.b, work.metadata, rng))
            counts = cupy.zeros((loop.warps, WORDS), cupy.uint64)
            results = cupy.zeros((loop.warps, _LANES), cupy.uint32)

            def start(times: int) -> tuple[Any, Any]:
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                function((self._sms,), (_LANES * loop.warps,), (counts, results, np.uint32(times), inputs))
                end.record()
                return begin, end

            def seconds_of(begin: Any, end: Any) -> float:
                end.synchronize()
                return float(cupy.cuda.get_elapsed_time(begin, end)) / 1000

            seconds_of(*start(_TRIAL))
            times = round(_TRIAL * (self._seconds + 2 * _SETTLING) / seconds_of(*start(_TRIAL)))
            events = start(times)
            watts, temperature = self._watts(), self._counter.temperature()
            seconds = seconds_of(*events)
            cycles, rounds = cupy.asnumpy(counts).astype(np.float64).mean(axis=0)
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            raise BackendError(f"the GPU, {self._gpu.name}, does not run {loop.instruction} ({error})") from None
        clock, rate = cycles / seconds / 1e6, rounds * loop.group * _kept(loop) / cycles
        return Energy(work, self._sms, clock, temperature, watts, 0.0, rate)

    def _watts(self) -> float:
        """Return the GPU's mean power in W in a measurement that begins and ends at an update of the energy counter."""
        time.sleep(_SETTLING)
        first, begun = self._step()
        time.sleep(self._seconds - _SETTLING)
        last, ended = self._step()
        return (last - first) / (ended - begun)

    def _step(self) -> tuple[float, float]:
        """Wait for the next update of the GPU's energy counter. Return its value in J and its time in s."""
        before, begun = self._counter.joules(), time.perf_counter()
        while (now := self._counter.joules()) == before:
            if time.perf_counter() - begun > _LONGEST_STEP:
                raise BackendError(f"the energy counter of the GPU, {self._gpu.name}, does not increase")
            time.sleep(0.0005)
        return now, time.perf_counter()


def _kept(loop: Loop) -> int:
    """Return the number of products of stored elements of A if all warps of the loop execute one instruction."""
    i = loop.instruction
    return i.m * i.n * i.stored_k * (loop.warps if i.family == "mma" else loop.warps // _WARPGROUP)


def table(about: str, measured: Iterable[Energy]) -> str:
    """Return measurements as CSV: a line that describes the GPU, the column names :data:`COLUMNS`, and the rows."""

    def row(one: Energy) -> list[object]:
        work, loop = one.work, one.work.loop
        of_work = (loop.instruction, loop.a_from, loop.accumulators, work.a, work.b)
        metadata = work.metadata if loop.instruction.sparse else ""
        figures = (f"{one.watts:.1f}", f"{one.baseline:.1f}", f"{one.rate:.1f}", f"{one.picojoules:.3f}")
        return [*of_work, metadata, one.sms, f"{one.clock:.0f}", one.temperature, *figures]

    return written(about, COLUMNS, map(row, measured))
