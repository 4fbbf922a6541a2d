"""Check by owner and permissions that no other user could have written a file, or a folder or link on its path."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import BackendError

__all__ = ["WRITABLE_BY_OTHERS", "require_private", "require_private_file"]

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_REMEDY = "remove it, or name another folder in SPTC_CACHE"
#: Maximum number of symbolic links on a path, as in Linux.
_MOST_LINKS = 40


def require_private(path: Path) -> None:
    """Raise a `BackendError` if another user could have written a file or folder, or a folder or link on its path.

    Missing files and folders are not checked. A parent folder may be writable by others if it has the sticky bit, as
    ``/tmp`` has.
    """
    for place, is_last in _walked(path):
        try:
            status = place.lstat()
        except OSError:  # A missing or inaccessible file or folder has no content to check.
            return
        if not is_last and not stat.S_ISDIR(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            return
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and not is_last
        if sticky or stat.S_ISLNK(status.st_mode):
            _require_owner(place, status)
        else:
            require_private_file(place, status)


def require_private_file(place: Path, status: os.stat_result) -> None:
    """Raise a `BackendError` if owner or permissions in `status` allow another user to write the file or folder."""
    _require_owner(place, status)
    if status.st_mode & WRITABLE_BY_OTHERS:
        mode = stat.filemode(status.st_mode)
        raise BackendError(f"{place} can be written by other users ({mode}) and is not used: {_REMEDY}")


def _require_owner(place: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise BackendError(f"{place} belongs to another user (user ID {status.st_uid}) and is not used: {_REMEDY}")


def _walked(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each folder and link on a path, then the path itself, each with a bool that is True for the path itself."""
    place, *left = map(Path, path.absolute().parts)
    links = 0
    while left:
        part = left.pop(0)
        place = place.parent if part == Path("..") else place / part
        yield place, not left
        if place.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise BackendError(f"{path} has too many symbolic links and is not used: {_REMEDY}")
            target = place.readlink()
            left = [*map(Path, target.parts), *left]
            place = Path(target.anchor) if target.is_absolute() else place.parent
