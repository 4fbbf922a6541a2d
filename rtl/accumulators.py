"""Accumulators in tensor memory: panels of eight columns read ahead, and written once their results come."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .tensor_memory import COLUMN_BITS, TENSOR_LANES, WORD_BITS
from .warp import COLUMNS, LANES, REGISTERS, ROWS
from .wgmma import accumulator_layout

__all__ = ["ARRAYS", "Accumulators", "accumulator_memory_signature", "accumulator_request_layout"]

#: Arrays of 16 rows that take all lanes of tensor memory.
ARRAYS = TENSOR_LANES // ROWS
#: Panels that are kept until they are multiplied; and all whose results are to come.
_BUFFERS = 2
_DUE = 16
_HALF = WORD_BITS // 2


def accumulator_memory_signature(arrays: int = ARRAYS) -> wiring.Signature:
    """Return the port to a tensor memory that reads and writes eight columns at once, of the lanes of so many arrays.

    Members
    -------
    read, write : Out(1)
        The columns are meant.
    read_column, write_column : Out(9)
        The first of eight; they wrap at 512.
    read_data : In(32).array(128, 8)
        Words of each lane, one cycle later.
    write_data : Out(32).array(128, 8)
        Words of each lane.
    write_half : Out(1)
        Only the lower halves of the words are written.
    """
    words = data.ArrayLayout(data.ArrayLayout(WORD_BITS, COLUMNS), arrays * ROWS)
    return wiring.Signature(
        {
            "read": Out(1),
            "read_column": Out(COLUMN_BITS),
            "read_data": In(words),
            "write": Out(1),
            "write_column": Out(COLUMN_BITS),
            "write_data": Out(words),
            "write_half": Out(1),
        }
    )


def accumulator_request_layout() -> data.StructLayout:
    """Return the layout of a request for eight columns.

    Fields
    ------
    column : 9
        The first of them.
    add : 1
        Their contents are wanted; otherwise anything is given.
    half : 1
        They are of 16 bits, in the lower halves of words.
    """
    return data.StructLayout({"column": COLUMN_BITS, "add": 1, "half": 1})


class Accumulators(wiring.Component):
    """Read accumulators ahead, and write results where they belong, in the order of the requests.

    A request is taken once no result that is still to come overlaps its columns, and one of two buffers is free; its
    contents are offered two cycles later. Results are written in the cycle in which they come.

    Parameters
    ----------
    arrays : int
        Arrays of 16 rows, which take 16 lanes each.

    Members
    -------
    i : In(stream of accumulator_request_layout())
        Eight columns, in the order in which they are multiplied.
    c : Out(stream of 8 x accumulator_layout())
        Their contents, as registers of each array.
    o : In(stream of 8 x accumulator_layout())
        The results, likewise, in the same order; always taken.
    memory : Out(accumulator_memory_signature())
        Tensor memory.

    Notes
    -----
    Source: PTX ISA, layouts A and D, a row of D in a lane, and the packing of D. That an instruction waits for those
    before it that have the same accumulators is PTX's pipelining of ``tcgen05.mma``. Modelled.
    """

    def __init__(self, arrays: int = ARRAYS) -> None:
        self.arrays = arrays
        registers = stream.Signature(data.ArrayLayout(accumulator_layout(), arrays))
        super().__init__(
            {
                "i": In(stream.Signature(accumulator_request_layout())),
                "c": Out(registers),
                "o": In(registers),
                "memory": Out(accumulator_memory_signature(arrays)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the list of what is to be written, the two buffers, and the wiring to registers."""
        m = Module()
        memory, request = self.memory, self.i.payload
        due = [Signal(accumulator_request_layout(), name=f"due_{place}") for place in range(_DUE)]
        count = Signal(range(_DUE + 1))
        kept = Signal(range(_BUFFERS + 1))
        asked, written = Signal(), self.o.valid
        overlaps = [(place < count) & _overlap(one.column, request.column) for place, one in enumerate(due)]
        given = self.c.valid & self.c.ready
        m.d.comb += [
            self.i.ready.eq(((kept != _BUFFERS) | given) & (count != _DUE) & ~(request.add & Cat(overlaps).any())),
            asked.eq(self.i.valid & self.i.ready),
            memory.read.eq(asked & request.add),
            memory.read_column.eq(request.column),
        ]
        # The oldest stands first; what is asked for goes behind the last that stays.
        behind = count - written
        m.d.sync += count.eq(behind + asked)
        for place, one in enumerate(due):
            following = due[place + 1] if place + 1 < _DUE else one
            m.d.sync += one.eq(Mux(asked & (behind == place), request, Mux(written, following, one)))
        self._give(m, asked, given, kept)
        result = [self.o.payload[array] for array in range(self.arrays)]
        m.d.comb += [
            self.o.ready.eq(1),
            memory.write.eq(written),
            memory.write_column.eq(due[0].column),
            memory.write_half.eq(due[0].half),
            memory.write_data.eq(Mux(due[0].half, Cat(_columns(result, half=True)), Cat(_columns(result, half=False)))),
        ]
        return m

    def _give(self, m: Module, asked: Value, given: Value, kept: Signal) -> None:
        """Keep what arrives until it is taken."""
        arriving, half = Signal(), Signal(reset_less=True)
        filled, offered = Signal(range(_BUFFERS)), Signal(range(_BUFFERS))
        full = Signal(_BUFFERS)
        layout = self.c.payload.shape()
        buffers = [Signal(layout, name=f"accumulators_{place}", reset_less=True) for place in range(_BUFFERS)]
        words = self.memory.read_data
        registers = Mux(half, Cat(_registers(words, half=True)), Cat(_registers(words, half=False)))
        m.d.comb += [self.c.valid.eq(full.bit_select(offered, 1)), self.c.payload.eq(Array(buffers)[offered])]
        m.d.sync += [
            arriving.eq(asked),
            half.eq(self.i.payload.half),
            kept.eq(kept + asked - given),
            full.eq(full & ~(given << offered) | (arriving << filled)),
            filled.eq(filled + arriving),
            offered.eq(offered + given),
        ]
        for place, buffer in enumerate(buffers):
            with m.If(arriving & (filled == place)):
                m.d.sync += buffer.eq(registers)


def _overlap(a: Value, b: Value) -> Value:
    """Return whether eight columns from a and eight from b have one in common; columns wrap."""
    distance = (a - b)[:COLUMN_BITS]
    return (distance < COLUMNS) | (distance > (1 << COLUMN_BITS) - COLUMNS)


def _registers(words: data.View, *, half: bool) -> list[Value]:
    """Return the registers of each array's lanes that hold eight columns of all lanes of tensor memory.

    Source: PTX ISA, fragments of ``mma``: register 2 h + s of lane 4 g + t has row 8 h + g and column 2 t + s; of 16
    bits, register h has both.
    """
    found: list[Value] = []
    for array in range(len(words) // ROWS):
        for lane in range(LANES):
            g, t = divmod(lane, 4)
            rows = [words[ROWS * array + 8 * h + g] for h in range(2)]
            whole = [row[2 * t + side] for row in rows for side in range(2)]
            halves = [word[:_HALF] for word in whole]
            found += [*halves, Const(0, (REGISTERS - len(rows)) * WORD_BITS)] if half else whole
    return found


def _columns(registers: Sequence[data.View], *, half: bool) -> list[Value]:
    """Return the words of eight columns of all lanes, from the registers of each array's lanes."""
    found: list[Value] = []
    for row in range(ROWS * len(registers)):
        h, g = divmod(row % ROWS, 8)
        for column in range(COLUMNS):
            t, side = divmod(column, 2)
            lane = registers[row // ROWS][4 * g + t]
            found.append(Cat(lane[h].word_select(side, _HALF), Const(0, _HALF)) if half else lane[2 * h + side])
    return found
