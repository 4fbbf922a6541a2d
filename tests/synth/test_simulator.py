"""Toggle counts of random netlists equal those of a gate-by-gate simulation. Energies equal hand calculations."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from sptc.errors import Error
from sptc.synth.energy.costs import Activity, costs_of
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.energy.netlist import Box, MappedNetlist, levels_of
from sptc.synth.energy.plan import Plan
from sptc.synth.energy.simulator import STREAMS_OF_A_WORD, Simulator, packed, unpacked
from sptc.synth.functions import computing
from sptc.synth.liberty import Library
from sptc.tests.synth.power_library import CAPACITANCE, FALL, LIBRARY, OF_CLOCK, RISE, VOLTAGE

INPUTS, FLOPS, GATES = 5, 8, 60
CYCLES, CLOCK = 12, 1000
KINDS = ("INV", "NAND2", "NOR2", "XOR2", "BUF")


def random_netlist(rng: np.random.Generator) -> MappedNetlist:
    """Return a random netlist of gates and registers. Every loop passes through a register."""
    held: list[int | str] = [INPUTS + number for number in range(FLOPS)]
    nets: list[int | str] = [*range(INPUTS), *held, "1"]
    cells: dict[str, tuple[str, dict[str, int | str]]] = {}
    for number in range(GATES):
        kind = str(rng.choice(KINDS))
        pins = {pin: nets[rng.integers(len(nets))] for pin in ("A" if kind in ("INV", "BUF") else "AB")}
        nets.append(INPUTS + FLOPS + number)
        cells[f"gate_{number}"] = (kind, {**pins, "Y": nets[-1]})
    taken = [nets[rng.integers(len(nets))] for _ in held]
    cells |= {f"flop_{q}": ("FLOP", {"D": d, "K": CLOCK, "Q": q}) for d, q in zip(taken, held, strict=True)}
    return MappedNetlist(cells, {"step": [*range(INPUTS)], "clk": [CLOCK]}, {"result": nets[-FLOPS:]})


class Stepped:
    """Simple reference simulator of a netlist, which evaluates one gate at a time, for a single stream of inputs."""

    def __init__(self, netlist: MappedNetlist, library: Library, *, glitches: bool) -> None:
        functions = {cell.name: cell.outputs[0] for cell in library.cells}
        cells = netlist.cells.values()
        self.glitches = glitches
        self.flops = [pins for kind, pins in cells if kind == "FLOP"]
        self.gates = [(functions[kind], pins) for kind, pins in cells if kind != "FLOP"]
        self.values: dict[int | str, bool] = dict.fromkeys(range(INPUTS + FLOPS + GATES), False)
        self.values |= {"0": False, "1": True}
        self.toggles: Counter[int | str] = Counter()

    def step(self, inputs: np.ndarray, *, counted: bool) -> None:
        before = dict(self.values)
        self.values |= {pins["Q"]: before[pins["D"]] for pins in self.flops} | dict(enumerate(map(bool, inputs)))
        passed = [before, dict(self.values)]
        while len(passed) == 2 or passed[-1] != passed[-2]:
            seen = passed[-1]
            passed.append(dict(seen))
            for (output, function), pins in self.gates:
                passed[-1][pins[output]] = computing(function)({pin: seen[net] for pin, net in pins.items()}, True)
        self.values = passed[-1]
        for one, other in pairwise(passed if self.glitches else [before, self.values]):
            self.toggles.update(net for net in one if counted and one[net] != other[net])


@pytest.mark.parametrize(("words", "glitches"), [(1, False), (1, True), (2, True)])
def test_toggles_equal_the_reference_simulation(words: int, glitches: bool, seed: int) -> None:
    rng = np.random.default_rng([seed, words])
    netlist = random_netlist(rng)
    simulator = Simulator(Plan.of(netlist, CellLibrary.of(LIBRARY), glitches=glitches), words)
    streams = [Stepped(netlist, LIBRARY, glitches=glitches) for _ in range(words * STREAMS_OF_A_WORD)]
    step, result = (simulator.rows_of(nets) for nets in (netlist.inputs["step"], netlist.outputs["result"]))
    for cycle in range(CYCLES):
        bits = rng.integers(0, 2, (len(streams), INPUTS), np.uint8)
        counted = cycle > 2
        simulator.begin()
        simulator.put(step, packed(bits))
        simulator.settle(counted=counted)
        for stream, inputs in zip(streams, bits, strict=True):
            stream.step(inputs, counted=counted)
        expected = [[stream.values[net] for net in netlist.outputs["result"]] for stream in streams]
        assert (unpacked(simulator.get(result)) == np.array(expected)).all()
    assert simulator.cycles == (CYCLES - 3) * len(streams)
    toggles = sum((stream.toggles for stream in streams), Counter())
    assert {net: count for net, count in simulator.toggles.items() if count} == toggles


def of_output(load: float) -> float:
    """Return the mean internal energy of an output's toggle, in pJ, for a load of the output in pF."""
    return (RISE[0] + FALL[0] + load * (RISE[1] - RISE[0] + FALL[1] - FALL[0])) / 2


def test_energy_of_toggles() -> None:
    """Energies include pin loads across the border of a box: pins in the box load nets outside, and vice versa."""
    box = Box("unit", {"given": [1], "result": [2], "clk": [CLOCK]})
    ends = {"first": ("INV", {"A": 0, "Y": 1}), "last": ("INV", {"A": 2, "Y": 3})}
    around = MappedNetlist(ends, {"step": [0]}, {"result": [3]}, {"unit": box})
    inside = {"one": ("INV", {"A": 0, "Y": 1}), "two": ("INV", {"A": 0, "Y": 2})}
    inside["held"] = ("FLOP", {"D": 1, "K": CLOCK, "Q": 3})
    unit = MappedNetlist(inside, {"given": [0], "clk": [CLOCK]}, {"result": [3]})
    pin, cells = VOLTAGE**2 / 2 * CAPACITANCE, CellLibrary.of(LIBRARY)
    activity = Activity(99, dict.fromkeys(range(4), 99))
    of_around = costs_of(around, cells, {name: name for name in around.cells}, inside={"unit": unit})
    ends_take = {"first": of_output(2 * CAPACITANCE) + 2 * pin, "last": of_output(0.0)}
    assert of_around.of(activity) == pytest.approx({"inputs": pin, **ends_take})
    of_unit = {"one": of_output(CAPACITANCE) + pin, "two": of_output(0.0)}
    in_box = costs_of(unit, cells, {name: name for name in inside}, outside={3: CAPACITANCE})
    held = of_output(CAPACITANCE) + pin + 2 * (pin + OF_CLOCK)
    assert in_box.of(activity) == pytest.approx(of_unit | {"held": held})
    alone = costs_of(unit, cells, {name: name for name in inside})
    held = of_output(0.0) + 2 * (pin + OF_CLOCK)
    assert alone.of(activity) == pytest.approx(of_unit | {"inputs": 2 * pin, "held": held})


def test_rejected_netlists() -> None:
    cells = {"a": ("INV", {"A": 1, "Y": 2}), "b": ("INV", {"A": 2, "Y": 1})}
    with pytest.raises(Error, match=r"^the netlist has a loop without a register$"):
        levels_of(MappedNetlist(cells, {}, {"result": [1]}), CellLibrary.of(LIBRARY))
    module = {"cells": {"x": {"type": "OTHER", "connections": {"A": [2]}}}, "ports": {}}
    with pytest.raises(Error, match=r"^power.lib has no cell for OTHER$"):
        MappedNetlist.of(module, LIBRARY)
