"""Back ends that simulate top-level modules have the golden model's results, and reject other instructions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.api import tops
from sptc.api.backends import backend
from sptc.api.recorder import Recorder
from sptc.api.tiles import multiply_held
from sptc.golden.matrix import multiply
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.operands import HeldOperands, Product, StepFlags
from sptc.operands.registers import gather_warp
from sptc.rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from sptc.sim.benches.items import warp_instructions
from sptc.sim.benches.random_operands import distributions, random_operands
from sptc.sim.engine.compiled_tcgen05 import CtaCommand, CtaRun
from sptc.sim.engine.tops import tops_of
from sptc.tests.api.tcgen05_case import DENSE, F16, F16_2, NVF4, WS, Case, Random, case
from sptc.tests.sim.matrices import matrices
from sptc.verify.register_file import RegisterFile
from sptc.verify.replay import flags_and_rules
from sptc.verify.stimulus import random_register_file
from sptc.verify.timing import modelled

SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
FP8 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32"
SHORT = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
SCALED += ".f32.e2m1.e2m1.f32.ue4m3"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"
ON_A_ROW = r"use back end 'rtl', a single dot-product unit: no top-level module executes the instruction$"


def file_of(i: Instruction, arch: str, cases: int, rng: Random) -> RegisterFile:
    kind, selector = str(rng.choice(distributions(i))), int(rng.integers(i.sparsity_selectors))
    return random_register_file(i, arch, kind, cases, rng, sparsity_selector=selector, any_nibble=bool(i.rule))


@pytest.mark.regression
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_every_mma_of_a_warp(arch: str, rng: Random) -> None:
    config, computed = PRESETS[PRESET_OF_ARCHITECTURE[arch]], 0
    for i in warp_instructions(config, arch):
        file, recorder = file_of(i, arch, 2, rng), Recorder(backend("warp"))
        np.testing.assert_array_equal(file.run(recorder), file.run(), err_msg=str(i))
        ((operands,), (product,)) = recorder.operands, recorder.products
        law = modelled(config, i, arch)
        assert law
        assert product.cycles == law.latency + law.interval, i
        if i.rule:
            (flags,) = product.flags or ()
            np.testing.assert_array_equal(flags.illegal, ~np.isin(operands.nibbles, [*i.rule.legal]), err_msg=str(i))
        computed += 1
    assert computed > 30


@pytest.mark.regression
def test_wgmma_on_images_of_any_size(rng: Random) -> None:
    """Shared memory may have an odd size, or more bytes than descriptors address. A tile takes the modelled latency."""
    i = parse(WGMMA)
    file = file_of(i, "sm_90", 2, rng)
    for image in (file.b, np.pad(file.b, ((0, 0), (0, 1))), np.pad(file.b, ((0, 0), (0, 1 << 16)))):
        of_image = replace(file, b=image)
        recorder = Recorder(backend("warpgroup"))
        np.testing.assert_array_equal(of_image.run(recorder), file.run())
        assert all(product.cycles for product in recorder.products)
    recorder = Recorder(backend("warpgroup"))
    file.take(slice(1)).run(recorder)
    (product,) = recorder.products
    law = modelled(PRESETS["hopper"], i, "sm_90", file.a_from or "")
    assert law
    assert product.cycles == law.latency


@pytest.mark.regression
@pytest.mark.parametrize("text", [F16, F16_2, NVF4, f"{DENSE}.kind::i8"])
def test_tensor_memory(text: str, rng: Random) -> None:
    for add in (True, False):
        made, recorder = case(text, rng, n=32, any_nibble=True), Recorder(backend("tcgen05"))
        options: dict[str, Any] = {"enable_input_d": add, "metadata": "silicon"}
        np.testing.assert_array_equal(made.run(backend=recorder, **options), made.run(**options))
        (product,) = recorder.products
        assert product.cycles
        assert product.flags is not None
        assert len(product.flags) == (4 if made.instruction.rule else 0)
        for flags in product.flags:
            assert made.instruction.rule
            np.testing.assert_array_equal(flags.illegal, ~np.isin(flags.nibbles, [*made.instruction.rule.legal]))


class GoldenCores:
    """Stand-in for the compiled tensor cores of a CTA. It runs the golden model, and reports 50 cycles per CTA."""

    def __init__(self, made: Case) -> None:
        self.made = made

    def run(self, commands: list[CtaCommand], tmem: NDArray[np.uint32], smem: NDArray[np.uint8]) -> CtaRun:
        (command,), made, ctas = commands, self.made, len(tmem)
        memories = {"tmem": tmem, "smem": smem} if ctas == 2 else {"tmem": tmem[0], "smem": smem[0]}
        after = made.run(**memories, enable_input_d=bool(command.fields["add"]), metadata="silicon")
        illegal = np.zeros((ctas, command.n // 8, 128, 16), np.bool_)
        if made.nibbles is not None:
            assert made.instruction.rule
            flags = ~np.isin(made.nibbles, [*made.instruction.rule.legal]).reshape(ctas, 1, 128, -1)
            illegal[..., : made.instruction.chunks] = flags
        done = np.array([[110, 110 + 50 * ctas]])[:, -ctas:]
        zero = np.zeros((1, ctas), np.int64)
        return CtaRun(after.reshape(tmem.shape), zero + 110, done, [illegal], *zero, zero, "")


@pytest.mark.parametrize("text", [F16, F16_2, f"{DENSE}.kind::i8"])
def test_a_batch_of_tensor_memories(text: str, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    made, recorder = case(text, rng, n=32, any_nibble=True), Recorder(backend("tcgen05"))
    monkeypatch.setattr(tops, "tcgen05", lambda: GoldenCores(made))
    tmem, smem = (np.stack([made.arguments[name]] * 2, axis=int(made.ctas == 2)) for name in ("tmem", "smem"))
    tmem[..., 256:288] ^= rng.integers(0, 1 << 16, (*tmem.shape[:-1], 32), np.uint32)
    smem[..., 1, :] ^= np.uint8(1)
    for add in (True, False):
        options: dict[str, Any] = {"tmem": tmem, "smem": smem, "enable_input_d": add, "metadata": "silicon"}
        np.testing.assert_array_equal(made.run(backend=recorder, **options), made.run(**options))
        product = recorder.products[-1]
        golden = backend("golden").multiply(made.instruction, "sm_100", recorder.operands[-1])
        np.testing.assert_array_equal(product.d, golden.d)
        assert product.cycles == 2 * 50 * made.ctas
        raised, demanded = flags_and_rules([product], 2)
        i = made.instruction
        assert raised.shape == ((2, i.m, 4 * i.chunks) if i.rule else (2, 0, 0))
        np.testing.assert_array_equal(raised, demanded)


def test_which_top_executes_what() -> None:
    expected = {
        (SPARSE, "sm_80"): ("warp",), (SPARSE, "sm_90"): ("warp", "warpgroup"), (FP8, "sm_89"): ("warp",),
        (FP8, "sm_90"): (), (SHORT, "sm_90"): (), (SCALED, "sm_120"): ("warp",), (WGMMA, "sm_90"): ("warpgroup",),
    }  # fmt: skip
    assert {key: tops_of(parse(key[0]), key[1]) for key in expected} == expected
    assert all(tops_of(i, "sm_90") == ("warpgroup",) for i in every_instruction("wgmma"))


def test_what_a_top_does_not_execute(rng: Random) -> None:
    for text, arch, name, message in (
        (SPARSE, "sm_80", "warpgroup", r"^back end 'warpgroup' does not execute mma.* of sm_80; use back end 'warp'$"),
        (SPARSE, "sm_90", "tcgen05", r"^back end 'tcgen05' does not execute mma.* of sm_90; use back end 'warp'$"),
        (FP8, "sm_90", "warp", ON_A_ROW),
        (SHORT, "sm_90", "warpgroup", ON_A_ROW),
        (WGMMA, "sm_90", "warp", r"^back end 'warp' does not execute wgmma.*; use back end 'warpgroup'$"),
    ):
        with pytest.raises(sptc.BackendError, match=message):
            file_of(parse(text), arch, 1, rng).run(name)
    for text, expected, options, message in (
        (F16, {"d": "f32"}, {"scale_input_d": 1},
         r"\(.*\) with scale_input_d with these operand locations; use back end 'rtl'"),
        (F16, {}, {"disable_output_lane": [1, 0, 0, 0]}, r" with disable_output_lane with these operand"),
        (F16, {"m": 64}, {}, ON_A_ROW),
        (f"{WS}.kind::f16", {"n": 64}, {}, ON_A_ROW),
        (F16, {}, {"backend": "warp"}, r"^back end 'warp' does not execute tcgen05.*; use back end 'tcgen05'$"),
    ):  # fmt: skip
        made = case(text, rng, **expected)
        with pytest.raises(sptc.BackendError, match=message):
            made.run(**{"backend": "tcgen05"} | options)
    i = case(F16, rng).instruction
    with pytest.raises(sptc.BackendError, match=r"from tensor memory and shared memory, .* not as matrices$"):
        backend("tcgen05").multiply(i, "sm_100", matrices(i, (1, i.m, i.n), "mid", rng))


def on_registers(instruction: Instruction, arch: str, operands: HeldOperands) -> Product:
    """Stand-in for a top-level module. It runs the golden model, reports one cycle per tile, and flags odd nibbles."""
    gathered = gather_warp(instruction, operands)
    flags: tuple[StepFlags, ...] = ()
    if gathered.nibbles is not None:
        flags = (StepFlags(instruction, gathered.nibbles, gathered.nibbles % 2 == 1),)
    return Product(multiply(instruction, arch, gathered), flags, len(operands.arrays["c"]))


@pytest.mark.parametrize(("text", "arch"), [(SPARSE, "sm_90"), (SHORT, "sm_90"), (SCALED, "sm_120")])
def test_matrices_in_tiles(text: str, arch: str, rng: Random) -> None:
    """A product with partial tiles and two instructions along K has the right D, and cycles and flags of all tiles."""
    i = parse(text)
    operands = matrices(i, (2, 2 * i.m - 3, i.n + 5), "mid", rng, steps=2)
    product = multiply_held(on_registers, i, arch, operands)
    np.testing.assert_array_equal(product.d, multiply(i, arch, operands))
    assert product.cycles == 2 * 2 * (2 * 2)
    assert product.flags is not None
    assert [flags.illegal.shape for flags in product.flags] == [(2 * 2 * 2, i.m, i.chunks)] * (2 if i.rule else 0)
    for flags in product.flags:
        np.testing.assert_array_equal(flags.illegal, flags.nibbles % 2 == 1)


def test_products_without_flags(rng: Random) -> None:
    """A back end may report neither flags nor cycles. A recorder keeps the operands and the product of each call."""
    i = parse(SPARSE)
    matrix = matrices(i, (1, 16, 8), "mid", rng)
    product = multiply_held(lambda *arguments: Product(on_registers(*arguments).d), i, "sm_90", matrix)
    assert (product.flags, product.cycles) == (None, None)
    i, recorder = parse(SPARSE), Recorder(backend("golden"))
    drawn = random_operands(i, "mid", 3, rng)
    np.testing.assert_array_equal(sptc.mma(SPARSE, **drawn.arrays, backend=recorder), sptc.mma(SPARSE, **drawn.arrays))
    ((operands,), (product,)) = recorder.operands, recorder.products
    np.testing.assert_array_equal(operands.a, gather_warp(i, drawn).a)
    assert (product.flags, product.cycles) == (None, None)
