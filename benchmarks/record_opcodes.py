"""Record the results of small PTX kernels on this machine's GPU, for ``tests/kernels/test_opcodes.py``.

    python benchmarks/record_opcodes.py OPCODES.npz RANDOM.npz

``OPCODES.npz`` gets the results of single instructions (``kernel_opcodes.py``). ``RANDOM.npz`` gets the seeds and the
digests of the results of random kernels (array ``kernels``, ``random_kernels.py``) and of random copies of tiles (array
``tiles``, ``random_tiles.py``). A random kernel is left out if its results depend on the optimisation level of the
compiler, or if it does not end. The script needs numpy and the CUDA driver, but not the package ``sptc``. It prints the
kernels that the driver rejects or that are left out, and exits with status 1 if the driver rejects a kernel.
"""

import argparse
import ctypes
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import random_kernels
import random_tiles
from kernel_opcodes import THREADS, operands, programs
from launch_kernels import Driver
from numpy.typing import NDArray

#: Number of random kernels per process, number of processes, and time limit of a process in seconds.
_SHARE, _PROCESSES, _SECONDS = 40, 12, 40
#: Number of recorded kernels of each kind.
_KERNELS = {"kernels": random_kernels.KERNELS, "tiles": random_tiles.KERNELS}


def launch(
    driver: Driver, ptx: str, arrays: list[NDArray], grid: int, block: int, level: int = 4, tile: Any = None
) -> list[NDArray]:
    """Run the kernel named ``kernel`` with arrays as arguments, and return the arrays after the run.

    If `tile` is given, the first argument is a tensor map over the first array.
    """
    function = driver.function(ptx, "kernel", 0, level)
    addresses = [driver.copied(array) for array in arrays]
    values = [driver.tensor_map(addresses[0], tile, arrays[0].itemsize), *addresses[1:]] if tile else addresses
    pointers = (ctypes.c_void_p * len(arrays))(*(ctypes.addressof(value) for value in values))
    driver.call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, pointers, None)
    driver.call("cuCtxSynchronize")
    results = [array.copy() for array in arrays]
    for result, address in zip(results, addresses, strict=True):
        driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), address, ctypes.c_size_t(result.nbytes))
        driver.call("cuMemFree_v2", address)
    return results


def single_instructions() -> Iterator[tuple[str, NDArray | None]]:
    """Yield the name and the result of each kernel with one instruction; None if the driver rejects the kernel."""
    driver, source = Driver(), operands()
    for name, ptx in programs():
        try:
            yield name, launch(driver, ptx, [source, np.zeros((THREADS, 2), np.uint32)], THREADS // 128, 128)[1]
        except RuntimeError as error:
            print(f"{name}: {error}")
            yield name, None


def print_digests(kind: str, seeds: range) -> None:
    """Run random kernels without optimisation and with all optimisations. Print each seed and both digests."""
    driver = Driver()
    for seed in seeds:
        print(seed, end=" ", flush=True)
        if kind == "tiles":
            ptx, arrays, tile = random_tiles.program(seed)
            grid, block = 1, random_tiles.BLOCK
        else:
            ptx, arrays, tile = random_kernels.program(seed), random_kernels.buffers(seed), None
            grid, block = random_kernels.GRID, random_kernels.BLOCK
        for level in (0, 4):
            results = launch(driver, ptx, [*arrays.values()], grid, block, level, tile)
            print(random_kernels.digest(ptx, dict(zip(arrays, results, strict=True))), end=" ", flush=True)
        print(flush=True)


def random_digests(kind: str, start: int) -> list[list[int]]:
    """Return each random kernel's seed, and digests of its results without and with optimisation if the kernel ends."""
    rows: list[list[int]] = []
    first, end = start, start + _SHARE
    while first < end:
        command = [sys.executable, __file__, "--seeds", kind, str(first), str(end)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            output = process.communicate(timeout=_SECONDS)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0]
        if not output:
            raise RuntimeError(f"the process for the random kernels from seed {first} ended without a result")
        rows += [[int(word) for word in line.split()] for line in output.splitlines()]
        first = rows[-1][0] + 1
    return rows


def main() -> int:
    """Run every kernel on the GPU; write a record of the single instructions and a record of the random kernels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("opcodes", type=Path, nargs="?", metavar="OPCODES.npz", help="file for results of instructions")
    parser.add_argument("random", type=Path, nargs="?", metavar="RANDOM.npz", help="file for results of random kernels")
    parser.add_argument(
        "--seeds",
        nargs=3,
        metavar=("KIND", "FIRST", "END"),
        help="print only result digests of random kernels or tiles",
    )
    chosen = parser.parse_args()
    if chosen.seeds:
        kind, first, end = chosen.seeds
        print_digests(kind, range(int(first), int(end)))
        return 0
    if chosen.random is None:
        parser.error("two files to write are needed")
    records = {}
    for kind, count in _KERNELS.items():
        with ThreadPoolExecutor(_PROCESSES) as pool:
            rows = [row for share in pool.map(partial(random_digests, kind), range(0, count, _SHARE)) for row in share]
        equal = [row[:2] for row in rows if len(row) == 3 and row[1] == row[2]]
        print(f"{kind} recorded: {len(equal)}; left out:", *(row[0] for row in rows if row[:2] not in equal))
        records[kind] = np.array(equal, np.uint32).reshape(-1, 2)
    np.savez_compressed(chosen.random, **records)
    results = dict(single_instructions())
    np.savez_compressed(chosen.opcodes, **{name: result for name, result in results.items() if result is not None})
    print(f"recorded {len(results)} instructions with {THREADS} operands each")
    return 1 if any(result is None for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
