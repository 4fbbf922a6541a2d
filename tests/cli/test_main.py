"""The command line before any subcommand: help, near misses, and words that nobody would repeat."""

import pytest
from sptc.cli import main


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the sentence that a command ends with."""
    with pytest.raises(SystemExit) as left:
        main(words)
    output, errors = capsys.readouterr()
    assert (left.value.code, output) == (2, "")
    assert errors.count("\n") == 1
    return errors


def test_without_words_there_is_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([]) == 0
    helped = capsys.readouterr()
    assert "COMMAND" in helped.out
    assert helped.err == ""
    monkeypatch.setattr("sys.argv", ["sptc"])
    assert main() == 0
    assert capsys.readouterr() == helped


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["veriog", "--preset", "tiny"], "verilog"),
        (["ports", "--preset", "hoper"], "hopper"),
        (["ports", "--preset", "tiny", "--top", "wrap"], "warp"),
        (["ports", "--preset", "kepler"], None),
    ],
)
def test_near_misses(words: list[str], meant: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = said(words, capsys)
    assert sentence.partition("did you mean ")[2] == (f"{meant}?\n" if meant else "")


def test_a_long_word_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said(["presets", "--" + "json" * 5_000], capsys)) < 2_100


@pytest.mark.parametrize("word", ["a\0b", "\ud800.STATE"])
def test_what_no_word_can_hold(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No shell gives such a word, but a caller of ``main`` may."""
    assert "holds what no word of a command line can" in said(["campaign", "--state", word], capsys)


@pytest.mark.parametrize("wanted", ["", "Unable to allocate 2 GiB"])
def test_memory_that_is_not_there(
    wanted: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(_options: object) -> int:
        raise MemoryError(*[wanted] if wanted else [])

    monkeypatch.setattr("sptc.cli.hardware._presets", execute)
    assert main(["presets"]) == 2
    assert capsys.readouterr().err == f"sptc presets: there is not enough memory{wanted and f' ({wanted})'}\n"
