"""Writing files where the user wants them: whole or not at all, and nothing replaced that is no file."""

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import FileError

__all__ = ["STANDARD_OUTPUT", "move_whole", "require_writable", "whole_file", "write_whole"]

#: Stands for standard output.
STANDARD_OUTPUT = Path("-")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, whoever else is writing it.

    Parameters
    ----------
    path : Path
        As for :func:`whole_file`.
    data : bytes
        All of it.

    Raises
    ------
    FileError
        It cannot be written.
    """
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is there, or takes the place of an older one, when all of it is written.

    Parameters
    ----------
    path : Path
        Which file. A symbolic link is followed. A device, a pipe or a socket is written to as it is and never replaced;
        ``-`` is standard output. An older file's permissions are kept.

    Raises
    ------
    FileError
        It cannot be written.
    """
    sys.stdout.flush()  # which may be what the path leads to
    if path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _named(path):
        if _is_kept(path):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
                yield file
            return
        with _part_of(path) as (part, target):
            with part.open("xb") as file:
                yield file
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)


def move_whole(source: Path, path: Path) -> None:
    """Move a file to its place, of which :func:`whole_file` says what becomes.

    It is copied to what is no file, and where a link leads to another file system.

    Raises
    ------
    FileError
        It cannot be written.
    """
    with _named(path):
        if path != STANDARD_OUTPUT and not _is_kept(path):
            try:
                source.replace(path.resolve() if path.is_symlink() else path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
    with source.open("rb") as moved, whole_file(path) as file:
        shutil.copyfileobj(moved, file)
    source.unlink()


def require_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work whose result it is to hold.

    Raises
    ------
    FileError
        It cannot be written.
    """
    if path == STANDARD_OUTPUT:
        return
    with _named(path):
        if _is_kept(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with _part_of(path) as (part, _):
            part.touch(exist_ok=False)


def _is_kept(path: Path) -> bool:
    """Return whether something is there that is no file; what a process has open, as /dev/stdout, counts so too."""
    with suppress(FileNotFoundError):
        path.stat()  # links that lead round in circles end here
    while path.is_symlink():
        path = path.parent / path.readlink()
        if path.is_relative_to("/proc"):
            return True
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Say which file it is that cannot be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror or error})") from None


@contextmanager
def _part_of(path: Path) -> Iterator[tuple[Path, Path]]:
    """Name a new file beside the one that is to be written, which is gone at the end; and that one, links followed."""
    if not path.name:
        raise FileError(f"{path} cannot be written (it is a folder)")
    target = path.resolve() if path.is_symlink() else path
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    part = target.with_name(f"{secrets.token_hex(8)}.part")
    try:
        yield part, target
    finally:
        with suppress(OSError):
            part.unlink()
