"""Proofs about the streams of an array of dot-product units and of a warp: protocol, order, draining and reset.

Arithmetic is abstracted: a stand-in for the unit returns its accumulator after the latency of the pipeline. One bit
marks one item. Since control does not depend on data, this covers all items.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream

from ..rtl.config import PRESETS, CoreConfig
from ..rtl.core import Core
from ..rtl.metadata import RuleCode
from ..rtl.round import ResultCode
from ..rtl.step import control_layout
from ..rtl.unit import Unit
from ..rtl.warp import Warp
from .harness import Harness, delayed, stand_in
from .progress import claim_progress
from .properties import Parameters, Topic
from .sizes import COLUMNS, LANES, REGISTERS, ROWS

__all__ = [
    "CORE",
    "SMALL_ARRAY",
    "WARP",
    "Flow",
    "assume_a_rule",
    "bare",
    "claim_chosen",
    "constant",
    "few_blocks",
    "offered",
]

CORE, WARP = Topic("core"), Topic("warp")
#: An array of dot-product units computes the 16 x 8 outputs of a warp in several blocks. The proof engine finds the
#: invariants of a warp only if the number of blocks is at most this limit.
_FEW_BLOCKS = 8


def _echo(unit: Any) -> Module:
    """Build a stand-in for a dot-product unit. All bits of its result are bit 0 of the accumulator."""
    m = Module()
    bit = delayed(m, unit.step.c[0], unit.config.latency, unit.enable, "stage")
    m.d.comb += unit.result.d.eq(bit.replicate(32))
    return m


_ECHO = stand_in(Unit, _echo)


class Flow:
    """Model of a component with one input stream and one output stream.

    It counts the items in the component (at most `most`), and marks one item.
    """

    def __init__(self, h: Harness, reset: Value, source: stream.Interface, sink: stream.Interface, most: int) -> None:
        m = h.m
        m.d.comb += [source.valid.eq(h.free("i_valid") & ~reset), sink.ready.eq(h.free("o_ready") & ~reset)]
        h.named("i_ready", source.ready)
        self.i_valid, self.o_ready = source.valid, sink.ready
        self.o_valid = h.named("o_valid", sink.valid)
        self.accepts = h.named("accepts", source.valid & source.ready)
        self.delivers = h.named("delivers", sink.valid & sink.ready)
        self.inside = inside = Signal(range(most + 2), name="inside")
        m.d.sync += inside.eq(inside + self.accepts - self.delivers)
        h.observed["inside"] = inside
        self.most = most
        # Whether the proof has chosen an input, how many inputs are ahead of it, and whether its result was delivered.
        marked, self.ahead, self.passed = Signal(name="marked"), Signal(range(most + 2), name="ahead"), Signal()
        self.marks = h.named("marks", h.free("mark") & self.accepts & ~marked)
        with m.If(self.marks):
            m.d.sync += [marked.eq(1), self.ahead.eq(inside - self.delivers)]
        with m.Elif(marked & self.delivers & (self.ahead != 0)):
            m.d.sync += self.ahead.eq(self.ahead - 1)
        self.awaited = h.named("awaited", marked & ~self.passed & (self.ahead == 0))
        with m.If(self.awaited & self.delivers):
            m.d.sync += self.passed.eq(1)

    def claim(self, h: Harness, token: Value, payload: Value, reset: Value) -> None:
        """Claim that an output stream keeps order and protocol. `token` is 1 for the result of the marked input."""
        h.claim("nothing_from_nothing", ~self.o_valid | (self.inside != 0))
        h.claim("holds_no_more", self.inside <= self.most)
        h.claim("order", ~self.o_valid | (token == self.awaited))
        before, waited = Signal(len(payload), name="payload_before"), Signal(name="waited")
        h.m.d.sync += [before.eq(payload), waited.eq(self.o_valid & ~self.delivers & ~reset)]
        h.claim("valid_stays", ~waited | reset | self.o_valid)
        h.claim("payload_stays", ~waited | reset | (payload == before))
        h.cover("full", self.inside == self.most)
        h.cover("marked_last", self.marks & (self.inside == self.most - 1))
        h.cover("delivered", self.passed)
        h.cover("waits", waited & self.o_valid)

    def answers(self, h: Harness, cycles: int) -> None:
        """Claim that an input enters or a result leaves at least once in `cycles` cycles in which the output is ready.

        Cycles in which the output is not ready may lie between and are not counted. The count restarts in a cycle in
        which no item is in the component or waits at its input.
        """
        idle = ~(self.i_valid | (self.inside != 0))
        claim_progress(h, "answers", self.accepts | self.delivers | idle, self.o_ready, cycles)

    def drains(self, h: Harness, cycles: int, valid: Value, ready: Value) -> None:
        """Claim that a component is empty after `cycles` cycles in which no input enters and results are accepted."""
        quiet = Signal(range(cycles + 1), name="quiet")
        with h.m.If(valid | ~ready):
            h.m.d.sync += quiet.eq(0)
        with h.m.Elif(quiet != cycles):
            h.m.d.sync += quiet.eq(quiet + 1)
        h.claim("drains", (quiet != cycles) | ((self.inside == 0) & ~self.o_valid))
        h.cover("drained", (quiet == cycles) & self.passed)


def constant(h: Harness, name: str, shape: ShapeLike) -> Signal:
    """Return a free variable that has the same value in all cycles."""
    value = h.free(name, shape)
    chosen, kept = Signal(reset_less=True, name=f"{name}_chosen"), Signal(shape, reset_less=True, name=f"{name}_kept")
    h.m.d.sync += [chosen.eq(1), kept.eq(value)]
    h.assume(~chosen | (kept == value))
    return value


def claim_chosen(h: Harness, quiet: Value) -> None:
    """Claim that `quiet` is 1 in the first cycle, in which free variables that stay constant get their values."""
    begun = Signal(name="begun")
    h.m.d.sync += begun.eq(1)
    h.claim("constants_are_chosen", begun | quiet)


def offered(h: Harness, name: str, source: Any, reset: Value) -> tuple[Any, Value, Any]:
    """Drive a stream's payload with a free value that is constant while the stream waits.

    Return the payload, whether the payload of the previous cycle still waits, and the payload of the previous cycle.
    """
    payload = h.free(name, source.payload.shape())
    h.m.d.comb += source.payload.eq(payload)
    waiting, before = Signal(name=f"{name}_waits"), Signal(payload.shape(), reset_less=True, name=f"{name}_before")
    h.m.d.sync += [waiting.eq(source.valid & ~source.ready & ~reset), before.eq(payload)]
    h.assume(~waiting | reset | (source.valid & (payload == before)))
    return payload, waiting, before


def bare(config: CoreConfig) -> CoreConfig:
    """Return a configuration with the array and pipeline of `config`, and with the smallest formats and widths."""
    small = {"formats": ("f16", "s8"), "scales": (), "alignment_bits": 24, "fp8_alignment_bits": 24}
    return replace(config, name="array", mux="mux4", **small)


#: Small array of dot-product units, for proofs about the surrounding logic, which is the same in all configurations.
SMALL_ARRAY = replace(bare(PRESETS["tiny"]), rows=4, columns=4)


def _core_cycles(config: CoreConfig) -> int:
    """Return the time in which a pipeline fills, waits and drains: an upper bound on the cycles to reach all covers."""
    return 2 * config.latency + 6


def _of_marked(h: Harness, flow: Flow, name: str, value: Value) -> Value:
    """Return a signal's value in the cycle in which the component accepted the one input that the proof marks."""
    kept = Signal(name=name)
    with h.m.If(flow.marks):
        h.m.d.sync += kept.eq(value)
    return kept


def assume_a_rule(h: Harness, control: Any) -> None:
    """Assume that the field `rule` of a control word holds the code of a metadata rule, not an unused code."""
    h.assume(Cat(control.rule == code for code in RuleCode).any())


def _nibbles(flow: Flow, count: int) -> Value:
    """Return metadata nibbles, illegal under every rule for the marked input, and legal for all other inputs."""
    return Cat(Cat(Const(0, 2), ~flow.marks, Const(0, 1)) for _ in range(count))


@CORE.property("order", lambda config: [(bare(config),)], cycles=_core_cycles)
def _core_order(h: Harness, config: CoreConfig) -> None:
    """An array of dot-product units loses, duplicates or reorders no results, whatever the gaps, stalls and resets.

    An offered result stays valid and unchanged until it is taken. A core can contain one tile for each pipeline stage.
    """
    reset = h.clocked()
    core = h.add("core", Core(config, 1, _ECHO))
    flow = Flow(h, reset, core.i, core.o, config.latency)
    outputs = config.rows * config.columns
    control = core.i.payload.control
    h.m.d.comb += [core.i.payload.tag.eq(flow.marks), control.eq(h.free("control", control_layout()))]
    assume_a_rule(h, control)
    sparse = _of_marked(h, flow, "marked_sparse", control.sparse)
    h.m.d.comb += [core.i.payload.c[index].eq(flow.marks) for index in range(outputs)]
    h.m.d.comb += [core.i.payload.metadata[row].eq(_nibbles(flow, 1)) for row in range(config.rows)]
    result = core.o.payload
    token = h.named("token", result.tag)
    flow.claim(h, token, Cat(result.tag, *(result.d[index][0] for index in range(outputs))), reset)
    for index in range(outputs):
        h.claim(f"output{index}", ~flow.o_valid | (result.d[index][0] == token))
    for row in range(config.rows):
        h.claim(f"flags{row}", ~flow.o_valid | (result.illegal[row][0] == (token & sparse)))
    h.claim("takes_what_it_can", ~core.o.ready | core.i.ready)
    h.cover("flags", flow.o_valid & token & sparse)
    flow.answers(h, config.latency + 1)
    flow.drains(h, config.latency, core.i.valid, core.o.ready)


@CORE.property("reset", lambda config: [(bare(config),)], cycles=_core_cycles)
def _core_reset(h: Harness, config: CoreConfig) -> None:
    """After a reset, no output of a dot-product array depends on earlier register contents, not even after power-up."""
    token = h.free("token")

    def drive(core: Core) -> list[Any]:
        return [core.i.payload.tag.eq(token)]

    _alike(h, [Core(config, 1, _ECHO) for _ in range(2)], drive, lambda core: [core.o.payload.tag])


def _alike(
    h: Harness, copies: Sequence[Any], drive: Callable[..., list[Any]], observe: Callable[..., Sequence[Value]]
) -> None:
    """Drive two copies of a component with equal inputs, and claim that their outputs are equal after a reset.

    The registers of the copies begin with different values. Each value that `observe` returns has a claim of its own:
    the fewer registers a claim depends on, the sooner the engine finds its invariant.
    """
    reset = h.clocked(any_state=True)
    valid, ready = h.free("i_valid"), h.free("o_ready")
    for name, copy in zip(("one", "other"), copies, strict=True):
        h.add(name, copy)
        h.m.d.comb += [copy.i.valid.eq(valid & ~reset), copy.o.ready.eq(ready & ~reset), *drive(copy)]
    one, other = copies
    h.claim("i_ready", reset | (one.i.ready == other.i.ready))
    h.claim("o_valid", reset | (one.o.valid == other.o.valid))
    for index, (value, same) in enumerate(zip(observe(one), observe(other), strict=True)):
        h.claim(f"payload{index}", reset | ~one.o.valid | (value == same))
    h.cover("began_apart", one.o.valid != other.o.valid)
    h.cover("delivers", ~reset & one.o.valid & one.o.ready)


def _warp_cycles(config: CoreConfig) -> int:
    """Return the time in which a warp executes two instructions: an upper bound on the cycles to reach all covers."""
    blocks, steps = _blocks_and_steps(config)
    return 2 * blocks * steps + 3 * config.latency + 8


def _blocks_and_steps(config: CoreConfig) -> tuple[int, int]:
    return ROWS * COLUMNS // (config.rows * config.columns), 2 if config.step_bytes == 16 else 1


def few_blocks(config: CoreConfig) -> CoreConfig:
    """Return the configuration, with a 4 x 4 array if its own array needs more than 8 cycles for 16 x 8 outputs."""
    return config if config.warp_blocks <= _FEW_BLOCKS else replace(config, rows=4, columns=4)


def _warps(config: CoreConfig) -> list[Parameters]:
    """Return one parameter set with the array of dot-product units, or no set if it cannot execute ``mma``."""
    return [(few_blocks(bare(config)),)] * config.serves_warp


def _warps_and_half_cores(config: CoreConfig) -> list[Parameters]:
    """Return the configuration's array of dot-product units and, if units take 32 bytes of A, a CTA's 8 x 4 array."""
    in_one_step = config.step_bytes == 32
    return [*_warps(config), *[(replace(bare(config), rows=8, columns=4),)] * in_one_step]


@WARP.property("order", _warps_and_half_cores, cycles=_warp_cycles)
def _warp_order(h: Harness, config: CoreConfig) -> None:
    """A warp loses, duplicates or reorders no instruction, and no result register has data of another instruction.

    All accumulator registers of an instruction carry its mark, and each result register must show the mark. Results of
    two instructions, steps or blocks therefore never mix. The proof covers f32 and f16 results and one step or two. An
    f16 result leaves two registers zero. Without new instructions, the warp drains. A warp needs at least one cycle per
    block of an item. A full warp with more than one block accepts no item.
    """
    reset = h.clocked()
    warp = h.add("warp", Warp(config, _ECHO))
    blocks, steps = _blocks_and_steps(config)
    flow = Flow(h, reset, warp.i, warp.o, 2 + config.latency // blocks)
    left = Signal(range(blocks + 1), name="blocks_left")
    h.m.d.sync += left.eq(Mux(reset, 0, Mux(flow.accepts, blocks - 1, left - (left != 0))))
    h.claim("interval", ~flow.accepts | (left == 0))
    if blocks > 1:
        h.claim("full", ~flow.accepts | (flow.inside != flow.most))
    operands, result = warp.i.payload, warp.o.payload
    control = h.free("control", control_layout())
    assume_a_rule(h, control)
    h.m.d.comb += [
        operands.control.eq(control),
        operands.long.eq(h.free("long")),
        *(register.eq(flow.marks.replicate(32)) for lane in operands.c for register in lane),
        *(lane.eq(_nibbles(flow, 8)) for lane in operands.e),
    ]
    half = _of_marked(h, flow, "half", operands.control.result == ResultCode.F16)
    sparse = _of_marked(h, flow, "marked_sparse", operands.control.sparse)
    token = h.named("token", result.d[0][0][0])
    flow.claim(h, token, Cat(token, result.d[LANES - 1][1], result.d[LANES - 1][3]), reset)
    for lane in range(LANES):
        for register in range(REGISTERS):
            mark = flow.awaited & ~half if register >= 2 else flow.awaited
            right = result.d[lane][register] == mark.replicate(32)
            h.claim(f"lane{lane}_register{register}", ~flow.o_valid | right)
    for row in range(ROWS):
        h.claim(f"flags{row}", ~flow.o_valid | (result.illegal[row][0] == (flow.awaited & sparse)))
    flow.answers(h, blocks * steps + config.latency + 2)
    flow.drains(h, 2 * blocks * steps + config.latency + 2, warp.i.valid, warp.o.ready)
    h.cover("half", flow.awaited & half & flow.delivers)


@WARP.property("reset", _warps, cycles=_warp_cycles)
def _warp_reset(h: Harness, config: CoreConfig) -> None:
    """After a reset, no output of a warp depends on earlier register contents, not even after power-up.

    Of each result register, bits n and n + 16 are compared, where n is the lane number modulo 16. In an f16 result,
    these two bits belong to two outputs. `warp.order` proves that all bits of a register are written alike.
    """
    token, control, long = h.free("token"), h.free("control", control_layout()), h.free("long")

    def drive(warp: Warp) -> list[Any]:
        operands = warp.i.payload
        registers = [register.eq(token.replicate(32)) for lane in operands.c for register in lane]
        return [operands.control.eq(control), operands.long.eq(long), *registers]

    def observe(warp: Warp) -> list[Value]:
        lanes = enumerate(warp.o.payload.d)
        return [Cat(Cat(register[n % 16], register[n % 16 + 16]) for register in lane) for n, lane in lanes]

    _alike(h, [Warp(config, _ECHO) for _ in range(2)], drive, observe)
