"""Structure of adders and column compressors, and widths of sums. Proofs and benches of components check results."""

import re

import pytest
from amaranth.hdl import Fragment, Module, Signal, Value
from sptc.rtl.cells import compressor
from sptc.rtl.cells.adder import Adder
from sptc.rtl.cells.carry_save_tree import sum_bits
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS, LEAST_EXPONENT
from sptc.rtl.cells.multiplier import Multiplier
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.convert import to_rtlil


@pytest.mark.parametrize("bits", [5, 34])
def test_synthesis_keeps_signals_between_adder_groups(bits: int) -> None:
    """Signals between groups of the adder have the attribute `keep` for synthesis, but not for compiled simulation."""
    text = to_rtlil(Adder(bits), "adder")
    kept = re.findall(r"^  attribute \\keep 1\n(?:  attribute .*\n)*  wire width 1 \\(\w+)$", text, re.M)
    groups = {name.rpartition("_")[2] for name in kept}
    assert len(groups) > (bits > 8)
    assert len(kept) == 3 * len(groups)  # for each group: makes a carry, passes a carry, carry out
    assert "keep" not in to_rtlil(Adder(bits), "adder", platform=OPERATORS)
    assert "cell $mul" not in to_rtlil(Multiplier(9, signed=True), "top")
    assert "cell $mul" in to_rtlil(Multiplier(9, signed=True), "top", platform=OPERATORS)


@pytest.mark.parametrize("bits", [1, 2, 9, 28])
def test_the_width_of_a_sum_is_enough_and_no_bit_wider(bits: int) -> None:
    for count in range(1, 70):
        width, lowest = sum_bits(bits, count), -count * 2 ** (bits - 1)
        assert -(2 ** (width - 1)) <= lowest < -(2 ** (width - 2))


@pytest.mark.parametrize("height", [2, 3, 4, 5, 6, 7, 9, 13, 17, 28])
def test_number_and_depth_of_adders(monkeypatch: pytest.MonkeyPatch, height: int) -> None:
    """A compressor has the least depth, one full adder per removed bit, and at most one half adder per column."""
    depth, kinds, width, add = dict[int, int](), list[int](), 12, compressor._add
    kept: list[Value] = []  # keeps the values alive, so that no two have the same `id`

    def counted(m: Module, *bits: Value) -> tuple[Value, Value]:
        kinds.append(len(bits))
        outputs = add(m, *bits)
        depth.update(dict.fromkeys(map(id, outputs), 1 + max(depth.get(id(bit), 0) for bit in bits)))
        kept.extend(outputs)
        return outputs

    monkeypatch.setattr(compressor, "_add", counted)
    m, columns = Module(), [[Signal() for _ in range(height)] for _ in range(width)]
    compressor.compress(m, columns)
    Fragment.get(m, None)
    rows, reached = 0, 2  # minimum levels of full adders, each of which reduces three bits to two
    while reached < height:
        rows, reached = rows + 1, reached * 3 // 2
    assert max(depth.values(), default=0) <= rows
    # A full adder removes a bit until two bits per column are left. Carries above the highest bit are dropped.
    assert kinds.count(3) <= width * height - 2 * width + height
    assert kinds.count(2) <= width


def test_the_exponent_of_absent_terms_is_the_smallest() -> None:
    """The exponent that marks an absent term is below the exponent of any term, even with block scales and F = 40."""
    assert -(1 << ALIGNED_EXPONENT_BITS - 1) == LEAST_EXPONENT < min((-126 - 2 * 127), -108 - 40 - 2 * 127)
