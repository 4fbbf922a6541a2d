"""Order of metadata and B at the inputs of dot-product units. An array reorders metadata per row, and B per column."""

from amaranth.hdl import Array, Cat, Const, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.metadata import UNITS_PER_CHUNK
from .cells.described import DescribedSignature
from .config import CoreConfig
from .metadata import KEPT_UNITS, MetadataStage, RuleCode
from .select import SelectStage

__all__ = ["DENSE_NIBBLE", "ColumnOrder", "OrderedSelect", "RowOrder", "byte_order", "nibble_order", "selected_byte"]

#: Metadata nibble for dense instructions. It selects units 0 and 1 of the four 8-bit or 16-bit units in a chunk of B.
DENSE_NIBBLE = 0b0100
#: Input ports that determine the order of elements at the inputs of dot-product units.
_WIDE_AND_SPARSE = {
    "wide": (In(1), "Elements take 16 bits or more."),
    "sparse": (In(1), "The step is sparse: metadata selects B."),
}


def byte_order(config: CoreConfig, *, wide: bool, sparse: bool) -> list[int | None]:
    """Return, for each byte at the B input of a dot-product unit, the number of its source byte in the column of B.

    Dense operands are spread to the first two units of each chunk. In a datapath with both 16-bit and smaller elements,
    two chunks of smaller elements are interleaved byte by byte. Unit n of both chunks is then at the position of unit n
    of a chunk of 16-bit elements.

    Parameters
    ----------
    config : CoreConfig
        A datapath with selection by metadata.
    wide : bool
        Whether elements take 16 bits or more.
    sparse : bool
        Whether B has four units per chunk, as in a sparse step, or two, as in a dense step.

    Returns
    -------
    list of int or None
        Byte of the column for each byte of ``step.b``; None where the unit does not use the byte.
    """
    units = UNITS_PER_CHUNK if sparse else KEPT_UNITS
    # For each group of eight bytes at the B input of a unit: source bytes in the column of B, if elements of 16 and of
    # 8 bits share multiplexers (-: unused):
    #
    #     byte of the group    7    6    5    4    3    2    1    0
    #     unit                 3         2         1         0
    #     16-bit, sparse       7    6    5    4    3    2    1    0     of the eight bytes from 8 * group
    #     8-bit, sparse        7    3    6    2    5    1    4    0     of the eight bytes from 8 * group
    #     16-bit, dense        -    -    -    -    3    2    1    0     of the four bytes from 4 * group
    #     8-bit, dense         -    -    -    -    3    1    2    0     of the four bytes from 4 * group
    order: list[int | None] = []
    for place in range(2 * config.step_bytes):
        group, unit, part = place // 8, place % 8 // 2, place % 2
        if wide:
            source = (group * units + unit) * 2 + part
        elif config.interleaved:
            source = (2 * group + part) * units + unit
        else:
            unit = place % UNITS_PER_CHUNK
            source = place // UNITS_PER_CHUNK * units + unit
        order.append(source if unit < units else None)
    return order


def nibble_order(config: CoreConfig, *, wide: bool) -> list[int]:
    """For each nibble decoder of a row, return the index of the metadata nibble that it decodes.

    In a datapath with interleaved chunks, two decoders decode the nibble of a chunk of 16-bit elements.
    """
    if wide and config.interleaved:
        return [lane // 2 for lane in range(config.chunks)]
    return list(range(config.chunks))


def selected_byte(config: CoreConfig, byte: int, *, wide: bool) -> int:
    """Return which byte of selected B, the select stage's output, is multiplied by byte `byte` of stored A."""
    if wide or not config.interleaved:
        return byte
    # For each of four bytes in stored A and in selected B: number of the chunk (2:4 group) to which the byte belongs,
    # and number of the kept element (0 or 1) in this chunk:
    #
    #     byte           3       2       1       0
    #     stored A       1, 1    1, 0    0, 1    0, 0    chunk, kept element
    #     selected B     1, 1    0, 1    1, 0    0, 0
    word, chunk, slot = byte // 4, byte % 4 // 2, byte % 2
    return 4 * word + 2 * slot + chunk


class ColumnOrder(wiring.Component):
    """Reorder the bytes of a column of B as the dot-product units of this column need them. Combinational."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 16 * config.step_bytes
        ports = {
            "natural": (In(bits), "Elements of B, lowest k first; a dense step uses the low half."),
            **_WIDE_AND_SPARSE,
            "ordered": (Out(bits), "Elements of B in the order of byte_order."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the multiplexers that reorder the bytes of a column of B."""
        m = Module()
        orders = [
            Cat(
                Const(0, 8) if source is None else self.natural.word_select(source, 8)
                for source in byte_order(self.config, wide=wide, sparse=sparse)
            )
            for sparse in (False, True)
            for wide in (False, True)
        ]
        if self.config.sparse:
            m.d.comb += self.ordered.eq(Array(orders)[Cat(self.wide, self.sparse)])
        else:
            m.d.comb += self.ordered.eq(self.natural)
        return m


class RowOrder(wiring.Component):
    """Reorder the metadata nibbles of a row as the row's metadata decoder needs them. Combinational."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 4 * config.chunks
        ordered = "Metadata in the order of nibble_order; DENSE_NIBBLE for every chunk of a dense step."
        ports = {
            "natural": (In(bits), "Metadata nibbles, chunk 0 lowest; elements of 16 bits or more use the low half."),
            **_WIDE_AND_SPARSE,
            "ordered": (Out(bits), ordered),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the multiplexers that reorder the metadata nibbles."""
        m = Module()
        wide, narrow = (
            Cat(self.natural.word_select(chunk, 4) for chunk in nibble_order(self.config, wide=width))
            for width in (True, False)
        )
        dense = Cat(Const(DENSE_NIBBLE, 4) for _ in range(self.config.chunks))
        m.d.comb += self.ordered.eq(Mux(self.sparse, Mux(self.wide, wide, narrow), dense))
        return m


class OrderedSelect(wiring.Component):
    """Operand selection of one dot-product unit, with operands and results in ascending order of k. Combinational.

    Proofs and benches use this component in place of an array.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 8 * config.step_bytes
        ports = {
            "a": (In(bits), "Stored elements, lowest k first."),
            "b": (In(2 * bits), "A column of B, lowest k first."),
            "nibbles": (In(4 * config.chunks), "Metadata, lowest k first."),
            **_WIDE_AND_SPARSE,
            "rule": (In(RuleCode), "Rule that nibbles are checked against."),
            "stored": (Out(bits), "Stored A."),
            "selected": (Out(bits), "For each byte of stored A, the byte of B that multiplies this byte."),
            "illegal": (Out(config.chunks), "Bit c: the rule does not define the nibble of chunk c; 0 in dense steps."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build and connect the reordering of metadata and of B, the metadata decoder, and the operand multiplexers."""
        m = Module()
        m.submodules.row = row = RowOrder(self.config)
        m.submodules.column = column = ColumnOrder(self.config)
        m.submodules.decode = decode = MetadataStage(self.config)
        m.submodules.select = select = SelectStage(self.config)
        wide, narrow = (
            Cat(
                select.selected.word_select(selected_byte(self.config, byte, wide=width), 8)
                for byte in range(self.config.step_bytes)
            )
            for width in (True, False)
        )
        m.d.comb += [
            row.natural.eq(self.nibbles),
            column.natural.eq(self.b),
            *(port.wide.eq(self.wide) for port in (row, column, decode)),
            *(port.sparse.eq(self.sparse) for port in (row, column, decode)),
            decode.a.eq(self.a),
            decode.nibbles.eq(row.ordered),
            decode.rule.eq(self.rule),
            select.b.eq(column.ordered),
            select.selects.eq(decode.selects),
            self.stored.eq(decode.stored),
            self.selected.eq(Mux(self.wide, wide, narrow)),
            self.illegal.eq(decode.illegal),
        ]
        return m
