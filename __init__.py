"""Bit-exact models of the sparse tensor-core instructions ``mma.sp``, ``wgmma.mma_async.sp`` and ``tcgen05.mma.sp``.

:func:`mma` computes on the registers of a warp, :func:`wgmma` on those of a warpgroup and on shared memory,
:func:`tcgen05_mma` on tensor memory and shared memory; :func:`ldmatrix` and :func:`stmatrix` move matrices between
shared memory and registers. :func:`evidence` says whether the numerics of an instruction are measured or modelled.
:class:`WgmmaSequence` checks the order of the calls around ``wgmma``. Bad input raises an :class:`Error`.
"""

from .api.matrix_moves import ldmatrix, stmatrix
from .api.tcgen05 import tcgen05_mma
from .api.warp import evidence, mma
from .api.warpgroup import wgmma
from .errors import (
    BackendError,
    Error,
    FileError,
    InstructionError,
    MetadataError,
    OperandError,
    OrderError,
)
from .isa.life_cycle import WgmmaSequence

__all__ = [
    "BackendError",
    "Error",
    "FileError",
    "InstructionError",
    "MetadataError",
    "OperandError",
    "OrderError",
    "WgmmaSequence",
    "evidence",
    "ldmatrix",
    "mma",
    "stmatrix",
    "tcgen05_mma",
    "wgmma",
]

__version__ = "0.1.0"
