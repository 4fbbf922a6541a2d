"""``sptc timing``: lists, one instruction, JSON, the picture, and what has no cycles."""

import json
from pathlib import Path

import pytest
from sptc.cli import main

TEXT = "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16"
KEYS = {"instruction", "sparse", "element", "n", "a_from", "interval", "latency", "bound_by", "kept_mac_per_cycle"}
KEYS |= {"source"}
TCGEN05 = "tcgen05.mma.{}cta_group::1.kind::f16 (m128n64k{}.f32.bf16.bf16)"


def test_an_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timing", TEXT]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["instruction", "A", "from", "interval", "latency", "kept", "MAC", "bound", "by", "known"]
    assert [line.split() for line in lines] == [
        [TEXT, "registers", "32", "80.5", "512.0", "tensor", "core", "measured"],
        [TEXT, "shared", "48", "89.5", "341.3", "shared", "memory", "measured"],
    ]


@pytest.mark.parametrize(
    ("sparse", "k", "found", "source"),
    [
        ("", 16, [("tensor", 32, 136), ("shared", 48, 168)], "measured by others"),
        ("sp.", 32, [("tensor", 32, 136), ("shared", 64, 168)], "modelled"),
    ],
)
def test_tcgen05(
    capsys: pytest.CaptureFixture[str], sparse: str, k: int, found: list[tuple[str, int, int]], source: str
) -> None:
    """Of a sparse one B has twice the bytes."""
    text = TCGEN05.format(sparse, k)
    assert main(["timing", text, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["a_from"], row["interval"], row["latency"]) for row in rows] == found
    assert {(row["instruction"], row["source"]) for row in rows} == {(text, source)}


def test_the_list_of_another_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timing", "--arch", "sm_100"]) == 0
    out = capsys.readouterr().out
    for word in ("tcgen05.mma.sp.cta_group::2.kind::mxf4", "kind::i8", "measured by others", "modelled"):
        assert word in out
    assert len(out.splitlines()) < 150


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Every instruction that is no emulation; with one named, its rows alone."""
    assert main(["timing", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row.keys() == KEYS for row in rows)
    assert len({row["instruction"] for row in rows}) > 1000
    assert main(["timing", TEXT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [row for row in rows if row["instruction"] == TEXT]


def test_the_list_has_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timing"]) == 0
    out = capsys.readouterr().out
    for word in ("mma.sp.sync", "mma.sync", "wgmma.mma_async.sp", "m64n256k32", "tf32", "bf16", "e4m3", "s8"):
        assert word in out
    assert len(out.splitlines()) < 150


def test_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rate.svg"
    assert main(["timing", TEXT, "--svg", str(path)]) == 0
    assert "<svg" in path.read_text(encoding="utf-8")
    assert main(["timing", "--svg", str(tmp_path / "no" / "rate.svg")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("words", [["tcgen05.mma.ws.cta_group::1.kind::f16"], ["add.f32"], [TEXT, "--arch", "sm_90"]])
def test_what_has_none(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["timing", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_sequence_is_bound_by_issue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timing", "mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32"]) == 0
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert (last[2], last[3], last[-2]) == ("409.8", "482.6", "issue")


def test_a_product(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timing", TEXT, "--product", "4096", "4096", "4096"]) == 0
    header, sparse, dense, gain = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["instruction", "cycles", "waves"]
    assert sparse.split()[0] == TEXT
    assert dense.split()[0] == "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    assert int(dense.split()[1]) > int(sparse.split()[1])
    assert gain.startswith("the sparse product takes 1.")
    assert (
        main(["timing", TEXT, "--product", "4096", "4096", "4096", "--tile", "64x128", "--result-bytes", "2", "--json"])
        == 0
    )
    rows = json.loads(capsys.readouterr().out)
    assert [row["waves"] for row in rows] == [16, 16]
    assert rows[0]["storing"] == round(4096 * 4096 * 2 / 2180)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--product", "64", "64", "64"], "--product needs an INSTRUCTION"),
        ([TEXT, "--tile", "64x64"], "are of a --product"),
        ([TEXT, "--product", "64", "64", "64", "--tile", "60x64"], "multiple of 64 rows"),
        ([TEXT, "--product", "64", "64", "64", "--tile", "wide"], "must be ROWSxCOLUMNS"),
        (["mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "--product", "8", "8", "8"], "known of wgmma"),
    ],
)
def test_no_product(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    try:
        status = main(["timing", *words])
    except SystemExit as refused:
        status = refused.code
    assert status == 2
    assert said in capsys.readouterr().err
