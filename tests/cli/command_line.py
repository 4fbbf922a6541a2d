"""The command line, called in this process, and what holds of every call."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.cli import main


class CommandLine:
    """Calls of a command, or of the command line as a whole, and what they print.

    Attributes
    ----------
    capsys : pytest.CaptureFixture
        Where printed text is found.
    command : str
        The first word of every call; none if empty.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], command: str = "") -> None:
        self.capsys, self.command = capsys, command

    def status(self, *words: object) -> object:
        """Return the status of a call that may end inside the parser; what it prints is left where it is."""
        try:
            return main([*self.command.split(), *map(str, words)])
        except SystemExit as end:
            return end.code

    def text(self, *words: object, status: int = 0) -> str:
        """Return what a call prints that has nothing to complain of."""
        self.capsys.readouterr()
        left = self.status(*words)
        output, errors = self.capsys.readouterr()
        assert (left, errors) == (status, ""), f"{words} ended with {left}: {errors}{output}"
        return output

    def json(self, *words: object, status: int = 0) -> Any:
        """Return what a call prints as JSON, in which there is no NaN and no Infinity."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{words} prints {word}, which is no JSON")

        return json.loads(self.text(*words, "--json", status=status), parse_constant=refuse)

    def refuses(self, *words: object, message: str) -> None:
        """Status 2, one line of standard error that has the message, and no new file; three dots stand for any text."""
        self.capsys.readouterr()
        before = {*Path().iterdir()}
        status = self.status(*words)
        output, errors = self.capsys.readouterr()
        assert (status, output) == (2, ""), (words, errors)
        pattern = ".*".join(map(re.escape, message.split("...")))
        command = rf"sptc( {re.escape(self.command)})?" if self.command else "sptc[a-z -]*"
        assert re.fullmatch(rf"{command}: .*{pattern}.*\n", errors), (words, errors)
        assert not re.search(r"\b_\w+", errors), (words, errors)
        assert {*Path().iterdir()} <= before, words


def saved(**arrays: np.ndarray) -> None:
    """Write matrices to files of their names in this folder."""
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)


def on_a_terminal(*words: object) -> tuple[bytes, str]:
    """Run a command whose standard error is a terminal; return what that shows, and the standard output."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "sptc", *map(str, words)], stdout=output, stderr=terminal)
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(control, 1 << 16):
                shown += part
        except OSError:  # how Linux reports that the other end is closed
            pass
        os.close(control)
        assert process.wait(600) == 0
        output.seek(0)
        return shown, output.read().decode()
