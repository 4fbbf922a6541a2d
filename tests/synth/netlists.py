"""Functions that make netlists of a few gates for tests."""

from sptc.synth.netlist import Netlist

#: A gate: type of the cell, and the wire of each port.
Gate = tuple[str, dict[str, str]]


def netlist(gates: list[Gate], inputs: int, outputs: int, name: str = "gates") -> Netlist:
    """Return a netlist of gates with an input x and an output y, of `inputs` and `outputs` bits."""
    lines = ["module \\top", f"wire width {inputs} input 0 \\x", f"wire width {outputs} output 1 \\y"]
    wires = {wire for _, ports in gates for wire in ports.values()}
    lines += [f"wire \\{wire}" for wire in sorted(wires) if wire[0] not in "xy"]
    for number, (kind, ports) in enumerate(gates):
        lines.append(f"cell {kind} $gate{number}")
        lines += [f"connect \\{port} \\{wire}" for port, wire in ports.items()]
        lines.append("end")
    return Netlist(name, "\n".join([*lines, "end", ""]))


def nands(count: int) -> Netlist:
    places = [{"A": f"x [{2 * n}]", "B": f"x [{2 * n + 1}]", "Y": f"y [{n}]"} for n in range(count)]
    return netlist([("$_NAND_", ports) for ports in places], 2 * count, count)


def chain(count: int) -> Netlist:
    wires = ["x [0]", *(f"w{n}" for n in range(1, count)), "y"]
    gates = [("$_NAND_", {"A": wires[n], "B": f"x [{n + 1}]", "Y": wires[n + 1]}) for n in range(count)]
    return netlist(gates, count + 1, 1)
