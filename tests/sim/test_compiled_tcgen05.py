"""The compiled tensor cores of a CTA and of a CTA pair have the golden model's results and a B200's cycles."""

from typing import Any

import numpy as np
import pytest
from sptc.isa.instruction_descriptor import decode_instruction_descriptor
from sptc.isa.tcgen05 import Opcode, every_opcode, instructions_of, parse_opcode, parse_shaped
from sptc.isa.timing import tcgen05_timing
from sptc.rtl.placement import placement_layout
from sptc.sim.engine.compiled_tcgen05 import CompiledTcgen05
from sptc.sim.engine.tcgen05_commands import COMMIT, CtaCommand, CtaRun, cta_command
from sptc.tests.api.tcgen05_case import Case, case
from sptc.tests.isa.test_timing import rows as recorded_cycles
from sptc.verify.bench_jobs import random_instruction, random_memories

pytestmark = pytest.mark.regression
OPCODES = [opcode for opcode in every_opcode() if not opcode.weight_stationary]
OPERANDS = ("a", "b", "d", "e", "scale_a", "scale_b")
#: Number of instructions that run before the timing begins, and number of instructions that are timed.
FIRST, TIMED = 3, 6


@pytest.fixture(scope="module")
def hardware() -> CompiledTcgen05:
    return CompiledTcgen05()


def command_of(hardware: CompiledTcgen05, made: Case, **options: Any) -> CtaCommand:
    opcode = parse_opcode(made.text)
    operands = {name: made.arguments[name] for name in OPERANDS if name in made.arguments}
    descriptor = decode_instruction_descriptor(opcode, made.arguments["idesc"])
    command = cta_command(hardware.config, opcode, descriptor, operands, **options)
    assert command is not None, made.instruction
    return command


def run(hardware: CompiledTcgen05, made: Case, commands: list[CtaCommand]) -> CtaRun:
    tmem, smem = made.arguments["tmem"], made.arguments["smem"]
    return hardware.run(commands, tmem.reshape(-1, 128, 512), smem.reshape(made.ctas, -1))


@pytest.mark.parametrize("opcode", OPCODES, ids=str)
def test_bits(hardware: CompiledTcgen05, opcode: Opcode, seed: int) -> None:
    """Results equal the golden model for all types, with random N, location of A, swizzle, major, sign and nibbles."""
    rng = np.random.default_rng(seed)
    for i in {(i.d.name, i.a, i.b, i.satfinite, i.scale_format): i for i in instructions_of(opcode)}.values():
        moves = i.container_bits == 16
        flags = {name: bool(rng.integers(2)) for name in ("negate_a", "negate_b") if not i.a.is_integer}
        flags |= {name: bool(rng.integers(2)) for name in ("transpose_a", "transpose_b") if moves}
        in_tensor = rng.integers(2) and not flags.get("transpose_a") and not i.a.bits < i.container_bits == 8
        made = case(
            str(opcode), rng, a_in="tensor" if in_tensor else "shared", any_nibble=True, options=flags,
            swizzles=tuple(rng.choice(["none", "32B", "64B", "128B"], 2)), n=int(rng.choice(opcode.columns)),
            a=i.a.name, b=i.b.name, d=i.d.name, satfinite=i.satfinite,
            **({"scale_format": i.scale_format.name} if i.scale_format else {}),
        )  # fmt: skip
        add = bool(rng.integers(2))
        result = run(hardware, made, [command_of(hardware, made, enable_input_d=add), COMMIT])
        expected = made.expected(None if add else np.zeros_like(made.c)).reshape(result.tmem.shape)
        assert (result.tmem == expected).all(), (made.instruction, flags, in_tensor)
        # The flags of every panel mark, in each row, the chunks with a nibble that the metadata rule does not define.
        flagged, chunks = result.illegal[0], made.instruction.chunks
        if made.nibbles is not None:
            illegal = ~np.isin(made.nibbles, sorted(i.rule.legal)).reshape(made.ctas, -1, chunks)
            assert (flagged[..., :chunks] == illegal[:, None]).all()
        assert not flagged[..., chunks if made.nibbles is not None else 0 :].any()
        assert result.arrivals.tolist() == [1] * made.ctas


@pytest.mark.parametrize("ctas", [1, 2])
def test_consecutive_instructions_of_all_kinds(hardware: CompiledTcgen05, ctas: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    opcodes = [opcode for opcode in OPCODES if opcode.cta_group == ctas]
    for _ in range(6):
        tmem, smem = random_memories(ctas, rng)
        expected, commands = tmem, []
        for _ in range(20):
            told = random_instruction(hardware.config, opcodes[int(rng.integers(len(opcodes)))], rng)
            memories = (expected, smem) if ctas == 2 else (expected[0], smem[0])
            expected = told.run(*memories).reshape(tmem.shape)
            commands += [told.command, *([COMMIT] * int(rng.integers(3)))]
        pattern = rng.integers(0, 4, 997, np.uint8) if rng.integers(2) else None
        result = hardware.run(commands, tmem, smem, pattern)
        assert (result.tmem == expected).all()
        assert result.arrivals.tolist() == [commands.count(COMMIT)] * ctas
        assert not result.undefined.any()


def test_undefined_instructions_are_flagged(hardware: CompiledTcgen05, seed: int) -> None:
    """An instruction whose D overlaps its metadata is flagged, and a valid instruction is not flagged."""
    made = case("tcgen05.mma.sp.cta_group::1.kind::f16", np.random.default_rng(seed), n=64)
    good = command_of(hardware, made)
    bad = CtaCommand(good.fields | {"d_column": good.fields["metadata_column"]}, good.n)
    result = run(hardware, made, [good, bad, COMMIT]).undefined[:, 0]
    names = [{name for name, field in placement_layout() if word >> field.offset & 1} for word in result.tolist()]
    assert names == [set(), {"overlap"}, set()]


def rows() -> list[tuple[Opcode, str, str, float]]:
    """Return measured intervals with 128 rows per CTA, as rows of opcode, shape and types, location of A, interval."""
    results = []
    for row in recorded_cycles("tcgen05-b200-2026-03-06.csv"):
        opcode = parse_opcode(row["instruction"])
        if row["shape_and_types"].startswith(f"m{128 * opcode.cta_group}n"):
            results.append((opcode, row["shape_and_types"], row["a_from"], float(row["interval"])))
    return results


def interval(hardware: CompiledTcgen05, opcode: Opcode, shape_and_types: str, a_from: str) -> float:
    """Return the cycles from one instruction to the next in a sequence of equal instructions."""
    _, i = parse_shaped(f"{opcode} ({shape_and_types})")
    made = case(
        str(opcode), np.random.default_rng(0), a_in="shared" if i.a.bits < i.container_bits else a_from, n=i.n,
        a=i.a.name, b=i.b.name, d=i.d.name, **({"scale_format": i.scale_format.name} if i.scale_format else {}),
    )  # fmt: skip
    command = command_of(hardware, made)
    command.fields["a_shared"] = a_from == "shared"
    done = run(hardware, made, [command] * (FIRST + TIMED)).done[:, 0]
    return float(done[-1] - done[FIRST - 1]) / TIMED


def test_the_intervals_of_a_b200(hardware: CompiledTcgen05) -> None:
    """Intervals equal the timing model. For one CTA, they are within 0.06 of a cycle of measurements on a B200."""
    compared = 0
    for opcode, shape_and_types, a_from, measured in rows():
        if opcode.kind == "i8" and opcode.cta_group == 2 and int(shape_and_types[5:].split("k")[0]) % 32:
            continue  # this form does not exist in PTX
        _, i = parse_shaped(f"{opcode} ({shape_and_types})")
        result = interval(hardware, opcode, shape_and_types, a_from)
        assert result == tcgen05_timing(opcode, i, a_from).interval
        assert -0.06 < measured - result < (0.06 if opcode.cta_group == 1 or i.n >= 112 else 4.1)
        compared += 1
    assert compared == 140


@pytest.mark.parametrize("a_from", ["tensor", "shared"])
@pytest.mark.parametrize(
    "text",
    [
        "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n{}k32.f32.f16.f16)",
        "tcgen05.mma.sp.cta_group::2.kind::f16 (m256n{}k32.f32.f16.f16)",
        "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale (m128n{}k128.f32.e2m1.e2m1.ue8m0)",
    ],
)
def test_the_intervals_of_sparse_instructions(hardware: CompiledTcgen05, text: str, a_from: str) -> None:
    for n in (64, 128, 256):
        opcode, i = parse_shaped(text.format(n))
        assert interval(hardware, opcode, i.shape_and_types, a_from) == tcgen05_timing(opcode, i, a_from).interval
