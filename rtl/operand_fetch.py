"""Operand fetch for a warpgroup or a CTA: one port to shared memory reads a core matrix (128 bytes) in every cycle."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .fetch import (
    CORE_MATRICES,
    PANEL_ROWS,
    UNIT_BITS,
    CoreMatrixAddress,
    panel_layout,
    panel_request_layout,
    shared_memory_signature,
    transposed,
)

__all__ = ["OperandFetch", "core_matrix_layout"]

#: Number of buffers for panels (eight columns) of B. One buffer is filled while the panel in the other buffer is
#: multiplied.
_BUFFERS = 2


def core_matrix_layout(a_panels: int) -> DescribedLayout:
    """Return the layout of a core matrix (8 x 16 bytes) of A. A has `a_panels` panels of eight rows."""
    rows = data.ArrayLayout(UNIT_BITS, PANEL_ROWS)
    return DescribedLayout(
        {
            "rows": (rows, "16 bytes of each row of the panel, K ascending."),
            "panel": (range(a_panels), "Number of the panel (eight rows) of A."),
            "segment": (1, "0: bytes 0 to 15 of each row; 1: bytes 16 to 31."),
            "tag": (1, "Tag of the request."),
        }
    )


class OperandFetch(wiring.Component):
    """Read panels (eight rows or columns) of A and B through one port. B has priority while a buffer is free.

    A core matrix (8 x 16 bytes) is read in each cycle in which one is requested, and arrives in the next cycle. A core
    matrix of A is output when it arrives. A core matrix of B is stored in one of two panel buffers, and the panel is
    offered once all of its core matrices are stored. A panel of four core matrices is offered five cycles after its
    request, and a panel of two core matrices after three cycles.

    Parameters
    ----------
    a_panels : int
        Number of panels of A, each of which has eight rows.
    """

    def __init__(self, a_panels: int = 8) -> None:
        b = "Requests for panels of B, in order; a request is accepted with its last read."
        a = "Requests for panels of A (field short is 1), in order; a request is accepted with its last read."
        ports = {
            "b": (In(stream.Signature(panel_request_layout())), b),
            "a": (In(stream.Signature(panel_request_layout())), a),
            "a_tag": (In(1), "Tag that is output with the core matrices of the request at port a."),
            "panels": (Out(stream.Signature(panel_layout())), "Panels of B, in the order of the requests."),
            "arriving": (Out(1), "A core matrix of A arrives in this cycle."),
            "core_matrix": (Out(core_matrix_layout(a_panels)), "Core matrix of A that arrives."),
            "memory": (Out(shared_memory_signature()), "Port to shared memory."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the arbitration of reads, the address generator, and two buffers for panels (eight columns) of B."""
        m = Module()
        m.submodules.addresses = addresses = CoreMatrixAddress()
        memory = self.memory
        # The first read of a panel of B reserves a buffer, so the other reads of the panel never wait. Example with a
        # panel (eight columns) of B, core matrices b0 to b3, then a panel (eight rows) of A, core matrices a0 and a1:
        #
        #     cycle           0     1     2     3     4     5     6
        #     read            b0    b1    b2    b3    a0    a1
        #     data                  b0    b1    b2    b3    a0    a1
        #     panels.valid                                  1
        segments = {name: Signal(range(CORE_MATRICES), name=f"segment_{name}") for name in ("a", "b")}
        # Counters, modulo four, of panels (eight columns) of B: panels whose reads have begun, panels that have arrived
        # completely, and panels that the arrays have taken.
        begun, complete, delivered = (
            Signal(range(2 * _BUFFERS), name=name) for name in ("begun", "complete", "delivered")
        )
        taken = self.panels.valid & self.panels.ready
        room = (segments["b"] != 0) | ((begun ^ delivered) != _BUFFERS) | taken
        read_b, last_b = self._read(m, self.b, segments["b"], room)
        read_a, _ = self._read(m, self.a, segments["a"], ~read_b)
        m.d.sync += begun.eq(begun + (read_b & (segments["b"] == 0)))
        m.d.comb += [
            addresses.request.eq(Mux(read_b, self.b.payload, self.a.payload)),
            addresses.segment.eq(Mux(read_b, segments["b"], segments["a"])),
            memory.read.eq(read_b | read_a),
        ]
        m.d.comb += [memory.address[row].eq(addresses.address[row]) for row in range(PANEL_ROWS)]

        # Registers that describe a core matrix in the cycle after its read, in which shared memory delivers the core
        # matrix.
        arriving_b, completes = (Signal(name=name) for name in ("arriving_b", "completes"))
        arriving_segment = Signal(range(CORE_MATRICES), reset_less=True)
        arriving_mn_major = Signal(reset_less=True)
        m.d.sync += [
            arriving_b.eq(read_b),
            completes.eq(read_b & last_b),
            self.arriving.eq(read_a),
            arriving_segment.eq(addresses.segment),
            arriving_mn_major.eq(addresses.request.mn_major),
            self.core_matrix.panel.eq(self.a.payload.panel),
            self.core_matrix.segment.eq(segments["a"]),
            self.core_matrix.tag.eq(self.a_tag),
        ]
        rows = [Mux(arriving_mn_major, transposed(memory.data, row), memory.data[row]) for row in range(PANEL_ROWS)]
        m.d.comb += self.core_matrix.rows.eq(Cat(rows))

        # Successive panels (eight columns) of B use the two buffers alternately.
        buffers = Signal(data.ArrayLayout(panel_layout(), _BUFFERS), reset_less=True)
        m.d.comb += [self.panels.valid.eq(complete != delivered), self.panels.payload.eq(buffers[delivered[0]])]
        m.d.sync += [delivered.eq(delivered + taken), complete.eq(complete + completes)]
        for buffer in range(_BUFFERS):
            for place in range(CORE_MATRICES):
                with m.If(arriving_b & (complete[0] == buffer) & (arriving_segment == place)):
                    m.d.sync += [
                        buffers[buffer][row].word_select(place, UNIT_BITS).eq(rows[row]) for row in range(PANEL_ROWS)
                    ]
        return m

    def _read(self, m: Module, requests: Any, segment: Signal, allowed: Value) -> tuple[Value, Value]:
        """Read the core matrices (8 x 16 bytes) of each request in order.

        Return whether a core matrix is read in this cycle, and whether it is the last of its request.
        """
        last = segment == Mux(requests.payload.short, CORE_MATRICES // 2 - 1, CORE_MATRICES - 1)
        read = requests.valid & allowed
        m.d.comb += requests.ready.eq(allowed & last)
        with m.If(read):
            m.d.sync += segment.eq(Mux(last, 0, segment + 1))
        return read, last
