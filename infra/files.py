"""Files on the user's disk: where what can be made again is kept, and writing that leaves nothing half-written."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path

from ..errors import FileError

__all__ = ["cache_folder", "locked", "write_whole"]


def cache_folder() -> Path:
    """Return where compiled models and measurements are kept: ``$SPTC_CACHE``, or ``sptc`` in the user's cache."""
    if chosen := os.environ.get("SPTC_CACHE"):
        return Path(chosen)
    return user_cache_path("sptc", appauthor=False)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, in a folder that is made, for as long as the context lasts: one process at a time builds."""
    from filelock import FileLock  # here, because it takes longer to import than to load a model that is built

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path):
        yield


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
    if not path.name:
        raise FileError(f"{path} cannot be written (it is a folder)")
    part = path.with_name(f"{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
        part.replace(path)
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror})") from None
    finally:
        with suppress(OSError):
            part.unlink()
