"""Coverage of block scales: each class of codes at each position, and zero groups of products."""

import numpy as np
from numpy.typing import NDArray

from ...isa.numerics import BLOCK_GROUP
from .arithmetic import Evaluation
from .groups import Axis, Group
from .operations import Operation

__all__ = ["ScalesCoverage"]

_CODES = {
    "ue8m0": ("code 0 (2**-127)", "below 1", "1", "above 1", "largest", "NaN"),
    "ue4m3": (
        "zero", "zero with sign bit", "subnormal", "subnormal with sign bit", "normal", "normal with sign bit",
        "largest", "NaN", "NaN with sign bit",
    ),
}  # fmt: skip
_ZEROS = (
    "zero products",
    "scale of zero",
    "products cancel",
    "products cancel and set E alone above another term",
    "ordinary",
    "zero products under a NaN scale",
)
_SIDES = ("A", "B")


class ScalesCoverage:
    """Groups ``scale of a step``, ``scales in ue8m0`` and ``ue4m3`` of groups, and ``scaled groups``.

    Scales: operand x position x class of the code. A scale counts in a step with an ordinary result; a NaN counts where
    neither another scale nor the accumulator makes the result NaN. The sign bit of ue4m3 is ignored; code 0 of ue8m0 is
    2**-127, not zero.

    Scaled groups: a group of 16 products does not participate in the maximum if all products or the product of its
    scales are zero; it participates if its sum merely cancels to zero.

    Parameters
    ----------
    configuration : str
        Name of the datapath.
    operations : sequence of Operation
        Scaled operations; only the groups that they use exist.
    """

    def __init__(self, configuration: str, operations: tuple[Operation, ...]) -> None:
        self._codes: dict[tuple[str, bool], Group] = {}
        grouped: dict[str, Operation] = {}
        for operation in operations:
            key = operation.scale, operation.grouped
            if key in self._codes:
                continue
            where = "of groups" if operation.grouped else "of a step"
            self._codes[key] = Group(
                configuration,
                f"{operation.scale} scales {where}",
                "The scale of this operand and group was such a code.",
                (
                    Axis("operand", _SIDES),
                    _places(operation),
                    Axis("code", _CODES[operation.scale]),
                ),
            )
            if operation.grouped:
                grouped[operation.scale] = operation
        self._grouped = {scale: _scaled_groups(configuration, operation) for scale, operation in grouped.items()}
        self._nan = {
            operation.scale: Group(
                configuration,
                f"{operation.scale} NaN over a whole step",
                "A NaN scale made the result NaN; so it must over products that are all zero.",
                (Axis("products", ("some product", "zero products")),),
            )
            for operation in operations
            if not operation.grouped
        }
        self.groups = (*self._codes.values(), *self._nan.values(), *self._grouped.values())

    def sample(self, evaluation: Evaluation) -> None:
        """Count evaluated steps of one scaled operation."""
        operation, operands = evaluation.operation, evaluation.operands
        group = self._codes[operation.scale, operation.grouped]
        places = group.shape[1]
        classes = [_classes(codes[:, :places], operation.scale) for codes in (operands.scale_a, operands.scale_b)]
        nan = np.stack([_is_nan(codes[:, :places], operation.scale) for codes in (operands.scale_a, operands.scale_b)])
        by_scale_alone = (nan.sum(axis=(0, 2)) == 1) & ~np.isnan(evaluation.c) & ~_operands_are_special(evaluation)
        for side in range(len(_SIDES)):
            shows = np.where(nan[side], by_scale_alone[:, None], evaluation.trace.ordinary[:, None])
            group.count(side, np.arange(places), classes[side], where=shows)
        if operation.grouped:
            self._sample_groups(evaluation, nan[0] | nan[1], by_scale_alone)
        else:
            empty = ~evaluation.trace.participates.any(axis=0)
            self._nan[operation.scale].count(empty.astype(np.intp), where=by_scale_alone)

    def _sample_groups(self, e: Evaluation, nan: NDArray[np.bool_], by_scale_alone: NDArray[np.bool_]) -> None:
        trace = e.trace
        products = (e.a.values * e.b.values).reshape(-1, BLOCK_GROUP, len(e.c))
        some = (products != 0).any(axis=1)
        cancels = trace.participates & (trace.aligned == 0)
        sets_e_max = trace.participates & (trace.exponents == trace.e_max)
        others = (trace.aligned != 0).any(axis=0) | trace.c_participates
        highest = sets_e_max.sum(axis=0) + (trace.c_participates & (trace.c_exponents == trace.e_max))
        alone = cancels & sets_e_max & (highest == 1) & others
        kinds = (
            ~some & trace.ordinary,
            some & ~trace.participates & trace.ordinary,
            cancels & trace.ordinary,
            alone & trace.ordinary,
            (trace.aligned != 0) & trace.ordinary,
            ~some & nan.T & by_scale_alone,
        )
        group = self._grouped[e.operation.scale]
        for kind, where in enumerate(kinds):
            group.count(np.arange(e.operation.terms)[:, None], kind, where=where)


def _places(operation: Operation) -> Axis:
    groups = tuple(f"group {place}" for place in range(operation.terms))
    return Axis("group", groups if operation.grouped else ("whole step",))


def _scaled_groups(configuration: str, operation: Operation) -> Group:
    group = Group(
        configuration,
        f"scaled groups with {operation.scale}",
        "A group of 16 products was of this kind in a step with an ordinary result (under a NaN scale: with NaN).",
        (_places(operation), Axis("kind", _ZEROS)),
    )
    if not operation.scale_format.subnormals:
        zero = [kind == "scale of zero" for kind in _ZEROS]
        group.declare_unreachable(zero, f"{operation.scale} has no zero.")
    return group


def _operands_are_special(e: Evaluation) -> NDArray[np.bool_]:
    """Return where NaN or Inf of the operands could make the result NaN without any scale."""
    a, b = e.a.classes, e.b.classes
    if a is None or b is None:
        return np.zeros(len(e.c), np.bool_)
    return np.asarray(~(np.isfinite(a) & np.isfinite(b)).all(axis=0), np.bool_)


def _is_nan(codes: NDArray[np.uint8], scale: str) -> NDArray[np.bool_]:
    return codes == 0xFF if scale == "ue8m0" else codes & np.uint8(0x7F) == 0x7F


def _classes(codes: NDArray[np.uint8], scale: str) -> NDArray[np.intp]:
    """Return the class index of each code."""
    if scale == "ue8m0":
        return np.searchsorted([1, 127, 128, 254, 255], codes, side="right")
    magnitude, sign = codes & np.uint8(0x7F), (codes >> np.uint8(7)).astype(np.intp)
    kind = np.searchsorted([1, 8, 127], magnitude, side="right")  # zero, subnormal, normal, NaN
    return np.where(codes == 0x7E, 6, np.where(kind == 3, 7 + sign, 2 * kind + sign))
