"""All sixteen nibbles under every rule, and the swap that lets two 3:1 multiplexers serve plain metadata."""

import re

import numpy as np
import pytest
from sptc.isa.metadata import GRANULARITIES, RULES, UNITS_PER_CHUNK, indices, nibble, swap_for_mux3

# i0 is the low half of the nibble, i1 the high half.
PAIRS = {
    0b0000: (0, 0),
    0b0001: (1, 0),
    0b0010: (2, 0),
    0b0011: (3, 0),
    0b0100: (0, 1),
    0b0101: (1, 1),
    0b0110: (2, 1),
    0b0111: (3, 1),
    0b1000: (0, 2),
    0b1001: (1, 2),
    0b1010: (2, 2),
    0b1011: (3, 2),
    0b1100: (0, 3),
    0b1101: (1, 3),
    0b1110: (2, 3),
    0b1111: (3, 3),
}
PLAIN = {0b0001, 0b0010, 0b0011, 0b0100, 0b0110, 0b0111, 0b1000, 0b1001, 0b1011, 0b1100, 0b1101, 0b1110}
ORDERED = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
TCGEN05 = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110}
TF32 = {0b1110, 0b0100}
LEGAL = {"plain": PLAIN, "ordered": ORDERED, "tf32": TF32, "wgmma": PLAIN, "tcgen05": TCGEN05}

# What becomes of each plain nibble in front of a selector built from two 3:1 multiplexers.
MUX3 = {
    0b0001: 0b0100,
    0b0010: 0b1000,
    0b0011: 0b1100,
    0b0100: 0b0100,
    0b0110: 0b0110,
    0b0111: 0b1101,
    0b1000: 0b1000,
    0b1001: 0b1001,
    0b1011: 0b1110,
    0b1100: 0b1100,
    0b1101: 0b1101,
    0b1110: 0b1110,
}


def test_every_rule_is_listed_under_its_name() -> None:
    assert set(RULES) == set(LEGAL)
    assert all(rule.name == name for name, rule in RULES.items())


@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("value", range(16), ids="{:04b}".format)
def test_nibble_under_rule(name: str, value: int) -> None:
    assert (value in RULES[name].legal) is (value in LEGAL[name])


@pytest.mark.parametrize(("name", "size"), [("plain", 12), ("ordered", 6), ("tf32", 2), ("wgmma", 12), ("tcgen05", 7)])
def test_number_of_legal_nibbles(name: str, size: int) -> None:
    assert len(RULES[name].legal) == size


def test_rules_contain_each_other() -> None:
    tf32, ordered, tcgen05, plain = (RULES[name].legal for name in ("tf32", "ordered", "tcgen05", "plain"))
    assert tf32 < ordered < tcgen05 < plain
    assert RULES["wgmma"].legal == plain
    assert tcgen05 - ordered == {0b0110}
    assert plain == set(range(16)) - {0b0000, 0b0101, 0b1010, 0b1111}


@pytest.mark.parametrize("name", ["ordered", "tf32", "tcgen05"])
def test_meaning_lists_the_legal_nibbles(name: str) -> None:
    rule = RULES[name]
    assert {int(value, 2) for value in re.findall(r"\b0b[01]{4}\b", rule.meaning)} == LEGAL[name]


@pytest.mark.parametrize("name", ["plain", "wgmma"])
def test_meaning_of_a_plain_rule(name: str) -> None:
    assert re.search(r"two different indices \(i0 = low two bits, i1 = high two bits\)", RULES[name].meaning)


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("plain", "9.7.14.6.1"),
        ("ordered", "9.7.14.6.1"),
        ("tf32", "9.7.14.6.1"),
        ("wgmma", "9.7.15.6.1"),
        ("tcgen05", "9.7.16"),
    ],
)
def test_rules_say_where_they_are_stated(name: str, section: str) -> None:
    assert re.search(rf"PTX ISA {re.escape(section)}(?![.\d])", RULES[name].source)


@pytest.mark.parametrize(("value", "pair"), PAIRS.items())
def test_indices_and_nibble_are_inverse(value: int, pair: tuple[int, int]) -> None:
    assert indices(value) == pair
    assert nibble(*pair) == value


def test_the_pairs_are_all_pairs() -> None:
    assert sorted(PAIRS.values()) == [(i0, i1) for i0 in range(UNITS_PER_CHUNK) for i1 in range(UNITS_PER_CHUNK)]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int64])
def test_indices_of_an_array(dtype: type) -> None:
    values = np.arange(16, dtype=dtype).reshape(2, 8)
    i0, i1 = indices(values)
    assert i0.dtype == i1.dtype == dtype
    assert [tuple(pair) for pair in zip(i0.ravel().tolist(), i1.ravel().tolist(), strict=True)] == list(PAIRS.values())
    assert i0.shape == i1.shape == (2, 8)


@pytest.mark.parametrize(("value", "expected"), MUX3.items())
def test_swap_for_mux3(value: int, expected: int) -> None:
    swapped = swap_for_mux3(value)
    assert swapped is (value != expected)
    i0, i1 = indices(value)
    assert (nibble(i1, i0) if swapped else value) == expected


def test_swap_for_mux3_leads_from_the_plain_rule_onto_the_tcgen05_rule() -> None:
    assert set(MUX3) == PLAIN
    results = set()
    for value in RULES["plain"].legal:
        i0, i1 = indices(value)
        results.add(nibble(i1, i0) if swap_for_mux3(value) else value)
    assert results == TCGEN05 == RULES["tcgen05"].legal


@pytest.mark.parametrize("value", range(16), ids="{:04b}".format)
def test_swap_for_mux3_keeps_the_indices_and_fits_the_multiplexers(value: int) -> None:
    pair = indices(value)
    slots = pair[::-1] if swap_for_mux3(value) else pair
    assert sorted(slots) == sorted(PAIRS[value])
    if value in PLAIN:
        assert slots[0] in (0, 1, 2)
        assert slots[1] in (1, 2, 3)


def test_no_ordered_or_tcgen05_nibble_is_swapped() -> None:
    assert not any(swap_for_mux3(value) for value in TCGEN05)


def test_tf32_nibbles_pick_both_halves_of_one_element() -> None:
    assert {indices(value) for value in RULES["tf32"].legal} == {(0, 1), (2, 3)}


@pytest.mark.parametrize(("name", "stored", "logical"), [("1:2", 1, 2), ("2:4", 2, 4), ("4:8", 4, 8)])
def test_granularity(name: str, stored: int, logical: int) -> None:
    record = GRANULARITIES[name]
    assert (record.name, record.stored, record.logical) == (name, stored, logical)


def test_there_are_three_granularities_of_four_units_each() -> None:
    assert set(GRANULARITIES) == {"1:2", "2:4", "4:8"}
    assert UNITS_PER_CHUNK == 4
