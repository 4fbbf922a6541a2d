"""The kernels: NVIDIA's assembler takes every one, and they say what the launch says."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from sptc.gpu.ptx import kernel, target
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.operands import Immediates
from sptc.tests.isa.assembler import ptxas

F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"
#: Of wgmma the smallest, the largest, and one whose n is no power of two.
SIZES = (8, 24, 256)


def launches(instruction: Instruction) -> list[Immediates]:
    """Return immediate operands at both ends of what there is."""
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
@pytest.mark.skipif(sys.platform != "linux", reason="the assembler comes for Linux")
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_kernel_assembles(arch: str, tmp_path: Path) -> None:
    """All of an architecture in one file, each with an entry of its own."""
    instructions = [i for i in every_instruction() if arch in i.architectures and i.family != "tcgen05"]
    chosen = [i for i in instructions if i.family == "mma" or i.n in SIZES]
    bodies, heads = [], set()
    for number, (instruction, launch) in enumerate((i, launch) for i in chosen for launch in launches(i)):
        head, entry = kernel(instruction, arch, launch).split(".visible .entry run(")
        heads.add(head)
        bodies.append(f".visible .entry run{number}({entry}")
    path = tmp_path / "kernels.ptx"
    path.write_text(max(heads, key=lambda head: (head.split()[1], len(head))) + "".join(bodies), encoding="ascii")
    done = subprocess.run(
        [ptxas(), f"-arch={target(arch)}", "-O0", path, "-o", tmp_path / "kernels"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "error" in line]) == (0, [])
    assert len(bodies) > 100


def test_what_a_kernel_says() -> None:
    text = kernel(parse(F16), "sm_90", Immediates(sparsity_selector=1))
    assert ".target sm_90a\n" in text
    registers = {name: ", ".join(f"%{name}{n}" for n in range(4)) for name in ("result", "a", "b", "c")}
    assert f"{F16} {', '.join(f'{{{group}}}' for group in registers.values())}, %e0, 0x1;" in text
    dense = kernel(parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "sm_80", Immediates())
    assert ".target sm_80\n" in dense
    assert "%e0" not in dense


def test_what_a_kernel_of_a_warpgroup_says() -> None:
    for in_registers, scale_d in product((True, False), repeat=2):
        launch = Immediates(1, a_in_registers=in_registers, scale_d=scale_d, imm_scale=(1, -1), imm_trans=(0, 1))
        text = kernel(parse(WGMMA), "sm_90", launch)
        a, trans = ("{%a0, %a1, %a2, %a3}", "1") if in_registers else ("%descriptor_a", "0, 1")
        accumulators = ", ".join(f"%c{n}" for n in range(8))
        assert f"{WGMMA} {{{accumulators}}}, {a}, %descriptor_b, %e0, 0x1, %adds, 1, -1, {trans};" in text
        assert f"setp.ne.u32 %adds, {int(scale_d)}, 0;" in text
        words = ("fence.proxy.async", "bar.sync", "wgmma.fence", "wgmma.mma", "commit", "wait_")
        places = [text.index(word) for word in words]
        assert places == sorted(places)
    text = kernel(parse("wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8"), "sm_90", Immediates())
    assert "%descriptor_b, %e0, 0x0, %adds;" in text  # integers have no signs and transposes
    assert text.count("wgmma.mma_async") == 1
