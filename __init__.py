"""Bit-exact models of the sparse tensor-core instructions ``mma.sp`` and ``wgmma.mma_async.sp``."""

from .errors import BackendError, Error, FileError, InstructionError, MetadataError, OperandError, OrderError
from .isa.life_cycle import WgmmaSequence
from .matrix_moves import ldmatrix, stmatrix
from .operations import evidence, mma
from .tcgen05 import tcgen05_mma
from .warpgroup import wgmma

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
