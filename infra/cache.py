"""The user's cache of build results and measurements. A file is used only if no other user could have written it."""

import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path

from ..errors import BackendError, FileError
from .files import write_whole
from .reading import read_bytes

__all__ = ["built", "cache_folder", "is_built", "recall", "require_private", "store"]

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_REMEDY = "remove it, or name another folder in SPTC_CACHE"


def cache_folder() -> Path:
    """Return the folder of compiled models and measurements: ``$SPTC_CACHE``, or ``sptc`` in the user's cache."""
    if chosen := os.environ.get("SPTC_CACHE"):
        return Path(chosen)
    return user_cache_path("sptc", appauthor=False)


def require_private(path: Path) -> None:
    """Raise a `BackendError` if another user could have written an existing file or folder of the cache."""
    if not hasattr(os, "geteuid"):  # the system has no POSIX permissions
        return
    for place in (path.parent, path):
        status = place.stat()
        if status.st_uid not in (os.geteuid(), 0):
            raise BackendError(f"{place} belongs to another user (number {status.st_uid}) and is not used: {_REMEDY}")
        if status.st_mode & _WRITABLE_BY_OTHERS:
            mode = stat.filemode(status.st_mode)
            raise BackendError(f"{place} can be written by other users ({mode}) and is not used: {_REMEDY}")


def is_built(name: str) -> bool:
    """Return whether the cache has a file, so that :func:`built` would not build it."""
    return (cache_folder() / name).exists()


def built(name: str, build: Callable[[Path], None]) -> Path:
    """Return the path of a file of the cache. A missing file is built, by one process at a time.

    `name` must identify everything that the content depends on, and `build` creates the file atomically. If the cache
    cannot be written, the file is built in a temporary folder of this process. Raise a `BackendError` if another user
    could have written the file or it can be written nowhere.
    """
    path = cache_folder() / name
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
    if path.exists():
        return
    from filelock import FileLock  # imported here: importing filelock takes longer than loading a cached model

    _make_private(path.parent)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            build(path)
            _close(path)


def recall(name: str) -> bytes | None:
    """Return the bytes that :func:`store` stored under a name; None if there are none.

    Errors are those of :func:`require_private`.
    """
    path = cache_folder() / name
    if not path.exists():
        return None
    require_private(path)
    try:
        return read_bytes(path)
    except FileError:
        return None


def store(name: str, data: bytes) -> None:
    """Store bytes under a name, a path in the cache; do nothing if the cache cannot be written."""
    path = cache_folder() / name
    with suppress(OSError, FileError):
        _make_private(path.parent)
        write_whole(path, data)
        _close(path)


def _make_private(folder: Path) -> None:
    """Create a folder of the cache and its parents, accessible to this user only."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            with suppress(FileExistsError):
                place.mkdir(mode=0o700)


def _close(path: Path) -> None:
    """Remove the write permission of other users, which a permissive umask grants."""
    path.chmod(path.stat().st_mode & ~_WRITABLE_BY_OTHERS)


@cache
def _own_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="sptc-")
