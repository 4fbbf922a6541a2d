"""Names of architectures: what is the same, what only computes alike, and what is missing."""

from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.cli import main
from sptc.isa.architectures import TARGETS, require_target, same_numerics
from sptc.isa.instructions import ARCHITECTURES, parse
from sptc.isa.tcgen05 import instructions_of, parse_opcode

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
I8 = "tcgen05.mma.cta_group::1.kind::i8"


def test_names() -> None:
    """As in the target notes of the manual."""
    spelled = "sm_90a:sm_90 sm_100a:sm_100 sm_103a:sm_100 sm_110a:sm_100 sm_120a:sm_120 sm_121a:sm_120"
    for name, arch in (pair.split(":") for pair in spelled.split()):
        assert same_numerics(name) == arch
    assert all(same_numerics(arch) == arch for arch in ARCHITECTURES)
    assert same_numerics("sm_75") == "sm_75"
    with pytest.raises(sptc.InstructionError, match="'sm_75' is no known architecture"):
        require_target(parse(F16), "sm_75")


def test_results_and_labels() -> None:
    a, b, c = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32), np.arange(128, dtype=np.uint32).reshape(32, 4)
    for name in TARGETS:
        np.testing.assert_array_equal(
            sptc.mma(F16, a, b, c, arch=name), sptc.mma(F16, a, b, c, arch=same_numerics(name))
        )
    assert sptc.evidence(F16, "sm_90a") == "recorded"
    assert sptc.evidence(F16, "sm_100a") == "recorded elsewhere"
    assert {sptc.evidence(F16, name) for name in ("sm_103a", "sm_110", "sm_121a")} == {"modelled"}
    assert sptc.evidence(WGMMA, "sm_90a") == sptc.evidence(WGMMA, "sm_90")
    with pytest.raises(sptc.InstructionError, match="sm_100 does not have wgmma"):
        sptc.evidence(WGMMA, "sm_110a")


def test_sm_103_has_no_integers_in_tensor_memory() -> None:
    owners = "sm_100, sm_100a, sm_110, sm_110a have it"
    for text in (I8, I8.replace("mma.", "mma.sp."), I8.replace("mma.", "mma.ws.")):
        i = next(instructions_of(parse_opcode(text)))
        assert {require_target(i, name) for name in ("sm_100a", "sm_110a", "sm_110")} == {"sm_100"}
        for name in ("sm_103", "sm_103a"):
            with pytest.raises(sptc.InstructionError, match=rf"^{name} does not have .*i8.*; {owners}"):
                require_target(i, name)
        assert require_target(next(instructions_of(parse_opcode(text.replace("i8", "f16")))), "sm_103a") == "sm_100"


def test_the_command_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = Path(__file__).parents[2] / "recordings" / "mma.m16n8k16.f32.bf16.bf16.f32.npz"
    assert main(["run", str(shipped), "--limit", "2", "--backend", "golden", "--arch", "sm_90a"]) == 0
    assert " sm_90 " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["run", str(shipped), "--arch", "sm_70"])
    assert "argument --arch: 'sm_70' is no known architecture; expected sm_80, " in capsys.readouterr().err


def test_dense_forms_that_are_not_modelled() -> None:
    for text in (
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
        "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32",
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc",
    ):
        with pytest.raises(sptc.InstructionError, match=r"is not modelled; of mma and wgmma, every form with \.f64, "):
            parse(text)
