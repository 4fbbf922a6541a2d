"""Register files of every family are read back as written, and the models reproduce shipped recordings."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.errors import InstructionError
from sptc.isa.evidence import Evidence
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.tensor_memory import accumulator_map, layout_for
from sptc.tests.verify import register_files as samples
from sptc.tests.verify.register_files import DENSE, MX, NVFP4, PAIR, SPARSE, TCGEN05, WGMMA, Random, tensor_memory_file
from sptc.verify import register_file
from sptc.verify.register_file import RegisterFile, manifest, read, shipped, write
from sptc.verify.replay import replay

SHIPPED = list(shipped())
TEXTS = [SPARSE, DENSE, NVFP4, WGMMA, TCGEN05, PAIR, MX, samples.STATIONARY]


def assert_same(one: Any, other: Any, but: tuple[str, ...] = ()) -> None:
    assert type(one) is type(other)
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        same = np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right
        assert same or field.name in but, field.name


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        *((text, {}) for text in TEXTS),
        (SPARSE, {"arch": "sm_80", "metadata": "silicon", "sparsity_selector": 0, "d": None}),
        (TCGEN05, {"arch": "sm_120", "metadata": "silicon", "enable_input_d": False, "scale_input_d": 7, "d": None,
                   "disable_output_lane": (0xFFFFFFFF, 0, 1, 0)}),
    ],
)  # fmt: skip
def test_reads_what_was_written(text: str, settings: dict[str, Any], tmp_path: Path, rng: Random) -> None:
    file = replace(samples.file_of(text, rng), **settings)
    for kind in (Path, str):
        write(kind(tmp_path / "file.npz"), file)
        loaded = read(kind(tmp_path / "file.npz"))
        assert_same(loaded, file)
    assert {name: getattr(loaded, name) for name in settings} == settings
    assert loaded.cases == 3
    if isinstance(file, RegisterFile):
        assert (loaded.e is None) == (text == DENSE)
        assert (loaded.scale_a is None) == (loaded.scale_b is None) == (text != NVFP4)
    elif not settings:
        np.testing.assert_array_equal(loaded.run(), file.d)


def test_targets_come_back_and_need_the_form(tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    f16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    path, dense = tmp_path / "file.npz", "tcgen05.mma.cta_group::1.kind::"
    for text, arch, target, level in (
        (f16, "sm_90", "sm_90a", Evidence.RECORDED),
        (f16, "sm_80", "sm_87", Evidence.MODELLED),
        (f"{dense}f16", "sm_100", "sm_100a", Evidence.SPOT_CHECKED_ELSEWHERE),
        (f"{dense}f16", "sm_100", "sm_103", Evidence.MODELLED),
        (f"{dense}f16", "sm_100", "sm_100f", Evidence.MODELLED),
    ):
        file = samples.file_of(text, rng, 1) if text == f16 else tensor_memory_file(text, rng, 1, d="f32")
        file = replace(file, arch=arch, recorded="a GPU") if text == f16 else file
        for name in (target, arch):
            np.savez(path, **file.contents() | {"arch": name})
            (outcome,) = replay(path, arch=target)
            assert (outcome.arch, outcome.evidence) == (target, level), target
        np.savez(path, **file.contents() | {"arch": target})
        loaded = read(path)
        assert (loaded.arch, loaded.contents()["arch"], loaded.evidence) == (arch, target, level)
        if target == "sm_87":
            monkeypatch.setattr(register_file, "shipped", lambda: [path])
            assert manifest() == "{}\n"
    scaled = tensor_memory_file(f"{dense}mxf4.block_scale.scale_vec::2X", rng, 1)
    for other, target, message in (
        (samples.random_file(NVFP4, rng, 1), "sm_120f", r"^sm_120f does not have mma\.sp"),
        (scaled, "sm_100f", r"^sm_100f does not have '\.scale_vec::2X' .*; use '\.block32'"),
    ):
        np.savez(path, **other.contents())
        with pytest.raises(InstructionError, match=message):
            replay(path, arch=target)
        np.savez(path, **other.contents() | {"arch": target})
        with pytest.raises(InstructionError, match=message):
            read(path)


def test_the_documented_keys_suffice_and_a_dense_instruction_ignores_e(tmp_path: Path, rng: Random) -> None:
    file = samples.random_file(SPARSE, rng)
    np.savez(tmp_path / "file.npz", instruction=SPARSE, selector=1, A=file.a, B=file.b, C=file.c, E=file.e)
    assert_same(read(tmp_path / "file.npz"), replace(file, arch="sm_90", metadata="strict", d=None))
    for text in (TCGEN05, PAIR):
        of_tmem = tensor_memory_file(text, rng)
        images = {"tmem": of_tmem.tmem, "smem": of_tmem.smem}
        if text == PAIR:  # in a file, the first axis is that of the CTAs, the second that of the cases
            images = {name: np.stack([image[:, 0], image[:, 1]]) for name, image in images.items()}
            assert images["tmem"].shape == (2, 3, 128, 512)
        np.savez(tmp_path / "file.npz", instruction=text, idesc=of_tmem.idesc, **of_tmem.addresses, **images)
        assert_same(read(tmp_path / "file.npz"), replace(of_tmem, d=None))
    write(tmp_path / "file.npz", samples.random_file(DENSE, rng))
    np.savez(tmp_path / "with_e.npz", **samples.contents(tmp_path / "file.npz"), E=np.zeros(5))
    assert read(tmp_path / "with_e.npz").e is None


@pytest.mark.parametrize("text", [SPARSE, DENSE, NVFP4, WGMMA, TCGEN05, PAIR])
def test_take(text: str, rng: Random) -> None:
    file = samples.file_of(text, rng, cases=5)
    arrays = ("a", "b", "c", "d", "e", "scale_a", "scale_b", "a_descriptor", "b_descriptor", "tmem", "smem")
    arrays = tuple(name for name in arrays if hasattr(file, name))
    for cases in (slice(1, 4), np.array([4, 0, 0]), slice(0, 0)):
        taken = file.take(cases)
        assert taken.cases == len(np.arange(5)[cases])
        for name in arrays:
            whole, part = getattr(file, name), getattr(taken, name)
            assert (part is None) if whole is None else np.array_equal(part, whole[cases]), (name, cases)
        assert_same(taken, file, but=arrays)
    assert file.cases == 5
    assert replace(file, d=None).take(slice(2)).d is None


def test_d_and_the_rest_of_tensor_memory(rng: Random) -> None:
    for text in (TCGEN05, PAIR, samples.STATIONARY):
        file = tensor_memory_file(text, rng)
        i, ctas = file.instruction, file.opcode.cta_group
        codes, beside = file.matrix(file.tmem), file.beside(file.tmem)
        assert (codes.shape, beside.shape) == ((3, i.m, i.n), (3, ctas, 128, 512)), text
        where = accumulator_map(layout_for(file.opcode, i.m), i.n, i.d.bits, 256)
        parts = codes.reshape(3, ctas, -1, i.n)
        assert not (beside[:, :, where.lanes, where.columns] & np.uint32((1 << i.d.bits) - 1)).any(), text
        beside[:, :, where.lanes, where.columns] += parts
        np.testing.assert_array_equal(beside.reshape(file.tmem.shape), file.tmem, text)


def test_some_shipped_recordings(rng: Random) -> None:
    files: dict[str, list[Path]] = defaultdict(list)
    for path in SHIPPED:
        files[path.name.partition(".selector")[0]].append(path)
    wrong = []
    for paths in files.values():
        path = paths[int(rng.integers(len(paths)))]
        (outcome,) = replay(path, backend="rtl")
        assert outcome.outputs == outcome.tiles * outcome.instruction.m * outcome.instruction.n > 0, path.name
        assert (outcome.path, outcome.arch, outcome.evidence) == (path, "sm_90", Evidence.RECORDED)
        if outcome.mismatches or outcome.first:
            wrong.append(f"{path.name}: {outcome.first}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.regression
def test_shipped_recordings_are_whole() -> None:
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    words: dict[str, set[str]] = defaultdict(set)
    for path in SHIPPED:
        file = read(path)
        found[str(file.instruction)].add((file.sparsity_selector, file.metadata))
        with np.load(path) as archive:
            distribution = str(archive["distribution"]).split(",")
            assert "NVIDIA H200" in str(archive["recorded"])
        assert len(distribution) == file.cases
        words[file.instruction.family] |= set(distribution)
    for instruction in every_instruction("mma"):
        if "sm_90" in instruction.architectures:
            policies = ("strict", "silicon") if instruction.sparse else ("strict",)
            expected = {*itertools.product(range(instruction.sparsity_selectors), policies)}
            assert found[str(instruction)] == expected, str(instruction)
    of_wgmma = {name for name in found if name.startswith("wgmma")}
    assert sum(".sp." in name for name in of_wgmma) == 48
    # For dense wgmma, at least one instruction of every combination of types and saturation was recorded.
    rows = {(i.a, i.b, i.d, i.satfinite) for i in every_instruction("wgmma") if not i.sparse}
    assert {(i.a, i.b, i.d, i.satfinite) for i in [parse(name) for name in of_wgmma if ".sp." not in name]} == rows
    assert words["mma"] >= {"narrow", "mid", "wide", "special", "uniform", "extreme", "anymeta", "ends", "tiny", "huge"}
    assert words["wgmma"] >= {"narrow", "mid", "wide", "special", "uniform", "anymeta"}


def recorded_sets(folder: Path) -> Iterator[tuple[str, RegisterFile]]:
    """Yield the name and the register file of each set in the complete recordings."""
    page = folder / "README.md"
    texts = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)`", page.read_text(encoding="utf-8"), re.MULTILINE))
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as archive:
            # The keys of arrays are SET|SELECTOR|DISTRIBUTION|OPERAND. The page lists the instruction of each SET.
            for key in sorted({key.rsplit("|", 1)[0] for key in archive.files}):
                name, selector, distribution = key.split("|")
                i = parse(texts[name])
                operands = "ABCDE" if i.sparse else "ABCD"
                held: dict[str, Any] = {operand.lower(): archive[f"{key}|{operand}"] for operand in operands}
                held["b_descriptor"] = np.full(len(held["b"]), 128 >> 4 << 16, np.uint64)
                held["metadata"] = "silicon" if distribution == "anymeta" else "strict"
                yield key, RegisterFile(instruction=i, sparsity_selector=int(selector), **held)


@pytest.mark.parametrize("backend", ["golden", "rtl"])
def test_every_recorded_set(request: pytest.FixtureRequest, backend: str) -> None:
    folder: Path | None = request.config.getoption("--recordings")
    if folder is None:
        pytest.skip("the complete recordings are not shipped: pass their folder with --recordings FOLDER")
    sets, outputs = 0, 0
    for key, file in recorded_sets(folder):
        assert np.array_equal(replace(file, d=None).run(backend), file.d), key
        sets, outputs = sets + 1, outputs + file.d.size
    assert sets == 354
    print(f"{outputs} registers of {sets} sets agree")


def test_the_manifest_describes_the_files() -> None:
    path = Path(__file__).parents[2] / "recordings" / "manifest.json"
    assert path.read_text(encoding="utf-8") == manifest(), "run `python -m sptc.verify.register_file` to update it"
