"""Synthesis recipes for Yosys, and a parser of the statistics that Yosys writes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import BackendError, Error
from ..infra.escapes import verilog_name
from ..infra.nextpnr import run_nextpnr
from .liberty import Library
from .netlist import Netlist

__all__ = ["FPGAS", "RESOURCES", "Recipe", "Route"]

#: FPGA families, each with the synthesis command of Yosys.
FPGAS = {
    "ice40": "synth_ice40 -dsp",
    "ecp5": "synth_ecp5",
    "xilinx": "synth_xilinx -flatten -noiopad -noclkbuf",
}
#: Resources of an FPGA, each with a pattern of the cells that use it. An inverter and a shift register use one LUT
#: each.
RESOURCES = {
    "LUT": re.compile(r"SB_LUT4|LUT[1-6]|INV|SRL\w+"),
    "carry": re.compile(r"SB_CARRY|CCU2C|CARRY4"),
    "DSP": re.compile(r"SB_MAC16|MULT\d+X\d+D|DSP48E1"),
    "FF": re.compile(r"SB_DFF\w*|TRELLIS_FF|FD[RSCP]E(_1)?"),
    "mux": re.compile(r"PFUMX|L6MUX21|MUXF[78]"),
}
#: Yosys commands for mapping without a library, to gates whose number of transistors in static CMOS is known (four for
#: a NAND2).
_GATES = """\
read_rtlil netlist.il
hierarchy -top {top}
proc
{flatten}async2sync
attrmap -remove init
synth {flat}-top {top}
{transparent}dfflegalize -cell $_DFF_P_ 01
abc -g cmos
{joined}opt_clean
"""
_GATES_MEASURED = """\
tee -q -o {statistics} stat -tech cmos -json
delete t:* t:$* %d
ltp -noff
"""
#: Commands of ABC's technology mapper, by :attr:`Recipe.least_area`: for the least delay (False) or area (True).
_MAP = {False: "map,-B,0.9", True: "amap,-m"}
_ABC = "+strash;{order}ifraig;scorr;dc2;dch,-f;{map};topo;buffer,-c;upsize;dnsize;stime,-p"
_LIBRARY = """\
read_rtlil netlist.il
attrmap -remove init
hierarchy -top {top}
proc
{flatten}opt -full
async2sync
synth {flat}-top {top} -run begin:check
{transparent}opt -fast
{gates}dfflegalize -cell $_DFF_P_ x
opt_clean
dfflibmap -liberty registers.lib
{adders}"""
_LIBRARY_MAPPED = """\
abc -liberty library.lib -script {abc}
{joined}opt_clean
"""
#: Clock gates are used for groups of at least eight registers with the same enable.
_CLOCK_GATES = "opt_dff\nclockgate -liberty library.lib -min_net_size 8\n"
_LIBRARY_MEASURED = "tee -q -o {statistics} stat -liberty library.lib -json\n"
#: Line that Yosys prints before it maps a prepared netlist in another order of its ports.
_NEXT_ORDER = "next order of the ports"
_FLAT = {"flatten": "flatten\n", "flat": "-flatten ", "joined": ""}
_FPGA = """\
read_rtlil netlist.il
{synthesis} -top {top}
"""
_FPGA_MEASURED = "tee -q -o {statistics} stat -json\n"
#: Names of two files: the netlist to place and route, and the routed netlist.
_PLACED, _ROUTED = "placed.json", "routed.json"
_TRANSPARENT = """\
dfflegalize -cell $_DFF_P_ x
techmap -map transparent.v
opt -full
simplemap
"""
_TRANSPARENT_MAP = "module \\$_DFF_P_ (input D, C, output Q);\n  assign Q = D;\nendmodule\n"
_ADDERS = """\
read_liberty -lib library.lib
extract_fa -fa
techmap -map adders.v
simplemap
opt_clean
"""
_ADDERS_MAP = """\
(* techmap_celltype = "$fa" *)
module full_adders (A, B, C, X, Y);
  parameter WIDTH = 1;
  input [WIDTH-1:0] A, B, C;
  output [WIDTH-1:0] X, Y;
  genvar i;
  generate
    for (i = 0; i < WIDTH; i = i + 1) begin : bits
      wire total, carry;
      {cell} adder (.{a}(A[i]), .{b}(B[i]), .{c}(C[i]), .{total}(total), .{carry}(carry));
      assign X[i] = {carry_sign}carry, Y[i] = {total_sign}total;
    end
  endgenerate
endmodule
"""
_DELAY = re.compile(r"^ABC: .*\bDelay = +([\d.]+) ps", re.MULTILINE)
_DEPTH = re.compile(r"^Longest topological path in .* \(length=(\d+)\)", re.MULTILINE)
#: Descriptions of Yosys cells that a library may lack, for messages.
_MISSING = {"$_DFF_P_": "a flip-flop with a rising clock and without set, clear and enable"}
#: Pattern of a flip-flop in a netlist
_REGISTER = re.compile(r"^\s*cell \$_?\w*dff", re.IGNORECASE | re.MULTILINE)
#: Pattern of gates whose number of transistors is known.
_KNOWN = re.compile(r"\$_(BUF|NOT|N?AND|N?OR|XN?OR|N?MUX|AOI[34]|OAI[34]|DFF_P)_")


#: Report of nextpnr, as parsed JSON.
Route = dict[str, Any]


def _longest(route: Route | None) -> float | None:
    """Return the longest path between registers in picoseconds, or None if the report of nextpnr has no such path."""
    slowest = min((clock["achieved"] for clock in (route or {}).get("fmax", {}).values()), default=None)
    return None if slowest is None else 1e6 / slowest


@dataclass(frozen=True)
class Recipe:
    """A synthesis recipe: target technology and options, which determine the quantities that a synthesis measures.

    * Without a library: gate equivalents (a NAND2 of four transistors) and the logic depth in gates.
    * With a library: area, gate equivalents, and the delay of the longest path between registers or ports, without
      wires and without the delay of registers.
    * For an FPGA: its cells and, if placed, the longest path between registers.
    """

    library: Library | None = None
    fpga: str | None = None  #: FPGA family, a key of :data:`FPGAS`
    #: Whether to replace registers by wires. The measurement is wrong if a register is in a feedback loop. The option
    #: has no effect for an FPGA.
    combinational: bool = False
    #: Whether to map additions to full-adder cells of the library. If so, no delay is measured.
    full_adders: bool = False
    #: Whether clock gates of the library replace the multiplexers that keep the values of registers with an enable.
    clock_gating: bool = False
    #: Whether ABC maps to a library for the least area instead of the least delay.
    least_area: bool = False
    #: Whether to map each module separately, so that a cell's name starts with the names of the modules around it. The
    #: option has no effect for an FPGA.
    by_module: bool = False
    #: Whether to place and route the netlist, which measures the longest path between registers with its wires. For
    #: ECP5 only.
    place: bool = False
    #: Number of orders of inputs and outputs. ABC permutes inputs and outputs before it maps to a library. The order
    #: changes areas and delays by a few per cent, so measurements are medians over all orders. If the number is 1,
    #: inputs and outputs keep the order of the netlist.
    orders: int = 1
    #: Seed of the permutation of inputs and outputs for a single measurement. 0 means no permutation.
    seed: int = 0

    def runs(self) -> list["Recipe"]:
        """Return the recipe of each single synthesis run, one for each order of inputs and outputs."""
        if self.orders == 1:
            return [self]
        return [replace(self, orders=1, seed=seed) for seed in range(1, self.orders + 1)]

    @property
    def amounts(self) -> tuple[str, ...]:
        """Names of the measured quantities that are additive, such as area or gates, with the most important first."""
        if self.fpga:
            return tuple(RESOURCES)
        if self.library:
            return ("area", "gates") if self.library.nand2 else ("area",)
        return ("gates",)

    @property
    def longest(self) -> str | None:
        """Measure of the longest path: ``delay`` in picoseconds, ``depth`` in gates, or None if it is not measured."""
        if self.full_adders or (self.fpga and not self.place):
            return None
        return "delay" if self.library or self.place else "depth"

    def files(self, netlist: Netlist) -> dict[str, bytes]:
        """Return the files that the Yosys commands of :meth:`script` read, by name."""
        files = {"netlist.il": netlist.text.encode()}
        if self.combinational:
            files["transparent.v"] = _TRANSPARENT_MAP.encode()
        if self.library:
            files |= {"library.lib": self.library.data, "registers.lib": self.library.registers}
            if self.full_adders:
                adder = self.library.full_adder
                names = dict(zip("abc", adder.cell.inputs, strict=True), total=adder.total, carry=adder.carry)
                names["cell"] = adder.cell.name
                pins = {key: verilog_name(name) for key, name in names.items()}
                pins["total_sign"], pins["carry_sign"] = ("~" if inverted else "" for inverted in adder.inverted)
                files["adders.v"] = _ADDERS_MAP.format(**pins).encode()
        return files

    def script(self, netlist: Netlist) -> str:
        """Return the Yosys commands for one measurement of a netlist."""
        return self._prepared(netlist) + self._mapped() + self._measured()

    @staticmethod
    def script_of(netlist: Netlist, runs: Sequence["Recipe"]) -> str:
        """Return the Yosys commands for one or more measurements, which differ only in their seed.

        For more than one, Yosys prepares the netlist once, and ABC maps it in each order of the ports.
        """
        if len(runs) == 1:
            return runs[0].script(netlist)
        orders = (f"design -load prepared\nlog {_NEXT_ORDER}\n{run._mapped()}{run._measured()}" for run in runs)
        return f"{runs[0]._prepared(netlist)}design -save prepared\n{''.join(orders)}"

    def mapping(self, netlist: Netlist) -> str:
        """Return the Yosys commands that map a netlist to library cells or gates, without statistics. Not for FPGAs."""
        return self._prepared(netlist) + self._mapped()

    def _prepared(self, netlist: Netlist) -> str:
        """Return the Yosys commands before mapping to a library, or all commands of a synthesis without a library."""
        if self.fpga:
            return _FPGA.format(synthesis=FPGAS[self.fpga], top=netlist.top)
        transparent = _TRANSPARENT if self.combinational else ""
        if not self.library:
            return _GATES.format(top=netlist.top, transparent=transparent, **self._hierarchy)
        if self.clock_gating and not self.library.has_clock_gate:
            raise Error(f"{self.library.name} has no integrated clock gate for registers with a rising clock")
        if not (self.combinational or self.library.has_flip_flop) and _REGISTER.search(netlist.text):
            raise Error(f"{self.library.name} has no D flip-flop for the registers: add a liberty file with flip-flops")
        gates = _CLOCK_GATES if self.clock_gating else ""
        adders = _ADDERS if self.full_adders else ""
        return _LIBRARY.format(top=netlist.top, transparent=transparent, gates=gates, adders=adders, **self._hierarchy)

    def _mapped(self) -> str:
        """Return the Yosys commands that map a prepared netlist to a library."""
        if self.fpga or not self.library:
            return ""
        order = f"permute,-S,{self.seed};" if self.seed else ""
        return _LIBRARY_MAPPED.format(abc=_ABC.format(order=order, map=_MAP[self.least_area]), **self._hierarchy)

    def _measured(self) -> str:
        """Return the Yosys commands that write the statistics and, for placement, the netlist."""
        if self.fpga:
            commands = _FPGA_MEASURED + (f"write_json {_PLACED}\n" if self.place else "")
        else:
            commands = _LIBRARY_MEASURED if self.library else _GATES_MEASURED
        return commands.format(statistics=self.statistics)

    @property
    def statistics(self) -> str:
        """Name of the file to which Yosys writes the statistics of a single measurement."""
        return f"statistics{self.seed}.json"

    @property
    def _hierarchy(self) -> Mapping[str, str]:
        """Yosys commands and options that flatten the netlist before mapping or, with :attr:`by_module`, afterwards."""
        return {"flatten": "", "flat": "", "joined": "flatten\n"} if self.by_module else _FLAT

    def route(self, folder: Path) -> Route | None:
        """Place and route the netlist that the script wrote to a folder, if :attr:`place` is set.

        Errors are those of :func:`run_nextpnr`.
        """
        if not self.place:
            return None
        run_nextpnr(folder, _PLACED, _ROUTED)
        report: Route = json.loads((folder / _ROUTED).read_text(encoding="utf-8"))
        return report

    @staticmethod
    def printed_of(runs: Sequence["Recipe"], printed: str) -> Sequence[str]:
        """Split the output of Yosys into one text per measurement, if the commands are those of :meth:`script_of`."""
        return printed.split(f"\n{_NEXT_ORDER}\n")[-len(runs) :]

    def read(
        self, printed: str, folder: Path, route: Route | None
    ) -> tuple[dict[str, float], float | None, dict[str, int]]:
        """Return the amounts (such as area), the longest path and the cell counts of a single measurement.

        `printed` is the standard output of Yosys, `folder` the folder with the file :attr:`statistics`, and `route`
        the result of :meth:`route`. The amounts have the names of :attr:`amounts`. The longest path is in picoseconds
        or gates; None if there is no path, or it is not measured. The cells are counted by type and include black
        boxes. Raise a `BackendError` if the technology has no cell for a part of the netlist.
        """
        design: Mapping[str, Any] = json.loads((folder / self.statistics).read_text(encoding="utf-8"))["design"]
        cells = {name: int(count) for name, count in design.get("num_cells_by_type", {}).items()}
        cells.pop("$scopeinfo", None)
        if self.fpga:
            counts = {
                name: float(sum(count for cell, count in cells.items() if expression.fullmatch(cell)))
                for name, expression in RESOURCES.items()
            }
            return counts, _longest(route), cells
        left = [name for name in cells if name.startswith("$")]
        if not self.library:
            left = [name for name in left if not _KNOWN.fullmatch(name)]
        if left:
            what = self.library.name if self.library else "static CMOS"
            words = [_MISSING.get(name, name) for name in left]
            raise BackendError(f"{what} has no cell for {', '.join(words)}")
        if not self.library:
            # In Yosys statistics, a plus sign after the number of transistors means that some cells have an unknown
            # number of transistors. In these netlists, such cells are black boxes and scopes (``$scopeinfo``).
            transistors = int(str(design["estimated_num_transistors"]).rstrip("+"))
            depth = _DEPTH.findall(printed)
            return {"gates": transistors / 4}, float(depth[-1]) if depth else None, cells
        area = float(design.get("area", 0.0))
        nand2 = self.library.nand2
        delay = _DELAY.findall(printed) if self.longest else []
        amounts = {"area": area, "gates": area / nand2.area} if nand2 else {"area": area}
        return amounts, float(delay[-1]) if delay else None, cells
