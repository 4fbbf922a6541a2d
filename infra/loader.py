"""Loader of shared libraries, which loads exactly the file that it has checked."""

import ctypes
import os
import platform
import stat
import struct
from itertools import count
from pathlib import Path

from ..errors import BackendError
from .privacy import require_private, require_private_file

__all__ = ["is_whole", "load_library"]

_DESCRIPTORS = Path("/proc/self/fd")
_NUMBERS = count(1)
#: Format of the header of a 64-bit ELF file: identification, type, machine, positions and sizes of its tables.
_ELF = struct.Struct("<4s12xHHI8xQQI6H")
#: Codes of CPU architectures in the ELF header, by name of the CPU architecture.
_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}
_SEGMENT = struct.Struct("<II5Q8x")


def load_library(path: Path, *, installed: bool = False) -> ctypes.CDLL:
    """Load a shared library from the cache, the installed package, or a temporary folder of this process.

    An `installed` library is part of the installed package, whose files may belong to another user. Raise a
    `BackendError` if the library is truncated, for another machine, or not loadable; or if it is not `installed`, and
    another user could have written it.
    """
    if not installed:
        require_private(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BackendError(f"{path} cannot be loaded ({error.strerror})") from None
    try:
        if not installed:
            require_private_file(path, os.fstat(descriptor))
        if not is_whole(descriptor):
            raise BackendError(f"{path} cannot be loaded (it is truncated, or for another CPU architecture)")
        return ctypes.CDLL(_name_of(descriptor) if _DESCRIPTORS.is_dir() else str(path))
    except OSError as error:
        raise BackendError(f"{path} cannot be loaded ({error})") from None
    finally:
        os.close(descriptor)


def _name_of(descriptor: int) -> str:
    """Return a new path to an open file, since the dynamic loader loads a library only once from each path."""
    bits = f"{next(_NUMBERS):b}"
    return f"{_DESCRIPTORS}{''.join('/.' if bit == '1' else '/' for bit in bits)}/{descriptor}"


def is_whole(descriptor: int) -> bool:
    """Return whether an open file is a complete 64-bit ELF file for the CPU of this process."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return False
    header = os.pread(descriptor, _ELF.size, 0)
    if len(header) < _ELF.size:
        return False
    mark, _, machine, _, segments, sections, _, _, segment_bytes, segment_count, section_bytes, section_count, _ = (
        _ELF.unpack(header)
    )
    if mark != b"\x7fELF" or machine != _MACHINES.get(platform.machine(), machine):
        return False
    ends = [segments + segment_bytes * segment_count, sections + section_bytes * section_count]
    if max(ends) > status.st_size or (segment_count and segment_bytes < _SEGMENT.size):
        return False
    table = os.pread(descriptor, segment_bytes * segment_count, segments)
    for number in range(segment_count):
        _, _, offset, _, _, size, _ = _SEGMENT.unpack_from(table, segment_bytes * number)
        ends.append(offset + size)
    return max(ends) <= status.st_size
