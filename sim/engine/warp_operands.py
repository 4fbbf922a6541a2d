"""Conversion of ``mma`` instructions and registers to input words of a warp, and of its result words to registers."""

import numpy as np
from numpy.typing import NDArray

from ...isa.instructions import Instruction
from ...isa.operands import HeldOperands
from ...rtl.config import CoreConfig
from ...rtl.step import control_layout
from ...rtl.warp import CHUNKS, LANES, REGISTERS, ROWS, ScaleSizeCode, warp_operands_layout, warp_result_layout
from .ports import flags_of, payload_words
from .steps import control_word

__all__ = ["RESULT_WORDS", "warp_results", "warp_words"]

RESULT_WORDS = warp_result_layout().size // 32


def warp_words(
    config: CoreConfig, instruction: Instruction, operands: HeldOperands, cases: slice = slice(None)
) -> NDArray[np.uint32]:
    """Return a warp's input words (:func:`~sptc.rtl.warp.warp_operands_layout`) for each instruction of a batch.

    The instruction is of family ``mma``, with 16 rows; all cases of the operands are converted by default.
    """
    layout = warp_operands_layout()
    arrays = {name: array[cases] for name, array in operands.arrays.items()}
    words = np.zeros((len(arrays["c"]), -(-layout.size // 32)), np.uint32)
    for name, array in arrays.items():
        field = words[:, layout[name].offset // 32 :]
        if array.ndim == 2:
            field[:, :LANES] = array
        else:
            for register in range(array.shape[2]):
                field[:, register : LANES * REGISTERS : REGISTERS] = array[:, :, register]
    byte_a, thread_a, byte_b, thread_b = operands.immediates.scale_ids
    fields = {
        "control": control_layout().from_bits(control_word(config, instruction, last=True)),
        "long": arrays["a"].shape[2] == REGISTERS,
        "sparsity_selector": operands.immediates.sparsity_selector,
        "scale_size": ScaleSizeCode.__members__[f"X{instruction.scale_size or 1}"],
        "byte_a": byte_a,
        "thread_a": thread_a,
        "byte_b": byte_b,
        "thread_b": thread_b,
    }
    words[:, layout["control"].offset // 32 :] = payload_words(layout, fields, "control")
    return words


def warp_results(words: NDArray[np.uint32], registers: int) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Split result words into registers (shape (..., 32, registers)) and undefined-nibble flags (..., 16, 16)."""
    d, flags = np.split(words, [LANES * REGISTERS], axis=-1)
    of_lanes = d.reshape(*d.shape[:-1], LANES, REGISTERS)[..., :registers]
    return of_lanes, flags_of(flags).reshape(*flags.shape[:-1], ROWS, CHUNKS)
