"""The cells that stages are built of are proved with the parameters that they have there."""

import gc
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from sptc.formal.catalogue import chosen
from sptc.rtl.align import AlignStage
from sptc.rtl.cells.adder import Adder
from sptc.rtl.cells.carry_save_tree import CarrySaveTree
from sptc.rtl.cells.max_exponent import MaxExponent
from sptc.rtl.cells.shifter import AlignmentShifter
from sptc.rtl.cells.slot_multiplier import SlotMultiplier
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.multiply import MultiplyStage
from sptc.rtl.product_group import ProductGroup
from sptc.rtl.reduce import ReduceStage

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


def terms(tree: CarrySaveTree) -> tuple[object, ...]:
    runs = [(len([*alike]), bits) for bits, alike in groupby(tree.term_bits)]
    return tuple(f"{count}x{bits}" for count, bits in runs), tree.total_bits


#: By property, the cell that it is about, and the parameters that it is proved for.
CELLS: dict[str, tuple[type, Callable[[Any], tuple[object, ...]]]] = {
    "alignment.maximum": (
        MaxExponent,
        lambda cell: (cell.count, len(cell.e_max), "signed" if cell.e_max.shape().signed else "unsigned"),
    ),
    "alignment.shift": (
        AlignmentShifter,
        lambda cell: (cell.magnitude_bits, cell.padding, cell.shift_amount_bits, cell.shifted_bits),
    ),
    "operands.multiply": (SlotMultiplier, lambda cell: (cell.significand, cell.factor.width, cell.factor.signed)),
    "reduction.tree": (CarrySaveTree, terms),
    "reduction.adder": (Adder, lambda cell: (cell.bits,)),
}


def parts(component: Any) -> Iterator[Any]:
    """Yield the parts of a component, and those of groups among them."""
    for part, _ in component.elaborate("formal")._named_submodules.values():
        yield part
        if isinstance(part, ProductGroup):
            yield from parts(part)


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_every_cell_is_proved_as_it_is_built(config: CoreConfig) -> None:
    built = [part for stage in (MultiplyStage, AlignStage, ReduceStage) for part in parts(stage(config))]
    for name, (kind, described) in CELLS.items():
        (item,) = chosen([name])
        proved = {*item.parameters(config)}
        if kind is AlignmentShifter:
            proved = {described(AlignmentShifter(*parameters)) for parameters in proved}
        assert {described(cell) for cell in built if isinstance(cell, kind)} <= proved, name
    del built
    gc.collect()  # what was not elaborated warns when it goes
