"""The command line before any subcommand: help, near misses, and words that nobody would repeat."""

import pytest
from sptc.cli import main
from sptc.tests.cli.command_line import CommandLine


def test_without_words_there_is_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([]) == 0
    helped = capsys.readouterr()
    assert "COMMAND" in helped.out
    assert helped.err == ""
    monkeypatch.setattr("sys.argv", ["sptc"])
    assert main() == 0
    assert capsys.readouterr() == helped


def test_near_misses(cli: CommandLine) -> None:
    for words, end in (
        (["veriog", "--preset", "tiny"], "did you mean verilog?\n"),
        (["ports", "--preset", "hoper"], "did you mean hopper?\n"),
        (["ports", "--preset", "tiny", "--top", "wrap"], "did you mean warp?\n"),
        (["ports", "--preset", "kepler"], ""),
    ):
        assert cli.status(*words) == 2
        output, errors = cli.capsys.readouterr()
        assert (output, errors.count("\n")) == ("", 1)
        assert errors[errors.find("did you mean") :] == end if end else "did you mean" not in errors, words


def test_a_long_word_is_cut(cli: CommandLine) -> None:
    assert cli.status("presets", "--" + "json" * 5_000) == 2
    assert len(cli.capsys.readouterr().err) < 2_100


def test_what_no_word_can_hold(cli: CommandLine) -> None:
    """No shell gives such a word, but a caller of ``main`` may."""
    for word in ("a\0b", "\ud800.STATE"):
        cli.refuses("campaign", "--state", word, message="an argument cannot hold a NUL or a surrogate")


def test_memory_that_is_not_there(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, end in (([], ""), (["Unable to allocate 2 GiB"], " (Unable to allocate 2 GiB)")):

        def execute(_options: object, arguments: list[str] = arguments) -> int:
            raise MemoryError(*arguments)

        monkeypatch.setattr("sptc.cli.hardware._presets", execute)
        assert cli.status("presets") == 2
        assert cli.capsys.readouterr().err == f"sptc presets: there is not enough memory{end}\n"
