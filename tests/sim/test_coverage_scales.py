"""Coverage of block scales: hand-made steps reach the bins they should and no others."""

import pytest
from sptc.sim.coverage.steps import StepCoverage

from .coverage_cases import MXF8, NAN, NVF4, Case, reached, sample

ONES = dict.fromkeys(range(64), 1.0)
GROUP0, GROUP1 = dict.fromkeys(range(16), 1.0), dict.fromkeys(range(16, 32), 1.0)


def kinds(coverage: StepCoverage) -> set[str]:
    return reached(coverage, "scaled groups with ue4m3")


def test_scaled_groups() -> None:
    zero = {f"group {group}, zero products" for group in range(4)}
    assert kinds(sample(Case(NVF4))) == zero
    one = zero - {"group 1, zero products"}
    assert kinds(sample(Case(NVF4, GROUP1, ONES))) == one | {"group 1, ordinary"}
    assert kinds(sample(Case(NVF4, GROUP1, ONES, scale_a={1: 0x80}))) == one | {"group 1, scale of zero"}
    cancelling = {16: 1.0, 17: -1.0}
    assert kinds(sample(Case(NVF4, cancelling, ONES))) == one | {"group 1, products cancel"}
    alone = "group 1, products cancel and set E alone above another term"
    assert kinds(sample(Case(NVF4, cancelling, ONES, 0.25))) == one | {"group 1, products cancel", alone}
    assert kinds(sample(Case(NVF4, cancelling, ONES, 1.5))) == one | {"group 1, products cancel"}
    assert kinds(sample(Case(NVF4, GROUP0, ONES, scale_b={2: 0x7F}))) == {"group 2, zero products under a NaN scale"}
    assert kinds(sample(Case(NVF4, GROUP0, ONES, scale_b={0: 0x7F}))) == set()


CODES = {0: "zero", 0x80: "zero with sign bit", 1: "subnormal", 0x87: "subnormal with sign bit", 8: "normal",
         0x7D: "normal", 0x7E: "largest", 0xFE: "normal with sign bit", 0x88: "normal with sign bit", 0x7F: "NaN",
         0xFF: "NaN with sign bit"}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_scales_of_groups(code: int) -> None:
    found = reached(sample(Case(NVF4, ONES, ONES, scale_b={2: code})), "ue4m3 scales of groups")
    others = {f"{side}, group {group}, normal" for side in "AB" for group in range(4)} - {"B, group 2, normal"}
    nan = CODES[code].startswith("NaN")
    assert found == {f"B, group 2, {CODES[code]}"} | (set() if nan else others)


@pytest.mark.parametrize(
    ("code", "label"),
    [(0, "code 0 (2**-127)"), (1, "below 1"), (126, "below 1"), (127, "1"), (128, "above 1"), (253, "above 1"),
     (254, "largest"), (255, "NaN")],
)  # fmt: skip
def test_scales_of_a_step(code: int, label: str) -> None:
    coverage = sample(Case(MXF8, {0: 1.0}, {0: 1.0}, scale_a={0: code}))
    other = set() if label == "NaN" else {"B, whole step, 1"}
    assert reached(coverage, "ue8m0 scales of a step") == {f"A, whole step, {label}"} | other
    wanted = {"some product"} if label == "NaN" else set()
    assert reached(coverage, "ue8m0 NaN over a whole step") == wanted


def test_causes_of_nan_beside_a_scale() -> None:
    """A NaN scale counts where nothing else is NaN; over products that are all zero, too."""
    assert reached(sample(Case(MXF8, scale_a={0: 255})), "ue8m0 NaN over a whole step") == {"zero products"}
    for case in (
        Case(MXF8, scale_a={0: 255}, scale_b={0: 255}),
        Case(MXF8, c=NAN, scale_a={0: 255}),
        Case(MXF8, {0: "7f"}, {0: 1.0}, scale_a={0: 255}),
    ):
        coverage = sample(case)
        assert not reached(coverage, "ue8m0 NaN over a whole step")
        assert not reached(coverage, "ue8m0 scales of a step")
        assert not reached(coverage, "special cases")
