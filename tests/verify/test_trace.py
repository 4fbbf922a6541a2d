"""Every field of the golden model's trace follows from the operands' codes, and the hardware's trace is equal."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sptc
from amaranth.hdl import Cat, Module
from sptc.errors import Error, OperandError
from sptc.golden.matrix import multiply
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.metadata import MUX_OF_ARCHITECTURE
from sptc.isa.names import subject_named
from sptc.isa.numerics import numerics
from sptc.isa.operands import MatrixOperands
from sptc.rtl import metadata
from sptc.rtl.cells import max_exponent, shifter
from sptc.rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from sptc.rtl.round import RoundStage
from sptc.sim.engine.signals import WatchedRow
from sptc.tests.verify.exact_steps import check_trace
from sptc.verify.candidates import draw_candidates
from sptc.verify.first_step import first_possible_step
from sptc.verify.pack_files import file_of
from sptc.verify.register_file import read, shipped
from sptc.verify.stimulus import Given, draw_tiles, drawn_distributions, joined
from sptc.verify.trace import Difference, first_difference, trace_as_text
from sptc.verify.trace_golden import golden_traces
from sptc.verify.trace_hardware import hardware_traces
from sptc.verify.trace_output import trace

#: Instructions of every method of computation, with all granularities, both kinds of multiplexers, and all types of D.
SUBJECTS = {
    "fused": ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90"),
    "spliced": ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_120"),
    "short": ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e5m2", "sm_90"),
    "half": ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    "scaled": ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
               ".f32.e3m2.e4m3.f32.ue8m0", "sm_120"),
    "grouped": ("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
                ".f32.e2m1.e2m1.f32.ue4m3", "sm_120"),
    "integer": ("mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.u8.s32", "sm_120"),
    "pairs": ("mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.s4.s32", "sm_90"),
    "emulated": ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_90"),
}  # fmt: skip
#: The datapath preset `ampere` with few formats, so that Amaranth's simulator is built in a second.
SMALL = replace(PRESETS["ampere"], name="traced", formats=("f16", "s8", "u8"))
WHOLE, HALF = (parse(f"mma.sync.aligned.m16n8k{k}.row.col.f16.f16.f16.f16") for k in (16, 8))


def part(operands: MatrixOperands, tiles: slice, rows: int, columns: int) -> MatrixOperands:
    few = operands.take(tiles, slice(rows))
    scale_b = None if few.scale_b is None else few.scale_b[:, :columns]
    return replace(few, b=few.b[..., :columns], c=few.c[..., :columns], scale_b=scale_b)


def mid(i: Instruction, rng: np.random.Generator) -> Given:
    return draw_tiles(i, ("mid",), "legal", 1, rng)


def tiles_of(i: Instruction, arch: str, rng: np.random.Generator) -> MatrixOperands:
    """Return tiles of every distribution, including directed tiles and tiles with undefined nibbles."""
    return joined([*draw_candidates(replace(i, n=8), numerics(i, arch), rng, 1)]).matrices


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_field_follows_from_codes(name: str, rng: np.random.Generator) -> None:
    text, arch = SUBJECTS[name]
    i = parse(text)
    operands = part(tiles_of(i, arch, rng), slice(None), 4, 2)
    traces, expected = golden_traces(i, arch, operands), multiply(i, arch, operands)
    assert expected.size >= 60
    for place, found in zip(np.ndindex(expected.shape), traces, strict=True):
        assert found.d == expected[place]
        check_trace(found, i, arch, operands, place)


@pytest.fixture
def small_ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "traced", SMALL)
    monkeypatch.setitem(PRESET_OF_ARCHITECTURE, "sm_80", "traced")


def check_hardware(i: Instruction, arch: str, operands: MatrixOperands, row: WatchedRow) -> None:
    for golden, hardware in zip(golden_traces(i, arch, operands), hardware_traces(i, arch, operands, row), strict=True):
        parted = first_difference(golden, hardware)
        assert parted is None, f"{parted}: {parted.one}, {parted.other}"
        assert (golden.model, hardware.model) == ("golden model", "hardware")


def test_the_hardware_has_the_same_fields(small_ampere: None, rng: np.random.Generator) -> None:
    row = WatchedRow(SMALL)
    for name in ("fused", "integer"):
        i = parse(SUBJECTS[name][0])
        every_fifth = slice(int(rng.integers(5)), None, 5)
        check_hardware(i, "sm_80", part(tiles_of(i, "sm_80", rng), every_fifth, 1, 1), row)


@pytest.mark.regression
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_hardware_has_the_same_fields_of_any_form(arch: str, rng: np.random.Generator) -> None:
    forms = {}  # one instruction of every combination of types, granularity and scales
    for i in every_instruction():
        form = (i.a, i.b, i.d, i.container_bits, i.granularity, i.scale_format, i.satfinite, i.rule)
        if arch in i.architectures:
            forms.setdefault(form, str(i))
    assert len(forms) > 10
    row = WatchedRow(PRESETS[PRESET_OF_ARCHITECTURE[arch]])
    for text in rng.permutation([*forms.values()])[:3]:
        i = parse(str(text))
        check_hardware(i, arch, part(tiles_of(i, arch, rng), slice(None), 3, 2), row)


def plant(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "select":
        monkeypatch.setattr(metadata, "_one_hot", lambda index: Cat(index == 3 - place for place in range(4)))
        return
    cell = {"e_max": max_exponent.MaxExponent, "kept": shifter.AlignmentShifter, "d": RoundStage}[where]
    right = cell.elaborate

    def wrong(self: object, platform: object) -> Module:
        m = right(self, platform)  # type: ignore[arg-type]
        port = self.e_max if where == "e_max" else self.output  # type: ignore[attr-defined]
        m.d.comb += port[1].eq(1)
        return m

    monkeypatch.setattr(cell, "elaborate", wrong)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("where", "field"), [("select", "products 0, selected"), ("e_max", "e_max"), ("d", "d"), ("kept", "kept")]
)
def test_the_first_difference_is_at_the_fault(
    where: str, field: str, small_ampere: None, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setitem(PRESETS, "traced", replace(SMALL, formats=("f16",)))
    plant(monkeypatch, where)
    i = parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    operands = part(mid(i, rng).matrices, slice(None), 4, 4)  # with fewer outputs, the fault might change none
    pairs = zip(golden_traces(i, "sm_80", operands), hardware_traces(i, "sm_80", operands), strict=True)
    seen = [(golden, hardware, first_difference(golden, hardware)) for golden, hardware in pairs]
    golden, hardware, parted = next(each for each in seen if each[2] is not None)
    assert str(parted).endswith(field)
    text = trace_as_text("title", golden, hardware)
    assert f"they first differ at {parted}" in text.splitlines()[0]
    assert text.count("<- first difference") == 1


def test_differences_in_order() -> None:
    i = parse("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
    [found] = golden_traces(i, "sm_90", part(mid(i, np.random.default_rng(1)).matrices, slice(None), 1, 1))
    (step,) = found.steps
    assert first_difference(found, found) is None
    other = replace(step, total=1, d=2, terms=(replace(step.terms[0], shift=99), *step.terms[1:]))
    parted = first_difference(found, replace(found, steps=(other,)))
    assert parted == Difference(("steps", 0, "terms", 0, "shift"), step.terms[0].shift, 99)
    assert str(parted) == "steps 0, terms 0, shift"
    assert first_difference(found, replace(found, d=found.d ^ 1)) == Difference(("last", 1), found.d, found.d ^ 1)
    assert first_difference(found, replace(found, steps=())) is not None


def recorded(pattern: str) -> Path:
    return next(path for path in shipped() if re.fullmatch(pattern, path.name))


def test_outputs_of_recordings_and_missing_outputs(rng: np.random.Generator, tmp_path: Path) -> None:
    for pattern in (r"mma\.sp.*", r"wgmma.*f16.*", r"wgmma\.sp.*tf32.*", r"mma\..*s8.*"):
        path = recorded(pattern)
        file = read(path)
        codes = file.matrix(file.d)
        for _ in range(12):
            place = tuple(int(rng.integers(count)) for count in codes.shape)
            traced = trace(path, *place, hardware=False)
            assert (traced.golden.d, traced.difference) == (codes[place], None), (path.name, place)
    path = recorded(r"mma\.m16n8k16\.f16\..*")
    for place in ((99, 0, 0), (0, 16, 0), (0, 0, 8), (-1, 0, 0)):
        with pytest.raises(OperandError, match=r"must be 0 to \d+ in this register file, not"):
            trace(path, *place, hardware=False)
    with pytest.raises(Error, match="does not exist"):
        trace(tmp_path / "none.npz")


def test_outputs_of_tensor_memory(rng: np.random.Generator) -> None:
    for name in (
        "tcgen05.mma.sp.cta_group::2.kind::f16 (m256n32k32.f32.f16.f16)",
        "tcgen05.mma.sp.cta_group::1.kind::i8 (m128n8k64.s32.s8.s8)",
    ):
        subject = subject_named(name)
        i = subject.instruction
        file = file_of(subject, "sm_100", draw_tiles(i, drawn_distributions(i, None), "legal", 2, rng), rng, 0)
        codes = file.matrix(file.run())
        for _ in range(12):
            place = tuple(int(rng.integers(count)) for count in codes.shape)
            assert trace(file, *place, hardware=False).golden.d == codes[place], (name, place)
    disabled = replace(file, disable_output_lane=(0, 1 << 3, 0, 0))
    assert trace(disabled, 0, 34, 5, hardware=False).golden.d == codes[0, 34, 5]
    with pytest.raises(Error, match=r"^column 5 of row 35 is in a lane of tensor memory that disable_output_lane"):
        trace(disabled, 0, 35, 5, hardware=False)


def test_an_object_for_notebooks() -> None:
    traced = trace(recorded(r"mma\.sp-ordered\..*f16\.f16\.f32\.selector0\.npz"), 1, 2, 3, hardware=False)
    text, html = str(traced), traced._repr_html_()
    assert text.splitlines()[2] == traced.title
    assert text.splitlines()[0].startswith(f"D is 0x{traced.golden.d:08x}")
    assert html.count("<tr") == sum(len(s.products) + 2 for s in traced.golden.steps)
    assert traced._repr_svg_().count("<svg") == 1
    assert MUX_OF_ARCHITECTURE[traced.golden.arch] == "mux4"


def output_of(rng: np.random.Generator, special: int | None) -> MatrixOperands:
    """Return the operands of one output; if given, `special` is the index among all 32 elements of an Inf or a NaN."""
    a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape) for shape in ((1, 1, 16), (1, 16, 1)))
    if special is not None:
        (b if special & 16 else a).flat[special & 15] = rng.choice([np.inf, np.nan])
    codes = [array.astype(np.float16).view(np.uint16) for array in (a, b, rng.standard_normal((1, 1, 1)))]
    return MatrixOperands(a=codes[0], b=codes[1], c=codes[2])


@pytest.mark.parametrize("specials", [(None, None), (3, 18, 12)], ids=["finite", "special"])
def test_every_accumulator(specials: tuple[int | None, ...], rng: np.random.Generator) -> None:
    """Step 0 can explain D if and only if step 1, m16n8k8 of sm_80, gives D for at least one of 65,536 accumulators."""
    every = np.arange(1 << 16).astype(np.uint16).reshape(1, 1, -1)
    firsts = set()
    for special in specials:
        operands = output_of(rng, special)
        [golden] = golden_traces(WHOLE, "sm_80", operands)
        behind = MatrixOperands(a=operands.a[..., 8:], b=operands.b[:, 8:].repeat(1 << 16, 2), c=every)
        reached = set(multiply(HALF, "sm_80", behind).ravel().tolist())
        near = [golden.d ^ 1 << bit for bit in range(16)]
        for d in {*near, *rng.integers(0, 1 << 16, 8).tolist(), 0x7C00, 0x7FFF} - {golden.d}:
            assert first_possible_step(golden, operands, d) == (0 if d in reached else 1), hex(d)
            firsts.add(d in reached)
    assert firsts == {True, False}


def test_d_of_a_file_is_compared(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "tile.npz"
    instruction = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    a = np.where(np.arange(32) % 4 < 2, rng.standard_normal((16, 32)), 0).astype(np.float16)
    tile = sptc.pack(instruction, a, rng.standard_normal((32, 8)).astype(np.float16))
    d = sptc.mma(**tile, arch="sm_80")
    sptc.save(path, **tile, D=d, arch="sm_80")
    traced = trace(path, row=3, column=5, hardware=False)
    assert traced.agrees
    assert traced.as_dict()["file"] == {"d": f"0x{traced.golden.d:08x}", "agrees": True, "first_possible_step": None}
    assert str(traced).splitlines()[1] == "the file holds the same D"
    sptc.save(path, **tile, D=d ^ np.uint32(1 << 20), arch="sm_80")
    traced = trace(path, row=3, column=5, hardware=False)
    assert not traced.agrees
    assert traced.file.first_step == 0
    assert str(traced).count("<- the first step that can explain the D of the file") == 1
    assert "; the first difference arose in step 1 of 2 or later" in str(traced)
    assert "; the first difference arose in step 1 of 2 or later" in traced._repr_html_()
    assert replace(traced, file=None).agrees
