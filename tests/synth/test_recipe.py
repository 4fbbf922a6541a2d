"""For every synthesis recipe, netlists of a few gates have the expected area and delay."""

from dataclasses import replace

import pytest
from amaranth.hdl import Module, Signal
from sptc.errors import BackendError, Error
from sptc.rtl.config import CoreConfig
from sptc.rtl.convert import to_rtlil
from sptc.synth.liberty import Library
from sptc.synth.netlist import TOP, Netlist, unit
from sptc.synth.price import measure
from sptc.synth.recipe import FPGAS, Recipe
from sptc.tests.synth.netlists import chain, nands, netlist


@pytest.fixture
def registered() -> Netlist:
    first, second = {"A": "x [0]", "B": "x [1]", "Y": "d"}, {"A": "q", "B": "x [2]", "Y": "y"}
    return netlist([("$_NAND_", first), ("$_DFF_P_", {"D": "d", "C": "x [3]", "Q": "q"}), ("$_NAND_", second)], 4, 1)


def test_gates_and_chains(library: Library) -> None:
    """Eight NAND2 have an area of eight gate equivalents, and a chain of n NAND2 has the delay of n gates."""
    result = measure(nands(8), Recipe())
    assert (result.amounts, result.longest, result.cells) == ({"gates": 8.0}, 1, {"$_NAND_": 8})
    result = measure(nands(8), Recipe(library=library))
    assert (result.amounts, result.longest, result.cells) == ({"area": 32.0, "gates": 8.0}, 100.0, {"NAND2": 8})
    for length in (1, 3):
        measurement = measure(chain(length), Recipe(library=library))
        assert measurement.longest == 100.0 * length
        assert measurement.amounts == {"area": 4.0 * length, "gates": length}
    poor = Library("poor.lib", "\n".join(line for line in library.text.splitlines() if "NAND2" not in line))
    measurement = measure(chain(1), Recipe(library=poor))
    assert Recipe(library=poor).amounts == ("area",)
    assert measurement.amounts == {"area": 11.0}  # a NAND is made of three inverters and a NOR2
    assert measurement.longest == 300.0


def test_registers_cut_paths(registered: Netlist, library: Library) -> None:
    whole = measure(registered, Recipe(library=library))
    assert (whole.amounts["area"], whole.longest) == (24.0, 100.0)
    transparent = measure(registered, Recipe(library=library, combinational=True))
    assert (transparent.amounts["area"], transparent.longest) == (8.0, 200.0)
    whole, transparent = (measure(registered, Recipe(combinational=wires)) for wires in (False, True))
    assert (whole.amounts, whole.longest) == ({"gates": 6.0}, 1)
    assert (transparent.amounts, transparent.longest) == ({"gates": 2.0}, 2)


def test_full_adders(library: Library) -> None:
    gates_of_an_adder = ("XOR x[0] x[1] d", "XOR d x[2] y[0]", "AND x[0] x[1] e", "AND d x[2] f", "OR e f y[1]")
    gates = []
    for kind, *wires in map(str.split, gates_of_an_adder):
        gates.append((f"$_{kind}_", {pin: wire.replace("[", " [") for pin, wire in zip("ABY", wires, strict=True)}))
    adder = netlist(gates, 3, 2)
    gates, cell = (measure(adder, Recipe(library=library, full_adders=adders)) for adders in (False, True))
    assert "ADD" not in gates.cells
    assert (cell.cells, cell.amounts["area"], cell.longest) == ({"ADD": 1}, 30.0, None)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("fpga", FPGAS)
def test_cells_of_an_fpga(registered: Netlist, fpga: str) -> None:
    measurement = measure(registered, Recipe(fpga=fpga))
    assert measurement.amounts == {"LUT": 2, "carry": 0, "DSP": 0, "FF": 1, "mux": 0}
    assert measurement.longest is None


def test_nothing_to_map(library: Library) -> None:
    for recipe in (Recipe(), Recipe(library=library)):
        measurement = measure(netlist([], 1, 1), recipe)
        assert set(measurement.amounts.values()) == {0.0}
        assert not measurement.longest


def test_cells_that_the_library_lacks(library: Library, registered: Netlist) -> None:
    bus = netlist([("$_TBUF_", {"A": "x [0]", "E": "x [1]", "Y": "y"})], 2, 1)
    with pytest.raises(BackendError, match=r"^static CMOS has no cell for \$_TBUF_$"):
        measure(bus, Recipe())
    with pytest.raises(BackendError, match=r"^little\.lib has no cell for \$_TBUF_$"):
        measure(bus, Recipe(library=library))
    poor = Library("poor.lib", "\n".join(line for line in library.text.splitlines() if "FLOP" not in line))
    with pytest.raises(Error, match=r"^poor\.lib has no D flip-flop for the registers: add a liberty file with flip-f"):
        measure(registered, Recipe(library=poor))
    assert measure(registered, Recipe(library=poor, combinational=True)).cells == {"NAND2": 2}
    assert measure(nands(1), Recipe(library=poor)).cells == {"NAND2": 1}


def test_the_published_recipe(library: Library) -> None:
    """The Yosys commands of a recipe and their order are fixed, so that areas are comparable with published areas."""
    assert Recipe(library=library, combinational=True).script(nands(1)).splitlines() == [
        "read_rtlil netlist.il", "attrmap -remove init", "hierarchy -top top", "proc", "flatten", "opt -full",
        "async2sync", "synth -flatten -top top -run begin:check", "dfflegalize -cell $_DFF_P_ x",
        # The published recipe lacks `simplemap`, which maps multiplexers of words that `opt -full` may create.
        "techmap -map transparent.v", "opt -full", "simplemap", "opt -fast", "dfflegalize -cell $_DFF_P_ x",
        "opt_clean", "dfflibmap -liberty registers.lib",
        "abc -liberty library.lib -script "
        "+strash;ifraig;scorr;dc2;dch,-f;map,-B,0.9;topo;buffer,-c;upsize;dnsize;stime,-p",
        "opt_clean", "tee -q -o statistics0.json stat -liberty library.lib -json",
    ]  # fmt: skip


def test_least_area(library: Library, least: CoreConfig) -> None:
    """ABC's mapper for the least area finds a smaller and slower unit than ABC's mapper for the least delay."""
    fast, small = (measure(unit(least), Recipe(library=library, least_area=area)) for area in (False, True))
    assert small.amounts["area"] < fast.amounts["area"]
    assert fast.longest is not None
    assert small.longest is not None
    assert small.longest > fast.longest


def test_clock_gates(library: Library) -> None:
    """One clock gate replaces the multiplexers in front of eight register bits with the same enable."""
    m = Module()
    enable, data, register = Signal(), Signal(8), Signal(8, reset_less=True)
    with m.If(enable):
        m.d.sync += register.eq(data)
    registers = Netlist("registers", to_rtlil(m, TOP, ports=[enable, data, register]))
    gate = """
  cell (GATE) { area : 9; clock_gating_integrated_cell : "latch_posedge";
    pin (CLK) { direction : input; clock_gate_clock_pin : true; }
    pin (ENA) { direction : input; clock_gate_enable_pin : true; }
    pin (GCLK) { direction : output; clock_gate_out_pin : true; } }
"""
    with_gate = replace(library, text=library.text.rstrip().removesuffix("}") + gate + "}\n")
    whole, gated = (measure(registers, Recipe(library=with_gate, clock_gating=gating)) for gating in (False, True))
    assert gated.cells == {"FLOP": 8, "GATE": 1}
    assert whole.cells["FLOP"] == 8
    assert whole.amounts["area"] > gated.amounts["area"]
    with pytest.raises(Error, match=r"^little\.lib has no integrated clock gate for registers with a rising clock$"):
        measure(registers, Recipe(library=library, clock_gating=True))
