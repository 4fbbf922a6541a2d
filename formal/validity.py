"""Metadata from end to end: the flags of a result, for all metadata words.

In a warp, for every metadata word, rule and format, the flags of a result name exactly the chunks whose nibble the rule
does not define. Places in registers are written by hand from PTX, as in :mod:`~sptc.formal.gathering`. What an array
does with the nibbles of a block is proved separately (``core.operands``, ``core.validity``). The other two tops contain
warps: ``wgmma.order`` and ``tcgen05.order`` prove that each warp gets the metadata of its own rows, and
``wgmma.shared`` and ``tcgen05.results`` that its flags return beside its own results.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value

from ..rtl.config import CoreConfig
from ..rtl.unit import Unit
from ..rtl.warp import Warp
from .gathering import Block, Held, OpenWarp, counted, offer
from .harness import Harness
from .properties import Parameters, Topic
from .routing import flags
from .selection import assume_held_width
from .sizes import ROWS
from .streams import assume_a_rule, bare, few_blocks

__all__ = ["VALIDITY"]

VALIDITY = Topic("validity")
_CHUNKS = 16


class _Silent(Unit):
    """Stands for a unit; its results are not checked."""

    def elaborate(self, platform: object) -> Module:
        return Module()


def _of_blocks(h: Harness, name: str, block: Value, size: int, each: Sequence[Value]) -> list[Signal]:
    """Return the entries of the rows or columns of the current block, from those of all blocks."""
    return [h.named(f"{name}{index}", Array(each[index::size])[block]) for index in range(size)]


def _claim_flags(
    h: Harness, config: CoreConfig, warp: Warp, block: Block, nibbles: Sequence[Value], held: Held
) -> None:
    """Claim that a result has the flags of its instruction, which the harness records row by row.

    The registers that become the result have them as well, which makes the claims inductive. Without pipeline registers
    an issued block comes back in the same cycle. A second step's flags are those of the second half of the chunks.
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
    """Cycles in which a warp takes an instruction and delivers its result, and three more."""
    return 2 * config.warp_blocks + 4


@VALIDITY.property("warp", _warps, cycles=_warp_cycles)
def _of_registers(h: Harness, config: CoreConfig) -> None:
    """The flags of a result name exactly the chunks whose nibble, in the metadata registers, the rule does not define.

    This covers every metadata word, sparsity selector, rule and width, and one step or two. A dense instruction has no
    flags.
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
