"""Metadata from end to end: the flags of a result, wherever the bits of metadata come from.

Of each top, a warp and a warp of ``wgmma``: for every metadata word, rule and format the flags of a result name exactly
the chunks whose nibble the rule does not define. Places are spelled by hand from the manual, as in
:mod:`~sptc.formal.gathering`. What an array does with the nibbles of a block is proved by itself (``core.operands``,
``core.validity``), and so are the words that a reader of tensor memory gives a warp (``tensor_memory.registers``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value

from ..rtl.codes import is_wide
from ..rtl.config import CoreConfig
from ..rtl.tensor_memory import WORD_BITS
from ..rtl.unit import Unit
from ..rtl.warp import ROWS, Warp
from ..rtl.wgmma import WgmmaWarp, wgmma_layout
from .gathering import Block, Held, OpenWarp, counted, nibbles_of, offer
from .harness import Harness
from .properties import Parameters, Topic
from .routing import flags
from .selection import assume_held_width
from .streams import assume_a_rule, bare, few_blocks
from .wgmma import at_once

__all__ = ["VALIDITY"]

VALIDITY = Topic("validity")
_CHUNKS = 16


class _Silent(Unit):
    """Stands for a unit: results are not looked at."""

    def elaborate(self, platform: object) -> Module:
        return Module()


def _of_blocks(h: Harness, name: str, block: Value, size: int, each: Sequence[Value]) -> list[Signal]:
    """Return what belongs to each row or column of the block that is meant, of all that there are."""
    return [h.named(f"{name}{index}", Array(each[index::size])[block]) for index in range(size)]


def _claim_flags(
    h: Harness, config: CoreConfig, warp: Warp, block: Block, nibbles: Sequence[Value], held: Held
) -> None:
    """State that a result has the flags of its instruction, which are kept row by row beside the hardware.

    So do the registers that become the result, which makes the claims an invariant. Without registers between them,
    what is issued comes back at once; a second step's flags are of the second half of the chunks.
    """
    for i, row_nibbles in enumerate(nibbles):
        found = flags(config, row_nibbles, held.words.control, held.wide)
        second = Mux(held.wide, Cat(Const(0, config.chunks // 2), found), Cat(Const(0, config.chunks), found))
        for number in range(ROWS // config.rows):
            row = number * config.rows + i
            kept = Signal(_CHUNKS, reset_less=True, name=f"flags_{row}")
            with h.m.If(block.happens & (block.row == number)):
                h.m.d.sync += kept.eq(Mux(block.step[0], kept | second, found))
            h.claim(f"flags{row}", warp.o.payload.illegal[row] == kept)
    h.cover("flagged", warp.o.valid & warp.o.payload.illegal[ROWS - 1][-1])


def _warps(config: CoreConfig) -> Iterator[Parameters]:
    if config.serves_warp:
        yield (few_blocks(replace(bare(config), cuts=(), mux=config.mux)),)


def _warp_cycles(config: CoreConfig) -> int:
    """Cycles in which a warp takes an instruction and gives its result, and three more."""
    return 2 * config.warp_blocks + 4


@VALIDITY.property("warp", _warps, cycles=_warp_cycles)
def _of_registers(h: Harness, config: CoreConfig) -> None:
    """The flags of a result name exactly the chunks whose nibble, in the metadata registers, the rule does not define.

    For every metadata word, sparsity selector, rule and width, one step and two; a dense instruction has none.
    """
    h.assume(~h.clocked())
    warp = h.add("warp", OpenWarp(config, _Silent))
    h.m.d.comb += [warp.i.valid.eq(h.free("i_valid")), warp.o.ready.eq(h.free("o_ready"))]
    offer(h, warp, "e")
    held, core = Held(h, config, warp), warp.parts.core
    assume_held_width(h, config, held.wide)
    assume_a_rule(h, warp.i.payload.control)
    block = counted(h, "issued", config, core.i.valid & core.i.ready, core.i.payload.tag.last)
    nibbles = [held.metadata(row, block.step[0]) for row in range(ROWS)]
    _claim_flags(h, config, warp, block, _of_blocks(h, "nibbles", block.row, config.rows, nibbles), held)


class _Flagging(Warp):
    """Stands for a warp of instructions with long K: one item deep, its flags those of its operands' metadata."""

    def elaborate(self, platform: object) -> Module:
        m, full, operands = Module(), Signal(), self.i.payload
        m.d.comb += [self.i.ready.eq(~full | self.o.ready), self.o.valid.eq(full)]
        with m.If(self.i.ready):
            m.d.sync += full.eq(self.i.valid)
        for row in range(ROWS):
            kept = Signal(_CHUNKS, reset_less=True, name=f"illegal_{row}")
            found = _flags_of_row(m, self.config, operands, row)
            with m.If(self.i.ready):
                m.d.sync += kept.eq(found)
            m.d.comb += self.o.payload.illegal[row].eq(kept)
        return m


def _flags_of_row(m: Module, config: CoreConfig, operands: Any, row: int) -> Value:
    """Return a row's flags by the metadata registers of an instruction with long K, at the width of a whole row."""
    whole, control, wide = replace(config, step_bytes=32), operands.control, is_wide(config, operands.control.a)
    found = [
        Mux(
            wide,
            Cat(nibbles_of(operands.e, row, wide=True, long=True, selector=selector)),
            Cat(nibbles_of(operands.e, row, wide=False, long=True, selector=selector)),
        )
        for selector in range(2)
    ]
    nibbles = Signal(4 * _CHUNKS, name=f"nibbles_{row}")
    m.d.comb += nibbles.eq(Mux(operands.sparsity_selector[0], found[1], found[0]))
    return flags(whole, nibbles, control, wide)


@VALIDITY.property("wgmma", _warps, cycles=lambda config: 8)
def _of_a_warpgroup(h: Harness, config: CoreConfig) -> None:
    """The flags of every result of ``wgmma`` are those of its own instruction's metadata.

    For every metadata word, selector, rule and width, with gaps, stalls and resets anywhere; what multiplies stands for
    a warp whose flags are right.
    """
    reset, taken = h.clocked(), Signal()
    wgmma = h.add("wgmma", WgmmaWarp(config, _Silent, _Flagging, at_once(Const(0, WORD_BITS), taken)))
    asked = wgmma.i.payload
    fields = ("control", "e", "sparsity_selector", "a_shared", "last_panel")
    h.m.d.comb += [
        wgmma.i.valid.eq(h.free("i_valid") & ~reset),
        wgmma.c.valid.eq(h.free("c_valid") & ~reset),
        wgmma.o.ready.eq(h.free("o_ready") & ~reset),
        *(asked[name].eq(h.free(name, wgmma_layout()[name].shape)) for name in fields),
    ]
    assume_a_rule(h, asked.control)
    assume_held_width(h, config, is_wide(config, asked.control.a))
    current = Signal(wgmma_layout(), reset_less=True, name="current")
    with h.m.If(wgmma.i.valid & wgmma.i.ready):
        h.m.d.sync += current.eq(asked)
    accepts = h.named("accepts", wgmma.c.valid & wgmma.c.ready)
    for row in range(ROWS):
        kept = Signal(_CHUNKS, reset_less=True, name=f"flags_{row}")
        found = _flags_of_row(h.m, config, current, row)
        with h.m.If(accepts):
            h.m.d.sync += kept.eq(found)
        h.claim(f"flags{row}", ~wgmma.o.valid | (wgmma.o.payload.illegal[row] == kept))
    h.cover("flagged", wgmma.o.valid & wgmma.o.payload.illegal[ROWS - 1][-1])
