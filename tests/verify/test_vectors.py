"""The operands in files of test vectors give the results in these files, at every level, in every file format."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from numpy.typing import NDArray
from sptc.errors import Error
from sptc.golden.matrix import multiply
from sptc.isa.instructions import Instruction, parse
from sptc.isa.numerics import numerics
from sptc.rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, CoreConfig
from sptc.rtl.metadata import MetadataStage
from sptc.rtl.step import row_result_layout, row_step_layout, unit_step_layout
from sptc.sim.engine.engine import engine
from sptc.tests.verify import register_files as samples
from sptc.verify import vector_levels
from sptc.verify.register_file import RegisterFile, read
from sptc.verify.stimulus import NIBBLES, draw_tiles, drawn_distributions
from sptc.verify.vector_levels import BACKENDS, VectorRequest, file_vectors, tables_of
from sptc.verify.vector_steps import datapath_numerics, numerics_text, step_vectors
from sptc.verify.vectors import MANIFEST, content_digest, hex_lines, write_vectors

SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
PLAIN = "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
DENSE = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
SCALED += ".f32.e2m1.e2m1.f32.ue4m3"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
TCGEN05 = "tcgen05.mma.sp.cta_group::2.kind::f16 (m256n32k32.f32.f16.f16)"
FAMILIES = [(SPARSE, "sm_90"), (PLAIN, "sm_80"), (DENSE, "sm_90"), (SCALED, "sm_120"), (WGMMA, "sm_90"),
            (TCGEN05, "sm_100")]  # fmt: skip
TINY = PRESETS["tiny"]
PAIR = "tcgen05.mma.sp.cta_group::2.kind::mxf4.block_scale (m256n64k128.f32.e2m1.e2m1.ue8m0)"


def request(text: str = SPARSE, arch: str = "sm_90", **others: Any) -> VectorRequest:
    return VectorRequest(**{"instruction": text, "arch": arch, "tiles": 3, "seed": 5, "format": "hex", **others})


def read_hex(path: Path, table: dict[str, Any]) -> NDArray[np.uint32]:
    """Return the words of a $readmemh file, shape (vectors, words), read without the package's own code."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("//")]
    assert len(lines) == table["count"] == np.prod(table["shape"])
    assert {len(line) for line in lines} == {-(-table["bits"] // 4)}
    words = -(-table["bits"] // 32)
    octets = b"".join(int(line, 16).to_bytes(4 * words, "little") for line in lines)
    return np.frombuffer(octets, "<u4").reshape(-1, words)


def tables_in(folder: Path) -> dict[str, NDArray[np.uint32]]:
    manifest = json.loads((folder / MANIFEST).read_text())
    return {table["name"]: read_hex(folder / f"{table['name']}.hex", table) for table in manifest["tables"]}


def require_manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    assert manifest["sha256"] == content_digest(manifest)
    assert {MANIFEST, *manifest["files"]} == {path.name for path in folder.iterdir()}
    for name, said in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert said == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return manifest


@pytest.mark.parametrize(("text", "arch"), FAMILIES)
def test_registers_give_the_written_results(
    text: str, arch: str, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_levels, "_AT_ONCE", 1)
    for nibbles in NIBBLES:
        folder, seed = tmp_path / nibbles, int(rng.integers(1 << 30))
        for name in ("npz", "hex"):
            write_vectors(request(text, arch, seed=seed, nibbles=nibbles, format=name), folder / name)
            manifest = require_manifest(folder / name)
            assert (manifest["instruction"], manifest["arch"], manifest["seed"]) == (text, arch, seed)
        file = read(folder / "npz" / "vectors.npz")
        assert (file.name.startswith(text.split()[0]), file.arch, file.cases) == (True, arch, 3)
        assert file.contents()["metadata"] == NIBBLES[nibbles]
        assert (file.run() == file.d).all()
        if isinstance(file, RegisterFile) and file.instruction.family == "wgmma":
            assert len(set(file.b_descriptor.tolist())) == 1
        result = tables_in(folder / "hex")
        arrays = tables_of(file)  # type: ignore[arg-type]
        assert result.keys() == arrays.keys()
        for name, (array, axes, _) in arrays.items():
            assert (result[name].ravel() == array.ravel()).all(), name
            (table,) = (table for table in manifest["tables"] if table["name"] == name)
            assert (tuple(table["shape"]), tuple(table["axes"])) == (array.shape, axes)
            assert table["expected"] == (name == "D")


def test_tables_follow_the_addresses_and_descriptors_of_a_file(rng: np.random.Generator) -> None:
    for text in (samples.TCGEN05, samples.PAIR, f"{samples.TCGEN05}.ashift"):
        file = samples.tensor_memory_file(text, rng)
        tables = {name: array for name, (array, _, _) in tables_of(file).items()}
        expected = {"C": file.tmem[..., 256:272], "D": file.d[..., 256:272]}
        if file.opcode.shifts_a:
            expected |= {"A": file.tmem[..., 64:72], "shifted_A": file.d[..., 64:72]}
        assert tables.keys() == {*expected, "smem", "E"}, text
        for name, array in expected.items():
            np.testing.assert_array_equal(tables[name], array, f"{text}, {name}")
    for size in range(5, 9):
        words, _, _ = tables_of(replace(file, smem=file.smem[:, :size]))["smem"]
        np.testing.assert_array_equal(words.view(np.uint8)[:, :size], file.smem[:, :size])
        assert words.shape == (3, 2)
    wgmma = samples.random_file(samples.WGMMA, rng)
    assert wgmma.b_descriptor is not None
    same = replace(wgmma, b_descriptor=wgmma.b_descriptor[:1].repeat(3))
    assert "b_descriptor" not in tables_of(same)
    assert vector_levels._immediates(same)["b_descriptor"] == wgmma.b_descriptor[0]
    assert "b_descriptor" not in vector_levels._immediates(wgmma)
    np.testing.assert_array_equal(tables_of(wgmma)["b_descriptor"][0].view("<u8")[:, 0], wgmma.b_descriptor)


def test_a_computed_d_is_no_recording(rng: np.random.Generator) -> None:
    file = replace(samples.random_file(SPARSE, rng), recorded="NVIDIA H200")
    vectors = file_vectors(file, "golden")
    assert vectors.file is not None
    written = vectors.file(0)
    assert "recorded" not in {**vectors.immediates, **written.contents()}
    np.testing.assert_array_equal(written.d, file.run())


@pytest.mark.parametrize("text", [SPARSE, PLAIN, "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"])
def test_nibbles_are_those_requested(text: str, rng: np.random.Generator) -> None:
    i = parse(text)
    legal = {*i.rule.legal}
    for nibbles, expected in (("legal", legal), ("software", legal | {0}), ("all", {*range(16)})):
        matrices = draw_tiles(i, drawn_distributions(i, None), nibbles, 20, rng).matrices
        assert set(matrices.nibbles.ravel().tolist()) == expected
        if nibbles == "software":
            empty = (matrices.nibbles == 0).repeat(i.granularity.stored, axis=-1)
            sign = 0 if i.a.is_integer else 1
            magnitude = matrices.a >> i.low_bit(i.a) & (1 << i.a.bits - sign) - 1
            assert not magnitude[empty].any()
            assert magnitude[~empty].any()


def test_distributions_alternate() -> None:
    i = parse(PLAIN)
    rng = np.random.default_rng(1)
    names = drawn_distributions(i, None)
    blocks = [draw_tiles(i, names, "legal", tiles, rng, first) for first, tiles in ((0, 4), (4, 4), (8, 1))]
    assert [block.cases for block in blocks] == [4, 4, 1]
    extreme = {0, 0x7F, 0x80, 0xFF, 1}
    for block in blocks:
        for number, a in enumerate(block.matrices.a):
            assert (set(a.ravel().tolist()) <= extreme) == (number % 2 == 1)  # blocks begin with even tiles


def agrees(
    config: CoreConfig, i: Instruction, arch: str, tiles: int, rng: np.random.Generator, simulator: Any, most: int = 0
) -> bool:
    """Return True if a simulated row computes the expected results of random steps, including undefined nibbles."""
    given = draw_tiles(i, drawn_distributions(i, None), "all", tiles, rng)
    taken, expected = step_vectors(config, i, datapath_numerics(config, i, arch), given.matrices, "row")
    if most:
        chosen = rng.permutation(len(taken))[:most]
        taken, expected = taken[chosen], expected[chosen]
    mask = np.uint64((1 << row_result_layout(config).size) - 1)
    words = expected[:, 0].astype(np.uint64) | expected[:, 1].astype(np.uint64) << np.uint64(32)
    return not ((engine(config, simulator).push(taken) ^ words) & mask).any()


STEPS = {
    "sm_80": [SPARSE, PLAIN, DENSE, "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
              "mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.u4.s32"],
    "sm_90": [SPARSE, PLAIN, DENSE, WGMMA, "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e5m2"],
    "sm_120": [SPARSE, PLAIN, SCALED, "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4."
               "block_scale.scale_vec::1X.f32.e3m2.e2m1.f32.ue8m0"],
}  # fmt: skip


@pytest.mark.parametrize(
    "arch", ["sm_90", *(pytest.param(name, marks=pytest.mark.regression) for name in ("sm_80", "sm_120"))]
)
def test_steps_equal_those_of_the_hardware(arch: str, rng: np.random.Generator) -> None:
    """Results, flags and overflow bits of steps, which only the golden model computes, equal those of the hardware."""
    config = PRESETS[PRESET_OF_ARCHITECTURE[arch]]
    for text in STEPS[arch]:
        i = parse(text)
        assert datapath_numerics(config, i, arch) == numerics(i, arch)
        assert agrees(config, i, arch, 10 if i.family == "mma" else 2, rng, "verilator"), text


def test_the_text_about_numerics_names_what_differs() -> None:
    blackwell = PRESETS["rtx-blackwell"]
    assert numerics_text(blackwell, parse(SCALED), "sm_120").startswith("numerics of sm_120 (")
    text = numerics_text(replace(blackwell, name="own", group=4), parse(SCALED), "sm_120")
    assert re.search(r"the datapath own \(.*, group = 4\), not those of sm_120 \(.*, group = 16\)$", text)


@pytest.mark.regression
def test_steps_of_a_custom_datapath(rng: np.random.Generator) -> None:
    own = {"formats": ("f16",), "alignment_bits": 22, "fp8_alignment_bits": 22, "step_bytes": 32, "mux": "mux3"}
    config = replace(TINY, cuts=(), **own)
    i = parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    assert agrees(config, i, "sm_90", 1, rng, "amaranth", most=40)


@pytest.mark.parametrize("preset", ["ampere", "hopper", "blackwell", "tiny"])
def test_a_unit_takes_decoded_steps(preset: str, rng: np.random.Generator) -> None:
    """Input vectors of a unit equal those of a row after metadata decoding, also with 3:1 multiplexers."""
    config = PRESETS[preset]
    arch = {"ampere": "sm_80", "tiny": "sm_80", "hopper": "sm_90", "blackwell": "sm_120"}[preset]
    stage = MetadataStage(config)
    row, unit = row_step_layout(config), unit_step_layout(config)
    pairs = []
    for text in ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", SPARSE, PLAIN, DENSE):
        i = parse(text)
        given = draw_tiles(i, drawn_distributions(i, None), "all", 1, rng)
        parameters = datapath_numerics(config, i, arch)
        steps = [step_vectors(config, i, parameters, given.matrices, top)[0] for top in ("row", "unit")]
        chosen = rng.integers(len(steps[0]), size=40)
        pairs += [tuple(int.from_bytes(step[place].tobytes(), "little") for step in steps) for place in chosen]

    async def bench(context: Any) -> None:
        for taken, decoded in pairs:
            view = row.from_bits(taken)
            context.set(stage.a, view.a)
            context.set(stage.nibbles, view.metadata)
            context.set(stage.wide, config.elements[view.control.a].wide)
            context.set(stage.rule, view.control.rule)
            await context.delay(1e-9)
            expected = unit.from_bits(decoded)
            assert context.get(stage.stored) == expected.a
            assert context.get(stage.selects.as_value()) == expected.selects.as_value().value
            for name in ("b", "c", "scale_a", "scale_b", "overflow"):
                assert view[name] == expected[name]
            assert view.control.as_value().value == expected.control.as_value().value

    simulator = Simulator(stage)
    simulator.add_testbench(bench)
    simulator.run()


def test_steps_of_an_output_are_chained(tmp_path: Path) -> None:
    write_vectors(request(arch="sm_80", level="row", config=TINY, tiles=2), tmp_path)
    manifest = require_manifest(tmp_path)
    assert manifest["tables"][0]["shape"] == [2, 16, 8, 2]
    assert manifest["configuration"]["name"] == "tiny"
    actual = tables_in(tmp_path)
    layout = row_step_layout(TINY)
    step, result = (actual[name].reshape(2, 16, 8, 2, -1) for name in ("step", "result"))
    c = step[..., layout["c"].offset // 32]
    assert (c[..., 1] == result[..., 0, 0]).all()
    given, _ = request(arch="sm_80", level="row", config=TINY, tiles=2).block(0)
    assert (c[..., 0] == given.matrices.c).all()
    assert (result[..., 1, 0] == multiply(parse(SPARSE), "sm_80", given.matrices)).all()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("top", [False, True], ids=["registers", "top"])
def test_every_format_holds_the_same_words(top: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    level = str(rng.choice(["warp", "row", "unit"])) if top else "registers"
    others = {"arch": "sm_80", "level": level, "config": TINY if top else None, "tiles": 2}
    for name in ("hex", "json", "npz", "svh"):
        write_vectors(request(format=name, **others), tmp_path / name)
        require_manifest(tmp_path / name)
    as_json = json.loads((tmp_path / "json" / "vectors.json").read_text())
    text = (tmp_path / "svh" / "vectors.svh").read_text()
    archive = np.load(tmp_path / "npz" / "vectors.npz")
    for name, words in tables_in(tmp_path / "hex").items():
        (table,) = (table for table in as_json["tables"] if table["name"] == name)
        numbers = [int.from_bytes(vector.tobytes(), "little") for vector in words]
        assert [int(word, 16) for word in as_json["words"][name]] == numbers
        assert (archive[name].reshape(words.shape) == words).all()
        pattern = rf"localparam logic \[{table['bits'] - 1}:0\] {name.upper()} \[{len(words)}\] = '{{(.*?)}};"
        match = re.search(pattern, text, re.DOTALL)
        assert [int(word, 16) for word in re.findall(rf"{table['bits']}'h(\w+)", match[1])] == numbers


def test_the_same_request_gives_the_same_bytes(tmp_path: Path) -> None:
    def written(name: str, **others: Any) -> dict[str, bytes]:
        write_vectors(request(**others), tmp_path / name)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    for level, config in (("registers", None), ("unit", TINY)):
        first = written(f"first {level}", arch="sm_80", level=level, config=config)
        assert written(f"second {level}", arch="sm_80", level=level, config=config) == first
        other = written(f"third {level}", arch="sm_80", level=level, config=config, seed=6)
        assert all(other[name] != data for name, data in first.items())


@pytest.mark.parametrize(("text", "arch"), [(SPARSE, "sm_80"), (WGMMA, "sm_90"), (PAIR, "sm_100")])
def test_the_library_gives_the_same_bytes(text: str, arch: str, tmp_path: Path) -> None:
    for backend in BACKENDS:
        write_vectors(request(text=text, arch=arch, tiles=40, format="hex", backend=backend), tmp_path / backend)
    one, other = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in BACKENDS)
    manifests = [json.loads(files.pop(MANIFEST)) for files in (one, other)]
    assert one == other
    assert [manifest["computed_by"] for manifest in manifests] == [*BACKENDS]
    assert "D.hex" in one


def test_lines_of_any_width(rng: np.random.Generator) -> None:
    for bits in (1, 4, 12, 16, 31, 32, 33, 63, 562):
        words = rng.integers(0, 1 << 32, (5, -(-bits // 32)), np.uint32)
        words[:, -1] &= (1 << (bits - 1) % 32 + 1) - 1
        numbers = [int.from_bytes(vector.tobytes(), "little") for vector in words]
        assert bytes(hex_lines(words, bits)).decode() == "".join(f"{n:0{-(-bits // 4)}x}\n" for n in numbers), bits


def test_bad_requests_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    for others, message in (
        ({"tiles": 0}, "tiles must be 1 or more"),
        ({"format": "csv"}, "format must be 'npz'"),
        ({"distribution": "uniform"}, "distribution must be one of narrow, mid"),
        ({"level": "warp"}, "level 'warp' need a datapath"),
        ({"config": TINY}, "level 'registers' need no datapath"),
        ({"bench": True}, "a testbench needs level 'warp', 'row' or 'unit'"),
        ({"backend": "rtl"}, "backend must be 'golden' or 'native'"),
        ({"level": "unit", "config": TINY, "backend": "native"}, "the golden model, not 'native', computes results"),
        ({"text": WGMMA, "level": "warp", "config": PRESETS["hopper"]}, "level 'warp' supports only mma"),
        ({"text": TCGEN05, "arch": "sm_100", "level": "unit", "config": TINY, "distribution": "?"}, "distribution"),
        ({"text": "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "level": "unit",
          "config": PRESETS["hopper"]}, "with other instructions"),
        ({"text": "mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "level": "unit", "config": TINY},
         "does not support the formats"),
        ({"level": "unit", "config": replace(TINY, alignment_bits=30)}, "supports at most 26 alignment bits"),
        ({"level": "unit", "config": replace(TINY, step_bytes=24)}, "16 or 32 bytes of stored A per cycle, not 24"),
    ):  # fmt: skip
        with pytest.raises(Error) as caught:
            write_vectors(request(**others), tmp_path / "new")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "new").exists()
    with pytest.raises(Error, match="format hex has no limit"):
        write_vectors(request(tiles=200_000, format="svh"), tmp_path / "new")


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_vectors(request(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    computed = []

    def run(file: RegisterFile, backend: str = "golden") -> NDArray[np.uint32]:
        computed.append(file.cases)
        if len(computed) > 1:
            raise KeyboardInterrupt
        return file.c

    monkeypatch.setattr(RegisterFile, "run", run)
    monkeypatch.setattr(vector_levels, "_AT_ONCE", 1)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(request(seed=6), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
