"""What is proved is what ships: a property speaks of parts of the three tops, or of the wiring of such parts alone."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from sptc.formal.catalogue import PROPERTIES
from sptc.formal.properties import Case, cases
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.config import PRESETS
from sptc.rtl.order import OrderedSelect
from sptc.rtl.tcgen05 import Tcgen05
from sptc.rtl.warp import Warp
from sptc.rtl.warpgroup import Warpgroup

pytestmark = [pytest.mark.regression, pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")]
#: Small arrays of two datapaths, which together have every part that any has.
CONFIGS = [replace(PRESETS[name], rows=4, columns=4) for name in ("tiny", "rtx-blackwell", "ampere")]


def parts_of(component: Any, platform: object, seen: set[type]) -> Iterator[type]:
    """Yield the classes of a component and of all its parts; what has been seen once is not opened again."""
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
    """Return the classes of all that the tops are made of."""
    found: set[type] = set()
    for config in CONFIGS:
        for platform in (None, OPERATORS):
            for top in (Warp(config), Warpgroup(config), Warpgroup(config, count=2), Tcgen05(config, 2)):
                found |= set(parts_of(top, platform, set()))
    return found


@pytest.fixture(scope="module")
def shipped() -> Iterator[set[type]]:
    """Classes of all that the tops are made of; components are collected while warnings of them are ignored."""
    yield parts_of_tops()
    gc.collect()


def subjects(case: Case) -> Iterator[type]:
    """Yield the components that a case is about, by the classes of the hardware that they are or stand for.

    One that connects parts as an array does, where the array itself is too large, goes by these.
    """
    for component, _ in case.harness().m._named_submodules.values():
        if isinstance(component, OrderedSelect):
            yield from {*parts_of(component, "formal", set())} - {OrderedSelect}
        elif isinstance(component, wiring.Component):
            yield next(kind for kind in type(component).__mro__ if kind.__module__.startswith("sptc.rtl"))


@pytest.mark.parametrize("name", [item.name for item in PROPERTIES])
def test_a_property_speaks_of_what_a_top_contains(name: str, shipped: set[type]) -> None:
    (item,) = (item for item in PROPERTIES if item.name == name)
    kinds = {kind for case in cases([item], [PRESETS["tiny"], PRESETS["rtx-blackwell"]])[:3] for kind in subjects(case)}
    assert kinds, "it speaks of no component"
    assert {kind.__name__ for kind in kinds} <= {kind.__name__ for kind in shipped}
