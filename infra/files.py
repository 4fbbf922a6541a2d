"""Writing files on the user's disk so that nothing is left half-written."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import FileError

__all__ = ["require_writable", "write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, whoever else is writing it.

    Parameters
    ----------
    path : Path
        Which file; an older one is replaced.
    data : bytes
        All of it.

    Raises
    ------
    FileError
        It cannot be written.
    """
    with _part_of(path) as part:
        with part.open("xb") as file:
            file.write(data)
        part.replace(path)


def require_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work whose result it is to hold.

    Raises
    ------
    FileError
        It cannot be written.
    """
    with _part_of(path) as part:
        part.touch(exist_ok=False)


@contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """Name a new file beside one that is to be written, which is gone at the end."""
    if not path.name:
        raise FileError(f"{path} cannot be written (it is a folder)")
    part = path.with_name(f"{secrets.token_hex(8)}.part")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        yield part
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror})") from None
    finally:
        with suppress(OSError):
            part.unlink()
