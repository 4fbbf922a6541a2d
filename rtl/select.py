"""The select stage: metadata selects two of each four neighbouring 8-bit or 16-bit parts of a column of B."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.metadata import UNITS_PER_CHUNK
from .cells.described import DescribedSignature
from .cells.operand_mux import OperandMux
from .config import CoreConfig
from .metadata import KEPT_UNITS, selects_layout

__all__ = ["SelectStage"]


class SelectStage(wiring.Component):
    """Pair every stored element of A in a cycle with the element of B that metadata selects. Combinational.

    Each chunk of B has four units: of 16 bits for wide elements, of 8 bits for others. The metadata of the chunk
    selects the two units that are multiplied by the stored units of A. A unit is an element for 2:4, half a tf32 for
    1:2, and a pair of 4-bit elements for pair-wise 4:8. One circuit serves every granularity: see
    :func:`~sptc.rtl.order.byte_order`.

    Source: measured on an H200, whose results for every granularity are those of this circuit.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 8 * config.step_bytes
        ports = {
            "b": (In(2 * bits), "Elements of B in the order of byte_order."),
            "selects": (In(selects_layout(config)), "Decoded metadata: one-hot select of each kept element."),
            "selected": (Out(bits), "The B operand of each stored element, at the byte that selected_byte returns."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the multiplexers that select elements of B."""
        m = Module()
        config = self.config
        unit_bits = 16 if config.always_wide else 8
        parts = 2 if config.interleaved else 1
        lanes = list(self.selects)
        # In an interleaved datapath, a multiplexer serves either one chunk (four units of B) of 16-bit elements, or two
        # chunks of 8-bit elements whose bytes alternate. The multiplexer has one select for each byte. With 16-bit
        # elements, both chunk decoders get the same nibble.
        for group in range(len(lanes) // parts):
            together = lanes[parts * group : parts * (group + 1)]
            chunk = self.b.word_select(group, UNITS_PER_CHUNK * parts * unit_bits)
            for slot in range(KEPT_UNITS):
                m.submodules[f"select{slot}_{group}"] = mux = OperandMux(parts * unit_bits, parts)
                for unit in range(UNITS_PER_CHUNK):
                    m.d.comb += [
                        mux.units[unit].eq(chunk.word_select(unit, parts * unit_bits)),
                        mux.select[unit].eq(Cat(lane[slot][unit] for lane in together)),
                    ]
                output = self.selected.word_select(KEPT_UNITS * group + slot, parts * unit_bits)
                m.d.comb += output.eq(mux.output)
        return m
