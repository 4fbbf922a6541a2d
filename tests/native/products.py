"""Random products for the C++ library, with matrices of any shape, several instructions along K, and any nibbles."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.random import Generator
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.native.library import KERNELS
from sptc.operands.registers import CONTAINERS
from sptc.sim.benches.random_operands import random_codes, random_matrices


def available() -> list[str]:
    """Return the names of the kernel builds that this processor can run, by its flags in /proc/cpuinfo."""
    information = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    flags = set(re.findall(r"\S+", "".join(re.findall(r"^flags\s*:(.*)$", information, re.MULTILINE)[:1])))
    needed = {"portable": set(), "avx2": {"avx2"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
    assert list(needed) == list(KERNELS)
    return [name for name, flag in needed.items() if flag <= flags]


def random_product(instruction: Instruction, distribution: str, rng: Generator, m: int, n: int) -> MatrixOperands:
    """Return the operands of two m x n products with one to three instructions along K."""
    steps = int(rng.integers(1, 4))
    whole = replace(instruction, m=m, n=n, k=steps * instruction.k)
    a, b, c = random_matrices(whole, distribution, 2, rng)
    container = CONTAINERS[instruction.container_bits]
    if instruction.container_bits == 4:
        a, b = a & 15, b & 15
    nibbles = rng.integers(0, 16, (2, m, whole.chunks), dtype=np.uint8) if instruction.sparse else None
    scales: list[np.ndarray | None] = [None, None]
    if instruction.scale_format and instruction.scale_size:
        spread = distribution if distribution in ("wide", "bits") else "mid"
        shapes = ((2, lines, steps * instruction.scale_size) for lines in (m, n))
        scales = [random_codes(instruction.scale_format, spread, shape, rng).astype(np.uint8) for shape in shapes]
    c = c.astype(CONTAINERS[instruction.d.bits])
    return MatrixOperands(a.astype(container), b.astype(container), c, nibbles, *scales)
