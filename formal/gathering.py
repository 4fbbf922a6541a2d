"""Proofs that a warp reads its operands from the registers that PTX specifies, and returns results and flags as in PTX.

The positions of bytes, nibbles and scales in the registers are written by hand from PTX ISA 9.7.14.5 and 9.7.14.6,
without the maps of the design or of the models. The harness copies the operands when an instruction enters, and counts
blocks independently of the hardware. The core is proved separately, so its results are free variables here. The proofs
compare one bit of each 16-bit half of accumulators and results, because the hardware moves only whole halves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value

from ..rtl.config import CoreConfig
from ..rtl.round import ResultCode
from ..rtl.unit import Unit
from ..rtl.warp import ScaleSizeCode, Warp, warp_operands_layout
from .harness import Harness, changed, opened, stand_in
from .properties import Parameters
from .selection import is_wide
from .sizes import COLUMNS, LANES, REGISTERS, ROWS
from .streams import WARP, bare, few_blocks

__all__ = ["WARP", "Block", "IssuedInstruction", "counted", "nibbles_of", "offer"]

#: Operands of an instruction in registers. Each proof leaves one operand free, and sets all other operands to zero.
_REGISTERS = ("e", "a", "b", "scale_a", "scale_b", "c")
#: Number of bytes of a row of A, or of a column of B, that a quad (four lanes) holds in one register of each lane.
_SEGMENT = 16
_CHUNKS = 16
_LEGAL = 0b0100
#: Type of the recorded outputs of the dot-product units: a list of results, and a list of overflow flags.
_Returned = tuple[list[Signal], list[Signal]]


def _halves(low: Value, high: Value) -> Value:
    """Return a 32-bit word that has `low` as bit 0, `high` as bit 16, and zeros elsewhere."""
    return Cat(low, Const(0, 15), high, Const(0, 15))


def _units(results: Signal, overflows: Signal) -> type[Unit]:
    """Return a class of dot-product units whose results and overflow flags are free variables, in row-major order."""
    numbers = count()

    def build(unit: Any) -> Module:
        m, number = Module(), next(numbers)
        word = _halves(*results.word_select(number, 2))
        m.d.comb += [unit.result.d.eq(word), unit.result.overflow.eq(overflows[number])]
        return m

    return stand_in(Unit, build)


@dataclass(frozen=True)
class Block:
    """A transfer at the ports of an array of dot-product units: operands that enter, or results that leave."""

    happens: Value  #: Whether the operands or results are transferred in the current cycle
    #: Block of D whose operands or results are transferred: index along the rows, and index along the columns.
    row: Value
    column: Value
    step: Value  #: Step along K (0 or 1) to which the operands or results belong


def counted(h: Harness, name: str, config: CoreConfig, happens: Value, last: Value) -> Block:
    """Count transfers along columns of D, then rows of D, then K. `last` marks the last transfer of an instruction."""
    columns, rows = COLUMNS // config.columns, ROWS // config.rows
    number = Signal(range(2 * rows * columns), name=f"{name}_number")
    with h.m.If(happens):
        h.m.d.sync += number.eq(Mux(last, 0, number + 1))
    h.observed[f"{name}_number"] = number
    within = number % (rows * columns)
    return Block(happens, within // columns, within % columns, number // (rows * columns))


def _row_of_a(a: Any, row: int, segment: int) -> Value:
    """Return the 16 bytes of a segment of a row of A, from the registers of the row's quad of lanes."""
    return Cat(
        a[4 * (row % 8) + byte // 4][2 * segment + row // 8].word_select(byte % 4, 8) for byte in range(_SEGMENT)
    )


def _column_of_b(b: Any, column: int, segment: int) -> Value:
    """Return 16 bytes of a column of B, from one register of each of the four lanes of the column's quad."""
    return Cat(b[4 * column + byte // 4][segment].word_select(byte % 4, 8) for byte in range(_SEGMENT))


def nibbles_of(e: Any, row: int, *, wide: bool, long: bool, selector: int) -> list[Value]:
    """Return the metadata nibbles of a row of A, read from the registers that the figures of the PTX ISA specify.

    With 16-bit elements, the thread that the sparsity selector picks, or the pair of threads if K is long, holds 16
    bits of row g and 16 bits of row g + 8. With smaller elements a thread holds 32 bits of one row, and the threads of
    even number hold row g. If K is long, all four threads of a quad then hold metadata.
    """
    nibbles = []
    for chunk in range((8 if long else 4) if wide else (16 if long else 8)):
        if wide:
            thread, low = (2 * (selector % 2) + chunk // 4 if long else selector), 16 * (row // 8) + 4 * (chunk % 4)
        else:
            thread, low = (2 * (chunk // 8) if long else 2 * (selector % 2)) + row // 8, 4 * (chunk % 8)
        nibbles.append(e[4 * (row % 8) + thread][low : low + 4])
    return nibbles


class IssuedInstruction:
    """Operands of the instruction that a warp issues, and the operands that each dot-product unit must get."""

    def __init__(self, h: Harness, config: CoreConfig, warp: Warp) -> None:
        self.words = Signal(warp_operands_layout(), reset_less=True, name="words")
        with h.m.If(warp.i.valid & warp.i.ready):
            h.m.d.sync += self.words.eq(warp.i.payload)
        self.config = config
        self.wide = is_wide(config, self.words.control.a)
        self.half = self.words.control.result == ResultCode.F16
        self.two_steps = config.step_bytes == _SEGMENT
        self.last_step: Value = self.words.long if self.two_steps else Const(0)

    def a(self, row: int, step: Value) -> Value:
        """Return the stored bytes of a row of A for cycle `step` along K; bytes that the instruction ignores are 0."""
        first, second = (_row_of_a(self.words.a, row, segment) for segment in range(2))
        return Mux(step, second, first) if self.two_steps else Cat(first, Mux(self.words.long, second, 0))

    def b(self, column: int, step: Value) -> Value:
        """Return the bytes of a column of B for cycle `step` along K: as many as of A, or twice as many if sparse."""
        s = [_column_of_b(self.words.b, column, segment) for segment in range(REGISTERS)]
        if self.two_steps:
            return Mux(self.words.control.sparse, Mux(step, Cat(s[2], s[3]), Cat(s[0], s[1])), Mux(step, s[1], s[0]))
        sparse = Cat(s[0], s[1], Mux(self.words.long, Cat(s[2], s[3]), 0))
        return Mux(self.words.control.sparse, sparse, Cat(s[0], Mux(self.words.long, s[1], 0)))

    def metadata(self, row: int, step: Value) -> Value:
        """Return the metadata nibbles of a row for cycle `step` along K. With 16-bit elements, upper nibbles are 0."""
        words, chunks = self.words, self.config.chunks
        cases: dict[tuple[int, int, int, int], Value] = {}
        for wide, long, selector, now in product(range(2), range(2), range(4), range(2)):
            nibbles = nibbles_of(words.e, row, wide=bool(wide), long=bool(long), selector=selector)
            nibbles += [Const(_LEGAL, 4)] * (_CHUNKS // (2 if wide else 1) - len(nibbles))
            in_step = chunks // 2 if wide else chunks
            cases[wide, long, selector, now] = Cat(nibbles[in_step * now :][:in_step])
        places = Array(cases[key] for key in sorted(cases))
        return places[Cat(step & self.two_steps, words.sparsity_selector, words.long, self.wide)]

    def scales(self, operand: str, index: int) -> Value:
        """Return the block scales of four sums of 16 products, from the byte and thread that PTX's scale ids select."""
        words = self.words
        if operand == "a":
            threads = [words.scale_a[4 * (index % 8) + 2 * thread + index // 8] for thread in range(2)]
            word, byte = Array(threads)[words.thread_a], words.byte_a
        else:
            word, byte = Array(words.scale_b[4 * index + thread] for thread in range(4))[words.thread_b], words.byte_b
        scales = [word.word_select(group, 8) for group in range(4)]
        first, second = Array(scales)[byte], Array(scales)[byte | 1]
        return Mux(words.scale_size == ScaleSizeCode.X4, word, Cat(first, first, second, second))

    def accumulator(self, row: int, column: int) -> Value:
        """Return the accumulator of an output: the value of a register, or one of the two f16 in a register."""
        lane = self.words.c[4 * (row % 8) + column // 2]
        return Mux(self.half, lane[row // 8].word_select(column % 2, 16), lane[2 * (row // 8) + column % 2])

    def same_metadata(self, nibbles: Value, row: int, step: Value) -> Value:
        """Return 1 if `nibbles` (for 16-bit elements, the lower half) are the metadata of row `row`, or A is dense."""
        half = 2 * self.config.chunks
        narrow = nibbles == self.metadata(row, step)
        wide = nibbles[:half] == self.metadata(row, step)[:half]
        return ~self.words.control.sparse | Mux(self.wide, wide, narrow)

    def same_scales(self, scales: Value, operand: str, index: int) -> Value:
        """Return 1 if all block scales are right (``scale_vec::1X`` has only one), or PTX forbids the byte id."""
        size, byte = self.words.scale_size, self.words.byte_a if operand == "a" else self.words.byte_b
        expected = self.scales(operand, index)
        allowed = ((size == ScaleSizeCode.X2) & ~byte[0]) | ((size == ScaleSizeCode.X4) & (byte == 0))
        return Mux(size == ScaleSizeCode.X1, scales[:8] == expected[:8], ~allowed | (scales == expected))

    def same_accumulator(
        self, tile: Any, returned: _Returned, within: tuple[int, int], block: tuple[int, int], step: Value
    ) -> Value:
        """Return 1 if an output gets the right accumulator: C in cycle 0 along K, the result of cycle 0 in cycle 1."""
        config, (words, overflows) = self.config, returned
        row, column = block[0] * config.rows + within[0], block[1] * config.columns + within[1]
        output, number = within[0] * config.columns + within[1], row * COLUMNS + column
        gathered = tile.c[output] ^ self.accumulator(row, column)
        first = Mux(self.half, gathered[:16] == 0, gathered == 0) & ~tile.overflow[output]
        second = (tile.c[output] == words[number]) & (tile.overflow[output] == overflows[number])
        return Mux(step, second, first)


def _configs(config: CoreConfig) -> Iterator[Parameters]:
    """Yield each operand that an instruction reads from registers, with the configuration in which its proof is run.

    Only the proof of field `c` follows results, so the configurations of all other fields have no pipeline registers.
    """
    for field in _REGISTERS if config.serves_warp else ():
        if field == "c":
            yield few_blocks(bare(config)), field
        elif not field.startswith("scale"):
            yield few_blocks(replace(bare(config), cuts=())), field
        elif config.scales:
            yield few_blocks(replace(config, name="array", cuts=())), field


def offer(h: Harness, warp: Warp, field: str) -> None:
    """Drive a warp with any instruction whose operands in registers are zero, except `field`, which has any value."""
    operands = h.free("operands", warp_operands_layout())
    for name in warp_operands_layout().members:
        if name == "c" == field:
            words = [_halves(word[0], word[16]) for lane in operands.c for word in lane]
            h.m.d.comb += warp.i.payload.c.eq(Cat(words))
        elif name == field or name not in _REGISTERS:
            h.m.d.comb += warp.i.payload[name].eq(operands[name])


@WARP.property("operands", _configs, cycles=lambda config, field: 2 * config.warp_blocks + config.latency + 4)
def _operands(h: Harness, config: CoreConfig, field: str) -> None:
    """For each element of D, a warp reads the operands from and writes the result to the registers that PTX specifies.

    The proof covers every row, column, step, sparsity selector and scale id. A second step takes the results of the
    first step as accumulators, and sets the metadata flags of the second half of the chunks.
    """
    h.assume(~h.clocked())
    outputs = config.rows * config.columns
    results, overflows = h.free("results", 2 * outputs), h.free("overflows", outputs)
    warp = h.add("warp", opened(Warp(config, _units(results, overflows))))
    core = warp.parts.core
    h.m.d.comb += [warp.i.valid.eq(h.free("i_valid")), warp.o.ready.eq(h.free("o_ready"))]
    offer(h, warp, field)
    instruction = IssuedInstruction(h, config, warp)
    tile, tag = core.i.payload, core.i.payload.tag
    issued = counted(h, "issued", config, core.i.valid & core.i.ready, tag.last)
    rows, columns = ROWS // config.rows, COLUMNS // config.columns
    last_block = (issued.row == rows - 1) & (issued.column == columns - 1) & (issued.step == instruction.last_step)
    step, control, same_width = issued.step[0], instruction.words.control, tag.wide == instruction.wide
    expected_control = changed(control, saturate=control.saturate & (issued.step == instruction.last_step))
    claims = {
        "tag": (tag.half == instruction.half) & same_width & (tag.step == issued.step) & (tag.last == last_block),
        "control": tile.control.as_value() == expected_control,
    }
    rights: dict[str, Callable[[int, int], Value]] = {
        "a": lambda i, row: tile.a[i] == instruction.a(row, step),
        "e": lambda i, row: instruction.same_metadata(tile.metadata[i], row, step),
        "scale_a": lambda i, row: instruction.same_scales(tile.scale_a[i], "a", row),
        "b": lambda j, column: tile.b[j] == instruction.b(column, step),
        "scale_b": lambda j, column: instruction.same_scales(tile.scale_b[j], "b", column),
    }
    if field == "c":
        returned = _returned(h, config, warp)
        for i, j in product(range(config.rows), range(config.columns)):
            current = issued.row * columns + issued.column
            claims[f"output{i}_{j}"] = Cat(
                (current != block) | instruction.same_accumulator(tile, returned, (i, j), divmod(block, columns), step)
                for block in range(rows * columns)
            ).all()
    else:
        of_rows = field in ("a", "e", "scale_a")
        name, size, count, current = (
            ("row", config.rows, rows, issued.row) if of_rows else ("column", config.columns, columns, issued.column)
        )
        for i in range(size):
            right = ((current != block) | rights[field](i, block * size + i) for block in range(count))
            claims[f"{name}{i}"] = Cat(right).all()
    for name, claim in claims.items():
        h.claim(name, ~issued.happens | claim)
    h.cover("last_block", issued.happens & tag.last)
    if field == "c":
        h.cover("long", issued.happens & instruction.words.long & (issued.step == instruction.last_step))


def _returned(h: Harness, config: CoreConfig, warp: Any) -> _Returned:
    """Record results and flags of the dot-product units, and claim that the warp's output registers contain them."""
    core = warp.parts.core
    result, tag = core.o.payload, core.o.payload.tag
    block = counted(h, "collected", config, core.o.valid & core.o.ready, tag.last)
    words = [Signal(32, reset_less=True, name=f"word_{n}") for n in range(ROWS * COLUMNS)]
    overflows = [Signal(reset_less=True, name=f"left_{n}") for n in range(ROWS * COLUMNS)]
    flags = [Signal(_CHUNKS, reset_less=True, name=f"flags_{row}") for row in range(ROWS)]
    half = Signal(reset_less=True, name="half")
    with h.m.If(block.happens):
        h.m.d.sync += half.eq(tag.half)
    for row, column in product(range(ROWS), range(COLUMNS)):
        (row_block, i), (column_block, j) = divmod(row, config.rows), divmod(column, config.columns)
        number, output = row * COLUMNS + column, i * config.columns + j
        with h.m.If(block.happens & (block.row == row_block) & (block.column == column_block)):
            h.m.d.sync += [words[number].eq(result.d[output]), overflows[number].eq(result.overflow[output])]
    for row in range(ROWS):
        first = result.illegal[row % config.rows]
        # A row has one flag per metadata nibble. Flags of the second 16 stored bytes follow those of the first 16:
        # four flags for 16-bit elements, or eight flags for smaller elements.
        second = Mux(tag.wide, Cat(Const(0, 4), first), Cat(Const(0, 8), first))
        with h.m.If(block.happens & (block.row == row // config.rows)):
            h.m.d.sync += flags[row].eq(Mux(tag.step, flags[row] | second, first))
    for lane, register in product(range(LANES), range(REGISTERS)):
        group, first = lane // 4, 2 * (lane % 4)
        single = words[(group + 8 * (register // 2)) * COLUMNS + first + register % 2]
        sides = range(2 if register < 2 else 0)
        pair = [words[(group + 8 * register) * COLUMNS + first + side][:16] for side in sides]
        shown = warp.o.payload.d[lane][register]
        h.claim(f"lane{lane}_register{register}", ~warp.o.valid | (shown == Mux(half, Cat(pair), single)))
    for row in range(ROWS):
        h.claim(f"flags{row}", ~warp.o.valid | (warp.o.payload.illegal[row] == flags[row]))
    h.cover("returned", warp.o.valid & warp.o.payload.d[31][3].any())
    return words, overflows
