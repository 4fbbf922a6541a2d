"""Area, wire length and delay of dot-product units, placed and routed at 180 nm, and the part of the delay in wires.

``python benchmarks/placement.py`` maps units with their pipeline registers to the cells of qflow's technology osu018.
graywolf places the cells, the scripts of qflow insert fill cells and power stripes, qrouter routes in six metal layers,
and OpenSTA (``sta``) computes delays. Debian has the packages qflow, qflow-tech-osu018, graywolf, qrouter and opensta.

* The clock and the input ``enable`` have no buffer trees, and are routed as ordinary nets. The clock is ideal, and
  paths that start at ``enable`` are excluded from the delay.
* Flip-flops drive the inputs of a unit. The delay of a path includes the first flip-flop, but not the setup time of the
  last flip-flop.
* The resistance and the capacitance of a net are its wire lengths in each layer times the values of the LEF file. The
  tree that qrouter extracts distributes resistance and capacitance over the net. The LEF file has neither coupling
  capacitances nor resistances of vias.
* Cell areas are those of the LEF file. The areas in the liberty file differ for OAI21X1 (23 instead of 32 square
  microns) and NAND3X1 (36 instead of 32).
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from area import UNITS as MEASURED
from measure import Row, options, show
from sptc.errors import BackendError, Error
from sptc.infra.limits import limited
from sptc.infra.yosys import run_yosys
from sptc.rtl.config import CoreConfig
from sptc.synth.energy.netlist import MappedNetlist
from sptc.synth.liberty import Library
from sptc.synth.netlist import TOP, unit
from sptc.synth.recipe import Recipe
from tqdm import tqdm

#: Dot-product units by name. A name consists of the format and the number of products per cycle.
UNITS = {name: config for name, config in MEASURED.items() if config.formats in (("f16",), ("s8",))}
#: Dot-product units that are placed and routed by default, each as a dense unit and as a sparse unit.
PLACED, SMALL = ("f16 x4", "s8 x8", "s8 x32"), ("s8 x4",)
PROGRAMS = ("tclsh", "graywolf", "qrouter", "sta")
#: Liberty file, LEF file and parameter file of qflow in the folder of the osu018 technology.
LIBERTY, LEF, PARAMETERS = "osu018_stdcells.lib", "osu018_stdcells.lef", "osu018.par"
LAYERS = 6
#: Power stripes as by default in qflow: 2 microns wide, a stripe every 50 microns, ground and supply in turn.
STRIPES = ("-stripe", "2.0", "50.0", "PG")
#: Time limit of each run of a tool in seconds.
LIMIT = 4 * 3600.0
_MAPPED = "setundef -zero\nopt_clean -purge\nwrite_json mapped.json\n"
_ROUTING = f"""\
read_lef {LEF}
layers {LAYERS}
via stack 1
vdd vdd
gnd gnd
{{obstructions}}
read_def unit.def
qrouter::standard_route unit_route.def false
quit
"""
_TIMING = f"""\
read_liberty {LIBERTY}
read_verilog unit.v
link_design unit
create_clock -name clk -period 100 [get_ports {{clock}}]
set_input_delay 0 -clock clk {{{{{{inputs}}}}}}
set_output_delay 0 -clock clk [all_outputs]
set_driving_cell -lib_cell DFFPOSX1 -pin Q {{{{{{inputs}}}}}}
set_false_path -from [get_ports {{enable}}]
report_checks -digits 4
read_spef unit.spef
report_checks -digits 4
exit
"""
_SPEF = """\
*SPEF "IEEE 1481-1998"
*DESIGN "unit"
*DATE ""
*VENDOR ""
*PROGRAM ""
*VERSION ""
*DESIGN_FLOW ""
*DIVIDER /
*DELIMITER :
*BUS_DELIMITER [ ]
*T_UNIT 1 NS
*C_UNIT 1 PF
*R_UNIT 1 OHM
*L_UNIT 1 HENRY
"""
_MACRO = re.compile(r"^MACRO (\S+).*?SIZE\s+(\S+)\s+BY\s+(\S+)", re.MULTILINE | re.DOTALL)
_LAYER = re.compile(r"^LAYER (\S+)\s+TYPE\s+ROUTING ;(.*?)^END", re.MULTILINE | re.DOTALL)
_COMPONENT = re.compile(r"^- \S+ (\S+) \+ PLACED", re.MULTILINE)
_POINT, _VIA = re.compile(r"\( *(\S+) +(\S+) *\)"), re.compile(r"\) +[A-Za-z]\w*")
_WORD, _NUMBER = re.compile(r"[()]|[^\s(),]+"), re.compile(r"[\d.]+(e[+-]?\d+)?")
_ARRIVAL = re.compile(r"^ +(\d+\.\d+) +data arrival time", re.MULTILINE)


@dataclass(frozen=True)
class Technology:
    """Settings of a placement: folders of the process technology and of qflow's scripts, and the cell density."""

    folder: Path
    scripts: Path
    density: float  #: Share of the area of all cell rows that cells occupy, before power stripes are inserted
    keep: Path | None  #: Folder that keeps all files of placement and routing

    @cached_property
    def library(self) -> Library:
        """Cell library of the technology, from its liberty file."""
        return Library.read(self.folder / LIBERTY)

    @cached_property
    def lef(self) -> str:
        """Text of the LEF file of the technology."""
        return (self.folder / LEF).read_text(encoding="utf-8")

    @cached_property
    def areas(self) -> dict[str, float]:
        """Area of each cell in square microns."""
        return {name: float(width) * float(height) for name, width, height in _MACRO.findall(self.lef)}

    @cached_property
    def wires(self) -> dict[str, tuple[float, float]]:
        """Resistance in ohms and capacitance in pF of one micron of wire, for each layer."""
        result = {}
        for name, text in _LAYER.findall(self.lef):
            keys = ("WIDTH", "RPERSQ", "CPERSQDIST", "EDGECAPACITANCE")
            width, square, surface, edge = (float(text.partition(key)[2].split()[0]) for key in keys)
            result[name] = square / width, surface * width + 2 * edge
        return result

    def run(self, folder: Path, result: str, program: str, *words: str) -> str:
        """Run a program, or a Tcl script of qflow, in a folder. Return the printed text.

        Raise a `BackendError` if the program fails, does not write the file `result`, or exceeds the time limit.
        """
        command = ["tclsh", str(self.scripts / program)] if program.endswith(".tcl") else [program]
        log = folder / f"{result}.log"
        with log.open("w", encoding="utf-8") as file, subprocess.Popen(
            [*command, *words], cwd=folder, start_new_session=True, preexec_fn=limited(),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                raise BackendError(f"{program} took longer than {LIMIT:g} seconds") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # ends the tool and its child processes
        printed = log.read_text(encoding="utf-8", errors="replace")
        if process.returncode or not (folder / result).is_file():
            last = ([line for line in printed.splitlines() if line.strip()] or ["no message"])[-1]
            raise BackendError(f"{program} did not write {result}: {last.strip()}")
        return printed


@dataclass(frozen=True)
class Design:
    """A dot-product unit as a netlist of library cells, with cell names and net names that all external tools use."""

    cells: dict[str, tuple[str, dict[str, str]]]  #: Type of each cell, and the net at each of its pins
    inputs: list[str]
    outputs: list[str]
    clock: str
    enable: str

    @classmethod
    def mapped(cls, config: CoreConfig, library: Library, folder: Path) -> "Design":
        """Map a dot-product unit to library cells. Raise an `Error` for a constant input, as tie cells are missing."""
        netlist, recipe = unit(config), Recipe(library=library)
        for name, content in recipe.files(netlist).items():
            (folder / name).write_bytes(content)
        run_yosys(folder, recipe.mapping(netlist) + _MAPPED, LIMIT)
        modules = json.loads((folder / "mapped.json").read_text(encoding="utf-8"))["modules"]
        flat = MappedNetlist.of(modules[TOP], library)
        count: Counter[str] = Counter()
        cells = {}
        for kind, pins in flat.cells.values():
            if any(isinstance(bit, str) for bit in pins.values()):
                raise Error(f"{library.name} has no cell for a constant, but a cell {kind} has a constant input")
            count[kind] += 1
            # The script blif2cel.tcl derives the same cell names from the BLIF file.
            cells[f"{kind}_{count[kind]}"] = kind, {pin: f"n{bit}" for pin, bit in pins.items()}
        used = {net for _, pins in cells.values() for net in pins.values()}
        inputs = {f"n{bit}" for bits in flat.inputs.values() for bit in bits} & used
        outputs = {f"n{bit}" for bits in flat.outputs.values() for bit in bits} & used - inputs
        clock, enable = (f"n{flat.inputs[port][0]}" for port in ("clk", "enable"))
        return cls(cells, sorted(inputs), sorted(outputs), clock, enable)

    def blif(self) -> str:
        """Return the netlist of the dot-product unit in BLIF."""
        lines = [".model unit", f".inputs {' '.join(self.inputs)}", f".outputs {' '.join(self.outputs)}"]
        for kind, pins in self.cells.values():
            lines.append(f".gate {kind} {' '.join(f'{pin}={net}' for pin, net in pins.items())}")
        return "\n".join([*lines, ".end\n"])

    def verilog(self) -> str:
        """Return the netlist of the dot-product unit in Verilog."""
        lines = [f"module unit ({', '.join([*self.inputs, *self.outputs])});"]
        lines += [f"input {net};" for net in self.inputs] + [f"output {net};" for net in self.outputs]
        for name, (kind, pins) in self.cells.items():
            lines.append(f"{kind} {name} ({', '.join(f'.{pin}({net})' for pin, net in pins.items())});")
        return "\n".join([*lines, "endmodule\n"])

    def terminals(self) -> dict[str, set[str]]:
        """Return the pins and ports of each net, with their names in SPEF."""
        result = defaultdict(set, {net: {net} for net in (*self.inputs, *self.outputs)})
        for name, (_, pins) in self.cells.items():
            for pin, net in pins.items():
                result[net].add(f"{name}:{pin}")
        return result


def placed(design: Design, technology: Technology, folder: Path) -> None:
    """Place the cells of a dot-product unit. Write a DEF file with power stripes, fill cells and pins to the folder."""
    (folder / "unit.blif").write_text(design.blif(), encoding="utf-8")
    for source, copy in ((LEF, LEF), (LIBERTY, LIBERTY), (PARAMETERS, "unit.par")):
        shutil.copyfile(technology.folder / source, folder / copy)
    (folder / "layers.cfg").write_text(f"read_lef {LEF}\n", encoding="utf-8")
    technology.run(folder, "unit.info", "qrouter", "-i", "unit.info", "-c", "layers.cfg")
    technology.run(folder, "unit.cel", "blif2cel.tcl", "--blif", "unit.blif", "--lef", LEF, "--cel", "unit.cel")
    if technology.density < 1:
        technology.run(
            folder, "unit.acel", "decongest.tcl", "unit", LEF, "FILL", f"{technology.density}", "--units=100"
        )
        (folder / "unit.acel").replace(folder / "unit.cel")
    technology.run(folder, "unit.pin", "graywolf", "-n", "unit")
    technology.run(folder, "unit.def", "place2def.tcl", "unit", "FILL", f"layers={LAYERS}")
    technology.run(folder, "unit_filled.def", "addspacers.tcl", *STRIPES, "unit", LEF, "FILL")
    (folder / "unit_filled.def").replace(folder / "unit.def")
    technology.run(folder, "unit_mod.def", "arrangepins.tcl", "unit")
    (folder / "unit_mod.def").replace(folder / "unit.def")


def routed(technology: Technology, folder: Path) -> tuple[str, str]:
    """Route a placed unit. Return the text of the DEF file, and qrouter's trees of resistances and capacitances."""
    moved = folder / "unit.obsx"  # file of routing obstructions that the insertion of power stripes writes
    obstructions = (moved if moved.exists() else folder / "unit.obs").read_text(encoding="utf-8")
    (folder / "unit.cfg").write_text(_ROUTING.format(obstructions=obstructions), encoding="utf-8")
    technology.run(folder, "unit_route.rc", "qrouter", "-nog", "-s", "unit.cfg")
    layout, trees = ((folder / f"unit_route.{kind}").read_text(encoding="utf-8") for kind in ("def", "rc"))
    return layout, trees


def wire_lengths(layout: str) -> tuple[dict[str, dict[str, float]], int]:
    """Return the wire length of each net in each layer in microns, and the number of vias, from a DEF file."""
    scale = float(layout.partition("UNITS DISTANCE MICRONS")[2].split()[0])
    result: dict[str, dict[str, float]] = {}
    vias = 0
    for block in layout.partition("\nNETS ")[2].partition("END NETS")[0].split("\n- ")[1:]:
        lengths = result[block.split()[0]] = defaultdict(float)
        for segment in block.partition("+ ROUTED")[2].split("NEW"):
            vias += len(_VIA.findall(segment))
            points: list[list[float]] = []
            for words in _POINT.findall(segment):
                points.append([points[-1][axis] if word == "*" else float(word) for axis, word in enumerate(words)])
            for (x0, y0), (x1, y1) in pairwise(points):
                lengths[segment.split()[0]] += (abs(x1 - x0) + abs(y1 - y0)) / scale
    return result, vias


def terminal(word: str) -> str:
    """Return the SPEF name of a terminal, which qrouter calls ``CELL/PIN`` or, for a port, ``PIN/PORT``."""
    cell, _, pin = word.partition("/")
    return pin if cell == "PIN" else f"{cell}:{pin}"


def connection(name: str, direction: str) -> str:
    """Return the SPEF line for a terminal of a net: a cell pin with `direction`, or a port with opposite direction."""
    return f"*I {name} {direction}" if ":" in name else f"*P {name} {'IO'[direction == 'I']}"


def spef_of(tree: str, terminals: set[str], resistance: float, capacitance: float) -> tuple[str, bool]:
    """Return a net in SPEF, scaled to the given resistance and capacitance, and whether wires reach all terminals.

    `tree` is a line that qrouter writes: the net, the number of drivers, the driver, the number of sinks, and a tree of
    wires. A subtree in parentheses starts with its resistance and its capacitance. A sink that qrouter reaches but
    cannot name is called ``ERROR``.
    """
    net, _, driver, _, *words = _WORD.findall(tree)
    values = [float(word) for word in words if _NUMBER.fullmatch(word)]
    factors = resistance / (sum(values[::2]) or 1), capacitance / (sum(values[1::2]) or 1)
    node, rest = terminal(driver), iter(values)
    above: list[str] = []
    missing = sorted(terminals - {terminal(word) for word in (driver, *words)})
    connections, resistors, capacitors = ["*CONN", connection(node, "O")], ["*RES"], ["*CAP"]
    for word in words:
        if word == "(":
            above.append(node)
            node = f"{net}:{len(capacitors)}"
            resistors.append(f"{len(resistors)} {above[-1]} {node} {next(rest) * factors[0]:.6g}")
            capacitors.append(f"{len(capacitors)} {node} {next(rest) * factors[1]:.6g}")
        elif word == ")":
            node = above.pop()
        elif not _NUMBER.fullmatch(word) and (word != "ERROR" or missing):
            sink = missing.pop() if word == "ERROR" else terminal(word)
            connections.append(connection(sink, "I"))
            resistors.append(f"{len(resistors)} {node} {sink} 0")
    lines = [f"*D_NET {net} {capacitance:.6g}", *connections, *capacitors, *resistors, "*END\n"]
    return "\n".join(lines), not missing


def delays(design: Design, technology: Technology, folder: Path) -> tuple[float, float]:
    """Return the delays of the longest path in ns: without wires, and with the wires in the file ``unit.spef``."""
    (folder / "unit.v").write_text(design.verilog(), encoding="utf-8")
    inputs = " ".join(net for net in design.inputs if net not in (design.clock, design.enable))
    script = _TIMING.format(clock=design.clock, enable=design.enable, inputs=inputs)
    (folder / "unit.tcl").write_text(script, encoding="utf-8")
    printed = technology.run(folder, "unit.tcl", "sta", "-no_splash", "-exit", "unit.tcl")
    found = [float(word) for word in _ARRIVAL.findall(printed)]
    if len(found) != 2 or "Warning" in printed:
        raise BackendError(f"OpenSTA printed a warning or no path: {[*re.findall('Warning.*', printed), 'no path'][0]}")
    return found[0], found[1]


def rows_of(name: str, config: CoreConfig, technology: Technology, bar: tqdm) -> list[Row]:
    """Place and route one dot-product unit, and return the figures of the unit as table rows."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = technology.keep / name.replace(" ", "_") if technology.keep else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bar.set_description(f"{name}: synthesis")
        design = Design.mapped(config, technology.library, folder)
        start = os.times()
        bar.set_description(f"{name}: placement")
        placed(design, technology, folder)
        bar.update()
        bar.set_description(f"{name}: routing")
        layout, trees = routed(technology, folder)
        bar.update()
        end = os.times()
        lengths, vias = wire_lengths(layout)
        terminals, text, unrouted = design.terminals(), [_SPEF], 0
        for tree in trees.splitlines():
            net = tree.split()[0]
            totals = [
                sum(length * technology.wires[layer][kind] for layer, length in lengths[net].items()) for kind in (0, 1)
            ]
            spef, complete = spef_of(tree, terminals.pop(net), *totals)
            text.append(spef)
            unrouted += not complete
        unrouted += sum(len(names) > 1 for names in terminals.values())
        (folder / "unit.spef").write_text("\n".join(text), encoding="utf-8")
        without, with_wires = delays(design, technology, folder)
    area = sum(technology.areas[kind] for kind, _ in design.cells.values())
    core = sum(technology.areas[kind] for kind in _COMPONENT.findall(layout))
    length = sum(sum(layers.values()) for layers in lengths.values())
    seconds = sum(end[2:4]) - sum(start[2:4])
    figures = [
        ("cells", "", len(design.cells)),
        ("area of the cells", "k um2", area / 1000),
        ("area of the core", "k um2", core / 1000),
        ("utilisation", "%", 100 * area / core),
        ("wire length", "mm", length / 1000),
        ("mean wire length of a net", "um", length / len(lengths)),
        ("vias", "", vias),
        ("nets that are not fully routed", "", unrouted),
        ("delay without wires", "ns", without),
        ("delay with wires", "ns", with_wires),
        ("delay that wires add", "%", 100 * (with_wires / without - 1)),
        ("processor time of placement and routing", "s", seconds),
    ]
    return [Row(f"{name}, {what}", unit_of_figure, float(value)) for what, unit_of_figure, value in figures]


def main() -> None:
    """Place and route dot-product units with and without sparsity, and print the measured figures."""
    parser = options(__doc__.splitlines()[0] if __doc__ else None)
    folders = {"technology": "/usr/share/qflow/tech/osu018", "scripts": "/usr/lib/qflow/scripts"}
    for option, default in folders.items():
        text = f"folder of qflow (default {default})"
        parser.add_argument(f"--{option}", type=Path, default=Path(default), metavar="FOLDER", help=text)
    parser.add_argument("--units", nargs="+", choices=UNITS, metavar="UNIT", help=f"default units: {' '.join(PLACED)}")
    density = "share of the rows that cells occupy (default 0.85)"
    parser.add_argument("--density", type=float, default=0.85, metavar="SHARE", help=density)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="new folder that keeps all files of the run")
    chosen = parser.parse_args()
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    files = [chosen.technology / name for name in (LIBERTY, LEF, PARAMETERS)] + [chosen.scripts / "blif2cel.tcl"]
    missing += [str(path) for path in files if not path.is_file()]
    if missing:
        parser.error(f"this benchmark needs qflow, graywolf, qrouter and OpenSTA; there is no {missing[0]}")
    if not 0.1 <= chosen.density <= 1:
        parser.error("--density must be from 0.1 to 1")
    if chosen.keep and chosen.keep.exists():
        parser.error(f"{chosen.keep} exists already")
    technology = Technology(chosen.technology, chosen.scripts, chosen.density, chosen.keep)
    names = chosen.units or (SMALL if chosen.small else PLACED)
    rows = []
    try:
        with tqdm(total=4 * len(names), unit="step", disable=None, leave=False) as bar:
            for name in names:
                for words in ("dense", "sparse"):
                    config = replace(UNITS[name], sparse=words == "sparse")
                    rows += rows_of(f"{name} {words}", config, technology, bar)
    except Error as error:
        sys.exit(str(error))
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
