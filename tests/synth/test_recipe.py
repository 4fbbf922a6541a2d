"""Recipes: known netlists take what they are known to take."""

from collections.abc import Callable

import pytest
from sptc.errors import BackendError
from sptc.synth.liberty import Library
from sptc.synth.netlist import Netlist
from sptc.synth.price import measure
from sptc.synth.recipe import FPGAS, Recipe

Make = Callable[..., Netlist]


@pytest.fixture
def registered(netlist: Make) -> Netlist:
    """A NAND2, a flip-flop and another NAND2 in a row."""
    return netlist(
        [
            ("$_NAND_", {"A": "x [0]", "B": "x [1]", "Y": "d"}),
            ("$_DFF_P_", {"D": "d", "C": "x [3]", "Q": "q"}),
            ("$_NAND_", {"A": "q", "B": "x [2]", "Y": "y"}),
        ],
        4,
        1,
    )


@pytest.fixture
def adder(netlist: Make) -> Netlist:
    """The sum and the carry of three bits, in single gates."""
    return netlist(
        [
            ("$_XOR_", {"A": "x [0]", "B": "x [1]", "Y": "d"}),
            ("$_XOR_", {"A": "d", "B": "x [2]", "Y": "y [0]"}),
            ("$_AND_", {"A": "x [0]", "B": "x [1]", "Y": "e"}),
            ("$_AND_", {"A": "d", "B": "x [2]", "Y": "f"}),
            ("$_OR_", {"A": "e", "B": "f", "Y": "y [1]"}),
        ],
        3,
        2,
    )


def test_gates_without_a_library(nands: Callable[[int], Netlist]) -> None:
    """Eight NAND2 are eight gate equivalents."""
    found = measure(nands(8), Recipe())
    assert (found.amounts, found.longest, found.cells) == ({"gates": 8.0}, 1, {"$_NAND_": 8})


def test_gates_of_a_library(nands: Callable[[int], Netlist], library: Library) -> None:
    found = measure(nands(8), Recipe(library=library))
    assert (found.amounts, found.longest, found.cells) == ({"area": 32.0, "gates": 8.0}, 100.0, {"NAND2": 8})


def test_a_library_without_gate_equivalents(chain: Callable[[int], Netlist], library: Library) -> None:
    poor = Library("poor.lib", "\n".join(line for line in library.text.splitlines() if "NAND2" not in line))
    found = measure(chain(1), Recipe(library=poor))
    assert Recipe(library=poor).amounts == ("area",)
    assert found.amounts == {"area": 11.0}  # two inverters, a NOR2 and another inverter
    assert found.longest == 300.0


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_chain_is_as_long_as_its_cells(chain: Callable[[int], Netlist], library: Library, length: int) -> None:
    found = measure(chain(length), Recipe(library=library))
    assert found.longest == 100.0 * length
    assert found.amounts == {"area": 4.0 * length, "gates": length}


def test_registers_cut_paths(registered: Netlist, library: Library) -> None:
    whole = measure(registered, Recipe(library=library))
    assert (whole.amounts["area"], whole.longest) == (24.0, 100.0)
    transparent = measure(registered, Recipe(library=library, combinational=True))
    assert (transparent.amounts["area"], transparent.longest) == (8.0, 200.0)
    whole, transparent = (measure(registered, Recipe(combinational=wires)) for wires in (False, True))
    assert (whole.amounts, whole.longest) == ({"gates": 6.0}, 1)
    assert (transparent.amounts, transparent.longest) == ({"gates": 2.0}, 2)


def test_full_adders(adder: Netlist, library: Library) -> None:
    gates, cell = (measure(adder, Recipe(library=library, full_adders=adders)) for adders in (False, True))
    assert "ADD" not in gates.cells
    assert (cell.cells, cell.amounts["area"], cell.longest) == ({"ADD": 1}, 30.0, None)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("fpga", FPGAS)
def test_cells_of_an_fpga(registered: Netlist, fpga: str) -> None:
    found = measure(registered, Recipe(fpga=fpga))
    assert found.amounts == {"LUT": 2, "carry": 0, "DSP": 0, "FF": 1, "mux": 0}
    assert found.longest is None


def test_nothing_to_map(netlist: Make, library: Library) -> None:
    for recipe in (Recipe(), Recipe(library=library)):
        found = measure(netlist([], 1, 1), recipe)
        assert set(found.amounts.values()) == {0.0}
        assert not found.longest


def test_what_the_technology_lacks(netlist: Make, library: Library, registered: Netlist) -> None:
    bus = netlist([("$_TBUF_", {"A": "x [0]", "E": "x [1]", "Y": "y"})], 2, 1)
    with pytest.raises(BackendError, match=r"^static CMOS has no cell for \$_TBUF_$"):
        measure(bus, Recipe())
    with pytest.raises(BackendError, match=r"^little\.lib has no cell for \$_TBUF_$"):
        measure(bus, Recipe(library=library))
    poor = Library("poor.lib", "\n".join(line for line in library.text.splitlines() if "FLOP" not in line))
    with pytest.raises(BackendError, match=r"^Yosys failed: .*D flip-flops are not supported$"):
        measure(registered, Recipe(library=poor))


def test_the_published_recipe(nands: Callable[[int], Netlist], library: Library) -> None:
    """Figures compare with others only if they come from these commands in this order."""
    script = Recipe(library=library, combinational=True).script(nands(1)).splitlines()
    assert script == [
        "read_rtlil netlist.il",
        "attrmap -remove init",
        "hierarchy -top top",
        "proc",
        "flatten",
        "opt -full",
        "async2sync",
        "synth -flatten -top top -run begin:check",
        "dfflegalize -cell $_DFF_P_ x",
        "techmap -map transparent.v",
        "opt -full",
        "opt -fast",
        "dfflegalize -cell $_DFF_P_ x",
        "opt_clean",
        "dfflibmap -liberty library.lib",
        "abc -liberty library.lib -script "
        "+strash;ifraig;scorr;dc2;dch,-f;map,-B,0.9;topo;buffer,-c;upsize;dnsize;stime,-p",
        "opt_clean",
        "tee -q -o statistics.json stat -liberty library.lib -json",
    ]
