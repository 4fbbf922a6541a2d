"""Cache of the user: its location, the files that are trusted, and a cache that cannot be written."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sptc.errors import BackendError
from sptc.infra.cache import built, cache_folder, recall, store


def test_where_things_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Path of a cache that does not exist yet, with a umask that grants all permissions to everybody."""
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "above" / "cache"))
    mask = os.umask(0)
    yield tmp_path / "above" / "cache"
    os.umask(mask)


def _written(path: Path) -> None:
    path.write_bytes(b"built")


def test_what_is_made_is_this_user_s_alone(place: Path) -> None:
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


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["thing", ""])
def test_what_belongs_to_another_is_refused(place: Path, name: str) -> None:
    built("thing", _written)
    os.chown(place / name, 12345, -1)
    with pytest.raises(BackendError, match=r"belongs to another user \(number 12345\) and is not used"):
        built("thing", _written)


@pytest.mark.parametrize("where", ["/dev/null/cache", "/proc/sptc/cache"])
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """If the cache cannot be written, builds are stored in a temporary folder of this process, and each is made only
    once.
    """
    monkeypatch.setenv("SPTC_CACHE", where)
    path = built("thing", _written)
    assert path.read_bytes() == b"built"
    assert built("thing", lambda path: pytest.fail("built twice")) == path
    store("figures", b"1")
    assert recall("figures") is None


def test_what_stood_elsewhere_is_gone_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from sptc.infra.cache import built; print(built('x', lambda path: path.write_bytes(b'')))"
    environment = {**os.environ, "SPTC_CACHE": "/dev/null/cache"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).parent.exists()


def test_no_room_anywhere(place: Path) -> None:
    def full(path: Path) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(BackendError, match=r"thing cannot be written \(No space left on device\)$"):
        built("no such thing", full)
