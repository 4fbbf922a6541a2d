"""Cache of build results and measurements. A file is used only if no other user could have written the file."""

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path

from ..errors import BackendError, FileError
from .files import write_whole
from .loader import is_whole
from .privacy import WRITABLE_BY_OTHERS, require_private
from .reading import read_bytes

__all__ = ["built", "cache_folder", "is_built", "recall", "store"]

#: Suffixes of compiled files. A compiled file is checked before it is loaded or linked.
_COMPILED = (".so", ".o")


def cache_folder() -> Path:
    """Return the folder of compiled models and measurements: ``$SPTC_CACHE``, or ``sptc`` in the user's cache folder.

    If the user has no home folder, as in some containers, return a temporary folder of this process.
    """
    if chosen := os.environ.get("SPTC_CACHE"):
        return Path(chosen).absolute()  # absolute, because compilers run in another folder
    try:
        folder = user_cache_path("sptc", appauthor=False)
    except RuntimeError:  # the user has no home folder; platformdirs before 4.11 then returns a relative path
        folder = Path()
    return folder if folder.is_absolute() else Path(_own_folder().name)


def is_built(name: str) -> bool:
    """Return whether the file `name` is in the cache, so that :func:`built` need not build it."""
    try:
        return (cache_folder() / name).exists()
    except OSError:
        return False


def built(name: str, build: Callable[[Path], None]) -> Path:
    """Return the path of a file in the cache. A missing file is built by one process, while other processes wait.

    `name` must identify everything that the content depends on, and `build` creates the file atomically. If the cache
    cannot be written, the file is built in a temporary folder of this process. A library that is truncated or for
    another machine is built again, with a note on standard error. Raise a `BackendError`, before anything is built, if
    another user could have written the file or a folder that leads to it; or if the file cannot be written to the
    temporary folder either.
    """
    path = cache_folder() / name
    require_private(path)
    try:
        _build_once(path, build)
    except OSError:
        path = Path(_own_folder().name) / name
        try:
            _build_once(path, build)
        except OSError as error:
            raise BackendError(f"{path} cannot be written ({error.strerror or error})") from None
    require_private(path)
    return path


def _build_once(path: Path, build: Callable[[Path], None]) -> None:
    if _is_usable(path):
        return
    from filelock import FileLock  # import filelock only for a build: the import takes longer than loading a model

    _make_private(path.parent)
    with FileLock(path.with_suffix(".lock")):
        if not _is_usable(path):
            if path.exists():
                print(f"sptc: {path} is truncated or for another machine: rebuilding it", file=sys.stderr)
                path.unlink()
            build(path)
            _close(path)


def _is_usable(path: Path) -> bool:
    """Return whether a file can be used: it exists and, if it is a compiled file, was written to its end."""
    if path.suffix not in _COMPILED:
        return path.exists()
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return False
    try:
        return is_whole(descriptor)
    finally:
        os.close(descriptor)


def recall(name: str) -> bytes | None:
    """Return the bytes that :func:`store` stored under a name, or None if the cache has no such readable file.

    Raise the errors of :func:`require_private`.
    """
    path = cache_folder() / name
    require_private(path)
    try:
        return read_bytes(path)
    except FileError:
        return None


def store(name: str, data: bytes) -> None:
    """Store bytes in the cache under a name, which is a relative path. Do nothing if the cache cannot be written."""
    path = cache_folder() / name
    with suppress(OSError, FileError):
        _make_private(path.parent)
        write_whole(path, data)
        _close(path)


def _make_private(folder: Path) -> None:
    """Create a cache folder and its parent folders, accessible to this user only."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            with suppress(FileExistsError):
                place.mkdir(mode=0o700)


def _close(path: Path) -> None:
    """Remove the permission of other users to write a file or folder. A permissive umask grants this permission."""
    path.chmod(path.stat().st_mode & ~WRITABLE_BY_OTHERS)


@cache
def _own_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="sptc-")
