"""Compiled kernels with their operands, and what an H100 wrote."""

import ast
import hashlib
import json
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sptc.kernels.launch import KernelRun, TensorMap, run_kernel

__all__ = ["NAMES", "TRITON", "RecordedKernel", "TritonKernel", "recorded", "triton_kernel"]

FOLDER = Path(__file__).parents[2] / "recordings" / "kernels"
PATH, TRITON_PATH = FOLDER / "h100-2026-11-27.npz", FOLDER / "triton-h100-2026-11-28.npz"
_SWIZZLES = ("none", "32B", "64B", "128B")
with np.load(PATH) as archive:
    NAMES = sorted({key.partition("|")[0] for key in archive.files})
with np.load(TRITON_PATH) as archive:
    TRITON = sorted({key.partition("|")[0] for key in archive.files})


@dataclass(frozen=True)
class RecordedKernel:
    """A kernel, how it was launched, and its result."""

    ptx: str
    grid: tuple[int, ...]
    block: int
    shared: int
    #: Arguments; the result stands at its place as an array of zeros.
    arguments: list[Any]
    result: int
    expected: NDArray

    def run(self, ptx: str | None = None, **options: Any) -> tuple[NDArray, KernelRun]:
        """Run the kernel, or another text in its place, and return what it writes."""
        d = np.zeros_like(self.expected)
        arguments = list(self.arguments)
        place = arguments[self.result]
        arguments[self.result] = TensorMap(d, place.box, place.swizzle) if isinstance(place, TensorMap) else d
        run = run_kernel(ptx or self.ptx, self.grid, self.block, arguments, shared=self.shared, **options)
        return run.after(d), run

    def write(self, folder: Path) -> None:
        """Write a kernel of pointers and numbers as ``matmul.ptx`` and ``launch.json``, with its arrays beside them."""
        (folder / "matmul.ptx").write_text(self.ptx, encoding="utf-8")
        arrays, arguments = {}, []
        for place, value in enumerate(self.arguments):
            if not isinstance(value, np.ndarray):
                arguments.append(value)
                continue
            name = f"argument{place}"
            arguments.append({"array": name})
            if place == self.result:
                arrays[name] = {"zeros": value.dtype.name, "shape": list(value.shape)}
            else:
                np.save(folder / f"{name}.npy", value)
                arrays[name] = {"file": f"{name}.npy"}
        launch = {
            "grid": self.grid,
            "block": self.block,
            "shared": self.shared,
            "arrays": arrays,
            "arguments": arguments,
        }
        (folder / "launch.json").write_text(json.dumps(launch), encoding="utf-8")


@cache
def recorded(name: str) -> RecordedKernel:
    """Return a kernel by its name."""
    with np.load(PATH) as archive:
        fields = {key.partition("|")[2]: archive[key] for key in archive.files if key.startswith(f"{name}|")}
    ptx, expected = bytes(fields["ptx"]).decode(), fields["c"]
    if name.startswith("cuda"):
        b = np.ascontiguousarray(fields["b"].T) if "wgmma" in name else fields["b"]
        sizes = [256] if "wgmma" in name else [128, 256]
        arguments = [fields["stored"], fields["e"], b, expected, *sizes]
        return RecordedKernel(ptx, (1,) if "wgmma" in name else (4, 2), 128, 0, arguments, 3, expected)
    launch = json.loads(bytes(fields["launch"]))
    grid, block, shared = tuple(launch["grid"]), launch["threads"], launch["shared"]
    if "tensordesc_meta" not in launch:
        strides = [stride for stride in launch["strides"] if stride != 1]
        sizes = [launch["m"], launch["n"], launch["k"], *strides, 0, 0]
        count = ptx.partition(")")[0].count(".param ")
        arguments = [fields["a"], fields["b"], expected, *sizes][:count]
        return RecordedKernel(ptx, grid, block, shared, arguments, 2, expected)
    arguments = []
    for meta, array in zip(
        ast.literal_eval(launch["tensordesc_meta"]), (fields["a"], fields["b"], expected), strict=True
    ):
        tile = TensorMap(array, tuple(meta["block_size"]), _SWIZZLES[meta["swizzle"]])
        arguments += [tile, *array.shape, array.shape[1], 1]
    return RecordedKernel(ptx, grid, block, shared, [*arguments, launch["k"], 0, 0], 10, expected)


_BYTES = {"f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "f32": 4, "s8": 1, "s32": 4, "e2m1": 1, "ue8m0": 1}
#: Fraction bits and bias of the operands' formats.
_FLOATS = {"f16": (10, 15), "bf16": (7, 127), "e4m3": (3, 7), "e5m2": (2, 15), "f32": (23, 127)}


@dataclass(frozen=True)
class TritonKernel:
    """A kernel that ``benchmarks/record_kernels.py`` recorded, and a digest of what an H100 wrote."""

    ptx: str
    launch: dict[str, Any]
    digest: bytes

    def run(self, **options: Any) -> tuple[NDArray, KernelRun]:
        """Run the kernel on its operands, and return what it writes."""
        rng = np.random.default_rng(self.launch["seed"])
        shapes = self.launch["arrays"]
        arrays = {name: _operand(*shapes[name], rng) for name in shapes if name != "d"}
        octets = b"".join(array.tobytes() for array in arrays.values())
        assert hashlib.sha256(octets).hexdigest() == self.launch["operands"]
        arrays["d"] = np.zeros(shapes["d"][1], f"u{_BYTES[shapes['d'][0]]}")
        arguments = [
            value if isinstance(value, int)
            else np.zeros(value["scratch"], np.uint8) if "scratch" in value
            else arrays[value["array"]] if "array" in value
            else TensorMap(arrays[value["tile"]], tuple(value["box"]), value["swizzle"])
            for value in self.launch["arguments"]
        ]  # fmt: skip
        launch = self.launch
        run = run_kernel(self.ptx, launch["grid"], launch["block"], arguments, shared=launch["shared"], **options)
        return run.after(arrays["d"]), run


def _operand(kind: str, shape: list[int], rng: np.random.Generator) -> NDArray:
    """Draw an operand as ``benchmarks/record_kernels.py`` does: numbers near one, or any integers."""
    size = _BYTES[kind]
    bits = rng.integers(0, 1 << 8 * size, shape, dtype=f"u{size}")
    if kind in ("s8", "e2m1"):
        return bits
    if kind == "ue8m0":
        return rng.integers(122, 132, shape, dtype=np.uint8)
    fraction, bias = _FLOATS[kind]
    exponent = rng.integers(bias - 3, bias + 2, shape).astype(bits.dtype)
    top = bits.dtype.type(8 * size - 1)
    return bits >> top << top | exponent << bits.dtype.type(fraction) | bits & bits.dtype.type((1 << fraction) - 1)


def triton_kernel(name: str) -> TritonKernel:
    """Return a kernel by its name."""
    with np.load(TRITON_PATH) as archive:
        ptx, launch, digest = (archive[f"{name}|{field}"].tobytes() for field in ("ptx", "launch", "digest"))
    return TritonKernel(zlib.decompress(ptx).decode(), json.loads(launch), digest)
