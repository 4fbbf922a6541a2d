"""Layouts of the operands and results of a row of units and of a single unit, which take one step per cycle."""

from amaranth.hdl import ShapeLike

from .cells.described import DescribedLayout
from .codes import ELEMENT_CODE_BITS
from .config import CoreConfig
from .metadata import RuleCode, selects_layout
from .round import ResultCode
from .scale import ScaleCode

__all__ = ["control_layout", "row_result_layout", "row_step_layout", "unit_result_layout", "unit_step_layout"]


def control_layout() -> DescribedLayout:
    """Return the layout of the control word of a step: element formats, metadata rule and result format."""
    code = (ELEMENT_CODE_BITS, "Element codes: indices into the formats of the configuration.")
    sparse = "Metadata selects B. A row takes the operands of dense steps in the same form: see row_step_layout."
    return DescribedLayout(
        {
            "a": code,
            "b": code,
            "result": (ResultCode, "Result format."),
            "saturate": (1, "Clamp an integer result."),
            "sparse": (1, sparse),
            "rule": (RuleCode, "Rule that the metadata is checked against."),
            "scale": (ScaleCode, "Block scaling."),
        }
    )


def row_step_layout(config: CoreConfig) -> DescribedLayout:
    """Return the layout of the operands that a row takes in one step.

    The orders are :func:`~sptc.rtl.order.byte_order` and :func:`~sptc.rtl.order.nibble_order`.
    """
    nibbles = "Nibbles, chunk 0 lowest, in the order of nibble_order; in dense steps each is DENSE_NIBBLE."
    a = "Stored elements of one row of A, lowest k first."
    return _step_layout(config, a, {"metadata": (4 * config.chunks, nibbles)})


def unit_step_layout(config: CoreConfig) -> DescribedLayout:
    """Return the layout of the operands that a dot-product unit takes in one step, with decoded metadata."""
    selects = (selects_layout(config), "Decoded metadata; absent if the datapath has no selection.")
    a = "Stored elements of A, from output stored of MetadataStage."
    return _step_layout(config, a, {"selects": selects} if config.sparse else {})


def _step_layout(config: CoreConfig, a: str, selection: dict[str, tuple[ShapeLike, str]]) -> DescribedLayout:
    b = (
        "Elements of one column of B with the same k, in the order of byte_order: twice as many bytes. A datapath "
        "without selection uses the low half, lowest k first."
    )
    scale = (32, "Block scales: byte 0, or one byte for each group of 16 packed products.")
    overflow = "From the previous step of an integer instruction: its sum exceeded 32 bits, so its sign is not bit 31."
    return DescribedLayout(
        {
            "a": (8 * config.step_bytes, a),
            "b": (16 * config.step_bytes, b),
            **selection,
            "c": (32, "Accumulator."),
            "scale_a": scale,
            "scale_b": scale,
            "control": (control_layout(), "Control word."),
            "overflow": (1, overflow),
        }
    )


def row_result_layout(config: CoreConfig) -> DescribedLayout:
    """Return the layout of the result of a row."""
    illegal = "Chunks whose nibble the rule does not define; d does not depend on it."
    return DescribedLayout({**unit_result_layout().fields, "illegal": (config.chunks, illegal)})


def unit_result_layout() -> DescribedLayout:
    """Return the layout of the result of a dot-product unit."""
    overflow = (
        "An integer sum exceeded 32 bits and was not clamped. The next step needs it with d; only the last step clamps."
    )
    return DescribedLayout({"d": (32, "Result register; f16 in its low half."), "overflow": (1, overflow)})
