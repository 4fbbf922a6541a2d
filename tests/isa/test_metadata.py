"""All sixteen nibbles under every rule, and the swap that lets two 3:1 multiplexers serve plain metadata."""

import re

import numpy as np
from sptc.isa.metadata import GRANULARITIES, RULES, UNITS_PER_CHUNK, indices, nibble, swap_for_mux3

PLAIN = {0b0001, 0b0010, 0b0011, 0b0100, 0b0110, 0b0111, 0b1000, 0b1001, 0b1011, 0b1100, 0b1101, 0b1110}
ORDERED = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
TCGEN05 = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110}
TF32 = {0b1110, 0b0100}
LEGAL = {"plain": PLAIN, "ordered": ORDERED, "tf32": TF32, "wgmma": PLAIN, "tcgen05": TCGEN05}
SECTIONS = {"plain": "9.7.14.6.1", "ordered": "9.7.14.6.1", "tf32": "9.7.14.6.1", "wgmma": "9.7.15.6.1"}

# What becomes of each plain nibble in front of a selector built from two 3:1 multiplexers.
MUX3 = {
    0b0001: 0b0100, 0b0010: 0b1000, 0b0011: 0b1100, 0b0100: 0b0100, 0b0110: 0b0110, 0b0111: 0b1101,
    0b1000: 0b1000, 0b1001: 0b1001, 0b1011: 0b1110, 0b1100: 0b1100, 0b1101: 0b1101, 0b1110: 0b1110,
}  # fmt: skip


def test_each_rule_defines_its_nibbles_alone() -> None:
    assert set(RULES) == set(LEGAL)
    for name, legal in LEGAL.items():
        assert (RULES[name].name, set(RULES[name].legal)) == (name, legal)
        assert re.search(rf"PTX ISA {re.escape(SECTIONS.get(name, '9.7.16'))}(?![.\d])", RULES[name].source)


def test_a_rule_says_which_nibbles_it_takes() -> None:
    for name in ("ordered", "tf32", "tcgen05"):
        assert {int(value, 2) for value in re.findall(r"\b0b[01]{4}\b", RULES[name].meaning)} == LEGAL[name]
    for name in ("plain", "wgmma"):
        assert "two different indices (i0 = low two bits, i1 = high two bits)" in RULES[name].meaning


def test_the_low_half_is_the_first_index() -> None:
    pairs = [(i0, i1) for i1 in range(UNITS_PER_CHUNK) for i0 in range(UNITS_PER_CHUNK)]
    assert [indices(value) for value in range(16)] == pairs
    assert [nibble(i0, i1) for i0, i1 in pairs] == list(range(16))
    for dtype in (np.uint8, np.uint32, np.int64):
        values = np.arange(16, dtype=dtype).reshape(2, 8)
        i0, i1 = indices(values)
        assert (i0.dtype, i1.dtype, i0.shape, i1.shape) == (dtype, dtype, (2, 8), (2, 8))
        assert (i0 + 4 * i1 == values).all()
        assert [*zip(i0.ravel(), i1.ravel(), strict=True)] == pairs


def test_swapped_slots_fit_the_multiplexers() -> None:
    """Slot 0 then reads units 0 to 2 and slot 1 units 1 to 3; what is in order already is not swapped."""
    assert set(MUX3) == PLAIN
    for value, expected in MUX3.items():
        swapped = swap_for_mux3(value)
        assert swapped is (value != expected), value
        i0, i1 = indices(value)
        assert (nibble(i1, i0) if swapped else value) == expected
    assert set(MUX3.values()) == TCGEN05
    assert not any(swap_for_mux3(value) for value in TCGEN05)


def test_granularities() -> None:
    found = {(name, record.name, record.stored, record.logical) for name, record in GRANULARITIES.items()}
    assert found == {("1:2", "1:2", 1, 2), ("2:4", "2:4", 2, 4), ("4:8", "4:8", 4, 8)}
    assert UNITS_PER_CHUNK == 4
