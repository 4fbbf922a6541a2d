"""Compile the CUDA C++ kernels of ``benchmarks/cuda``, and write the PTX and the launch description of each kernel.

    python benchmarks/compile_cuda.py FILE.npz [--only TEXT]

The script needs ``nvcc``, but no GPU. The script compiles one kernel for each instruction in ``CASES``: ``mma`` and
``mma.sp`` for sm_80 and sm_89, ``wgmma`` and ``wgmma.sp`` for sm_90a, block-scaled ``mma`` and ``mma.sp`` for sm_120a.
``benchmarks/launch_kernels.py`` launches the kernels for sm_90a on a GPU and adds a digest of each result;
``tests/kernels/test_compilers.py`` runs the recorded kernels on the model.
"""

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from kernel_records import fields
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.instructions import Instruction, parse

SOURCES = Path(__file__).parent / "cuda"
#: M and N of the product D, and rows and columns of D that a CTA of ``warp.cu`` computes.
M, N, WARP_TILE = 128, 192, 64
#: Number of instructions along K. A stage of the software pipeline holds operands of two ``mma`` or four ``wgmma``.
STEPS = 8
STAGE_BYTES_A = 128


@dataclass(frozen=True)
class Case:
    """A kernel to compile: the tensor-core instruction, and for ``wgmma`` the location and swizzle of the operands."""

    name: str
    arch: str
    opcode: str
    selector: int = 0
    warpgroups: int = 1
    swizzle: int = 128
    a_in_registers: bool = False


_MMA, _SP, _ORDERED = (f"mma{word}.sync.aligned" for word in ("", ".sp", ".sp::ordered_metadata"))
_WGMMA, _WGMMA_SP = (f"wgmma.mma_async{word}.sync.aligned" for word in ("", ".sp"))
_SCALED = "row.col.kind::{}.block_scale.scale_vec::{}X"
_MXF8, _MXF4, _NVF4 = _SCALED.format("mxf8f6f4", 1), _SCALED.format("mxf4nvf4", 2), _SCALED.format("mxf4nvf4", 4)
CASES = [
    Case("mma.f16", "sm_80", f"{_MMA}.m16n8k16.row.col.f32.f16.f16.f32"),
    Case("mma.f16.f16", "sm_80", f"{_MMA}.m16n8k16.row.col.f16.f16.f16.f16"),
    Case("mma.bf16", "sm_80", f"{_MMA}.m16n8k16.row.col.f32.bf16.bf16.f32"),
    Case("mma.tf32", "sm_80", f"{_MMA}.m16n8k8.row.col.f32.tf32.tf32.f32"),
    Case("mma.s8", "sm_80", f"{_MMA}.m16n8k32.row.col.s32.s8.s8.s32"),
    Case("mma.e4m3", "sm_89", f"{_MMA}.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    Case("mma.e5m2.e4m3.f16", "sm_89", f"{_MMA}.m16n8k32.row.col.f16.e5m2.e4m3.f16"),
    Case("mma.sp.f16", "sm_80", f"{_SP}.m16n8k32.row.col.f32.f16.f16.f32"),
    Case("mma.sp.f16.f16", "sm_80", f"{_SP}.m16n8k32.row.col.f16.f16.f16.f16", selector=1),
    Case("mma.sp.tf32", "sm_80", f"{_SP}.m16n8k16.row.col.f32.tf32.tf32.f32"),
    Case("mma.sp.s8", "sm_80", f"{_SP}.m16n8k64.row.col.s32.s8.s8.s32"),
    Case("mma.sp_ordered.f16", "sm_80", f"{_ORDERED}.m16n8k32.row.col.f32.f16.f16.f32", selector=1),
    Case("mma.sp_ordered.bf16", "sm_80", f"{_ORDERED}.m16n8k32.row.col.f32.bf16.bf16.f32"),
    Case("mma.sp_ordered.tf32", "sm_80", f"{_ORDERED}.m16n8k16.row.col.f32.tf32.tf32.f32", selector=1),
    Case("mma.sp_ordered.u8.s8", "sm_80", f"{_ORDERED}.m16n8k64.row.col.s32.u8.s8.s32"),
    Case("mma.sp.e4m3", "sm_89", f"{_SP}.m16n8k64.row.col.f32.e4m3.e4m3.f32"),
    Case("mma.sp_ordered.e5m2", "sm_89", f"{_ORDERED}.m16n8k64.row.col.f32.e5m2.e5m2.f32"),
    Case("wgmma.f16", "sm_90a", f"{_WGMMA}.m64n96k16.f32.f16.f16", warpgroups=2),
    Case("wgmma.bf16.core_matrices", "sm_90a", f"{_WGMMA}.m64n64k16.f32.bf16.bf16", swizzle=0),
    Case("wgmma.tf32.a_in_registers", "sm_90a", f"{_WGMMA}.m64n32k8.f32.tf32.tf32", a_in_registers=True),
    Case("wgmma.e4m3", "sm_90a", f"{_WGMMA}.m64n192k32.f32.e4m3.e4m3"),
    Case("wgmma.s8", "sm_90a", f"{_WGMMA}.m64n96k32.s32.s8.s8"),
    Case("wgmma.sp.f16", "sm_90a", f"{_WGMMA_SP}.m64n96k32.f32.f16.f16", warpgroups=2),
    Case("wgmma.sp.f16.f16", "sm_90a", f"{_WGMMA_SP}.m64n192k32.f16.f16.f16", selector=1),
    Case("wgmma.sp.bf16.a_in_registers", "sm_90a", f"{_WGMMA_SP}.m64n64k32.f32.bf16.bf16", a_in_registers=True),
    Case("wgmma.sp.f16.core_matrices", "sm_90a", f"{_WGMMA_SP}.m64n48k32.f32.f16.f16", swizzle=0, selector=1),
    Case("wgmma.sp.tf32", "sm_90a", f"{_WGMMA_SP}.m64n64k16.f32.tf32.tf32"),
    Case("wgmma.sp.e4m3", "sm_90a", f"{_WGMMA_SP}.m64n96k64.f32.e4m3.e4m3"),
    Case("wgmma.sp.e5m2.e4m3.f16", "sm_90a", f"{_WGMMA_SP}.m64n32k64.f16.e5m2.e4m3", a_in_registers=True),
    Case("wgmma.sp.s8", "sm_90a", f"{_WGMMA_SP}.m64n64k64.s32.s8.s8", warpgroups=2),
    Case("wgmma.sp.u8.s8.core_matrices", "sm_90a", f"{_WGMMA_SP}.m64n24k64.s32.u8.s8", swizzle=0),
    Case("mma.mxf8.e4m3", "sm_120a", f"{_MMA}.m16n8k32.{_MXF8}.f32.e4m3.e4m3.f32.ue8m0"),
    Case("mma.mxf8.e5m2.e4m3", "sm_120a", f"{_MMA}.m16n8k32.{_MXF8}.f32.e5m2.e4m3.f32.ue8m0"),
    Case("mma.mxf4", "sm_120a", f"{_MMA}.m16n8k64.{_MXF4}.f32.e2m1.e2m1.f32.ue8m0"),
    Case("mma.nvf4", "sm_120a", f"{_MMA}.m16n8k64.{_NVF4}.f32.e2m1.e2m1.f32.ue4m3"),
    Case("mma.sp.mxf8.e4m3", "sm_120a", f"{_ORDERED}.m16n8k64.{_MXF8}.f32.e4m3.e4m3.f32.ue8m0"),
    Case("mma.sp.mxf8.e5m2", "sm_120a", f"{_ORDERED}.m16n8k64.{_MXF8}.f32.e5m2.e5m2.f32.ue8m0"),
    Case("mma.sp.mxf4", "sm_120a", f"{_ORDERED}.m16n8k128.{_MXF4}.f32.e2m1.e2m1.f32.ue8m0"),
    Case("mma.sp.nvf4", "sm_120a", f"{_ORDERED}.m16n8k128.{_NVF4}.f32.e2m1.e2m1.f32.ue4m3"),
]  # fmt: skip


def _list(*names: str) -> str:
    return "{" + ", ".join(names) + "}"


class Assembly:
    """Operands of an inline assembly statement (``asm``), numbered in the order in which `add` gets them."""

    def __init__(self) -> None:
        self.constraints: list[str] = []

    def add(self, constraint: str, *expressions: str) -> list[str]:
        """Add operands to the assembly statement, and return their placeholders in the text of the statement."""
        first = len(self.constraints)
        self.constraints += [f'"{constraint}"({expression})' for expression in expressions]
        return [f"%{first + place}" for place in range(len(expressions))]


def multiply(case: Case, instruction: Instruction, d_registers: int, b_registers: int) -> str:
    """Return the CUDA C++ device function that executes one tensor-core instruction."""
    assembly = Assembly()
    d = _list(*assembly.add("+r", *(f"d[{i}]" for i in range(d_registers))))
    a = [f"a[{i}]" for i in range(4)]
    if instruction.family == "mma":
        parameters = f"const uint32_t (&a)[4], const uint32_t (&b)[{b_registers}], uint32_t e, uint32_t sa, uint32_t sb"
        operands = [d, _list(*assembly.add("r", *a)),
                    _list(*assembly.add("r", *(f"b[{i}]" for i in range(b_registers)))), d]  # fmt: skip
    else:
        parameters = "const uint32_t (&a)[4], uint64_t of_a, uint64_t of_b, uint32_t e"
        left = _list(*assembly.add("r", *a)) if case.a_in_registers else assembly.add("l", "of_a")[0]
        operands = [d, left, *assembly.add("l", "of_b")]
    if instruction.sparse:
        operands += [*assembly.add("r", "e"), str(case.selector)]
    if instruction.scale_size:
        for name in ("sa", "sb"):
            operands += [*assembly.add("r", name), "{0, 0}"]
    if instruction.family == "wgmma":
        integers, transposes = instruction.a.name in ("s8", "u8"), instruction.a.name in ("f16", "bf16")
        operands += ["p", *([] if integers else ["1", "1"]), *["0"] * (transposes * (1 if case.a_in_registers else 2))]
    text = f"{case.opcode} {', '.join(operands)};"
    if instruction.family == "wgmma":
        text = f"{{ .reg .pred p; setp.eq.u32 p, 0, 0; {text} }}"
    outputs, inputs = (", ".join(assembly.constraints[part]) for part in (slice(d_registers), slice(d_registers, None)))
    return (f"__device__ void multiply(uint32_t (&d)[{d_registers}], {parameters}) {{\n"
            f'    asm volatile("{text}" : {outputs} : {inputs} : "memory");\n}}\n')  # fmt: skip


def b_bytes(instruction: Instruction) -> int:
    """Return the number of bytes that one instruction reads along K from each column of B."""
    return 64 if instruction.sparse else 32


def source(case: Case) -> str:
    """Return the CUDA C++ source of a kernel: constants, function ``multiply``, and an include of a kernel file."""
    instruction = parse(case.opcode)
    d_registers, b_size = accumulator_fragment(instruction).registers, b_bytes(instruction)
    constants = {"B_BYTES": b_size, "D_REGISTERS": d_registers}
    if instruction.family == "mma":
        constants["SCALES"] = instruction.scale_size or 0
        file = "warp.cu"
    else:
        constants |= {"N": instruction.n, "WARPGROUPS": case.warpgroups, "SWIZZLE": case.swizzle,
                      "A_IN_REGISTERS": int(case.a_in_registers)}  # fmt: skip
        file = "warpgroup.cu"
    head = "".join(f"constexpr int {name} = {value};\n" for name, value in constants.items())
    function = multiply(case, instruction, d_registers, b_size // 16)
    return f'#include <cstdint>\n{head}{function}#include "{file}"\n'


def compile_case(case: Case, nvcc: str) -> str:
    """Return the compiled PTX of a kernel, without comments."""
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "kernel.cu"), Path(folder, "kernel.ptx")
        path.write_text(source(case), encoding="utf-8")
        virtual = case.arch.replace("sm", "compute")
        command = [nvcc, "-ptx", f"-arch={virtual}", "-std=c++17", "-I", str(SOURCES), "-o", str(output), str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{case.name}: {result.stderr}")
        return "\n".join(line for line in output.read_text(encoding="utf-8").splitlines() if not line.startswith("//"))


def launch(case: Case, seed: int) -> dict[str, Any]:
    """Return the launch description of a kernel: geometry, arguments and operands."""
    instruction = parse(case.opcode)
    of_mma, sparse, scales = instruction.family == "mma", bool(instruction.sparse), instruction.scale_size
    rows = WARP_TILE if of_mma else 64 * case.warpgroups
    columns = WARP_TILE if of_mma else instruction.n
    kinds = [{"tf32": "f32"}.get(fmt.name, fmt.name) for fmt in (instruction.a, instruction.b, instruction.d)]
    element = 2 if instruction.a.name == "e2m1" else 1
    arrays: dict[str, tuple[str, Sequence[int]]] = {"a": (kinds[0], (M, instruction.stored_k * STEPS // element))}
    if sparse:
        nibbles = "nibbles_1_2" if instruction.a.name == "tf32" else "nibbles"
        arrays["e"] = (nibbles, (M // instruction.m, STEPS, 4 * instruction.threads))
    arrays["b"] = kinds[1], (N, STEPS * instruction.k // element)
    if scales and instruction.scale_format:
        arrays |= {
            name: (instruction.scale_format.name, (side, STEPS * scales)) for name, side in (("sa", M), ("sb", N))
        }
    arrays["d"] = kinds[2], (M, N)
    names = ("a", "e", "b", "sa", "sb", "d") if of_mma else ("a", "e", "b", "d")
    stage = rows * STAGE_BYTES_A + columns * STAGE_BYTES_A * b_bytes(instruction) // 32
    return {
        "entry": "product", "arch": case.arch.rstrip("a"), "opcode": case.opcode, "selector": case.selector,
        "grid": (N // columns, M // rows, 1), "block": (128 * case.warpgroups, 1, 1),
        "shared": 0 if of_mma else 2 * stage,
        "arguments": [*({"array": name} if name in arrays else 0 for name in names), N, STEPS],
        "arrays": arrays, "seed": seed,
    }  # fmt: skip


def main() -> None:
    """Compile all chosen kernels, and write the PTX and the launch description of each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    parser.add_argument("--only", default="", help="compile only kernels whose architecture and name contain this text")
    chosen = parser.parse_args()
    nvcc = shutil.which("nvcc")
    if not nvcc:
        parser.error("nvcc is not on the PATH")
    records: dict[str, np.ndarray] = {}
    for seed, case in enumerate(CASES):
        name = f"cuda.{case.arch.replace('_', '').rstrip('a')}.{case.name}"
        if chosen.only in name:
            ptx = compile_case(case, nvcc)
            records |= fields(name, ptx, launch(case, seed))
            print(f"{name}: {len(ptx)} characters of PTX", flush=True)
    np.savez(chosen.file, **records)


if __name__ == "__main__":
    main()
