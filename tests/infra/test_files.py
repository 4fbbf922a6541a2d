"""Files are written completely or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sptc.errors import FileError
from sptc.infra.files import move_whole, require_writable, write_whole


def test_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older and longer")
    path.chmod(0o640)
    write_whole(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]
    new, other = tmp_path / "new", tmp_path / "other"
    write_whole(new, b"new")
    other.touch()
    assert new.stat().st_mode == other.stat().st_mode


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(exists: bool, tmp_path: Path) -> None:
    folder, link, second = tmp_path / "folder", tmp_path / "link", tmp_path / "second"
    folder.mkdir()
    target = folder / "target"
    if exists:
        target.write_text("older")
    link.symlink_to(Path("folder") / "target")
    second.symlink_to(link)
    write_whole(second, b"newer")
    assert target.read_bytes() == b"newer"
    assert link.is_symlink()
    assert second.is_symlink()
    (tmp_path / "made").write_bytes(b"newest")
    move_whole(tmp_path / "made", second)
    assert target.read_bytes() == b"newest"
    assert sorted(tmp_path.rglob("*")) == [folder, target, link, second]


def test_a_link_to_another_file_system_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, target, link = tmp_path / "made", tmp_path / "target", tmp_path / "link"
    made.write_bytes(b"made")
    link.symlink_to(target)
    right = Path.replace

    def replace(self: Path, to: Path) -> Path:
        if self == made:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return right(self, to)

    monkeypatch.setattr(Path, "replace", replace)
    move_whole(made, link)
    assert target.read_bytes() == b"made"
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_a_device_stays_one(tmp_path: Path) -> None:
    before = os.lstat(os.devnull)
    write_whole(Path(os.devnull), b"lost")
    (tmp_path / "made").write_bytes(b"lost")
    move_whole(tmp_path / "made", Path(os.devnull))
    require_writable(Path(os.devnull))
    after = os.lstat(os.devnull)
    assert (before.st_ino, before.st_rdev, before.st_mode) == (after.st_ino, after.st_rdev, after.st_mode)
    with pytest.raises(FileError, match=r"^/dev/full cannot be written \(No space left on device\)$"):
        write_whole(Path("/dev/full"), b"too much")


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output(name: str, tmp_path: Path) -> None:
    program = "print('first'); from pathlib import Path; from sptc.infra import files; "
    program += f"files.write_whole(Path({name!r}), b'second\\n')"
    stdout = Path("/dev/stdout")
    before = stdout.readlink()
    with (tmp_path / "printed").open("wb") as printed:
        subprocess.run([sys.executable, "-c", program], stdout=printed, check=True)
    assert (tmp_path / "printed").read_text() == "first\nsecond\n"
    assert stdout.readlink() == before


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("older")

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FileError, match=r"^.*file cannot be written \(No space left on device\)$"):
        write_whole(path, b"newer")
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for path, reason in (
        (tmp_path, "Is a directory"),
        (Path(), "it is a folder"),
        (tmp_path / "missing" / "file", "No such file or directory"),
        (tmp_path / ("n" * 300), "File name too long"),
        (circle, "Too many levels of symbolic links"),
    ):
        with pytest.raises(FileError, match=rf"cannot be written \({reason}\)$"):
            write_whole(path, b"")
    assert list(tmp_path.iterdir()) == [circle]
    (tmp_path / "made").touch()
    with pytest.raises(FileError, match=r"circle cannot be written \(Too many levels of symbolic links\)$"):
        move_whole(tmp_path / "made", circle)


def test_a_read_only_file_is_kept(tmp_path: Path) -> None:
    path, other = tmp_path / "x", tmp_path / "y"
    path.write_bytes(b"precious")
    other.write_bytes(b"new")
    path.chmod(0o444)
    for work in (lambda: write_whole(path, b"new"), lambda: require_writable(path), lambda: move_whole(other, path)):
        with pytest.raises(FileError, match=r"x cannot be written \(the file is read-only\)$"):
            work()
    assert path.read_bytes() == b"precious"
    assert {entry.name for entry in tmp_path.iterdir()} == {"x", "y"}


_WRITER = """
import sys
from pathlib import Path
from sptc.infra.files import write_whole
write_whole(Path(sys.argv[1]), b"late")
"""


def test_a_pipe_that_nobody_reads_yet(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # The writer is a process of its own: text that a thread prints while pytest reads its captured output may be lost.
    with subprocess.Popen([sys.executable, "-c", _WRITER, pipe], stderr=subprocess.PIPE, text=True) as writer:
        assert writer.stderr
        assert writer.stderr.readline() == f"sptc: {pipe} is a pipe without a reader: waiting for a reader\n"
        assert pipe.read_bytes() == b"late"
    assert writer.returncode == 0
