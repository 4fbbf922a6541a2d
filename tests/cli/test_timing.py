"""``sptc timing`` prints and draws cycles of instructions, and names instructions without known cycles."""

from pathlib import Path

from sptc.tests.cli.command_line import CommandLine

COMMAND = "timing"
TEXT = "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16"
KEYS = {"instruction", "sparse", "element", "n", "a_from", "interval", "latency", "bound_by", "kept_mac_per_cycle"}
KEYS |= {"arch", "source", "reference"}
TCGEN05 = "tcgen05.mma.{}cta_group::1.kind::f16 (m128n64k{}.f32.bf16.bf16)"


def test_an_instruction_and_a_sequence(cli: CommandLine) -> None:
    header, *lines = cli.text(TEXT).splitlines()
    assert header.split() == ["instruction", "A", "from", "interval", "latency", "kept", "MAC", "bound", "by", "known"]
    assert [line.split() for line in lines] == [
        [TEXT, "registers", "32", "80.5", "512.0", "tensor", "core", "measured"],
        [TEXT, "shared", "48", "89.5", "341.3", "shared", "memory", "measured"],
    ]
    last = cli.text("mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32").splitlines()[-1].split()
    assert (last[2], last[3], last[-2]) == ("409.8", "482.6", "issue")
    (row, _) = cli.json(TEXT.replace("n64", "n72"))
    assert (row["source"], repr(row["interval"])) == ("fitted to measurements", "36.0")
    cli.text(TEXT, "--svg", "rate.svg")
    assert "<svg" in Path("rate.svg").read_text(encoding="utf-8")
    cli.refuses(TEXT, "--svg", "no/rate.svg", message="cannot be written")


def test_other_architectures(cli: CommandLine) -> None:
    for text, expected, source in (
        (TCGEN05.format("", 16), [("tensor", 32, 136), ("shared", 48, 168)], "measured by others"),
        (TCGEN05.format("sp.", 32), [("tensor", 32, 136), ("shared", 64, 168)], "modelled"),
    ):
        rows = cli.json(text)
        assert [(row["a_from"], row["interval"], row["latency"]) for row in rows] == expected
        assert {(row["instruction"], row["source"]) for row in rows} == {(text, source)}
    f16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    for arch, interval, source in (
        ("sm_80", 8, "white paper"), ("sm_87", 8, "modelled"), ("sm_90a", 8, "measured"), ("sm_100f", 8, "modelled"),
    ):  # fmt: skip
        (row,) = cli.json(f16, "--arch", arch)
        assert (row["interval"], row["source"], row["arch"]) == (interval, source, arch)
        assert (row["latency"] is None) == (arch not in ("sm_90a", "sm_100f"))
        assert bool(row["reference"]) == (arch != "sm_90a")
    assert cli.text(f16, "--arch", "sm_80").splitlines()[-1].startswith("white paper: NVIDIA A100 ")
    assert {row["arch"] for row in cli.json("--arch", "sm_120f")} == {"sm_120f"}


def test_names_without_shape_and_names_of_sass(cli: CommandLine) -> None:
    text = TCGEN05.format("sp.", 32)
    note, header, *_ = cli.text(text.partition(" ")[0]).splitlines()
    assert note.endswith("is taken: (m128n8k32.f16.f16.f16)")
    assert header.startswith("instruction")
    assert cli.text(text).startswith("instruction")
    assert cli.json(text.partition(" ")[0])[0]["n"] == 8
    for name, expected in (
        ("HMMA.SP.16832.F32", {("sp", "sm_90"), ("sp::ordered_metadata", "sm_90")}),
        ("IMMA.16864.S4.S4", {("sync", "sm_80")}),  # on sm_90, other SASS instructions execute this s4 mma
        ("UTCIMMA", {("sp", "sm_100"), ("cta_group::1", "sm_100")}),
    ):
        words = {(row["instruction"].removeprefix("tcgen05.").split(".")[1], row["arch"]) for row in cli.json(name)}
        assert words == expected, name
    words = "mma.sp m16n8k32 f16 f32 ordered_metadata"
    assert cli.text(*words.split()) == cli.text(words)


def test_lists(cli: CommandLine) -> None:
    rows = cli.json()
    assert all(row.keys() == KEYS for row in rows)
    assert len({row["instruction"] for row in rows}) > 1000
    assert cli.json(TEXT) == [row for row in rows if row["instruction"] == TEXT]
    for words, expected in (
        ([], ("mma.sp.sync", "mma.sync", "wgmma.mma_async.sp", "m64n256k32", "tf32", "bf16", "e4m3", "s8")),
        (["--arch", "sm_100"],
         ("tcgen05.mma.sp.cta_group::2.kind::mxf4", "kind::i8", "measured by others", "modelled")),
    ):  # fmt: skip
        text = cli.text(*words)
        assert [word for word in expected if word not in text] == []
        assert len(text.splitlines()) < 200


def test_a_product(cli: CommandLine) -> None:
    words = [TEXT, "--product", "4096", "4096", "4096"]
    header, sparse, dense, gain = cli.text(*words).splitlines()
    assert header.split()[:3] == ["instruction", "cycles", "waves"]
    assert sparse.split()[0] == TEXT
    assert dense.split()[0] == "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    assert int(dense.split()[1]) > int(sparse.split()[1])
    assert gain.startswith("the sparse product is 1.")
    rows = cli.json(*words, "--tile", "64x128", "--result-bytes", "2")
    assert [row["waves"] for row in rows] == [16, 16]
    assert rows[0]["storing"] == round(4096 * 4096 * 2 / 2180)


def test_bad_words(cli: CommandLine) -> None:
    f16, stationary = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "tcgen05.mma.ws.cta_group::1.kind::f16"
    cli.refuses_each(
        ([stationary], f"the cycle count of {stationary} is unknown: nobody has published"),
        (["--arch", "sm_80", "--svg", "x.svg"], "--svg draws only wgmma on sm_90; leave out --arch sm_80"),
        (["--product", "64", "64", "64"], "--product needs INSTRUCTION"),
        ([TEXT, "--tile", "64x64"], "--tile and --result-bytes need --product"),
        ([f16, "--product", "8", "8", "8"], "known only for wgmma"),
    )
