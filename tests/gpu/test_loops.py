"""NVIDIA's assembler accepts every PTX kernel for measurements, and a fake GPU counts the cycles of kernels."""

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.gpu import ptx
from sptc.gpu.cycles import arrangements, beside_each_other, chosen, measure
from sptc.gpu.energy import works
from sptc.gpu.loops import ENTRY, Loop, kernel
from sptc.gpu.ptx import target
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.memory import decode_descriptor, operand_map
from sptc.isa.operands import Immediates
from sptc.isa.timing import is_sequence
from sptc.tests.cli.command_line import CommandLine
from sptc.tests.isa.assembler import ptxas

ARCHITECTURES = ("sm_80", "sm_89", "sm_90")
SPARSE = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
WGMMA = parse("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16")
#: Values of N of ``wgmma``: the smallest, a value that is not a power of two, and the largest.
SIZES = (8, 24, 256)


@pytest.mark.quick_cases(1)
@pytest.mark.skipif(sys.platform != "linux", reason="the packaged ptxas runs only on Linux")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_assemble(arch: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """The assembler accepts 24 random kernels, and does not warn that ``wgmma`` instructions cannot overlap."""
    instructions = [*chosen(arch)]
    alone = [[loop] for i in instructions for loop in arrangements(i, arch)]
    given = [[loop] for work in works(arch) for loop in (work.loop, replace(work.loop, group=0))]
    loops = [*alone, *([*pair] for pair in beside_each_other(instructions)), *given]
    for number in rng.choice(len(loops), 24, replace=False):
        path = tmp_path / "loops.ptx"
        path.write_text(kernel(loops[number], arch), encoding="ascii")
        command = [ptxas(), f"-arch={target(arch)}", "-v", path, "-o", tmp_path / "loops"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "serialized" not in done.stdout + done.stderr, loops[number]
        assert "0 bytes spill stores" in done.stdout + done.stderr, loops[number]


def test_body_of_a_loop() -> None:
    """The body of a loop has the instructions of one group, which use several sets of registers in rotation."""
    text = kernel([Loop(SPARSE, 4, accumulators=2, operands=3, group=6)], "sm_90")
    matches = re.findall(r"^  mma\.\S+ \{%d(\d)_0, .*\{%a(\d)_0, .*\{%b(\d)_0, ", text, re.MULTILINE)
    assert matches == [(str(number % 2), str(number % 3), str(number % 3)) for number in range(6)]
    assert len({*re.findall(r"add.u32 %[ab]\d_\d, %unknown, (\d+);", text)}) == 3 * (4 + 4)
    for loop in (Loop(SPARSE, 4, accumulators=3, group=7), Loop(WGMMA, 4, group=5, pending=1)):
        text = kernel([loop], "sm_90")
        assert f".visible .entry {ENTRY}(" in text
        body = text.split("round:")[1].split("@%more bra round;")[0]
        matches = re.findall(rf"^  {re.escape(str(loop.instruction))} \{{%d(\d)_0,", body, re.MULTILINE)
        assert matches == [str(number % loop.accumulators) for number in range(loop.group)]
        assert body.count("commit_group") == (loop.instruction.family == "wgmma")
        assert text.index("mov.u64 %begin, %clock64") < text.index("round:") < text.index("mov.u64 %end, %clock64")


def test_operands_fill_shared_memory_and_loops_end_together() -> None:
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
    head, first, second = kernel([Loop(WGMMA, 4), Loop(SPARSE, 8)], "sm_90").split("round:")
    assert ".maxntid 384" in head
    assert "setp.lt.u32 %more, %round, %times;" in first
    assert "ld.volatile.shared.b32 %flag, [finished];" in second


def launches(instruction: Instruction) -> list[Immediates]:
    """Return sets of immediate operands that contain the smallest and the largest value of each operand."""
    if instruction.family == "mma":
        scale_ids = (0, 1, 0, 3) if instruction.scale_size else (0, 0, 0, 0)
        return [Immediates(selector, scale_ids) for selector in {0, instruction.sparsity_selectors - 1}]
    minus = 1 if instruction.a.is_integer else -1
    trans = int(instruction.container_bits == 16)
    return [
        Immediates(instruction.sparsity_selectors - 1, a_in_registers=True, imm_scale=(minus, 1), imm_trans=(0, trans)),
        Immediates(0, a_in_registers=False, scale_d=False, imm_scale=(1, minus), imm_trans=(trans, 0)),
    ]


@pytest.mark.quick_cases(2)
@pytest.mark.skipif(sys.platform != "linux", reason="the packaged ptxas runs only on Linux")
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_kernel_assembles(arch: str, tmp_path: Path) -> None:
    instructions = [i for i in every_instruction() if arch in i.architectures and i.family != "tcgen05"]
    chosen = [i for i in instructions if i.family == "mma" or i.n in SIZES]
    bodies, heads = [], set()
    for number, (instruction, launch) in enumerate((i, launch) for i in chosen for launch in launches(i)):
        head, entry = ptx.kernel(instruction, arch, launch).split(".visible .entry run(")
        heads.add(head)
        bodies.append(f".visible .entry run{number}({entry}")
    path = tmp_path / "kernels.ptx"
    path.write_text(max(heads, key=lambda head: (head.split()[1], len(head))) + "".join(bodies), encoding="ascii")
    command = [ptxas(), f"-arch={target(arch)}", "-O0", path, "-o", tmp_path / "kernels"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "error" in line]) == (0, [])
    assert len(bodies) > 100


def test_cycles_of_loops(machine: Callable) -> None:
    """Cycles of an instruction exclude the fixed cost of a run, and are right for several warps and for two loops."""
    cupy = machine()
    for warps, cycles in ((1, 24), (4, 24), (8, 12), (16, 6)):
        (found,) = measure(Loop(SPARSE, warps, group=32))
        assert (found.cycles, found.beside) == (cycles, None)
    loop, other = Loop(WGMMA, 4), Loop(SPARSE, 8, accumulators=8, group=32)
    first, second = measure(loop, other)
    assert (first.loop, first.beside, first.cycles) == (loop, other, 24)
    assert (second.loop, second.beside, second.cycles) == (other, loop, 12)
    cupy.turns = 0
    assert measure(loop, other)[1].cycles == float("inf")
    cupy.refuses = "CUDA_ERROR_INVALID_PTX"
    with pytest.raises(sptc.BackendError, match=r"^the GPU, NVIDIA H200, does not run mma\.sp.*\(CUDA_ERROR_INVALID"):
        measure(Loop(SPARSE, 4))


def test_what_is_measured() -> None:
    results = [*chosen("sm_90")]
    kinds = {(i.family, i.sparse, i.a.name, i.k) for i in results}
    assert {("wgmma", "sp", "s8", 64), ("mma", "", "tf32", 4), ("mma", "sp::ordered_metadata", "bf16", 16)} <= kinds
    sequences = [i for i in results if is_sequence(i, "sm_90")]
    assert len(sequences) == 80
    assert all(loop.fresh for i in sequences for loop in arrangements(i, "sm_90"))
    assert not any(loop.fresh for loop in arrangements(SPARSE, "sm_90"))
    ways = [*arrangements(WGMMA, "sm_90")]
    assert len(set(ways)) == len(ways)
    pairs = {(loop.instruction.n, other.instruction.sparse) for loop, other in beside_each_other(results)}
    assert pairs == {*product((64, 128, 192, 256), ("", "sp"))}


def test_the_table(machine: Callable, tmp_path: Path, cli: CommandLine) -> None:
    machine()
    path = tmp_path / "cycles.csv"
    output, _ = cli.streams("cycles", "--instruction", SPARSE, WGMMA, "-o", path)
    about, *lines = path.read_text(encoding="utf-8").splitlines()
    assert about.startswith("# NVIDIA H200, CUDA 13.0, driver 580.159.04, 20")
    rows = [*csv.DictReader(lines)]
    assert len(rows) == sum(len([*arrangements(i, "sm_90")]) for i in (SPARSE, WGMMA))
    plain = {"a_from": "", "swizzle": "", "a_transposed": "0", "b_transposed": "0", "beside": "", "beside_warps": ""}
    counts = {"warps": "1", "accumulators": "1", "operands": "1", "group": "32", "pending": "1", "cycles": "24.000"}
    assert rows[0] == {"instruction": str(SPARSE), **plain, **counts}
    assert output == f"{len(rows)} measurements of 2 instructions in {path}\n"
    path.unlink()
    machine({"name": b"NVIDIA A100", "major": 8, "minor": 0})
    assert "sm_80" in cli.streams("cycles", "--instruction", WGMMA, "-o", path, status=2)[1]
    assert not path.exists()
