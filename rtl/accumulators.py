"""Accumulators in tensor memory: panels of eight columns are read in advance, and their results are written back."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .ring import Ring
from .tensor_memory import COLUMN_BITS, TENSOR_LANES
from .warp import COLUMNS, FRAGMENT, LANES, ROWS, WORD_BITS

__all__ = ["ARRAYS", "Accumulators", "accumulator_memory_signature", "accumulator_request_layout"]

#: Number of arrays of dot-product units. Each array computes 16 rows. All arrays together use all lanes of tensor
#: memory.
ARRAYS = TENSOR_LANES // ROWS
#: Number of buffers for panels (eight columns) of accumulators that were read from tensor memory and wait for
#: multiplication.
_BUFFERS = 2
_HALF = WORD_BITS // 2


def accumulator_memory_signature(arrays: int = ARRAYS) -> DescribedSignature:
    """Return the signature of a tensor-memory port that reads and writes eight columns of all lanes in each cycle.

    Each array of dot-product units has 16 lanes of tensor memory.
    """
    words = data.ArrayLayout(data.ArrayLayout(WORD_BITS, COLUMNS), arrays * ROWS)
    return DescribedSignature(
        {
            "read": (Out(1), "Eight columns of tensor memory are read in this cycle."),
            "read_column": (Out(COLUMN_BITS), "First of the eight columns to read; column numbers wrap at 512."),
            "read_data": (In(words), "Words [lane][column] that were read, valid in the cycle after read."),
            "write": (Out(1), "Eight columns of tensor memory are written in this cycle."),
            "write_column": (Out(COLUMN_BITS), "First of the eight columns to write; column numbers wrap at 512."),
            "write_data": (Out(words), "Words [lane][column] to write."),
            "write_half": (Out(1), "1: only bits 15 to 0 of each word are written; 0: whole words."),
        }
    )


def accumulator_request_layout() -> DescribedLayout:
    """Return the layout of a request for eight columns of accumulators in tensor memory."""
    return DescribedLayout(
        {
            "column": (COLUMN_BITS, "First of the eight columns of tensor memory."),
            "add": (1, "1: the columns are read; 0: no columns are read, and output c is undefined."),
            "half": (1, "1: accumulators have 16 bits, in the lower halves of words; 0: 32 bits."),
        }
    )


class Accumulators(wiring.Component):
    """Read accumulators from tensor memory in advance, and write results to the same columns, in order of requests.

    A request is accepted once one of two buffers is free. A request that reads also waits until no pending result
    overlaps its columns. The requested accumulators are offered two cycles later. Results are written in the cycle in
    which they arrive.

    Source: PTX ISA, layouts A and D with one row of D per lane, and the packing of D. PTX's pipelining of
    ``tcgen05.mma`` makes an instruction wait for earlier ones with the same accumulators. The timing is modelled, not
    measured.

    Parameters
    ----------
    arrays : int
        Number of arrays of dot-product units, each with 16 rows and 16 lanes of tensor memory.
    in_flight : int
        Maximum number of panels in an array at once. The array guarantees this maximum.
    """

    def __init__(self, arrays: int, in_flight: int) -> None:
        self.arrays, self.most = arrays, in_flight + _BUFFERS
        registers = stream.Signature(data.ArrayLayout(FRAGMENT, arrays))
        i = "Requests for panels (eight columns) of accumulators, in the order in which the panels are multiplied."
        ports = {
            "i": (In(stream.Signature(accumulator_request_layout())), i),
            "c": (Out(registers), "Accumulators of a requested panel, as registers of each array."),
            "o": (In(registers), "Results of a panel, as registers of each array, in the order of the requests."),
            "memory": (Out(accumulator_memory_signature(arrays)), "Port to tensor memory."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the FIFO of pending results, buffers for two eight-column panels, and the conversion to registers."""
        m = Module()
        memory, request = self.memory, self.i.payload
        # Timing of one panel of eight columns, from the read of its accumulators to the earliest read of its results.
        # Each array of dot-product units issues the panel in four cycles, and has a latency of five cycles:
        #
        #     cycle     0       1       2           3 ... 6    8 ... 11    12       13
        #               read    data    multiply    issue      collect     write    read
        m.submodules.due = due = Ring(data.StructLayout({"column": COLUMN_BITS, "half": 1}), self.most)
        # Number of panels (eight columns) whose accumulators were requested and that are not yet multiplied.
        kept = Signal(range(_BUFFERS + 1))
        requested, written = Signal(), self.o.valid
        overlaps = [
            due.valid[place] & _overlap(entry.column, request.column) for place, entry in enumerate(due.entries)
        ]
        taken = self.c.valid & self.c.ready
        m.d.comb += [
            self.i.ready.eq(((kept != _BUFFERS) | taken) & ~(request.add & Cat(overlaps).any())),
            requested.eq(self.i.valid & self.i.ready),
            memory.read.eq(requested & request.add),
            memory.read_column.eq(request.column),
            due.push.eq(requested),
            due.entry.column.eq(request.column),
            due.entry.half.eq(request.half),
            due.pop.eq(written),
        ]
        self._buffer(m, requested, taken, kept)
        result = [self.o.payload[array] for array in range(self.arrays)]
        m.d.comb += [
            self.o.ready.eq(1),
            memory.write.eq(written),
            memory.write_column.eq(due.oldest.column),
            memory.write_half.eq(due.oldest.half),
            memory.write_data.eq(
                Mux(due.oldest.half, Cat(_columns(result, half=True)), Cat(_columns(result, half=False)))
            ),
        ]
        return m

    def _buffer(self, m: Module, requested: Value, taken: Value, kept: Signal) -> None:
        """Build the buffers that keep accumulators of a panel (eight columns) until products are added to them."""
        arriving, half = Signal(), Signal(reset_less=True)
        stored = Signal(range(_BUFFERS + 1))
        behind = stored - taken
        layout = self.c.payload.shape()
        buffers = [Signal(layout, name=f"accumulators_{place}", reset_less=True) for place in range(_BUFFERS)]
        words = self.memory.read_data
        registers = Mux(half, Cat(_registers(words, half=True)), Cat(_registers(words, half=False)))
        m.d.comb += [self.c.valid.eq(stored != 0), self.c.payload.eq(buffers[0])]
        m.d.sync += [
            arriving.eq(requested),
            half.eq(self.i.payload.half),
            kept.eq(kept + requested - taken),
            stored.eq(behind + arriving),
        ]
        for place, buffer in enumerate(buffers):
            with m.If(arriving & (behind == place)):
                m.d.sync += buffer.eq(registers)
            if place + 1 < _BUFFERS:
                with m.Elif(taken):
                    m.d.sync += buffer.eq(buffers[place + 1])


def _overlap(a: Value, b: Value) -> Value:
    """Return whether tensor-memory columns `a` to `a` + 7 and `b` to `b` + 7 overlap. Column numbers wrap at 512."""
    # Two ranges of eight columns overlap if their distance modulo 512 is 0 to 7, or 505 to 511 (-7 to -1).
    distance = (a - b)[:COLUMN_BITS]
    return (distance < COLUMNS) | (distance > (1 << COLUMN_BITS) - COLUMNS)


def _registers(words: data.View, *, half: bool) -> list[Value]:
    """Return eight columns of tensor memory as accumulator registers of ``mma``, for the 32 lanes of each tensor core.

    Source: PTX ISA, fragments of ``mma``: register 2 h + s of lane 4 g + t has row 8 h + g and column 2 t + s. If
    accumulators have 16 bits, register h has both columns, and no unit reads registers 2 and 3.
    """
    result: list[Value] = []
    for array in range(len(words) // ROWS):
        for lane in range(LANES):
            g, t = divmod(lane, 4)
            rows = [words[ROWS * array + 8 * h + g] for h in range(2)]
            whole = [row[2 * t + side] for row in rows for side in range(2)]
            result += [*(word[:_HALF] for word in whole), *whole[len(rows) :]] if half else whole
    return result


def _columns(registers: Sequence[data.View], *, half: bool) -> list[Value]:
    """Return eight columns of tensor memory, converted from the accumulator registers of each tensor core's lanes.

    If accumulators have 16 bits, the upper halves of the words are not written.
    """
    result: list[Value] = []
    for row in range(ROWS * len(registers)):
        h, g = divmod(row % ROWS, 8)
        for column in range(COLUMNS):
            t, side = divmod(column, 2)
            lane = registers[row // ROWS][4 * g + t]
            word = lane[2 * h + side]
            result.append(Cat(lane[h].word_select(side, _HALF), word[_HALF:]) if half else word)
    return result
