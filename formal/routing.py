"""Routing: every unit of an array gets what is its own, and what it gives leaves at its own place.

What is wanted is spelled by hand from the manual, byte by byte: no map of the design or of the models is asked.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib import data

from ..rtl.codes import is_wide
from ..rtl.config import CoreConfig
from ..rtl.core import Core, tile_layout
from ..rtl.metadata import RuleCode
from ..rtl.order import selected_byte
from ..rtl.select import SelectStage
from ..rtl.unit import Unit
from .harness import Harness, Opened
from .metadata import legal
from .properties import Parameters
from .selection import assume_held_width
from .streams import CORE, bare

__all__ = ["CORE"]


class _Selecting(Unit):
    """Stands for a unit: it selects, and its result is any."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config)
        self.select = SelectStage(config)
        self.word, self.left = Signal(32), Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.select = select = self.select
        m.d.comb += [select.b.eq(self.step.b), select.selects.eq(self.step.selects)]
        m.d.comb += [self.result.d.eq(self.word), self.result.overflow.eq(self.left)]
        return m


class _OpenCore(Opened, Core):
    """A core, whose units can be spoken of."""


def _arrays(config: CoreConfig) -> Iterator[Parameters]:
    """With 3:1 multiplexers slots may trade places, which this does not speak of."""
    if config.mux == "mux4":
        yield (replace(bare(config), cuts=()),)


def _partner(b: Value, nibbles: Value, byte: int, *, wide: bool, sparse: bool) -> Value:
    """Return the byte of a column that meets a stored byte: two of each four units are kept, as their indices say."""
    if not sparse:
        return b.word_select(byte, 8)
    unit_bytes = 2 if wide else 1
    stored, within = divmod(byte, unit_bytes)
    chunk, slot = divmod(stored, 2)
    index = nibbles.word_select(chunk, 4).word_select(slot, 2)
    units = [b.word_select((4 * chunk + unit) * unit_bytes + within, 8) for unit in range(4)]
    return Array(units)[index]


def _flags(config: CoreConfig, nibbles: Value, control: data.View, wide: Value) -> Value:
    """Return the chunks whose nibble the rule does not define; wide elements have half as many."""
    flags = []
    for chunk in range(config.chunks):
        nibble = nibbles.word_select(chunk, 4)
        defined = Cat((control.rule == code) & legal(nibble, code) for code in RuleCode).any()
        there = ~wide if chunk >= config.chunks // 2 else 1
        flags.append(control.sparse & there & ~defined)
    return Cat(flags)


@CORE.property("operands", _arrays)
def _operands(h: Harness, config: CoreConfig) -> None:
    """Every unit of an array multiplies its own row of A and column of B, element by element as the metadata says.

    It gets the block scales of its row and column, its own accumulator and control; every result leaves at the place of
    its row and column, and every flag at that of its row and chunk.
    """
    core = h.add("core", _OpenCore(config, 0, _Selecting))
    tile = h.free("tile", tile_layout(config))
    h.m.d.comb += [core.i.payload.eq(tile), core.i.valid.eq(1), core.o.ready.eq(1)]
    wide = is_wide(config, tile.control.a)
    assume_held_width(h, config, wide)
    places = list(product(range(config.rows), range(config.columns)))
    given, left = h.free("given", data.ArrayLayout(32, len(places))), h.free("left", len(places))
    for output, (row, column) in enumerate(places):
        unit = getattr(core.parts, f"unit_{row}_{column}")
        name, a, b = f"{row}_{column}", tile.a[row], tile.b[column]
        h.m.d.comb += [unit.word.eq(given[output]), unit.left.eq(left[output])]
        for is_sparse, width in product((False, True), (False, True)):
            pairs = [
                unit.select.selected.word_select(selected_byte(config, byte, wide=width), 8)
                == _partner(b, tile.metadata[row], byte, wide=width, sparse=is_sparse)
                for byte in range(config.step_bytes)
            ]
            applies = (tile.control.sparse == is_sparse) & (wide == width)
            h.claim(f"operands_{name}_{'sparse' if is_sparse else 'dense'}_{2 if width else 1}",
                    ~applies | Cat(pairs).all())  # fmt: skip
        step = unit.step
        own = [
            step.a == a,
            step.scale_a == tile.scale_a[row],
            step.scale_b == tile.scale_b[column],
            step.c == tile.c[output],
            step.overflow == tile.overflow[output],
            step.control == tile.control,
        ]
        h.claim(f"own_{name}", Cat(own).all())
        result = core.o.payload
        h.claim(f"result_{name}", (result.d[output] == given[output]) & (result.overflow[output] == left[output]))
    for row in range(config.rows):
        flags = _flags(config, tile.metadata[row], tile.control, wide)
        h.claim(f"flags_{row}", core.o.payload.illegal[row] == flags)
        h.cover(f"flags_{row}", core.o.payload.illegal[row].all())
    first, last = (getattr(core.parts, f"unit_0_{column}").select.selected for column in (0, config.columns - 1))
    h.cover("differ", tile.control.sparse & (first != last))
