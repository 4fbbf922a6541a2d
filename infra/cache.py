"""The user's cache: what can be made again is made once, and taken only if no other user could have written it."""

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
    """Return where compiled models and measurements are kept: ``$SPTC_CACHE``, or ``sptc`` in the user's cache."""
    if chosen := os.environ.get("SPTC_CACHE"):
        return Path(chosen)
    return user_cache_path("sptc", appauthor=False)


def require_private(path: Path) -> None:
    """Refuse what is in the cache if another user could have put it there: it is linked into this process, or believed.

    Parameters
    ----------
    path : Path
        An existing file or folder of the cache.

    Raises
    ------
    BackendError
        It, or the folder that it is in, belongs to somebody else or can be written by others.
    """
    if not hasattr(os, "geteuid"):  # elsewhere permissions are no such bits
        return
    for place in (path.parent, path):
        found = place.stat()
        if found.st_uid not in (os.geteuid(), 0):
            raise BackendError(f"{place} belongs to another user (number {found.st_uid}) and is not used: {_REMEDY}")
        if found.st_mode & _WRITABLE_BY_OTHERS:
            mode = stat.filemode(found.st_mode)
            raise BackendError(f"{place} can be written by other users ({mode}) and is not used: {_REMEDY}")


def is_built(name: str) -> bool:
    """Return whether :func:`built` would find a file."""
    return (cache_folder() / name).exists()


def built(name: str, build: Callable[[Path], None]) -> Path:
    """Return a file of the cache, built if it is not there, by one process at a time.

    Where the cache cannot be written, it is built in a folder of this process's own, which goes with it.

    Parameters
    ----------
    name : str
        Of the file, which says all that it depends on.
    build : callable (Path) -> None
        Puts the whole file there at once.

    Raises
    ------
    BackendError
        Another user could have written it; there is room for it nowhere; or as `build` does.
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
    from filelock import FileLock  # here, because it takes longer to import than to load a model that is built

    _make_private(path.parent)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            build(path)
            _close(path)


def recall(name: str) -> bytes | None:
    """Return what :func:`store` has kept under a name, None if nothing.

    Raises
    ------
    BackendError
        Another user could have written it.
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
    """Keep bytes under a name, a path in the cache; where it cannot be written, they are not kept."""
    path = cache_folder() / name
    with suppress(OSError, FileError):
        _make_private(path.parent)
        write_whole(path, data)
        _close(path)


def _make_private(folder: Path) -> None:
    """Make a folder of the cache, and those above it, for this user alone."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            with suppress(FileExistsError):
                place.mkdir(mode=0o700)


def _close(path: Path) -> None:
    """Take the right to write a file from all others, which a generous mask gives them."""
    path.chmod(path.stat().st_mode & ~_WRITABLE_BY_OTHERS)


@cache
def _own_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="sptc-")
