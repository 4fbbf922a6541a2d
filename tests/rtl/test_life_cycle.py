"""The hardware flags undefined sequences of commands, undefined addresses of operands, and reserved bits."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from amaranth.hdl import Signal, Value
from amaranth.lib import data
from amaranth.sim import Simulator
from sptc.errors import OperandError, OrderError
from sptc.isa.fragments import a_fragment, accumulator_fragment
from sptc.isa.instructions import parse
from sptc.isa.life_cycle import WgmmaSequence
from sptc.isa.memory import decode_descriptor, encode_descriptor
from sptc.rtl.config import PRESETS
from sptc.rtl.fetch import descriptor_layout
from sptc.rtl.life_cycle import LifeCycle, Operation
from sptc.rtl.placement import Placement
from sptc.rtl.scale import ScaleCode
from sptc.rtl.tcgen05 import TCGEN05_ARRAY, tcgen05_layout
from sptc.sim.engine.steps import control_word
from sptc.tests.rtl.conftest import simulate_clocked


def check_reserved(ctx, reserved: Value, instruction: Any, family: str) -> None:
    """Flip each bit of a descriptor. Check that the hardware flags exactly the values that the software rejects."""
    good = encode_descriptor(64, 128, 256, "64B", family=family)
    for place, is_a in ((instruction.b_descriptor, 0), (instruction.a_descriptor, 1)):
        ctx.set(instruction.a_shared, is_a)
        for value in (*(good ^ 1 << bit for bit in range(64)), good):
            try:
                decode_descriptor(value, family)
                refused = False
            except OperandError:
                refused = True
            ctx.set(place, descriptor_layout().from_bits(value))
            assert bool(ctx.get(reserved)) == refused, f"{value ^ good:#x}"


HOPPER = PRESETS["hopper"]
INSTRUCTIONS = [
    parse(f"wgmma.mma_async.{form}")
    for form in (
        "sp.sync.aligned.m64n8k32.f32.f16.f16", "sp.sync.aligned.m64n8k32.f32.bf16.bf16",
        "sp.sync.aligned.m64n16k32.f32.f16.f16", "sync.aligned.m64n8k16.f32.f16.f16",
        "sp.sync.aligned.m64n8k16.f32.tf32.tf32", "sp.sync.aligned.m64n8k64.f32.e4m3.e4m3",
    )
]  # fmt: skip
#: Part of the software checker's message for each flag of the hardware.
SAID = {"unfenced": "wgmma.fence", "uncommitted": "no wgmma.commit_group", "unwaited": "no wgmma.wait_group"}
ALL_REGISTERS = [f"d{n}" for n in range(128)] + [f"a{n}" for n in range(4)]


def pass_to_checker(sequence: WgmmaSequence, step: tuple) -> None:
    """Pass a step of a sequence to the software checker. The step "access" reads all registers."""
    word, *rest = step
    if word == "access":
        sequence.read(*ALL_REGISTERS)
        if rest:
            pass_to_checker(sequence, rest[0])
    elif word is Operation.FENCE:
        sequence.fence()
    elif word is Operation.COMMIT:
        sequence.commit_group()
    elif word is Operation.WAIT:
        sequence.wait_group(rest[0])
    else:
        i, in_registers = rest
        d = [f"d{n}" for n in range(accumulator_fragment(i).registers)]
        a = [f"a{n}" for n in range(a_fragment(i).registers)] if in_registers else None
        sequence.mma_async(str(i), d, a)


def draw(rng: np.random.Generator) -> tuple:
    word = rng.choice(5, p=[0.3, 0.2, 0.2, 0.2, 0.1])
    if word == 0:
        likely = int(rng.integers(2) and rng.integers(len(INSTRUCTIONS)))
        return Operation.MULTIPLY, INSTRUCTIONS[likely], bool(rng.integers(2))
    return (
        (Operation.COMMIT,),
        (Operation.WAIT, int(rng.integers(8)) if rng.integers(2) else 0),
        (Operation.FENCE,),
        ("access", draw_another(rng)) if rng.integers(2) else ("access",),
    )[word - 1]


def draw_another(rng: np.random.Generator) -> tuple:
    """Return a random command. A command, unlike an access, may happen in the same cycle as an access."""
    while (step := draw(rng))[0] == "access":
        pass
    return step


def flagged(sequences: list[list[tuple]]) -> list[list[set[str]]]:
    """Return, for each step of each sequence, the names of the flags that the hardware raises in the step's cycle."""
    dut, reset = LifeCycle(HOPPER), Signal()
    found: list[list[set[str]]] = []

    async def bench(ctx) -> None:
        for steps in sequences:
            ctx.set(dut.taken, 0)
            ctx.set(dut.accessed, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            found.append(await flags_of(ctx, steps))

    async def flags_of(ctx, steps: list[tuple]) -> list[set[str]]:
        flags: list[set[str]] = []
        for word, *rest in steps:
            ctx.set(dut.accessed, word == "access")
            if word == "access" and rest:
                word, *rest = rest[0]
            ctx.set(dut.taken, word != "access")
            if word != "access":
                ctx.set(dut.operation, word)
            if word is Operation.MULTIPLY:
                i, in_registers = rest
                ctx.set(dut.control, dut.control.shape().from_bits(control_word(HOPPER, i, last=True)))
                ctx.set(dut.last_panel, i.n // 8 - 1)
                ctx.set(dut.a_shared, not in_registers)
            elif word is Operation.WAIT:
                ctx.set(dut.pending, rest[0])
            flags.append({name for name in (*SAID, "reserved") if ctx.get(dut.undefined[name])})
            await ctx.tick()
        return flags

    simulate_clocked(dut, bench, reset=reset)
    return found


def test_sequences(seed: int) -> None:
    """The hardware raises its first flag at the command that the software checker rejects, for the same reason."""
    rng = np.random.default_rng(seed)
    refused = dict.fromkeys(SAID, 0)
    sequences: list[list[tuple]] = []
    reasons: list[str] = []
    for _ in range(300):
        sequence, steps, reason = WgmmaSequence(), [], ""
        while not reason and len(steps) < 30:
            steps.append((Operation.FENCE,) if not steps and rng.random() < 0.9 else draw(rng))
            try:
                pass_to_checker(sequence, steps[-1])
            except OrderError as error:
                reason = str(error)
        sequences.append(steps)
        reasons.append(reason)
    for steps, reason, (*before, last) in zip(sequences, reasons, flagged(sequences), strict=True):
        assert not any(before), (steps, reason)
        names = {name for name, words in SAID.items() if words in reason}
        assert names <= last, (steps, reason)
        assert bool(names) == bool(last)
        for name in names:
            refused[name] += 1
    assert min(refused.values()) > 10, refused


def test_a_group_is_remembered_until_a_wait() -> None:
    """No pending group is forgotten. A wait that leaves seven groups completes all groups before the newest seven."""
    cases = list(product(range(1, 12), (False, True)))
    begun = [(Operation.FENCE,), (Operation.MULTIPLY, INSTRUCTIONS[0], False)]
    sequences: list[list[tuple]] = [
        [*begun, *[(Operation.COMMIT,)] * count, *[(Operation.WAIT, 7)] * waits, ("access",)] for count, waits in cases
    ]
    for (count, waits), (*before, last) in zip(cases, flagged(sequences), strict=True):
        assert not any(before), (count, waits)
        assert last == (set() if waits and count > 7 else {"unwaited"}), (count, waits)


def test_reserved_bits() -> None:
    dut = LifeCycle(HOPPER)

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        check_reserved(ctx, dut.undefined.reserved, dut, "wgmma")
        ctx.set(dut.a_descriptor.reserved3, 1)
        ctx.set(dut.a_shared, 0)
        assert not ctx.get(dut.undefined.reserved)

    simulate_clocked(dut, bench)


ALL_COLUMNS = 512
#: Element codes of a 16-bit format and of a smaller format.
WIDE, NARROW = ([element.wide for element in TCGEN05_ARRAY.elements].index(wide) for wide in (True, False))
#: For each operand: the fields that make the operand present, the field of its first column, the number of skipped
#: columns, and the number of used columns (-1: depends on N).
OPERANDS: list[tuple[dict[str, int], str, int, int]] = [
    ({"sparse": 1}, "metadata_column", 0, 2),
    ({"sparse": 1, "wide": 1}, "metadata_column", 0, 1),
    ({"sparse": 1, "wide": 1, "sparsity_selector": 1}, "metadata_column", 1, 1),
    ({"scaled": 1}, "scale_a_column", 0, 4),
    ({"scaled": 1}, "scale_b_column", 0, -1),
    ({"a_shared": 0}, "a_column", 0, 8),
]


def placement() -> Placement:
    fields = {name: field.shape for name, field in tcgen05_layout() if name != "operation"}
    return Placement(TCGEN05_ARRAY, data.StructLayout(fields))


def run(dut: Placement, bench: Callable) -> None:
    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


def test_an_overlap_on_either_side(rng: np.random.Generator) -> None:
    """An operand that overlaps D on either side is flagged, unless the instruction does not use the operand."""
    dut = placement()
    instruction = dut.instruction

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        for descriptor in (instruction.a_descriptor, instruction.b_descriptor):
            ctx.set(descriptor.reserved2, 1)
        for (fields, column, skipped, count), panels in product(OPERANDS, (1, 2, 5, 31)):
            width = 8 * panels
            columns = (panels - 1) // 4 + 1 if count < 0 else count
            for d in (0, ALL_COLUMNS - width, int(rng.integers(ALL_COLUMNS - width))):
                ctx.set(instruction.control.a, WIDE if "wide" in fields else NARROW)
                ctx.set(instruction.control.sparse, "sparse" in fields)
                ctx.set(instruction.control.scale, ScaleCode.UE8M0 if "scaled" in fields else ScaleCode.NONE)
                ctx.set(instruction.sparsity_selector, "sparsity_selector" in fields)
                ctx.set(instruction.a_shared, fields.get("a_shared", 1))
                for name in ("metadata_column", "scale_a_column", "scale_b_column", "a_column"):
                    ctx.set(instruction[name], d)
                if "scaled" in fields:  # keep the other block scales as far from D as possible
                    other = "scale_a_column" if column == "scale_b_column" else "scale_b_column"
                    ctx.set(instruction[other], 0 if d > ALL_COLUMNS // 2 - 4 else ALL_COLUMNS - 8)
                ctx.set(instruction.d_column, d)
                ctx.set(instruction.last_panel, panels - 1)
                for first in {*range(d - columns - 2, d + 3), *range(d + width - 3, d + width + 2)}:
                    if not 0 <= first < ALL_COLUMNS:
                        continue
                    ctx.set(instruction[column], first)
                    used = {first + skipped + number for number in range(columns)}
                    where = f"{column} {first} with {fields}, D of {width} columns from {d} on"
                    beyond = max(used) >= ALL_COLUMNS
                    assert ctx.get(dut.undefined.beyond) == beyond, where
                    if not beyond:
                        overlap = bool(used & {*range(d, d + width)})
                        assert ctx.get(dut.undefined.overlap) == overlap, where
                    assert ctx.get(dut.undefined.misaligned) == (first % 2 and "sparse" in fields), where
                ctx.set(instruction[column], 0)
                for end in (ALL_COLUMNS, ALL_COLUMNS + 1):
                    ctx.set(instruction.d_column, end - width)
                    assert ctx.get(dut.undefined.beyond) == (end > ALL_COLUMNS), f"D up to column {end}"

    run(dut, bench)


def test_reserved_bits_of_tcgen05() -> None:
    """Reserved bits are flagged, as is the swizzle with 32-byte atoms, which the hardware does not support."""
    dut = placement()

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        check_reserved(ctx, dut.undefined.reserved, dut.instruction, "tcgen05")
        atoms = encode_descriptor(64, 128, 256, "128B with 32B atoms", family="tcgen05")
        ctx.set(dut.instruction.a_descriptor, descriptor_layout().from_bits(atoms))
        assert ctx.get(dut.undefined.reserved)

    run(dut, bench)
