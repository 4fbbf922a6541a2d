"""Proofs about operands in tensor memory: which columns an instruction reads, their order, and their completion."""

from amaranth.hdl import Cat, Mux, Signal

from ..rtl.tensor_operands import Operand, TensorOperands
from .harness import Harness
from .properties import Topic, once
from .sizes import COLUMN_BITS
from .streams import offered

__all__ = ["TENSOR_OPERANDS"]

TENSOR_OPERANDS = Topic("tensor_operands")


# Upper bound on the cycles needed to reach every cover condition: the time of the longest instruction, which reads 22
# columns, and of the start of the next instruction.
@TENSOR_OPERANDS.property("columns", once, cycles=26)
def _columns(h: Harness) -> None:
    """Every instruction reads its tensor-memory columns once, in order, without gaps, each for the right operand.

    Metadata of elements of 16 bits or more is in one column, which the sparsity selector chooses; metadata of smaller
    elements is in two columns. Block scales of A are in four columns, block scales of B in one column for each 32
    columns of B. A is in eight columns, unless it is in shared memory (PTX ISA 9.7.16.10). An instruction without
    columns takes one cycle. An instruction is complete in the cycle in which its last column arrives.
    """
    reset = h.clocked()
    operands = h.add("operands", TensorOperands())
    request, _, _ = offered(h, "request", operands.i, reset)
    h.m.d.comb += operands.i.valid.eq(h.free("i_valid") & ~reset)
    memory = operands.memory
    accepts = h.named("accepts", operands.i.valid & operands.i.ready)
    # Number of tensor-memory columns of each operand (0 for an absent operand), computed independently of the hardware.
    counts = {
        Operand.METADATA: Mux(request.sparse, Mux(request.wide, 1, 2), 0),
        Operand.SCALE_A: Mux(request.scaled, 4, 0),
        Operand.SCALE_B: Mux(request.scaled, (request.last_panel >> 2) + 1, 0),
        Operand.A: Mux(request.a_shared, 0, 8),
    }
    first = {
        Operand.METADATA: request.metadata_column + Mux(request.wide & request.sparsity_selector, 1, 0),
        Operand.SCALE_A: request.scale_a_column,
        Operand.SCALE_B: request.scale_b_column,
        Operand.A: request.a_column,
    }
    total = h.named("total", sum(counts.values()), 6)
    place = Signal(6, name="place")
    h.m.d.sync += place.eq(Mux(accepts | reset, 0, place + memory.read))
    h.claim("reads", memory.read == (operands.i.valid & (total != 0)))
    h.claim("accepts", accepts == (operands.i.valid & ((place + 1 == total) | (total == 0))))
    h.claim("in_range", (place == 0) | reset | (place < total))
    begin, expected = 0, Signal(operands.column.shape(), reset_less=True, name="expected")
    read, done = Signal(name="was_read"), Signal(name="was_accepted")
    h.m.d.sync += [read.eq(memory.read), done.eq(accepts)]
    for operand, count in counts.items():
        number = place - begin
        runs = (place >= begin) & (place < begin + count)
        right = memory.column == (first[operand] + number)[:COLUMN_BITS]
        h.claim(f"column_{operand.name}", ~(memory.read & runs) | right)
        with h.m.If(runs):
            h.m.d.sync += [expected.operand.eq(operand), expected.number.eq(number)]
        later = runs if operand is Operand.METADATA else memory.read & runs & (number != 0)
        h.cover(f"reads_{operand.name}", later)
        begin = begin + count
    h.m.d.sync += expected.tag.eq(request.tag)
    column = operands.column
    h.claim("arrives", operands.arriving == read)
    h.claim("complete", operands.complete == done)
    h.claim("tag", ~(read | done) | (column.tag == expected.tag))
    h.claim("label", ~read | ((column.operand == expected.operand) & (column.number == expected.number)))
    h.claim("words", Cat(word == read for word, read in zip(operands.words, memory.data, strict=True)).all())
    h.cover("nothing", accepts & (total == 0))
    h.cover("all", accepts & (total == 22))
