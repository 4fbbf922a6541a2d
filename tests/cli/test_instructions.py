"""``sptc instructions`` lists every instruction, and the documentation shows the table that it prints."""

import re
from pathlib import Path

from sptc.isa.instructions import every_instruction
from sptc.isa.tcgen05 import KINDS, instructions_of, parse_opcode
from sptc.show.instructions import markdown_table
from sptc.tests.cli.command_line import CommandLine

COMMAND = "instructions"
DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- instructions: begin -->\n", "<!-- instructions: end -->"
EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "guides" / "python.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_site_shows_the_table_and_every_multiplication() -> None:
    text = (DOCS / "reference" / "coverage.md").read_text(encoding="utf-8")
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == markdown_table() + "\n", "run `sptc instructions --markdown` and put its output between the markers"
    for name in ("mma", "wgmma", "tcgen05_mma"):
        assert any(f"sptc.{name}(" in example for example in EXAMPLES), name


def test_json_lists_every_instruction(cli: CommandLine) -> None:
    listed = cli.json()["instructions"]
    by_text = {entry["instruction"]: entry["evidence"] for entry in listed}
    assert len(by_text) == len(listed)
    actual = {text for text in by_text if not text.startswith("tcgen05")}
    assert actual == {str(instruction) for instruction in every_instruction()}
    f16 = by_text["mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"]
    assert (f16["sm_90"], f16["sm_80"]) == ("recorded", "modelled")
    mxf4 = "kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
    scaled = by_text[f"mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.{mxf4}"]
    assert (scaled["sm_90"], scaled["sm_120"]) == ("", "modelled")
    by_text = {entry["instruction"]: entry for entry in listed if entry["instruction"].startswith("tcgen05")}
    assert {text.split()[0].split("kind::")[1].split(".")[0] for text in by_text} == set(KINDS)
    spelled: dict[str, set[str]] = {}
    for text, entry in by_text.items():
        name = text.split()[0]
        opcode = parse_opcode(name)
        if name not in spelled:
            spelled[name] = {f"({i.shape_and_types.replace(f'n{i.n}k', 'nNk')})" for i in instructions_of(opcode)}
        assert text.split()[1] in spelled[name]
        assert tuple(entry["n"]) == opcode.columns
        assert [arch for arch, word in entry["evidence"].items() if word] == ["sm_100"]


def test_the_text_and_filters(cli: CommandLine) -> None:
    lines = cli.text().splitlines()
    assert max(map(len, lines)) <= 100
    rows = [line for line in lines if re.search(r", A is (dense|\d:\d)$", line)]
    assert len(rows) == len(re.findall(r"^\| `", markdown_table(), re.MULTILINE))
    assert cli.text("--markdown") == markdown_table() + "\n"
    for words, name in (
        (["m16n8k32", "f16", "--sparse", "--arch", "sm_90"], "mma.sp, mma.sp::ordered_metadata"),
        (["mma.m8n8k16"], "mma"),
        (["wgmma tf32", "--dense"], "wgmma.mma_async"),
        (["tcgen05", "m32n64k8"], "tcgen05.mma.ws .kind::tf32"),
    ):
        text = cli.text(*words)
        assert [line.rpartition(", A is")[0] for line in text.splitlines() if ", A is " in line] == [name]
        assert "--arch" not in words or "sm_80" not in text
    listed = cli.json("--arch", "sm_120", "--sparse", "e2m1", "m16n8k128")["instructions"]
    assert len(listed) == 4
    assert all("m16n8k128" in entry["instruction"] and entry["evidence"]["sm_120"] for entry in listed)
    assert all([*entry["evidence"]] == ["sm_120"] for entry in listed)
    name = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"  # a name with .kind::f8f6f4 also has all these words
    levels = "recorded elsewhere: sm_89 sm_100; recorded: sm_90; modelled: sm_120"
    assert cli.text(name).startswith(f"{name}, A is dense\n    m16n8k32\n    e4m3 to f32\n    {levels}\n\n")
    assert [entry["instruction"] for entry in cli.json(name)["instructions"]] == [name]
    tcgen05 = "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)"
    (entry,) = cli.json(tcgen05)["instructions"]
    assert (entry["instruction"], entry["evidence"]["sm_100"]) == (tcgen05, "modelled")
    assert len(cli.json("tcgen05.mma.sp", "m128n64k32.f32.f16.f16")["instructions"]) == 3
    message = "no instruction matches these words and options; `sptc instructions` lists all"
    for more in ((), ("--json",)):
        cli.refuses(name, "--arch", "sm_80", *more, message=f"sm_80 does not have {name}")
        cli.refuses("m16n8k32", "f64", *more, message=message)
        cli.refuses(name, "--sparse", *more, message=message)
