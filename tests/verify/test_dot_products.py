"""The models reproduce shipped dot products that other projects recorded on GPUs, and reject invalid archives."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.cli import main
from sptc.errors import FileError, InstructionError
from sptc.isa.instructions import parse
from sptc.isa.numerics import numerics
from sptc.verify.dot_products import DotProducts, read, shipped_dot_products
from sptc.verify.replay import replay

SHIPPED, WORDS = shipped_dot_products()
SETS = read(SHIPPED)
#: For each architecture with recorded dot products: an architecture of another GPU generation with other numerics.
NEIGHBOURS = {"sm_80": "sm_90", "sm_86": "sm_90", "sm_89": "sm_90", "sm_90": "sm_89", "sm_100": "sm_89"}


def name_of(made: DotProducts) -> str:
    return f"{made.gpu} {made.name}".replace(" ", "_")


def test_the_golden_model_gives_every_output_that_ships() -> None:
    assert len(SETS) == 46
    assert sum(made.cases for made in SETS) == 230_000
    assert len({made.gpu for made in SETS}) == 7
    assert "Redistribution and use" in (SHIPPED.parent / "LICENCE").read_text(encoding="utf-8")
    outcomes = replay(SHIPPED)
    assert [(o.name, o.arch, o.mismatches) for o in outcomes] == [(made.name, made.arch, 0) for made in SETS]
    assert sum(o.outputs for o in outcomes) == 230_000


@pytest.mark.parametrize("backend", ["golden", "native", pytest.param("rtl", marks=pytest.mark.regression)])
def test_every_model_gives_the_words_of_a_b200(backend: str) -> None:
    outcomes = replay(WORDS, backend=backend)
    assert (len(outcomes), sum(o.outputs for o in outcomes), sum(o.mismatches for o in outcomes)) == (31, 74, 0)
    assert "MIT License" in (WORDS.parent / "LICENCE-words").read_text(encoding="utf-8")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("arch", ["sm_90", "sm_80", "sm_89", "sm_100"])
def test_the_hardware_gives_every_recorded_output(arch: str) -> None:
    for made in SETS:
        if made.arch == arch:
            assert np.array_equal(made.run("rtl"), made.d), name_of(made)


def test_the_sets_distinguish_gpu_generations() -> None:
    for made in SETS:
        i, arch = made.instruction, NEIGHBOURS[made.arch]
        if i.d.name != "f32":
            continue
        if i.family == "wgmma":  # use mma of sm_120 instead, since no other generation has wgmma
            arch = "sm_120"
            i = parse(f"mma.sync.aligned.m16n8k32.row.col.f32.{i.a.name}.{i.b.name}.f32")
        assert numerics(i, arch) != numerics(made.instruction, made.arch), name_of(made)
        assert (replace(made, instruction=i, arch=arch).run() != made.d).sum() >= 400, name_of(made)


def written(folder: Path, rows: list[dict[str, Any]] | str, **arrays: np.ndarray) -> Path:
    path = folder / "sets.npz"
    np.savez(path, sets=rows if isinstance(rows, str) else json.dumps(rows), **arrays)
    return path


ROW = {"gpu": "one", "arch": "sm_80", "instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}
ROW |= {name: name for name in "abcd"}
ARRAYS = {name: np.full((3, 8), 0x3C00, np.uint16) for name in "ab"} | {"c": np.zeros(3, np.uint32)}
ARRAYS["d"] = np.array([0x41000000, 0x41000000, 0x40000000], np.uint32)
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
BAD: list[tuple[Any, dict[str, np.ndarray], str]] = [
    ("[", ARRAYS, r"the key 'sets' is not JSON$"),
    ("[]", ARRAYS, r"'sets' must be a JSON list of objects$"),
    ([ROW | {"gpu": 3}], ARRAYS, r"set 0 must have a string for the key 'gpu'$"),
    ([ROW | {"a": "x"}], ARRAYS, r"lacks the key 'x'"),
    ([ROW | {"instruction": SPARSE}], ARRAYS, r"do not fit together: a \(3, 8\)"),
    ([ROW | {"instruction": SPARSE}], ARRAYS | {"a": np.zeros((3, 16), np.uint16), "b": np.zeros((3, 32), np.uint16)},
     r"set 0 must have a string for the key 'nibbles'$"),
    ([ROW], ARRAYS | {"a": ARRAYS["a"].astype(np.uint8)}, r"a must be an array of uint16 codes with 2 axes"),
    ([ROW], ARRAYS | {name: np.zeros((3, 17), np.uint16) for name in "ab"}, r"do not fit together: a \(3"),
    ([ROW], ARRAYS | {"c": np.zeros(2, np.uint32)}, r"do not fit together"),
]  # fmt: skip


def test_invalid_archives(tmp_path: Path) -> None:
    for rows, arrays, words in BAD:
        path = written(tmp_path, rows, **arrays)
        with pytest.raises(FileError, match=words) as caught:
            replay(path)
        assert str(path) in str(caught.value)
    with pytest.raises(InstructionError):
        replay(written(tmp_path, [ROW | {"instruction": "mma"}], **ARRAYS))
    with pytest.raises(InstructionError, match="no known architecture"):
        replay(written(tmp_path, [ROW | {"arch": "sm_10"}], **ARRAYS))


def test_waves_are_of_one_register_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(SHIPPED), "--waves", str(tmp_path / "w.vcd")]) == 2
    assert capsys.readouterr().err.endswith(f"does not take dot products: {SHIPPED} holds 46 sets of them\n")
    assert not list(tmp_path.iterdir())
