"""Tensor memory to an instruction's operands: metadata, block scales and A, one column of all lanes a cycle."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .tensor_memory import COLUMN_BITS, TENSOR_LANES, WORD_BITS, tensor_memory_signature

__all__ = ["Operand", "TensorOperands", "columns_of", "operand_request_layout", "tensor_column_layout"]

#: Columns of A, 32 stored bytes a row; and of block scales of 128 rows.
_A_COLUMNS, _SCALE_COLUMNS = 8, 4
_NUMBER_BITS = 3
#: Of panels of B, 2**2 of eight columns whose block scales share a column.
_SCALE_SHIFT = 2


class Operand(enum.Enum, shape=2):
    """What a column holds, in the order of reading."""

    METADATA = 0
    SCALE_A = 1
    SCALE_B = 2
    A = 3


def operand_request_layout() -> data.StructLayout:
    """Return the layout of what an instruction reads from tensor memory.

    Fields
    ------
    a_column, metadata_column, scale_a_column, scale_b_column : 9
        First columns of each.
    a_shared : 1
        A is in shared memory.
    sparse : 1
        There is metadata.
    wide : 1
        Elements of 16 or 32 bits, whose metadata is one column; otherwise it is two.
    sparsity_selector : 1
        PTX's sparsity selector of a wide instruction: which of two columns that is.
    scaled : 1
        There are block scales.
    last_panel : 5
        N / 8 - 1.
    tag : 1
        Returned with what is read.
    """
    columns = dict.fromkeys(("a_column", "metadata_column", "scale_a_column", "scale_b_column"), COLUMN_BITS)
    flags = dict.fromkeys(("a_shared", "sparse", "wide", "sparsity_selector", "scaled"), 1)
    return data.StructLayout(columns | flags | {"last_panel": 5, "tag": 1})


def tensor_column_layout() -> data.StructLayout:
    """Return the layout of a column as it arrives.

    Fields
    ------
    operand : Operand
        What it holds.
    number : 3
        Which of the columns of that.
    tag : 1
        The request's.
    """
    return data.StructLayout({"operand": Operand, "number": _NUMBER_BITS, "tag": 1})


def columns_of(request: data.View, operand: Operand) -> tuple[Value, Value, Value]:
    """Return what a request has of an operand.

    Parameters
    ----------
    request : view of operand_request_layout()
        Of an instruction.
    operand : Operand
        Which.

    Returns
    -------
    tuple of Value
        Whether it is there, its first column, and how many are read.
    """
    selected = request.wide & request.sparsity_selector
    return {
        Operand.METADATA: (request.sparse, request.metadata_column + selected, Mux(request.wide, 1, 2)),
        Operand.SCALE_A: (request.scaled, request.scale_a_column, Const(_SCALE_COLUMNS)),
        Operand.SCALE_B: (request.scaled, request.scale_b_column, (request.last_panel >> _SCALE_SHIFT) + 1),
        Operand.A: (~request.a_shared, request.a_column, Const(_A_COLUMNS)),
    }[operand]


class TensorOperands(wiring.Component):
    """Read what an instruction has in tensor memory, a column a cycle without a gap.

    What was read arrives in the next cycle. An instruction that has nothing there takes one cycle.

    Parameters
    ----------
    lanes : int
        Of the memory.

    Members
    -------
    i : In(stream of operand_request_layout())
        Requests; one is taken with its last read.
    arriving : Out(1)
        A column is there in this cycle.
    column : Out(tensor_column_layout())
        Which one.
    words : Out(32).array(lanes)
        What it holds in each lane.
    complete : Out(1)
        The last of its request is there in this cycle, if it has any; `column.tag` says whose.
    memory : Out(tensor_memory_signature())
        The port.

    Notes
    -----
    Source: CUTLASS ``tmem_e_frg``, with which JAX agrees, for metadata; PTX ISA, scale factor A and B ID, and CUTLASS
    ``tmem_sf_frg`` for block scales; PTX ISA, packing formats of A. Modelled.
    """

    def __init__(self, lanes: int = TENSOR_LANES) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(operand_request_layout())),
                "arriving": Out(1),
                "column": Out(tensor_column_layout()),
                "words": Out(WORD_BITS).array(lanes),
                "complete": Out(1),
                "memory": Out(tensor_memory_signature(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the choice of the operand, the count of its columns, and what arrives."""
        m = Module()
        request, memory = self.i.payload, self.memory
        first = Signal(range(len(Operand)))
        number = Signal(_NUMBER_BITS)
        left = Signal(len(Operand))
        operand = Signal(Operand)
        of_operand = [columns_of(request, one) for one in Operand]
        present = Cat(there for there, _, _ in of_operand)
        m.d.comb += left.eq(present & (((1 << len(Operand)) - 1) << first)[: len(Operand)])
        for later in reversed(Operand):
            with m.If(left[later.value]):
                m.d.comb += operand.eq(later)
        last_number = Array(count - 1 for *_, count in of_operand)[operand.as_value()]
        starts = Array(start for _, start, _ in of_operand)
        ends_operand = number == last_number
        ends = ends_operand & ~(left & ~(1 << operand.as_value())[: len(Operand)]).any()
        m.d.comb += [
            memory.read.eq(self.i.valid & left.any()),
            memory.column.eq(starts[operand.as_value()] + number),
            self.i.ready.eq(ends | ~left.any()),
        ]
        with m.If(memory.read):
            m.d.sync += [
                number.eq(Mux(ends_operand, 0, number + 1)),
                first.eq(Mux(ends_operand, Mux(ends, 0, operand.as_value() + 1), operand.as_value())),
            ]
        m.d.sync += [
            self.arriving.eq(memory.read),
            self.complete.eq(self.i.valid & self.i.ready),
            self.column.operand.eq(operand),
            self.column.number.eq(number),
            self.column.tag.eq(request.tag),
        ]
        m.d.comb += [word.eq(read) for word, read in zip(self.words, memory.data, strict=True)]
        return m
