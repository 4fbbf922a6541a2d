"""What a row and its unit take and give each cycle."""

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
        Element codes, their places in the configuration's formats.
    result : ResultCode
        Result format.
    saturate : 1
        Clamp an integer result.
    sparse : 1
        B is selected by metadata; to a row dense steps look alike, see :func:`row_step_layout`.
    rule : RuleCode
        Rule that the metadata is held against.
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
    """Return the layout of what a row takes each cycle.

    Fields
    ------
    a : 8 * step_bytes
        Stored elements of one row of A, lowest first.
    b : 16 * step_bytes
        The same stretch of one column of B, twice as many bytes, in the order of :func:`~sptc.rtl.order.byte_order`; a
        datapath that does not select takes the low half as it stands.
    metadata : 4 * chunks
        Nibbles, chunk 0 lowest, as :func:`~sptc.rtl.order.nibble_order` says; dense steps give each chunk
        :data:`~sptc.rtl.order.DENSE_NIBBLE`.
    c : 32
        Accumulator.
    scale_a, scale_b : 32
        Block scales: byte 0, or one byte for each group of 16 packed products.
    control : control_layout()
        What to do.
    overflow : 1
        From the previous step of an integer instruction: its sum left 32 bits, so the sign is not that of bit 31.
    """
    return _step_layout(config, {"metadata": 4 * config.chunks})


def unit_step_layout(config: CoreConfig) -> data.StructLayout:
    """Return the layout of what a unit takes each cycle: a step whose metadata is decoded.

    Fields
    ------
    a : 8 * step_bytes
        What :class:`~sptc.rtl.metadata.MetadataStage` says is stored.
    selects : selects_layout(config)
        In place of metadata; not there where the datapath does not select.
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
        Chunks whose nibble the rule does not define. It never changes `d`.
    """
    return data.StructLayout({**dict(unit_result_layout().members), "illegal": config.chunks})


def unit_result_layout() -> data.StructLayout:
    """Return the layout of a unit's result.

    Fields
    ------
    d : 32
        Result register; f16 in its low half.
    overflow : 1
        An integer sum left 32 bits and was not clamped: pass it on with `d`, since only the last step may clamp.
    """
    return data.StructLayout({"d": 32, "overflow": 1})
