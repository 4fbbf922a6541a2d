"""Journal folder of long-running work: stores the task and the finished entries, so that the work can be resumed.

An SQLite database holds task and entries. Each write is atomic, even if the writing process is killed.
"""

import json
import sqlite3
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import FileError
from .files import create_folder

__all__ = ["Journal"]

#: Tables of the database and their columns. A database with other content is rejected: a query of a view, for example,
#: can run forever.
_TABLES = {"task": "(content TEXT NOT NULL)", "entries": "(number INTEGER PRIMARY KEY, content TEXT NOT NULL)"}
#: Maximum size in bytes of a database file, and of the JSON text in one row (a task or an entry).
_MOST_BYTES, _LONGEST = 1 << 30, 1 << 26
#: Number of SQLite steps between two calls of the progress handler, and maximum number of these calls in one query. A
#: query reaches the maximum after some minutes.
_STEPS, _MOST_CALLS = 1_000_000, 10_000
#: Number of database rows that are read at once.
_ROWS = 1_000


class Journal:
    """Journal folder of long-running work, which one process at a time can open; others can read the database.

    The folder is created if it does not exist. `file` is the database, for example ``campaign.db`` for the kind of work
    ``campaign``. The table ``task`` has at most one row, and the table ``entries`` one row per finished entry; the rows
    hold JSON. `task` is the stored task, or None before :meth:`begin`. `beside` are the names of all other files that
    the folder may contain; by default a folder without the database must be empty, and a folder with the database may
    contain any files. Raise a `FileError` if the folder cannot be created or read, contains other files, is damaged, or
    is in use.
    """

    def __init__(self, path: Path, kind: str, beside: Collection[str] | None = None) -> None:
        self.path, self.kind = path, kind
        self.file = path / f"{kind}.db"
        self._lock: sqlite3.Connection | None = None
        self._database: sqlite3.Connection | None = None
        self._calls = 0
        try:
            create_folder(path)
            names = {entry.name for entry in path.iterdir()}
            self.require_plain(names & {*self._names(), *(beside or ())})
            strange = names.difference(self._names(), beside or ())
            if strange and (beside is not None or self.file.name not in names):
                raise FileError(f"{path} is not the folder of a {kind}: it contains {min(strange)}")
            self._open()
            self.task = self._read_task()
        except OSError as error:
            self.close()
            raise self._unfit(error.strerror) from None
        except BaseException:
            self.close()
            raise

    def _names(self) -> list[str]:
        return [f"{self.kind}.lock", *(f"{self.file.name}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))]

    def require_plain(self, names: Collection[str]) -> None:
        """Raise a `FileError` if a file of the journal folder is a link, a pipe or a device, or is too large."""
        for name in sorted(names):
            status = (self.path / name).lstat()
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise self._unfit(f"{name} is {'a link' if stat.S_ISLNK(status.st_mode) else 'not a plain file'}")
            if name in self._names() and status.st_size > _MOST_BYTES:
                raise self._unfit(f"{name} has more than {_MOST_BYTES} bytes")

    def _unfit(self, reason: object) -> FileError:
        return FileError(f"{self.path} cannot hold the state of a {self.kind} ({reason})")

    def _open(self) -> None:
        try:
            # SQLite's lock ends with the process and is not inherited by forked workers. With filelock on Python 3.10,
            # forked workers would inherit the lock.
            self._lock = sqlite3.connect(self.path / f"{self.kind}.lock", timeout=0, isolation_level=None)
            self._lock.execute("PRAGMA journal_mode = OFF")
            self._lock.execute("BEGIN EXCLUSIVE")
            self._database = sqlite3.connect(self.file, isolation_level=None)
        except sqlite3.OperationalError as error:
            if str(error) == "database is locked":
                raise FileError(f"{self.path} is in use by another {self.kind}") from None
            raise self._unfit(error) from None
        self._database.set_progress_handler(self._takes_too_long, _STEPS)
        try:
            self._database.execute("PRAGMA trusted_schema = OFF")
            if sys.version_info >= (3, 11):
                self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            self._check_schema()
            # With journal mode WAL, readers do not block the writer. With synchronous mode NORMAL, writes do not wait
            # for the disk, and a killed process loses no entry.
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            if self._database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise self.damaged()
            tables = [f"CREATE TABLE IF NOT EXISTS {name} {columns};" for name, columns in _TABLES.items()]
            self._database.executescript("\n".join(["BEGIN;", *tables, "COMMIT;"]))
        except sqlite3.OperationalError as error:
            raise self._unfit(error) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError):  # SQLite's message can contain invalid UTF-8 of the file
            raise self.damaged() from None

    def _check_schema(self) -> None:
        """Raise a `FileError` if the database contains anything other than the two expected tables."""
        texts = (("table", name, f"CREATE TABLE {name} {columns}") for name, columns in _TABLES.items())
        expected = {tuple(text.encode() for text in row) for row in texts}
        assert self._database
        self._database.text_factory = bytes  # the schema of a damaged database can contain invalid UTF-8
        if any(row not in expected for row in self._database.execute("SELECT type, name, sql FROM sqlite_master")):
            raise self.damaged()
        self._database.text_factory = str

    def _takes_too_long(self) -> bool:
        """Progress handler of SQLite: counts its calls and aborts a query that takes minutes."""
        self._calls += 1
        return self._calls > _MOST_CALLS

    def damaged(self, entry: object = None) -> FileError:
        """Return the error for a damaged database, or for a damaged entry of the database."""
        return FileError(f"{self.file} is damaged" if entry is None else f"entry {entry} of {self.file} is damaged")

    def _select(self, query: str) -> Iterator[Any]:
        assert self._database
        self._calls = 0
        cursor = None
        while True:
            try:
                cursor = cursor or self._database.execute(query)
                rows = cursor.fetchmany(_ROWS)
            except (sqlite3.Error, UnicodeDecodeError, OverflowError):
                raise self.damaged() from None
            yield from rows
            if len(rows) < _ROWS:
                return

    def _read_task(self) -> Any:
        try:
            return next((json.loads(content) for (content,) in self._select("SELECT content FROM task")), None)
        except (ValueError, TypeError, RecursionError):
            raise self.damaged() from None

    def begin(self, task: object) -> None:
        """Store `task` (new work) as JSON, and delete old entries. Raise a `FileError` if the disk is full."""
        text = json.dumps(task)
        self._write(
            ("DELETE FROM task", [()]), ("DELETE FROM entries", [()]), ("INSERT INTO task VALUES (?)", [(text,)])
        )
        self.task = json.loads(text)

    def entries(self) -> Iterator[tuple[int, Any]]:
        """Yield number and JSON value of each entry, ordered by number. Raise a `FileError` for a damaged entry."""
        for number, content in self._select("SELECT number, content FROM entries ORDER BY number"):
            try:
                yield number, json.loads(content)
            except (ValueError, TypeError, RecursionError):
                raise self.damaged(number) from None

    def write(self, entries: Mapping[int, object]) -> None:
        """Write or replace journal entries, by number, in one transaction. Raise the errors of :meth:`begin`."""
        rows = [(number, json.dumps(value)) for number, value in entries.items()]
        self._write(("INSERT OR REPLACE INTO entries VALUES (?, ?)", rows))

    def _write(self, *changes: tuple[str, list[Any]]) -> None:
        assert self._database
        self._calls = 0
        try:
            with self._database:
                self._database.execute("BEGIN")
                for statement, rows in changes:
                    self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            raise FileError(f"{self.file} cannot be written ({error})") from None

    def close(self) -> None:
        """Close the journal's database and unlock its folder."""
        for connection in (self._database, self._lock):
            if connection:
                connection.close()
        self._database = self._lock = None
