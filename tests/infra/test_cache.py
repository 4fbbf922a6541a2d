"""The cache is in the right folder, and uses only files that no other user could write. It need not be writable."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sptc.errors import BackendError
from sptc.infra.cache import built, cache_folder, recall, store
from sptc.infra.compiler import compile_shared


def test_location_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for variables, folder in (
        ({"SPTC_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"SPTC_CACHE": "", "XDG_CACHE_HOME": "/c"}, "/c/sptc"),
        ({"SPTC_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/d"}, "/d/.cache/sptc"),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert cache_folder() == Path(folder)
    monkeypatch.delenv("SPTC_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/d/.cache/sptc")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(user: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    for name in ("SPTC_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    path = built("thing", _written)
    assert path.read_bytes() == b"built"
    assert built("thing", lambda path: pytest.fail("built twice")) == path
    assert [*tmp_path.iterdir()] == []
    path.unlink()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Path of a cache that does not exist yet. The umask grants all users all permissions for new files."""
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "above" / "cache"))
    mask = os.umask(0)
    yield tmp_path / "above" / "cache"
    os.umask(mask)


def _written(path: Path) -> None:
    path.write_bytes(b"built")


def test_cached_files_are_private(place: Path) -> None:
    for build in (_written, lambda path: pytest.fail("built twice")):
        assert built("thing", build) == place / "thing"
    assert (place / "thing").read_bytes() == b"built"
    store("room/figures.json", b"{}")
    assert [(path.stat().st_mode & 0o077) for path in (place, place / "room")] == [0, 0]
    for path in (place / "thing", place / "room" / "figures.json"):
        assert path.stat().st_mode & 0o022 == 0
    assert recall("room/figures.json") == b"{}"
    assert recall("room/others.json") is None


def test_what_others_can_write_is_refused(place: Path) -> None:
    store("figures", b"1")
    for mode in (0o664, 0o646, 0o666):
        built("thing", _written).chmod(mode)
        message = r"thing can be written by other users \(-rw.*\) and is not used: remove"
        with pytest.raises(BackendError, match=message):
            built("thing", _written)
        (place / "thing").unlink()
        (place / "figures").chmod(mode)
        with pytest.raises(BackendError, match="figures can be written by other users"):
            recall("figures")
    # Another user could have written a file in a folder that others can write.
    built("thing", _written)
    place.chmod(0o777)
    with pytest.raises(BackendError, match=r"cache can be written by other users \(drwxrwxrwx\) and is not used"):
        built("thing", _written)


@pytest.mark.parametrize("where", ["/dev/null/cache", "/proc/sptc/cache"])
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """If the cache cannot be written, each file is built once, in a temporary folder of this process."""
    monkeypatch.setenv("SPTC_CACHE", where)
    path = built("thing", _written)
    assert path.read_bytes() == b"built"
    assert built("thing", lambda path: pytest.fail("built twice")) == path
    store("figures", b"1")
    assert recall("figures") is None


def test_the_temporary_folder_is_deleted_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from sptc.infra.cache import built; print(built('x', lambda path: path.write_bytes(b'')))"
    environment = {**os.environ, "SPTC_CACHE": "/dev/null/cache"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).parent.exists()


def test_no_room_anywhere(place: Path) -> None:
    def full(path: Path) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(BackendError, match=r"thing cannot be written \(No space left on device\)$"):
        built("no such thing", full)


#: Program that builds a file, but waits while the file named by argument 2 exists. Argument 1 names the log.
BUILDER = """
import pathlib, sys, time
from sptc.infra.cache import built
log, obstacle = map(pathlib.Path, sys.argv[1:])
def note(word):
    with log.open("a") as file:
        file.write(word)
def build(path):
    note("begun ")
    while obstacle.exists():
        time.sleep(0.01)
    path.write_bytes(b"built")
note("started ")
print(built("thing", build).read_text())
"""


def test_first_builds_at_the_same_time_and_a_killed_one(place: Path, tmp_path: Path) -> None:
    """If a process is killed while it builds a file, a waiting process builds the file, and all others use the file."""
    log, obstacle = tmp_path / "log", tmp_path / "obstacle"
    obstacle.touch()

    def started(waits_for: Path) -> "subprocess.Popen[str]":
        words = [sys.executable, "-c", BUILDER, str(log), str(waits_for)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def wait_for(word: str, count: int) -> None:
        while not log.exists() or log.read_text().split().count(word) < count:
            assert first.poll() is None
            time.sleep(0.01)

    first = started(obstacle)
    wait_for("begun", 1)
    others = [started(tmp_path / "nothing") for _ in range(2)]
    wait_for("started", 3)
    time.sleep(0.3)
    assert log.read_text().split().count("begun") == 1
    first.kill()
    assert first.communicate(timeout=300)[0] == ""
    assert [process.communicate(timeout=300)[0] for process in others] == ["built\n"] * 2
    assert log.read_text().split().count("begun") == 2
    obstacle.unlink()


@pytest.mark.regression
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_full_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(small)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("this container may not mount a file system")
    source = {"large.cpp": "extern const char large[1 << 20] = {1};"}
    try:
        monkeypatch.setenv("SPTC_CACHE", str(small))
        message = r"^the C\+\+ compiler failed while building large: .*No space left on device$"
        with pytest.raises(BackendError, match=message):
            built("large.so", lambda path: compile_shared(source, path, ("-O0",), "large"))
        store("figures", bytes(1 << 20))
        assert recall("figures") is None
        assert [entry.name for entry in small.iterdir()] == ["large.lock"]
    finally:
        subprocess.run(["umount", str(small)], check=True)
