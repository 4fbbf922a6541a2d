"""Proofs about routing in an array of dot-product units: each receives its own operands, and has its own output.

The expected operands are written by hand from PTX, byte by byte, without the maps of the design or of the models.
"""

from dataclasses import replace
from itertools import product
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.config import CoreConfig
from ..rtl.core import Core, tile_layout
from ..rtl.metadata import RuleCode
from ..rtl.select import SelectStage
from ..rtl.unit import Unit
from .harness import Harness, changed, opened
from .metadata import legal
from .properties import Parameters
from .selection import assume_possible_width, is_wide, selected_byte
from .streams import CORE, bare

__all__ = ["CORE", "flags"]


#: Metadata nibble that selects the first two of four neighbouring elements of B.
_FIRST_TWO = 0b0100


class _Selecting(Unit):
    """Stand-in for a dot-product unit: it selects operands like the unit, and the harness sets its result."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config)
        self.select = SelectStage(config)
        self.word, self.exceeds = Signal(32), Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.select = select = self.select
        m.d.comb += [select.b.eq(self.step.b), select.selects.eq(self.step.selects)]
        m.d.comb += [self.result.d.eq(self.word), self.result.overflow.eq(self.exceeds)]
        return m


def _arrays(config: CoreConfig) -> list[Parameters]:
    return [(replace(bare(config), cuts=(), mux=config.mux),)]


def _partner(b: Value, nibbles: Value, byte: int, *, wide: bool, sparse: bool) -> Value:
    """Return the byte of a column of B that metadata selects for multiplication by a byte of stored A."""
    if not sparse:
        return b.word_select(byte, 8)
    unit_bytes = 2 if wide else 1
    stored, within = divmod(byte, unit_bytes)
    chunk, slot = divmod(stored, 2)
    index = nibbles.word_select(chunk, 4).word_select(slot, 2)
    units = [b.word_select((4 * chunk + unit) * unit_bytes + within, 8) for unit in range(4)]
    return Array(units)[index]


def flags(config: CoreConfig, nibbles: Value, control: data.View, wide: Value) -> Value:
    """Return one flag per metadata nibble: 1 if it is undefined. Rows of 16-bit elements have half as many nibbles."""
    flags = []
    for chunk in range(config.chunks):
        nibble = nibbles.word_select(chunk, 4)
        defined = Cat((control.rule == code) & legal(nibble, code) for code in RuleCode).any()
        is_used = ~wide if chunk >= config.chunks // 2 else 1
        flags.append(control.sparse & is_used & ~defined)
    return Cat(flags)


def _array(h: Harness, name: str, config: CoreConfig, tile: data.View) -> Any:
    core = h.add(name, opened(Core(config, 0, _Selecting)))
    h.m.d.comb += [core.i.payload.eq(tile), core.i.valid.eq(1), core.o.ready.eq(1)]
    return core


def _pairs(unit: _Selecting, *, wide: bool) -> list[Value]:
    """Return each stored byte of A, in order, with the byte of B by which a dot-product unit multiplies it."""
    stored, selected = unit.step.a, unit.select.selected
    places = [selected_byte(unit.config, byte, wide=wide) for byte in range(unit.config.step_bytes)]
    return [Cat(stored.word_select(byte, 8), selected.word_select(place, 8)) for byte, place in enumerate(places)]


def _multiplies(unit: _Selecting, tile: data.View, row: int, column: int, *, wide: bool, sparse: bool) -> Value:
    """Return whether a dot-product unit multiplies each stored byte of A with the byte of B that metadata selects.

    With 3:1 multiplexers the two stored units of a chunk may be exchanged, which changes no sum.
    """
    config, a, b, nibbles = unit.config, tile.a[row], tile.b[column], tile.metadata[row]
    muxed = _pairs(unit, wide=wide)
    expected = [
        Cat(a.word_select(byte, 8), _partner(b, nibbles, byte, wide=wide, sparse=sparse))
        for byte in range(config.step_bytes)
    ]
    if config.mux == "mux4" or not sparse:
        return Cat(muxed) == Cat(expected)
    size = 2 if wide else 1
    right = []
    for start in range(0, config.step_bytes, 2 * size):
        (first, second), (one, other) = (
            (Cat(part[start : start + size]), Cat(part[start + size : start + 2 * size])) for part in (muxed, expected)
        )
        right.append(((first == one) & (second == other)) | ((first == other) & (second == one)))
    return Cat(right).all()


@CORE.property("operands", _arrays)
def _operands(h: Harness, config: CoreConfig) -> None:
    """Every dot-product unit of an array multiplies its own row of A and column of B, paired as metadata selects.

    A unit gets the block scales of its row and column, and its own accumulator and control. Every result leaves at the
    output of its row and column. With 3:1 multiplexers, the claims hold for nibbles that the metadata rule defines, and
    for all rules except WGMMA.
    """
    tile = h.free("tile", tile_layout(config))
    core = _array(h, "core", config, tile)
    wide = is_wide(config, tile.control.a)
    assume_possible_width(h, config, wide)
    places = list(product(range(config.rows), range(config.columns)))
    words, overflows = h.free("words", data.ArrayLayout(32, len(places))), h.free("overflows", len(places))
    for output, (row, column) in enumerate(places):
        unit = core.parts[f"unit_{row}_{column}"]
        name = f"{row}_{column}"
        h.m.d.comb += [unit.word.eq(words[output]), unit.exceeds.eq(overflows[output])]
        for is_sparse, width in product((False, True), (False, True)):
            applies = (tile.control.sparse == is_sparse) & (wide == width)
            if config.mux == "mux3":
                applies &= ~flags(config, tile.metadata[row], tile.control, wide).any()
                applies &= tile.control.rule != RuleCode.WGMMA
            right = _multiplies(unit, tile, row, column, wide=width, sparse=is_sparse)
            h.claim(f"operands_{name}_{'sparse' if is_sparse else 'dense'}_{2 if width else 1}", ~applies | right)
        step = unit.step
        own = [
            step.scale_a == tile.scale_a[row],
            step.scale_b == tile.scale_b[column],
            step.c == tile.c[output],
            step.overflow == tile.overflow[output],
            step.control == tile.control,
        ]
        h.claim(f"own_{name}", Cat(own).all())
        result = core.o.payload
        h.claim(f"result_{name}", (result.d[output] == words[output]) & (result.overflow[output] == overflows[output]))
    first, last = (core.parts[f"unit_0_{column}"].select.selected for column in (0, config.columns - 1))
    h.cover("differ", tile.control.sparse & (first != last))


def _spread(b: Value, config: CoreConfig, *, wide: bool) -> Value:
    """Return a column of B for sparse A: of every four elements, two are from a dense column, and two are zero."""
    bits = 16 if wide else 8
    units = range(8 * config.step_bytes // bits // 2)
    return Cat(Cat(b.word_select(2 * n, bits), b.word_select(2 * n + 1, bits), Const(0, 2 * bits)) for n in units)


@CORE.property("dense", _arrays)
def _dense(h: Harness, config: CoreConfig) -> None:
    """With dense A, multipliers get the same operands as with sparse A whose nibbles select elements 0 and 1 of four.

    In the sparse step, the first two of the four units of B in each chunk contain the elements of the dense step, and
    the other two units are zero. The dense step raises no flag, whatever its metadata and rule.
    """
    tile = h.free("tile", tile_layout(config))
    h.assume(tile.control.sparse == 0)
    wide = is_wide(config, tile.control.a)
    assume_possible_width(h, config, wide)
    kept = Cat(Const(_FIRST_TWO, 4) for _ in range(config.rows * config.chunks))
    control = changed(tile.control, sparse=Const(1), rule=Const(RuleCode.ORDERED, RuleCode))
    dense = _array(h, "dense", config, tile)
    for width in (False, True):
        b = Cat(_spread(tile.b[column], config, wide=width) for column in range(config.columns))
        changed_tile = Signal(tile_layout(config), name=f"sparse_tile_{width}")
        h.m.d.comb += changed_tile.as_value().eq(changed(tile, b=b, metadata=kept, control=control))
        sparse = _array(h, f"sparse_{2 if width else 1}", config, changed_tile)
        for row, column in product(range(config.rows), range(config.columns)):
            pairs = (_pairs(array.parts[f"unit_{row}_{column}"], wide=width) for array in (dense, sparse))
            same = [one == other for one, other in zip(*pairs, strict=True)]
            h.claim(f"same_{row}_{column}_{2 if width else 1}", (wide != width) | Cat(same).all())
    h.claim("no_flag", ~dense.o.payload.illegal.as_value().any())
    h.cover("metadata", tile.metadata.as_value().any())


@CORE.property("validity", _arrays)
def _validity(h: Harness, config: CoreConfig) -> None:
    """An array of dot-product units flags exactly the metadata nibbles that the metadata rule does not define.

    A nibble, defined or not, changes nothing outside its own row and chunk: no flag, and no pair of operands.
    """
    tile, nibble = h.free("tile", tile_layout(config)), h.free("nibble", 4)
    wide = is_wide(config, tile.control.a)
    assume_possible_width(h, config, wide)
    chunk = h.free("chunk", range(config.chunks))
    first = _array(h, "first", config, tile)
    for row in range(config.rows):
        illegal = first.o.payload.illegal[row]
        h.claim(f"flags_{row}", illegal == flags(config, tile.metadata[row], tile.control, wide))
        h.cover(f"flags_{row}", illegal.all())
    # The two copies of the dot-product array have equal inputs, except one metadata nibble of the last row. Nibbles of
    # other rows need no proof, because all rows have the same hardware.
    last = config.rows - 1
    exchanged = Cat(Mux(chunk == n, nibble, tile.metadata[last].word_select(n, 4)) for n in range(config.chunks))
    metadata = Cat(*(tile.metadata[row] for row in range(last)), exchanged)
    changed_tile = Signal(tile_layout(config), name="exchanged_tile")
    h.m.d.comb += changed_tile.as_value().eq(changed(tile, metadata=metadata))
    second = _array(h, "second", config, changed_tile)
    differing = first.o.payload.illegal.as_value() ^ second.o.payload.illegal.as_value()
    h.claim("other_flags", differing & ~(Const(1, len(differing)) << (last * config.chunks + chunk)) == 0)
    for row, column, width in product(range(config.rows), range(config.columns), (False, True)):
        of_chunk = 4 if width else 2
        pairs = (_pairs(array.parts[f"unit_{row}_{column}"], wide=width) for array in (first, second))
        same = [
            (one == other) | ((chunk == byte // of_chunk) if row == last else 0)
            for byte, (one, other) in enumerate(zip(*pairs, strict=True))
        ]
        h.claim(f"others_{row}_{column}_{2 if width else 1}", (wide != width) | Cat(same).all())
    h.cover("illegal", differing.any())
    one, other = (Cat(_pairs(array.parts[f"unit_{last}_0"], wide=False)) for array in (first, second))
    h.cover("moved", one != other)
