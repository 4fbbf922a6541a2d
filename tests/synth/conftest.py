"""Netlists of a few gates, and measurements that touch nobody's cache."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sptc.rtl.config import CoreConfig
from sptc.synth.liberty import Library
from sptc.synth.netlist import Netlist

#: A cell: type, ports as (port, wire).
Gate = tuple[str, dict[str, str]]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(shared_cache))


@pytest.fixture
def library(liberty: Path) -> Library:
    return Library.read(liberty)


@pytest.fixture
def least() -> CoreConfig:
    """As little as a datapath can be."""
    return CoreConfig(name="least", formats=("s8", "u8"), step_bytes=4, rows=2, columns=1, cuts=("reduce",))


def _netlist(gates: list[Gate], inputs: int, outputs: int, name: str = "gates") -> Netlist:
    lines = ["module \\top", f"wire width {inputs} input 0 \\x", f"wire width {outputs} output 1 \\y"]
    wires = {wire for _, ports in gates for wire in ports.values()}
    lines += [f"wire \\{wire}" for wire in sorted(wires) if wire[0] not in "xy"]
    for number, (kind, ports) in enumerate(gates):
        lines.append(f"cell {kind} $gate{number}")
        lines += [f"connect \\{port} \\{wire}" for port, wire in ports.items()]
        lines.append("end")
    return Netlist(name, "\n".join([*lines, "end", ""]))


@pytest.fixture
def netlist() -> Callable[..., Netlist]:
    """Make a netlist of cells between the bits of x and of y."""
    return _netlist


@pytest.fixture
def nands(netlist: Callable[..., Netlist]) -> Callable[[int], Netlist]:
    """Make a netlist of so many NAND2 side by side."""

    def make(count: int) -> Netlist:
        places = [{"A": f"x [{2 * n}]", "B": f"x [{2 * n + 1}]", "Y": f"y [{n}]"} for n in range(count)]
        return netlist([("$_NAND_", ports) for ports in places], 2 * count, count)

    return make


@pytest.fixture
def chain(netlist: Callable[..., Netlist]) -> Callable[[int], Netlist]:
    """Make a netlist of so many NAND2 in a row."""

    def make(count: int) -> Netlist:
        wires = ["x [0]", *(f"w{n}" for n in range(1, count)), "y"]
        gates = [("$_NAND_", {"A": wires[n], "B": f"x [{n + 1}]", "Y": wires[n + 1]}) for n in range(count)]
        return netlist(gates, count + 1, 1)

    return make
