"""Proofs about block scales: the exponent offset, and the product of a scale of A and a scale of B."""

from amaranth.hdl import Const, Mux, Value, signed

from ..rtl.config import CoreConfig
from ..rtl.scale import ExponentOffset, GroupScale, ScaleCode
from .harness import Harness
from .numerics import ALIGNED_EXPONENT
from .properties import Topic, anonymous

__all__ = ["SCALING"]

SCALING = Topic("scaling")


@SCALING.property("offset", lambda config: [(anonymous(config),)])
def _offset(h: Harness, config: CoreConfig) -> None:
    """For all codes, the exponent offset is the sum of both formats' biases minus the true exponents of both scales.

    ue8m0 code 0 is 2**-127, and 0xFF is NaN whatever the other scale is. Scales that are not enabled have no effect.
    """
    offset = ExponentOffset(config)
    codes = [h.free(f"element_{name}", port.shape()) for name, port in (("a", offset.a), ("b", offset.b))]
    scales = [h.free(f"scale_{name}", 8) for name in ("a", "b")]
    enable = h.free("enable")
    h.add("offset", offset, a=codes[0], b=codes[1], enable=enable, scale_a=scales[0], scale_b=scales[1])
    expected: Value = Const(0, ALIGNED_EXPONENT)
    for code in codes:
        for number, element in enumerate(config.elements):
            if not element.fixed_point:
                expected = expected + Mux(code == number, element.format.bias, 0)
    has_ue8m0 = "ue8m0" in config.scales
    scaled = enable & has_ue8m0
    for scale in scales:
        expected = expected - Mux(scaled, scale - 127, 0)
    h.claim("offset", offset.offset == expected)
    h.claim("nan", offset.nan == (scaled & ((scales[0] == 0xFF) | (scales[1] == 0xFF))))
    h.cover("bias", offset.offset > 0)
    if has_ue8m0:
        h.cover("nan", offset.nan)
        h.cover("smallest", scaled & (scales[0] == 0) & (scales[1] == 0) & ~offset.nan)


@SCALING.property(
    "group", lambda config: [(anonymous(config),)] if any(element.packed_float for element in config.elements) else []
)
def _group_scale(h: Harness, config: CoreConfig) -> None:
    """A scale of A and a scale of B are multiplied exactly, for all codes of ue8m0 and ue4m3. A NaN scale gives NaN.

    ue4m3 follows the table of its 128 values. Its sign bit is ignored, and its subnormals keep exponent -6.
    """
    scale, codes = h.free("scale", ScaleCode), [h.free(f"scale_{name}", 8) for name in ("a", "b")]
    group = h.add("scales", GroupScale(config), scale=scale, scale_a=codes[0], scale_b=codes[1])
    small = scale == ScaleCode.UE4M3
    h.assume((scale != ScaleCode.NONE) & (scale.as_value() <= max(code.value for code in ScaleCode)))
    significands, exponents = [], []
    for code in codes:
        significand: Value = Const(0, 4)
        exponent: Value = Const(0, signed(8))
        for value in range(128):
            field, fraction = divmod(value, 8)
            significand = Mux(code[:7] == value, fraction + 8 * (field > 0), significand)
            exponent = Mux(code[:7] == value, max(field, 1) - 7, exponent)
        significands.append(Mux(small, significand, 8))
        exponents.append(Mux(small, exponent, code - 127))
    h.claim("significand", group.significand == significands[0] * significands[1])
    h.claim("exponent", group.exponent == exponents[0] + exponents[1])
    nans = [Mux(small, code[:7] == 0x7F, code == 0xFF) for code in codes]
    h.claim("nan", group.nan == (nans[0] | nans[1]))
    h.cover("nan_ue4m3", small & group.nan)
    h.cover("nan_ue8m0", ~small & group.nan)
    h.cover("subnormal", small & (codes[0][:7] < 8) & (group.significand != 0))
    h.cover("zero", small & (group.significand == 0))
    h.cover("sign_ignored", small & codes[0][7])
