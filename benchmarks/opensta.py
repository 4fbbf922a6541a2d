"""Power of a synthesised dot-product unit: sptc compared with OpenSTA, for the same cells and net activities.

``python benchmarks/opensta.py --liberty osu018_stdcells.lib`` needs ``sta`` (Debian's ``opensta`` of 2019). For each
toggle, OpenSTA adds the internal energies of a rise and of a fall, although a toggle is either a rise or a fall. For a
gate with several inputs, OpenSTA adds half of this sum for each input, so that a toggle takes more energy if the gate
has more inputs. OpenSTA weights an energy with a condition by the probability of the condition, for independent pins.
OpenSTA counts energies of ground pins only if the conditions of the pin do not cover all states. ``sptc energy`` takes
the mean of the internal energies over the inputs and over the conditions, and omits ground pins. This script therefore
applies OpenSTA's formula to the loads, transition times and tables of ``sptc energy``, and compares the resulting power
with OpenSTA's.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Row, options, show
from sptc.errors import Error
from sptc.rtl.config import CoreConfig
from sptc.synth.energy.costs import net_loads, transition_times
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.energy.mapping import mapped_row
from sptc.synth.energy.netlist import Bit, MappedNetlist
from sptc.synth.liberty import Library

CONFIG = CoreConfig(name="s8", formats=("s8",), step_bytes=4, cuts=("multiply",))
#: Toggles per cycle of every net except the clock, and clock frequency in Hz.
ACTIVITY, FREQUENCY = 0.2, 1e8
_PICO, _MICRO = 1e-12, 1e6
_PIN = re.compile(r"[A-Za-z_]\w*")
_ROW = re.compile(r"^(Sequential|Combinational) +(\S+) +(\S+)", re.MULTILINE)
SCRIPT = f"""\
read_liberty library.lib
read_verilog row.v
link_design row
create_clock -name clk -period [expr {1 / FREQUENCY:g} / [sta::unit_scale time]] [get_ports clk]
set_input_delay 0 -clock clk [all_inputs]
set_power_activity -global -activity {ACTIVITY} -duty 0.5
report_power -digits 8
exit
"""


def verilog(netlist: MappedNetlist) -> str:
    """Return a mapped netlist as Verilog cell instances, with one name per net."""

    def word(bit: Bit) -> str:
        return f"1'b{bit if bit in ('0', '1') else 0}" if isinstance(bit, str) else names.get(bit, f"n{bit}")

    names: dict[Bit, str] = dict.fromkeys(netlist.inputs["clk"], "clk")
    inputs = {bit for name, bits in netlist.inputs.items() if name != "clk" for bit in bits}
    outputs = {bit for bits in netlist.outputs.values() for bit in bits if not isinstance(bit, str)} - inputs
    ports = [*(f"n{bit}" for bit in sorted(inputs, key=str)), *(f"n{bit}" for bit in sorted(outputs, key=str))]
    lines = [f"module row (clk, {', '.join(ports)});", "input clk;"]
    lines += [f"input n{bit};" for bit in sorted(inputs, key=str)]
    lines += [f"output n{bit};" for bit in sorted(outputs, key=str)]
    for number, (kind, pins) in enumerate(netlist.cells.values()):
        lines.append(f"{kind} c{number} ({', '.join(f'.{pin}({word(bit)})' for pin, bit in pins.items())});")
    return "\n".join([*lines, "endmodule\n"])


def by_its_formula(netlist: MappedNetlist, cells: CellLibrary) -> dict[str, list[float]]:
    """Return internal and switching power in uW of registers and of gates, by OpenSTA's formula with sptc's loads."""
    loads = net_loads(netlist, cells)
    slews = transition_times(netlist, cells, loads)
    clock = {*netlist.inputs["clk"]}
    found = {"Sequential": [0.0, 0.0], "Combinational": [0.0, 0.0]}
    for kind, pins in netlist.cells.values():
        cell = cells.electrical[kind]
        power = found["Sequential" if cell.clock else "Combinational"]
        for pin, bit in pins.items():
            load = loads.get(bit, 0.0)
            rate = FREQUENCY * _PICO * _MICRO * (2.0 if bit in clock else ACTIVITY)
            arcs = cell.pins[pin].energies
            related = {arc.related for arc in arcs}
            for arc in arcs:
                states = 2 ** len(names := {*_PIN.findall(arc.condition)})
                same = [other for other in arcs if other.condition and other.ground == arc.ground]
                if arc.ground and (not names or len(same) == states):
                    continue
                duty = 1 / states if names else 0.5 if len(related) > 1 or pin == cell.data else 1.0
                times = slews.get(pins.get(arc.related or pin, "0"), {})
                energies = (table.at(load, times.get(edge, 0.0)) for edge, table in arc.tables.items())
                power[0] += rate * duty * sum(energies)
            if (kind, pin) in cells.functions:
                power[1] += rate * cells.voltage**2 / 2 * load
    return found


def reported(netlist: MappedNetlist, library: Library, program: str) -> dict[str, list[float]]:
    """Return the power of registers and of gates in uW that OpenSTA reports."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in (("library.lib", library.text), ("row.v", verilog(netlist)), ("power.tcl", SCRIPT)):
            (Path(folder) / name).write_text(data, encoding="utf-8")
        done = subprocess.run(
            [program, "-no_splash", "-exit", "power.tcl"], cwd=folder, capture_output=True, text=True, check=False
        )
    power = {name: [_MICRO * float(word) for word in words] for name, *words in _ROW.findall(done.stdout)}
    if not power:
        raise Error(f"{program} reported no power: {(done.stdout + done.stderr).strip().splitlines()[:1]}")
    return power


def main() -> None:
    """Compute the power of the hardware module ``row`` with sptc and with OpenSTA, and print the figures."""
    parser = options(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--liberty", type=Path, nargs="+", required=True, metavar="FILE", help="standard-cell library with power tables"
    )
    parser.add_argument("--opensta", default="sta", metavar="PROGRAM", help="path of OpenSTA (default sta)")
    chosen = parser.parse_args()
    if not shutil.which(chosen.opensta):
        parser.error(f"this benchmark needs OpenSTA, but there is no program {chosen.opensta}")
    try:
        library = Library.read(*chosen.liberty)
        netlist = mapped_row(CONFIG, library, by_module=False)
        theirs = reported(netlist, library, chosen.opensta)
        ours = by_its_formula(netlist, CellLibrary.of(library))
    except Error as error:
        sys.exit(str(error))
    rows = [Row("cells", "", float(len(netlist.cells)))]
    for part, figures in theirs.items():
        for what, of_sta, own in zip(("internal", "switching"), figures, ours[part], strict=True):
            rows.append(Row(f"{part}, {what}, OpenSTA", "uW", of_sta))
            rows.append(Row(f"{part}, {what}, sptc with OpenSTA's formula", "uW", own))
    totals = [sum(map(sum, of.values())) for of in (theirs, ours)]
    rows.append(Row("ratio of total power, sptc to OpenSTA", "", totals[1] / totals[0], "within 5 %"))
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
