"""The order in which operands are selected, and codes of rules; what is selected is for the benches of components."""

import gc

import pytest
from sptc.isa.metadata import RULES
from sptc.rtl.config import CoreConfig
from sptc.rtl.metadata import NibbleDecoder, RuleCode
from sptc.rtl.order import byte_order, nibble_order, selected_byte

MIXED = CoreConfig(name="test", formats=("f16", "s8"), step_bytes=16)
WIDE = CoreConfig(name="test", formats=("tf32", "bf16"), step_bytes=8)
NARROW = CoreConfig(name="test", formats=("s8", "s4"), step_bytes=8)


@pytest.mark.parametrize("made", [MIXED, WIDE, NARROW])
@pytest.mark.parametrize("wide", [True, False])
def test_orders_lose_nothing(made: CoreConfig, wide: bool) -> None:
    """A sparse step takes every byte of B once, a dense one those of the low half; every chunk has its nibble."""
    size = made.step_bytes
    assert sorted(source for source in byte_order(made, wide=wide, sparse=True) if source is not None) == [
        *range(2 * size)
    ]
    dense = [source for source in byte_order(made, wide=wide, sparse=False) if source is not None]
    assert sorted(dense) == list(range(size))
    assert sorted(selected_byte(made, byte, wide=wide) for byte in range(size)) == list(range(size))
    assert set(nibble_order(made, wide=wide)) >= set(range(made.chunks // (1 + wide)))


def test_every_rule_has_a_code() -> None:
    assert [code.name.lower() for code in RuleCode] == list(RULES)


@pytest.mark.filterwarnings("ignore:.*created but never used")
def test_an_unknown_mux() -> None:
    with pytest.raises(ValueError, match=r"^mux must be 'mux4' or 'mux3', not 'mux2'$"):
        NibbleDecoder("mux2")
    gc.collect()  # Amaranth warns when it meets the half-made component, so let that be here
