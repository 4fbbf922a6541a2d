"""Replace the registers of a balanced pipeline by wires, so that a proof need not consider several cycles.

A pipeline is balanced if every path from an input to an output crosses the same number of registers, and one input
enables all of them. Its registers then add latency only: two such pipelines give equal results if and only if they do
with wires in place of registers. Results that depend on the initial values of registers are not compared.
"""

import json
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from ...infra.yosys import run_yosys

__all__ = ["ENABLED", "WITHOUT_REGISTERS", "flat_module", "in_order", "is_balanced", "write_wires"]

_WIRES = "wires.v"
_MAP = """\
(* techmap_celltype = "$dffe" *)
module wire_of_register(input CLK, input EN, input [WIDTH-1:0] D, output [WIDTH-1:0] Q);
  parameter WIDTH = 1;
  parameter CLK_POLARITY = 1;
  parameter EN_POLARITY = 1;
  assign Q = D;
endmodule
"""
#: Yosys commands that replace synchronous resets of registers by multiplexers, as :func:`is_balanced` requires.
ENABLED = "setattr -unset init w:*\ndffunmap -srst-only\n"
#: Yosys commands that replace registers by wires. The commands read the file that :func:`write_wires` writes.
WITHOUT_REGISTERS = f"{ENABLED}techmap -map {_WIRES}\nopt_clean\n"
_NETLIST = "pipeline.json"


def write_wires(folder: Path) -> None:
    """Write the Verilog file for the Yosys commands :data:`WITHOUT_REGISTERS` to the folder in which Yosys runs."""
    (folder / _WIRES).write_text(_MAP, encoding="utf-8")


def flat_module(design: str, top: str, folder: Path) -> dict[str, Any]:
    """Return module `top` of the flat RTLIL file `design`, as Yosys' JSON, for :func:`is_balanced`."""
    run_yosys(folder, f"read_rtlil {design}\n{ENABLED}opt_clean\nwrite_json {_NETLIST}\n")
    return json.loads((folder / _NETLIST).read_text(encoding="utf-8"))["modules"][top]


def is_balanced(module: Mapping[str, Any], enable: str) -> bool:
    """Return whether a design is a pipeline whose registers only add latency and are all enabled by input `enable`.

    The module is from Yosys' JSON, after :data:`ENABLED`. A module in which the inputs of one cell have different
    pipeline depths also counts as not balanced.
    """
    ports, cells = module["ports"], module["cells"]
    enabled_by = ports[enable]["bits"]
    registers = {name for name, cell in cells.items() if "D" in cell["connections"] and "CLK" in cell["connections"]}
    for name in registers:
        if cells[name]["type"] != "$dffe" or cells[name]["connections"]["EN"] != enabled_by:
            return False
        if int(cells[name]["parameters"]["EN_POLARITY"], 2) != 1:
            return False
    depths = {bit: 0 for port in ports.values() if port["direction"] == "input" for bit in port["bits"]}
    for name in in_order(cells):
        cell = cells[name]
        into, out = _bits(cell, "input"), _bits(cell, "output")
        if name in registers:
            into = set(cell["connections"]["D"])
        input_depths = {depths[bit] for bit in into if bit in depths}
        if len(input_depths) > 1:
            return False
        if input_depths:
            depths.update(dict.fromkeys(out, input_depths.pop() + (name in registers)))
    leaving = {bit for port in ports.values() if port["direction"] == "output" for bit in port["bits"]}
    return bool(cells) and len({depths[bit] for bit in leaving if bit in depths}) == 1


def in_order(cells: Mapping[str, Any]) -> list[str]:
    """Return the names of the cells of a netlist in topological order, or an empty list if the cells form a loop."""
    drivers = {bit: name for name, cell in cells.items() for bit in _bits(cell, "output")}
    graph = {name: {drivers[bit] for bit in _bits(cell, "input") if bit in drivers} for name, cell in cells.items()}
    try:
        return [*TopologicalSorter(graph).static_order()]
    except CycleError:
        return []


def _bits(cell: Mapping[str, Any], direction: str) -> set[int]:
    """Return the nets at all inputs of a cell, or at all its outputs, as `direction` states; constants are left out."""
    return {
        bit
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == direction
        for bit in bits
        if isinstance(bit, int)
    }
