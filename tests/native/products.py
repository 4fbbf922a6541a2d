"""Names of kernel builds that this processor can run, and operands of random products for the C++ library."""

import re
import sys
from pathlib import Path

from numpy.random import Generator
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.native.library import KERNELS

from ..sim.matrices import matrices


def available() -> list[str]:
    """Return the names of the kernel builds that this processor can run, by its flags in /proc/cpuinfo."""
    information = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    flags = set(re.findall(r"\S+", "".join(re.findall(r"^flags\s*:(.*)$", information, re.MULTILINE)[:1])))
    needed = {"portable": set(), "avx2": {"avx2"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
    assert list(needed) == list(KERNELS)
    return [name for name, flag in needed.items() if flag <= flags]


def random_product(instruction: Instruction, distribution: str, rng: Generator, m: int, n: int) -> MatrixOperands:
    """Return the operands of two m x n products with one to three instructions along K."""
    return matrices(instruction, (2, m, n), distribution, rng, steps=int(rng.integers(1, 4)))
