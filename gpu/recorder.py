"""Record results of an NVIDIA GPU: run `python record.py`, then send the file that it writes.

This file needs Python 3.10 or newer with numpy, and the NVIDIA driver. It installs nothing, changes no setting and
sends nothing. It holds small kernels (PTX) and their operands, compressed, in PACK. The results file names the GPU, the
versions of driver and CUDA, the day, and for each kernel the words that the GPU computed; it has no other data of the
machine.

    python record.py [-o results.json]
"""

import argparse
import base64
import ctypes
import hashlib
import io
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FORMAT", "Gpu", "RecordError", "driver_version", "main", "packed", "record", "unpacked"]

#: Kernels and operands as text. The command `sptc gpu pack` inserts the text into a copy of this file.
PACK = ""
FORMAT = "sptc gpu record 1"
#: Maximum size of the results file in bytes. If the file would be larger, result words are left out. Words of
#: kernels whose results were as expected are left out first.
_MOST_BYTES = 5_000_000
_MAJOR, _MINOR, _DYNAMIC_SHARED = 75, 76, 8
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
#: Operands whose addresses are the first kernel parameters, in this order. The address of D is the next parameter.
_POINTERS = ("a", "b", "c", "e", "scale_a", "scale_b")


class RecordError(Exception):
    """Error that is reported in one sentence: the GPU cannot run a kernel, or there is no GPU."""


def packed(manifest: dict[str, Any], arrays: dict[str, Any]) -> str:
    """Return kernels and operands as compressed text. This text is called a pack."""
    file = io.BytesIO()
    np.savez(file, manifest=np.array(json.dumps(manifest)), **arrays)
    return base64.b85encode(lzma.compress(file.getvalue(), preset=9)).decode("ascii")


def unpacked(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Extract the manifest (description of the kernels) and the arrays from the compressed text of :func:`packed`."""
    with np.load(io.BytesIO(lzma.decompress(base64.b85decode(text)))) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays.pop("manifest"))), arrays


def driver_version(kernel_module: Path) -> str:
    """Return the version of the GPU driver in the file `kernel_module`, or an empty string if the file has none."""
    try:
        match = re.search(r" (\d+\.[\d.]+) ", kernel_module.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return match[1] if match else ""


class Gpu:
    """Access to the first GPU of this machine through the driver's own library."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            raise RecordError("there is no NVIDIA driver on this machine (libcuda.so.1 is missing)") from None
        self._call("cuInit", 0)
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        name, version = ctypes.create_string_buffer(256), ctypes.c_int()
        self._call("cuDeviceGetName", name, len(name), self._device)
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.name = name.value.decode()
        self.capability = f"{self._attribute(_MAJOR)}.{self._attribute(_MINOR)}"
        self.cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        self.driver = driver_version(_KERNEL_MODULE)
        self._open()

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise RecordError(f"the CUDA driver call {name} failed: {(text.value or b'').decode() or status}")

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def _open(self) -> None:
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    def run(self, row: dict[str, Any], text: str, operands: dict[str, Any]) -> Any:
        """Run one kernel and return D, uint32 of shape (row["words"],). Raise a `RecordError` if the kernel fails."""
        try:
            return self._run(row, text, operands)
        except RecordError:
            # After a kernel has failed, the CUDA context that ran the kernel is unusable.
            self._library.cuDevicePrimaryCtxReset_v2(self._device)
            self._open()
            raise

    def _run(self, row: dict[str, Any], text: str, operands: dict[str, Any]) -> Any:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text.encode("ascii")))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"run")
        if row["shared"]:
            self._call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, row["shared"])
        d = np.zeros(row["words"], np.uint32)
        held: list[ctypes.c_uint64] = []
        try:
            places = [self._copied(operands.get(name), held) for name in _POINTERS]
            place_of_d = self._copied(d, held)
            values: list[Any] = [*places, place_of_d, *map(ctypes.c_uint64, row["descriptors"])]
            values += [ctypes.c_uint32(row["shared"]), ctypes.c_uint32(row["threads"])]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            shape = (row["ctas"], 1, 1, row["cta_threads"], 1, 1, row["shared"])
            self._call("cuLaunchKernel", function, *shape, None, pointers, None)
            self._call("cuCtxSynchronize")
            self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(d.ctypes.data), place_of_d, ctypes.c_size_t(d.nbytes))
        finally:
            for place in held:
                self._library.cuMemFree_v2(place)
            self._library.cuModuleUnload(module)
        return d

    def _copied(self, array: Any, held: list[ctypes.c_uint64]) -> ctypes.c_uint64:
        """Copy an array to the GPU and return its address in GPU memory, or 0 if the array is None."""
        place = ctypes.c_uint64()
        if array is not None:
            array = np.ascontiguousarray(array)
            self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(array.nbytes))
            held.append(place)
            data = ctypes.c_void_p(array.ctypes.data)
            self._call("cuMemcpyHtoD_v2", place, data, ctypes.c_size_t(array.nbytes))
        return place


def record(text: str, gpu: Any, report: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Run all kernels of the compressed text from :func:`packed` on a GPU, and return the results.

    `gpu` is a :class:`Gpu`, or another object with the same attributes and a method `run`. `report` is called with each
    line of progress.
    """
    manifest, arrays = unpacked(text)
    if gpu.capability not in manifest["capabilities"]:
        wanted = " or ".join(manifest["capabilities"])
        raise RecordError(f"{gpu.name} has compute capability {gpu.capability}; the kernels to record need {wanted}")
    rows: list[dict[str, Any]] = []
    results: dict[int, Any] = {}
    for number, row in enumerate(manifest["rows"]):
        result = {key: row[key] for key in ("name", "selector", "operands")}
        operands = {name: arrays[f"{number}.{name}"] for name in _POINTERS if f"{number}.{name}" in arrays}
        try:
            d = gpu.run(row, manifest["kernels"][row["kernel"]], operands)
            results[number] = d
            result["sha256"] = hashlib.sha256(d.tobytes()).hexdigest()
        except RecordError as error:
            result["error"] = str(error)
        rows.append(result)
        if report:
            report(f"kernel {number + 1} of {len(manifest['rows'])}")
    expected = [row.get("sha256") == wanted["sha256"] for row, wanted in zip(rows, manifest["rows"], strict=True)]
    # Kernels with unexpected results come first, since their result words show the difference.
    room = _MOST_BYTES - 1000 - sum(len(json.dumps(row)) + 4 for row in rows)
    for number in sorted(results, key=lambda number: (expected[number], number)):
        words = base64.b64encode(zlib.compress(results[number].tobytes(), 9)).decode("ascii")
        if len(words) + 10 <= room:
            rows[number]["d"] = words
            room -= len(words) + 10
    about = {key: getattr(gpu, key) for key in ("name", "capability", "driver", "cuda")}
    head = {key: manifest[key] for key in ("target", "sptc", "seed")}
    sha256 = hashlib.sha256(text.encode("ascii")).hexdigest()
    day = date.today().isoformat()
    result = {"format": FORMAT, **head, "pack": sha256, "gpu": about, "date": day, "as_expected": sum(expected)}
    return {**result, "rows": rows}


def main(arguments: list[str] | None = None) -> int:
    """Run the recorder as a command. Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--output", default="results.json", help="file for the results (default %(default)s)")
    options = parser.parse_args(arguments)
    output = Path(options.output)
    is_new = not output.exists()
    try:
        gpu = Gpu()
        output.open("ab").close()  # a file that cannot be written is reported before the kernels run
        results = record(PACK, gpu, lambda line: print(f"\r{line}", end="", flush=True))
    except (RecordError, OSError) as error:
        if is_new:
            output.unlink(missing_ok=True)
        print(f"record.py: {error}", file=sys.stderr)
        return 2
    output.write_text(json.dumps(results, separators=(",", ":")), encoding="utf-8")
    failed = sum("error" in row for row in results["rows"])
    counts = f"{len(results['rows'])} kernels: {results['as_expected']} with the model's results, {failed} not run"
    print(f"\n{counts}; written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
