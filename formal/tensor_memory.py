"""Metadata and block scales from tensor memory: every bit from its place in the manual, and the reader's streams.

What the memory holds is abstracted by one marked bit at any place: a register shows the mark exactly where the figures,
those of tensor memory and those of the registers of ``mma.sp``, place the same bit of the same matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value

from ..rtl.config import CoreConfig
from ..rtl.tensor_memory import COLUMN_BITS, TENSOR_LANES, WORD_BITS, TensorMemoryReader
from ..rtl.warp import COLUMNS, LANES, ROWS
from .harness import Harness
from .properties import Parameters, Topic
from .streams import Flow, constant, offered

__all__ = ["TENSOR_MEMORY"]

TENSOR_MEMORY = Topic("tensor_memory")
#: Reads of a tile, in their order.
_METADATA, _MORE_METADATA, _SCALE_A, _SCALE_B = range(4)
_ROW_BLOCKS, _PANELS = 8, 32
_FIELDS = ("e", "scale_a", "scale_b")


@dataclass(frozen=True)
class _Source:
    """Where a register's word comes from, bit for bit, in each case of a request.

    Attributes
    ----------
    wide : bool or None
        Of which requests it speaks; None: of those with block scales.
    read : int
        With which of the four reads it arrives.
    lanes, columns : tuple of int
        Its place in tensor memory, case by case; columns relative to the first.
    """

    wide: bool | None
    read: int
    lanes: tuple[int, ...]
    columns: tuple[int, ...]

    def meant(self, request: Any) -> Value:
        """Return whether a request is one of those."""
        return {None: request.scaled, True: request.wide, False: ~request.wide}[self.wide]

    def case(self, request: Any) -> Value:
        """Return the number of a request's case: its block of rows or columns, and above it the selector."""
        if self.read == _SCALE_B:
            return Cat(request.panel)
        return Cat(request.rows, request.sparsity_selector) if self.wide else Cat(request.rows)


def _sources(field: str) -> list[list[_Source]]:
    """Return the sources of the word that each lane has of a field, by the figures of the manual.

    Lanes 4 g + 2 x + h of the registers belong to rows g and g + 8 of a tile (PTX ISA 9.7.14.6.2), as do those numbered
    8 h + g of its sixteen in tensor memory, whose words are the registers'. Of smaller elements that is eight chunks of
    row 8 h + g, in column x of two; of 16-bit ones chunks 4 h to 4 h + 3 of both rows, in the column that the selector
    picks (PTX ISA 9.7.16.10.8.4; CUTLASS ``tmem_e_frg``). Block scales of 32 rows or columns share a column, a lane
    each (PTX ISA 9.7.16.10.7; CUTLASS ``tmem_sf_frg``).
    """
    found = []
    for lane in range(LANES):
        group, thread = divmod(lane, 4)
        pair, half = divmod(thread, 2)
        if field == "e":
            lanes = tuple(ROWS * block + 8 * half + group for block in range(_ROW_BLOCKS))
            narrow = _Source(False, _MORE_METADATA if pair else _METADATA, lanes, (pair,) * len(lanes))
            wide = _Source(True, _METADATA, 2 * lanes, (0,) * len(lanes) + (1,) * len(lanes))
            found.append([narrow, wide])
            continue
        row, size, read = (group + 8 * half, ROWS, _SCALE_A) if field == "scale_a" else (group, COLUMNS, _SCALE_B)
        lines = [size * block + row for block in range(_ROW_BLOCKS if field == "scale_a" else _PANELS)]
        found.append([_Source(None, read, tuple(n % 32 for n in lines), tuple(n // 32 for n in lines))])
    return found


class _Reads:
    """What of a tile has been read and has arrived, counted beside the reader: every claim is about these.

    Attributes
    ----------
    request : view of tensor_request_layout()
        What is asked for. It stays, as the stream's validity does, while it waits.
    owner : view of tensor_request_layout()
        Whose reads they are.
    before : view of tensor_request_layout()
        The request of the cycle before.
    arrives, arriving : Value
        A column arrives; which one of the four.
    captured : Value
        Those that have arrived before.
    """

    def __init__(self, h: Harness, reader: Any, reset: Value) -> None:
        source, self._read = reader.i, reader.memory.read
        read = self._read
        request, waits, before = offered(h, "request", source, reset)
        self.request, self.before = request, before
        self.owner = owner = Signal(request.shape(), reset_less=True, name="owner")
        self.arrives, captured = Signal(name="arrives"), Signal(4, name="captured")
        self._place = place = Signal(2, name="place")
        self.arriving, arriving_last = Signal(2, reset_less=True, name="arriving"), Signal(reset_less=True)
        self.captured = captured
        last = h.named("last", _is_last(place, request))
        following = Mux((place == _METADATA) & request.wide, _SCALE_A, place + 1)
        gathered = captured | (self.arrives << self.arriving)
        h.m.d.comb += source.payload.eq(request)
        h.m.d.sync += [
            self.arrives.eq(read),
            self.arriving.eq(place),
            arriving_last.eq(last),
            captured.eq(gathered),
        ]
        with h.m.If(read):
            h.m.d.sync += [owner.eq(request), place.eq(Mux(last, _METADATA, following))]
            with h.m.If(place == _METADATA):
                h.m.d.sync += captured.eq(0)
        whole = Cat(Const(1, 1), ~owner.wide, owner.scaled.replicate(2))
        begun = place != _METADATA
        h.claim("taken_with_the_last", (source.valid & source.ready) == (read & last))
        h.claim("one_request", ~begun | (waits & (before == owner)))
        h.claim("before", ~self.arrives | ((before == owner) & (arriving_last == _is_last(self.arriving, owner))))
        h.claim("last", ~(self.arrives & ~begun) | arriving_last)
        h.claim("so_far", ~begun | (gathered == (whole & ((1 << place) - 1))))
        h.claim("arrived", ~self.arrives | (captured == (whole & ((1 << self.arriving) - 1))))
        h.claim("complete", ~reader.o.valid | (~begun & ~self.arrives & (captured == whole)))

    def of(self, number: int) -> Value:
        """Return whether one of the four is read."""
        return self._read & (self._place == number)


def _is_last(place: Value, request: Any) -> Value:
    of_metadata = (place == _MORE_METADATA) | ((place == _METADATA) & request.wide)
    return Mux(request.scaled, place == _SCALE_B, of_metadata)


class _MarkedMemory:
    """A memory of zeros but for one marked bit, any one; unasked, it may be where the mark is or not.

    Attributes
    ----------
    lane, column, bit : Value
        Where the mark is.
    hit : Value
        The column at the port has it.
    """

    def __init__(self, h: Harness, port: Any) -> None:
        self.lane = constant(h, "marked_lane", range(TENSOR_LANES))
        self.column = constant(h, "marked_column", COLUMN_BITS)
        self.bit = constant(h, "marked_bit", range(WORD_BITS))
        self.hit = Signal(reset_less=True, name="hit")
        h.m.d.sync += self.hit.eq(Mux(port.read, port.column == self.column, h.free("noise")))
        for lane in range(TENSOR_LANES):
            h.m.d.comb += port.data[lane].eq((self.hit & (self.lane == lane)) << self.bit)


def _once(config: CoreConfig) -> Iterator[Parameters]:
    yield ()


def _fields(config: CoreConfig) -> Iterator[Parameters]:
    yield from ((field,) for field in _FIELDS)


def _cycles(*_: object) -> int:
    """Cycles in which two tiles are read and let go."""
    return 2 * (_SCALE_B + 1 + 2) + 2


@TENSOR_MEMORY.property("registers", _fields, cycles=_cycles)
def _registers(h: Harness, field: str) -> None:
    """Every bit that a Warp reads of the registers is that of its place in tensor memory, for any request.

    That is for both selectors and all thread ids, whatever was read before, with gaps, stalls and resets anywhere.
    """
    reset = h.clocked()
    reader = h.add("reader", TensorMemoryReader())
    memory, reads = _MarkedMemory(h, reader.memory), _Reads(h, reader, reset)
    h.m.d.comb += [
        reader.i.valid.eq(h.free("i_valid") & ~reset),
        reader.o.ready.eq(h.free("o_ready") & ~reset),
    ]
    base, words = "metadata_column" if field == "e" else f"{field}_column", reader.o.payload[field]

    def at_lane(source: _Source, request: Any) -> Value:
        return memory.lane == _of_case(source.lanes, source.case(request))

    delivers = Const(0)
    for lane, sources in enumerate(_sources(field)):
        # Whether the word has the mark: kept beside it, so that the claims together are an invariant.
        seen = Signal(name=f"seen_{lane}", reset_less=True)
        for number, source in enumerate(sources):
            asked, name = reads.request, f"{lane}_{number}"
            column = (asked[base] + _of_case(source.columns, source.case(asked)))[:COLUMN_BITS]
            marked, arrives = Signal(name=f"marked_{name}", reset_less=True), Signal(name=f"arrives_{name}")
            with h.m.If(reads.of(source.read)):
                h.m.d.sync += marked.eq((memory.column == column) & at_lane(source, asked))
            forms = 1 if source.wide is None else source.meant(reads.before)
            h.m.d.comb += arrives.eq(reads.arrives & (reads.arriving == source.read) & forms)
            with h.m.If(arrives):
                h.m.d.sync += seen.eq(marked)
            h.claim(f"arriving{name}", (arrives & memory.hit & at_lane(source, reads.before)) == (arrives & marked))
            meant = source.meant(reads.owner)
            h.claim(f"place{name}", ~(reads.captured.bit_select(source.read, 1) & meant) | (seen == marked))
            delivers = reader.o.valid & reader.o.ready & meant
        h.claim(f"word{lane}", words[lane] == Mux(seen, 1 << memory.bit, 0))
    h.cover("marked_first", delivers & words[0][1])
    h.cover("marked_last", delivers & words[-1][-1])


def _of_case(values: tuple[int, ...], case: Value) -> Value:
    """Return a request's value, bit by bit: a table of constants would become a memory."""
    bits = range(max(values).bit_length())
    return Cat(Cat(case == number for number, value in enumerate(values) if value >> bit & 1).any() for bit in bits)


@TENSOR_MEMORY.property("order", _once, cycles=_cycles)
def _order(h: Harness) -> None:
    """Registers come in the order of their requests, none are lost or mixed, and once offered they stay until taken.

    What has arrived of one request never stands beside that of another; with nothing new to do the reader drains.
    """
    reset = h.clocked()
    reader = h.add("reader", TensorMemoryReader())
    flow = Flow(h, reset, reader.i, reader.o, 1)
    reads = _Reads(h, reader, reset)
    request = reads.request
    # The upper half of the columns holds ones; the requests that read there are marked, and none reads across.
    shown = Signal(reset_less=True, name="shown")
    h.m.d.sync += shown.eq(Mux(reader.memory.read, reader.memory.column[-1], h.free("noise")))
    h.m.d.comb += [word.eq(shown.replicate(WORD_BITS)) for word in reader.memory.data]
    for name in ("metadata_column", "scale_a_column", "scale_b_column"):
        h.assume((request[name][-1] == request.metadata_column[-1]) & ~request[name][-2])
    h.assume(~flow.accepts | (request.metadata_column[-1] == flow.marks))
    registers = reader.o.payload
    token, owner = h.named("token", registers.e[0][0]), reads.owner
    own = owner.metadata_column[-1]
    h.claim("arriving", ~reads.arrives | (shown == own))
    for lane, name in product(range(LANES), _FIELDS):
        later = Mux(owner.wide, _METADATA, _MORE_METADATA)
        number = {"e": later if lane % 4 >= 2 else _METADATA, "scale_a": _SCALE_A, "scale_b": _SCALE_B}[name]
        arrived = reads.captured.bit_select(number, 1)
        h.claim(f"{name}_{lane}", ~arrived | (registers[name][lane] == own.replicate(WORD_BITS)))
    flow.claim(h, token, Cat(word[0] for name in _FIELDS for word in registers[name]), reset)
    flow.answers(h, _SCALE_B + 3)
    flow.drains(h, 2, reader.i.valid, reader.o.ready)
    h.cover("scaled", flow.delivers & owner.scaled & registers.scale_b[3][0])
