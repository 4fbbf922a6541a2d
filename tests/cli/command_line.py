"""Helpers that call commands in this process, check their output, and start a Dask cluster on this machine."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.cli import main


class CommandLine:
    """Helper that calls the command `command` (any command if it is empty) and captures the output of the command."""

    def __init__(self, capsys: pytest.CaptureFixture[str], command: str = "") -> None:
        self.capsys, self.command = capsys, command

    def status(self, *words: object) -> object:
        """Return the exit status of a call, even if the argument parser exits. The output is left for the caller."""
        try:
            return main([*self.command.split(), *map(str, words)])
        except SystemExit as end:
            return end.code

    def streams(self, *words: object, status: int = 0) -> tuple[str, str]:
        """Return standard output and standard error of a call, without the lines of progress."""
        self.capsys.readouterr()
        left = self.status(*words)
        output, errors = self.capsys.readouterr()
        assert left == status, f"{words} ended with status {left}: {errors}{output}"
        return output, complaints(errors)

    def text(self, *words: object, status: int = 0) -> str:
        """Return the standard output of a call that must write nothing to standard error."""
        output, errors = self.streams(*words, status=status)
        assert errors == "", f"{words}: {errors}{output}"
        return output

    def json(self, *words: object, status: int = 0) -> Any:
        """Return the output of a call as JSON, which must not contain NaN or Infinity."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{words} prints {word}, which is not valid JSON")

        return json.loads(self.text(*words, "--json", status=status), parse_constant=refuse)

    def refuses(self, *words: object, message: str) -> None:
        """Check that a call exits with status 2, prints one line of error with the message, and creates no file.

        ``...`` in the message stands for any text.
        """
        before = {*Path().iterdir()}
        output, errors = self.streams(*words, status=2)
        assert output == "", (words, errors)
        pattern = ".*".join(map(re.escape, message.split("...")))
        command = rf"sptc( {re.escape(self.command)}( [a-z]+)?)?" if self.command else "sptc[a-z -]*"
        assert re.fullmatch(rf"{command}: .*{pattern}.*\n", errors), (words, errors)
        assert not re.search(r"\b_\w+", errors), (words, errors)
        assert {*Path().iterdir()} <= before, words

    def refuses_each(self, *cases: tuple[Sequence[object], str]) -> None:
        for words, message in cases:
            self.refuses(*words, message=message)


def complaints(errors: str) -> str:
    """Return standard error without the lines of progress, which depend on the cache and on the speed."""
    return re.sub(r"^sptc(: building| \w+: \d+ of \d+ .* finished).*\n", "", errors, flags=re.MULTILINE)


def saved(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    dask, where = [sys.executable, "-m", "dask"], folder / "scheduler.json"
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*dask, "scheduler", *local, "--port", "0", "--scheduler-file", str(where)], **quiet)]
    try:
        deadline = time.monotonic() + 600
        while not where.exists() or not where.read_text().endswith("}"):  # wait until the file is complete
            assert time.monotonic() < deadline, "the scheduler does not start, or this machine is too slow"
            time.sleep(0.1)
        one = ["--scheduler-file", str(where), "--no-nanny", "--nthreads", "2"]
        started += [subprocess.Popen([*dask, "worker", *local, *one], **quiet) for _ in range(workers)]
        yield json.loads(where.read_text())["address"], started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
