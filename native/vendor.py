"""Export of libsptc's files, so that they can be copied into another source tree."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ..infra.files import create_folder, mode_of, require_writable, write_whole
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
    """Write all files of libsptc and return their number. If one cannot be written, write none: raise a `FileError`."""
    paths = {name: prefix / name for name in files()}
    for path in paths.values():
        if mode_of(path.parent):
            require_writable(path)
    for path in paths.values():
        create_folder(path.parent)
    for name, path in paths.items():
        write_whole(path, header().encode() if str(name) == GENERATED else (_FOLDER / name).read_bytes())
    return len(paths)
