"""Evidence labels agree with the recordings that support them. Names of architectures and targets are checked."""

import gzip
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc import InstructionError
from sptc.isa import evidence as module
from sptc.isa.architectures import TARGETS, require_target, same_numerics
from sptc.isa.evidence import Evidence, Form, Source, evidence, form_of, forms_of, sources, weakest
from sptc.isa.instructions import ARCHITECTURES, VARIANTS, every_instruction, instructions_of, parse
from sptc.isa.tcgen05 import every_opcode, parse_opcode
from sptc.isa.tcgen05 import instructions_of as instructions_of_opcode
from sptc.show.instructions import ARCHITECTURE_COLUMNS, markdown_table

RECORDINGS = Path(__file__).parents[2] / "recordings"
#: Folders of recordings that do not support the numerics of any instruction.
OF_NO_FORM = ("addresses/", "kernels/", "libraries/", "matrix_moves/")
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n{}k32.f32.f16.f16"
EVERY = [(i, arch) for i in every_instruction() for arch in i.architectures]
WORDS = "elsewhere/words.npz"
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
OF_HOPPER = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
I8 = "tcgen05.mma.cta_group::1.kind::i8"
F8F6F4 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32"
SPARSE_4_BITS = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::{}.block_scale.scale_vec::4X"
SPARSE_MXF4 = "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale"


@cache
def shown_by(file: str) -> frozenset[Form]:
    """Read a file independently of the package, and return the instruction forms for which it is evidence."""
    path = RECORDINGS / file
    if path.suffix == ".gz":
        record = json.loads(gzip.decompress(path.read_bytes()))
        assert {"gpu", "cuda", "driver", "date", "seed", "tiles", "sptc"} <= set(record)
        return frozenset(
            Form(text, record["arch"], place)
            for text, places in record["instructions"].items()
            for place, counts in places.items()
            if counts["tiles"] > 0 and counts["outputs"] > 0 and counts["mismatches"] == 0
        )
    with np.load(path) as archive:
        if "sets" in archive:
            rows = [row for row in json.loads(str(archive["sets"])) if "too_weak" not in row]
            return frozenset(Form(re.sub(r"\(m128n8", "(", row["instruction"]), row["arch"]) for row in rows)
        assert "D" in archive
        assert "NVIDIA H200" in str(archive["recorded"])
        place = "shared" if "a_descriptor" in archive else "registers"
        return frozenset({Form(str(archive["instruction"]), str(archive["arch"]), place)})


def test_every_label_has_its_file_and_every_file_its_label() -> None:
    labelled, named = 0, {WORDS}
    for i, arch in EVERY:
        for form in forms_of(i, arch):
            level = evidence(i, arch, form.a_from)
            result = sources(form)
            assert (level is Evidence.MODELLED) == (not result)
            levels = [source.level for source in result]
            assert levels == sorted(levels, key=list(Evidence).index)
            named |= {source.file for source in result}
            for source in result:
                assert form in shown_by(source.file), (form, source)
                labelled += 1
        assert evidence(i, arch) is weakest(evidence(i, arch, form.a_from) for form in forms_of(i, arch))
    assert labelled > 2500
    files = {path.relative_to(RECORDINGS).as_posix() for path in RECORDINGS.rglob("*.*z")}
    assert named == {file for file in files if not file.startswith(OF_NO_FORM)}


def test_the_table_counts_what_each_form_has() -> None:
    for level in Evidence:
        assert re.fullmatch(r"[a-z][^.]*", level.meaning)
        assert f"{level.value.capitalize()}: {level.meaning}." in markdown_table()
    rows = [line for line in markdown_table().splitlines()[2:] if line.startswith("| `")]
    for row, line in zip(VARIANTS, rows, strict=False):
        for arch, cell in zip(ARCHITECTURE_COLUMNS, line.strip("| ").split(" | ")[4:], strict=True):
            counts = Counter(evidence(i, arch).value for i in instructions_of(row) if arch in i.architectures)
            words = [level.value for level in Evidence if counts[level.value]]
            counted = ", ".join(f"{word} {counts[word]}" for word in words)
            assert cell == (counted if len(words) > 1 else words[0] if words else "-"), (line, arch)
    assert len(rows) > len(VARIANTS)
    assert re.findall(r"spot-checked elsewhere (\d+)", "\n".join(rows)) == ["1", "1", "1", "5", "8", "1", "1", "3"]
    assert all(evidence(next(instructions_of_opcode(o)), "sm_100") is Evidence.MODELLED for o in every_opcode())


def test_recorded_words_are_evidence_for_few_forms() -> None:
    """Recorded result words of a B200 are evidence only for their opcode and types, with any M and N."""
    with np.load(RECORDINGS / WORDS) as archive:
        sets = json.loads(str(archive["sets"]))
    labelled = {
        (form, f"{opcode} ({i.shape_and_types})")
        for opcode in every_opcode()
        for i in instructions_of_opcode(opcode)
        if evidence(i, "sm_100", opcode=opcode) is Evidence.SPOT_CHECKED_ELSEWHERE
        for form in forms_of(i, "sm_100", opcode)
    }
    assert {form for form, _ in labelled} == shown_by(WORDS)
    assert len(shown_by(WORDS)) == len(sets) - 10 == 21
    assert [sum(len(row["words"]) for row in sets if ("too_weak" in row) == weak) for weak in (False, True)] == [63, 11]
    assert all(".cta_group::1." in name and ".sp" not in name and ".ws" not in name for _, name in labelled)
    assert all(sources(form) == (Source(Evidence.SPOT_CHECKED_ELSEWHERE, WORDS),) for form, _ in labelled)
    for text, level in (
        ("tcgen05.mma.cta_group::1.kind::tf32", "spot-checked elsewhere"),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32.collector::a::fill", "spot-checked elsewhere"),
        ("tcgen05.mma.cta_group::2.kind::tf32", "modelled"),
        ("tcgen05.mma.cta_group::1.kind::f16", "modelled"),  # no recorded results in f16
        ("tcgen05.mma.cta_group::1.kind::f16 (m64n256k16.f32.bf16.bf16)", "spot-checked elsewhere"),
        ("tcgen05.mma.cta_group::1.kind::f16 (m64nNk16.f32.bf16.bf16)", "spot-checked elsewhere"),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f16 (m128nNk32.f32.bf16.bf16)", "modelled"),
        ("tcgen05.mma.cta_group::1.kind::f8f6f4 (m128n8k32.f16.e2m1.e4m3)", "modelled"),  # recorded NaNs do not count
    ):
        assert sptc.evidence(text, "sm_100") == level, text
        assert sptc.evidence(text, "sm_110") == "modelled"


def test_evidence_depends_on_the_location_of_a() -> None:
    """Labels cover A in registers and A in shared memory: N = 64 was recorded, N = 176 was compared in a campaign."""
    recorded, measured = (parse(WGMMA.format(n)) for n in (64, 176))
    places = ("registers", "shared")
    assert {evidence(recorded, "sm_90", place) for place in places} == {Evidence.RECORDED}
    assert evidence(measured, "sm_90") is evidence(measured, "sm_90", "shared") is Evidence.MEASURED
    assert [sptc.evidence(WGMMA.format(64), "sm_90", a_from=a_from) for a_from in places] == ["recorded"] * 2
    with pytest.raises(InstructionError, match=r"A of .* is in registers or shared, not in 'memory'"):
        evidence(measured, "sm_90", "memory")
    with pytest.raises(InstructionError, match=r"A of mma\..* is in registers, not in 'shared'"):
        evidence(parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "sm_90", "shared")


def test_a_mismatch_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    i, other = (parse(WGMMA.format(n)) for n in (176, 184))
    counts = {"tiles": 64, "outputs": 100, "mismatches": 0}
    record = {"arch": "sm_90", "instructions": {str(i): {"registers": counts, "shared": counts | {"mismatches": 1}}}}
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "here.json.gz").write_bytes(gzip.compress(json.dumps(record).encode()))
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    (found,) = module._measured()
    assert found == (form_of(i, "sm_90", "registers"), Source(Evidence.MEASURED, "campaigns/here.json.gz"))
    assert found[0] not in (form_of(i, "sm_90", "shared"), form_of(other, "sm_90", "registers"))


def test_names_with_their_results_and_labels() -> None:
    spelled = "87:80 88:86 90a:90 100a:100 103a:100 110a:100 101a:100 120a:120 121a:120 100f:100 103f:100 110f:100"
    for pair in f"{spelled} 120f:120 121f:120".split():
        name, arch = (f"sm_{number}" for number in pair.split(":"))
        assert same_numerics(name) == arch
    assert all(same_numerics(arch) == arch for arch in ARCHITECTURES)
    assert same_numerics("sm_75") == "sm_75"
    for name, words in (
        ("sm_75", "GPUs older than sm_80 have no sparse tensor cores"),
        ("sm_90b", r"did you mean sm_90a?\?"),
        ("SM90A", r"did you mean sm_90a\?"),
        ("compute_120f", r"did you mean sm_120f\?"),
        *((name, "expected sm_80, ") for name in ("H200", "sm_33")),
    ):
        with pytest.raises(InstructionError, match=f"^'{name}' is no known architecture; {words}"):
            require_target(parse(F16), name)
    a, b, c = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32), np.arange(128, dtype=np.uint32).reshape(32, 4)
    for name in TARGETS:
        expected = sptc.mma(F16, a, b, c, arch=same_numerics(name))
        np.testing.assert_array_equal(sptc.mma(F16, a, b, c, arch=name), expected)
    assert sptc.evidence(F16, "sm_90a") == "recorded"
    assert sptc.evidence(F16, "sm_100a") == "recorded elsewhere"
    assert {sptc.evidence(F16, name) for name in ("sm_103a", "sm_110", "sm_121a", "sm_100f", "sm_87")} == {"modelled"}
    assert sptc.evidence(OF_HOPPER, "sm_90a") == sptc.evidence(OF_HOPPER, "sm_90")
    with pytest.raises(InstructionError, match="sm_110a does not have wgmma"):
        sptc.evidence(OF_HOPPER, "sm_110a")


def test_what_targets_and_families_lack() -> None:
    owners = "sm_100, sm_100a, sm_110, sm_110a, sm_101, sm_101a have it"
    for text in (I8, I8.replace("mma.", "mma.sp."), I8.replace("mma.", "mma.ws.")):
        i = next(instructions_of_opcode(parse_opcode(text)))
        assert {require_target(i, name) for name in ("sm_100a", "sm_110a", "sm_110")} == {"sm_100"}
        for name in ("sm_103", "sm_103a", "sm_100f", "sm_110f"):
            with pytest.raises(InstructionError, match=rf"^{name} does not have .*i8.*; {owners}"):
                require_target(i, name)
        of_floats = next(instructions_of_opcode(parse_opcode(text.replace("i8", "f16"))))
        assert require_target(of_floats, "sm_103a") == "sm_100"
    # The assembler of CUDA 13.5 rejects the same targets. `test_assembler` compares all instructions with CUDA 13.0.
    i = parse(f"{SPARSE_4_BITS.format('mxf4nvf4')}.f32.e2m1.e2m1.f32.ue4m3")
    assert {require_target(i, name) for name in ("sm_120", "sm_120a", "sm_121a")} == {"sm_120"}
    for name in ("sm_120f", "sm_121f"):
        with pytest.raises(InstructionError, match=rf"^{name} does not have .*; sm_120, sm_120a, sm_121, sm_121a have"):
            require_target(i, name)
        assert require_target(parse(F8F6F4), name) == "sm_120"
    sparse, dense = (parse_opcode(text) for text in (SPARSE_MXF4, SPARSE_MXF4.replace(".sp", "")))
    with pytest.raises(InstructionError, match=r"^sm_103f does not have"):
        require_target(next(instructions_of_opcode(sparse)), "sm_103f", sparse)
    assert require_target(next(instructions_of_opcode(dense)), "sm_103f", dense) == "sm_100"
    spelled = parse_opcode(f"{dense}.scale_vec::2X")
    with pytest.raises(InstructionError, match=r"^sm_100f does not have '.scale_vec::2X' .*; use '.block32'"):
        require_target(next(instructions_of_opcode(spelled)), "sm_100f", spelled)
