"""``wgmma`` on the tensor cores of an SM: every array gets, of every panel, its own rows, columns and metadata.

The fetch and the arrays are cut away, since they are proved by themselves (``fetch.both``, ``warp.operands``); what
takes their places does whatever they may do. Every word of an operand has a label of its own: the instruction's mark,
and where it belongs. So a word that is dropped, exchanged with another, or of another instruction, shows at an array.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data

from ..rtl.config import PRESETS, CoreConfig
from ..rtl.fetch import panel_layout
from ..rtl.operand_slots import SLOTS
from ..rtl.panel_operands import PanelOperands
from ..rtl.step import control_layout
from ..rtl.tensor_cores import WARPS, TensorCores
from ..rtl.warp import LANES, REGISTERS, Warp
from .harness import Harness, Opened
from .held import (
    PLACE_BITS,
    SEGMENTS,
    WORD,
    Fetch,
    Turns,
    claim_a,
    claim_b,
    claim_slots,
    descriptor,
    label,
    label_of_b,
    lane_register,
    place_of_a,
)
from .properties import Parameters, Topic
from .streams import bare

__all__ = ["WGMMA"]

WGMMA = Topic("wgmma")
#: What surrounds the arrays is the same for every configuration.
_ARRAY = replace(bare(PRESETS["tiny"]), rows=4, columns=4)
#: Panels of A of 64 rows.
_A_PANELS = 8
#: What an instruction is here, beside its operands.
_INSTRUCTION = data.StructLayout(
    {
        "mark": 1,
        "control": control_layout(),
        "a_shared": 1,
        "a_transposed": 1,
        "b_transposed": 1,
        "negated": 1,
        "add": 1,
        "last_panel": 5,
        "sparsity_selector": 2,
    }
)


class _Cores(Opened, TensorCores):
    """The parts of the tensor cores can be spoken of."""


def _once(config: CoreConfig) -> Iterator[Parameters]:
    yield ()


def _cycles(*_: object) -> int:
    """Cycles in which an instruction with A in shared memory is brought and multiplied."""
    return 24


@WGMMA.property("order", _once, cycles=_cycles)
def _order(h: Harness) -> None:
    """Every array is given the columns of B that are due, its rows of A, and its instruction's metadata and control.

    That is every word at its place, of each panel once and in order, from registers or from shared memory, whatever the
    register file, the fetch and the arrays take, with two instructions held and resets anywhere. Panels are requested
    as long as the instruction's B is, each operand by its own descriptor and major. Where D is not added the
    accumulators are zero.
    """
    reset = h.clocked()
    fetch, takes = Fetch(h, _A_PANELS), iter([h.free(f"array_{warp}_takes") for warp in range(WARPS)])

    class Taking(Warp):
        """Stands for an array: it takes what it is given whenever it likes."""

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += self.i.ready.eq(next(takes))
            return m

    cores = h.add("cores", _Cores(_ARRAY, warp_class=Taking, fetch_class=fetch.component()))
    offered = h.free("instruction", _INSTRUCTION)
    payload, c_mark = cores.i.payload, h.free("accumulator")
    names = [name for name, _ in _INSTRUCTION if name != "mark"]
    h.m.d.comb += [
        cores.i.valid.eq(h.free("i_valid") & ~reset),
        cores.c.valid.eq(h.free("c_valid") & ~reset),
        cores.o.ready.eq(1),
        cores.mma.valid.eq(h.free("mma_valid") & ~reset),
        *(payload[name].eq(offered[name]) for name in names),
    ]
    for name, which in (("a_descriptor", 1), ("b_descriptor", 0)):
        h.m.d.comb += payload[name].eq(descriptor(offered.mark, which))
    for warp, lane in product(range(WARPS), range(LANES)):
        h.m.d.comb += payload.e[warp][lane].eq(label(offered.mark, warp * LANES + lane))
        for register in range(REGISTERS):
            place = place_of_a(warp, lane, register)
            h.m.d.comb += [
                payload.a[warp][lane][register].eq(label(offered.mark, place)),
                cores.c.payload[warp][lane][register].eq(label(c_mark, place)),
            ]
    taken = h.named("taken", cores.i.valid & cores.i.ready)
    multiplied = h.named("multiplied", cores.c.valid & cores.c.ready)
    turns = Turns(h, taken, offered, multiplied)
    turns.claim(h)
    slots = cores.parts.slots
    claim_slots(h, slots, turns, names)
    h.claim("last", cores.last == (turns.panel == slots.instruction.last_panel))
    for slot, instruction in enumerate(turns.instructions):
        right = [
            slots.held[slot].e[warp][lane][: PLACE_BITS + 1]
            == label(instruction.mark, warp * LANES + lane)[: PLACE_BITS + 1]
            for warp, lane in product(range(WARPS), range(LANES))
        ]
        h.claim(f"metadata_{slot}", ~turns.occupied[slot] | Cat(right).all())
    claim_b(h, cores.parts, fetch, turns)
    got, missing = claim_a(h, cores.parts, fetch, turns, cores.parts.delivery.end)
    h.claim("ready", slots.ready == (turns.occupied & ~missing).bit_select(turns.now, 1))
    _claim_cores(h, cores, turns, multiplied, c_mark)
    for slot, panel, segment in product(range(SLOTS), range(_A_PANELS), range(SEGMENTS)):
        mark, right = turns.instructions[slot].mark, []
        for row, word in product(range(8), range(4)):
            warp, lane, register = lane_register(panel, segment, row, word)
            stored = cores.parts.stored_a.fragments[slot][warp][lane][register]
            right.append(stored[: PLACE_BITS + 1] == label(mark, place_of_a(warp, lane, register))[: PLACE_BITS + 1])
        h.claim(f"a_{slot}_{panel}_{segment}", ~got[slot][SEGMENTS * panel + segment] | Cat(right).all())
    h.cover("from_memory", multiplied & turns.current.a_shared & turns.occupied.all())
    h.cover("second_panel", multiplied & (turns.panel == 1) & ~turns.current.a_shared)


def _claim_cores(h: Harness, cores: _Cores, turns: Turns, multiplied: Value, c_mark: Value) -> None:
    """State what each tensor core is given of a panel."""
    current = turns.current
    for warp in range(WARPS):
        offered = cores.parts[f"core_{warp}"].panel
        given = offered.payload
        h.claim(f"taken_{warp}", (offered.valid & offered.ready) == multiplied)
        same = [
            Value.cast(given.control) == Value.cast(current.control),
            given.sparsity_selector == current.sparsity_selector,
            given.long,
        ]
        said = cores.parts[f"operands_{warp}"].instruction
        same += [said.negated == current.negated, said.add == current.add]
        h.claim(f"control_{warp}", ~multiplied | Cat(same).all())
        for lane in range(LANES):
            a, b, c = [], [], []
            for register in range(REGISTERS):
                place = place_of_a(warp, lane, register)
                b_label = label_of_b(current.mark, turns.panel, lane // 4, 4 * register + lane % 4)
                a.append(given.a[lane][register][: PLACE_BITS + 1] == label(current.mark, place)[: PLACE_BITS + 1])
                b.append(given.b[lane][register][:13] == b_label)
                c.append(
                    given.c[lane][register][: PLACE_BITS + 1]
                    == Mux(current.add, label(c_mark, place), 0)[: PLACE_BITS + 1]
                )
            e = given.e[lane][: PLACE_BITS + 1] == label(current.mark, warp * LANES + lane)[: PLACE_BITS + 1]
            for name, right in (("a", a), ("b", b), ("c", c), ("e", [e])):
                h.claim(f"{name}_of_core_{warp}_{lane}", ~multiplied | Cat(right).all())


#: Sign bits of the elements in a register, by the formats of ``wgmma``; integers are not negated.
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
    """Of the formats those that ``wgmma`` has."""
    if formats := tuple(name for name in config.formats if name in _SIGNS):
        yield (replace(_ARRAY, formats=formats, alignment_bits=25),)


@WGMMA.property("operands", _floats)
def _operands(h: Harness, config: CoreConfig) -> None:
    """An array is given a panel's operands bit by bit; where products are negated, every float of A has another sign.

    Register r of lane 4 c + t of B has bytes 16 r + 4 t to 16 r + 4 t + 3 of column c (PTX ISA, fragments of ``mma``).
    Integers stay as they are, and accumulators that are not added are zero.
    """
    operands = h.add("operands", PanelOperands(config))
    for name in ("instruction", "e", "a", "panel", "c"):
        h.m.d.comb += getattr(operands, name).eq(h.free(name, getattr(operands, name).shape()))
    said, given = operands.instruction, operands.o
    signs: Value = Const(0, WORD)
    for code, element in enumerate(config.elements):
        signs = Mux(said.control.a == code, _SIGNS[element.format.name], signs)
    h.claim("control", (given.control == said.control) & (given.sparsity_selector == said.sparsity_selector))
    h.claim("length", given.long)
    assert panel_layout().size == 8 * 512
    for lane, register in product(range(LANES), range(REGISTERS)):
        column, thread = divmod(lane, 4)
        of_b = operands.panel[column][128 * register + 32 * thread :][:WORD]
        h.claim(f"b_{lane}_{register}", given.b[lane][register] == of_b)
        h.claim(
            f"a_{lane}_{register}",
            given.a[lane][register] == operands.a[lane][register] ^ Mux(said.negated, signs, 0),
        )
        h.claim(f"c_{lane}_{register}", given.c[lane][register] == Mux(said.add, operands.c[lane][register], 0))
    for lane in range(LANES):
        h.claim(f"e_{lane}", given.e[lane] == operands.e[lane])
    h.cover("negated", said.negated & (given.a[5][2] != operands.a[5][2]))
