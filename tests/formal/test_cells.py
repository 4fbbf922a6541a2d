"""Proofs cover the shipped hardware: cells with the parameters of the presets, and components of top-level modules."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from sptc.formal.catalogue import PROPERTIES, chosen
from sptc.formal.properties import Case, cases
from sptc.rtl.align import AlignStage
from sptc.rtl.cells.adder import Adder
from sptc.rtl.cells.carry_save_tree import CarrySaveTree
from sptc.rtl.cells.max_exponent import MaxExponent
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.cells.shifter import AlignmentShifter
from sptc.rtl.cells.slot_multiplier import SlotMultiplier
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.multiply import MultiplyStage
from sptc.rtl.order import OrderedSelect
from sptc.rtl.product_group import ProductGroup
from sptc.rtl.reduce import ReduceStage
from sptc.rtl.tcgen05 import Tcgen05
from sptc.rtl.warp import Warp
from sptc.rtl.warpgroup import Warpgroup

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
#: Small arrays of three datapaths, which together contain every component of any datapath.
CONFIGS = [replace(PRESETS[name], rows=4, columns=4) for name in ("tiny", "rtx-blackwell", "ampere")]


def terms(tree: CarrySaveTree) -> tuple[object, ...]:
    runs = [(len([*alike]), bits) for bits, alike in groupby(tree.term_bits)]
    return tuple(f"{count}x{bits}" for count, bits in runs), tree.total_bits


#: For each property of a cell (a small component): the class of the cell, and a function that returns the parameters of
#: the proof for a given cell.
CELLS: dict[str, tuple[type, Callable[[Any], tuple[object, ...]]]] = {
    "alignment.maximum": (MaxExponent, lambda cell: (cell.count, len(cell.e_max),
                                                     "signed" if cell.e_max.shape().signed else "unsigned")),
    "alignment.shift": (AlignmentShifter, lambda cell: (cell.magnitude_bits, cell.padding, cell.shift_amount_bits,
                                                        cell.shifted_bits)),
    "operands.multiply": (SlotMultiplier, lambda cell: (cell.significand, cell.factor.width, cell.factor.signed)),
    "reduction.tree": (CarrySaveTree, terms),
    "reduction.adder": (Adder, lambda cell: (cell.bits,)),
}  # fmt: skip


def parts(component: Any) -> Iterator[Any]:
    """Yield the submodules of a component. After a submodule that is a product group, yield its submodules."""
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
    gc.collect()  # free components that were never elaborated, while the test ignores warnings about them


def parts_of(component: Any, platform: object, seen: set[type]) -> Iterator[type]:
    """Yield the classes of a component and of all its submodules. Submodules of classes in `seen` are skipped."""
    kind = type(component)
    yield kind
    if kind in seen:
        return
    seen.add(kind)
    built = component.elaborate(platform)
    while not isinstance(built, Module) and hasattr(built, "elaborate"):
        built = built.elaborate(platform)
    if isinstance(built, Module):
        for part, _ in (*built._named_submodules.values(), *built._anon_submodules):
            yield from parts_of(part, platform, seen)


def parts_of_tops() -> set[type]:
    found: set[type] = set()
    for config in CONFIGS:
        for platform in (None, OPERATORS):
            for top in (Warp(config), Warpgroup(config), Warpgroup(config, count=2), Tcgen05(config, 2)):
                found |= set(parts_of(top, platform, set()))
    return found


@pytest.fixture(scope="module")
def shipped() -> Iterator[set[type]]:
    """Return the classes of all components in the top-level modules. No component outlives the call of the function."""
    yield parts_of_tops()
    gc.collect()


def subjects(case: Case) -> Iterator[type]:
    """Yield the hardware classes in the harness of a case. Replace OrderedSelect by the classes of its submodules."""
    for component, _ in case.harness().m._named_submodules.values():
        if isinstance(component, OrderedSelect):
            yield from {*parts_of(component, "formal", set())} - {OrderedSelect}
        elif isinstance(component, wiring.Component):
            yield next(kind for kind in type(component).__mro__ if kind.__module__.startswith("sptc.rtl"))


@pytest.mark.regression
@pytest.mark.parametrize("name", [item.name for item in PROPERTIES])
def test_a_property_is_about_components_of_top_level_modules(name: str, shipped: set[type]) -> None:
    (item,) = (item for item in PROPERTIES if item.name == name)
    kinds = {kind for case in cases([item], [PRESETS["tiny"], PRESETS["rtx-blackwell"]])[:3] for kind in subjects(case)}
    assert kinds, "the harness of the property contains no component"
    assert {kind.__name__ for kind in kinds} <= {kind.__name__ for kind in shipped}
