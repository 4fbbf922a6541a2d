"""``tcgen05`` on the tensor cores of a CTA: every array gets its own rows, columns, metadata, scales and accumulators.

Arrays are cut away, since they are proved by themselves (``warp.operands``), and for the order of operands also what
brings these (``fetch.both``, ``tensor_operands.columns``, ``accumulators``): what takes their places does whatever they
may do. Every word has a label of its own: its instruction's mark, and where it belongs.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.config import PRESETS, CoreConfig
from ..rtl.operand_slots import SLOTS
from ..rtl.round import ResultCode
from ..rtl.step import control_layout
from ..rtl.tcgen05 import CtaOperation, Tcgen05
from ..rtl.tensor_operands import Operand
from ..rtl.tensor_words import TensorWords
from ..rtl.warp import LANES, REGISTERS, ROWS, Warp
from .harness import Harness, Opened
from .held import (
    SEGMENTS,
    WORD,
    Fetch,
    Own,
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
from .streams import assume_a_rule, bare
from .tensor_stand_ins import (
    ALL_COLUMNS,
    ARRAYS,
    COLUMNS_OF,
    FIRST_OF,
    PANEL_OF_D,
    ROWS_OF_ARRAYS,
    Columns,
    HeldAccumulators,
    accumulator_word,
    wanted_columns,
    word_of_column,
)

__all__ = ["TCGEN05"]

TCGEN05 = Topic("tcgen05")
#: What surrounds the arrays is the same for every configuration.
_ARRAY = replace(bare(PRESETS["tiny"]), rows=4, columns=4)
#: Element codes of 16 bits and more, whose metadata is one column.
_WIDE = 0
#: What an instruction is here, beside where its operands are.
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
        "sparsity_selector": 1,
        "scale_size": 2,
        "byte_a": 2,
        "byte_b": 2,
        "pair": 1,
        "odd": 1,
    }
)
#: Of a pair of CTAs, whose columns of B are multiplied in turn, N is a multiple of 16.
_OWN = Own(
    lambda i: Mux(i.pair, (i.last_panel + 1) >> 1, i.last_panel + 1),
    lambda i, panel: Mux(i.pair, (panel + ~i.odd) >> 1, panel),
)


class _Cta(Opened, Tcgen05):
    """The inputs of its arrays can be seen."""


class _Words(Opened, TensorWords):
    """What is kept of either slot can be spoken of."""


def _number(i: Any, place: Value) -> Value:
    """Return which eight columns of D are multiplied in some place: of a pair, those of either half in turn."""
    half = (i.last_panel + 1) >> 1
    return Mux(i.pair, (place >> 1) + Mux(place[0], half, 0), place)[:5]


def _once(config: CoreConfig) -> Iterator[Parameters]:
    yield ()


@TCGEN05.property("order", _once, cycles=lambda *_: 40)
def _order(h: Harness) -> None:
    """Every array is given the columns of B that are due, and its own rows of A, metadata, block scales and D.

    That is every word at its place, of each panel once and in order; A from shared or tensor memory, metadata of wide
    elements or of others, of one CTA or of a pair, whose columns of B come from either in turn. Whatever the memories
    and the arrays take, with two instructions held and resets anywhere.
    """
    reset = h.clocked()
    fetch, columns, store = Fetch(h, 2 * ARRAYS), Columns(h), HeldAccumulators(h)
    takes = iter([h.free(f"array_{array}_takes") for array in range(ARRAYS)])

    class Taking(Warp):
        """Stands for an array: it takes what it is given whenever it likes."""

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += self.i.ready.eq(next(takes))
            return m

    cta = h.add(
        "cta",
        _Cta(
            _ARRAY,
            ARRAYS,
            warp_class=Taking,
            fetch_class=fetch.component(),
            operands_class=columns.component(),
            accumulators_class=store.component(),
            words_class=_Words,
        ),
    )
    offered, payload = h.free("instruction", _INSTRUCTION), cta.i.payload
    names = [name for name, _ in _INSTRUCTION if name != "mark"]
    h.m.d.comb += [
        cta.i.valid.eq(h.free("i_valid") & ~reset),
        payload.operation.eq(CtaOperation.MULTIPLY),
        *(payload[name].eq(offered[name]) for name in names),
        payload.d_column.eq(offered.mark << 8),
        *(payload[f"{name}_column"].eq(offered.mark) for name in ("a", "metadata", "scale_a", "scale_b")),
        cta.other_waits.eq(h.free("other_waits")),
    ]
    h.assume(~offered.pair | offered.last_panel[0])
    assume_a_rule(h, offered.control)
    other_panel = h.free("other_panel", PANEL_OF_D)
    for column, word in product(range(8), range(16)):
        other = label_of_b(other_panel.mark, other_panel.panel, column, word)
        h.m.d.comb += cta.other_panel[column].word_select(word, WORD).eq(other)
    for name, which in (("a_descriptor", 1), ("b_descriptor", 0)):
        h.m.d.comb += payload[name].eq(descriptor(offered.mark, which))
    slots = cta.parts.slots
    taken = h.named("taken", slots.i.valid & slots.i.ready)
    multiplied = h.named("multiplied", cta.parts.array_0.i.valid)
    turns = Turns(h, taken, offered, multiplied)
    turns.claim(h)
    claim_slots(h, slots, turns, names)
    for slot, instruction in enumerate(turns.instructions):
        held = slots.held[slot]
        right = held.d_column == instruction.mark << 8
        for name in ("a", "metadata", "scale_a", "scale_b"):
            right &= held[f"{name}_column"] == instruction.mark
        h.claim(f"columns_{slot}", ~turns.occupied[slot] | (right & (~instruction.pair | instruction.last_panel[0])))
    claim_b(h, cta.parts, fetch, turns, _OWN)
    elsewhere = slots.a.wanted & ~turns.of(slots.a.slot).a_shared
    got, missing = claim_a(h, cta.parts, fetch, turns, elsewhere)
    there, missing_words = _claim_columns(h, cta, columns, turns)
    _claim_accumulators(h, cta, store, turns)
    ready = turns.occupied & ~missing & ~missing_words
    h.claim("ready", slots.ready == ready.bit_select(turns.now, 1))
    _claim_stored(h, cta, turns, got, there)
    _claim_arrays(h, cta, turns, multiplied, other_panel)
    h.cover("pair", multiplied & turns.current.pair & (turns.panel == 1))
    h.cover("scaled", multiplied & turns.current.control.sparse & (Value.cast(turns.current.control.scale) != 0))


def _claim_columns(h: Harness, cta: Any, columns: Columns, turns: Turns) -> tuple[list[Value], Value]:
    """State that columns are requested in turns; return which of them each slot has, and of which slots some misses."""
    turn, requests = cta.parts.slots.words, cta.parts.tensor_operands.i
    slot, left = turns.brought("words", columns.taken)
    turns.claim_brought(h, "words", slot, left)
    of_request, asked = turns.of(slot), requests.payload
    missing = Signal(SLOTS, name="missing_words")
    comes = h.named("comes_of_words", Cat(turns.next_slot == number for number in range(SLOTS)))
    arrived = h.named("words_arrived", columns.complete << columns.tag, SLOTS)
    taken = cta.parts.slots.i.valid & cta.parts.slots.i.ready
    h.m.d.sync += missing.eq(missing & ~arrived | Mux(taken, comes, 0))
    h.claim("turn_of_words", (turn.slot == slot) & (turn.left == left) & (turn.missing == missing))
    h.claim("requests_of_words", requests.valid == left.bit_select(slot, 1))
    wide = of_request.control.a == _WIDE
    scaled = Value.cast(of_request.control.scale) != 0
    right = Cat(
        asked.sparse == of_request.control.sparse,
        asked.wide == wide,
        asked.scaled == scaled,
        asked.last_panel == of_request.last_panel,
        asked.a_shared == of_request.a_shared,
        asked.sparsity_selector == of_request.sparsity_selector,
        asked.tag == slot,
        *(asked[f"{name}_column"] == of_request.mark for name in ("a", "metadata", "scale_a", "scale_b")),
    ).all()
    h.claim("request_of_words", ~requests.valid | right)
    h.claim("words_missing", ~(missing & ~turns.occupied).any() & ~(left & ~missing).any())
    h.claim("words_are_there", (turns.panel == 0) | ~missing.bit_select(turns.now, 1))
    busy = left.bit_select(slot, 1)
    of_arrived = turns.of(columns.tag)
    h.claim(
        "column_arrives",
        ~columns.arrives
        | (
            missing.bit_select(columns.tag, 1)
            & (columns.mark == of_arrived.mark)
            & (columns.place < ALL_COLUMNS)
            & Mux(columns.complete, ~left.bit_select(columns.tag, 1), busy & (columns.tag == slot))
        ),
    )
    h.claim(
        "columns_complete",
        ~columns.complete | (missing.bit_select(columns.tag, 1) & ~left.bit_select(columns.tag, 1)),
    )
    h.claim("columns_begun", busy | (columns.done == 0))
    arriving = h.named("arriving_column", columns.arrives << columns.place, ALL_COLUMNS)
    found = []
    for number, instruction in enumerate(turns.instructions):
        there = Signal(ALL_COLUMNS, name=f"there_{number}")
        begins = h.named(f"begins_{number}", taken & (turns.next_slot == number))
        here = h.named(f"arrives_for_{number}", Mux(columns.tag == number, arriving, 0), ALL_COLUMNS)
        h.m.d.sync += there.eq(Mux(begins, 0, there | here))
        scale = instruction.control.scale.as_value() != 0
        needs = h.named(
            f"needs_{number}",
            wanted_columns(
                instruction.control.sparse,
                instruction.control.a == _WIDE,
                scale,
                instruction.last_panel,
                instruction.a_shared,
            ),
        )
        so_far = there | here
        is_next = busy & (slot == number)
        h.claim(f"read_{number}_of_columns", ~is_next | (so_far == columns.done))
        h.claim(f"not_begun_{number}", ~left[number] | is_next | (there == 0))
        h.claim(f"only_needed_{number}", ~turns.occupied[number] | ((so_far & ~needs) == 0))
        last = columns.complete & (columns.tag == number)
        h.claim(f"last_{number}", left[number] | ~missing[number] | (last & (so_far == needs)))
        h.claim(f"all_{number}", missing[number] | ~turns.occupied[number] | (there == needs))
        found.append(there)
    return found, missing


def _claim_accumulators(h: Harness, cta: Any, store: HeldAccumulators, turns: Turns) -> None:
    """State that accumulators are requested panel by panel, and that those requested are the next to be multiplied."""
    turn, requests = cta.parts.slots.d, cta.parts.accumulators.i
    requested = h.named("requested_of_d", requests.valid & requests.ready)
    panel, ends = Signal(6, name="panel_of_d"), Signal(name="d_ends")
    slot, left = turns.brought("d", ends)
    turns.claim_brought(h, "d", slot, left)
    of_request, asked = turns.of(slot), requests.payload
    h.m.d.comb += ends.eq(requested & (panel == of_request.last_panel))
    with h.m.If(requested):
        h.m.d.sync += panel.eq(Mux(ends, 0, panel + 1))
    h.claim("turn_of_d", (turn.slot == slot) & (turn.left == left))
    h.claim("requests_of_d", requests.valid == left.any())
    h.claim("panel_of_d", cta.signal("requested_of_d") == panel)
    right = (asked.column == Cat(Const(0, 3), _number(of_request, panel[:5]), of_request.mark)) & (
        asked.add == of_request.add
    )
    right &= asked.half == (of_request.control.result == ResultCode.F16)
    h.claim("request_of_d", ~requests.valid | right)
    current, other, count = turns.current, turns.of(turns.other), store.count
    rest, of_both = Signal(6, name="rest_of_d"), Signal(7, name="rest_of_both_d")
    h.m.d.comb += [
        rest.eq(Mux(turns.occupied.any(), current.last_panel + 1 - turns.panel, 0)),
        of_both.eq(rest + Mux(turns.occupied.all(), other.last_panel + 1, 0)),
    ]
    of_now, of_other = (left.bit_select(which, 1) for which in (turns.now, turns.other))
    h.claim("d_no_more", (count <= of_both) & (count <= 2))
    h.claim("d_of_now", of_now == (count < rest))
    h.claim("d_of_other", of_other == (turns.occupied.all() & (count < of_both)))
    following = Mux(of_now, turns.panel + count, Mux(of_other & (count > rest), count - rest, 0))
    h.claim("d_next", panel == following[:6])
    for place, asked_panel in enumerate(store.panels):
        of_current = Cat(current.mark, _number(current, (turns.panel + place)[:5]))
        due = Mux(place < rest, of_current, Cat(other.mark, _number(other, (place - rest)[:5])))
        h.claim(f"accumulators_{place}", (count <= place) | (Value.cast(asked_panel) == due))


def _claim_stored(h: Harness, cta: Any, turns: Turns, got: list[list[Value]], there: list[Value]) -> None:
    """State that what has arrived is stored where it belongs.

    PTX ISA 9.7.16.10.8.4; CUTLASS ``tmem_e_frg`` and ``tmem_sf_frg``: metadata of a row is in its lane of one column or
    two; block scales of 32 rows or columns share a column, a lane each. A of a row: four bytes a column.
    """
    for slot, instruction in enumerate(turns.instructions):
        mark, has = instruction.mark, there[slot]
        fragments = cta.parts.stored_a.fragments[slot]
        for panel, segment in product(range(2 * ARRAYS), range(SEGMENTS)):
            right = []
            for row, word in product(range(8), range(4)):
                array, lane, register = lane_register(panel, segment, row, word)
                right.append(fragments[array][lane][register] == label(mark, place_of_a(array, lane, register)))
            here = got[slot][SEGMENTS * panel + segment] & instruction.a_shared
            h.claim(f"a_{slot}_{panel}_{segment}", ~here | Cat(right).all())
        words = cta.parts.words
        for column in range(COLUMNS_OF[Operand.A]):
            segment, thread = divmod(column, 4)
            right = []
            for row in range(ROWS_OF_ARRAYS):
                half, group = divmod(row % ROWS, 8)
                stored = fragments[row // ROWS][4 * group + thread][2 * segment + half]
                right.append(stored == word_of_column(mark, Operand.A, column, row))
            here = has[FIRST_OF[Operand.A] + column] & ~instruction.a_shared
            h.claim(f"a_{slot}_column_{column}", ~here | Cat(right).all())
        for number in range(2):
            for pair in range(2):
                stored = words.signal(f"metadata_{pair}_{slot}")
                wide = instruction.control.a == _WIDE
                meant = (wide if number == 0 else Const(0)) if pair != number else (Const(1) if number == 0 else ~wide)
                right = [
                    stored.word_select(row, WORD) == word_of_column(mark, Operand.METADATA, number, row)
                    for row in range(ROWS_OF_ARRAYS)
                ]
                here = has[FIRST_OF[Operand.METADATA] + number] & meant
                h.claim(f"metadata_{slot}_{number}_{pair}", ~here | Cat(right).all())
        for operand, name in ((Operand.SCALE_A, "scale_a"), (Operand.SCALE_B, "scale_b")):
            stored = words.signal(f"{name}_{slot}")
            for number in range(COLUMNS_OF[operand]):
                right = [
                    stored.word_select(32 * number + lane, WORD) == word_of_column(mark, operand, number, lane)
                    for lane in range(32)
                ]
                h.claim(f"{name}_{slot}_{number}", ~has[FIRST_OF[operand] + number] | Cat(right).all())


def _claim_arrays(h: Harness, cta: Any, turns: Turns, multiplied: Value, other_panel: Any) -> None:
    """State what the arrays are given of a panel."""
    current, panel = turns.current, turns.panel
    number = _number(current, panel)
    mine = ~current.pair | (panel[0] == current.odd)
    b_mark = Mux(mine, current.mark, other_panel.mark)
    b_panel = Mux(mine, Mux(current.pair, panel >> 1, panel), other_panel.panel)[:5]
    wide, scaled, sparse = current.control.a == _WIDE, Value.cast(current.control.scale) != 0, current.control.sparse
    h.claim("together", ~multiplied | ~current.pair | cta.other_waits)
    for array in range(ARRAYS):
        given = cta.parts[f"array_{array}"].i
        operands = given.payload
        h.claim(f"taken_{array}", (given.valid & given.ready) == multiplied)
        said = cta.parts[f"operands_{array}"].instruction
        same = [
            Value.cast(operands.control) == Value.cast(current.control),
            operands.sparsity_selector == current.sparsity_selector,
            operands.long,
            said.negated == current.negated,
            *(Value.cast(operands[name]) == Value.cast(current[name]) for name in ("scale_size", "byte_a", "byte_b")),
        ]
        h.claim(f"control_{array}", ~multiplied | Cat(same).all())
        for lane in range(LANES):
            group, thread = divmod(lane, 4)
            pair, half = divmod(thread, 2)
            row = ROWS * array + 8 * half + group
            a, b, c = [], [], []
            for register in range(REGISTERS):
                place = place_of_a(array, lane, register)
                segment, upper = divmod(register, 2)
                of_tensor = word_of_column(
                    current.mark, Operand.A, 4 * segment + thread, ROWS * array + 8 * upper + group
                )
                of_a = Mux(current.a_shared, label(current.mark, place), of_tensor)
                a.append(operands.a[lane][register][:15] == of_a[:15])
                b.append(operands.b[lane][register] == label_of_b(b_mark, b_panel, group, 4 * register + thread))
                c.append(
                    operands.c[lane][register] == Mux(current.add, accumulator_word(current.mark, number, place), 0)
                )
            of_one, of_two = (word_of_column(current.mark, Operand.METADATA, number, row) for number in (0, pair))
            of_metadata = Mux(wide, of_one, of_two)
            of_scale_a = word_of_column(current.mark, Operand.SCALE_A, row // 32, row % 32)
            column = Cat(Const(group, 3), number)  # of D, and of B
            first = Const(FIRST_OF[Operand.SCALE_B], range(ALL_COLUMNS))
            of_scale_b = Cat(current.mark, (first + column[5:])[: len(first)], column[:5], Const(0, 2))
            e = [~sparse | (operands.e[lane] == of_metadata)]
            scale_a = [~scaled | (operands.scale_a[lane] == of_scale_a)]
            scale_b = [~scaled | (operands.scale_b[lane] == of_scale_b)]
            for name, right in (("a", a), ("b", b), ("c", c), ("e", e), ("scale_a", scale_a), ("scale_b", scale_b)):
                h.claim(f"{name}_of_array_{array}_{lane}", ~multiplied | Cat(right).all())
