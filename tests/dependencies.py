"""Dependencies of a test file: subpackages ("rooms") that the file could use, and a digest of files it could read.

A dependency on a subpackage includes all its files, whether Python or not, and every subpackage that they import. A
test that starts processes depends on all subpackages.
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
#: A test file that contains one of these words counts as starting a program, which could import any subpackage.
_STARTS_PROGRAMS = ("subprocess", "sys.executable")
#: A test file that contains one of these words counts as reading files outside all subpackages.
_READS_FILES = ("README", "pyproject", "docs/", '"docs"', "fusesoc", "benchmarks", "action.yml", "Makefile")
#: A test file that contains one of these words counts as depending on comments or docstrings. The docstring of a
#: property is the statement that `sptc prove` prints. The scripts in benchmarks/ read only their own docstrings.
_READS_DOCSTRINGS = ("module.__doc__", ".statement", *(word for word in _READS_FILES if word != "benchmarks"))
#: Name for files outside all subpackages: pages, scripts, benchmarks.
_OUTSIDE = "outside"
#: Folders of data files, by the subpackage that reads them.
_DATA = {"isa": ("recordings",), "cli": ("fusesoc",)}
#: Subpackages that another subpackage imports by module names in a table (`api/backends.py`), not by import statements.
_BY_NAME = {"api": {"sim/engine", "native"}}
#: Dependencies of a test that could read every file: all subpackages, and the files outside all of them.
EVERYTHING = frozenset({*MAY_IMPORT, _OUTSIDE})
#: Files that determine what is installed, or how tests run.
_ALWAYS = ("pyproject.toml", "setup.py", "tests/conftest.py", "tests/dependencies.py", "errors.py", "__init__.py")


def needs(file: Path) -> frozenset[str]:
    """Return the subpackages that a test file could use, and `_OUTSIDE` if it could read files outside all of them."""
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
    """Yield the files of a module in `tests/`. The last of `parts` may be a name that the module defines."""
    for place in (TESTS.joinpath(*parts), TESTS.joinpath(*parts[:-1])):
        yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists())


def _rooms(name: str) -> set[str]:
    """Return the subpackages that define an imported name. Errors and the version belong to the root, ""."""
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
    """Return the names that tests/conftest.py imports at module level, and in each fixture that the texts mention."""
    kept = [
        node
        for node in ast.parse((TESTS / "conftest.py").read_text(encoding="utf-8")).body
        if not isinstance(node, ast.FunctionDef) or any(node.name.lstrip("_") in of_test for of_test in texts)
    ]
    return [name for node in kept for name in imports(ast.Module([node], []), "sptc.tests.conftest", is_package=False)]


@cache
def _reached(room: str) -> frozenset[str]:
    """Return a subpackage and all subpackages that its files import, directly or indirectly."""
    found, waiting = set(), {room}
    while waiting:
        room = waiting.pop()
        found.add(room)
        # Errors and the version belong to the subpackage "", the root, whose own imports do not count.
        names = {name for path in files_of(room) if room for name in imports_of(path) if _is_ours(name)}
        waiting |= ({of for name in names for of in _rooms(name)} | _BY_NAME.get(room, set())) - found
    return frozenset(found)


def _files(rooms: frozenset[str], file: Path) -> Iterator[Path]:
    """Yield the files of subpackages, helpers in the folder of a test, and the files on which every test depends."""
    yield from (ROOT / name for name in _ALWAYS)
    yield from (path for path in _below(file.parent) if file.parent != TESTS and not path.name.startswith("test_"))
    for room in rooms - {_OUTSIDE, ""}:
        for name in (room, *_DATA.get(room, ())):
            yield from _below(ROOT / name)
    if _OUTSIDE in rooms:
        yield from _below(ROOT)


def _below(folder: Path) -> Iterator[Path]:
    for place, names, files in os.walk(folder):
        names[:] = sorted(n for n in names if not n.startswith(".") and n not in ("build", "dist", "__pycache__"))
        names[:] = [name for name in names if not name.endswith(".egg-info")]
        yield from (Path(place) / name for name in sorted(files) if not name.startswith("."))


@cache
def _content(path: Path, is_read: bool, changed: int, size: int) -> bytes:
    """Return a digest of a file: of its bytes, or only of its code. The digest is cached until the file changes."""
    if path.suffix == ".py" and not is_read and not {TESTS, ROOT / "benchmarks"} & {*path.parents}:
        return code_digest([path]).encode()
    return hashlib.sha256(path.read_bytes()).digest()


def rooms_of_modules(names: Iterable[str]) -> frozenset[str]:
    """Return the subpackages of imported modules, without the root and packages that have only a docstring."""
    files = {module_name(path) for room in MAY_IMPORT if room for path in files_of(room) if _has_code(path)}
    return frozenset(charged(f"{name}.x") for name in names if name in files)


def _has_code(path: Path) -> bool:
    return any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)
