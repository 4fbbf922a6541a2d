"""Compiled kernels with their operands, and the results of an H100."""

import ast
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sptc import StructParameter, TensorMap, run_kernel
from sptc.benchmarks.kernel_records import draw, operands_digest
from sptc.errors import KernelError
from sptc.kernels.launch import KernelRun

__all__ = [
    "BLACKWELL",
    "CUDA",
    "CUDA_SM120",
    "CUTE",
    "MAPS",
    "NAMES",
    "PROGRAMS",
    "REDUCTIONS",
    "REPORTED",
    "TILELANG",
    "TRITON",
    "CompiledKernel",
    "RecordedKernel",
    "assert_reported",
    "compiled_kernel",
    "recorded",
]  # fmt: skip

FOLDER = Path(__file__).parents[2] / "recordings" / "kernels"
PATH = FOLDER / "h100-2026-11-27.npz"
_PATHS = [FOLDER / f"{name}.npz" for name in ("triton-h100-2026-11-28", "tilelang-h100-2026-11-28",
          "cute-h100-2026-11-28", "reductions-h100-2026-11-28", "cuda-h100-2026-11-28", "reported-h100-2026-11-28",
          "cute-sm100", "cuda-sm120", "maps-h200-2026-12-01", "programs-2026-12-01")]  # fmt: skip
_SWIZZLES = ("none", "32B", "64B", "128B")
NAMES, TRITON, TILELANG, CUTE, REDUCTIONS, CUDA, REPORTED, BLACKWELL, CUDA_SM120, MAPS, PROGRAMS = (
    sorted({key.partition("|")[0] for key in np.load(path).files}) for path in (PATH, *_PATHS)
)


@dataclass(frozen=True)
class RecordedKernel:
    """A recorded kernel, the arguments of its launch, and the result of a GPU."""

    ptx: str
    grid: tuple[int, ...]
    block: int
    shared: int
    #: Arguments of the launch. The argument with index `result` gets the result; :meth:`run` replaces it by zeros.
    arguments: list[Any]
    result: int
    expected: NDArray

    def run(self, ptx: str | None = None, **options: Any) -> tuple[NDArray, KernelRun]:
        """Run the kernel, or other PTX with the same arguments, and return the result array and the run."""
        d = np.zeros_like(self.expected)
        arguments = list(self.arguments)
        place = arguments[self.result]
        arguments[self.result] = TensorMap(d, place.box, place.swizzle) if isinstance(place, TensorMap) else d
        run = run_kernel(ptx or self.ptx, self.grid, self.block, arguments, shared=self.shared, **options)
        return run.after(d), run

    def write(self, folder: Path) -> None:
        """Write the kernel as ``matmul.ptx`` and ``launch.json``, with its arrays beside them."""
        (folder / "matmul.ptx").write_text(self.ptx, encoding="utf-8")
        arrays, arguments = {}, []
        for place, value in enumerate(self.arguments):
            array = value.array if isinstance(value, TensorMap) else value
            if not isinstance(array, np.ndarray):
                arguments.append(value)
                continue
            name = f"argument{place}"
            if isinstance(value, TensorMap):
                tile = {"box": value.box, "swizzle": value.swizzle, "shape": array.shape, "strides": array.strides}
                arguments.append({"map": name, **tile})
            else:
                arguments.append({"array": name})
            if place == self.result:
                arrays[name] = {"zeros": array.dtype.name, "shape": list(array.shape)}
            else:
                np.save(folder / f"{name}.npy", array)
                arrays[name] = {"file": f"{name}.npy"}
        launch = {"grid": self.grid, "block": self.block, "shared": self.shared, "arrays": arrays}
        (folder / "launch.json").write_text(json.dumps(launch | {"arguments": arguments}), encoding="utf-8")


@cache
def recorded(name: str) -> RecordedKernel:
    """Return the recorded kernel with a given name, such as "triton.f16.128"."""
    with np.load(PATH) as archive:
        fields = {key.partition("|")[2]: archive[key] for key in archive.files if key.startswith(f"{name}|")}
    ptx, expected = bytes(fields["ptx"]).decode(), fields["c"]
    if name.startswith("cuda"):
        b = np.ascontiguousarray(fields["b"].T) if "wgmma" in name else fields["b"]
        arguments = [fields["stored"], fields["e"], b, expected, *([256] if "wgmma" in name else [128, 256])]
        return RecordedKernel(ptx, (1,) if "wgmma" in name else (4, 2), 128, 0, arguments, 3, expected)
    launch = json.loads(bytes(fields["launch"]))
    grid, block, shared = tuple(launch["grid"]), launch["threads"], launch["shared"]
    if "tensordesc_meta" not in launch:
        strides = [stride for stride in launch["strides"] if stride != 1]
        sizes = [launch["m"], launch["n"], launch["k"], *strides, 0, 0]
        arguments = [fields["a"], fields["b"], expected, *sizes][: ptx.partition(")")[0].count(".param ")]
        return RecordedKernel(ptx, grid, block, shared, arguments, 2, expected)
    arguments = []
    metas = ast.literal_eval(launch["tensordesc_meta"])
    for meta, array in zip(metas, (fields["a"], fields["b"], expected), strict=True):
        tile = TensorMap(array, tuple(meta["block_size"]), _SWIZZLES[meta["swizzle"]])
        arguments += [tile, *array.shape, array.shape[1], 1]
    return RecordedKernel(ptx, grid, block, shared, [*arguments, launch["k"], 0, 0], 10, expected)


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel that a script in ``benchmarks/`` compiled, and a digest of the result of an H100, if it ran there."""

    ptx: str
    launch: dict[str, Any]
    digest: bytes
    #: Arrays of the launch that no seed determines, by name.
    stored: dict[str, NDArray[np.uint8]]

    def run(self, **options: Any) -> tuple[NDArray, KernelRun]:
        """Run the kernel on its operands, and return the result array and the run."""
        launch, arrays = self.launch, self.stored or self.operands()
        if self.digest and not self.stored:
            assert operands_digest(arrays) == launch["operands"]
        arguments = [_argument(value, arrays) for value in launch["arguments"]]
        options |= {"entry": launch.get("entry"), "cluster": launch.get("cluster"), "arch": self.arch}
        run = run_kernel(self.ptx, launch["grid"], launch["block"], arguments, shared=launch["shared"], **options)
        return np.concatenate([*map(run.after, self.stored.values())]) if self.stored else run.after(arrays["d"]), run

    @property
    def arch(self) -> str:
        """Architecture whose tensor cores execute the kernel: sm_100 or sm_120 if compiled for these, else sm_90."""
        arch: str = self.launch.get("arch", "")
        return arch if arch in ("sm_100", "sm_120") else "sm_90"

    def operands(self) -> dict[str, NDArray]:
        """Return the arrays of the launch: operands as codes, and zeros for the result."""
        return draw(self.launch["arrays"], self.launch["seed"])

    def assert_equal(self, result: NDArray) -> None:
        assert hashlib.sha256(result.tobytes()).digest() == self.digest, self.launch


def assert_reported(run: Callable[[], KernelRun], ptx: str, opcode: str, words: str) -> None:
    """Check that a run has a finding or an error that matches `words`, at an instruction `opcode`."""
    try:
        findings = [*map(str, run().findings)]
    except KernelError as error:
        findings = str(error).split("; before that, ")
    matching = [finding for finding in findings if re.search(words, finding)]
    assert matching, findings
    line, *_ = re.findall(r"\bline (\d+)", matching[0])
    assert re.search(rf"(^|[\s;]){re.escape(opcode)}", ptx.splitlines()[int(line) - 1]), matching


def _argument(value: Any, arrays: dict[str, NDArray]) -> Any:
    if isinstance(value, int):
        return value
    if "scratch" in value:
        return np.zeros(value["scratch"], np.uint8)
    if "bytes" in value:
        return bytes(value["bytes"])
    if "struct" in value:
        pointers = {int(offset): _argument(item, arrays) for offset, item in value["pointers"].items()}
        return StructParameter(bytes.fromhex(value["struct"]), pointers)
    if "array" in value:
        return (arrays[value["array"]], value["offset"]) if value.get("offset") else arrays[value["array"]]
    sides = {key: tuple(value[key]) for key in ("shape", "strides") if key in value}
    array = arrays[value["tile"] if "tile" in value else value["map"]]
    return TensorMap(array, tuple(value["box"]), value["swizzle"], element=value.get("element"),
                     fill=value.get("fill", "zeros"), **sides)  # fmt: skip


def compiled_kernel(name: str) -> CompiledKernel:
    """Return a kernel that a script in ``benchmarks/`` compiled. A kernel for Blackwell has no digest of a result."""
    names = (TRITON, TILELANG, CUTE, REDUCTIONS, CUDA, REPORTED, BLACKWELL, CUDA_SM120, MAPS, PROGRAMS)
    path = next(path for path, known in zip(_PATHS, names, strict=True) if name in known)
    with np.load(path) as archive:
        ptx, launch = (archive[f"{name}|{field}"].tobytes() for field in ("ptx", "launch"))
        digest = archive[f"{name}|digest"].tobytes() if f"{name}|digest" in archive else b""
        names = json.loads(launch).get("stored", ())
        stored = {each: np.frombuffer(zlib.decompress(archive[f"{name}|{each}"].tobytes()), np.uint8) for each in names}
    return CompiledKernel(zlib.decompress(ptx).decode(), json.loads(launch), digest, stored)
