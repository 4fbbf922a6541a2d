"""Toggles of random netlists against one that is stepped cycle by cycle; and what their toggles take, by hand."""

import numpy as np
import pytest
from sptc.energy.activity import MappedNetlist, Pipeline
from sptc.energy.costs import costs_of
from sptc.energy.electrical import ElectricalLibrary
from sptc.errors import Error
from sptc.synth.liberty import Library, evaluate
from sptc.tests.energy.power_library import CAPACITANCE, FALL, LEAKAGE, OF_CLOCK, RISE, VOLTAGE

INPUTS, CELLS, STAGES = 5, 60, 3
CLOCK = 1000
GATES = ("INV", "NAND2", "NOR2", "XOR2", "BUF")


def random_netlist(rng: np.random.Generator) -> MappedNetlist:
    """Gates between registers of several stages: each stage reads what the one before holds."""
    cells: dict[str, tuple[str, dict[str, int | str]]] = {}
    nets: list[int | str] = [*range(INPUTS)]
    following = INPUTS
    for stage in range(STAGES):
        for number in range(CELLS // STAGES):
            kind = str(rng.choice(GATES))
            pins = {pin: nets[rng.integers(len(nets))] for pin in ("A" if kind in ("INV", "BUF") else "AB")}
            cells[f"gate_{stage}_{number}"] = (kind, {**pins, "Y": following})
            nets.append(following)
            following += 1
        held: list[int | str] = ["1"]
        for number, net in enumerate(nets[-8:]):
            cells[f"flop_{stage}_{number}"] = ("FLOP", {"D": net, "K": CLOCK, "Q": following})
            held.append(following)
            following += 1
        nets = held
    return MappedNetlist(cells, {"step": [*range(INPUTS)], "clk": [CLOCK]}, {"result": nets[1:]})


def stepped(netlist: MappedNetlist, library: Library, steps: np.ndarray) -> list[dict[int | str, bool]]:
    """Values of all nets in each cycle: registers take what they see, gates settle."""
    functions = {cell.name: cell.outputs[0] for cell in library.cells}
    gates = [(kind, pins) for kind, pins in netlist.cells.values() if kind != "FLOP"]
    flops = [pins for kind, pins in netlist.cells.values() if kind == "FLOP"]
    held = {pins["Q"]: False for pins in flops}
    cycles = []
    for step in steps:
        values: dict[int | str, bool] = {"0": False, "1": True, **held, **dict(enumerate(map(bool, step)))}
        for kind, pins in gates:
            output, function = functions[kind]
            values[pins[output]] = evaluate(function, {pin: values[net] for pin, net in pins.items() if pin != output})
        cycles.append(values)
        held = {pins["Q"]: values[pins["D"]] for pins in flops}
    return cycles


@pytest.mark.parametrize("cycles", [7, 64, 65, 300])
def test_toggles_are_those_of_a_netlist_that_is_stepped(
    cycles: int, library: Library, electrical: ElectricalLibrary, seed: int
) -> None:
    rng = np.random.default_rng([seed, cycles])
    netlist = random_netlist(rng)
    steps = rng.integers(0, 2, (cycles, INPUTS), np.uint8)
    pipeline = Pipeline(netlist, library, electrical)
    assert pipeline.latency == STAGES
    found, values = pipeline.run({"step": steps}), stepped(netlist, library, steps)
    assert found.cycles == cycles - STAGES - 1
    for net, count in found.toggles.items():
        assert count == sum(a[net] != b[net] for a, b in zip(values[STAGES:], values[STAGES + 1 :], strict=False))
    results = [[values_of[net] for net in netlist.outputs["result"]] for values_of in values]
    assert (found.outputs["result"][STAGES:] == np.array(results[STAGES:])).all()


def test_what_toggles_take(library: Library, electrical: ElectricalLibrary) -> None:
    """An input to two inverters, one of which a register holds: each toggles in every cycle."""
    cells = {
        "first": ("INV", {"A": 0, "Y": 1}),
        "second": ("INV", {"A": 0, "Y": 2}),
        "held": ("FLOP", {"D": 1, "K": CLOCK, "Q": 3}),
    }
    netlist = MappedNetlist(cells, {"step": [0], "clk": [CLOCK]}, {"result": [2, 3]})
    pipeline = Pipeline(netlist, library, electrical)
    costs = costs_of(netlist, electrical, pipeline.order, lambda cell: cell)
    activity = pipeline.run({"step": np.arange(100, dtype=np.uint8)[:, None] % 2})
    pin = VOLTAGE**2 / 2 * CAPACITANCE
    unloaded = (RISE[0] + FALL[0]) / 2
    loaded = unloaded + CAPACITANCE * (RISE[1] - RISE[0] + FALL[1] - FALL[0]) / 2
    wanted = {
        "inputs": 2 * pin,
        "first": pin + loaded,
        "second": unloaded,
        "held": unloaded + 2 * (pin + OF_CLOCK),
    }
    assert costs.of(activity) == pytest.approx(wanted)
    assert costs.leakage == 3 * LEAKAGE


@pytest.mark.parametrize(
    ("cells", "inputs", "message"),
    [
        ({"a": ("INV", {"A": 1, "Y": 2}), "b": ("INV", {"A": 2, "Y": 1})}, {}, "has a loop"),
        ({"a": ("INV", {"A": 0, "Y": 1})}, {"other": [0]}, "input other of the netlist is given no steps"),
        (
            {"a": ("FLOP", {"D": 0, "K": CLOCK, "Q": 1})},
            {"step": [0]},
            "2 cycles are too few for a pipeline of 1 stage",
        ),
    ],
)
def test_what_is_refused(
    cells: dict, inputs: dict, message: str, library: Library, electrical: ElectricalLibrary
) -> None:
    netlist = MappedNetlist(cells, {"clk": [CLOCK], **inputs}, {"result": [1]})
    with pytest.raises(Error) as raised:
        Pipeline(netlist, library, electrical).run({"step": np.zeros((2, 1), np.uint8)})
    assert message in str(raised.value)


def test_a_cell_of_another_library(library: Library) -> None:
    module = {"cells": {"x": {"type": "OTHER", "connections": {"A": [2]}}}, "ports": {}}
    with pytest.raises(Error, match=r"^power.lib has no cell for OTHER$"):
        MappedNetlist.of(module, library)
