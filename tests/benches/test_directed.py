"""Directed vectors come before random vectors in component benches, in blocks of steps, and in tiles."""

from functools import cache
from itertools import islice

import numpy as np
import pytest
from sptc.isa.instructions import Instruction
from sptc.isa.metadata import indices
from sptc.rtl.config import PRESETS
from sptc.sim.benches import directed
from sptc.sim.benches.blocks import ARCHITECTURE_OF_PRESET, native, random_blocks
from sptc.sim.benches.components import component_benches
from sptc.sim.benches.directed import DotProduct, directed_operands, dot_products
from sptc.verify.directed import directed_matrices

#: Ignore warnings about components that are created only to compare their ports with vectors.
pytestmark = [pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable"), pytest.mark.usefixtures("collect")]
VECTORS = [(vector["component"], vector["ports"]) for vector in directed._stored()["components"]]


@cache
def one_step_instructions() -> list[Instruction]:
    return [i for name, config in PRESETS.items() for i in native(config, ARCHITECTURE_OF_PRESET[name])]


def instructions(one: DotProduct) -> list[Instruction]:
    """Return the instructions of all datapaths, cut to one step along K, that can compute the given dot product."""
    return [i for i in one_step_instructions() if one.fits(i)]


@pytest.mark.parametrize("preset", ["ampere", "rtx-blackwell"])
def test_vectors_of_components_come_first(preset: str, rng: np.random.Generator) -> None:
    for name, bench in component_benches(PRESETS[preset]).items():
        drawn = bench.stimulus(rng, 20)
        first = [{port: int(values[place]) for port, values in drawn.items()} for place in range(20)]
        stored = [ports for component, ports in VECTORS if component == name]
        carried = [ports for ports in stored if directed._can_carry(PRESETS[preset], bench, ports)]
        assert [{port: one[port] for port in ports} for one, ports in zip(first, carried, strict=False)] == carried
        assert {port: len(values) for port, values in drawn.items()} == dict.fromkeys(drawn, 20)


def test_a_datapath_carries_each_vector() -> None:
    benches = [(config, component_benches(config)) for config in PRESETS.values()]
    for component, ports in VECTORS:
        assert any(
            component in of_config and directed._can_carry(config, of_config[component], ports)
            for config, of_config in benches
        )


def test_metadata_selects_the_partner_of_each_element() -> None:
    """The nibbles of a tile select, for each element of A, the element of B that the directed vector pairs with it."""
    for one in dot_products():
        chosen = instructions(one)
        assert chosen, f"no datapath has an instruction for {one}"
        for i in chosen:
            tile = one.operands(i, 2, 3)
            units = np.arange(i.stored_k)
            if i.granularity:
                of_chunk, within = np.divmod(units, i.granularity.stored)
                parts = i.granularity.logical // 4 or 1
                picked = np.array(indices(int(tile.nibbles[0, 0, 0])))  # all chunks have the same nibble
                unit = picked[within * 2 // i.granularity.stored] * i.granularity.logical // 4
                units = of_chunk * i.granularity.logical + unit + within % parts
            met = tile.b[0, units, 1]
            count = len(one.a)
            assert tile.a[0, 1, :count].tolist() == list(one.a), (one, str(i))
            assert met[:count].tolist() == list(one.b), (one, str(i))
            assert not tile.a[0, :, count:].any(), (one, str(i))
            assert (tile.c == one.c).all(), (one, str(i))


def test_random_blocks_begin_with_all_directed_blocks(rng: np.random.Generator) -> None:
    config, arch = PRESETS["rtx-blackwell"], ARCHITECTURE_OF_PRESET["rtx-blackwell"]
    count = sum(len([*directed_operands(i, 1, 1)]) for i in native(config, arch))
    assert count
    names = [block.name for block in islice(random_blocks(config, arch, rng, 2, 2), count + 20)]
    assert [name.endswith(" directed") for name in names] == [True] * count + [False] * 20


def test_the_first_directed_tile_holds_each_vector(rng: np.random.Generator) -> None:
    for one in dot_products():
        i = instructions(one)[0]
        place = [other for other in dot_products() if other.fits(i)].index(one)
        tiles = directed_matrices(i, rng, 2)
        assert tiles.a[0, place, : len(one.a)].tolist() == list(one.a), one
        assert tiles.c[0, place, place] == one.c, one
        assert set(one.b) <= set(tiles.b[0, :, place].tolist()), one
