"""Launch compiled kernels on the GPU of this machine, and record the results of the kernels.

    python benchmarks/launch_kernels.py KERNELS.npz RECORD.npz [--results]

``KERNELS.npz`` contains the PTX and the launch description of each kernel, as ``compile_tilelang.py`` and
``cuda_programs.py`` write them. The script writes this content and a digest of each result to ``RECORD.npz``; with
``--results``, also the results. If ``KERNELS.npz`` has the digest of a result of the model, the script compares both.
The script needs numpy and the CUDA driver, but not the package ``sptc``.
"""

import argparse
import ctypes
import json
import zlib
from ctypes import byref, c_int, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from kernel_records import draw, fields, operands_digest
from numpy.typing import NDArray

#: Value of ``CUtensorMapDataType`` for each PTX type, and for elements without a given type by their size in bytes.
MAP_TYPES: dict[str | int, int] = {
    "u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "f32.ftz": 10,
    "tf32": 11, "tf32.ftz": 12, "b4x16": 13, "b4x16_p64": 14, "b6x16_p32": 15, 1: 0, 2: 1, 4: 2, 8: 4,
}  # fmt: skip
SWIZZLES, FILLS = ("none", "32B", "64B", "128B", "128B with 32B atoms"), ("zeros", "nan")
MAX_DYNAMIC_SHARED, CLUSTER_DIMENSION, MAP_BYTES, LOG_BYTES = 8, 4, 128, 1 << 14
#: Values of ``CU_JIT_ERROR_LOG_BUFFER``, ``CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`` and ``CU_JIT_OPTIMIZATION_LEVEL``.
OPTIONS = (5, 6, 7)


class Attribute(ctypes.Structure):
    """C structure ``CUlaunchAttribute`` with the number of CTAs per cluster."""

    _fields_ = [("id", c_int), ("pad", c_int), ("sides", c_uint * 3), ("rest", c_uint * 13)]


class Config(ctypes.Structure):
    """C structure ``CUlaunchConfig``: grid and CTA size, shared memory, stream and attributes of a launch."""

    _fields_ = [("sides", c_uint * 6), ("shared", c_uint), ("stream", c_void_p), ("attributes", c_void_p),
                ("count", c_uint)]  # fmt: skip


class Driver:
    """Access to the CUDA driver, with a context on the first GPU."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = c_int(), c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the CUDA driver. Raise a `RuntimeError` if the function fails."""
        if status := getattr(self.cuda, function)(*arguments):
            raise RuntimeError(f"the CUDA driver function {function} failed with status {status}")

    def copied(self, array: NDArray) -> c_uint64:
        """Copy an array to the global memory of the GPU, and return the address of the copy."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), ctypes.c_size_t(max(array.nbytes, 16)))
        self.call("cuMemcpyHtoD_v2", address, c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        return address

    def function(self, ptx: str, entry: str, shared: int, optimisation: int = 4) -> c_void_p:
        """Load a PTX module into the GPU, optimised at a level of 0 to 4, and return the named kernel of the module."""
        module, function = c_void_p(), c_void_p()
        log = ctypes.create_string_buffer(LOG_BYTES)
        options = (c_int * len(OPTIONS))(*OPTIONS)
        values = (c_void_p * len(OPTIONS))(ctypes.cast(log, c_void_p), c_void_p(LOG_BYTES), c_void_p(optimisation))
        status = self.cuda.cuModuleLoadDataEx(byref(module), ptx.encode(), len(OPTIONS), options, values)
        if status:
            raise RuntimeError(f"the driver does not load the kernel ({status}): {log.value.decode()[:300]}")
        self.call("cuModuleGetFunction", byref(function), module, entry.encode())
        self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, c_int(shared))
        return function

    def tensor_map(self, address: c_uint64, tile: dict[str, Any], size: int) -> Any:
        """Return a TMA tensor map, with elements of `size` bytes, as an array of 128 bytes aligned to 64 bytes."""
        memory = (ctypes.c_uint8 * (MAP_BYTES + 64))()
        place = ctypes.addressof(memory)
        encoded = (ctypes.c_uint8 * MAP_BYTES).from_buffer(memory, -place % 64)
        rank = len(tile["box"])
        sides = (c_uint64 * rank)(*tile["shape"][::-1])
        strides = (c_uint64 * rank)(*tile["strides"][::-1][1:])
        box, steps = (c_uint32 * rank)(*tile["box"][::-1]), (c_uint32 * rank)(*[1] * rank)
        kind = MAP_TYPES[tile.get("element", size)]
        self.call("cuTensorMapEncodeTiled", encoded, kind, rank, address, sides, strides, box, steps, 0,
                  SWIZZLES.index(tile["swizzle"]), 2, FILLS.index(tile.get("fill", "zeros")))  # fmt: skip
        return encoded


def structure(driver: Driver, argument: dict[str, Any], addresses: dict[str, c_uint64]) -> Any:
    """Return a structure of a launch as an array of bytes, with pointers and tensor maps of the GPU."""
    octets = (ctypes.c_uint8 * (len(argument["struct"]) // 2)).from_buffer(bytearray.fromhex(argument["struct"]))
    for offset, item in argument["pointers"].items():
        if "map" in item:
            value, size = driver.tensor_map(addresses[item["map"]], item, 1), MAP_BYTES
        else:
            value, size = c_uint64(addresses[item["array"]].value + item.get("offset", 0)), 8
        ctypes.memmove(byref(octets, int(offset)), byref(value), size)
    return octets


def run(driver: Driver, ptx: str, launch: dict[str, Any], arrays: dict[str, NDArray]) -> NDArray:
    """Launch a recorded kernel on the GPU, and return the result: the array `d`, or all arrays if there is no `d`.

    The results are written to `arrays`.
    """
    addresses = {name: driver.copied(array) for name, array in arrays.items()}
    function = driver.function(ptx, launch["entry"], launch["shared"])
    values: list[Any] = []
    for argument in launch["arguments"]:
        if isinstance(argument, int):
            values.append(c_uint64(argument & (1 << 64) - 1))
        elif "struct" in argument:
            values.append(structure(driver, argument, addresses))
        elif "bytes" in argument:
            values.append((ctypes.c_uint8 * argument["bytes"])())
        elif "tile" in argument:
            name = argument["tile"]
            values.append(driver.tensor_map(addresses[name], argument, arrays[name].itemsize))
        else:
            values.append(addresses[argument["array"]])
    pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    cluster = Attribute(CLUSTER_DIMENSION, 0, (c_uint * 3)(*launch.get("cluster", (1, 1, 1))))
    sides = (c_uint * 6)(*launch["grid"], *launch["block"])
    config = Config(sides, launch["shared"], None, ctypes.addressof(cluster), 1)
    driver.call("cuLaunchKernelEx", byref(config), function, pointers, None)
    driver.call("cuCtxSynchronize")
    names = ["d"] if "d" in arrays else [*arrays]
    for name in names:
        size = ctypes.c_size_t(arrays[name].nbytes)
        driver.call("cuMemcpyDtoH_v2", c_void_p(arrays[name].ctypes.data), addresses[name], size)
    return arrays["d"] if "d" in arrays else np.concatenate([*arrays.values()])


def main() -> None:
    """Launch all kernels on the GPU and write a record of each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", type=Path, metavar="KERNELS.npz")
    parser.add_argument("record", type=Path, metavar="RECORD.npz")
    parser.add_argument("--results", action="store_true", help="write the results of the kernels, not only hashes")
    chosen = parser.parse_args()
    driver = Driver()
    with np.load(chosen.kernels) as archive:
        texts = {name: archive[name].tobytes() for name in archive.files}
    records: dict[str, NDArray] = {}
    for name in sorted({key.partition("|")[0] for key in texts}):
        launch = json.loads(texts[f"{name}|launch"])
        try:
            ptx = zlib.decompress(texts[f"{name}|ptx"]).decode()
            if stored := launch.get("stored"):
                arrays = {part: np.frombuffer(bytearray(zlib.decompress(texts[f"{name}|{part}"])), np.uint8)
                          for part in stored}  # fmt: skip
                before = {part: array.copy() for part, array in arrays.items()}
            else:
                arrays, before = draw(launch["arrays"], launch["seed"]), {}
                launch["operands"] = operands_digest(arrays)
            result = run(driver, ptx, launch, arrays)
        except RuntimeError as error:
            print(f"{name}: {error}", flush=True)
            continue
        launch["gpu"] = driver.name
        records |= fields(name, ptx, launch, result, whole=chosen.results, arrays=before)
        model = texts.get(f"{name}|digest")
        is_equal = records[f"{name}|digest"].tobytes() == model
        verdict = "" if model is None else f", {'equal' if is_equal else 'not equal'} to the result of the model"
        print(f"{name}: {result.size} outputs{verdict}", flush=True)
    np.savez(chosen.record, **records)


if __name__ == "__main__":
    main()
