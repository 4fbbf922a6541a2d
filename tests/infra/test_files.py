"""Files that are written whole or not at all."""

import os
from pathlib import Path

import pytest
from sptc.errors import FileError
from sptc.infra.files import write_whole


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    """With the permissions of any new file."""
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_text("older and longer")
    write_whole(path, b"newer")
    other.write_text("")
    assert path.read_bytes() == b"newer"
    assert path.stat().st_mode == other.stat().st_mode
    assert sorted(tmp_path.iterdir()) == [path, other]


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
    for path, reason in (
        (tmp_path, "Is a directory"),
        (Path(), "it is a folder"),
        (tmp_path / "missing" / "file", "No such file or directory"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        with pytest.raises(FileError, match=rf"cannot be written \({reason}\)$"):
            write_whole(path, b"")
    assert list(tmp_path.iterdir()) == []
