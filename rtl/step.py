"""Layouts of the operands and results of a row and of a unit: one step each cycle."""

from amaranth.hdl import ShapeLike
from amaranth.lib import data

from .codes import ELEMENT_CODE_BITS
from .config import CoreConfig
from .metadata import RuleCode, selects_layout
from .round import ResultCode
from .scale import ScaleCode

__all__ = ["control_layout", "row_result_layout", "row_step_layout", "unit_result_layout", "unit_step_layout"]


def control_layout() -> data.StructLayout:
    """Return the layout of a step's control word.

    Fields
    ------
    a, b : 4
        Element codes: indices into the formats of the configuration.
    result : ResultCode
        Result format.
    saturate : 1
        Clamp an integer result.
    sparse : 1
        Metadata selects B. A row takes the operands of dense steps in the same form: see :func:`row_step_layout`.
    rule : RuleCode
        Rule that the metadata is checked against.
    scale : ScaleCode
        Block scaling.
    """
    return data.StructLayout(
        {
            "a": ELEMENT_CODE_BITS,
            "b": ELEMENT_CODE_BITS,
            "result": ResultCode,
            "saturate": 1,
            "sparse": 1,
            "rule": RuleCode,
            "scale": ScaleCode,
        }
    )


def row_step_layout(config: CoreConfig) -> data.StructLayout:
    """Return the layout of a step as a row takes it each cycle.

    Fields
    ------
    a : 8 * step_bytes
        Stored elements of one row of A, lowest k first.
    b : 16 * step_bytes
        Elements of one column of B with the same k, in the order of :func:`~sptc.rtl.order.byte_order`: twice as many
        bytes. A datapath without selection uses the low half, lowest k first.
    metadata : 4 * chunks
        Nibbles, chunk 0 lowest, in the order of :func:`~sptc.rtl.order.nibble_order`; in dense steps each is
        :data:`~sptc.rtl.order.DENSE_NIBBLE`.
    c : 32
        Accumulator.
    scale_a, scale_b : 32
        Block scales: byte 0, or one byte for each group of 16 packed products.
    control : control_layout()
        Control word.
    overflow : 1
        From the previous step of an integer instruction: its sum exceeded 32 bits, so its sign is not bit 31.
    """
    return _step_layout(config, {"metadata": 4 * config.chunks})


def unit_step_layout(config: CoreConfig) -> data.StructLayout:
    """Return the layout of a step as a unit takes it each cycle, with decoded metadata.

    Fields
    ------
    a : 8 * step_bytes
        Stored elements of A, from output `stored` of :class:`~sptc.rtl.metadata.MetadataStage`.
    selects : selects_layout(config)
        Decoded metadata; absent if the datapath has no selection.
    b, c, scale_a, scale_b, control, overflow
        As in :func:`row_step_layout`.
    """
    return _step_layout(config, {"selects": selects_layout(config)} if config.sparse else {})


def _step_layout(config: CoreConfig, selection: dict[str, ShapeLike]) -> data.StructLayout:
    return data.StructLayout(
        {
            "a": 8 * config.step_bytes,
            "b": 16 * config.step_bytes,
            **selection,
            "c": 32,
            "scale_a": 32,
            "scale_b": 32,
            "control": control_layout(),
            "overflow": 1,
        }
    )


def row_result_layout(config: CoreConfig) -> data.StructLayout:
    """Return the layout of a row's result.

    Fields
    ------
    d, overflow : 32, 1
        As in :func:`unit_result_layout`.
    illegal : chunks
        Chunks whose nibble the rule does not define; `d` does not depend on it.
    """
    return data.StructLayout({**dict(unit_result_layout().members), "illegal": config.chunks})


def unit_result_layout() -> data.StructLayout:
    """Return the layout of a unit's result.

    Fields
    ------
    d : 32
        Result register; f16 in its low half.
    overflow : 1
        An integer sum exceeded 32 bits and was not clamped. The next step needs it with `d`; only the last step clamps.
    """
    return data.StructLayout({"d": 32, "overflow": 1})
