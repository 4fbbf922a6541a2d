"""Folder of an unfinished matrix product: options, operands, and finished blocks of outputs."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..infra.files import move_whole
from ..infra.journal import Journal
from .product import ARRAYS, Block, Problem

__all__ = ["ProductFolder"]

_RESULT = "d.npy"
_OURS = {f"{name}.npy" for name in (*ARRAYS, "generated_a", "generated_b")}


class ProductFolder:
    """Folder with the files of a matrix product. Only one process at a time can use it; it is created if missing.

    `wanted` holds the options that decide the result, as JSON values; a product in the folder must have equal options.
    `problem` is the product, or None until it is prepared, and `done` holds the finished blocks by index. Raise a
    `FileError` if the folder cannot be created or read, holds other files, or is in use.
    """

    def __init__(self, path: Path, wanted: Mapping[str, Any]) -> None:
        path = path.resolve()
        self.path, self.wanted = path, dict(wanted)
        self.problem: Problem | None = None
        self.done: dict[int, Block] = {}
        # The whole folder of the matrix product is deleted later, so it may hold only files of that product.
        self._journal = Journal(path, "product", _OURS)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        """Load the matrix product and its finished blocks of outputs, or nothing if its preparation was interrupted."""
        task = self._journal.task
        if task is None or not (self.path / _RESULT).exists():
            return
        try:
            before = task["wanted"]
            differing = [name for name in self.wanted if before.get(name) != self.wanted[name]]
            problem = None if differing else Problem.from_record(task["problem"])
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise self._journal.damaged() from None
        if problem is None:
            name = differing[0]
            raise FileError(
                f"the folder {self.path} holds results of another matrix product: its {name} is {before.get(name)}, "
                f"not {self.wanted[name]}; remove the folder or choose another output file"
            )
        if problem.folder != str(self.path):
            raise FileError(f"{self.path} was created at the path {problem.folder}; move the folder back or remove it")
        self.problem = problem
        for index, record in self._journal.entries():
            try:
                block = Block.from_record(record)
                counts = (block.index, block.outputs, block.mismatches)
                if block.index != index or not all(type(count) is int and count >= 0 for count in counts):
                    raise ValueError(index)
                self.done[index] = block
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
                raise self._journal.damaged(index) from None

    def begin(self, problem: Problem) -> None:
        """Write the description of a matrix product to the journal in its folder. The files of operands must exist."""
        self._journal.begin({"wanted": self.wanted, "problem": asdict(problem)})
        self.problem = problem

    def add(self, block: Block) -> None:
        """Record in the journal that a block of outputs is finished. The outputs must already be in the result file."""
        self._journal.write({block.index: asdict(block)})
        self.done[block.index] = block

    def blocks(self, count: int) -> Iterator[int]:
        """Yield the indices of the blocks of outputs that are not yet computed."""
        return (index for index in range(count) if index not in self.done)

    def finish(self, output: Path) -> None:
        """Move the result file to `output`, then remove the product's folder. Raise a `FileError` if the move fails."""
        move_whole(self.path / _RESULT, output)
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Release the lock of the folder of the matrix product."""
        self._journal.close()
