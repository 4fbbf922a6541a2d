"""Arrays that answer with a hash of all they are given, for tops whose control and fetch are compiled without datapath.

Every result depends on every bit of its row of A, its column of B, its metadata, block scales, control and
accumulator, and the flags of a row on its row and on the panel: whatever a top exchanges, drops or delays shows in D.
The same hash of the operands that the golden model gathers is what D must be.
"""

import hashlib

import numpy as np
from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from numpy.typing import NDArray
from sptc.infra.cache import built
from sptc.infra.compiler import compile_shared, compiler_stamp
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import CoreConfig
from sptc.rtl.round import ResultCode
from sptc.rtl.step import control_layout
from sptc.rtl.warp import Warp, warp_operands_layout, warp_result_layout
from sptc.sim.engine.array_units import StandIn
from sptc.sim.engine.steps import step_words, steps_of

__all__ = ["EchoBackend", "echoing_arrays"]

_FACTOR, _START = 0x9E3779B1, 0x5EED
_OPERANDS, _RESULT = warp_operands_layout().size, warp_result_layout().size
#: Clocked like a unit: what it is given, and its handshakes above; what it gives, likewise.
_MODULE = f"""
module echoing_array(
    input clk, input rst, input [{_OPERANDS - 1}:0] operands, input valid, output ready,
    output [{_RESULT - 1}:0] result, output result_valid, input result_ready
);
    import "DPI-C" function chandle unit_create();
    import "DPI-C" function void unit_clock(
        input chandle unit, input bit [{_OPERANDS + 2}:0] step, output bit [{_RESULT + 1}:0] result
    );
    chandle array;
    bit [{_RESULT + 1}:0] following;
    reg [{_RESULT + 1}:0] given;
    initial array = unit_create();
    assign {{result_valid, ready, result}} = given;
    always @(posedge clk) begin
        unit_clock(array, {{rst, result_ready, valid, operands}}, following);
        given <= following;
    end
endmodule
"""
_LIBRARY = """
#include <cstdint>
#include <cstring>
#include <deque>

namespace {{
constexpr int result_words = {result} / 32, interval = {interval}, latency = {latency}, most = 3;
constexpr uint32_t wide_codes = {wide_codes};
uint32_t fold(uint32_t hash, uint32_t word) {{
    hash = (hash ^ word) * {factor}u;
    return hash ^ hash >> 15;
}}
struct Operands {{
    const uint32_t* words;
    uint32_t field(int offset, int width) const {{
        uint64_t both = words[offset / 32] >> offset % 32;
        if (offset % 32 + width > 32) both |= uint64_t(words[offset / 32 + 1]) << (32 - offset % 32);
        return uint32_t(both & ((uint64_t(1) << width) - 1));
    }}
    uint32_t a(int lane, int place) const {{ return words[{a} / 32 + 4 * lane + place]; }}
    uint32_t b(int lane, int place) const {{ return words[{b} / 32 + 4 * lane + place]; }}
    uint32_t c(int lane, int place) const {{ return words[{c} / 32 + 4 * lane + place]; }}
    uint32_t e(int lane) const {{ return words[{e} / 32 + lane]; }}
    uint32_t control() const {{ return field({control}, {control_bits}); }}
    bool is_long() const {{ return field({long}, 1); }}
    bool sparse() const {{ return field({control} + {sparse}, 1); }}
    bool half() const {{ return field({control} + {result_code}, {result_code_bits}) == {f16}; }}
    bool wide() const {{ return wide_codes >> field({control}, 4) & 1; }}
    bool scaled() const {{ return field({control} + {scale}, {scale_bits}) != 0; }}
    // The nibbles of a row, by the fragments of mma.sp.
    uint64_t metadata(int row) const {{
        const int quad = 4 * (row % 8), upper = row / 8;
        const uint64_t selector = field({selector}, 2), low = selector & 1;
        const auto half_word = [&](int lane) {{ return uint64_t(e(quad + lane) >> 16 * upper & 0xffff); }};
        if (!sparse()) return 0;
        if (wide()) return is_long() ? half_word(2 * low) | half_word(2 * low + 1) << 16 : half_word(selector);
        return is_long() ? e(quad + upper) | uint64_t(e(quad + 2 + upper)) << 32 : e(quad + upper + 2 * low);
    }}
    uint32_t scales(uint32_t word, int byte) const {{
        if (!scaled()) return 0;
        const uint32_t first = word >> 8 * byte, size = field({scale_size}, 2);
        if (size == 0) return first & 0xff;
        if (size == 2) return first;
        return (first & 0xff) * 0x101 | (first >> 8 & 0xff) * 0x1010000;
    }}
    uint32_t of_row(int row) const {{
        uint32_t hash = {start};
        for (int word = 0; word < 8; word++)
            hash = fold(hash, word < 4 || is_long() ? a(4 * (row % 8) + word % 4, 2 * (word / 4) + row / 8) : 0);
        const uint64_t nibbles = metadata(row);
        hash = fold(fold(hash, uint32_t(nibbles)), uint32_t(nibbles >> 32));
        const int lane = 4 * (row % 8) + row / 8 + 2 * field({thread_a}, 1);
        return fold(hash, scales(words[{scale_a} / 32 + lane], field({byte_a}, 2)));
    }}
    uint32_t of_column(int column) const {{
        const int there = (sparse() ? 8 : 4) * (is_long() ? 2 : 1);
        uint32_t hash = {start};
        for (int word = 0; word < 16; word++)
            hash = fold(hash, word < there ? b(4 * column + word % 4, word / 4) : 0);
        return fold(hash, scales(words[{scale_b} / 32 + 4 * column + field({thread_b}, 2)], field({byte_b}, 2)));
    }}
}};
struct Entry {{
    int64_t due;
    uint32_t words[result_words];
}};
struct Array {{
    std::deque<Entry> entries;
    int64_t cycle = 0, free_at = 0;
    bool ready = false, valid = false;
    void take(const Operands& of) {{
        entries.push_back({{cycle + latency, {{}}}});
        uint32_t* words = entries.back().words;
        uint32_t rows[16];
        for (int row = 0; row < 16; row++) rows[row] = of.of_row(row);
        for (int column = 0; column < 8; column++) {{
            const uint32_t of_column = of.of_column(column);
            for (int row = 0; row < 16; row++) {{
                const int lane = 4 * (row % 8) + column / 2, h = row / 8, side = column % 2;
                const uint32_t c = of.half() ? of.c(lane, h) >> 16 * side & 0xffff : of.c(lane, 2 * h + side);
                const uint32_t hash = fold(fold(fold(rows[row], of_column), of.control()), c);
                if (of.half()) words[4 * lane + h] |= ((hash ^ hash >> 16) & 0xffff) << 16 * side;
                else words[4 * lane + 2 * h + side] = hash;
                if (column == 0) words[128 + row / 2] |= (fold(rows[row], of_column) & 0xffff) << 16 * (row % 2);
            }}
        }}
    }}
    void clock(const uint32_t* step, uint32_t* result) {{
        const uint32_t shakes = Operands{{step}}.field({operands}, 3);
        if (shakes & 4) *this = Array();
        else {{
            if (valid && shakes & 2) entries.pop_front();
            if (ready && shakes & 1) {{
                take(Operands{{step}});
                free_at = cycle + interval;
            }}
        }}
        cycle++;
        ready = cycle >= free_at && entries.size() < most;
        valid = !entries.empty() && cycle >= entries.front().due;
        if (valid) std::memcpy(result, entries.front().words, sizeof entries.front().words);
        else for (int word = 0; word < result_words; word++) result[word] = fold(word, uint32_t(cycle));
        result[result_words] = ready | valid << 1;
    }}
}};
}}  // namespace
extern "C" void* units_create(int) {{ return new std::deque<Array>; }}
extern "C" void units_destroy(void* arrays) {{ delete static_cast<std::deque<Array>*>(arrays); }}
extern "C" void* units_add(void* arrays) {{ return &static_cast<std::deque<Array>*>(arrays)->emplace_back(); }}
extern "C" void units_clock(void*, void* array, const uint32_t* step, uint32_t* result) {{
    static_cast<Array*>(array)->clock(step, result);
}}
"""


class _EchoingArray(Warp):
    """An instance of the module that echoes."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.array = Instance(
            "echoing_array",
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_operands=self.i.payload,
            i_valid=self.i.valid,
            o_ready=self.i.ready,
            o_result=self.o.payload,
            o_result_valid=self.o.valid,
            i_result_ready=self.o.ready,
        )
        return m


def echoing_arrays(config: CoreConfig, optimisation: tuple[str, ...] = ("-O1",)) -> StandIn:
    """Return stand-ins that take and give panels in the cycles of the arrays of a configuration.

    `optimisation` is for the C++ compiler of the top around them: less of it where few cycles are run.
    """
    operands, control = warp_operands_layout(), control_layout()
    offsets = {name: operands[name].offset for name, _ in operands if name != "sparsity_selector"}
    text = _LIBRARY.format(
        **offsets,
        operands=operands.size,
        selector=operands["sparsity_selector"].offset,
        result=warp_result_layout().size,
        interval=config.warp_blocks,
        latency=config.warp_latency(1),
        wide_codes=sum(element.wide << code for code, element in enumerate(config.elements)),
        control_bits=control.size,
        sparse=control["sparse"].offset,
        result_code=control["result"].offset,
        result_code_bits=control["result"].width,
        f16=ResultCode.F16.value,
        scale=control["scale"].offset,
        scale_bits=control["scale"].width,
        factor=_FACTOR,
        start=_START,
    )
    name = hashlib.sha256(repr((text, compiler_stamp())).encode()).hexdigest()[:24]
    library = built(f"echo-{name}.so", lambda path: compile_shared(text, path, ["-O1"], "the echoing arrays"))
    return StandIn(_EchoingArray, _MODULE, library, optimisation)


def _fold(hashes: NDArray[np.uint32], words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    hashes = (hashes ^ words) * np.uint32(_FACTOR)
    return hashes ^ hashes >> np.uint32(15)


def _fold_all(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Fold the words of the last axis, the first one first."""
    hashes = np.full(words.shape[:-1], _START, np.uint32)
    for place in range(words.shape[-1]):
        hashes = _fold(hashes, words[..., place])
    return hashes


class EchoBackend:
    """A back end that answers as the arrays do.

    Parameters
    ----------
    config : CoreConfig
        The datapath of an array.

    Attributes
    ----------
    flags : list of ndarray of bool, shape (batch, panels, rows, 16)
        What stands beside each panel of results, of each call.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.flags: list[NDArray[np.bool_]] = []

    def make_ready(self, arch: str) -> None:
        """Nothing is built."""

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> NDArray:
        """Return the hashes of one instruction."""
        words = step_words(self.config)
        (step,) = steps_of(self.config, instruction, operands, ordered=False)
        row, column = step[:, :, 0], step[:, 0]
        parts = (row[..., words.a], row[..., words.metadata], row[..., words.scale_a])
        rows = _fold_all(np.concatenate(parts, axis=-1))
        columns = _fold_all(np.concatenate((column[..., words.b], column[..., words.scale_b]), axis=-1))
        met = _fold(rows[:, :, None], columns[:, None])
        flags = met[..., ::8].transpose(0, 2, 1)[..., None] >> np.arange(16, dtype=np.uint32) & np.uint32(1)
        self.flags.append(flags.astype(np.bool_))
        control = step[:, :1, :1, words.control][..., 0]
        hashes = _fold(_fold(met, control), operands.c.astype(np.uint32))
        return hashes if instruction.d.bits == 32 else (hashes ^ hashes >> np.uint32(16)).astype(np.uint16)
