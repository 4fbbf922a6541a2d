"""Stand-in for CuPy that runs the PTX text of kernels without a GPU."""

import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import sptc

H200 = {"name": b"NVIDIA H200", "major": 9, "minor": 0}
_INSTRUCTIONS = re.compile(r"^  (?:mma|wgmma\.mma_async)\.\S+ .*;$", re.MULTILINE)


class FakeArray:
    """Array in the memory of the fake GPU, with a unique address."""

    def __init__(self, memory: dict[int, np.ndarray], array: np.ndarray) -> None:
        self.array = array
        self.data = types.SimpleNamespace(ptr=4096 * (len(memory) + 1))
        memory[self.data.ptr] = array


class Loaded:
    def __init__(self, cupy: "FakeCupy", text: str) -> None:
        self.cupy, self.text, self.max_dynamic_shared_size_bytes = cupy, text, 0

    def compile(self) -> None:
        if self.cupy.refuses:
            raise self.cupy.cuda.driver.CUDADriverError(self.cupy.refuses)


class FakeKernel(Loaded):
    """Kernel that this package's PTX interpreter executes."""

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], *, shared_mem: int) -> None:
        *places, descriptor_a, descriptor_b, image_bytes, threads = map(int, arguments)
        assert grid == (-(-threads // 128),)
        assert shared_mem == image_bytes == self.max_dynamic_shared_size_bytes
        arrays = [self.cupy.memory.get(place, 0) for place in places]
        words = [*arrays, descriptor_a, descriptor_b, image_bytes, threads]
        arch = re.search(r"\.target (sm_\d+)", self.text)[1]
        run = sptc.run_kernel(self.text, grid, block, words, arch=arch, backend="golden", shared=shared_mem)
        assert {finding.kind for finding in run.findings} <= {"undefined metadata"}
        arrays[-1][...] = run.after(arrays[-1]) ^ np.uint32(self.cupy.wrong)


class FakeLoops(Loaded):
    """Kernel with one or two loops on an SM. Each instruction of a loop takes `FakeCupy.interval` cycles."""

    def __init__(self, cupy: "FakeCupy", text: str) -> None:
        super().__init__(cupy, text)
        self.loops = [_INSTRUCTIONS.findall(part) for part in text.split("round:")[1:]]
        borders = [int(border) for border in re.findall(r"setp.ge.u32 %beyond, %warp, (\d+);", text)]
        ends = [*borders, int(re.search(r"\.maxntid (\d+)", text)[1]) // 32]
        self.warps = [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
        counts, results, times = arguments
        assert (grid, block) == ((1,), (32 * self.warps[-1].stop,))
        assert counts.shape == (self.warps[-1].stop, 2)
        assert results.shape == (self.warps[-1].stop, 32)
        for number, (instructions, warps) in enumerate(zip(self.loops, self.warps, strict=True)):
            rounds = int(times) * (1 if number == 0 else self.cupy.turns)
            for warp in warps:
                counts[warp] = 1000 + 3 * warp + rounds * len(instructions) * self.cupy.interval, rounds


class FakeCupy(types.ModuleType):
    """Stand-in for the functions of CuPy that the package uses.

    The bits of the mask `wrong` are inverted in each result. If `refuses` is not empty, loading a kernel raises this
    error. Each instruction of a loop takes `interval` cycles. If two loops run, the second makes `turns` iterations
    during each iteration of the first.
    """

    def __init__(self, properties: dict[str, Any] | None = None) -> None:
        super().__init__("cupy")
        self.memory: dict[int, np.ndarray] = {}
        self.wrong, self.refuses, self.uint32 = 0, "", np.uint32
        self.interval, self.turns, self.uint64, self.zeros = 24, 3, np.uint64, np.zeros
        runtime_error, driver_error = type("CUDARuntimeError", (RuntimeError,), {}), type("Driver", (RuntimeError,), {})

        def described(_device: int) -> dict[str, Any]:
            if properties is None:
                raise runtime_error("cudaErrorNoDevice: no CUDA-capable device is detected")
            return properties

        runtime = types.SimpleNamespace(CUDARuntimeError=runtime_error, getDeviceProperties=described)
        runtime.getDevice, runtime.driverGetVersion = lambda: 0, lambda: 13000
        self.cuda = types.SimpleNamespace(runtime=runtime, driver=types.SimpleNamespace(CUDADriverError=driver_error))

    def asarray(self, array: np.ndarray) -> FakeArray:
        return FakeArray(self.memory, array.copy())

    def empty(self, shape: tuple[int, ...], dtype: type) -> FakeArray:
        return FakeArray(self.memory, np.full(shape, 0xDEADBEEF, dtype))

    def asnumpy(self, array: FakeArray | np.ndarray) -> np.ndarray:
        return array.array if isinstance(array, FakeArray) else array.copy()

    def RawModule(self, *, path: str) -> types.SimpleNamespace:  # noqa: N802
        text = Path(path).read_text(encoding="ascii")
        kinds = {"run": FakeKernel, "count_cycles": FakeLoops}
        return types.SimpleNamespace(get_function=lambda name: kinds[name](self, text) if f" {name}(" in text else None)
