"""An array of dot-product units behind streams."""

from amaranth.hdl import Cat, Module, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .codes import runs_wide
from .config import CoreConfig
from .order import ColumnOrder, RowOrder
from .step import control_layout
from .unit import Unit

__all__ = ["Core", "tile_layout", "tile_result_layout"]


def tile_layout(config: CoreConfig, tag_shape: ShapeLike = 0) -> data.StructLayout:
    """Return the layout of what a core takes each cycle: one step of rows x columns outputs.

    Fields
    ------
    control : control_layout()
        What to do, for all units.
    a, metadata, scale_a : array of rows
        Operands of each row, as in :func:`~sptc.rtl.step.step_layout`.
    b, scale_b : array of columns
        Operands of each column.
    c, overflow : array of rows * columns, and as many bits
        Accumulators, row by row.
    tag : tag_shape
        Returned with the result.
    """
    outputs = config.rows * config.columns
    return data.StructLayout(
        {
            "control": control_layout(),
            "a": data.ArrayLayout(8 * config.step_bytes, config.rows),
            "metadata": data.ArrayLayout(4 * config.chunks, config.rows),
            "scale_a": data.ArrayLayout(32, config.rows),
            "b": data.ArrayLayout(16 * config.step_bytes, config.columns),
            "scale_b": data.ArrayLayout(32, config.columns),
            "c": data.ArrayLayout(32, outputs),
            "overflow": outputs,
            "tag": tag_shape,
        }
    )


def tile_result_layout(config: CoreConfig, tag_shape: ShapeLike = 0) -> data.StructLayout:
    """Return the layout of a core's result.

    Fields
    ------
    d, overflow : array of rows * columns, and as many bits
        Results, row by row.
    illegal : array of rows
        Chunks of each row whose nibble the rule does not define.
    tag : tag_shape
        The tile's.
    """
    outputs = config.rows * config.columns
    return data.StructLayout(
        {
            "d": data.ArrayLayout(32, outputs),
            "overflow": outputs,
            "illegal": data.ArrayLayout(config.chunks, config.rows),
            "tag": tag_shape,
        }
    )


class Core(wiring.Component):
    """Rows x columns of units that share operands, as a stream processor.

    One tile enters and one result leaves each cycle. Latency ``config.latency`` cycles while the output is taken; a
    result that is not taken stops the whole pipeline, and nothing is lost. Results keep the order of the tiles.

    Parameters
    ----------
    config : CoreConfig
        Units and array.
    tag_shape : shape-like
        Of a tag that accompanies each tile to its result.

    unit_class : type
        What is repeated: :class:`~sptc.rtl.unit.Unit`, or a component with the same ports that stands for it.

    Members
    -------
    i : In(stream of tile_layout(config))
        Tiles.
    o : Out(stream of tile_result_layout(config))
        Results.
    """

    def __init__(self, config: CoreConfig, tag_shape: ShapeLike = 0, unit_class: type[Unit] = Unit) -> None:
        self.config = config
        self.unit_class = unit_class
        self.tag_shape = tag_shape
        super().__init__(
            {
                "i": In(stream.Signature(tile_layout(config, tag_shape))),
                "o": Out(stream.Signature(tile_result_layout(config, tag_shape))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the array and the control of the pipeline."""
        m = Module()
        config = self.config
        advance = Signal()
        wide = runs_wide(config, self.i.payload.control.a)
        rows = [RowOrder(config) for _ in range(config.rows)]
        columns = [ColumnOrder(config) for _ in range(config.columns)]
        for name, orders, field in (("row", rows, "metadata"), ("column", columns, "b")):
            for place, (order, value) in enumerate(zip(orders, getattr(self.i.payload, field), strict=True)):
                m.submodules[f"order_{name}_{place}"] = order
                m.d.comb += [
                    order.natural.eq(value),
                    order.wide.eq(wide),
                    order.sparse.eq(self.i.payload.control.sparse),
                ]
        for row in range(config.rows):
            for column in range(config.columns):
                m.submodules[f"unit_{row}_{column}"] = unit = self.unit_class(config)
                m.d.comb += unit.enable.eq(advance)
                self._connect(m, unit, row, column, rows[row].ordered, columns[column].ordered)
        if not config.latency:
            m.d.comb += [
                self.o.payload.tag.eq(self.i.payload.tag),
                advance.eq(1),
                self.o.valid.eq(self.i.valid),
                self.i.ready.eq(self.o.ready),
            ]
            return m
        occupied = Signal(config.latency)
        tags = [Signal(self.tag_shape, name=f"tag_{stage}", reset_less=True) for stage in range(config.latency)]
        m.d.comb += [
            self.o.valid.eq(occupied[-1]),
            advance.eq(self.o.ready | ~self.o.valid),
            self.i.ready.eq(advance),
        ]
        with m.If(advance):
            m.d.sync += occupied.eq(Cat(self.i.valid, occupied)[: config.latency])
            m.d.sync += [tag.eq(earlier) for tag, earlier in zip(tags, [self.i.payload.tag, *tags], strict=False)]
        m.d.comb += self.o.payload.tag.eq(tags[-1])
        return m

    def _connect(self, m: Module, unit: Unit, row: int, column: int, metadata: Value, b: Value) -> None:
        tile, result = self.i.payload, self.o.payload
        output = row * self.config.columns + column
        m.d.comb += [
            unit.step.control.eq(tile.control),
            unit.step.a.eq(tile.a[row]),
            unit.step.metadata.eq(metadata),
            unit.step.scale_a.eq(tile.scale_a[row]),
            unit.step.b.eq(b),
            unit.step.scale_b.eq(tile.scale_b[column]),
            unit.step.c.eq(tile.c[output]),
            unit.step.overflow.eq(tile.overflow[output]),
            result.d[output].eq(unit.result.d),
            result.overflow[output].eq(unit.result.overflow),
        ]
        if column == 0:
            m.d.comb += result.illegal[row].eq(unit.result.illegal)
