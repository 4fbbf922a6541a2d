"""If a process dies, each entry of its journal is either complete or absent. Unsuitable folders are rejected."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sptc.errors import FileError
from sptc.infra.journal import Journal

#: Program that writes pairs of entries until it is killed, and prints a line after each pair.
WRITER = """\
import itertools, pathlib, sys
from sptc.infra.journal import Journal
journal = Journal(pathlib.Path(sys.argv[1]), "campaign")
if journal.task is None:
    journal.begin("count")
first = 2 * len(dict(journal.entries()))
for number in itertools.count(first, 2):
    journal.write({number: "x" * (number % 5000), number + 1: "x" * (number % 5000)})
    print(number, flush=True)
"""
#: Program that keeps a journal open, and forks a child that outlives the program.
HOLDER = """\
import os, pathlib, sys, time
from sptc.infra.journal import Journal
journal = Journal(pathlib.Path(sys.argv[1]), "campaign")
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(10_000)
"""


def held(path: Path) -> dict[int, object]:
    with closing(Journal(path, "campaign")) as journal:
        return dict(journal.entries())


def test_a_journal_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with closing(Journal(path, "campaign")) as journal:
        assert journal.task is None
        journal.begin({"count": 3, "of": ["x"]})
        journal.write({4: {"a": 1}, 2: [True, None]})
        journal.write({})
        journal.write({4: "later"})
    with closing(Journal(path, "campaign")) as journal:
        assert journal.task == {"count": 3, "of": ["x"]}
        assert [*journal.entries()] == [(2, [True, None]), (4, "later")]
        journal.begin("another")
    with closing(Journal(path, "campaign")) as journal:
        assert (journal.task, [*journal.entries()]) == ("another", [])
    assert {entry.name for entry in path.iterdir()} == {"campaign.db", "campaign.lock"}


def test_entries_are_written_all_or_none(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "campaign")) as journal:
        journal.write({1: "one"})
        with pytest.raises(FileError, match=r"campaign\.db cannot be written \("):
            journal.write({1: "other", 2: "two", "three": 3})  # type: ignore[dict-item]
        assert dict(journal.entries()) == {1: "one"}
        with pytest.raises(TypeError):
            journal.write({1: "other", 2: object()})
        assert dict(journal.entries()) == {1: "one"}
        journal._database.execute("PRAGMA max_page_count = 8")
        with pytest.raises(FileError, match=r"campaign\.db cannot be written \(database or disk is full\)$"):
            journal.write({2: "two", 3: "x" * 100_000})
        assert dict(journal.entries()) == {1: "one"}


def test_a_killed_writer_leaves_whole_writes_and_loses_none(tmp_path: Path, rng: np.random.Generator) -> None:
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
        first = "".join(writer.stdout.readline() for _ in range(rng.integers(1, 60)))
        writer.kill()
        rest, _ = writer.communicate()
        actual = [line for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")]
        entries = held(tmp_path)
        assert len(entries) % 2 == 0
        assert all(entries[number] == entries[number + 1] for number in [*entries][::2])
        assert {int(actual[-1]), int(actual[-1]) + 1} <= entries.keys()


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    """Only one process can open a journal. A killed process releases the journal, even if its child process runs on."""
    message = rf"^{tmp_path} is in use by another campaign$"
    with closing(Journal(tmp_path, "campaign")), pytest.raises(FileError, match=message):
        Journal(tmp_path, "campaign")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(FileError, match=message):
            Journal(tmp_path, "campaign")
        holder.kill()
        holder.wait()
        assert held(tmp_path) == {}
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        holder.communicate()


def test_others_can_read_meanwhile(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "campaign")) as journal:
        with closing(sqlite3.connect(f"file:{journal.file}?mode=ro", uri=True)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM entries").fetchone() == (0,)
            journal.write({1: "one"})
        assert dict(journal.entries()) == {1: "one"}


def test_a_damaged_database(tmp_path: Path) -> None:
    """If a page is overwritten or the file is truncated, one sentence reports the damage, unless no entry is lost."""
    entries: dict[int, object] = dict.fromkeys(range(40), "x" * 300)
    with closing(Journal(tmp_path / "whole", "campaign")) as journal:
        journal.begin("task")
        journal.write(entries)
    whole = journal.file.read_bytes()
    size = 4096
    assert len(whole) > 4 * size
    damaged = [whole[:place] + b"\xa5" * size + whole[place + size :] for place in range(0, len(whole), size)]
    damaged += [whole.replace(b"(content TEXT", other) for other in (b"(cont\xa5nt TEXT", b"\xa5content TEXT")]
    damaged += [whole[:length] for length in (10, 100, 2000, size, 2 * size, len(whole) - 10)]
    for number, content in enumerate(damaged):
        path = tmp_path / str(number)
        path.mkdir()
        (path / "campaign.db").write_bytes(content)
        with pytest.raises(FileError, match=rf"^(entry \d+ of )?{path}/campaign\.db is damaged$"):
            held(path)


def test_a_database_of_something_else(tmp_path: Path) -> None:
    statements = ["UPDATE {} SET content = x'ff00'", "DROP TABLE {0}; CREATE TABLE {0} (other)"]
    statements = [statement.format(table) for statement in statements for table in ("task", "entries")]
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS number, 'x' AS content"
    statements += [f"DROP TABLE entries; CREATE VIEW entries AS {endless} FROM n"]
    statements += ["CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM task; END", "CREATE VIEW v AS SELECT 1"]
    statements += ["CREATE INDEX i ON entries (content)", "CREATE TABLE other (x)"]
    statements += ["UPDATE task SET content = '{'", "UPDATE entries SET content = '['"]
    for number, statement in enumerate(statements):  # reading the view `entries` would not end
        with closing(Journal(tmp_path / str(number), "campaign")) as journal:
            journal.begin("task")
            journal.write({3: "three"})
        with closing(sqlite3.connect(journal.file)) as database:
            database.executescript(statement)
        with pytest.raises(FileError, match=rf"^(entry 3 of )?.*/{number}/campaign\.db is damaged$"):
            held(tmp_path / str(number))


def test_unsuitable_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").write_text("")
    for name, message in (
        ("file", r"^the folder .*/file cannot be created \(File exists\)$"),
        ("file/below", r"^the folder .*/below cannot be created \(Not a directory\)$"),
        ("/proc", r"^/proc (cannot hold the state|is not the folder) of a campaign"),
        ("else", r"is not the folder of a campaign: it contains thesis\.tex$"),
    ):
        with pytest.raises(FileError, match=message):
            Journal(tmp_path / name, "campaign")
    assert [path.name for path in (tmp_path / "else").iterdir()] == ["thesis.tex"]
    (tmp_path / "folder" / "campaign.lock").mkdir(parents=True)
    with pytest.raises(FileError, match=r"cannot hold the state of a campaign \(unable to open database file\)$"):
        Journal(tmp_path / "folder", "campaign")


@pytest.mark.parametrize("name", ["campaign.lock", "campaign.db", "campaign.db-wal"])
def test_links_and_pipes_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "campaign.db").touch()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "precious")
    with pytest.raises(FileError, match=rf"cannot hold the state of a campaign \({name} is a link\)$"):
        Journal(folder, "campaign")
    assert (tmp_path / "precious").read_text() == "precious"
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(FileError, match=rf"cannot hold the state of a campaign \({name} is not a plain file\)$"):
        Journal(folder, "campaign")


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors report a file that is too large, and a query that takes too long because the schema is damaged."""
    with closing(Journal(tmp_path, "campaign")) as journal:
        journal.write({1: "one"})
        monkeypatch.setattr("sptc.infra.journal._MOST_CALLS", 3)
        with pytest.raises(FileError, match=r"campaign\.db is damaged$"):
            list(journal._select("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n"))
        assert [*journal.entries()] == [(1, "one")]
    monkeypatch.setattr("sptc.infra.journal._MOST_BYTES", 4096)
    with pytest.raises(FileError, match=r"\(campaign\.db has more than 4096 bytes\)$"):
        Journal(tmp_path, "campaign")
