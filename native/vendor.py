"""Export of libsptc's files, so that they can be copied into another source tree."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ..errors import FileError
from ..infra.files import write_whole
from .tables import GENERATED, header

__all__ = ["files", "write_files"]

_FOLDER = Path(__file__).parent
_PATTERNS = ("README.md", "CMakeLists.txt", "Makefile", "*.in", "*.map", "include/*.h", "src/*", "dpi/*", "examples/*")


def files() -> Iterator[PurePosixPath]:
    """Yield the paths of the files of libsptc, relative to the library's folder. The last file is generated."""
    for pattern in _PATTERNS:
        for path in sorted(_FOLDER.glob(pattern)):
            yield PurePosixPath(path.relative_to(_FOLDER).as_posix())
    yield PurePosixPath(GENERATED)


def write_files(prefix: Path) -> int:
    """Write all files of libsptc and return their number. Raise a `FileError` if a file cannot be written."""
    count = 0
    for name in files():
        path = prefix / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{path.parent} cannot be created ({error.strerror})") from None
        write_whole(path, header().encode() if str(name) == GENERATED else (_FOLDER / name).read_bytes())
        count += 1
    return count
