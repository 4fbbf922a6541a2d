"""The core of a warp gets the operands, metadata and block scales that the fragments of PTX state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from numpy.typing import NDArray
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment
from sptc.isa.instructions import Instruction, every_instruction
from sptc.operands.registers import from_registers, unpack_nibbles, unpack_scales
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.core import Core
from sptc.rtl.round import ResultCode
from sptc.rtl.step import control_layout
from sptc.rtl.warp import CHUNKS, ScaleSizeCode, Warp, warp_operands_layout
from sptc.tests.rtl.conftest import simulate_clocked

Random = np.random.Generator
LANES, REGISTERS, ROWS, COLUMNS = 32, 4, 16, 8
CONFIG = replace(PRESETS["blackwell"], rows=8, columns=4)
#: Datapaths by the number of bytes of a step. Packed e2m1, the last format, needs steps of 32 bytes.
CONFIGS = {32: CONFIG, 16: replace(CONFIG, step_bytes=16, formats=CONFIG.formats[:-1], scales=("ue8m0",))}
COUNT = 50
RESULTS = {"f32": ResultCode.F32, "f16": ResultCode.F16, "s32": ResultCode.S32}


class OpenCore(Core):
    """Stand-in for a core. The bench checks the tile at its input in each cycle; the result is the accumulators + 1."""

    made: list["OpenCore"]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.made.append(self)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tile, result = self.i.payload, self.o.payload
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), result.tag.eq(tile.tag), result.overflow.eq(~tile.overflow)]
            m.d.sync += [d.eq(c + 1) for d, c in zip(result.d, tile.c, strict=True)]
            m.d.sync += [flags.eq(nibbles) for flags, nibbles in zip(result.illegal, tile.metadata, strict=True)]
        return m


@lru_cache(maxsize=2)
def instructions(config: CoreConfig) -> list[Instruction]:
    """Return one instruction of each element width, K, sparsity, number of block scales and type of D."""
    kinds = {
        (i.a.bits, i.container_bits, i.k, bool(i.sparse), i.scale_size, i.d.name): i
        for i in every_instruction("mma")
        if i.m == ROWS and config.holds(i)
    }
    return list(kinds.values())


@dataclass(frozen=True, eq=False)
class Case:
    instruction: Instruction
    registers: dict[str, NDArray[np.uint32]]
    selector: int
    saturate: int
    ids: dict[str, int]

    @property
    def long(self) -> bool:
        return a_fragment(self.instruction).registers == REGISTERS

    def payload(self) -> int:
        i = self.instruction
        control = {"a": CONFIG.element_code(i.a, i.container_bits), "sparse": bool(i.sparse)}
        control |= {"result": RESULTS[i.d.name], "saturate": self.saturate}
        fields: dict[str, Any] = {name: words.tolist() for name, words in self.registers.items()}
        fields |= self.ids | {"control": control_layout().const(control), "long": self.long}
        fields |= {"sparsity_selector": self.selector, "scale_size": ScaleSizeCode[f"X{i.scale_size or 1}"]}
        return int(warp_operands_layout().const(fields).as_value().value)

    def matrix(self, name: str) -> NDArray:
        fragment = {"a": a_fragment, "b": b_fragment, "c": accumulator_fragment}[name](self.instruction)
        return from_registers(self.registers[name][None, :, : fragment.registers], fragment)[0]

    def expected(self, config: CoreConfig, step: int) -> dict[str, list[int]]:
        """Return the expected operands of each row or column in a step, by operand, with zeros beyond the end of K."""
        i, size = self.instruction, config.step_bytes
        b_size = 2 * size if i.sparse else size
        words = {}
        for name, lines, count in (("a", self.matrix("a"), size), ("b", self.matrix("b").T, b_size)):
            first, mask = 8 * count * step, (1 << 8 * count) - 1
            words[name] = [bits_of(line, i.container_bits) >> first & mask for line in lines]
        if i.sparse:
            nibbles = unpack_nibbles(self.registers["e"][None], i, self.selector)[0]
            count = config.chunks // (2 if i.wide else 1)
            rows = [[*row[count * step : count * (step + 1)].tolist()] for row in nibbles]
            words["metadata"] = [bits_of(np.array(row), 4) for row in rows]
        if i.scale_size:
            for side in "ab":
                ids = self.ids[f"byte_{side}"], self.ids[f"thread_{side}"]
                scales = unpack_scales(self.registers[f"scale_{side}"][None], i, side, *ids)[0]
                repeats = 2 if i.scale_size == 2 else 1
                words[f"scale_{side}"] = [bits_of(np.repeat(line, repeats), 8) for line in scales]
        return words


def bits_of(codes: NDArray, bits: int) -> int:
    return sum(int(code) << bits * place for place, code in enumerate(codes.tolist()))


def draw(config: CoreConfig, rng: Random, number: int) -> Case:
    """Draw random registers. Byte ids and thread ids of A and B differ where possible."""
    kinds = instructions(config)
    i = kinds[number] if number < len(kinds) else kinds[int(rng.integers(len(kinds)))]
    shapes = dict.fromkeys("abc", (LANES, REGISTERS)) | dict.fromkeys(("e", "scale_a", "scale_b"), (LANES,))
    registers = {name: rng.integers(0, 1 << 32, shape, np.uint32) for name, shape in shapes.items()}
    bytes_ = [*range(0, 4, i.scale_size or 1)]
    byte_a, byte_b = rng.choice(bytes_, 2, replace=len(bytes_) < 2).tolist()
    thread_a = int(rng.integers(2))
    thread_b = int(rng.choice([thread for thread in range(4) if thread != thread_a]))
    ids = {"byte_a": byte_a, "byte_b": byte_b, "thread_a": thread_a, "thread_b": thread_b}
    return Case(i, registers, int(rng.integers(i.sparsity_selectors or 1)), int(rng.integers(2)), ids)


def tiles_of(ctx, core: OpenCore) -> dict[str, list[int]]:
    payload, config = core.i.payload, core.config
    lines = {"a": config.rows, "b": config.columns, "metadata": config.rows}
    lines |= {"scale_a": config.rows, "scale_b": config.columns}
    return {name: [ctx.get(payload[name][place]) for place in range(count)] for name, count in lines.items()}


def check_block(case: Case, step: int, block: int, given: dict[str, list[int]], config: CoreConfig) -> None:
    row_block, column_block = divmod(block, COLUMNS // config.columns)
    i = case.instruction
    for name, lines in case.expected(config, step).items():
        of_columns = name in ("b", "scale_b")
        size, number = (config.columns, column_block) if of_columns else (config.rows, row_block)
        for place in range(size):
            got, line = given[name][place], number * size + place
            expected = lines[line]
            if name.startswith("scale"):
                got &= 0xFF if i.scale_size == 1 else 0xFFFFFFFF
            elif name == "metadata":
                count = config.chunks // (2 if i.wide else 1)
                present = min(i.chunks - count * step, count)
                expected |= sum(4 << 4 * chunk for chunk in range(present, count))
                got &= (1 << 4 * count) - 1
            where = f"{i}, step {step}: {name} of {'column' if of_columns else 'row'} {line} with {case.ids}"
            assert got == expected, f"{where} is {got:#x}, not {expected:#x}"


def check_result(ctx, warp: Warp, case: Case, given: list[list[int]]) -> None:
    """Check that D is C + the number of steps, and that the flags of each row are the metadata that it was `given`."""
    chunks, steps = warp.config.chunks, len(given)
    words = ctx.get(warp.o.payload.d.as_value()).to_bytes(4 * LANES * REGISTERS, "little")
    fragment = accumulator_fragment(case.instruction)
    registers = np.frombuffer(words, "<u4").reshape(1, LANES, REGISTERS)[..., : fragment.registers]
    codes = case.matrix("c")
    np.testing.assert_array_equal(from_registers(registers, fragment)[0], codes + codes.dtype.type(steps))
    for row, flags in enumerate(zip(*given, strict=True)):
        first, *later = (word & (1 << chunks) - 1 for word in flags)
        expected = first | sum(word << chunks // (2 if case.instruction.wide else 1) for word in later)
        result = ctx.get(warp.o.payload.illegal[row])
        assert result == expected & (1 << CHUNKS) - 1, f"{case.instruction}: flags of row {row}"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("step_bytes", CONFIGS)
def test_every_row_and_column_gets_its_operands(step_bytes: int, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row and column gets its A, B, metadata, block scales and accumulators, in full and partial steps."""
    config = CONFIGS[step_bytes]
    cores: list[OpenCore] = []
    monkeypatch.setattr("sptc.rtl.warp.Core", type("OneCore", (OpenCore,), {"made": cores}))
    warp = Warp(config)
    cases: Sequence[Case] = [draw(config, rng, number) for number in range(COUNT)]
    given: list[list[list[int]]] = [  # metadata of every row, for each case and step
        [[0] * ROWS for _ in range(2 if case.long and step_bytes == 16 else 1)] for case in cases
    ]

    async def bench(ctx) -> None:
        (core,) = cores
        ctx.set(warp.i.valid, 1)
        ctx.set(warp.o.ready, 1)
        blocks = config.warp_blocks
        accepted = issued = delivered = 0
        place = 0  # number of the block within the instruction that is being issued
        for _ in range(4 * blocks * COUNT):
            if accepted < COUNT:
                ctx.set(warp.i.payload.as_value(), cases[accepted].payload())
            ctx.set(warp.i.valid, accepted < COUNT)
            if ctx.get(core.i.valid) and ctx.get(core.i.ready):
                case, steps = cases[issued], len(given[issued])
                step, block = divmod(place, blocks)
                tiles = tiles_of(ctx, core)
                check_block(case, step, block, tiles, config)
                first_row = block // (COLUMNS // config.columns) * config.rows
                given[issued][step][first_row : first_row + config.rows] = tiles["metadata"]
                clamps = case.saturate and step == steps - 1
                assert ctx.get(core.i.payload.control.saturate) == clamps, f"{case.instruction}, step {step}"
                # The stand-in for the core inverts the overflow bits, so these bits are ones in the second step.
                overflow = ctx.get(core.i.payload.overflow)
                assert overflow == ((1 << config.rows * config.columns) - 1 if step else 0), f"{case.instruction}"
                place += 1
                if place == steps * blocks:
                    issued, place = issued + 1, 0
            if ctx.get(warp.o.valid):
                check_result(ctx, warp, cases[delivered], given[delivered])
                delivered += 1
            taken = accepted < COUNT and ctx.get(warp.i.ready)
            await ctx.tick()
            accepted += taken
            if delivered == COUNT:
                return
        raise AssertionError("the warp hangs")

    simulate_clocked(warp, bench)
