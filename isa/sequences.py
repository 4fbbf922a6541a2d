"""Cycles of ``mma`` with fp8 or 4-bit integers on sm_90, where the assembler makes it a sequence of other instructions.

Measured on an H100 (``recordings/cycles/sequences-h100-2026-11-25.csv``) with ``sptc gpu cycles``. New operands are
computed before each instruction, so that it shares no work with the one before. A compiler interleaves such a sequence
with the code around it: the figures hold for loops of eight instructions only. In loops of sixteen or more, sparse fp8
takes up to twice as long.
"""

from collections.abc import Mapping

from .instructions import Instruction

__all__ = ["sequence_cycles"]

#: (interval, latency) in cycles, by shape and types. Interval: from one instruction to the next on a tensor core that
#: four warps share. Latency: the same of one warp whose instructions depend on each other. Ordered metadata takes as
#: long as plain metadata, and all pairs of fp8 formats take the same time.
_CYCLES: Mapping[str, tuple[float, float]] = {
    "mma m16n8k16 f16 fp8": (16.3, 20.1),
    "mma m16n8k16 f32 fp8": (20.7, 23.8),
    "mma m16n8k32 f16 fp8": (29.8, 35.4),
    "mma m16n8k32 f32 fp8": (32.9, 41.1),
    "mma m16n8k32 s4 s4": (160.3, 230.4),
    "mma m16n8k32 s4 s4 satfinite": (181.0, 265.6),
    "mma m16n8k32 s4 u4": (125.0, 194.6),
    "mma m16n8k32 s4 u4 satfinite": (145.2, 229.6),
    "mma m16n8k32 u4 s4": (86.9, 150.6),
    "mma m16n8k32 u4 s4 satfinite": (109.4, 185.6),
    "mma m16n8k32 u4 u4": (49.3, 113.1),
    "mma m16n8k32 u4 u4 satfinite": (72.2, 148.1),
    "mma m16n8k64 s4 s4": (314.7, 380.4),
    "mma m16n8k64 s4 s4 satfinite": (320.8, 416.4),
    "mma m16n8k64 s4 u4": (234.8, 302.6),
    "mma m16n8k64 s4 u4 satfinite": (241.6, 337.2),
    "mma m16n8k64 u4 s4": (152.0, 219.4),
    "mma m16n8k64 u4 s4 satfinite": (158.5, 255.4),
    "mma m16n8k64 u4 u4": (74.1, 138.9),
    "mma m16n8k64 u4 u4 satfinite": (88.1, 171.0),
    "mma m8n8k32 s4 s4": (103.6, 176.8),
    "mma m8n8k32 s4 s4 satfinite": (116.0, 195.8),
    "mma m8n8k32 s4 u4": (67.7, 138.8),
    "mma m8n8k32 s4 u4 satfinite": (81.7, 156.0),
    "mma m8n8k32 u4 s4": (68.0, 138.8),
    "mma m8n8k32 u4 s4 satfinite": (81.5, 156.0),
    "mma m8n8k32 u4 u4": (33.3, 99.9),
    "mma m8n8k32 u4 u4 satfinite": (44.9, 118.0),
    "mma.sp m16n8k128 s4 s4": (409.8, 482.6),
    "mma.sp m16n8k128 s4 s4 satfinite": (416.5, 517.5),
    "mma.sp m16n8k128 s4 u4": (249.0, 319.8),
    "mma.sp m16n8k128 s4 u4 satfinite": (255.1, 354.8),
    "mma.sp m16n8k128 u4 s4": (249.8, 319.8),
    "mma.sp m16n8k128 u4 s4 satfinite": (256.0, 354.8),
    "mma.sp m16n8k128 u4 u4": (93.1, 156.5),
    "mma.sp m16n8k128 u4 u4 satfinite": (103.4, 192.8),
    "mma.sp m16n8k64 f32 fp8": (140.1, 158.8),
    "mma.sp m16n8k64 s4 s4": (212.6, 284.1),
    "mma.sp m16n8k64 s4 s4 satfinite": (225.6, 324.0),
    "mma.sp m16n8k64 s4 u4": (143.2, 203.5),
    "mma.sp m16n8k64 s4 u4 satfinite": (160.6, 242.1),
    "mma.sp m16n8k64 u4 s4": (137.6, 203.5),
    "mma.sp m16n8k64 u4 s4 satfinite": (154.8, 242.1),
    "mma.sp m16n8k64 u4 u4": (59.3, 116.8),
    "mma.sp m16n8k64 u4 u4 satfinite": (77.1, 151.9),
}


def sequence_cycles(instruction: Instruction) -> tuple[float, float]:
    """Return interval and latency of an ``mma`` with fp8 or 4-bit integers, in cycles."""
    i = instruction
    types = f"{i.a.name} {i.b.name}" if i.a.is_integer else f"{i.d.name} fp8"
    name = f"{'mma.sp' if i.sparse else 'mma'} m{i.m}n{i.n}k{i.k} {types}"
    return _CYCLES[f"{name} satfinite" if i.satfinite else name]
