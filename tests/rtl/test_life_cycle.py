"""What the hardware says is undefined, against the checker of sequences and the checks of an instruction's operands."""

from collections.abc import Callable

import numpy as np
import pytest
from amaranth.sim import Simulator
from sptc.errors import OperandError, OrderError
from sptc.isa.fragments import a_fragment, accumulator_fragment
from sptc.isa.instructions import Instruction, parse
from sptc.isa.life_cycle import WgmmaSequence
from sptc.isa.memory import decode_descriptor, encode_descriptor
from sptc.isa.tcgen05 import parse_shaped
from sptc.isa.tensor_memory import LAYOUTS, a_map, accumulator_map, metadata_map, scale_map
from sptc.rtl.config import PRESETS
from sptc.rtl.fetch import descriptor_layout
from sptc.rtl.life_cycle import LifeCycle, Operation
from sptc.rtl.placement import Placement
from sptc.sim.engine.steps import control_word

HOPPER = PRESETS["hopper"]
INSTRUCTIONS = [
    parse(text)
    for text in (
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16",
        "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32",
        "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3",
    )
]
#: What the checker says, by the flag that says it.
SAID = {"unfenced": "wgmma.fence", "uncommitted": "no wgmma.commit_group", "unwaited": "no wgmma.wait_group"}
ALL_REGISTERS = [f"d{n}" for n in range(128)] + [f"a{n}" for n in range(4)]


def told(sequence: WgmmaSequence, step: tuple) -> None:
    """Tell the checker a step of a sequence; accesses are to every register."""
    word, *rest = step
    if word == "access":
        sequence.read(*ALL_REGISTERS)
        if rest:
            told(sequence, rest[0])
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
    """Return a step that is no access, for the same cycle as one."""
    while (step := draw(rng))[0] == "access":
        pass
    return step


def flagged(steps: list[tuple]) -> list[set[str]]:
    """Return what the hardware flags in the cycle of each step."""
    dut = LifeCycle(HOPPER)
    found: list[set[str]] = []

    async def bench(ctx) -> None:
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
            found.append({name for name in (*SAID, "reserved") if ctx.get(dut.undefined[name])})
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def test_sequences(seed: int) -> None:
    """Flags begin with the call that the checker refuses, and its reason is among them; before it there are none."""
    rng = np.random.default_rng(seed)
    refused = dict.fromkeys(SAID, 0)
    for _ in range(300):
        sequence, steps, reason = WgmmaSequence(), [], ""
        while not reason and len(steps) < 30:
            steps.append((Operation.FENCE,) if not steps and rng.random() < 0.9 else draw(rng))
            try:
                told(sequence, steps[-1])
            except OrderError as error:
                reason = str(error)
        *before, last = flagged(steps)
        assert not any(before), (steps, reason)
        names = {name for name, words in SAID.items() if words in reason}
        assert names <= last, (steps, reason)
        assert bool(names) == bool(last)
        for name in names:
            refused[name] += 1
    assert min(refused.values()) > 10, refused


def of_descriptor(check: Callable[[int], bool], family: str, fixed: int) -> None:
    """Flip every bit of a descriptor: the hardware flags what its decoder refuses."""
    for bit in (None, *range(64)):
        value = fixed if bit is None else fixed ^ 1 << bit
        try:
            decode_descriptor(value, family)
            wanted = False
        except OperandError:
            wanted = True
        assert check(value) == wanted, bit


def test_reserved_bits() -> None:
    dut = LifeCycle(HOPPER)

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        for place, a_shared in ((dut.b_descriptor, 0), (dut.a_descriptor, 1)):
            ctx.set(dut.a_shared, a_shared)

            def check(value: int, place=place) -> bool:
                ctx.set(place, descriptor_layout().from_bits(value))
                return bool(ctx.get(dut.undefined.reserved))

            of_descriptor(check, "wgmma", encode_descriptor(64, 128, 256, "64B"))
        ctx.set(dut.a_descriptor.reserved3, 1)
        ctx.set(dut.a_shared, 0)
        assert not ctx.get(dut.undefined.reserved)

    run(dut, bench)


def run(dut: object, bench: Callable) -> None:
    simulator = Simulator(dut)
    if isinstance(dut, LifeCycle):
        simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def undefined_of(i: Instruction, columns: dict[str, int], selector: int, a_shared: bool) -> set[str]:
    """Return what the index maps say of first columns, by the hardware's flags."""
    found, words = set(), {}
    makers = {
        "d": lambda at: accumulator_map(LAYOUTS["D"], i.n, i.d.bits, at),
        "e": lambda at: metadata_map(LAYOUTS["D"], i, selector, at),
        "scale_a": lambda at: scale_map("scale_a", 128, i.scale_size, 0, at),
        "scale_b": lambda at: scale_map("scale_b", i.n, i.scale_size, 0, at),
        "a": lambda at: a_map(LAYOUTS["D"], i, at),
    }
    for name, make in makers.items():
        if (name == "e" and not i.sparse) or ("scale" in name and not i.scale_size) or (name == "a" and a_shared):
            continue
        at = columns[name]
        if name == "e" and at % 2:
            found.add("misaligned")
            at -= 1  # where it would be, the other checks are of the columns that are read
            if columns[name] + (selector if i.wide else 1) > 511:
                found.add("beyond")
            words[name] = {columns[name] + (selector if i.wide else n) for n in range(1 if i.wide else 2)}
            continue
        try:
            words[name] = set(np.nonzero(make(at).words().any(0))[0].tolist())
        except OperandError:
            found.add("beyond")
            words[name] = None
    if words["d"] is not None and any(of and of & words["d"] for name, of in words.items() if name != "d"):
        found.add("overlap")
    return found


TCGEN05 = [
    "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)",
    "tcgen05.mma.cta_group::1.kind::f16 (m128n256k16.f32.f16.f16)",
    "tcgen05.mma.sp.cta_group::1.kind::i8 (m128n8k64.s32.s8.s8)",
    "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale (m128n128k64.f32.e4m3.e4m3.ue8m0)",
]


@pytest.mark.parametrize("text", TCGEN05)
def test_placement(text: str, seed: int) -> None:
    """Random columns, either end likely: what the maps refuse is flagged, and nothing else."""
    _, i = parse_shaped(text)
    rng, dut = np.random.default_rng(seed), Placement()
    seen = set()

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        ctx.set(dut.b_descriptor.reserved2, 1)
        ctx.set(dut.a_descriptor.reserved2, 1)
        request = dut.request
        for name, value in (
            ("sparse", bool(i.sparse)), ("wide", i.wide), ("scaled", bool(i.scale_size)), ("last_panel", i.n // 8 - 1)
        ):  # fmt: skip
            ctx.set(request[name], value)
        for _ in range(300):
            at = {name: int(rng.choice([rng.integers(512), rng.integers(8), 511 - rng.integers(8)])) for name in NAMES}
            selector, a_shared = int(rng.integers(i.sparsity_selectors or 1)), bool(rng.integers(2))
            ctx.set(dut.d_column, at["d"])
            for name, field in NAMES.items():
                if field:
                    ctx.set(request[field], at[name])
            ctx.set(request.sparsity_selector, selector)
            ctx.set(request.a_shared, a_shared)
            found = {name for name in ("overlap", "misaligned", "beyond", "reserved") if ctx.get(dut.undefined[name])}
            wanted = undefined_of(i, at, selector, a_shared)
            if "beyond" in wanted:  # of what reaches beyond the last column the maps say no more
                wanted, found = wanted - {"overlap"}, found - {"overlap"}
            assert found == wanted, (at, selector, a_shared)
            seen.update(found)

    run(dut, bench)
    assert {"overlap", "beyond"} <= seen


NAMES = {"d": "", "e": "metadata_column", "a": "a_column", "scale_a": "scale_a_column", "scale_b": "scale_b_column"}


def test_reserved_bits_of_tcgen05() -> None:
    """Swizzles in atoms of 32 bytes count as reserved, since the hardware lacks them."""
    dut = Placement()

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        good = encode_descriptor(64, 128, 256, "64B", family="tcgen05")
        for place, a_shared in ((dut.b_descriptor, 0), (dut.a_descriptor, 1)):
            ctx.set(dut.request.a_shared, a_shared)

            def check(value: int, place=place) -> bool:
                ctx.set(place, descriptor_layout().from_bits(value))
                return bool(ctx.get(dut.undefined.reserved))

            of_descriptor(check, "tcgen05", good)
            ctx.set(place, descriptor_layout().from_bits(good))
        atoms = encode_descriptor(64, 128, 256, "128B with 32B atoms", family="tcgen05")
        ctx.set(dut.a_descriptor, descriptor_layout().from_bits(atoms))
        assert ctx.get(dut.undefined.reserved)

    run(dut, bench)
