"""The folder of a matrix product under way: what was asked for, the operands, and which blocks are done."""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FileError
from ..infra.files import write_whole
from .product import Block, Problem, Source

__all__ = ["ProductFolder"]

_WANTED, _BLOCKS, _RESULT = "product.json", "blocks.jsonl", "d.npy"
_MATRICES = ("a", "b", "dense_a", "dense_b")
_OPERANDS = (*_MATRICES, *(f"{name}_scales" for name in _MATRICES), "nibbles", "dense_scale", "d")
_OURS = {_WANTED, _BLOCKS, *(f"{name}.npy" for name in (*_OPERANDS, "generated_a", "generated_b"))}


class ProductFolder:
    """A product's folder, held by one process at a time.

    Parameters
    ----------
    path : Path
        The folder; made if it does not exist.
    wanted : mapping
        What decides the result, as JSON values; a product that is there already must be the same.

    Attributes
    ----------
    problem : Problem or None
        The product, once it is prepared.
    done : dict of int to Block
        Finished blocks.

    Raises
    ------
    FileError
        The folder cannot be made or read, holds something else, or is in use.
    """

    def __init__(self, path: Path, wanted: Mapping[str, Any]) -> None:
        path = path.resolve()
        self.path, self.wanted = path, dict(wanted)
        self.problem: Problem | None = None
        self.done: dict[int, Block] = {}
        self._log: BinaryIO | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            strange = {entry.name for entry in path.iterdir()} - _OURS
            strange = {name for name in strange if not name.endswith(".part")}
            if strange:
                raise FileError(f"{path} holds something else than a product ({min(strange)})")
            self._log = (path / _BLOCKS).open("a+b")
            fcntl.lockf(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except FileError:
            self.close()
            raise
        except BlockingIOError:
            self.close()
            raise FileError(f"{path} is in use by another process") from None
        except OSError as error:
            self.close()
            raise FileError(f"{path} cannot hold a product ({error.strerror})") from None

    def _read(self) -> None:
        """Take up what is there; a product that was not prepared to its end is begun again."""
        assert self._log
        if not ((self.path / _WANTED).exists() and (self.path / _RESULT).exists()):
            self._log.truncate(0)
            return
        try:
            held = json.loads((self.path / _WANTED).read_text(encoding="utf-8"))
            before, fields = held["wanted"], held["problem"]
            sources = {name: Source(**fields[name]) for name in ("a", "b")}
            problem = Problem(**{**fields, **sources, "backends": tuple(fields["backends"])})
        except (ValueError, KeyError, TypeError):
            raise FileError(f"{self.path / _WANTED} is damaged") from None
        differing = [name for name in self.wanted if before.get(name) != self.wanted[name]]
        if differing:
            name = differing[0]
            raise FileError(
                f"{self.path} holds another product: {name} {before.get(name)}, not {self.wanted[name]}; remove it or "
                "write to another file"
            )
        if problem.folder != str(self.path):
            raise FileError(f"{self.path} was begun as {problem.folder}; move it back or remove it")
        self.problem = problem
        self._log.seek(0)
        whole = 0
        for line in self._log:
            try:
                block = Block.from_record(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break  # the last line was not written to its end
            if not line.endswith(b"\n"):
                break
            self.done[block.index] = block
            whole += len(line)
        self._log.truncate(whole)

    def begin(self, problem: Problem) -> None:
        """Enter a product whose operands are prepared."""
        contents = {"wanted": self.wanted, "problem": asdict(problem)}
        write_whole(self.path / _WANTED, json.dumps(contents, indent=1).encode())
        self.problem = problem

    def add(self, block: Block) -> None:
        """Record a finished block, whose outputs are written."""
        assert self._log
        self.done[block.index] = block
        self._log.write(json.dumps(block.record()).encode() + b"\n")
        self._log.flush()

    def blocks(self, count: int) -> Iterator[int]:
        """Yield the blocks that are not done."""
        return (index for index in range(count) if index not in self.done)

    def finish(self, output: Path) -> None:
        """Move the result to its place and remove the folder.

        Raises
        ------
        FileError
            It cannot be moved.
        """
        try:
            (self.path / _RESULT).replace(output)
        except OSError as error:
            raise FileError(f"{output} cannot be written ({error.strerror})") from None
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Leave the folder to others."""
        if self._log:
            with suppress(OSError):
                self._log.close()
            self._log = None
