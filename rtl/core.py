"""The core: an array of rows x columns dot-product units with stream ports."""

from itertools import product

from amaranth.hdl import Cat, Module, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .cells.pipeline import delayed
from .codes import is_wide
from .config import CoreConfig
from .metadata import MetadataStage
from .order import ColumnOrder, RowOrder
from .step import ACCUMULATOR, block_scales, control_layout
from .unit import Unit

__all__ = ["Core", "tile_layout", "tile_result_layout"]


def tile_layout(config: CoreConfig, tag_shape: ShapeLike = 0) -> DescribedLayout:
    """Return the layout of the operands that an array of rows x columns dot-product units takes in one cycle."""
    outputs = config.rows * config.columns
    metadata = "Metadata nibbles of each row: nibble c, counted from the lowest bits, belongs to chunk c. "
    metadata = f"{metadata}Ignored in dense steps." if config.sparse else "Ignored: this datapath has no metadata."
    a = "Stored elements of each row of A, lowest k in the lowest bits."
    b = "Elements of each column of B, lowest k in the lowest bits. A dense step uses only the low half."
    overflow = (
        "Overflow outputs of the previous step of the same integer instruction, row by row, or 0 in its first step: if "
        "1, the sign of the accumulator is the inverse of bit 31. Ignored for floats."
    )
    return DescribedLayout(
        {
            "control": (control_layout(), "Control word of the step, for all units."),
            "a": (data.ArrayLayout(8 * config.step_bytes, config.rows), a),
            "metadata": (data.ArrayLayout(4 * config.chunks, config.rows), metadata),
            "scale_a": (data.ArrayLayout(32, config.rows), block_scales(config, "each row of A")),
            "b": (data.ArrayLayout(16 * config.step_bytes, config.columns), b),
            "scale_b": (data.ArrayLayout(32, config.columns), block_scales(config, "each column of B")),
            "c": (data.ArrayLayout(32, outputs), f"Accumulators of the outputs, row by row. {ACCUMULATOR}"),
            "overflow": (outputs, overflow),
            "tag": (tag_shape, "Tag that is output with the result of the step."),
        }
    )


def tile_result_layout(config: CoreConfig, tag_shape: ShapeLike = 0) -> DescribedLayout:
    """Return the layout of the results that an array of rows x columns dot-product units returns for one cycle."""
    outputs = config.rows * config.columns
    d = "Results of the outputs, row by row, in the format of control.result; an f16 is in the low half of 32 bits."
    overflow = (
        "Flags of the outputs, row by row: an integer sum exceeded 32 bits and was not clamped. Input overflow of the "
        "next step of the same instruction must have this value."
    )
    illegal = "Flags of undefined metadata [row][chunk]: 1 if control.rule does not define the nibble of the chunk."
    return DescribedLayout(
        {
            "d": (data.ArrayLayout(32, outputs), d),
            "overflow": (outputs, overflow),
            "illegal": (data.ArrayLayout(config.chunks, config.rows), illegal),
            "tag": (tag_shape, "Tag of the step that has this result."),
        }
    )


class Core(wiring.Component):
    """An array of rows x columns dot-product units that share operands along rows and columns, with stream ports.

    Logic that all units of a row or a column share is built once, before these units: the multiplexers that reorder
    their operands, and the metadata decoder of a row.

    One tile (the operands of one step for all units) enters and one result leaves each cycle. The latency is
    ``config.latency`` cycles while results are taken. A result that is not taken stalls the whole pipeline; nothing is
    lost. Results keep the order of the tiles.

    Parameters
    ----------
    config : CoreConfig
        Configuration of the dot-product units and of the array.
    tag_shape : shape-like
        Shape of a tag that accompanies each tile to its result.
    unit_class : type
        Class of the units: :class:`~sptc.rtl.unit.Unit`, or a component with the same ports.
    """

    def __init__(self, config: CoreConfig, tag_shape: ShapeLike = 0, unit_class: type[Unit] = Unit) -> None:
        self.config = config
        self.unit_class = unit_class
        self.tag_shape = tag_shape
        i = "Steps: operands of all units for one step along K, one step per transfer."
        o = f"Results of the steps, in order, with a latency of {config.latency} cycles if no result is stalled."
        ports = {
            "i": (In(stream.Signature(tile_layout(config, tag_shape))), i),
            "o": (Out(stream.Signature(tile_result_layout(config, tag_shape))), o),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the array of dot-product units and the pipeline control."""
        m = Module()
        config = self.config
        advance = Signal()
        tile, result = self.i.payload, self.o.payload
        wide = is_wide(config, tile.control.a)
        rows = [self._row(m, row, wide) for row in range(config.rows)] if config.sparse else []
        columns = [self._column(m, column, wide) for column in range(config.columns)]
        for output, (row, column) in enumerate(product(range(config.rows), range(config.columns))):
            m.submodules[f"unit_{row}_{column}"] = unit = self.unit_class(config)
            m.d.comb += [
                unit.enable.eq(advance),
                unit.step.control.eq(tile.control),
                unit.step.scale_a.eq(tile.scale_a[row]),
                unit.step.b.eq(columns[column]),
                unit.step.scale_b.eq(tile.scale_b[column]),
                unit.step.c.eq(tile.c[output]),
                unit.step.overflow.eq(tile.overflow[output]),
                result.d[output].eq(unit.result.d),
                result.overflow[output].eq(unit.result.overflow),
            ]
            if config.sparse:
                m.d.comb += [unit.step.a.eq(rows[row].stored), unit.step.selects.eq(rows[row].selects)]
            else:
                m.d.comb += unit.step.a.eq(tile.a[row])
        for row, decode in enumerate(rows):
            flags = delayed(m, decode.illegal, config.latency, advance, f"illegal_{row}")
            m.d.comb += result.illegal[row].eq(flags)
        m.d.comb += result.tag.eq(delayed(m, tile.tag, config.latency, advance, "tag"))
        if not config.latency:
            m.d.comb += [advance.eq(1), self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
            return m
        # One enable signal controls all pipeline stages, so the stages need no handshakes. While a result waits at the
        # output, all stages stop, even if later stages are empty. The highest bit of `occupied` is set while the output
        # has a result.
        occupied = Signal(config.latency)
        m.d.comb += [
            self.o.valid.eq(occupied[-1]),
            advance.eq(self.o.ready | ~self.o.valid),
            self.i.ready.eq(advance),
        ]
        with m.If(advance):
            m.d.sync += occupied.eq(Cat(self.i.valid, occupied)[: config.latency])
        return m

    def _row(self, m: Module, row: int, wide: Value) -> MetadataStage:
        """Reorder and decode the metadata of one row of A, for all dot-product units in this row of the array."""
        tile = self.i.payload
        m.submodules[f"order_row_{row}"] = order = RowOrder(self.config)
        m.submodules[f"decode_row_{row}"] = decode = MetadataStage(self.config)
        m.d.comb += [
            order.natural.eq(tile.metadata[row]),
            order.wide.eq(wide),
            order.sparse.eq(tile.control.sparse),
            decode.a.eq(tile.a[row]),
            decode.nibbles.eq(order.ordered),
            decode.wide.eq(wide),
            decode.sparse.eq(tile.control.sparse),
            decode.rule.eq(tile.control.rule),
        ]
        return decode

    def _column(self, m: Module, column: int, wide: Value) -> Value:
        """Reorder the elements of B for one column of the array, for all dot-product units of the column."""
        tile = self.i.payload
        m.submodules[f"order_column_{column}"] = order = ColumnOrder(self.config)
        m.d.comb += [
            order.natural.eq(tile.b[column]),
            order.wide.eq(wide),
            order.sparse.eq(tile.control.sparse),
        ]
        return order.ordered
