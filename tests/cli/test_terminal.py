"""On a terminal, wide tables are split, printed commands are not, and verdicts have colours unless turned off."""

import io
import signal
import sys
import time

import pytest
from sptc.cli import main, progress
from sptc.cli.terminal import FittedOutput, print_verdict
from sptc.tests.infra.test_tools import Terminal

TABLE = """\
name          tiles outputs  evidence
mma.sp           12    1536  recorded
wgmma.sp.long     3       5  recorded elsewhere
"""
COMMAND = "run the shard again with: sptc campaign --seed 11 --tiles 2 --only 5"


def test_a_wide_table_is_cut_at_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "26")
    stream = Terminal()
    FittedOutput(stream).write(f"{TABLE}{COMMAND}\n")
    assert stream.getvalue() == (
        "name          tiles\n    outputs  evidence\n"
        "mma.sp           12\n       1536  recorded\n"
        "wgmma.sp.long     3\n          5  recorded\n    elsewhere\n"
        f"{COMMAND}\n"
    )


def test_only_text_on_a_terminal_is_fitted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for words in (["presets"], ["presets", "--json"]):
        assert main(words) == 0
        whole = capsys.readouterr().out
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", Terminal())
            assert main(words) == 0
            shown = sys.stdout.getvalue()
        assert (shown == whole) == ("--json" in words)
        assert shown.split() == whole.split()
        assert max(map(len, whole.splitlines())) > 60 or "--json" in words


def test_a_verdict_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with monkeypatch.context() as patch:
            for name in ("NO_COLOR", "TERM"):
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdout", Terminal())
            print_verdict("all equal", True)
            assert sys.stdout.getvalue() == ("\033[32mall equal\033[0m\n" if coloured else "all equal\n")


def test_a_bar_moves_while_one_item_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer redraws the progress bar. When the bar ends, the timer stops, and the old signal handler is restored."""
    monkeypatch.setattr(progress, "_INTERVAL", 0.01)
    stream, before = Terminal(), signal.getsignal(signal.SIGALRM)
    with progress.bar("proof", total=2, file=stream):
        drawn = 0
        while drawn < 5:
            drawn = stream.getvalue().count("\r")
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_search_is_reported_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE", 0.0)
    for stream, lines in ((Terminal(), 1), (io.StringIO(), 0)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.searching("sptc identify"):
            while lines and not stream.getvalue():
                pass
            time.sleep(0.05)
        assert stream.getvalue().count("sptc identify: searching for 0 s; a search without a match") == lines
