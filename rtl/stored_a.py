"""Storage of A for two instructions in progress, in the register layout of ``mma`` fragments."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .operand_fetch import core_matrix_layout
from .operand_slots import SLOTS
from .panel_operands import segment_words
from .warp import FRAGMENT, LANES, ROWS, WORD_BITS

__all__ = ["A_PANELS_OF_ARRAY", "StoredA"]

#: Number of panels of A (eight rows each) per array of dot-product units, which computes 16 rows.
A_PANELS_OF_ARRAY = 2
#: Number of columns of tensor memory that A occupies: 32 stored bytes per row, and 4 bytes per column.
_COLUMNS = 8


class StoredA(wiring.Component):
    """Store A of two instructions in progress, from registers, from shared memory, or from columns of tensor memory.

    Latency: one cycle. All of A for one instruction comes from only one of the three sources.

    Source: PTX ISA, fragments of ``mma``: lane 4 g + t has bytes 4 t to 4 t + 3 of each 16-byte segment of rows g and
    g + 8. The bytes of segment s are in registers 2 s (row g) and 2 s + 1 (row g + 8).

    Parameters
    ----------
    arrays : int
        Number of arrays of dot-product units, each of which computes 16 rows.
    from_registers, from_columns : bool
        Whether to build the ports for registers and for tensor memory. Ports for shared memory are always built.
    """

    def __init__(self, arrays: int, *, from_registers: bool = False, from_columns: bool = False) -> None:
        self._arrays, self._from_registers, self._from_columns = arrays, from_registers, from_columns
        self._panels = A_PANELS_OF_ARRAY * arrays
        ports = {
            "arriving": (In(1), "Port core_matrix is valid."),
            "core_matrix": (
                In(core_matrix_layout(self._panels)),
                "Core matrix of A that arrives; its tag is the number of the slot.",
            ),
            "complete": (Out(SLOTS), "Bit n is 1 if the last core matrix of slot n arrives in this cycle."),
            "fragments": (Out(FRAGMENT).array(SLOTS, arrays), "Registers of A in both slots, for each array."),
            "slot": (In(range(SLOTS)), "Number of the slot whose instruction is multiplied."),
            "a": (Out(FRAGMENT).array(arrays), "Registers of A for the multiplied instruction, for each array."),
        }
        if from_registers:
            ports |= {
                "load": (In(SLOTS), "Bit n is 1 if slot n stores input registers in this cycle."),
                "registers": (In(FRAGMENT).array(arrays), "Registers of A for each array."),
            }
        if from_columns:
            ports |= {
                "column": (In(SLOTS), "Bit n is 1 if a column of A for slot n arrives in this cycle."),
                "number": (In(range(_COLUMNS)), "Number of the column that arrives."),
                "words": (In(WORD_BITS).array(ROWS * arrays), "Words of the column that arrives, one for each row."),
            }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the registers that store A, and the logic that writes them."""
        m = Module()
        arrived = self.core_matrix
        of_lanes = segment_words(arrived.rows, 0)
        for number in range(self._arrays):
            of_array = Array(self.fragments[slot][number].as_value() for slot in range(SLOTS))
            m.d.comb += self.a[number].eq(of_array[self.slot])
        for slot in range(SLOTS):
            stored = [Signal(FRAGMENT, name=f"a_{slot}_{n}", reset_less=True) for n in range(self._arrays)]
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
        """Store columns of A from tensor memory. Column 4 s + t has word t of the 16-byte segment s of every row."""
        for column in range(_COLUMNS):
            segment, t = divmod(column, 4)
            with m.If(self.column[slot] & (self.number == column)):
                for row, word in enumerate(self.words):
                    half, g = divmod(row % ROWS, 8)
                    m.d.sync += stored[row // ROWS][4 * g + t][2 * segment + half].eq(word)
