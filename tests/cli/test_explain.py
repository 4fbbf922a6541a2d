"""``sptc explain`` explains instructions, descriptors and nibbles, and rejects invalid input with one line."""

import importlib.util
import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sptc.infra.installation import install_line
from sptc.isa.metadata import RULES, swap_for_mux3
from sptc.tests.cli.command_line import CommandLine

COMMAND = "explain"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16"
TCGEN05 = "tcgen05.mma.sp.cta_group::1.kind::f16"
MXF4 = (
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X"
    ".f32.e2m1.e2m1.f32.ue8m0"
)


def test_the_text_and_numerics(cli: CommandLine) -> None:
    text = cli.text(F16, "--selector", 1)
    assert max(map(len, text.splitlines())) <= 120
    for expected in (
        "A 16 x 32 of f16, 16 x 16 stored; B 32 x 8 of f16; C and D 16 x 8 of f32",
        "valid selectors f: 0 1; shown is f = 1", "row = g + 8*(r & 1)", "T31 7,6:7 ", "T31 15,14:15",
        "lane = 4*(row & 7) + 2*f + (chunk >> 2), f = 1", "T30 15:0 = 7,0:3  31:16 = 15,0:3",
        "Numerics on sm_90: native, fused, recorded", "sm_80 modelled",
        "L = 16 products per addition (1 x 16 for K = 32), F = 25, e_zero = -133, rounding RZ-f32",
    ):  # fmt: skip
        assert expected in text, expected
    for operand in ("A, stored", "B", "C and D"):
        grid = text.split(f"\n{operand}: ")[1].split("\n\n")[0]
        assert sorted(map(int, re.findall(r"\bT(\d+) ", grid))) == sorted(4 * [*range(32)]), operand
    fp8, s4 = (f"mma.sp.sync.aligned.m16n8k64.row.col.{kinds}" for kinds in ("f32.e4m3.e4m3.f32", "s32.s4.s4.s32"))
    for text, arch, expected in (
        (F16.replace("k32", "k16"), "sm_90", "L = 16 products per addition (1 x 8 for K = 16)"),
        (fp8, "sm_90", "emulated, recorded"),
        (s4, "sm_90", "rounding exact"),
        (WGMMA, "sm_90", "native, fused, measured"),
        (MXF4, "sm_120", "native, grouped, modelled"),
    ):
        assert expected in cli.text(text, "--arch", arch).split("Numerics on ")[1], (text, arch)


def test_one_lane_or_row(cli: CommandLine) -> None:
    text = cli.text(F16, "--lane", 31, "--operand", "a")
    assert [line.strip() for line in text.splitlines() if line.startswith("  lane ")] == [
        "lane 31 register 0: 15:0 = 7,6  31:16 = 7,7",
        "lane 31 register 1: 15:0 = 15,6  31:16 = 15,7",
        "lane 31 register 2: 15:0 = 7,14  31:16 = 7,15",
        "lane 31 register 3: 15:0 = 15,14  31:16 = 15,15",
    ]
    whole, found = cli.json(F16), cli.json(F16, "--lane", 5)
    assert len(found["operands"]) == 5
    for operand, every in zip(found["operands"], whole["operands"], strict=True):
        assert operand["elements"] == [element for element in every["elements"] if element["lane"] == 5]
    report = cli.json(F16, "--row", 9)
    assert [operand["operand"] for operand in report["operands"]] == ["a", "metadata", "c", "d"]
    assert {element["row"] for operand in report["operands"] for element in operand["elements"]} == {9}
    both = cli.json(F16, "--row", 9, "--lane", 4, "--operand", "d")
    assert [(element["row"], element["n"]) for element in both["operands"][0]["elements"]] == [(9, 0), (9, 1)]
    text = cli.text(TCGEN05, "--row", 64)
    assert "lane 64 column 0: 15:0 = 64,0  31:16 = 64,1" in text


def test_some_words_of_a_name(cli: CommandLine) -> None:
    output, errors = cli.streams(*("m16n8k64", "u4", "s4", "satfinite", "sp", "ordered_metadata"), status=2)
    head, first, second, message = errors.splitlines()
    assert (output, head.split()) == ("", ["A", "B", "instruction"])
    assert [line.split()[:3] for line in (first, second)] == [["1", "s4", "u4"], ["2", "u4", "s4"]]
    assert message.startswith("sptc explain: 2 instructions have the words 'm16n8k64 u4 s4 satfinite sp ordered_meta")
    assert message.endswith("; they differ in A, B: add words, or take a name from the list")
    assert cli.text("m16n8k4", "tf32").startswith("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32\n")
    assert cli.text("m16n8k32", "f16", "f32").startswith("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.")


def test_a_line_with_operands(cli: CommandLine) -> None:
    vector = "{%r1, %r2, %r3, %r4}"
    line = f"@%p1 {F16} {vector}, {vector}, {vector}, {vector}, %r9, 0x1;"
    text = cli.text(line, "--operand", "metadata")
    head = f"{F16}\nexecuted if %p1 is true; operands of the line:\n"
    assert text.startswith(f"{head}  d  {vector}  D, 16 x 8 of f32: 4 ")
    assert "\n  f  0x1                   sparsity selector f, which selects" in text
    assert "shown is f = 1" in text
    report = cli.json(line)
    assert report["sparsity"]["selector"] == 1
    assert [operand["role"] for operand in report["line"]["operands"]] == ["d", "a", "b", "c", "e", "f"]
    assert report["line"]["predicate"] == "%p1"
    cli.text(line, "--selector", 1, "--lane", 3)
    cli.refuses(line, "--selector", 0, message="the line of PTX has sparsity selector 1, which contradicts selector 0")


def test_a_line_with_descriptors(cli: CommandLine) -> None:
    accumulators = ", ".join(f"%f{place}" for place in range(128))
    wide = WGMMA.replace("sync.aligned.", "")
    text = cli.text(f"{wide} {{{accumulators}}}, %rd1, %rd2, %r1, 1, p, 1, 1, 0, 1;")
    assert "  d            {%f0, %f1, ... %f127}  C and D, 64 x 256 of f32: 128 registers of each thread\n" in text
    assert "  imm-trans-b  1                      1 if B is MN-major" in text
    assert ".sync.aligned is missing in the line of PTX and was added\n" in text
    line = f"{TCGEN05} [%r1], %rd1, %rd2, [%r2], %r3, p;"
    assert "shape and types are in the register idesc; the layout is that of m128n8k32.f16.f16.f16." in cli.text(line)
    text = cli.text(line.replace("%r3", "0x08100015"))
    assert text.startswith(f"{TCGEN05} (m128n64k32.f32.f16.f16)\n")
    assert "shown is f = 1" in text
    shaped = line.replace(TCGEN05, f"{TCGEN05} (m128n32k32.f32.f16.f16)")
    assert cli.text(shaped).startswith(f"{TCGEN05} (m128n32k32.f32.f16.f16)\n")
    message = "instruction descriptor 0x08100014 describes m128n64k32.f32.f16.f16, not m128n32k32.f32.f16.f16"
    cli.refuses(shaped.replace("%r3", "0x08100014"), message=message)


def test_incomplete_names_and_names_of_machine_code(cli: CommandLine) -> None:
    text = cli.text("mma.sp.m16n8k32.f32.f16.f16.f32")
    assert text.startswith(f".sync.aligned.row.col is missing in the name of the instruction and was added\n{F16}\n")
    cli.refuses(F16.replace("row.col", "row.row"), message="'.row.row' in ... is not accepted")
    assert len(cli.text("HMMA.SP.16832.F32", "--arch", "sm_80").splitlines()) == 5
    cli.refuses("HGMMA.64x64x16.F32", "--arch", "sm_80", message="no modelled instruction of sm_80 compiles")
    found = cli.json("/*0010*/ UTCOMMA.4X gdesc[UR10], gdesc[UR12], tmem[UR6], tmem[UR4], idesc[UR5], tmem[UR8], UP0 ;")
    assert {one["instruction"].split("kind::")[1].split(".")[0] for one in found["implements"]} == {"mxf4nvf4"}
    assert "QGMMA: 512 SASS names contain these words" in cli.text("QGMMA")
    cli.refuses("HMMA", "--selector", 0, message="--selector cannot be combined with the name of a SASS instruction")


def test_other_memories(cli: CommandLine) -> None:
    for text, *expected in (
        (WGMMA, "B: 32 x 256, 16 bits each, in shared memory", "of warp 0, the first 4 of 128 registers:", "LBO 4096"),
        (TCGEN05, f"{TCGEN05} (m128n8k32.f16.f16.f16)\n",
         "A, stored: 128 x 16, 16 bits each, in tensor memory of a CTA", "column = f, f = 0",
         "127,15 = lane 127 column 7 bits 31:16\n", "31,7 = byte 510\n"),
        (f"{TCGEN05} (m64n8k32.f32.f16.f16)", "lane = row//16*32 + chunk//4*8 + row % 8"),
        ("tcgen05.mma.cta_group::2.kind::f16 (m128n64k16.f32.f16.f16)", "lane = row + 64*(n//32)",
         "with copies at lane offsets 64"),
        (MXF4, "scales of B: 8 x 2, 8 bits each, in registers"),
        ("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "value is in bits 31:13; all other bits are ignored"),
    ):  # fmt: skip
        shown = cli.text(text)
        assert [words for words in expected if words not in shown] == [], text


def test_tiles_of_shared_memory(cli: CommandLine) -> None:
    words = (WGMMA, "--swizzle", "128B", "--major", "mn", "--operand", "b")
    text = cli.text(*words)
    for line in (
        "  unit = 128*(k % 8) + SBO*(k//8) + LBO*(n//8//8) + 16*(n//8 % 8)",
        "  byte = (unit ^ (unit >> 7 & 7)*16) + 2*(n % 8)",
        "  through the descriptor 0x4000004001000000: MN-major, swizzle 128B, start 0, SBO 1024, LBO 4096",
    ):
        assert line in text.splitlines()
    assert "in registers" not in text
    assert "  byte 336: 15:0 = 2,56" in cli.text(*words, "--element", "2,56").splitlines()
    assert "  byte 336: 15:0 = 2,56" in cli.text(*words, "--byte", "0x151").splitlines()
    places = {(entry["k"], entry["n"]): entry["byte"] for entry in cli.json(*words)["operands"][0]["elements"]}
    assert len({*places.values()}) == len(places) == 32 * 256
    (found,) = cli.json(*words, "--byte", places[31, 255])["operands"]
    assert [(entry["k"], entry["n"]) for entry in found["elements"]] == [(31, 255)]
    text = cli.text(WGMMA, "--sbo", "0x40", "--lbo", 1024, "--start", 256, "--operand", "a")
    assert "start 256, SBO 64, LBO 1024" in text
    assert "448 of 1024 elements of A share bytes with others: the offsets are too small" in text
    cli.refuses_each(
        ((WGMMA, "--swizzle", "64B", "--operand", "d"), "only operands a and b can be in shared memory, not d"),
        ((WGMMA, "--byte", 3, "--svg", "x.svg"), "--svg draws whole operands"),
    )


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_of_tiles(cli: CommandLine) -> None:
    cli.text(WGMMA.replace("n256", "n8"), "--operand", "b", "--swizzle", "64B", "--svg", "tile.svg")
    elements = ElementTree.fromstring(Path("tile.svg").read_bytes()).iter()
    labels = [text.strip() for element in elements if (text := element.text or "").strip()]
    cells = [label for label in labels if re.fullmatch(r"\d+:\d+,\d+", label)]
    assert cells[:10] == [*(f"{8 * unit}:{8 * unit + 7},{n}" for n in (0, 1) for unit in range(4)), "8:15,2", "0:7,2"]
    assert len({*cells}) == len(cells) == 8 * 4


def test_descriptors(cli: CommandLine) -> None:
    text = cli.text("0x4000004000010000")
    assert text.startswith("0x4000004000010000: shared-memory matrix descriptor of wgmma (family from bits 48:46)\n")
    assert "\n  45:32  stride byte offset   0x40  1024 bytes\n" in text
    assert "\n  63:62  swizzle              0x1   128B\n" in text
    assert text.endswith("the descriptor has no errors\n")
    assert "of tcgen05" in cli.text("0x4000_4040_0001_0000ULL")
    f16 = "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16"
    fp8 = "wgmma.mma_async.sp.sync.aligned.m64n64k64.f32.e4m3.e4m3"
    assert "A, MN-major: fits" in cli.text("0x4000004000010000", f16)
    for words, *problems in (
        (("0xc000_8040_0001_0000", "wgmma"), "bits 48:46, reserved: must be 0"),
        (("0x7000404000010000", "tcgen05"), "bits 60:53, reserved: must be 0",
         "bits 63:61, swizzle: must be 0 (none), 1 (128B with 32B atoms), 2 (128B), 4 (64B), 6 (32B)"),
        (("0x4000004000010000", fp8, "--major", "mn", "--operand", "b"),
         f"B, MN-major: {fp8} reads .e4m3 operands in K-major order only"),
        (("0x0000004000080000", f16, "--major", "k", "--operand", "a"),),
        (("0x0000000800200000", f16, "--major", "k", "--operand", "b"),
         "B, K-major: 768 of 2048 elements of B share bytes with others: the offsets are too small",
         "B, K-major: the tile would fit with LBO and SBO exchanged"),
    ):  # fmt: skip
        assert cli.json(*words)["problems"] == problems, words
    cli.refuses("0x1" + 16 * "0", message="a shared-memory descriptor has 64 bits, not 65")
    cli.refuses("0x4000004000010000", F16, message="reads its operands from registers and has no matrix descriptor")
    for option, value in (("--svg", "x.svg"), ("--lbo", 32), ("--base-offset", 0), ("--selector", 0), ("--row", 0)):
        cli.refuses("0x4000004000010000", option, value, message=f"{option} cannot be combined with a descriptor")
    cli.refuses("0x4000004000010000", "--operand", "c", message="only operands a and b can be in shared memory, not c")
    text = cli.text("0x08100014")
    assert "accepted by 6 opcodes\n" in text
    assert "\n  22:17  N                   0x8  64\n" in text
    report = cli.json("0x8100014", TCGEN05)
    expected = ("0x08100014", ["shape and types: m128n64k32.f32.f16.f16"], [])
    assert (report["descriptor"], report["notes"], report["problems"]) == expected
    assert cli.json("0x8100014", TCGEN05, "(m128n64k32.f32.f16.f16)")["problems"] == []
    problem = "instruction descriptor 0x08100014 describes m128n64k32.f32.f16.f16, not m64n64k32.f32.f16.f16"
    assert cli.json("0x8100014", TCGEN05, "(m64n64k32.f32.f16.f16)")["problems"] == [problem]
    cli.refuses("0x8100014", TCGEN05, "rubbish", message="has no shape and types 'rubbish'")
    text = cli.text("0x88100010", TCGEN05)
    assert "0x0  dense A     <- must be 1 for '.sp'" in text
    assert "  bit 2, sparse: must be 1 for '.sp'\n  bits 31:30, maximum shift of B: must be 0 without '.ws'\n" in text
    cli.refuses("0x8100014", F16, message="only tcgen05.mma has an instruction descriptor, not mma.sp")
    cli.refuses("0x8100014", "--operand", "a", message="--operand and --major apply only to matrix descriptors")


def test_json_is_the_whole_map(cli: CommandLine) -> None:
    report = cli.json(F16, "--selector", 1)
    assert [entry["operand"] for entry in report["operands"]] == ["a", "metadata", "b", "c", "d"]
    a, metadata, b, c, d = (entry["elements"] for entry in report["operands"])
    assert [len(entries) for entries in (a, metadata, b, c, d)] == [256, 128, 256, 128, 128]
    assert c == d
    assert {(entry["row"], entry["stored"]) for entry in a} == {*product(range(16), repeat=2)}
    assert {(entry["row"], entry["chunk"]) for entry in metadata} == {*product(range(16), range(8))}
    assert report["sparsity"]["legal"] == sorted(RULES["plain"].legal)
    assert report["numerics"]["arch"] == "sm_90"
    for operand in ("a", "b", "c", "d", "metadata"):
        assert [entry["operand"] for entry in cli.json(F16, "--operand", operand)["operands"]] == [operand]
    both = cli.json(WGMMA, "--operand", "a")["operands"]
    assert [entry["memory"] for entry in both] == ["registers", "shared memory"]
    last = both[0]["elements"][-1]
    assert " ".join(last) == "row stored warp lane register low_bit high_bit"
    assert list(last.values()) == [63, 15, 3, 31, 3, 16, 31]
    assert both[1]["elements"][1] == {"row": 0, "stored": 1, "byte": 2, "low_bit": 0, "high_bit": 15}
    (metadata,) = cli.json(TCGEN05, "--operand", "metadata")["operands"]
    last = metadata["elements"][-1]
    assert " ".join(last) == "row chunk lane column low_bit high_bit"
    assert list(last.values()) == [127, 7, 127, 0, 28, 31]
    assert cli.json(DENSE)["sparsity"] is None


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("text", [F16, DENSE, WGMMA, TCGEN05, MXF4, "mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32"])
def test_the_picture(text: str, cli: CommandLine) -> None:
    picture = Path("map.svg")
    cli.text(text, "--svg", picture)
    labels = [element.text or "" for element in ElementTree.fromstring(picture.read_bytes()).iter() if element.text]
    assert [label for label in labels if label.startswith(text)]
    headings = [label for label in labels if " bits each, in " in label]
    assert [heading.split(",")[0] for heading in headings if heading[0] in "BC"] == ["B", "C and D"]
    if text == F16:
        # A, B, and the accumulators have 128 registers each. Labels of metadata name bits instead of registers.
        assert len([label for label in labels if re.fullmatch(r"T\d+:R\d", label)]) == 3 * 128
        assert len([label for label in labels if re.fullmatch(r"T\d+ \d+:\d+", label)]) == 128
        assert {"T31:R3", "T29 31:28", "k 28:31", "stored 14:15", "register 3"} <= set(labels)
    first = picture.read_bytes()
    cli.text(text, "--svg", picture)
    assert picture.read_bytes() == first


def test_nibbles(cli: CommandLine) -> None:
    seen: dict[str, set[int]] = {}
    for value in range(16):
        report = cli.json("--nibble", value)
        assert report["indices"] == [value & 3, value >> 2]
        for entry in report["rules"]:
            seen.setdefault(entry["rule"], set()).update([value] if entry["legal"] else [])
            if "mux4" in entry["multiplexers"]:
                assert "zero" not in entry["multiplexers"]["mux4"]
            if "mux3" in entry["multiplexers"]:
                swaps = entry["rule"] == "plain" and swap_for_mux3(value)
                assert ("slots swap" in entry["multiplexers"]["mux3"]) == swaps
                if entry["legal"]:
                    assert "zero" not in entry["multiplexers"]["mux3"]
        if value in RULES["plain"].legal:
            assert (value if report["swapped"] is None else report["swapped"]) in RULES["tcgen05"].legal
    assert seen == {name: set(rule.legal) for name, rule in RULES.items()}
    text = cli.text("--nibble", "0b0110")
    assert cli.text("--nibble", "6") == cli.text("--nibble", "0x6") == text
    assert max(map(len, text.splitlines())) <= 130
    assert "slots swap" not in text
    tf32 = "low half from the low half of k 2c+1, high half from the high half of k 2c"
    for value, expected in (
        (0b0110, "nibble 0b0110 (0x6): i0 = 2 (bits 1:0)"),
        (0b0110, "plain    2:4   yes    stored 0 <- k 4c+2, stored 1 <- k 4c+1"),
        (0b0110, "ordered  2:4   no "),
        (0b0110, "tcgen05  4:8   yes    stored 0,1 <- k 8c+4,5, stored 2,3 <- k 8c+2,3"),
        (0b0110, f"tf32     1:2   no     stored 0 <- {tf32}"),
        (0b0110, "no known software"),
        (0b0011, "  plain      slots swap; mux 0 reads unit 0 for slot 1; mux 1 reads unit 3 for slot 0"),
        (0b0011, "mux 0 gives slot 0 zero, since it cannot read unit 3"),
        (0b0011, "the assembler replaces plain 0b0011 of f16, bf16, s8 and u8 by 0b1100 and swaps the elements"),
        (0b0100, "tf32     1:2   yes    stored 0 <- k 2c+0"),
        (0b0000, "no nonzero, both stored values 0; and padding of K: CUTLASS compressor"),
        (0b0000, "mux 1 gives slot 1 zero, since it cannot read unit 0"),
        (0b1100, "only element 3, stored in slot 1 behind a 0: CUTLASS compressor"),
    ):
        assert expected in cli.text("--nibble", f"{value:#06b}"), (value, expected)


def test_bad_input(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.refuses_each(
        ([], "INSTRUCTION or --nibble is required"),
        ([DENSE, "--operand", "metadata"], "is dense and has no metadata"),
        ([F16, "--operand", "scale_a"], "is not block-scaled"),
        (["--nibble", "16"], "argument --nibble: the value must be from 0 to 15, such as 6, 0x6 or 0b0110, not '16'"),
        (["--lane", 3, "--nibble", "6"], "--lane cannot be combined with --nibble, but --json can"),
        (["--nibble", "6", "--selector", 0], "--selector cannot be combined with --nibble"),
        ([F16, "--row", 1, "--svg", "x.svg"], "--svg draws whole operands: leave out --row, --lane"),
        (["m16n8k32", "f17"], "f17"),
        ([MXF4, "--operand", "scale_a", "--svg", "x.svg"], "no operand can be drawn: scales have no picture"),
    )
    if importlib.util.find_spec("matplotlib"):
        cli.refuses(F16, "--svg", "no folder/x.svg", message="x.svg cannot be written")
    monkeypatch.setattr("sptc.infra.figures.importlib.util.find_spec", lambda name: None)
    cli.refuses(F16, "--svg", "x.svg", message=f"pictures need matplotlib: install it with `{install_line('area')}`")
