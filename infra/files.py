"""Write files atomically: a file is complete or absent. Only plain files are replaced."""

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import FileError

__all__ = ["STANDARD_OUTPUT", "move_whole", "require_writable", "whole_file", "write_whole"]

#: Word for standard output.
STANDARD_OUTPUT = Path("-")
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def write_whole(path: Path, data: bytes) -> None:
    """Write a file as :func:`whole_file` does, whole or not at all, even if other processes write it too."""
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that is created, or replaces an older one, at the end of the context.

    A symbolic link is followed. A device, a pipe or a socket is written directly and never replaced; ``-`` is standard
    output. The permissions of an older file are kept; a read-only one is not replaced. Raise a `FileError` if the file
    cannot be written.
    """
    sys.stdout.flush()  # the path may lead to standard output
    if path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _named(path):
        if _is_kept(path):
            with os.fdopen(_opened_to_append(path), "wb") as file:
                yield file
            return
        with _part_of(path) as (part, target):
            with part.open("xb") as file:
                yield file
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)


def move_whole(source: Path, path: Path) -> None:
    """Move a file to `path`, by the rules and with the error of :func:`whole_file`.

    It is copied if `path` is not a plain file, or leads to another file system.
    """
    with _named(path):
        if path != STANDARD_OUTPUT and not _is_kept(path):
            target = path.resolve() if path.is_symlink() else path
            _require_replaceable(target)
            try:
                source.replace(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
    with source.open("rb") as moved, whole_file(path) as file:
        shutil.copyfileobj(moved, file)
    source.unlink()


def require_writable(path: Path) -> None:
    """Raise a `FileError` if a file cannot be written, before the work that produces its content."""
    if path == STANDARD_OUTPUT:
        return
    with _named(path):
        if _is_kept(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with _part_of(path) as (part, _):
            part.touch(exist_ok=False)


def _opened_to_append(path: Path) -> int:
    """Open a device, a pipe or a socket for writing; say so on standard error if a pipe has no reader yet, and wait."""
    flags = os.O_WRONLY | os.O_APPEND
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno != errno.ENXIO or not path.is_fifo():
            raise
        print(f"sptc: {path} is a pipe without a reader: waiting for one", file=sys.stderr, flush=True)
        return os.open(path, flags)
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)
    return descriptor


def _require_replaceable(target: Path) -> None:
    """Raise a `PermissionError` if a file exists and is read-only. Replacing it needs only rights on its folder."""
    if target.exists() and not (target.stat().st_mode & _WRITABLE and os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, "it is read-only")


def _is_kept(path: Path) -> bool:
    """Return whether `path` is a device, a pipe or a socket, or leads to an open file of a process (/dev/stdout)."""
    with suppress(FileNotFoundError):
        path.stat()  # raises an error for a cycle of links
    while path.is_symlink():
        path = path.parent / path.readlink()
        if path.is_relative_to("/proc"):
            return True
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `FileError` that names the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror or error})") from None


@contextmanager
def _part_of(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the path of a temporary file beside the target, and the target with links followed; remove the former."""
    if not path.name:
        raise FileError(f"{path} cannot be written (it is a folder)")
    target = path.resolve() if path.is_symlink() else path
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    _require_replaceable(target)
    part = target.with_name(f"{secrets.token_hex(8)}.part")
    try:
        yield part, target
    finally:
        with suppress(OSError):
            part.unlink()
