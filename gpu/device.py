"""Access to this machine's GPU through CuPy: properties of the GPU, and execution of one instruction."""

import importlib
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction, require_architecture
from ..isa.operands import HeldOperands, Immediates
from ..isa.variants import ARCHITECTURES
from .ptx import ENTRY, kernel
from .recorder import driver_version

__all__ = ["Device", "device", "execute", "load_cupy", "load_kernel"]

Registers = NDArray[np.uint32]
#: Number of threads per CTA of a kernel. A CTA that executes ``wgmma`` is one warpgroup.
_CTA_THREADS = 128
_WORD_BYTES = 4
_MODULE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Device:
    """Properties of a GPU that executes instructions."""

    name: str  #: Name of the GPU, as its driver reports it.
    arch: str  #: Architecture of the GPU, one of :data:`~sptc.isa.variants.ARCHITECTURES`.
    cuda: str  #: CUDA version that the GPU's driver supports.
    driver: str  #: Version of the GPU's driver, or empty if the system does not report it


@lru_cache(maxsize=1)
def device() -> Device:
    """Return the properties of CUDA's default GPU.

    Raise a `BackendError` if CuPy or a GPU is missing, or the GPU supports none of the instructions.
    """
    cupy, reason = load_cupy(), ""
    try:
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
        cuda = cupy.cuda.runtime.driverGetVersion()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        reason = str(error)
    if reason:  # Raise the error outside the except clause, since a chained CuPy error may not be picklable.
        raise BackendError(f"back end 'cuda' finds no NVIDIA GPU ({reason})")
    name, arch = properties["name"].decode(), f"sm_{properties['major']}{properties['minor']}"
    if arch not in ARCHITECTURES:
        raise BackendError(f"the GPU, {name}, is {arch}; back end 'cuda' runs on {', '.join(ARCHITECTURES)}")
    return Device(name, arch, f"{cuda // 1000}.{cuda % 1000 // 10}", driver_version(_MODULE))


def execute(instruction: Instruction, arch: str, held: HeldOperands) -> Registers:
    """Execute an ``mma`` or ``wgmma`` for each case (set of operands). Return D, shape (cases, threads, registers).

    `held` contains registers, images of shared memory, descriptors and immediate operands. Raise an `InstructionError`
    if the GPU's architecture does not have the instruction; and a `BackendError` if there is no GPU, it has another
    architecture than `arch`, its driver does not accept the instruction, or the operands exceed its shared memory.
    """
    gpu = device()
    require_architecture(instruction, gpu.arch)
    if arch != gpu.arch:
        raise BackendError(f"the requested architecture is {arch}, but the GPU, {gpu.name}, is {gpu.arch}")
    cupy = load_cupy()
    arrays = {name: np.ascontiguousarray(array) for name, array in held.arrays.items()}
    cases, threads, image_bytes = len(arrays["c"]), instruction.threads, 0
    if instruction.family == "wgmma":
        # The kernel copies images of shared memory as 32-bit words.
        image = np.pad(arrays["b"], ((0, 0), (0, -arrays["b"].shape[1] % _WORD_BYTES)))
        arrays["b"], image_bytes = image.view(np.uint32), image.shape[1]
    try:
        function = _function(instruction, gpu.arch, held.immediates)
        if image_bytes:
            function.max_dynamic_shared_size_bytes = image_bytes
        memory = {name: cupy.asarray(array) for name, array in arrays.items()}
        d = cupy.empty((cases, threads, accumulator_fragment(instruction).registers), cupy.uint32)
        places = [memory[name].data.ptr if name in memory else 0 for name in ("a", "b", "c", "e", "scale_a", "scale_b")]
        pointers = [np.uint64(place) for place in (*places, d.data.ptr, *held.descriptors)]
        words = (*pointers, np.uint32(image_bytes), np.uint32(cases * threads))
        function((-(-cases * threads // _CTA_THREADS),), (_CTA_THREADS,), words, shared_mem=image_bytes)
        result: Registers = cupy.asnumpy(d)
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise BackendError(f"the GPU, {gpu.name} with CUDA {gpu.cuda}, does not run {instruction} ({error})") from None
    return result


@lru_cache(maxsize=1024)
def _function(instruction: Instruction, arch: str, immediates: Immediates) -> Any:
    return load_kernel(kernel(instruction, arch, immediates), ENTRY)


def load_kernel(text: str, entry: str) -> Any:
    """Let the GPU driver assemble PTX text, and return the kernel `entry`, which can be launched."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(text, encoding="ascii")
        function = load_cupy().RawModule(path=str(path)).get_function(entry)
        function.compile()
    return function


def load_cupy() -> Any:
    """Import and return CuPy, which the extra ``cuda`` of this package installs."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise BackendError(f"back end 'cuda' needs CuPy, which the extra 'cuda' of sptc installs ({error})") from None
