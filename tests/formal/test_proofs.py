"""Proofs of the smallest datapath; `sptc prove --record`, which the regression begins with, proves those of all."""

import gc
import os
from dataclasses import fields, replace

import pytest
from sptc.formal.catalogue import PROPERTIES
from sptc.formal.proof import Outcome, settle
from sptc.formal.properties import anonymous, cases
from sptc.formal.record import RECORD, expected_seconds, read_record, settle_unless_recorded, source_digest
from sptc.rtl.config import PRESETS, CoreConfig

ALL = cases(PROPERTIES, PRESETS.values())
#: Cases of the smallest datapath that the quick tier proves, by processor seconds when they were recorded: always, and
#: if their problem is not the recorded one.
ALWAYS, IF_CHANGED = 1.0, 15.0
OF_TINY = sorted(
    ((expected_seconds(case), case) for case in ALL if "tiny" in case.presets and expected_seconds(case) <= IF_CHANGED),
    key=lambda pair: pair[0],
)


def assert_proved(outcome: Outcome) -> None:
    name = f"{outcome.case.subject.name} of {outcome.case.described}"
    assert outcome.result == "proved", (name, outcome.result, outcome.broken, outcome.values)
    assert outcome.engine == "record" or outcome.covers, name
    assert None not in outcome.covers.values(), name


@pytest.mark.parametrize("topic", sorted({case.subject.name.partition(".")[0] for _, case in OF_TINY}))
def test_proofs_of_a_second_or_less(topic: str) -> None:
    """No proof is given up after seconds: on a slow machine it takes longer."""
    for seconds, case in OF_TINY:
        if case.subject.name.startswith(f"{topic}.") and seconds <= ALWAYS:
            assert_proved(settle(case, None))


def test_problems_that_changed_are_proved() -> None:
    """Of proofs that take longer, those whose netlist or claims are not the recorded ones."""
    record = read_record(RECORD)
    if record.sources == source_digest() and not os.environ.get("SPTC_PLANT"):
        return
    known = record.by_digest
    for seconds, case in OF_TINY:
        if seconds > ALWAYS:
            outcome, _ = settle_unless_recorded(case, None, known)
            assert_proved(outcome)


@pytest.mark.regression
@pytest.mark.parametrize("formats", [("s4", "u4"), ("s8", "u8")], ids="-".join)
def test_units_of_integers_alone(formats: tuple[str, ...]) -> None:
    """No preset is one; such a unit has no special values, and may not look which format it is."""
    config = CoreConfig(name="integers", formats=formats, step_bytes=8)
    (case,) = cases([item for item in PROPERTIES if item.name == "unit.stages"], [config])
    assert settle(case, None).result == "proved"


@pytest.mark.regression
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
