"""The metadata decoder, every nibble under every rule in both builds, against the tables of the instruction set."""

import gc
from collections.abc import Callable

import numpy as np
import pytest
from sptc.isa.metadata import RULES, indices, reachable, swap_for_mux3
from sptc.rtl.config import MUXES
from sptc.rtl.metadata import NibbleDecoder, RuleCode

NIBBLES = np.arange(16)


def test_every_rule_has_a_code() -> None:
    assert [code.name.lower() for code in RuleCode] == list(RULES)


@pytest.mark.parametrize("mux", MUXES)
@pytest.mark.parametrize("code", RuleCode)
def test_every_nibble(simulate: Callable, mux: str, code: RuleCode) -> None:
    rule = code.name.lower()
    got = simulate(NibbleDecoder(mux), nibble=NIBBLES, rule=code.value)
    for nibble in range(16):
        swapped = mux == "mux3" and rule == "plain" and swap_for_mux3(nibble)
        i0, i1 = indices(nibble)[:: -1 if swapped else 1]
        assert got["swap"][nibble] == swapped
        assert (got["index0"][nibble], got["index1"][nibble]) == (i0, i1)
        assert got["legal"][nibble] == (nibble in RULES[rule].legal)
        # `reachable` speaks of stored elements, the selects of multiplexers: exchanged elements come from the other.
        delivered = reachable(nibble, rule, mux)[:: -1 if swapped else 1]
        assert got["select0"][nibble] == (1 << i0 if delivered[0] else 0)
        assert got["select1"][nibble] == (1 << i1 if delivered[1] else 0)


@pytest.mark.parametrize("code", [code for code in RuleCode if code is not RuleCode.WGMMA])
def test_three_inputs_reach_what_they_should(simulate: Callable, code: RuleCode) -> None:
    """Multiplexer 0 never takes unit 3, nor multiplexer 1 unit 0; a defined nibble loses nothing.

    No architecture with 3:1 multiplexers has wgmma, whose twelve nibbles come without an exchange.
    """
    got = simulate(NibbleDecoder("mux3"), nibble=NIBBLES, rule=code.value)
    assert not (got["select0"] & 0b1000).any()
    assert not (got["select1"] & 0b0001).any()
    legal = got["legal"].astype(bool)
    assert set(NIBBLES[legal]) == RULES[code.name.lower()].legal
    assert got["select0"][legal].all()
    assert got["select1"][legal].all()
    if code is RuleCode.PLAIN:
        pairs = set(zip(got["index0"][legal].tolist(), got["index1"][legal].tolist(), strict=True))
        assert len(pairs) == 7  # twelve plain nibbles in the seven pairs that tcgen05 names
        assert {i0 | i1 << 2 for i0, i1 in pairs} == RULES["tcgen05"].legal
    else:
        assert not got["swap"].any()


def test_four_inputs_take_everything(simulate: Callable) -> None:
    for code in RuleCode:
        got = simulate(NibbleDecoder("mux4"), nibble=NIBBLES, rule=code.value)
        assert (got["select0"] == 1 << (NIBBLES & 3)).all()
        assert (got["select1"] == 1 << (NIBBLES >> 2)).all()
        assert not got["swap"].any()


@pytest.mark.filterwarnings("ignore:.*created but never used")
def test_an_unknown_mux() -> None:
    with pytest.raises(ValueError, match=r"^mux must be 'mux4' or 'mux3', not 'mux2'$"):
        NibbleDecoder("mux2")
    gc.collect()  # Amaranth warns when it meets the half-made component, so let that be here
