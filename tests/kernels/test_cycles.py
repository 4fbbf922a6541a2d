"""Cycles of launches, compared with numbers that are counted by hand from the shapes of the instructions."""

import re

from sptc.tests.kernels.recorded import recorded


def test_wgmma_by_loop() -> None:
    """64 instructions m64n64k16 with both operands in shared memory: 32 cycles each of multiplication and of reads."""
    run = recorded("triton.f16.128").run()[1]
    whole, loop = run.loops
    assert run.cycles == 64 * 32
    assert (loop.multiplications, whole.multiplications) == (64, 64)
    assert whole.cycles is not None
    assert loop.cycles is not None
    assert loop.cycles["tensor core"] == 64 * 64 / 2
    # In each of 16 iterations, the loop copies 64 x 64 f16 elements of A and of B, and executes four instructions.
    reads, copies = 64 * (64 * 32 + 64 * 16 * 2) / 128, 16 * 2 * 64 * 64 * 2 / 128
    assert loop.cycles["shared memory"] == reads + copies
    assert loop.bound_by == "shared memory"
    assert whole.cycles["shared memory"] > loop.cycles["shared memory"]
    assert whole.first_line < loop.first_line < loop.last_line < whole.last_line


def test_mma_takes_its_interval() -> None:
    run = recorded("triton.small.mma").run()[1]
    assert run.cycles == 64 * 6 / 4  # on one of four tensor cores, six cycles each


def test_instructions_of_one_line() -> None:
    kernel = recorded("triton.small.mma")
    text = re.sub(r"\n\s*(mma\.sync)", r" \1", kernel.ptx)
    assert text != kernel.ptx
    assert kernel.run(text, arch="sm_90a")[1].cycles == 64 * 6 / 4


def test_an_architecture_without_a_law() -> None:
    run = recorded("triton.small.mma").run(arch="sm_80")[1]
    assert run.cycles is None
    assert run.loops[0].cycles is None
    assert str(run.loops[0]).endswith("64 tensor-core instructions, cycles not known")
