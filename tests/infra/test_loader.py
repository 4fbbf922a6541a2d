"""The loader loads only complete libraries that no other user could write, and loads exactly the checked file."""

import ast
import ctypes
import multiprocessing
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock  # noqa: F401  (a process of another user cannot import it)
import pytest
from sptc.errors import BackendError
from sptc.infra.cache import built, recall, store
from sptc.infra.compiler import compile_shared
from sptc.infra.loader import load_library
from sptc.infra.privacy import require_private

ROOT = Path(__file__).parents[2]
#: User IDs of two users without an account. The test itself runs as root.
ONE, OTHER = 54_321, 54_322
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two other users")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Contents of two libraries. The function `number` returns 1 in the first library and 2 in the second."""
    folder = tmp_path_factory.mktemp("libraries")
    for number in (1, 2):
        source = f'extern "C" int number() {{ return {number}; }}'
        compile_shared({"x.cpp": source}, folder / f"{number}.so", ("-O0",), "a library")
    return {number: (folder / f"{number}.so").read_bytes() for number in (1, 2)}


@pytest.fixture
def commons() -> Iterator[Path]:
    """Folder in which all users may create files, like /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="sptc-commons-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def as_user(user: int, work: Callable[[], Any]) -> Any:
    """Run a function in a process of another user. Return its result, or the message of its `BackendError`."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def task() -> None:
        os.setgid(user)
        os.setuid(user)
        os.umask(0o022)
        try:
            answers.put(work())
        except BackendError as error:
            answers.put(f"BackendError: {error}")

    child = context.Process(target=task)
    child.start()
    child.join()
    assert child.exitcode == 0, "the process of the other user failed"
    return answers.get()


def number_of(path: Path) -> int:
    return int(load_library(path).number())


def written(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


def never(path: Path) -> None:
    raise AssertionError("a library is compiled in a folder that another user could write")


def planted(folder: Path, data: bytes) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "thing.so").write_bytes(data)
    (folder / "figures").write_bytes(b"planted")
    return "done"


@root_only
def test_two_users(commons: Path, libraries: dict[int, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(commons / "cache"))
    one, other = libraries[1], libraries[2]
    assert as_user(ONE, lambda: number_of(built("thing.so", written(one)))) == 1
    assert as_user(ONE, lambda: [store("figures", b"1"), number_of(built("thing.so", never))][1]) == 1
    for user in (OTHER, 0):
        for work in (
            lambda: number_of(built("thing.so", never)),
            lambda: number_of(built("another.so", never)),
            lambda: number_of(commons / "cache" / "thing.so"),
            lambda: str(recall("figures")),
        ):
            assert f"belongs to another user (user ID {ONE})" in as_user(user, work)
    monkeypatch.setenv("SPTC_CACHE", str(commons / "own"))
    assert as_user(OTHER, lambda: number_of(built("thing.so", written(other)))) == 2
    assert as_user(ONE, lambda: number_of(commons / "own" / "thing.so")).startswith("BackendError: ")


@root_only
@pytest.mark.parametrize("way", ["ancestor", "link to a folder", "link to a file", "library", "lax ancestor"])
def test_planted_library(way: str, commons: Path, libraries: dict[int, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    place = commons / "above" / "cache"
    evil = commons / "evil"
    as_user(OTHER, lambda: planted(evil, libraries[2]))
    if way == "ancestor":
        as_user(OTHER, lambda: (commons / "above").mkdir())
        place.mkdir()
        os.chown(place, ONE, ONE)
    else:
        as_user(ONE, lambda: (commons / "above").mkdir(mode=0o700))
    if way == "lax ancestor":
        as_user(ONE, lambda: place.mkdir())
        (commons / "above").chmod(0o777)
    elif way == "link to a folder":
        place.symlink_to(evil)
        os.lchown(place, ONE, ONE)
    elif way == "link to a file":
        as_user(ONE, lambda: place.mkdir())
        (place / "thing.so").symlink_to(evil / "thing.so")
        os.lchown(place / "thing.so", ONE, ONE)
    elif way == "library":
        as_user(ONE, lambda: planted(place, libraries[1]))
        os.chown(place / "thing.so", OTHER, OTHER)
    monkeypatch.setenv("SPTC_CACHE", str(place))
    answers = [as_user(ONE, lambda: number_of(built("thing.so", never)))]
    answers.append(as_user(ONE, lambda: number_of(place / "thing.so")) if way != "ancestor" else answers[0])
    reason = "can be written by other users" if way == "lax ancestor" else f"belongs to another user (user ID {OTHER})"
    for answer in answers:
        assert str(answer).startswith("BackendError: ")
        assert reason in answer or "No such file" in answer
    assert reason in answers[0]


def test_a_checked_file_is_loaded(tmp_path: Path, libraries: dict[int, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(libraries[1])
    load = ctypes.CDLL

    def late(name: str) -> ctypes.CDLL:
        path.unlink()
        path.write_bytes(libraries[2])
        return load(name)

    monkeypatch.setattr(ctypes, "CDLL", late)
    assert number_of(path) == 1
    monkeypatch.undo()
    assert number_of(path) == 2  # the new file is loaded, although its file descriptor has the old number


def test_damaged_libraries_are_made_anew(
    tmp_path: Path, libraries: dict[int, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "cache"))
    whole = libraries[1]
    foreign = whole[:18] + b"\xff\xff" + whole[20:]
    for spoilt in (b"", b"text", whole[:63], whole[:64], whole[: len(whole) // 2], whole[:-1], foreign):
        path = built("thing.so", written(whole))
        path.unlink()  # a truncation would crash this process, which has mapped the file
        path.write_bytes(spoilt)
        with pytest.raises(BackendError, match=r"cannot be loaded \(it is truncated, or for another CPU architecture"):
            load_library(path)
        assert capsys.readouterr().err == ""
        assert number_of(built("thing.so", written(whole))) == 1
        note = "sptc: .*thing.so is truncated or for another machine: rebuilding it\n"
        assert re.fullmatch(note, capsys.readouterr().err)


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(BackendError, match="has too many symbolic links"):
        require_private(tmp_path / "a" / "x")


def test_one_loader() -> None:
    """Modules other than the loader call `ctypes.CDLL` only to open system libraries: C, CUDA and NVML."""
    calls = set()
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts
        if parts[0] in ("tests", "benchmarks", "build", "venv") or any(part.startswith(".") for part in parts):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if re.search("DLL|LoadLibrary", text) else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("CDLL", "PyDLL", "LoadLibrary"):
                calls.add("/".join(parts))
    assert calls == {"infra/loader.py", "infra/limits.py", "gpu/power.py", "gpu/recorder.py"}
