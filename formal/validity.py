"""Metadata from end to end: the flags of a result, wherever the bits of metadata come from.

Of a warp: for every metadata word, rule and format the flags of a result name exactly the chunks whose nibble the rule
does not define. Places are spelled by hand from the manual, as in :mod:`~sptc.formal.gathering`. What an array does
with the nibbles of a block is proved by itself (``core.operands``, ``core.validity``). The other two tops are made of
warps: that each is given the metadata of its own rows is ``wgmma.order`` and ``tcgen05.order``, and that its flags come
back beside its own results ``wgmma.shared`` and ``tcgen05.results``.
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
