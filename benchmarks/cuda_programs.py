"""Compile CUDA programs, run them with their kernels on the model, and record a kernel of each.

    python benchmarks/cuda_programs.py RECORD.npz --cutlass FOLDER --marlin FOLDER [--only TEXT]
    python benchmarks/cuda_programs.py RECORD.npz --source FILE.cu --arch sm_90a [--include FOLDER] [-- ARGUMENTS]

The first form compiles programs in clones of CUTLASS and Sparse-Marlin, the second form one other program. The script
needs ``nvcc`` and ``g++``, but no GPU. ``cuda/runtime.cpp`` replaces the CUDA runtime, and each launch of a kernel
calls ``sptc.run_kernel``. A program of CUTLASS compares its result with a reference, and fails if they differ. The
record of a kernel contains its PTX, its launch, the arrays in global memory and a digest of these arrays after the
launch. ``benchmarks/launch_kernels.py`` launches the kernels for sm_80 and sm_90a on a GPU;
``tests/kernels/test_programs.py`` runs the recorded kernels on the model.
"""

import argparse
import ctypes
import hashlib
import re
import subprocess
import sys
import tempfile
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from kernel_records import fields
from launch_kernels import MAP_TYPES
from numpy.typing import NDArray
from sptc.errors import KernelError
from sptc.kernels.geometry import Launch
from sptc.kernels.launch import execute
from sptc.kernels.memory import GLOBAL_BASE, GlobalMemory, parameter_space
from sptc.kernels.program import Kernel
from sptc.kernels.ptx import parse_ptx
from sptc.kernels.tensor_maps import FILLS, MAP_BYTES, SWIZZLES, MapRecord

RUNTIME = Path(__file__).parent / "cuda" / "runtime.cpp"
#: First address that :class:`~sptc.kernels.memory.GlobalMemory` assigns.
FIRST_ADDRESS = GLOBAL_BASE + 512
#: PTX element type for each code of ``CUtensorMapDataType``.
ELEMENTS = {code: name for name, code in MAP_TYPES.items() if isinstance(name, str)}
SIZES = ("--m=256", "--n=256", "--k=512", "--iterations=0")


@dataclass(frozen=True)
class Case:
    """A program to compile, and the kernel to record: the first kernel whose name contains `kernel`."""

    name: str
    arch: str
    project: str  #: ``cutlass``, ``marlin``, or empty for any other program
    source: str  #: source path; relative to ``examples`` of CUTLASS, or to ``benchmarks/cuda`` for Sparse-Marlin
    arguments: tuple[str, ...] = SIZES
    kernel: str = "GemmUniversal"


CASES = [
    Case("cutlass.mma.sp.s4", "sm_80", "cutlass", "15_ampere_sparse_tensorop_gemm/ampere_sparse_tensorop_gemm.cu",
         (), "SparseGemm"),
    Case("marlin.mma.sp.f16", "sm_80", "marlin", "sparse_marlin.cu", ("256", "16", "512", "64"), "Marlin_2_4"),
    Case("cutlass.wgmma.sp.f16", "sm_90a", "cutlass", "62_hopper_sparse_gemm/62_hopper_sparse_gemm.cu",
         (*SIZES[:3], "--iterations=1", "--warmup=0"), "WarpSpecializedSparse"),
    Case("cutlass.tcgen05.sp.f16", "sm_100a", "cutlass", "83_blackwell_sparse_gemm/83_blackwell_sparse_gemm.cu"),
    Case("cutlass.tcgen05.sp.nvfp4", "sm_100a", "cutlass",
         "84_blackwell_narrow_precision_sparse_gemm/84a_blackwell_nvfp4_bf16_sparse_gemm.cu"),
    Case("cutlass.tcgen05.sp.mxfp8.mxfp4", "sm_100a", "cutlass",
         "84_blackwell_narrow_precision_sparse_gemm/84b_blackwell_mixed_mxfp8_bf16_sparse_gemm.cu"),
    Case("cutlass.mma.sp.mxfp8", "sm_120a", "cutlass",
         "80_blackwell_geforce_sparse_gemm/80a_blackwell_geforce_mxfp8_bf16_sparse_gemm.cu"),
    Case("cutlass.mma.mxfp8.mxfp6", "sm_120a", "cutlass",
         "79_blackwell_geforce_gemm/79c_blackwell_geforce_mixed_mxfp8_mxfp6_bf16_gemm.cu"),
]  # fmt: skip


def compiled(case: Case, includes: list[Path], folder: Path) -> tuple[Path, str]:
    """Compile a program. Return the shared library with its ``main``, and the PTX of its kernels."""
    source = Path(case.source)
    if case.project == "cutlass":
        (root,) = includes
        source = root / "examples" / source
        includes = [root / part for part in ("include", "tools/util/include", "examples/common")]
    elif case.project == "marlin":
        source, includes = RUNTIME.parent / source, [includes[0] / "marlin"]
    command = ["nvcc", "-std=c++17", "-O1", "-w", "-DNDEBUG", "--expt-relaxed-constexpr",
               f"-gencode=arch=compute_{case.arch[3:]},code=compute_{case.arch[3:]}", "-cudart=none", "-shared",
               "-Xcompiler=-fPIC", "--keep", f"--keep-dir={folder}", *(f"-I{each}" for each in includes),
               str(source), "-o", str(folder / "program.so")]  # fmt: skip
    subprocess.run(command, check=True)
    (ptx,) = folder.glob("*.ptx")
    return folder / "program.so", ptx.read_text()


def only_entry(ptx: str, name: str) -> str:
    """Return a PTX module with one entry, `name`. Variables that the remaining text does not use are removed."""
    head, *entries = re.split(r"(?m)^(?=(?:\.visible\s+)?(?:\.weak\s+)?\.entry )", ptx)
    entry = "".join(part for part in entries if f".entry {name}(" in part)
    kept = []
    for line in head.splitlines(keepends=True):
        variable = re.match(r"\.global .*? ([\w$]+)\[\d+\] = ", line)
        if not variable or variable[1] in head.replace(line, "") + entry:
            kept.append(line)
    return "".join(kept) + entry


class Runtime:
    """The CUDA runtime in ``cuda/runtime.cpp``, and the launches that it passes to ``sptc.run_kernel``."""

    def __init__(self, case: Case, ptx: str, library: Path) -> None:
        self.case, self.ptx, self.kernels = case, ptx, parse_ptx(ptx)
        self.cuda = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        #: Record of the chosen kernel, and the exception that ended a launch.
        self.record: dict[str, NDArray[np.uint8]] = {}
        self.error: Exception | None = None
        #: Fields of each tensor map that the program encoded, by the 128 bytes of the map.
        self.maps: dict[bytes, MapRecord] = {}
        launch = ctypes.CFUNCTYPE(None, c_char_p, POINTER(c_uint), c_uint, POINTER(c_void_p))(self.launch)
        encode = ctypes.CFUNCTYPE(None, c_void_p, POINTER(c_int), c_uint64, POINTER(c_uint64), POINTER(c_uint64),
                                  POINTER(c_uint32))(self.encode)  # fmt: skip
        self.functions = launch, encode  # a reference, because ctypes does not keep callbacks alive
        self.cuda.start(int(case.arch[3:].rstrip("a")), c_uint64(FIRST_ADDRESS), launch, encode)

    def allocations(self) -> dict[int, NDArray[np.uint8]]:
        """Return the device memory of the program, by address."""
        address, size, content, memory = c_uint64(), c_uint64(), c_void_p(), {}
        while self.cuda.allocation(len(memory), byref(address), byref(size), byref(content)):
            octets = (ctypes.c_uint8 * size.value).from_address(content.value) if content.value else ()
            memory[address.value] = np.asarray(octets, np.uint8)
        return memory

    def encode(self, target: int, codes: Any, address: int, sides: Any, strides: Any, box: Any) -> None:
        """Write a tensor map in the 128-byte format of the model, and store its fields in `maps`."""
        element, rank, interleave, swizzle, fill = codes[:5]
        if interleave or swizzle >= len(SWIZZLES):
            self.error = self.error or KernelError(f"a tensor map with {interleave=} and {swizzle=} is not modelled")
            return
        tile = MapRecord(address, tuple(sides[:rank]), tuple(strides[: rank - 1]), tuple(box[:rank]), ELEMENTS[element],
                         SWIZZLES[swizzle], FILLS[bool(fill)])  # fmt: skip
        self.maps[tile.encoded()] = tile
        ctypes.memmove(target, tile.encoded(), MAP_BYTES)

    def launch(self, name: bytes, sides: Any, shared: int, arguments: Any) -> None:
        """Run a kernel on the memory of the program. After an error, later launches do nothing."""
        if not self.error:
            try:
                self.run(name.decode(), sides, shared, arguments)
            except Exception as error:  # a Python exception cannot pass through the C++ code of the program
                self.error = error

    def run(self, name: str, sides: Any, shared: int, arguments: Any) -> None:
        """Run a kernel on the memory of the program, and record the launch of the chosen kernel."""
        kernel = self.kernels[name]
        values = [ctypes.string_at(arguments[i], parameter.size) for i, parameter in enumerate(kernel.parameters)]
        grid, block, cluster = (tuple(sides[i : i + 3]) for i in (0, 3, 6))
        memory = self.allocations()
        before = {address: array.copy() for address, array in memory.items()}
        image = GlobalMemory(memory.values(), kernel.variables)
        assert image.addresses[: len(memory)] == [*memory]
        # Results for sm_80 and sm_89 are compared with those of an H200, whose tensor cores have other numerics.
        arch = "sm_90" if self.case.arch in ("sm_80", "sm_89") else self.case.arch.rstrip("a")
        launch = Launch(grid, block, cluster, shared, arch, approximate=True)
        run = execute(kernel, launch, image, parameter_space(kernel, values), [*memory.items()])
        for array, content in run.buffers:
            array[:] = content
        print(run.printed, end="")
        print(f"  {kernel.name[:60]}: {run.instructions} thread instructions, {len(run.findings)} findings", flush=True)
        if self.case.kernel in kernel.name and not self.record:
            geometry = {"grid": grid, "block": block, "cluster": cluster, "shared": shared}
            self.save(kernel, geometry | {"arch": arch, "exact": run.exact}, values, before, memory)

    def save(self, kernel: Kernel, launch: dict[str, Any], values: list[bytes], before: dict[int, NDArray[np.uint8]],
             after: dict[int, NDArray[np.uint8]]) -> None:  # fmt: skip
        """Record a launch with the arrays to which its arguments refer."""
        names = {address: f"array{i}" for i, address in enumerate(before)}
        structures = [self.structure(value, before, names) for value in values]
        used = {item.get("array", item.get("map")) for each in structures for item in each["pointers"].values()}
        stored = {names[address]: array for address, array in before.items() if names[address] in used}
        launch |= {"entry": kernel.name, "arguments": structures, "stored": {n: a.size for n, a in stored.items()}}
        results = np.concatenate([array for address, array in after.items() if names[address] in used])
        self.record = fields(self.case.name, only_entry(self.ptx, kernel.name), launch, results, arrays=stored)

    def structure(self, content: bytes, memory: dict[int, NDArray[np.uint8]], names: dict[int, str]) -> dict[str, Any]:
        """Describe the bytes of an argument as in a launch file, with the pointers and tensor maps in it."""
        octets, pointers = bytearray(content), dict[str, Any]()
        for offset in range(0, len(octets) - 7, 8):
            if tile := self.maps.get(bytes(octets[offset : offset + MAP_BYTES])):
                size = MAP_BYTES
                pointers[str(offset)] = {
                    "map": names[tile.address], "box": tile.box[::-1], "shape": tile.shape[::-1],
                    "strides": (*tile.strides[::-1], max(tile.bits // 8, 1)), "element": tile.element,
                    "swizzle": tile.swizzle, "fill": tile.fill,
                }  # fmt: skip
            else:
                size, pointer = 8, int.from_bytes(octets[offset : offset + 8], "little")
                start = next((at for at, array in memory.items() if at <= pointer < at + max(array.size, 1)), None)
                if start is None:
                    continue
                pointers[str(offset)] = {"array": names[start], "offset": pointer - start}
            octets[offset : offset + size] = bytes(size)
        return {"struct": octets.hex(), "pointers": pointers}


def run_program(case: Case, includes: list[Path], record: Path) -> int:
    """Compile and run a program, write the record of its kernel, and return the exit status of the program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = folder / "libruntime.so"
        include = Path(subprocess.run(["which", "nvcc"], check=True, capture_output=True, text=True).stdout).parents[1]
        subprocess.run(["g++", "-shared", "-fPIC", "-O1", f"-I{include / 'include'}", str(RUNTIME), "-o", str(library)],
                       check=True)  # fmt: skip
        program, ptx = compiled(case, includes, folder)
        runtime = Runtime(case, ptx, library)
        words = [case.name.encode(), *(word.encode() for word in case.arguments)]
        status: int = ctypes.CDLL(str(program)).main(len(words), (c_char_p * (len(words) + 1))(*words, None))
        if runtime.error:
            raise runtime.error
        np.savez(record, **runtime.record)
        return status


def main() -> int:
    """Run one program, or each program of `CASES` in its own process. Join the records of the kernels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("record", type=Path, metavar="RECORD.npz")
    parser.add_argument("--cutlass", type=Path, metavar="FOLDER")
    parser.add_argument("--marlin", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="TEXT", help="only programs of CASES whose name contains TEXT")
    parser.add_argument("--source", type=Path, metavar="FILE.cu", help="compile and run this program")
    parser.add_argument("--arch", default="sm_90a", help="architecture for --source (default %(default)s)")
    parser.add_argument("--kernel", default="", metavar="TEXT", help="record the first kernel whose name contains TEXT")
    parser.add_argument("--include", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help="arguments of the program of --source")
    chosen = parser.parse_args()
    if chosen.source:
        case = Case(chosen.source.stem, chosen.arch, "", str(chosen.source), tuple(chosen.arguments), chosen.kernel)
        return run_program(case, chosen.include, chosen.record)
    if not chosen.cutlass or not chosen.marlin:
        parser.error("--cutlass and --marlin are necessary unless --source is given")
    if chosen.case:
        (case,) = (case for case in CASES if case.name == chosen.case)
        return run_program(case, [getattr(chosen, case.project)], chosen.record)
    records, failed = dict[str, NDArray[np.uint8]](), 0
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if chosen.only not in case.name:
                continue
            print(case.name, flush=True)
            part = Path(folder) / f"{case.name}.npz"
            command = [sys.executable, __file__, str(part), "--case", case.name]
            command += ["--cutlass", str(chosen.cutlass), "--marlin", str(chosen.marlin)]
            if subprocess.run(command, check=False).returncode:
                failed += 1
            else:
                with np.load(part) as archive:
                    records |= {name: archive[name] for name in archive.files}
    np.savez(chosen.record, **records)
    digest = hashlib.sha256(chosen.record.read_bytes()).hexdigest()
    print(f"{len(records)} fields, SHA-256 {digest}; {failed} programs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
