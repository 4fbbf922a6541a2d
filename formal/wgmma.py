"""Proofs about ``wgmma`` on an SM's tensor cores: each core receives its own rows, columns and metadata.

The fetch and the arrays are proved separately (``fetch.both``, ``warp.operands``) and replaced by stand-ins, which may
behave in every way that is possible for the real components. Every word of an operand has its own label: the mark of
its instruction, and its position. The claims compare the labels at the arrays, so a word that is lost, exchanged with
another word, or from another instruction breaks a claim.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value

from ..rtl.config import CoreConfig
from ..rtl.panel_operands import PanelOperands
from ..rtl.tensor_cores import TensorCores
from .harness import Harness, opened, replace_logic
from .properties import Parameters, Topic, once
from .sizes import LANES, REGISTERS, SLOTS, WARPS
from .slot_model import SlotModel, claim_a, claim_b, claim_slots, instruction_layout
from .stand_ins import (
    PLACE_BITS,
    SEGMENTS,
    WORD,
    FetchStandIn,
    array_stand_in,
    descriptor,
    holds_core_matrix,
    label,
    label_of_b,
    place_of_a,
)
from .streams import SMALL_ARRAY

__all__ = ["WGMMA"]

WGMMA = Topic("wgmma")
#: Number of panels of A: eight panels of eight rows each, for M = 64.
_A_PANELS = 8
#: Layout of an instruction without the descriptors and registers of its operands.
_INSTRUCTION = instruction_layout(sparsity_selector=2)


# Upper bound on the cycles needed to reach every cover condition: the time in which an instruction with A in shared
# memory is multiplied.
@WGMMA.property("order", once, cycles=24)
def _order(h: Harness) -> None:
    """Every tensor core receives the next columns of B, its rows of A, and its instruction's metadata and control.

    Every word is at its position, once for each panel and in order, from registers or from shared memory. The register
    file, the fetch and the arrays may accept at any time, both instruction slots may be occupied, and a reset may occur
    at any time. Requests for panels of B have the right length, and requests for A and B have the matrix descriptor and
    the field `mn_major` of their operand. If the instruction does not add D, the accumulators are zero.
    """
    reset = h.clocked()
    fetch = FetchStandIn(h, _A_PANELS)
    cores = h.add("cores", opened(TensorCores(SMALL_ARRAY, warp_class=array_stand_in(h, WARPS))))
    replace_logic(cores.parts.fetch, fetch.build)
    instruction = h.free("instruction", _INSTRUCTION)
    payload, c_mark = cores.i.payload, h.free("accumulator")
    names = [name for name, _ in _INSTRUCTION if name != "mark"]
    h.m.d.comb += [
        cores.i.valid.eq(h.free("i_valid") & ~reset),
        cores.c.valid.eq(h.free("c_valid") & ~reset),
        cores.o.ready.eq(1),
        cores.mma.valid.eq(h.free("mma_valid") & ~reset),
        *(payload[name].eq(instruction[name]) for name in names),
    ]
    for name, which in (("a_descriptor", 1), ("b_descriptor", 0)):
        h.m.d.comb += payload[name].eq(descriptor(instruction.mark, which))
    for warp, lane in product(range(WARPS), range(LANES)):
        h.m.d.comb += payload.e[warp][lane].eq(label(instruction.mark, warp * LANES + lane))
        for register in range(REGISTERS):
            place = place_of_a(warp, lane, register)
            h.m.d.comb += [
                payload.a[warp][lane][register].eq(label(instruction.mark, place)),
                cores.c.payload[warp][lane][register].eq(label(c_mark, place)),
            ]
    accepted = h.named("accepted", cores.i.valid & cores.i.ready)
    multiplied = h.named("multiplied", cores.c.valid & cores.c.ready)
    model = SlotModel(h, accepted, instruction, multiplied)
    slots = cores.parts.slots
    claim_slots(h, slots, model, names)
    h.claim("last", cores.last == (model.panel == slots.instruction.last_panel))
    for slot, of_slot in enumerate(model.instructions):
        right = [
            _same(slots.stored[slot].e[warp][lane], label(of_slot.mark, warp * LANES + lane))
            for warp, lane in product(range(WARPS), range(LANES))
        ]
        h.claim(f"metadata_{slot}", ~model.occupied[slot] | Cat(right).all())
    claim_b(h, cores.parts, fetch, model)
    stored, missing = claim_a(h, cores.parts, fetch, model, cores.parts.delivery.end)
    h.claim("ready", slots.ready == model.at_current(model.occupied & ~missing))
    _claim_cores(h, cores, model, multiplied, c_mark)
    for slot, panel, segment in product(range(SLOTS), range(_A_PANELS), range(SEGMENTS)):
        fragments, mark = cores.parts.stored_a.fragments[slot], model.instructions[slot].mark
        right = holds_core_matrix(fragments, mark, panel, segment, PLACE_BITS + 1)
        h.claim(f"a_{slot}_{panel}_{segment}", ~stored[slot][SEGMENTS * panel + segment] | right)
    h.cover("from_memory", multiplied & model.current.a_shared & model.occupied.all())
    h.cover("second_panel", multiplied & (model.panel == 1) & ~model.current.a_shared)


def _same(word: Value, expected: Value) -> Value:
    """Return whether a register has the low bits of the expected test word. Other bits, such as signs, are ignored."""
    return word[: PLACE_BITS + 1] == expected[: PLACE_BITS + 1]


def _claim_cores(h: Harness, cores: Any, model: SlotModel, multiplied: Value, c_mark: Value) -> None:
    current = model.current
    for warp in range(WARPS):
        panel, instruction = cores.parts[f"core_{warp}"].panel, cores.parts[f"operands_{warp}"].instruction
        operands = panel.payload
        h.claim(f"accepted_{warp}", (panel.valid & panel.ready) == multiplied)
        right = [
            Value.cast(operands.control) == Value.cast(current.control),
            operands.sparsity_selector == current.sparsity_selector,
            operands.long,
            instruction.negated == current.negated,
            instruction.add == current.add,
        ]
        h.claim(f"control_{warp}", ~multiplied | Cat(right).all())
        for lane in range(LANES):
            a, b, c = [], [], []
            for register in range(REGISTERS):
                place = place_of_a(warp, lane, register)
                of_b = label_of_b(current.mark, model.panel, lane // 4, 4 * register + lane % 4)
                a.append(_same(operands.a[lane][register], label(current.mark, place)))
                b.append(operands.b[lane][register] == of_b)
                c.append(operands.c[lane][register] == Mux(current.add, label(c_mark, place), 0))
            e = [_same(operands.e[lane], label(current.mark, warp * LANES + lane))]
            for name, right in (("a", a), ("b", b), ("c", c), ("e", e)):
                h.claim(f"{name}_of_core_{warp}_{lane}", ~multiplied | Cat(right).all())


#: Mask of the sign bits in a 32-bit register, for each element format of ``wgmma``. Integers are not negated.
_SIGNS = {
    "f16": 0x8000_8000,
    "bf16": 0x8000_8000,
    "tf32": 0x8000_0000,
    "e4m3": 0x8080_8080,
    "e5m2": 0x8080_8080,
    "s8": 0,
    "u8": 0,
}


def _floats(config: CoreConfig) -> Iterator[Parameters]:
    """Yield a small array of dot-product units with a configuration's formats that ``wgmma`` supports, if any."""
    if formats := tuple(name for name in config.formats if name in _SIGNS):
        yield (replace(SMALL_ARRAY, formats=formats, alignment_bits=25),)


@WGMMA.property("operands", _floats)
def _operands(h: Harness, config: CoreConfig) -> None:
    """A tensor core receives its operands of ``wgmma`` bit for bit. If products are negated, floats of A change sign.

    Register r of lane 4 c + t of B has bytes 16 r + 4 t to 16 r + 4 t + 3 of column c (PTX ISA, fragments of ``mma``).
    Integers are not negated, and the accumulators are zero if the instruction does not add them.
    """
    operands = h.add("operands", PanelOperands(config))
    for name in ("instruction", "e", "a", "panel", "c"):
        h.m.d.comb += getattr(operands, name).eq(h.free(name, getattr(operands, name).shape()))
    instruction, o = operands.instruction, operands.o
    signs: Value = Const(0, WORD)
    for code, element in enumerate(config.elements):
        signs = Mux(instruction.control.a == code, _SIGNS[element.format.name], signs)
    h.claim("control", (o.control == instruction.control) & (o.sparsity_selector == instruction.sparsity_selector))
    h.claim("length", o.long)
    for lane, register in product(range(LANES), range(REGISTERS)):
        column, thread = divmod(lane, 4)
        of_b = operands.panel[column][128 * register + 32 * thread :][:WORD]
        h.claim(f"b_{lane}_{register}", o.b[lane][register] == of_b)
        h.claim(
            f"a_{lane}_{register}",
            o.a[lane][register] == operands.a[lane][register] ^ Mux(instruction.negated, signs, 0),
        )
        h.claim(f"c_{lane}_{register}", o.c[lane][register] == Mux(instruction.add, operands.c[lane][register], 0))
    for lane in range(LANES):
        h.claim(f"e_{lane}", o.e[lane] == operands.e[lane])
    h.cover("negated", instruction.negated & (o.a[5][2] != operands.a[5][2]))
