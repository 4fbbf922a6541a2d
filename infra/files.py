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

__all__ = [
    "STANDARD_OUTPUT",
    "create_folder",
    "is_stream",
    "mode_of",
    "move_whole",
    "require_writable",
    "whole_file",
    "write_whole",
]

#: Path argument that means standard output.
STANDARD_OUTPUT = Path("-")
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def write_whole(path: Path, data: bytes) -> None:
    """Write a file by the rules of :func:`whole_file`, which are safe even if other processes write the same file."""
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing. The file is created, or replaces an older file, in one step at the end of the context.

    A symbolic link is followed. A device, a pipe or a socket is written directly and never replaced; ``-`` is standard
    output. The permissions of an older file are kept; a read-only file is not replaced. Raise a `FileError` if the file
    cannot be written.
    """
    sys.stdout.flush()  # print earlier output first, since `path` can lead to standard output
    if path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _named(path):
        if is_stream(path):
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
    """Move a file to `path`, with the rules and errors of :func:`whole_file`.

    The content is copied if `path` is not a plain file, or leads to another file system.
    """
    with _named(path):
        if not is_stream(path):
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
    """Raise a `FileError` if a file cannot be written. Call this function before the work that produces the content."""
    if path == STANDARD_OUTPUT:
        return
    with _named(path):
        if is_stream(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with _part_of(path) as (part, _):
            part.touch(exist_ok=False)


def is_stream(path: Path) -> bool:
    """Return whether `path` is ``-``, a device, a pipe or a socket, or a link to an open file of a process.

    A stream is written directly, and its name needs no suffix. Raise a `FileError` if the path cannot be followed.
    """
    if path == STANDARD_OUTPUT:
        return True
    with _named(path):
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # `stat` raises an error if symbolic links form a cycle
        while path.is_symlink():
            path = path.parent / path.readlink()
            if path.is_relative_to("/proc"):
                return True
        return path.exists() and not path.is_file() and not path.is_dir()


def mode_of(path: Path) -> int:
    """Return the mode (``st_mode``) of a file or folder; 0 if it does not exist, or its path cannot be followed."""
    with suppress(OSError):
        return path.stat().st_mode
    return 0


def create_folder(path: Path) -> None:
    """Create a folder and its parent folders if missing; raise a `FileError` if that fails or `path` is ``-``."""
    if path == STANDARD_OUTPUT:
        raise FileError("a folder cannot be written to standard output: name a folder instead of -")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"the folder {path} cannot be created ({error.strerror})") from None


def _opened_to_append(path: Path) -> int:
    """Open a device, pipe or socket for writing. If a pipe has no reader, report this on standard error and wait."""
    flags = os.O_WRONLY | os.O_APPEND
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO or not path.is_fifo():
            raise
        print(f"sptc: {path} is a pipe without a reader: waiting for a reader", file=sys.stderr, flush=True)
        return os.open(path, flags)
    os.set_blocking(descriptor, True)
    return descriptor


def _require_replaceable(target: Path) -> None:
    """Raise a `PermissionError` for a read-only file, which the system would replace if the folder is writable."""
    if target.exists() and not (target.stat().st_mode & _WRITABLE and os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, "the file is read-only")


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
    """Yield the paths of a temporary file and of the file to replace. Remove the temporary file on exit."""
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
