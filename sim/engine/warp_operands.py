"""Convert instructions of ``mma`` and their registers to the payloads of a warp."""

import numpy as np
from numpy.typing import NDArray

from ...isa.instructions import Instruction
from ...isa.operands import HeldOperands
from ...rtl.config import CoreConfig
from ...rtl.step import control_layout
from ...rtl.warp import LANES, REGISTERS, ScaleSizeCode, warp_operands_layout
from .steps import control_word

__all__ = ["warp_words"]


def warp_words(
    config: CoreConfig, instruction: Instruction, operands: HeldOperands, cases: slice = slice(None)
) -> NDArray[np.uint32]:
    """Return payloads of a warp, :func:`~sptc.rtl.warp.warp_operands_layout`, shape (cases, words).

    Parameters
    ----------
    config : CoreConfig
        Datapath of the warp.
    instruction : Instruction
        Instruction of family ``mma``, of 16 rows.
    operands : HeldOperands
        Registers and immediates.
    cases : slice
        Cases of the operands, all by default.
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
    first = layout["control"].offset // 32
    rest = int(layout.const(fields).as_value().value) >> 32 * first
    words[:, first:] = np.frombuffer(rest.to_bytes(4 * (words.shape[1] - first), "little"), np.uint32)
    return words
