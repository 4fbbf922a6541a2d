"""Kernels that count cycles: NVIDIA's assembler takes them as they are meant, and they say what is meant."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sptc.gpu.cycles import arrangements, beside_each_other, chosen
from sptc.gpu.energy import works
from sptc.gpu.loops import ENTRY, Loop, kernel
from sptc.gpu.ptx import target
from sptc.isa.instructions import parse
from sptc.isa.memory import decode_descriptor, operand_map
from sptc.tests.isa.assembler import ptxas

ARCHITECTURES = ("sm_80", "sm_89", "sm_90")
SPARSE = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
WGMMA = parse("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16")


def every_loop(arch: str) -> list[list[Loop]]:
    instructions = [*chosen(arch)]
    alone = [[loop] for i in instructions for loop in arrangements(i, arch)]
    given = [[loop] for work in works(arch) for loop in (work.loop, replace(work.loop, group=0))]
    return [*alone, *([*pair] for pair in beside_each_other(instructions)), *given]


@pytest.mark.quick_cases(1)
@pytest.mark.skipif(sys.platform != "linux", reason="the assembler comes for Linux")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_assemble(arch: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Two dozen, drawn; instructions of ``wgmma`` overlap, which the assembler says if they cannot."""
    loops = every_loop(arch)
    for number in rng.choice(len(loops), 24, replace=False):
        path = tmp_path / "loops.ptx"
        path.write_text(kernel(loops[number], arch), encoding="ascii")
        command = [ptxas(), f"-arch={target(arch)}", "-v", path, "-o", tmp_path / "loops"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "serialized" not in done.stdout + done.stderr, loops[number]
        assert "0 bytes spill stores" in done.stdout + done.stderr, loops[number]


def test_operands_in_turn() -> None:
    """Registers of A and B that no other instruction of the turn has."""
    text = kernel([Loop(SPARSE, 4, accumulators=2, operands=3, group=6)], "sm_90")
    found = re.findall(r"^  mma\.\S+ \{%d(\d)_0, .*\{%a(\d)_0, .*\{%b(\d)_0, ", text, re.MULTILINE)
    assert found == [(str(number % 2), str(number % 3), str(number % 3)) for number in range(6)]
    assert len({*re.findall(r"add.u32 %[ab]\d_\d, %unknown, (\d+);", text)}) == 3 * (4 + 4)


def test_what_goes_round() -> None:
    """As many instructions as a group has, on the accumulators in turn, between the label and the branch."""
    for loop in (Loop(SPARSE, 4, accumulators=3, group=7), Loop(WGMMA, 4, group=5, pending=1)):
        text = kernel([loop], "sm_90")
        assert f".visible .entry {ENTRY}(" in text
        body = text.split("round:")[1].split("@%more bra round;")[0]
        found = re.findall(rf"^  {re.escape(str(loop.instruction))} \{{%d(\d)_0,", body, re.MULTILINE)
        assert found == [str(number % loop.accumulators) for number in range(loop.group)]
        assert body.count("commit_group") == (loop.instruction.family == "wgmma")
        assert text.index("mov.u64 %begin, %clock64") < text.index("round:") < text.index("mov.u64 %end, %clock64")


def test_operands_fill_shared_memory() -> None:
    """Every element of A and B has a place of its own in what the kernel clears."""
    for swizzle, transposed in product(("none", "32B", "64B", "128B"), product((0, 1), repeat=2)):
        text = kernel([Loop(WGMMA, 4, a_from="shared", swizzle=swizzle, transposed=transposed)], "sm_90")
        size = int(re.search(r"image\[(\d+)\]", text)[1])
        places: set[int] = set()
        for name, trans in zip("ab", transposed, strict=True):
            descriptor = decode_descriptor(int(re.search(rf"%descriptor_{name}, %start, (\d+);", text)[1]))
            addresses = operand_map(WGMMA, name, descriptor, transposed=bool(trans)).addresses
            assert len({*addresses.ravel().tolist()}) == addresses.size, (swizzle, transposed)
            assert places.isdisjoint(addresses.ravel().tolist()), (swizzle, transposed)
            places.update(addresses.ravel().tolist())
        assert max(places) < size


def test_the_other_loop_ends_with_the_first() -> None:
    first, second = kernel([Loop(WGMMA, 4), Loop(SPARSE, 8)], "sm_90").split("round:")[1:]
    assert "setp.lt.u32 %more, %round, %times;" in first
    assert "ld.volatile.shared.b32 %said, [finished];" in second
    assert ".maxntid 384" in kernel([Loop(WGMMA, 4), Loop(SPARSE, 8)], "sm_90")
