"""Bit-exact models of the sparse tensor-core instructions ``mma.sp`` and ``wgmma.mma_async.sp``."""

from .errors import BackendError, Error, FileError, InstructionError, MetadataError, OperandError, OrderError
from .isa.life_cycle import WgmmaSequence
from .operations import evidence, mma, wgmma

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
    "mma",
    "wgmma",
]

__version__ = "0.1.0"
