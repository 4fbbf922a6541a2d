"""Faults of the golden model and of the records in ``isa/``."""

from dataclasses import replace
from typing import Any

import numpy as np

from . import Change, computes, fault, holds, instead, register_all

register_all(computes, [
    ("golden.accumulator.subnormal", "golden.accumulator", "accumulator_exponents",
     "A subnormal f16 accumulator has the exponent of its leading one, not the smallest normal exponent.",
     lambda accumulator, right, c, fmt, zero_exponent: right(c, replace(fmt, bias=127), zero_exponent)),
    ("golden.grouped.zero_scale", "golden.grouped", "grouped_step",
     "A group with a block scale of zero counts in the maximum of the exponents.",
     lambda grouped, right, a, b, c, accumulator, numerics, scales, traces=None: right(
         a, b, c, accumulator, numerics,
         replace(scales, significands=np.where(scales.significands == 0, 2.0**-300, scales.significands)), traces)),
    ("golden.matrix.scales", "golden.matrix", "_scales",
     "The sum of the exponents of two block scales wraps at eight bits.",
     lambda matrix, right, *arguments: replace(
         scales := right(*arguments), exponents=scales.exponents.astype(np.int8).astype(np.int32))),
    ("isa.column_mask.shift", "isa.column_mask", "largest_shift",
     "The zero-column mask may shift B by 32 columns even if M is 32.", lambda column_mask, right, m: 32),
    ("isa.memory.straddling", "isa.memory", "SharedMap.first_beyond",
     "An element counts as outside shared memory only if its first byte is outside, not if a later byte is.",
     lambda memory, right, self, size:
         int(beyond.min()) if (beyond := self.addresses[self.addresses >= size]).size else None),
])  # fmt: skip


@instead("golden.rounding.overflow", "golden.rounding", "toward_zero")
def _(rounding: Any, right: Any, exact: Any, *dtype: Any) -> Any:
    """A sum above the largest f32 becomes the largest f32 instead of infinity."""
    result = right(exact, *dtype)
    over = np.isinf(result)
    result[over] = np.copysign(np.finfo(np.float32).max, result[over])
    return result


@fault("golden.select.whole", "golden.select")
def _(select: Any, change: Change) -> None:
    """The nibble 0b0001, which exchanges the halves of a tf32, is treated as the nibble of a whole tf32."""
    change(select, "WHOLE_ELEMENT_NIBBLES", (0b0001, *select.WHOLE_ELEMENT_NIBBLES))


holds("golden.decode.nan", "golden.decode", "Scales.nan",
      "NaN block scales are recognised only in the first group.",
      property(lambda self: np.isnan(self.significands[0])))  # fmt: skip


@instead("isa.life_cycle.committed", "isa.life_cycle", "WgmmaSequence._access")
def _(life_cycle: Any, right: Any, self: Any, kind: str, words: str, names: Any) -> None:
    """A register access is checked only against the last committed group, not against all pending groups."""
    pending, self._committed = self._committed, self._committed[-1:]
    try:
        right(self, kind, words, names)
    finally:
        self._committed = pending


@instead("isa.tensor_memory.parts", "isa.tensor_memory", "scale_map")
def _(memory: Any, right: Any, name: str, lines: int, size: int, scale_id: int, address: int, parts: int = 1) -> Any:
    """Block scales of successive parts of N are always 32 lanes (one partition) apart, unlike the parts of D."""
    where, part = right(name, lines, size, scale_id, address, parts), np.arange(lines)[:, None] // (lines // parts)
    return replace(where, lanes=where.lanes - part * (memory.LANES // parts - memory.PARTITION))


holds("isa.kernel_timing.filled", "isa.kernel_timing", "_METADATA_BYTES",
      "The timing model assumes that loading the metadata of a tile takes no cycles.", 0)  # fmt: skip
