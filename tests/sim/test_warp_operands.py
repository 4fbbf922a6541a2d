"""The words of a warp's instruction, read back by the layout of the hardware."""

import numpy as np
import pytest
from sptc.isa.instructions import parse
from sptc.isa.operands import HeldOperands, Immediates
from sptc.rtl.config import PRESETS
from sptc.rtl.warp import ScaleSizeCode, warp_operands_layout
from sptc.sim.engine.steps import control_word
from sptc.sim.engine.warp_operands import warp_words

SHORT = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
LONG = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
SCALED += ".f32.e2m1.e2m1.f32.ue4m3"
#: Registers of A, B and C, and what there is beside them.
CASES = {SHORT: ((2, 1, 2), ()), LONG: ((4, 4, 4), ("e",)), SCALED: ((4, 4, 4), ("e", "scale_a", "scale_b"))}


@pytest.mark.parametrize("text", CASES)
def test_every_field(text: str, rng: np.random.Generator) -> None:
    i, config, (registers, others) = parse(text), PRESETS["rtx-blackwell"], CASES[text]
    arrays = {
        name: rng.integers(0, 1 << 32, (3, 32, count), np.uint32) for name, count in zip("abc", registers, strict=True)
    }
    arrays |= {name: rng.integers(0, 1 << 32, (3, 32), np.uint32) for name in others}
    ids = (0, 1, 0, 3) if i.scale_size else (0, 0, 0, 0)
    immediates = Immediates(sparsity_selector=i.sparsity_selectors - 1, scale_ids=ids)
    words = warp_words(config, i, HeldOperands(arrays, immediates))
    for case, of_case in enumerate(words):
        view = warp_operands_layout().from_bits(int.from_bytes(of_case.tobytes(), "little"))
        for name in ("a", "b", "c"):
            found = np.array([[view[name][lane][register] for register in range(4)] for lane in range(32)])
            count = arrays[name].shape[2]
            np.testing.assert_array_equal(found[:, :count], arrays[name][case], err_msg=name)
            assert not found[:, count:].any()
        for name in ("e", "scale_a", "scale_b"):
            found = np.array([view[name][lane] for lane in range(32)])
            np.testing.assert_array_equal(found, arrays[name][case] if name in arrays else 0 * found, err_msg=name)
        assert view["control"].as_bits() == control_word(config, i, last=True)
        assert view["long"] == (registers[0] == 4)
        assert view["sparsity_selector"] == i.sparsity_selectors - 1
        assert view["scale_size"] == ScaleSizeCode[f"X{i.scale_size or 1}"]
        assert tuple(view[name] for name in ("byte_a", "thread_a", "byte_b", "thread_b")) == ids


def test_some_cases(rng: np.random.Generator) -> None:
    i = parse(SHORT)
    arrays = {name: rng.integers(0, 1 << 32, (3, 32, n), np.uint32) for name, n in zip("abc", (2, 1, 2), strict=True)}
    words = warp_words(PRESETS["hopper"], i, HeldOperands(arrays))
    np.testing.assert_array_equal(warp_words(PRESETS["hopper"], i, HeldOperands(arrays), slice(1, 2)), words[1:2])
