"""Bit-exact models of the sparse tensor-core instructions ``mma.sp``, ``wgmma.mma_async.sp`` and ``tcgen05.mma.sp``.

:func:`mma` computes on the registers of a warp, :func:`wgmma` on those of a warpgroup and on shared memory,
:func:`tcgen05_mma` on tensor memory and shared memory; :func:`ldmatrix` and :func:`stmatrix` move matrices between
shared memory and registers. :func:`pack` places matrices in the registers and memories from which an instruction reads
its operands, :func:`unpack` reads them back, :func:`save` and :func:`load` store operands in files, and
:func:`random_metadata` draws legal metadata. :func:`gemm` multiplies whole matrices, :func:`identify` infers from the
result of a kernel how the kernel summed the products, and :func:`diagnose` finds the error of a kernel whose result is
wrong. :func:`run_kernel` runs a compiled kernel on the models of its instructions.
:func:`evidence` returns the evidence for the numerics of an instruction (recorded, measured, recorded elsewhere,
spot-checked elsewhere or modelled), and :func:`numerics` returns these numerics. :class:`WgmmaSequence` checks the
order of the calls around ``wgmma``. Bad input raises an :class:`Error`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .api.matrix_moves import ldmatrix, stmatrix
from .api.tcgen05 import tcgen05_mma
from .api.warp import evidence, mma, numerics
from .api.warpgroup import wgmma
from .errors import (
    BackendError,
    Error,
    FileError,
    InstructionError,
    KernelError,
    MetadataError,
    OperandError,
    OrderError,
)
from .isa.life_cycle import WgmmaSequence

__all__ = [
    "BackendError",
    "Compressed",
    "Error",
    "FileError",
    "InstructionError",
    "KernelError",
    "MetadataError",
    "OperandError",
    "OrderError",
    "StructParameter",
    "TensorMap",
    "WgmmaSequence",
    "diagnose",
    "evidence",
    "gemm",
    "identify",
    "ldmatrix",
    "load",
    "mma",
    "numerics",
    "pack",
    "random_metadata",
    "run_kernel",
    "save",
    "stmatrix",
    "tcgen05_mma",
    "tilelang",
    "triton",
    "unpack",
    "wgmma",
]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .gemm.identify import diagnose as diagnose
    from .gemm.identify import identify as identify
    from .gemm.multiply import gemm as gemm
    from .gemm.pack import pack as pack
    from .gemm.pack import random_metadata as random_metadata
    from .gemm.tile_file import load as load
    from .gemm.tile_file import save as save
    from .gemm.unpack import unpack as unpack
    from .kernels import tilelang as tilelang
    from .kernels import triton as triton
    from .kernels.arguments import StructParameter as StructParameter
    from .kernels.arguments import TensorMap as TensorMap
    from .kernels.launch import run_kernel as run_kernel
    from .tensors.compressed import Compressed as Compressed

#: Public names that are imported on first use, so that `import sptc` is fast. Key: name. Value: module, and member of
#: the module (empty if the name stands for the module). The package `gemm` is callable as a function.
_LATER = {
    "gemm": (".gemm", ""),
    "diagnose": (".gemm.identify", "diagnose"),
    "identify": (".gemm.identify", "identify"),
    "load": (".gemm.tile_file", "load"),
    "pack": (".gemm.pack", "pack"),
    "random_metadata": (".gemm.pack", "random_metadata"),
    "run_kernel": (".kernels.launch", "run_kernel"),
    "save": (".gemm.tile_file", "save"),
    "unpack": (".gemm.unpack", "unpack"),
    "StructParameter": (".kernels.arguments", "StructParameter"),
    "TensorMap": (".kernels.arguments", "TensorMap"),
    "tilelang": (".kernels.tilelang", ""),
    "triton": (".kernels.triton", ""),
    "Compressed": (".tensors.compressed", "Compressed"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, member = _LATER[name]
    imported = import_module(module, __name__)
    return getattr(imported, member) if member else imported
