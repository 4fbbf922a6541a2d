"""A folder in which work under way keeps what was asked for and what is done, so that it can be taken up again.

An SQLite database holds both; what is written at once is there as a whole or not at all, whenever its writer is killed.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import FileError

__all__ = ["Journal"]

_TABLES = """\
BEGIN;
CREATE TABLE IF NOT EXISTS task (content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY, content TEXT NOT NULL);
COMMIT;
"""


class Journal:
    """A folder of work under way, held by one process at a time; others can read the database meanwhile.

    Parameters
    ----------
    path : Path
        The folder; made if it does not exist.
    kind : str
        What the work is called, which names the database, for example ``campaign.db``.
    beside : collection of str, optional
        Names of all other files that may stand in the folder; without it none may before the database does, and then
        any.

    Attributes
    ----------
    path : Path
        The folder.
    file : Path
        The database: table ``task`` with what was asked for, in one row at most, and table ``entries``, both as JSON.
    task : object
        What was asked for, as JSON values; None if nothing was yet.

    Raises
    ------
    FileError
        The folder cannot be made or read, holds something else, is damaged or in use.
    """

    def __init__(self, path: Path, kind: str, beside: Collection[str] | None = None) -> None:
        self.path, self.kind = path, kind
        self.file = path / f"{kind}.db"
        self._lock: sqlite3.Connection | None = None
        self._database: sqlite3.Connection | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in path.iterdir()}
            strange = names.difference(self._names(), beside or ())
            if strange and (beside is not None or self.file.name not in names):
                raise FileError(f"{path} holds something else than a {kind} ({min(strange)})")
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

    def _unfit(self, reason: object) -> FileError:
        return FileError(f"{self.path} cannot hold the state of a {self.kind} ({reason})")

    def _open(self) -> None:
        try:
            # SQLite's lock is of this process alone: it ends with it, and workers that are forked do not inherit it, as
            # they do that of filelock on Python 3.10.
            self._lock = sqlite3.connect(self.path / f"{self.kind}.lock", timeout=0, isolation_level=None)
            self._lock.execute("PRAGMA journal_mode = OFF")
            self._lock.execute("BEGIN EXCLUSIVE")
            self._database = sqlite3.connect(self.file, isolation_level=None)
        except sqlite3.OperationalError as error:
            if str(error) == "database is locked":
                raise FileError(f"{self.path} is in use by another {self.kind}") from None
            raise self._unfit(error) from None
        try:
            # Readers do not hold up the writer, and a killed process loses nothing although no disk is waited for.
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            if self._database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise self.damaged()
            self._database.executescript(_TABLES)
        except sqlite3.OperationalError as error:
            raise self._unfit(error) from None
        except sqlite3.DatabaseError:
            raise self.damaged() from None

    def damaged(self, entry: object = None) -> FileError:
        """Return the error for a database, or an entry of it, that is none of ours."""
        return FileError(f"{self.file} is damaged" if entry is None else f"entry {entry} of {self.file} is damaged")

    def _select(self, query: str) -> list[Any]:
        assert self._database
        try:
            return self._database.execute(query).fetchall()
        except sqlite3.Error:
            raise self.damaged() from None

    def _read_task(self) -> Any:
        try:
            return next((json.loads(content) for (content,) in self._select("SELECT content FROM task")), None)
        except (ValueError, TypeError, RecursionError):
            raise self.damaged() from None

    def begin(self, task: object) -> None:
        """Enter what is asked for, as JSON values, and drop all entries.

        Raises
        ------
        FileError
            The disk is full, say.
        """
        text = json.dumps(task)
        self._write(
            ("DELETE FROM task", [()]), ("DELETE FROM entries", [()]), ("INSERT INTO task VALUES (?)", [(text,)])
        )
        self.task = json.loads(text)

    def entries(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the JSON value of each entry, by number.

        Raises
        ------
        FileError
            One is damaged.
        """
        for number, content in self._select("SELECT number, content FROM entries ORDER BY number"):
            try:
                yield number, json.loads(content)
            except (ValueError, TypeError, RecursionError):
                raise self.damaged(number) from None

    def write(self, entries: Mapping[int, object]) -> None:
        """Write entries by their numbers, all or none; one that is there already is replaced.

        Raises
        ------
        FileError
            The disk is full, say.
        """
        rows = [(number, json.dumps(value)) for number, value in entries.items()]
        self._write(("INSERT OR REPLACE INTO entries VALUES (?, ?)", rows))

    def _write(self, *changes: tuple[str, list[Any]]) -> None:
        assert self._database
        try:
            with self._database:
                self._database.execute("BEGIN")
                for statement, rows in changes:
                    self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            raise FileError(f"{self.file} cannot be written ({error})") from None

    def close(self) -> None:
        """Let others have the folder."""
        for connection in (self._database, self._lock):
            if connection:
                connection.close()
        self._database = self._lock = None
