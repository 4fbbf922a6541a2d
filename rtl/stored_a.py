"""A of the instructions that are held, as the registers of each array's lanes."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .operand_fetch import core_matrix_layout
from .operand_slots import SLOTS
from .panel_operands import fragment_layout, segment_words
from .warp import LANES, ROWS

__all__ = ["A_PANELS_OF_ARRAY", "StoredA"]

#: Panels of eight rows of A that an array of 16 rows takes.
A_PANELS_OF_ARRAY = 2
_WORD = 32
#: Columns of tensor memory that hold A: 32 stored bytes a row.
_COLUMNS = 8


class StoredA(wiring.Component):
    """Keep A of both slots: whole from registers, by core matrices from shared memory, by columns from tensor memory.

    What comes is there from the next cycle on. Of one slot it comes in one of these ways.

    Parameters
    ----------
    arrays : int
        Arrays of 16 rows each.
    from_registers, from_columns : bool
        Whether it can come from registers and from tensor memory; from shared memory it always can.

    Members
    -------
    load : In(2)
        Of each slot: `registers` are its A. With ``from_registers``.
    registers : In(fragment_layout()), one an array
        A of each array's lanes. With ``from_registers``.
    arriving : In(1)
        A core matrix is there in this cycle.
    core_matrix : In(core_matrix_layout(2 * arrays))
        Which, and what it holds; its tag is the slot.
    complete : Out(2)
        Of each slot: its last core matrix is there in this cycle.
    column : In(2)
        Of each slot: a column of tensor memory is there in this cycle. With ``from_columns``.
    number : In(3)
        Which of the eight. With ``from_columns``.
    words : In(32), one a row
        What it holds. With ``from_columns``.
    fragments : Out(fragment_layout()), by slot and array
        What is kept.
    slot : In(1)
        Which slot is multiplied.
    a : Out(fragment_layout()), one an array
        A of that one.

    Notes
    -----
    Source: PTX ISA, fragments of ``mma``: lane 4 g + t has bytes 4 t to 4 t + 3 of a segment of 16 bytes of rows g and
    g + 8, of segment s in registers 2 s and 2 s + 1.
    """

    def __init__(self, arrays: int, *, from_registers: bool = False, from_columns: bool = False) -> None:
        self._arrays, self._from_registers, self._from_columns = arrays, from_registers, from_columns
        self._panels = A_PANELS_OF_ARRAY * arrays
        fragment = fragment_layout()
        members = {
            "arriving": In(1),
            "core_matrix": In(core_matrix_layout(self._panels)),
            "complete": Out(SLOTS),
            "fragments": Out(fragment).array(SLOTS, arrays),
            "slot": In(range(SLOTS)),
            "a": Out(fragment).array(arrays),
        }
        if from_registers:
            members |= {"load": In(SLOTS), "registers": In(fragment).array(arrays)}
        if from_columns:
            members |= {"column": In(SLOTS), "number": In(range(_COLUMNS)), "words": In(_WORD).array(ROWS * arrays)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the registers and the ways into them."""
        m = Module()
        arrived = self.core_matrix
        of_lanes = segment_words(arrived.rows, 0)
        for number in range(self._arrays):
            of_array = Array(self.fragments[slot][number].as_value() for slot in range(SLOTS))
            m.d.comb += self.a[number].eq(of_array[self.slot])
        for slot in range(SLOTS):
            stored = [Signal(fragment_layout(), name=f"a_{slot}_{n}", reset_less=True) for n in range(self._arrays)]
            m.d.comb += [self.fragments[slot][n].eq(fragment) for n, fragment in enumerate(stored)]
            if self._from_registers:
                with m.If(self.load[slot]):
                    m.d.sync += [fragment.eq(self.registers[n]) for n, fragment in enumerate(stored)]
            here = self.arriving & (arrived.tag == slot)
            m.d.comb += self.complete[slot].eq(here & (arrived.panel == self._panels - 1) & arrived.segment)
            for panel in range(self._panels):
                for segment in range(2):
                    fragment = stored[panel // A_PANELS_OF_ARRAY]
                    register = 2 * segment + panel % A_PANELS_OF_ARRAY
                    with m.If(here & (arrived.panel == panel) & (arrived.segment == segment)):
                        m.d.sync += [fragment[lane][register].eq(of_lanes[lane]) for lane in range(LANES)]
            if self._from_columns:
                self._store_columns(m, slot, stored)
        return m

    def _store_columns(self, m: Module, slot: int, stored: list[Signal]) -> None:
        """Store what comes from tensor memory: word t of segment s of every row, in column 4 s + t."""
        for column in range(_COLUMNS):
            segment, t = divmod(column, 4)
            with m.If(self.column[slot] & (self.number == column)):
                for row, word in enumerate(self.words):
                    half, g = divmod(row % ROWS, 8)
                    m.d.sync += stored[row // ROWS][4 * g + t][2 * segment + half].eq(word)
