"""Test arrays that return a hash of their operands in place of D, to test control and operand fetch alone.

A result depends on every bit of its row of A, its column of B, its metadata, block scales, control word and
accumulator. The flags of a row depend on the row and on the panel. So D is wrong if the top module exchanges, drops or
delays any operand. The expected D is the same hash, computed from the operands that the golden model gathers.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from ...infra.cache import built
from ...infra.compiler import compile_shared, compiler_stamp
from ...isa.instructions import Instruction
from ...isa.operands import MatrixOperands, Product
from ...rtl.config import CoreConfig
from ...rtl.round import ResultCode
from ...rtl.step import control_layout
from ...rtl.warp import warp_operands_layout, warp_result_layout
from .array_units import ARRAY, StandIn, unit_module
from .driver import driver
from .steps import step_words, steps_of

__all__ = ["ECHOING_PORTS", "EchoBackend", "echoing_arrays"]

#: Constants of the hash function, equal to the constants in ``drivers/hash.h`` and ``drivers/echo.cpp``.
_FACTOR, _START = 0x9E3779B1, 0x5EED
_OPERANDS, _RESULT = warp_operands_layout().size, warp_result_layout().size
#: Name of the Verilog module that calls a C++ library; the library simulates the array that returns hashes.
_ECHO = "echo_array"
#: Verilog of the array that returns hashes. Argument `step` of `unit_clock` packs the operands, `i__valid`, `o__ready`
#: and `rst`, lowest bits first; argument `result` packs the result, `i__ready` and `o__valid`.
ECHOING_MODULE = f"""
module {ARRAY}(
    input clk, input rst, input [{_OPERANDS - 1}:0] i__payload, input i__valid, output i__ready,
    output [{_RESULT - 1}:0] o__payload, output o__valid, input o__ready
);
    {_ECHO} echo(
        .clk(clk), .rst(rst), .enable(1'b1),
        .step({{rst, o__ready, i__valid, i__payload}}), .result({{o__valid, i__ready, o__payload}})
    );
endmodule
{unit_module(_ECHO, _OPERANDS + 3, _RESULT + 2)}"""
#: Ports of the array that returns hashes, as a black box in Yosys' RTLIL.
ECHOING_PORTS = f"""
attribute \\blackbox 1
module \\{ARRAY}
  wire input 1 \\clk
  wire input 2 \\rst
  wire width {_OPERANDS} input 3 \\i__payload
  wire input 4 \\i__valid
  wire output 5 \\i__ready
  wire width {_RESULT} output 6 \\o__payload
  wire output 7 \\o__valid
  wire input 8 \\o__ready
end
"""


def echoing_arrays(config: CoreConfig) -> StandIn:
    """Return a stand-in for the arrays of a configuration, which has their timing and returns hashes of operands."""
    operands, control = warp_operands_layout(), control_layout()
    offsets = {f"at_{name}": operands[name].offset for name, _ in operands if name != "sparsity_selector"}
    constants = offsets | {
        "at_operands": operands.size,
        "at_selector": operands["sparsity_selector"].offset,
        "at_sparse": control["sparse"].offset,
        "at_result_code": control["result"].offset,
        "at_scale": control["scale"].offset,
        "result_words": _RESULT // 32,
        "interval": config.warp_blocks,
        "latency": config.warp_latency(1),
        "most": config.warp_items,
        "wide_codes": sum(element.wide << code for code, element in enumerate(config.elements)),
        "control_bits": control.size,
        "result_code_bits": control["result"].width,
        "f16": ResultCode.__members__["F16"].value,
        "scale_bits": control["scale"].width,
    }
    sources = driver("echo.cpp", constants)
    name = hashlib.sha256(repr((sorted(sources.items()), compiler_stamp())).encode()).hexdigest()[:24]
    library = built(f"echo-{name}.so", lambda path: compile_shared(sources, path, ["-O1"], "the echoing arrays"))
    return StandIn(ECHOING_MODULE, library)


def _fold(hashes: NDArray[np.uint32], words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    hashes = (hashes ^ words) * np.uint32(_FACTOR)
    return hashes ^ hashes >> np.uint32(15)


def _fold_all(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hash the 32-bit words along the last axis, first word first."""
    hashes = np.full(words.shape[:-1], _START, np.uint32)
    for place in range(words.shape[-1]):
        hashes = _fold(hashes, words[..., place])
    return hashes


class EchoBackend:
    """Back end that computes the results expected from test arrays, which return a hash of their operands instead of D.

    `flags` has, for each call of :meth:`multiply`, the expected undefined-nibble flags of each panel (eight columns of
    D), shape (batch, panels, rows, 16).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.flags: list[NDArray[np.bool_]] = []

    def make_ready(self, arch: str) -> None:
        """Do nothing: this back end needs no compiled files."""

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Return a hash of the operands where other back ends return the result D."""
        words = step_words(self.config)
        (step,) = steps_of(self.config, instruction, operands, ordered=False)
        row, column = step.row, step.column
        parts = (row[..., words.a], row[..., words.metadata], row[..., words.scale_a])
        rows = _fold_all(np.concatenate(parts, axis=-1))
        columns = _fold_all(np.concatenate((column[..., words.b], column[..., words.scale_b]), axis=-1))
        met = _fold(rows[:, :, None], columns[:, None])
        flags = met[..., ::8].transpose(0, 2, 1)[..., None] >> np.arange(16, dtype=np.uint32) & np.uint32(1)
        self.flags.append(flags.astype(np.bool_))
        control = row[:, :1, None, words.control.start]
        hashes = _fold(_fold(met, control), operands.c.astype(np.uint32))
        return Product(hashes if instruction.d.bits == 32 else (hashes ^ hashes >> np.uint32(16)).astype(np.uint16))
