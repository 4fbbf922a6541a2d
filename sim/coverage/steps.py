"""Coverage of a datapath's dot products: the sampler, and covergroups for selection, integers and block scales."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...isa.metadata import RULES
from ...rtl.config import CoreConfig
from ...rtl.step import row_result_layout
from .covergroups import Bin, Covergroup, Need, Sampler, bins_axis
from .float_groups import float_groups
from .groups import Axis
from .operands import Control, Operation, StepReader, operations_of, split
from .values import FloatValues, IntegerValues, OperationValues, StepValues

__all__ = ["StepCoverage"]

#: Number of steps evaluated together, small enough that the intermediate values fit in the second-level cache.
_BLOCK = 1024
_RULES = [*RULES]
_RULE = Axis("rule", tuple(f"rule {rule}" for rule in RULES))
_NIBBLE = Axis("nibble", tuple(f"nibble 0b{nibble:04b}" for nibble in range(16)))


class StepCoverage:
    """Functional coverage of a datapath's dot products; `coverage` contains the hits that were counted so far.

    There are covergroups for operations and results, operand selection, legality of metadata, alignment, special cases,
    rounding, integers and block scales, if the datapath has formats for them. A step with formats that no instruction
    combines (for example f16 times bf16) counts only for ``legality``. All expected values are computed from the step
    words with the golden model's arithmetic, never from the hardware.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self._reader = StepReader(config)
        self._fields = {name: np.uint64(field.offset) for name, field in row_result_layout(config)}
        operations, index = operations_of(config), config.elements.index
        self._operations = {(index(o.a), index(o.b), o.result, o.scale): o for o in operations}
        scaled = {o.scaling: o for o in operations if o.scale != "none"}.values()
        covergroups = (
            *_operation_groups(operations),
            *_selection_groups(config, operations),
            *float_groups([o for o in operations if not o.integer]),
            _integers([o for o in operations if o.integer]),
            *map(_scale_codes, scaled),
            *(_nan_scales(o) for o in scaled if not o.grouped),
            *(_scaled_groups(o) for o in scaled if o.grouped),
        )
        with_bins = (group for group in covergroups if all(axis.labels for axis in group.axes))
        self._sampler = Sampler(config.name, with_bins)
        self.coverage = self._sampler.coverage

    def sample(self, steps: NDArray[np.uint32], results: NDArray[np.uint64]) -> None:
        """Count each cycle in the covergroups; the input words are those of :meth:`~sptc.sim.engine.steps.Steps.whole`.

        Raise an `AssertionError` if the flags of undefined nibbles of a step contradict its metadata rule.
        """
        words = self._reader.control_words(steps)
        for word in np.unique(words):
            control = self._reader.control(int(word))
            if max(control.a, control.b) >= len(self.config.elements) or control.rule not in RULES:
                continue
            rows = np.flatnonzero(words == word)
            for start in range(0, len(rows), _BLOCK):
                block = rows[start : start + _BLOCK]
                self._sampler.sample(self._values(steps[block], results[block], control))

    def _values(self, steps: NDArray[np.uint32], results: NDArray[np.uint64], control: Control) -> StepValues:
        """Check the undefined-nibble flags of dot products with one control word; compute their sampled values."""
        nibbles = self._reader.nibbles(steps, self.config.elements[control.a].wide)
        chunks = np.arange(self.config.chunks, dtype=np.uint64)
        self._check_flags(results[:, None] >> self._fields["illegal"] + chunks & np.uint64(1), nibbles, control)
        operation = self._operations.get((control.a, control.b, control.result, control.scale))
        if operation is None:
            return StepValues(control, nibbles)
        operands = self._reader.operands(steps, control)
        d = (results >> self._fields["d"]).astype(np.uint32)
        if operation.integer:
            overflow = results >> self._fields["overflow"] & np.uint64(1) == 1
            return IntegerValues(operation, operands, control, d, overflow)
        return FloatValues(operation, operands, control, d)

    def _check_flags(self, flags: NDArray[np.uint64], nibbles: NDArray[np.uint8], control: Control) -> None:
        """Raise an AssertionError if an undefined-nibble flag of a dot product contradicts its metadata rule."""
        name, used = self.config.name, nibbles.shape[1]
        if not control.sparse:
            assert not flags.any(), f"{name}: a dense step flags an illegal nibble"
            return
        legal = np.isin(np.arange(16), [*RULES[control.rule].legal])[nibbles]
        wrong = (flags[:, :used] == 1) == legal
        if wrong.any():
            row, chunk = np.argwhere(wrong)[0]
            verb = "defines" if legal[row, chunk] else "does not define"
            raise AssertionError(
                f"{name}: the metadata rule {control.rule} {verb} nibble 0b{nibbles[row, chunk]:04b} of chunk {chunk}, "
                f"but the flag for undefined nibbles is {int(flags[row, chunk])}"
            )
        assert not flags[:, used:].any(), f"{name}: a chunk that the format does not use is flagged"


def _operation_groups(operations: Sequence[Operation]) -> Iterator[Covergroup]:
    """Yield the covergroups ``operations`` (formats, sparsity) and ``results`` (agreement with the golden model)."""
    results = tuple(dict.fromkeys(operation.result for operation in operations))
    yield Covergroup(
        name="operations",
        meaning="A step with this combination of formats was executed, dense or sparse.",
        axes=(Axis("operation", tuple(map(str, operations))), Axis("operands", ("dense", "sparse"))),
        iff=lambda s: isinstance(s, OperationValues),
        sample=lambda s: (operations.index(s.operation), np.full(len(s.nibbles), int(s.control.sparse))),
    )
    yield Covergroup(
        name="results",
        meaning="The result of a step was equal to the expected result of the golden model, or differed.",
        axes=(Axis("result", results), Axis("agreement", ("equal", "different"))),
        iff=lambda s: isinstance(s, OperationValues),
        sample=lambda s: (results.index(s.operation.result), ~s.agrees),
        illegal={"The hardware computes the expected result.": lambda result, agreement: agreement == 1},
    )


def _selection_groups(config: CoreConfig, operations: Sequence[Operation]) -> Iterator[Covergroup]:
    """Yield the covergroups of operand selection in sparse instructions, for each metadata rule of the PTX ISA.

    ``selection``, one covergroup per element width. Axes: pair of formats, metadata nibble, slot of a stored element in
    the step. A slot counts where the selection of another unit of B could change the product. The name of a pair
    includes the granularity: a chunk has two stored elements under 2:4, one under 1:2 (tf32, two units), four under 4:8
    (4-bit elements, two in a unit).

    ``exchange``, only with 3:1 multiplexers, where the rule decides which slots are swapped and which get zero. Axes:
    unit width, rule, nibble, slot of the chunk. A slot counts under the same condition as for ``selection``.

    ``legality``. Axes: rule, nibble, chunk. Every rule counts on every datapath, whatever its formats, as the rule is a
    field of the control word.
    """
    for bits, group in sorted(split(operations, lambda o: o.a.container_bits).items()):
        yield _selection(bits, group)
    widths = [*dict.fromkeys(16 if operation.a.wide else 8 for operation in operations)]
    if config.mux == "mux3":
        yield Covergroup(
            name="exchange",
            meaning="The nonzero element in this stored slot was routed by this nibble under this metadata rule.",
            axes=(
                Axis("units", tuple(f"{width}-bit units" for width in widths)),
                _RULE,
                _NIBBLE,
                Axis("slot", ("slot 0 of the chunk", "slot 1 of the chunk")),
            ),
            iff=lambda s: isinstance(s, OperationValues) and s.control.sparse and s.slots_per_chunk > 1,
            sample=lambda s: (
                widths.index(16 if s.operation.a.wide else 8),
                _RULES.index(s.control.rule),
                s.nibbles[:, s.chunk],
                s.slots % s.slots_per_chunk * 2 // s.slots_per_chunk,
            ),
            where=lambda s: s.selection_matters,
        )
    chunks = config.chunks if 8 in widths else config.chunks // 2
    yield Covergroup(
        name="legality",
        meaning="A sparse step had this nibble under this metadata rule, and its undefined-nibble flag was correct.",
        axes=(_RULE, _NIBBLE, Axis("chunk", tuple(f"chunk {chunk}" for chunk in range(chunks)))),
        iff=lambda s: s.control.sparse,
        sample=lambda s: (_RULES.index(s.control.rule), s.nibbles, np.arange(s.nibbles.shape[1])),
    )


def _selection(bits: int, operations: Sequence[Operation]) -> Covergroup:
    pairs = tuple(dict.fromkeys(operation.pair for operation in operations))
    slots = tuple(f"slot {slot}" for slot in range(operations[0].slots))
    return Covergroup(
        name=f"selection of {bits} bits",
        meaning="This nibble selected the operand of a nonzero stored slot from units of B that were not all equal.",
        axes=(Axis("pair", pairs), _NIBBLE, Axis("slot", slots)),
        iff=lambda s: isinstance(s, OperationValues) and s.control.sparse and s.operation.a.container_bits == bits,
        sample=lambda s: (pairs.index(s.operation.pair), s.nibbles[:, s.chunk], s.slots),
        where=lambda s: s.selection_matters,
    )


_NEGATIVE = Need(
    "Unsigned products are not negative, so no sum is below its accumulator.",
    lambda o: o.a.format.signed or o.b.format.signed,
)
_INTEGER_BINS = (
    # Bins of the exact integer sum: within 32 bits; clamped (only by ``.satfinite`` in the last cycle of an output);
    # wrapped; or at an end of the 32-bit range.
    Bin("in range", lambda s: s.in_range),
    Bin("clamped high", lambda s: s.above & s.saturate),
    Bin("clamped low", lambda s: s.below & s.saturate, (_NEGATIVE,)),
    Bin("wrapped high", lambda s: s.above & (not s.saturate)),
    Bin("wrapped low", lambda s: s.below & (not s.saturate), (_NEGATIVE,)),
    Bin("sum equal to the largest result", lambda s: s.total == s.MAX),
    Bin("sum equal to the smallest result", lambda s: s.total == s.MIN),
    Bin("sum one above the largest result", lambda s: s.total == s.MAX + 1),
    Bin("sum one below the smallest result", lambda s: s.total == s.MIN - 1, (_NEGATIVE,)),
    # Bins of the integer accumulator. If an accumulator needs more than 32 bits, an earlier step of the instruction has
    # set its overflow bit.
    Bin("largest accumulator", lambda s: s.before == s.MAX),
    Bin("smallest accumulator", lambda s: s.before == s.MIN),
    Bin("accumulator above the 32-bit range", lambda s: s.before > s.MAX),
    Bin("accumulator below the 32-bit range", lambda s: s.before < s.MIN, (_NEGATIVE,)),
    Bin("accumulator above, sum in the range", lambda s: (s.before > s.MAX) & s.in_range, (_NEGATIVE,)),
    Bin("accumulator below, sum in the range", lambda s: (s.before < s.MIN) & s.in_range, (_NEGATIVE,)),
    # Bins of extreme integer elements (smallest or largest number of a format): such an element is multiplied by a
    # nonzero number or by another extreme element, or all products have such elements.
    Bin("smallest A", lambda s: (s.a_min & (s.b != 0)).any(axis=1)),
    Bin("largest A", lambda s: (s.a_max & (s.b != 0)).any(axis=1)),
    Bin("smallest B", lambda s: (s.b_min & (s.a != 0)).any(axis=1)),
    Bin("largest B", lambda s: (s.b_max & (s.a != 0)).any(axis=1)),
    Bin("smallest A times smallest B", lambda s: (s.a_min & s.b_min).any(axis=1)),
    Bin("smallest A times largest B", lambda s: (s.a_min & s.b_max).any(axis=1)),
    Bin("largest A times smallest B", lambda s: (s.a_max & s.b_min).any(axis=1)),
    Bin("largest A times largest B", lambda s: (s.a_max & s.b_max).any(axis=1)),
    Bin("largest sum of products", lambda s: s.products == s.largest),
    Bin("smallest sum of products", lambda s: s.products == s.smallest),
)


def _integers(operations: Sequence[Operation]) -> Covergroup:
    """Return the covergroup of integer dot products. Axes: pair of formats, and event, such as a clamped sum."""
    return Covergroup(
        name="integers",
        meaning="This event occurred in a step with this pair of element formats.",
        axes=(Axis("pair", tuple(operation.pair for operation in operations)), bins_axis("event", _INTEGER_BINS)),
        iff=lambda s: isinstance(s, IntegerValues),
        sample=lambda s: (operations.index(s.operation),),
        bins=_INTEGER_BINS,
        where=lambda s: s.possible,
        rows=[[operation] for operation in operations],
    )


_SCALE_CODES = {
    "ue8m0": ("code 0 (2**-127)", "below 1", "1", "above 1", "largest", "NaN"),
    "ue4m3": (
        "zero", "zero with sign bit", "subnormal", "subnormal with sign bit", "normal", "normal with sign bit",
        "largest", "NaN", "NaN with sign bit",
    ),
}  # fmt: skip


def _scale_classes(codes: NDArray[np.uint8], scale: str) -> NDArray[np.intp]:
    """Return the coverage bin of each block scale code; ue4m3 codes with the unused sign bit have their own bins."""
    if scale == "ue8m0":
        return np.searchsorted([1, 127, 128, 254, 255], codes, side="right")
    magnitude, sign = codes & np.uint8(0x7F), (codes >> np.uint8(7)).astype(np.intp)
    kind = np.searchsorted([1, 8, 127], magnitude, side="right")  # scale class: 0 zero, 1 subnormal, 2 normal, 3 NaN
    return np.where(codes == 0x7E, 6, np.where(kind == 3, 7 + sign, 2 * kind + sign))


_ZERO_SCALE = Need("ue8m0 has no zero.", lambda o: o.scale != "ue8m0")
#: The largest exponent e_max excludes a group of 16 products that are all zero or have a scale of zero. It includes a
#: group of nonzero products that cancel.
_SCALED_GROUP_BINS = (
    Bin("zero products", lambda s: ~s.group_has_products & s.ordinary),
    Bin("scale of zero", lambda s: s.group_has_products & ~s.trace.participates & s.ordinary, (_ZERO_SCALE,)),
    Bin("products cancel", lambda s: s.trace.participates & (s.trace.aligned == 0) & s.ordinary),
    Bin("products cancel and alone set e_max above another term", lambda s: _sets_e_max_alone(s) & s.ordinary),
    Bin("ordinary", lambda s: (s.trace.aligned != 0) & s.ordinary),
    Bin(
        "all products zero, scale NaN",
        lambda s: ~s.group_has_products & s.scale_is_nan.any(axis=0).T & s.one_scale_is_nan,
    ),
)


def _sets_e_max_alone(s: FloatValues) -> NDArray[np.bool_]:
    """Return the mask of groups of 16 products whose sum is zero, but which alone set the largest exponent."""
    others = (s.trace.aligned != 0).any(axis=0) | s.trace.c_participates
    alone = s.sets_e_max.sum(axis=0) + s.c_sets_e_max == 1
    return s.sets_e_max & (s.trace.aligned == 0) & alone & others


def _scale_codes(operation: Operation) -> Covergroup:
    """Return the covergroup of scale codes. Axes: operand, group of 16 products, and class of the code, such as NaN.

    A scale that is not NaN counts in a step without special values; a NaN scale counts where neither another scale nor
    the accumulator makes the result NaN.
    """
    scale, groups = operation.scale, np.arange(operation.scale_groups)
    labels = tuple(f"group {group}" for group in groups) if operation.grouped else ("whole step",)
    return Covergroup(
        name=f"{scale} scales {'of groups' if operation.grouped else 'of a step'}",
        meaning="The block scale of this operand and product group had a code of this class.",
        axes=(Axis("operand", ("A", "B")), Axis("group", labels), Axis("code", _SCALE_CODES[scale])),
        iff=lambda s: isinstance(s, FloatValues) and s.operation.scaling == operation.scaling,
        sample=lambda s: (np.arange(2)[:, None, None], groups, _scale_classes(s.scale_codes, scale)),
        where=lambda s: np.where(s.scale_is_nan, s.one_scale_is_nan[:, None], s.ordinary[:, None]),
    )


def _nan_scales(operation: Operation) -> Covergroup:
    return Covergroup(
        name=f"{operation.scale} NaN over a whole step",
        meaning="A NaN scale made the result NaN, with some nonzero product or with products that are all zero.",
        axes=(Axis("products", ("some product", "zero products")),),
        iff=lambda s: isinstance(s, FloatValues) and s.operation.scaling == operation.scaling,
        sample=lambda s: (~s.trace.participates.any(axis=0),),
        where=lambda s: s.one_scale_is_nan,
    )


def _scaled_groups(operation: Operation) -> Covergroup:
    groups = tuple(f"group {group}" for group in range(operation.terms))
    return Covergroup(
        name=f"scaled groups with {operation.scale}",
        meaning="A group of 16 products had this property, in a step without special values or, for a NaN scale, "
        "with a NaN result.",
        axes=(Axis("group", groups), bins_axis("kind", _SCALED_GROUP_BINS)),
        iff=lambda s: isinstance(s, FloatValues) and s.operation.scaling == operation.scaling,
        sample=lambda s: (np.arange(operation.terms)[:, None],),
        bins=_SCALED_GROUP_BINS,
        rows=[[operation]],
    )
