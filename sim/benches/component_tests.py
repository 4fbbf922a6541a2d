"""cocotb tests of all combinational components: every output must equal the golden model's output."""

import warnings
import zlib

import cocotb
import numpy as np
from amaranth.hdl import UnusedElaboratable
from cocotb.handle import HierarchyObject
from cocotb.triggers import Timer

from ..engine.ports import joined, ports_of, split
from .components import component_benches
from .settings import Settings

__all__: list[str] = []

# Ignore warnings about unused components: some components are created only to read their ports.
warnings.filterwarnings("ignore", category=UnusedElaboratable)
SETTINGS = Settings.of_environment()
BENCHES = component_benches(SETTINGS.config)


def _test_of(component: str) -> object:
    @cocotb.test(name=component)
    async def answers_as_the_golden_model(top: HierarchyObject) -> None:
        """Drive all input vectors in sequence and compare each output; no output may depend on an earlier vector."""
        bench = BENCHES[component]
        rng = np.random.default_rng([cocotb.RANDOM_SEED, zlib.crc32(component.encode())])
        vectors = bench.stimulus(rng, SETTINGS.items)
        expected = bench.model(vectors)
        ports = ports_of(bench.component)
        inputs = {name: joined(split(vectors, ports)[name]) for name in vectors}
        answers = {name: joined(split({name: np.ma.filled(expected[name], 0)}, ports)[name]) for name in expected}
        means = {name: ~np.ma.getmaskarray(expected[name]) for name in expected}
        handles = {name: getattr(top, f"{component}__{name}") for name in {**inputs, **answers}}
        for number in range(SETTINGS.items):
            for name, values in inputs.items():
                handles[name].value = values[number]
            await Timer(1, "ns")
            for name, values in answers.items():
                if means[name][number]:
                    actual = int(handles[name].value)
                    vector = ", ".join(f"{port} {column[number]:#x}" for port, column in inputs.items())
                    difference = f"output {name} is {actual:#x}, not {values[number]:#x}, for the inputs {vector}"
                    assert actual == values[number], difference

    return answers_as_the_golden_model


globals().update({name: _test_of(name) for name in BENCHES})
