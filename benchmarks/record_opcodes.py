"""Record the results of single PTX instructions on this machine's GPU, for ``tests/kernels/test_opcodes.py``.

    python benchmarks/record_opcodes.py RECORD.npz

The script needs numpy and the CUDA driver, but not the package ``sptc``. It prints the instructions that the driver
rejects, and exits with status 1 if there are any.
"""

import argparse
import ctypes
import sys
from pathlib import Path

import numpy as np
from kernel_opcodes import THREADS, operands, programs
from launch_kernels import Driver


def main() -> int:
    """Run every kernel, and write the results by the name of the kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("record", type=Path, metavar="RECORD.npz", help="file for the results of all kernels")
    chosen = parser.parse_args()
    driver, results, rejected = Driver(), {}, 0
    source = driver.copied(operands())
    for name, ptx in programs():
        result = np.zeros((THREADS, 2), np.uint32)
        target = driver.copied(result)
        try:
            function = driver.function(ptx, "kernel", 0)
        except RuntimeError as error:
            print(f"{name}: {error}")
            rejected += 1
            continue
        values = (source, target)
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        driver.call("cuLaunchKernel", function, THREADS // 128, 1, 1, 128, 1, 1, 0, None, pointers, None)
        driver.call("cuCtxSynchronize")
        driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), target, ctypes.c_size_t(result.nbytes))
        results[name] = result
    np.savez_compressed(chosen.record, **results)
    print(f"recorded {len(results)} instructions with {THREADS} operands each")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main())
