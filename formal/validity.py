"""Proof that results flag undefined metadata nibbles correctly, for all contents of the metadata registers.

In a warp, for every metadata word, rule and format, the flags of a result name exactly the chunks whose nibble the rule
does not define. Positions in registers are written by hand from PTX, as in :mod:`~sptc.formal.gathering`. The use of
the nibbles in an array is proved separately (``core.operands``, ``core.validity``). The hardware of ``wgmma`` and of
``tcgen05`` contains warps: ``wgmma.order`` and ``tcgen05.order`` prove that each warp gets the metadata of its own
rows, and ``wgmma.shared`` and ``tcgen05.results`` prove that its flags are output together with its own results.
"""

from collections.abc import Iterator
from dataclasses import replace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal

from ..rtl.config import CoreConfig
from ..rtl.unit import Unit
from ..rtl.warp import Warp
from .gathering import IssuedInstruction, counted, offer
from .harness import Harness, opened, stand_in
from .properties import Parameters, Topic
from .routing import flags
from .selection import assume_possible_width
from .sizes import ROWS
from .streams import assume_a_rule, bare, few_blocks

__all__ = ["VALIDITY"]

VALIDITY = Topic("validity")
_CHUNKS = 16


def _warps(config: CoreConfig) -> Iterator[Parameters]:
    if config.serves_warp:
        yield (few_blocks(replace(bare(config), cuts=(), mux=config.mux)),)


# Upper bound on the cycles needed to reach every cover condition: the time in which a warp accepts an instruction and
# delivers its result.
@VALIDITY.property("warp", _warps, cycles=lambda config: 2 * config.warp_blocks + 4)
def _of_registers(h: Harness, config: CoreConfig) -> None:
    """A result flags exactly the nibbles in the metadata registers that the metadata rule does not define.

    The proof covers every metadata word, sparsity selector, rule and element width, and one step or two. A dense
    instruction has no flags.
    """
    h.assume(~h.clocked())
    warp = h.add("warp", opened(Warp(config, stand_in(Unit, lambda _: Module()))))
    h.m.d.comb += [warp.i.valid.eq(h.free("i_valid")), warp.o.ready.eq(h.free("o_ready"))]
    offer(h, warp, "e")
    instruction, core = IssuedInstruction(h, config, warp), warp.parts.core
    assume_possible_width(h, config, instruction.wide)
    assume_a_rule(h, warp.i.payload.control)
    block = counted(h, "issued", config, core.i.valid & core.i.ready, core.i.payload.tag.last)
    of_rows = [instruction.metadata(row, block.step[0]) for row in range(ROWS)]
    nibbles = [h.named(f"nibbles{i}", Array(of_rows[i :: config.rows])[block.row]) for i in range(config.rows)]
    # The harness records the flags of each row. The claims hold for the result registers in every cycle, not only while
    # the result is valid, so they are inductive. Without pipeline registers, the dot-product units return flags in the
    # cycle in which they get operands. The second of two steps along K sets the second half of a row's flags.
    for i, row_nibbles in enumerate(nibbles):
        first = flags(config, row_nibbles, instruction.words.control, instruction.wide)
        second = Mux(instruction.wide, Cat(Const(0, config.chunks // 2), first), Cat(Const(0, config.chunks), first))
        for number in range(ROWS // config.rows):
            row = number * config.rows + i
            kept = Signal(_CHUNKS, reset_less=True, name=f"flags_{row}")
            with h.m.If(block.happens & (block.row == number)):
                h.m.d.sync += kept.eq(Mux(block.step[0], kept | second, first))
            h.claim(f"flags{row}", warp.o.payload.illegal[row] == kept)
    h.cover("flagged", warp.o.valid & warp.o.payload.illegal[ROWS - 1][-1])
