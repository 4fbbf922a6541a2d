"""Proofs of the smallest datapath succeed. The regression first proves all datapaths with `sptc prove --record`."""

import gc
import os
from dataclasses import fields, replace

import pytest
from sptc.formal.catalogue import PROPERTIES, chosen
from sptc.formal.proof import Outcome, settle
from sptc.formal.properties import Case, anonymous, cases
from sptc.formal.record import RECORD, expected_seconds, read_record, settle_unless_recorded, source_digest
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS
from sptc.rtl.cells.raw import PRODUCT_EXPONENT_BITS
from sptc.rtl.config import PRESETS, CoreConfig

ALL = cases(PROPERTIES, PRESETS.values())
#: Maximum recorded CPU seconds: of proofs that always run, and of proofs that run only if their problem has changed.
ALWAYS, IF_CHANGED = 1.0, 25.0
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
    """Proofs that took at most a second when recorded have no time limit here, because this machine may be slower."""
    for seconds, case in OF_TINY:
        if case.subject.name.startswith(f"{topic}.") and seconds <= ALWAYS:
            assert_proved(settle(case, None))


def test_problems_that_changed_are_proved() -> None:
    """Proofs that took more than a second when recorded are repeated only if their netlist or claims have changed."""
    record = read_record(RECORD)
    if record.sources == source_digest() and not os.environ.get("SPTC_PLANT"):
        return
    for seconds, case in OF_TINY:
        if seconds > ALWAYS:
            outcome, _ = settle_unless_recorded(case, None, record.by_digest)
            assert_proved(outcome)


@pytest.mark.regression
@pytest.mark.parametrize("formats", [("s4", "u4"), ("s8", "u8")], ids="-".join)
def test_units_of_integers_alone(formats: tuple[str, ...]) -> None:
    """A unit with only integer formats, which no preset has, handles no special values. Its stages are proved, too."""
    config = CoreConfig(name="integers", formats=formats, step_bytes=8)
    (case,) = cases([item for item in PROPERTIES if item.name == "unit.stages"], [config])
    assert settle(case, None).result == "proved"


#: For each key of an open numerics rule (:data:`sptc.isa.numerics.OPEN_RULES`): a datapath with the rule's alternative
#: value, and the properties that this value affects.
OPEN = {
    "group": (
        CoreConfig(name="group", formats=("e2m1/4",), scales=("ue8m0", "ue4m3"), step_bytes=16, group=4),
        ("alignment", "reduction", "unit.stages"),
    ),
    "floor": (
        CoreConfig(name="floor", formats=("bf16", "e5m2"), step_bytes=4, exponent_floor=False),
        ("alignment", "reduction", "rounding"),
    ),
}


@pytest.mark.regression
@pytest.mark.parametrize("rule", OPEN)
def test_alternatives_of_open_rules(rule: str) -> None:
    config, words = OPEN[rule]
    for case in cases(chosen(words), [config]):
        assert_proved(settle(case, None))


EXPONENTS = (PRODUCT_EXPONENT_BITS, "unsigned"), (ALIGNED_EXPONENT_BITS, "signed")
#: For each property of a cell, parameters that no preset has: small, unusual, or next to those of a preset.
CELLS: dict[str, list[tuple[object, ...]]] = {
    "reduction.adder": [(bits,) for bits in (*range(1, 18), 22, 26, 31, 32, 33, 40, 49, 60)],
    "reduction.tree": [
        (terms, bits + more)
        for terms, bits in (
            *((("2x28", "2x22", "1x14", "1x39"), 39), (("16x28", "16x22", "1x39"), 39), (("1x13", "2x55", "1x49"), 55)),
            *((("1x9", "2x1", "1x9", "1x1"), 9), (("1x60", "1x1"), 60), (("1x1", "1x60", "1x30"), 60)),
            *((tuple(f"1x{bits}" for bits in range(1, 9)), 8), (("33x1",), 6), (("16x9",), 9), (("40x49",), 49)),
            *(((f"{count}x28",), 28) for count in (2, 3, 4, 5, 6, 8, 9, 13, 17, 28, 32, 33, 40)),
        )
        for more in (0, 1, 9)
    ],
    "operands.exact": [(bits, bits, has_sign) for bits in range(1, 13) for has_sign in (False, True)],
    "alignment.maximum": [(count, *of) for count in (*range(1, 10), 16, 17) for of in EXPONENTS],
    "alignment.shift": [
        *((22, 5, 9, 27), (22, 4, 7, 26), (16, 5, 7, 15), (16, 11, 7, 27), (22, 4, 9, 26)),
        *((24, padding, 10, None) for padding in (2, 12, 1, -6, -15)),
        *((19, 27, 10, None), (19, 0, 10, None), (5, -4, 10, None), (6, -3, 4, None), (1, 0, 1, None)),
        *((1, 31, 9, None), (16, 0, 5, 16), (12, 0, 6, 1), (12, 0, 6, 2), (12, 3, 10, 100)),
    ],
}


@pytest.mark.regression
@pytest.mark.parametrize("name", CELLS)
def test_cells_of_other_parameters_than_presets(name: str) -> None:
    (item,) = chosen([name])
    for parameters in CELLS[name]:
        assert_proved(settle(Case(item, parameters, ()), None))


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
    harnesses = [case.harness() for case in cases(PROPERTIES, [config])]
    assert all(harness.claims for harness in harnesses)
    harnesses.clear()
    gc.collect()  # free components that were never elaborated, while the test ignores warnings about them


def test_every_property_is_stated_and_equal_parameters_are_proved_once() -> None:
    for case in ALL:
        assert case.subject.statement.endswith(".")
        assert case.presets
    assert {preset for case in ALL for preset in case.presets} == PRESETS.keys()
    actual = [(case.subject.name, case.parameters) for case in ALL]
    assert len(actual) == len(set(actual))
    both = [case for case in ALL if case.subject.name == "metadata.legal"]
    assert [case.parameters for case in both] == [("mux4",), ("mux3",)]
    assert both[1].presets == ("blackwell", "rtx-blackwell")


@pytest.mark.parametrize("preset", PRESETS)
def test_whatever_differs_is_proved(preset: str) -> None:
    asked = {(case.subject.name, case.parameters) for case in ALL if preset in case.presets}
    assert asked == {(item.name, given) for item in PROPERTIES for given in item.parameters(PRESETS[preset])}


#: Changed value of each field of a configuration. The fields in UNSEEN do not affect a dot-product unit.
UNSEEN = {"name": "other", "rows": 8, "columns": 8}
SEEN = {
    "formats": ("f16", "e4m3", "s8", "e2m1/4"), "scales": ("ue8m0",), "step_bytes": 16, "alignment_bits": 26,
    "fp8_alignment_bits": 14, "block_alignment_bits": 36, "mux": "mux4", "cuts": ("select",), "sparse": False,
    "exponent_floor": False, "group": 4,
}  # fmt: skip


def test_units_that_differ_are_not_taken_for_equal() -> None:
    config = PRESETS["rtx-blackwell"]
    assert {field.name for field in fields(config)} == UNSEEN.keys() | SEEN.keys()
    for name, value in (UNSEEN | SEEN).items():
        assert getattr(config, name) != value
        assert (anonymous(replace(config, **{name: value})) == anonymous(config)) == (name in UNSEEN), name
