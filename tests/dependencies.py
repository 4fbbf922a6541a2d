"""Dependencies of a test file: the rooms that it and its helpers import, and a digest of all files that it could read.

A room is taken whole, with every room that its files import, and with files that are no Python: so a test is run again
when anything changes that it could reach. One that starts processes could reach them all.
"""

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sptc.infra.sources import code_digest
from sptc.tests.test_house import MAY_IMPORT, ROOT, charged, files_of, imports, imports_of, module_name

__all__ = ["EVERYTHING", "digest_of", "needs", "rooms_of_modules"]

TESTS = ROOT / "tests"
#: Words in a test that starts a program, which could import anything.
_STARTS_PROGRAMS = ("subprocess", "sys.executable")
#: Words in a test that reads files outside all rooms.
_READS_FILES = ("README", "pyproject", "docs/", '"docs"', "fusesoc", "benchmarks", "action.yml", "Makefile")
#: Words in a test that depends on comments or docstrings. The docstring of a property is the statement that `sptc
#: prove` prints.
_READS_DOCSTRINGS = ("module.__doc__", ".statement", *_READS_FILES)
#: Name for files outside all rooms: pages, scripts, benchmarks.
_OUTSIDE = "outside"
#: Folders of data, by the room whose files read them.
_DATA = {"isa": ("recordings",), "cli": ("fusesoc",)}
#: Rooms whose modules another room imports by names in a table (`api/backends.py`).
_BY_NAME = {"api": {"sim/engine", "native"}}
#: All rooms, and files outside all rooms.
EVERYTHING = frozenset({*MAY_IMPORT, _OUTSIDE})
#: Files that determine what is installed, or how tests run.
_ALWAYS = ("pyproject.toml", "setup.py", "tests/conftest.py", "tests/dependencies.py", "errors.py", "__init__.py")


def needs(file: Path) -> frozenset[str]:
    """Return the rooms that a test file could use, and `_OUTSIDE` if it could read files outside all rooms."""
    texts = [path.read_text(encoding="utf-8") for path in modules(file)]
    if file.parent == TESTS or any(word in text for text in texts for word in _READS_FILES):
        return EVERYTHING
    if any(word in text for text in texts for word in _STARTS_PROGRAMS):
        return EVERYTHING - {_OUTSIDE}
    names = [name for path in modules(file) for name in imports_of(path)]
    names += _of_fixtures(texts)
    return frozenset({room for name in names if _is_ours(name) for of in _rooms(name) for room in _reached(of)})


def digest_of(file: Path) -> str:
    """Return a digest of the files that a test file could read. Comments count only if the test reads them."""
    digest = hashlib.sha256()
    texts = [path.read_text(encoding="utf-8") for path in modules(file)]
    is_read = file.parent == TESTS or any(word in text for text in texts for word in _READS_DOCSTRINGS)
    for path in sorted({*modules(file), *_files(needs(file), file)}):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        status = path.stat()
        digest.update(_content(path, is_read, status.st_mtime_ns, status.st_size))
    return digest.hexdigest()[:16]


def modules(file: Path) -> list[Path]:
    """Return a test file, the conftest of its folder, and all helpers in `tests/` that these files import."""
    found, waiting = set(), {file, *file.parent.glob("conftest.py")} - {TESTS / "conftest.py"}
    while waiting:
        path = waiting.pop()
        found.add(path)
        for name in imports_of(path):
            parts = name.split(".")
            if parts[:2] == ["sptc", "tests"]:
                waiting |= {helper for helper in _helpers(parts[2:]) if helper not in found}
    return sorted(found)


def _helpers(parts: list[str]) -> Iterator[Path]:
    """Yield the files of a module in `tests/`. The last part of `parts` may be a name in the module."""
    for place in (TESTS.joinpath(*parts), TESTS.joinpath(*parts[:-1])):
        yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists())


def _rooms(name: str) -> set[str]:
    """Return the rooms of a name. A public name of the root belongs to the rooms that define it. Errors belong to no
    room.
    """
    room = charged(name)
    if room in MAY_IMPORT and room:
        return {room}
    exported = name.split(".")[1:2]
    if exported in (["errors"], ["__version__"]):
        return {""}
    from_where = {of for of in imports_of(ROOT / "__init__.py") if not exported or of.endswith(f".{exported[0]}")}
    return {charged(of) for of in from_where} & MAY_IMPORT.keys()


def _is_ours(name: str) -> bool:
    return name.split(".")[0] == "sptc" and not name.startswith("sptc.tests")


def _of_fixtures(texts: Iterable[str]) -> list[str]:
    """Return the imports of tests/conftest.py at module level, and of those of its fixtures that the texts name."""
    text = (TESTS / "conftest.py").read_text(encoding="utf-8")
    kept = [
        node
        for node in ast.parse(text).body
        if not isinstance(node, ast.FunctionDef) or any(node.name.lstrip("_") in of_test for of_test in texts)
    ]
    return [name for node in kept for name in imports(ast.Module([node], []), "sptc.tests.conftest", is_package=False)]


@cache
def _reached(room: str) -> frozenset[str]:
    """Return a room and all rooms that its files import, directly or indirectly."""
    found, waiting = set(), {room}
    while waiting:
        room = waiting.pop()
        found.add(room)
        # Importing an error or the version loads the package, but does not depend on the loaded modules.
        names = {name for path in files_of(room) if room for name in imports_of(path) if _is_ours(name)}
        waiting |= ({of for name in names for of in _rooms(name)} | _BY_NAME.get(room, set())) - found
    return frozenset(found)


def _files(rooms: frozenset[str], file: Path) -> Iterator[Path]:
    """Yield the files of rooms, and the files in the folder of a test that are not tests."""
    yield from (ROOT / name for name in _ALWAYS)
    yield from (path for path in _below(file.parent) if file.parent != TESTS and not path.name.startswith("test_"))
    for room in rooms - {_OUTSIDE, ""}:
        for name in (room, *_DATA.get(room, ())):
            yield from _below(ROOT / name)
    if _OUTSIDE in rooms:
        yield from _below(ROOT)


def _below(folder: Path) -> Iterator[Path]:
    """Yield every file in a folder and in its subfolders."""
    for place, names, files in os.walk(folder):
        names[:] = sorted(n for n in names if not n.startswith(".") and n not in ("build", "dist", "__pycache__"))
        names[:] = [name for name in names if not name.endswith(".egg-info")]
        yield from (Path(place) / name for name in sorted(files) if not name.startswith("."))


@cache
def _content(path: Path, is_read: bool, changed: int, size: int) -> bytes:
    """Return the digest of a file, of its bytes or of its code only. The digest is cached until the file changes."""
    if path.suffix == ".py" and not is_read and not path.is_relative_to(TESTS):
        return code_digest([path]).encode()
    return hashlib.sha256(path.read_bytes()).digest()


def rooms_of_modules(names: Iterable[str]) -> frozenset[str]:
    """Return the rooms of imported modules, given by module name.

    The root is none, nor is a package that only says what its rooms have in common.
    """
    files = {module_name(path) for room in MAY_IMPORT if room for path in files_of(room) if _has_code(path)}
    return frozenset(charged(f"{name}.x") for name in names if name in files)


def _has_code(path: Path) -> bool:
    return any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)
