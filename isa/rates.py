"""Cycles of ``mma`` on architectures that this project did not measure, from rates in NVIDIA's white papers.

A white paper states operations per second, number of tensor cores and boost clock of a GPU, from which the rate of
dense instructions follows. A sparse instruction multiplies as many kept elements per cycle as a dense instruction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan

from .architectures import target_named
from .instructions import Instruction
from .numerics import Method, numerics
from .timing import ARCHITECTURE, Resource, Source, Timing, timing

__all__ = ["RATES", "Rates", "timing_on"]


@dataclass(frozen=True)
class Rates:
    """For each width of elements, the number of dense multiply-accumulates that one tensor core computes per cycle.

    Keys of `macs` are widths of an element in the datapath, with the prefix ``integer`` for integers and the suffix
    ``f16`` for floats that accumulate in f16.
    """

    source: str  #: Title of the white paper that states the rates, and name of the GPU
    macs: Mapping[str, int]


#: Multiply-accumulates per cycle and tensor core that are the same in all GeForce GPUs, with keys as in
#: :class:`Rates`. GeForce GPUs accumulate f16 and fp8 products in f32 at half the rate at which they accumulate in f16.
#: Data-centre GPUs with the same chip accumulate in both types at the same rate.
_GEFORCE = {"32": 32, "16": 64, "16 f16": 128, "integer 8": 256}
RATES: dict[str, Rates] = {
    "sm_80": Rates(
        "NVIDIA A100 Tensor Core GPU Architecture (2020), A100 SXM: 432 tensor cores, 1.41 GHz",
        {"32": 128, "16": 256, "16 f16": 256, "integer 8": 512, "integer 4": 1024},
    ),
    "sm_86": Rates(
        "NVIDIA Ampere GA102 GPU Architecture (2021), GeForce RTX 3090: 328 tensor cores, 1.695 GHz",
        {**_GEFORCE, "integer 4": 512},
    ),
    "sm_89": Rates(
        "NVIDIA Ada GPU Architecture (2022), GeForce RTX 4090: 512 tensor cores, 2.52 GHz",
        {**_GEFORCE, "8": 128, "8 f16": 256, "integer 4": 512},
    ),
    "sm_120": Rates(
        "NVIDIA RTX Blackwell GPU Architecture (2025), GeForce RTX 5090: 680 tensor cores, 2.407 GHz",
        {**_GEFORCE, "8": 128, "8 f16": 256, "4": 512},
    ),
}
_LIKE_SM_90 = f"the timing model of {ARCHITECTURE}, applied to another architecture"


def timing_on(instruction: Instruction, name: str, a_from: str = "registers") -> Timing | None:
    """Return the timing of an ``mma`` or ``wgmma`` on a target, or None if the target lacks the instruction.

    `name` is the name of the target; a ``wgmma`` reads A from `a_from`, ``"registers"`` or ``"shared"``. On sm_90, the
    timing is that of :func:`~sptc.isa.timing.timing`. On other architectures, it has an interval computed from
    :data:`RATES`, and NaN as the latency, which no public source states; but emulated instructions, and every ``mma``
    of sm_100, for which no rate is published, have the timing of sm_90. `source` is ``MODELLED`` for a target of
    another chip than that of the architecture, such as sm_87.
    """
    target = target_named(name)
    i, arch = instruction, target.arch
    if arch not in i.architectures or i.family == "tcgen05":
        return None
    if arch == ARCHITECTURE:
        cycles = timing(i, arch, a_from)
    elif (rates := RATES.get(arch)) is None or _is_emulated(i, arch):
        measured = timing(i, ARCHITECTURE)
        cycles = measured and replace(measured, source=Source.MODELLED, reference=_LIKE_SM_90)
    else:
        rate = rates.macs[_key(i)]
        interval = i.m * i.n * i.stored_k / rate
        cycles = Timing(interval, nan, Resource.TENSOR_CORE, rate, Source.DATA_SHEET, rates.source)
    return cycles and (cycles if target.same_chip else replace(cycles, source=Source.MODELLED))


def _is_emulated(i: Instruction, arch: str) -> bool:
    """Return whether an architecture emulates an instruction, because it has no hardware for 4-bit integers or fp8."""
    return numerics(i, arch).method is Method.EMULATED or (i.a.bits == 4 and i.a.is_integer and arch == "sm_120")


def _key(i: Instruction) -> str:
    """Return the key of an instruction in :attr:`Rates.macs`."""
    if i.a.is_integer:
        return f"integer {i.container_bits}"
    return f"{i.container_bits}{' f16' if i.d.bits == 16 else ''}"
