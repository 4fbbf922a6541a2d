"""Proofs about ``tcgen05`` on a CTA's tensor cores: every dot-product array receives its own operands.

Arrays, the fetch, the reader of tensor memory and the accumulators are replaced by stand-ins
(:mod:`~sptc.formal.stand_ins`). Every operand word carries a label: the mark of its instruction, and its position.
"""

from itertools import product
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value

from ..rtl.round import ResultCode
from ..rtl.tcgen05 import CtaOperation, Tcgen05
from ..rtl.tensor_operands import Operand
from .harness import Harness, opened, replace_logic
from .properties import Topic, once
from .sizes import LANES, REGISTERS, ROWS, SLOTS
from .slot_model import OwnPanels, SlotModel, claim_a, claim_b, claim_slots, claim_stream, instruction_layout
from .stand_ins import (
    ALL_COLUMNS,
    ARRAYS,
    COLUMNS_OF,
    FIRST_OF,
    ROWS_OF_ARRAYS,
    SEGMENTS,
    WORD,
    AccumulatorsStandIn,
    ColumnReaderStandIn,
    FetchStandIn,
    accumulator_word,
    array_stand_in,
    descriptor,
    holds_core_matrix,
    label,
    label_of_b,
    needed_columns,
    place_of_a,
    word_of_column,
)
from .streams import SMALL_ARRAY, assume_a_rule

__all__ = ["TCGEN05"]

TCGEN05 = Topic("tcgen05")
#: Code of the small array's 16-bit element format. Metadata of 16-bit elements fills one column of tensor memory. The
#: other element format of the small array has 8 bits.
_WIDE = 0
#: Operands in tensor memory except D. In proofs, they start at column 0 or 1, the value of an instruction's test bit.
_IN_COLUMNS = ("a", "metadata", "scale_a", "scale_b")
#: Bit fields of an instruction in the proofs: its options, but not the addresses of its operands.
_INSTRUCTION = instruction_layout(sparsity_selector=1, scale_size=2, byte_a=2, byte_b=2, pair=1, odd=1)
#: Panels (eight columns) of B that one CTA provides: all panels if the CTA is single, and every second panel if it is
#: one of a pair. N of an instruction of a CTA pair is a multiple of 16.
_OWN_B = OwnPanels(
    lambda i: Mux(i.pair, (i.last_panel + 1) >> 1, i.last_panel + 1),
    lambda i, panel: Mux(i.pair, (panel + ~i.odd) >> 1, panel),
)


def _number_of_d(i: Any, place: Value) -> Value:
    """Return the number of the panel of D (eight columns) at a position in the order of multiplication.

    A pair of CTAs takes panels from the two halves of N in turn.
    """
    half = (i.last_panel + 1) >> 1
    return Mux(i.pair, (place >> 1) + Mux(place[0], half, 0), place)[:5]


def _is_wide(instruction: Any) -> Value:
    return instruction.control.a == _WIDE


def _is_scaled(instruction: Any) -> Value:
    return Value.cast(instruction.control.scale) != 0


@TCGEN05.property("order", once, cycles=40)
def _order(h: Harness) -> None:
    """Each array of dot-product units receives the next columns of B, and its rows of A, metadata, block scales and D.

    Every word is at its position, once for each panel (eight columns of D) and in order. The proof covers A in shared
    and in tensor memory, metadata of 16-bit and of 8-bit elements, and a single CTA as well as a pair, in which the two
    CTAs provide panels of B alternately. Memories and arrays may accept at any time, both instruction slots may be
    occupied, and a reset may occur at any time.
    """
    reset = h.clocked()
    fetch, columns, accumulators = FetchStandIn(h, 2 * ARRAYS), ColumnReaderStandIn(h), AccumulatorsStandIn(h)
    cta = h.add("cta", opened(Tcgen05(SMALL_ARRAY, ARRAYS, warp_class=array_stand_in(h, ARRAYS))))
    replace_logic(cta.parts.fetch, fetch.build)
    replace_logic(cta.parts.tensor_operands, columns.build)
    replace_logic(cta.parts.accumulators, accumulators.build)
    opened(cta.parts.words)
    instruction, payload = h.free("instruction", _INSTRUCTION), cta.i.payload
    names = [name for name, _ in _INSTRUCTION if name != "mark"]
    h.m.d.comb += [
        cta.i.valid.eq(h.free("i_valid") & ~reset),
        payload.operation.eq(CtaOperation.MULTIPLY),
        *(payload[name].eq(instruction[name]) for name in names),
        payload.d_column.eq(instruction.mark << 8),
        *(payload[f"{name}_column"].eq(instruction.mark) for name in _IN_COLUMNS),
        payload.a_descriptor.eq(descriptor(instruction.mark, 1)),
        payload.b_descriptor.eq(descriptor(instruction.mark, 0)),
        cta.other_waits.eq(h.free("other_waits")),
    ]
    h.assume(~instruction.pair | instruction.last_panel[0])
    assume_a_rule(h, instruction.control)
    other_mark, other_panel = h.free("other_mark"), h.free("other_panel", 5)
    for column, word in product(range(8), range(16)):
        of_other = label_of_b(other_mark, other_panel, column, word)
        h.m.d.comb += cta.other_panel[column].word_select(word, WORD).eq(of_other)
    slots = cta.parts.slots
    accepted = h.named("accepted", slots.i.valid & slots.i.ready)
    multiplied = h.named("multiplied", cta.parts.array_0.i.valid)
    model = SlotModel(h, accepted, instruction, multiplied)
    claim_slots(h, slots, model, names)
    for slot, of_slot in enumerate(model.instructions):
        right = slots.stored[slot].d_column == of_slot.mark << 8
        for name in _IN_COLUMNS:
            right &= slots.stored[slot][f"{name}_column"] == of_slot.mark
        h.claim(f"columns_{slot}", ~model.occupied[slot] | (right & (~of_slot.pair | of_slot.last_panel[0])))
    claim_b(h, cta.parts, fetch, model, _OWN_B)
    elsewhere = slots.a.pending & ~model.in_slot(slots.a.slot).a_shared
    stored_a, missing_a = claim_a(h, cta.parts, fetch, model, elsewhere)
    stored_columns, missing_words = _claim_columns(h, cta, columns, model)
    _claim_accumulators(h, cta, accumulators, model)
    h.claim("ready", slots.ready == model.at_current(model.occupied & ~missing_a & ~missing_words))
    for slot, of_slot in enumerate(model.instructions):
        _claim_stored_a(h, cta, slot, of_slot, stored_a[slot], stored_columns[slot])
        _claim_stored_words(h, cta, slot, of_slot, stored_columns[slot])
    _claim_arrays(h, cta, model, multiplied, (other_mark, other_panel))
    h.cover("pair", multiplied & model.current.pair & (model.panel == 1))
    h.cover("scaled", multiplied & model.current.control.sparse & _is_scaled(model.current))


def _claim_columns(h: Harness, cta: Any, columns: ColumnReaderStandIn, model: SlotModel) -> tuple[list[Signal], Value]:
    """Claim that all columns of tensor memory for one instruction slot are requested before those for the other slot.

    Return a mask of the columns that are stored for each slot, and a mask of the slots with missing columns.
    """
    turn, requests, tag = cta.parts.slots.words, cta.parts.tensor_operands.i, columns.tag
    request: Any = requests.payload
    slot, left = model.turn("words", turn, columns.accepted)
    missing = model.missing("words", turn, left, h.named("words_complete", columns.complete << tag, SLOTS))
    instruction, pending = model.in_slot(slot), left.bit_select(slot, 1)
    right = [
        request.sparse == instruction.control.sparse,
        request.wide == _is_wide(instruction),
        request.scaled == _is_scaled(instruction),
        *(request[name] == instruction[name] for name in ("last_panel", "a_shared", "sparsity_selector")),
        *(request[f"{name}_column"] == instruction.mark for name in _IN_COLUMNS),
        request.tag == slot,
    ]
    h.claim("requests_of_words", requests.valid == pending)
    h.claim("request_of_words", ~requests.valid | Cat(right).all())
    of_tag_missing, of_tag_left = missing.bit_select(tag, 1), left.bit_select(tag, 1)
    right = [
        of_tag_missing,
        columns.mark == model.in_slot(tag).mark,
        columns.place < ALL_COLUMNS,
        Mux(columns.complete, ~of_tag_left, pending & (tag == slot)),
    ]
    h.claim("column_arriving", ~columns.arriving | Cat(right).all())
    h.claim("columns_complete", ~columns.complete | (of_tag_missing & ~of_tag_left))
    h.claim("columns_begun", pending | (columns.done == 0))
    arriving = h.named("arriving_column", columns.arriving << columns.place, ALL_COLUMNS)
    stored = []
    for number, of_slot in enumerate(model.instructions):
        of_number, arrives = Signal(ALL_COLUMNS, name=f"columns_of_{number}"), Mux(tag == number, arriving, 0)
        so_far = h.named(f"columns_so_far_{number}", of_number | arrives, ALL_COLUMNS)
        h.m.d.sync += of_number.eq(Mux(model.filled[number], 0, so_far))
        kind = of_slot.control.sparse, _is_wide(of_slot), _is_scaled(of_slot)
        needed = needed_columns(*kind, of_slot.last_panel, of_slot.a_shared)
        needed = h.named(f"columns_needed_{number}", needed)
        in_progress, complete = pending & (slot == number), columns.complete & (tag == number)
        h.claim(f"columns_read_{number}", ~in_progress | (so_far == columns.done))
        h.claim(f"no_column_{number}", ~left[number] | in_progress | (of_number == 0))
        h.claim(f"no_other_column_{number}", ~model.occupied[number] | ((so_far & ~needed) == 0))
        h.claim(f"last_column_{number}", left[number] | ~missing[number] | (complete & (so_far == needed)))
        h.claim(f"all_columns_{number}", missing[number] | ~model.occupied[number] | (of_number == needed))
        stored.append(of_number)
    return stored, missing


def _claim_accumulators(h: Harness, cta: Any, accumulators: AccumulatorsStandIn, model: SlotModel) -> None:
    """Claim that accumulators are requested panel by panel (eight columns of D), in the order of multiplication."""
    requests = cta.parts.accumulators.i
    request: Any = requests.payload
    turn, queue = cta.parts.slots.d, accumulators.panels
    instruction, place = claim_stream(h, model, "d", turn, requests, queue, number=_number_of_d)
    right = [
        request.column == Cat(Const(0, 3), _number_of_d(instruction, place[:5]), instruction.mark),
        request.add == instruction.add,
        request.half == (instruction.control.result == ResultCode.F16),
    ]
    h.claim("request_of_d", ~requests.valid | Cat(right).all())
    h.claim("panel_of_d", cta.signal("requested_of_d") == place)


def _claim_stored_a(
    h: Harness, cta: Any, slot: int, instruction: Any, core_matrices: list[Value], columns: Signal
) -> None:
    """Claim that every word of A that has arrived is in the register that PTX specifies.

    A column of tensor memory holds four bytes of each row: column 4 s + t is word t of segment s (PTX ISA, packing of
    A). For row 8 h + g this word belongs to lane 4 g + t, register 2 s + h.
    """
    fragments, mark = cta.parts.stored_a.fragments[slot], instruction.mark
    for panel, segment in product(range(2 * ARRAYS), range(SEGMENTS)):
        present = core_matrices[SEGMENTS * panel + segment] & instruction.a_shared
        h.claim(f"a_{slot}_{panel}_{segment}", ~present | holds_core_matrix(fragments, mark, panel, segment))
    for column in range(COLUMNS_OF[Operand.A]):
        segment, thread = divmod(column, 4)
        right = []
        for row in range(ROWS_OF_ARRAYS):
            half, group = divmod(row % ROWS, 8)
            word = fragments[row // ROWS][4 * group + thread][2 * segment + half]
            right.append(word == word_of_column(mark, Operand.A, column, row))
        present = columns[FIRST_OF[Operand.A] + column] & ~instruction.a_shared
        h.claim(f"a_{slot}_column_{column}", ~present | Cat(right).all())


def _claim_stored_words(h: Harness, cta: Any, slot: int, instruction: Any, columns: Signal) -> None:
    """Claim that all metadata and block scales that have arrived are in the registers of their rows and columns.

    The metadata of a row is in the tensor-memory lane of this row. With 16-bit elements, the first lane pair of a quad
    uses the only column of metadata; with 8-bit elements, each pair has its own column. Block scales of 32 rows or
    columns share a column, with one lane each (PTX ISA 9.7.16.10.8.4; CUTLASS ``tmem_e_frg``, ``tmem_sf_frg``).
    """
    words, mark = cta.parts.words, instruction.mark

    def holds(name: str, operand: Operand, number: int, first: int, lanes: int) -> Value:
        stored, lanes_of_column = words.signal(f"{name}_{slot}"), range(lanes)
        expected = [word_of_column(mark, operand, number, lane) for lane in lanes_of_column]
        return Cat(stored.word_select(first + lane, WORD) == expected[lane] for lane in lanes_of_column).all()

    for number in range(COLUMNS_OF[Operand.METADATA]):
        right = holds(f"metadata_{number}", Operand.METADATA, number, 0, ROWS_OF_ARRAYS)
        h.claim(f"metadata_{slot}_{number}", ~columns[FIRST_OF[Operand.METADATA] + number] | right)
    for operand, name in ((Operand.SCALE_A, "scale_a"), (Operand.SCALE_B, "scale_b")):
        for number in range(COLUMNS_OF[operand]):
            right = holds(name, operand, number, 32 * number, 32)
            h.claim(f"{name}_{slot}_{number}", ~columns[FIRST_OF[operand] + number] | right)


def _claim_arrays(h: Harness, cta: Any, model: SlotModel, multiplied: Value, of_other_cta: tuple[Value, Value]) -> None:
    """Claim that each array gets the right operands. `of_other_cta`: instruction and panel of the other CTA's B."""
    current, panel = model.current, model.panel
    number, mark = _number_of_d(current, panel), current.mark
    is_own = ~current.pair | (panel[0] == current.odd)
    mark_of_b = Mux(is_own, mark, of_other_cta[0])
    panel_of_b = Mux(is_own, Mux(current.pair, panel >> 1, panel), of_other_cta[1])[:5]
    h.claim("together", ~multiplied | ~current.pair | cta.other_waits)
    for array in range(ARRAYS):
        source, instruction = cta.parts[f"array_{array}"].i, cta.parts[f"operands_{array}"].instruction
        operands = source.payload
        h.claim(f"accepted_{array}", (source.valid & source.ready) == multiplied)
        right = [
            Value.cast(operands.control) == Value.cast(current.control),
            operands.sparsity_selector == 0,
            operands.long,
            instruction.negated == current.negated,
            *(Value.cast(operands[name]) == Value.cast(current[name]) for name in ("scale_size", "byte_a", "byte_b")),
        ]
        h.claim(f"control_{array}", ~multiplied | Cat(right).all())
        for lane in range(LANES):
            group, thread = divmod(lane, 4)
            pair, half = divmod(thread, 2)
            row = ROWS * array + 8 * half + group
            a, b, c = [], [], []
            for register in range(REGISTERS):
                place = place_of_a(array, lane, register)
                segment, upper = divmod(register, 2)
                row_of_a = ROWS * array + 8 * upper + group
                of_tensor = word_of_column(mark, Operand.A, 4 * segment + thread, row_of_a)
                of_a = Mux(current.a_shared, label(mark, place), of_tensor)
                of_c = accumulator_word(mark, number, place)
                a.append(operands.a[lane][register][:15] == of_a[:15])  # compares the bits below the sign of an f16
                b.append(operands.b[lane][register] == label_of_b(mark_of_b, panel_of_b, group, 4 * register + thread))
                c.append(operands.c[lane][register] == Mux(current.add, of_c, 0))
            column = Cat(Const(group, 3), number)  # column of D: 8 * panel number + lane // 4
            first = Const(FIRST_OF[Operand.SCALE_B], range(ALL_COLUMNS))
            of_scale_a = word_of_column(mark, Operand.SCALE_A, row // 32, row % 32)
            of_scale_b = Cat(mark, (first + column[5:])[: len(first)], column[:5], Const(0, 2))
            # With 16-bit elements, lanes 2 and 3 of every four lanes provide no metadata.
            ignored = ~current.control.sparse | (_is_wide(current) & pair)
            e = [ignored | (operands.e[lane] == word_of_column(mark, Operand.METADATA, pair, row))]
            scale_a = [~_is_scaled(current) | (operands.scale_a[lane] == of_scale_a)]
            scale_b = [~_is_scaled(current) | (operands.scale_b[lane] == of_scale_b)]
            for name, right in (("a", a), ("b", b), ("c", c), ("e", e), ("scale_a", scale_a), ("scale_b", scale_b)):
                h.claim(f"{name}_of_array_{array}_{lane}", ~multiplied | Cat(right).all())
