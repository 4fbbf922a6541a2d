"""The quick set of proofs of the smallest datapath; the regression proves all of all of them."""

import gc
from dataclasses import fields, replace

import pytest
from sptc.formal.catalogue import PROPERTIES
from sptc.formal.proof import settle
from sptc.formal.properties import Case, anonymous, cases
from sptc.rtl.config import PRESETS, CoreConfig

ALL = cases(PROPERTIES, PRESETS.values())
#: Each takes most of a minute; what they prove, tests of the same part sample.
LONG = (
    "accumulators.order",
    "fetch.both",
    "fetch.panel",
    "tensor_memory.registers",
    "unit.floats",
    "unit.integers",
    "validity.warp",
    "validity.wgmma",
    "warp.order",
    "warp.reset",
    "wgmma.order",
)
#: Of these properties the cases that are proved in seconds stand for the others.
SAMPLED = {
    "fetch.address": ("32B mn", "64B k", "128B k"),
    "alignment.e_max": ("1x1x16 B s8",),
    "warp.operands": ("4x4x16 B e",),
}
#: And what the smallest datapath does not have.
SCALES = ("warp.operands", "4x4x32 B scale_a")
QUICK = [
    case
    for case in cases(PROPERTIES, [PRESETS["tiny"]])
    if case.subject.name not in LONG and case.described in SAMPLED.get(case.subject.name, (case.described,))
] + [case for case in cases(PROPERTIES, [PRESETS["blackwell"]]) if (case.subject.name, case.described) == SCALES]
PROVED = {(case.subject.name, case.parameters) for case in QUICK}
SECONDS = 400.0


def name_of(case: Case) -> str:
    return f"{case.subject.name}-{case.described}-{case.presets[0]}".replace(" ", "_")


@pytest.mark.parametrize("case", QUICK, ids=name_of)
def test_quick(case: Case) -> None:
    outcome = settle(case, SECONDS)
    assert outcome.result == "proved", outcome.values
    assert None not in outcome.covers.values()


@pytest.mark.regression
@pytest.mark.parametrize(
    "case", [case for case in ALL if (case.subject.name, case.parameters) not in PROVED], ids=name_of
)
def test_every_datapath(case: Case) -> None:
    assert settle(case, SECONDS).result == "proved"


@pytest.mark.regression
@pytest.mark.parametrize("formats", [("s4", "u4"), ("s8", "u8")], ids="-".join)
def test_units_of_integers_alone(formats: tuple[str, ...]) -> None:
    """No preset is one; such a unit has no special values, and may not look which format it is."""
    config = CoreConfig(name="integers", formats=formats, step_bytes=8)
    (case,) = cases([item for item in PROPERTIES if item.name == "unit.stages"], [config])
    assert settle(case, SECONDS).result == "proved"


@pytest.mark.quick_cases(1)
@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize(
    "config",
    [
        CoreConfig(name="narrow", formats=("bf16",), step_bytes=4),
        CoreConfig(name="packed", formats=("e2m1/4",), scales=("ue8m0", "ue4m3")),
        replace(PRESETS["hopper"], rows=2, columns=3),
        replace(PRESETS["tiny"], sparse=False, cuts=()),
    ],
    ids=lambda config: config.name,
)
def test_other_datapaths_than_presets(config: CoreConfig) -> None:
    """Whatever a datapath lacks, no property stumbles over it."""
    harnesses = [case.harness() for case in cases(PROPERTIES, [config])]
    assert all(harness.claims for harness in harnesses)
    harnesses.clear()
    gc.collect()  # what was not elaborated warns when it goes


def test_every_property_is_stated_and_covered() -> None:
    for case in ALL:
        assert case.subject.statement
        assert case.subject.statement.endswith(".")
        assert case.presets
    assert {preset for case in ALL for preset in case.presets} == PRESETS.keys()


def test_equal_parameters_are_proved_once() -> None:
    found = [(case.subject.name, case.parameters) for case in ALL]
    assert len(found) == len(set(found))
    both = [case for case in ALL if case.subject.name == "metadata.legal"]
    assert [case.parameters for case in both] == [("mux4",), ("mux3",)]
    assert both[1].presets == ("blackwell", "rtx-blackwell")


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_every_property_has_claims_and_covers() -> None:
    """Without a claim it would hold of anything, and without a cover for want of cases."""
    harnesses = {item.name: cases([item], PRESETS.values())[0].harness() for item in PROPERTIES}
    assert [name for name, harness in harnesses.items() if not harness.claims] == []
    assert [name for name, harness in harnesses.items() if not harness.covers] == []
    harnesses.clear()
    gc.collect()  # what was not elaborated warns when it goes


@pytest.mark.parametrize("preset", PRESETS)
def test_whatever_differs_is_proved(preset: str) -> None:
    """All that a property asks of a datapath is in some case, which names the datapath."""
    asked = {(case.subject.name, case.parameters) for case in ALL if preset in case.presets}
    assert asked == {(item.name, given) for item in PROPERTIES for given in item.parameters(PRESETS[preset])}


#: Another value of each field of a configuration; those of the first row mean nothing to a unit.
UNSEEN = {"name": "other", "rows": 8, "columns": 8}
SEEN = {
    "formats": ("f16", "e4m3", "s8", "e2m1/4"),
    "scales": ("ue8m0",),
    "step_bytes": 16,
    "alignment_bits": 26,
    "fp8_alignment_bits": 14,
    "block_alignment_bits": 36,
    "mux": "mux4",
    "cuts": ("select",),
    "sparse": False,
}


def test_units_that_differ_are_not_taken_for_equal() -> None:
    config = PRESETS["rtx-blackwell"]
    assert {field.name for field in fields(config)} == UNSEEN.keys() | SEEN.keys()
    for name, value in (UNSEEN | SEEN).items():
        assert getattr(config, name) != value
        assert (anonymous(replace(config, **{name: value})) == anonymous(config)) == (name in UNSEEN), name
