"""Layouts of operands and results of a dot-product unit, and of a row (dot-product unit with metadata decoder).

A unit and a row take one step per cycle.
"""

from amaranth.hdl import ShapeLike

from .cells.described import DescribedLayout
from .codes import ELEMENT_CODE_BITS
from .config import CoreConfig
from .metadata import RuleCode, selects_layout
from .round import ResultCode
from .scale import ScaleCode

__all__ = [
    "ACCUMULATOR",
    "ENABLE",
    "STEP",
    "block_scales",
    "control_layout",
    "result_meaning",
    "row_result_layout",
    "row_step_layout",
    "unit_result_layout",
    "unit_step_layout",
]

#: Texts that document the input ports of a dot-product unit, with or without a metadata decoder.
STEP = "Operands and control word of a step. A step enters in each cycle in which enable is 1."
ENABLE = "Clock enable of the pipeline: while enable is 0, the pipeline registers keep their contents."
#: Text that documents each field that contains an accumulator.
ACCUMULATOR = "Accumulator format: f32 for result F32 or E8M13, f16 in the low half for F16, a 32-bit integer for S32."


def block_scales(config: CoreConfig, owner: str) -> str:
    """Return the text that documents a field with the block scales of `owner`: a row of A or a column of B."""
    if not config.scales:
        return "Ignored: this datapath has no block scales."
    packed = any(element.packed_float for element in config.elements)
    groups = "; with two elements per byte, byte g for the kept products 16 g to 16 g + 15" if packed else ""
    return f"Block scales of {owner}: byte 0 for all products{groups}."


def result_meaning(config: CoreConfig) -> str:
    """Return the text that documents the output port of a dot-product unit, with or without a metadata decoder."""
    if not config.latency:
        return "Result of the step at the inputs; combinational."
    return f"Result of a step, valid after {config.latency} rising clock edges with enable 1."


def control_layout() -> DescribedLayout:
    """Return the layout of a control word: formats of elements, scales and result, and rule of legal metadata."""
    code = "Element format of {}: its index in the list of formats of the datapath."
    result = (
        "Format and rounding of the result: F32 is truncated to f32, E8M13 to 13 fraction bits of an f32; F16 is "
        "rounded to nearest even; S32 is a 32-bit integer."
    )
    saturate = (
        "1: an integer result is clamped to the range of s32; 0: the result wraps modulo 2**32. Ignored for floats."
    )
    rule = (
        "Rule that defines the legal metadata nibbles: PLAIN and WGMMA two different indices, ORDERED increasing "
        "indices, TF32 0b0100 and 0b1110, TCGEN05 seven nibbles. With 3:1 multiplexers, PLAIN also exchanges kept "
        "elements of A. The metadata decoder of a row reads the rule. A unit takes decoded metadata and ignores the "
        "rule. The rule is ignored in dense steps."
    )
    return DescribedLayout(
        {
            "a": (ELEMENT_CODE_BITS, code.format("A")),
            "b": (ELEMENT_CODE_BITS, code.format("B")),
            "result": (ResultCode, result),
            "saturate": (1, saturate),
            "sparse": (1, "1: sparse, metadata selects the elements of B that are multiplied; 0: dense."),
            "rule": (RuleCode, rule),
            "scale": (ScaleCode, "Format of the block scales; NONE without block scales."),
        }
    )


def row_step_layout(config: CoreConfig) -> DescribedLayout:
    """Return the layout of the operands that a row (metadata decoder and dot-product unit) takes in one cycle.

    :func:`~sptc.rtl.order.byte_order` and :func:`~sptc.rtl.order.nibble_order` return the order of B and metadata.
    """
    nibbles = "Metadata nibbles, 4 bits each: nibble c, counted from the lowest bits, belongs to chunk c. "
    if config.interleaved:
        nibbles = (
            "Metadata nibbles, 4 bits each, counted from the lowest bits. Elements of 16 or 32 bits: nibbles 2 c and "
            "2 c + 1 must both be the nibble of chunk c. Smaller elements: nibble c belongs to chunk c. "
        )
    nibbles += "In a dense step every nibble must be 0b0100."
    if not config.sparse:
        nibbles = "Ignored: this datapath has no metadata."
    a = "Stored elements of one row of A, lowest k in the lowest bits."
    return _step_layout(config, a, {"metadata": (4 * config.chunks, nibbles)})


def unit_step_layout(config: CoreConfig) -> DescribedLayout:
    """Return the layout of the operands that a dot-product unit takes in one cycle, with decoded metadata."""
    selects = (
        "Decoded metadata [chunk][kept element]: bits 8 c + 4 s to 8 c + 4 s + 3 are the select of kept element s of "
        "chunk c. Bit u of a select selects unit u of the four units of the chunk of B; at most one bit is 1. In a "
        "dense step, kept elements 0 and 1 must select units 0 and 1."
    )
    if config.interleaved:
        selects += " Elements of 16 or 32 bits: entries 2 c and 2 c + 1 must both be the selects of chunk c."
    a = "Stored elements of one row of A, lowest k in the lowest bits."
    if config.mux == "mux3":
        a += " The two kept elements of a chunk are exchanged if the metadata decoder requires it."
    return _step_layout(config, a, {"selects": (selects_layout(config), selects)} if config.sparse else {})


def _step_layout(config: CoreConfig, a: str, selection: dict[str, tuple[ShapeLike, str]]) -> DescribedLayout:
    b = "Elements of one column of B, lowest k in the lowest bits. "
    if not config.sparse:
        b += "Only the low half is used."
    elif config.interleaved:
        b = (
            "Elements of one column of B, in groups of 8 bytes. Elements of 16 or 32 bits: lowest k in the lowest "
            "bits. Smaller elements: bytes 2 u and 2 u + 1 of group g are byte u of chunks 2 g and 2 g + 1. In a dense "
            "step only the low 4 bytes of each group are used."
        )
    else:
        size = 8 if config.always_wide else 4
        b += f"In a dense step only the low {size // 2} of every {size} bytes are used."
    overflow = (
        "Overflow output of the previous step of the same integer instruction, or 0 in its first step: if 1, the sign "
        "of c is the inverse of bit 31. Ignored for floats."
    )
    return DescribedLayout(
        {
            "a": (8 * config.step_bytes, a),
            "b": (16 * config.step_bytes, b),
            **selection,
            "c": (32, f"Accumulator to which the products of this step are added. {ACCUMULATOR}"),
            "scale_a": (32, block_scales(config, "the row of A")),
            "scale_b": (32, block_scales(config, "the column of B")),
            "control": (control_layout(), "Control word of the step."),
            "overflow": (1, overflow),
        }
    )


def row_result_layout(config: CoreConfig) -> DescribedLayout:
    """Return the layout of the result of a row (one metadata decoder and one dot-product unit)."""
    illegal = (
        "Flags of undefined metadata: bit c is 1 if control.rule does not define the nibble of chunk c. The flags are "
        "0 in a dense step. The result d does not depend on the flags."
    )
    return DescribedLayout({**unit_result_layout().fields, "illegal": (config.chunks, illegal)})


def unit_result_layout() -> DescribedLayout:
    """Return the layout of the result of a dot-product unit."""
    overflow = (
        "An integer sum exceeded 32 bits and was not clamped: the sign of the sum is the inverse of bit 31 of d. Input "
        "overflow of the next step of the same instruction must have this value; only the last step may clamp."
    )
    d = "Result in the format of control.result; an f16 is in the low half, and the high half is 0. "
    d += "NaN is 0x7fffffff for results F32 and E8M13, and 0x7fff for F16."
    return DescribedLayout({"d": (32, d), "overflow": (1, overflow)})
