"""``sptc coverage`` prints coverage and missing bins, and rejects invalid input with one line."""

import json
import re
from pathlib import Path

from sptc.sim.coverage.groups import Axis, Coverage, Group
from sptc.tests.cli.command_line import CommandLine

COMMAND = "coverage"


def write(name: str, hits: list[int], configuration: str = "tiny", labels: str = "abcd") -> str:
    group = Group(configuration, "letters", "Seen.", (Axis("letter", tuple(labels)),))
    group.declare_unreachable([label == "d" for label in labels], "The alphabet ends at c.")
    group.hits[:] = hits
    Coverage([group]).write(Path(name))
    return name


def test_tables(cli: CommandLine) -> None:
    one, two = write("1.json", [1, 0, 5, 0]), write("2.json", [0, 3, 0, 0])
    assert cli.status(one) == cli.status(two) == 1
    output = cli.text(one, two)
    assert output.startswith("all 3 reachable bins were hit\n")
    assert "missing" not in output
    assert re.search(r"^tiny: letters +4 +3 +3 +100\.0$", output, re.MULTILINE)
    assert "unreachable: tiny: letters: 1 bins: The alphabet ends at c." in output
    path = write("1.json", [0, 0, 1, 0])
    lines = cli.text(path, status=1).splitlines()
    assert lines[0] == "2 of 3 reachable bins missing"
    assert lines[-2:] == ["missing: tiny: letters: a", "missing: tiny: letters: b"]
    assert cli.text(path, "--missing", 1, status=1).splitlines()[-1] == "missing: tiny: letters: and 1 more"
    report = cli.json(path, "--missing", 1, status=1)
    assert report == json.loads(json.dumps(Coverage.read(Path(path)).report(1))) | {"code": {}}
    assert report["groups"][0]["missing"] == ["a"]
    one, two = write("1.json", [1, 1, 1, 0]), write("2.json", [0, 1], "ada", "ab")
    lines = cli.text(one, two, status=1).splitlines()
    assert [line.split(":")[0] for line in lines[2:4]] == ["ada", "tiny"]


def test_bad_files_and_words(cli: CommandLine) -> None:
    good = write("good.json", [1, 1, 1, 0])
    Path("empty.json").write_text(Coverage().to_json())
    write("shape.json", [1, 1, 1], labels="abc")
    merging = "shape.json cannot be merged with the files before it: group 'letters' of ... has different bins in "
    cli.refuses_each(
        ([good, "shape.json"], merging), (["empty.json"], "empty.json holds no coverage bins"), ([], "required: FILE")
    )
