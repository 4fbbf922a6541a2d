"""Reads of an instruction's operands from tensor memory: metadata, block scales and A, one column per cycle."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .codes import is_wide
from .config import CoreConfig
from .fetch import LAST_PANEL, PANEL_BITS
from .scale import ScaleCode
from .tensor_memory import COLUMN_BITS, TENSOR_LANES, tensor_memory_signature
from .warp import WORD_BITS

__all__ = [
    "COLUMN_FIELDS",
    "Operand",
    "TensorOperands",
    "columns_of",
    "operand_request",
    "operand_request_layout",
    "tensor_column_layout",
]

#: Number of tensor-memory columns of A (32 stored bytes per row), and of the block scales of 128 rows.
_A_COLUMNS, _SCALE_COLUMNS = 8, 4
_NUMBER_BITS = 3
#: log2 of the number of panels of B (eight columns each) whose block scales share one column of tensor memory.
_SCALE_SHIFT = 2


class Operand(enum.Enum, shape=2):
    """Operand that is read from tensor memory. The members are in the order of reading."""

    METADATA = 0
    SCALE_A = 1
    SCALE_B = 2
    A = 3


#: Instruction fields that contain the first tensor-memory column of each operand.
COLUMN_FIELDS = {
    f"{name}_column": (COLUMN_BITS, f"First column of {operand} in tensor memory, 0 to 511; ignored {absent}.")
    for name, operand, absent in (
        ("a", "A", "if a_shared is 1"),
        ("metadata", "the metadata (an even number)", "in dense instructions"),
        ("scale_a", "the block scales of A", "without block scales"),
        ("scale_b", "the block scales of B", "without block scales"),
    )
}


def operand_request_layout() -> DescribedLayout:
    """Return the layout of a request for an instruction's operands in tensor memory."""
    return DescribedLayout(
        {
            **COLUMN_FIELDS,
            "a_shared": (1, "1: A is in shared memory; 0: A is in tensor memory."),
            "sparse": (1, "1: the instruction has metadata."),
            "wide": (1, "1: elements of 16 or 32 bits, with one column of metadata; 0: smaller elements, with two."),
            "sparsity_selector": (1, "Which of two adjacent columns contains the metadata of wide elements."),
            "scaled": (1, "1: the instruction has block scales."),
            "last_panel": (PANEL_BITS, LAST_PANEL),
            "tag": (1, "Tag that is output with each column of the request."),
        }
    )


def operand_request(config: CoreConfig, request: data.View, instruction: data.View) -> list[Any]:
    """Return the assignments that fill a request for the operands of an instruction in tensor memory."""
    names = (*COLUMN_FIELDS, "a_shared", "sparsity_selector", "last_panel")
    return [
        *(request[name].eq(instruction[name]) for name in names),
        request.sparse.eq(instruction.control.sparse),
        request.wide.eq(is_wide(config, instruction.control.a)),
        request.scaled.eq(instruction.control.scale != ScaleCode.NONE),
    ]


def tensor_column_layout() -> DescribedLayout:
    """Return the layout of the tag that identifies a column of tensor memory when its data arrives."""
    return DescribedLayout(
        {
            "operand": (Operand, "Operand that the column contains."),
            "number": (_NUMBER_BITS, "Number of the column in its operand, from 0."),
            "tag": (1, "Tag of the request that read the column."),
        }
    )


def columns_of(request: data.View, operand: Operand) -> tuple[Value, Value, Value]:
    """Return whether an operand of a request is in tensor memory, its first column, and its number of columns."""
    selected = request.wide & request.sparsity_selector
    return {
        Operand.METADATA: (request.sparse, request.metadata_column + selected, Mux(request.wide, 1, 2)),
        Operand.SCALE_A: (request.scaled, request.scale_a_column, Const(_SCALE_COLUMNS)),
        Operand.SCALE_B: (request.scaled, request.scale_b_column, (request.last_panel >> _SCALE_SHIFT) + 1),
        Operand.A: (~request.a_shared, request.a_column, Const(_A_COLUMNS)),
    }[operand]


class TensorOperands(wiring.Component):
    """Read the operands of instructions from tensor memory, one column in each cycle without gaps.

    A column arrives in the cycle after its read. An instruction without operands in tensor memory takes one cycle.

    Source: CUTLASS ``tmem_e_frg``, with which JAX agrees, for metadata; PTX ISA, scale factor A and B ID, and CUTLASS
    ``tmem_sf_frg`` for block scales; PTX ISA, packing formats of A. Modelled, not measured.

    Parameters
    ----------
    lanes : int
        Number of lanes of tensor memory.
    """

    def __init__(self, lanes: int = TENSOR_LANES) -> None:
        i = "Requests for the operands of instructions; a request is accepted in the cycle of its last read."
        complete = (
            "The last column of the request with tag column.tag arrives in this cycle; or the request, which has no "
            "columns, was accepted in the previous cycle."
        )
        ports = {
            "i": (In(stream.Signature(operand_request_layout())), i),
            "arriving": (Out(1), "A column of tensor memory arrives in this cycle."),
            "column": (Out(tensor_column_layout()), "Operand, number and tag of the column that arrives."),
            "words": (Out(WORD_BITS).array(lanes), "For each lane, the word of the column that arrives."),
            "complete": (Out(1), complete),
            "memory": (Out(tensor_memory_signature(lanes)), "Port to tensor memory."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the choice of the next operand, the counter of tensor-memory columns, and the outputs for read data."""
        m = Module()
        request, memory = self.i.payload, self.memory
        # Operands that are not in tensor memory take no cycle. Example of the reading order with sparse 8-bit elements,
        # block scales, N = 64, and A in tensor memory:
        #
        #     cycle       0, 1        2 ... 5    6, 7       8 ... 15
        #     operand     METADATA    SCALE_A    SCALE_B    A
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
