"""``sptc coverage``: what it prints, its status, and one line for whatever is wrong."""

import json
import re
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.sim.coverage.groups import Axis, Coverage, Group


def write(path: Path, hits: list[int], configuration: str = "tiny", labels: str = "abcd") -> Path:
    group = Group(configuration, "letters", "Seen.", (Axis("letter", tuple(labels)),))
    group.declare_unreachable([label == "d" for label in labels], "The alphabet ends at c.")
    group.hits[:] = hits
    Coverage([group]).write(path)
    return path


def exit_status(*words: object) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return main(["coverage", *map(str, words)])
    except SystemExit as end:
        return end.code


def test_everything_reachable_was_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By two files together, neither of them alone."""
    one, two = write(tmp_path / "1.json", [1, 0, 5, 0]), write(tmp_path / "2.json", [0, 3, 0, 0])
    assert exit_status(one) == 1
    assert exit_status(two) == 1
    capsys.readouterr()
    assert exit_status(one, two) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert "missing" not in output
    assert re.search(r"^tiny: letters +4 +3 +3 +100\.0$", output, re.MULTILINE)
    assert "unreachable: tiny: letters: 1 bins: The alphabet ends at c." in output


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "1.json", [0, 0, 1, 0])
    assert exit_status(path) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["missing: tiny: letters: a", "missing: tiny: letters: b"]
    assert exit_status(path, "--missing", 1) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "missing: tiny: letters: and 1 more"


def test_configurations_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write(tmp_path / "1.json", [1, 1, 1, 0]), write(tmp_path / "2.json", [0, 1], "ada", "ab")
    assert exit_status(one, two) == 1
    output = capsys.readouterr().out
    assert [line.split(":")[0] for line in output.splitlines()[1:3]] == ["ada", "tiny"]


def test_a_contradiction_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(write(tmp_path / "1.json", [1, 1, 1, 1])) == 1
    assert "CONTRADICTED, declared unreachable but reached: tiny: letters: d" in capsys.readouterr().out


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "1.json", [0, 0, 1, 0])
    assert exit_status(path, "--json", "--missing", 1) == 1
    output, errors = capsys.readouterr()
    assert errors == ""
    assert json.loads(output) == json.loads(json.dumps(Coverage.read(path).report(1))) | {"code": {}}
    assert json.loads(output)["groups"][0]["missing"] == ["a"]


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "good.json", [1, 1, 1, 0])
    (tmp_path / "text.json").write_text("not json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "other.json").write_text(good.read_text().replace('"version": 1', '"version": 7'))
    (tmp_path / "empty.json").write_text(Coverage().to_json())
    write(tmp_path / "shape.json", [1, 1, 1], labels="abc")
    for name, message in (
        ("missing.json", r"missing\.json cannot be read \(No such file or directory\)"),
        (".", r"cannot be read \(Is a directory\)"),
        ("text.json", r"text\.json is no coverage file \(not JSON\)"),
        ("bytes.json", r"bytes\.json is no coverage file \(not text\)"),
        ("other.json", r"other\.json is a coverage file of version 7, not 1, the one read here"),
        (
            "shape.json",
            r"shape\.json does not merge with the files before it: group 'letters' of .* has other bins; .*",
        ),
    ):
        assert exit_status(good, tmp_path / name) == 2
        output, errors = capsys.readouterr()
        assert output == ""
        assert re.fullmatch(rf"sptc coverage: .*{message}\n", errors), errors
    assert exit_status(tmp_path / "empty.json") == 2
    assert "empty.json holds no group of bins" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: FILE"),
        (["a.json", "--missing"], "expected one argument"),
        (["a.json", "--missing", "-1"], "--missing"),
        (["a.json", "--missing", "some"], "must be an integer of 0 or more, not 'some'"),
    ],
)
def test_bad_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(*words) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert message in errors
