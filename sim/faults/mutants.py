"""Single faults of a design, drawn with Yosys' ``mutate``, in one netlist with a port that selects one of them."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from ...errors import BackendError
from ...infra.yosys import run_yosys

__all__ = ["FLAT", "REST", "SELECT", "UNTOUCHED", "Fault", "Netlist", "faulty_verilog", "mutated"]

#: Name of the port that selects the active fault; zero selects none.
SELECT = "active_fault"
_SELECT_BITS = 16
#: Number of faults requested from Yosys; it exceeds the number of possible faults of any design.
_EVERY = 10**8
#: Yosys commands that flatten the design, convert tables, wide multiplexers and memories to logic, and remove logic
#: that no output needs. A fault in removed logic would change nothing.
_FLATTEN = (
    "read_rtlil design.il\nhierarchy -top {top}\nproc -norom\npmuxtree\n{keep}flatten\nmemory_collect\n"
    "memory_map\nopt -full\nopt_clean\nwrite_rtlil flat.il\n"
)
_KEEP = "setattr -mod -set keep_hierarchy 1 {}\n"
#: Placeholder in place of a component's submodules: all cells that belong to no other component.
REST = ()
#: Placeholder in place of a component's name: submodules in which no faults are drawn.
UNTOUCHED = ""
#: Faults at clock ports are not drawn: a simulation without delays cannot detect an inverted clock.
_CLOCK = " -port CLK "
#: A component gets at least 1 / _LEAST of an equal share of the faults, even if its area is too small for that.
_LEAST = 4
#: Yosys commands that put each component into its own module, map it to gates and estimate its transistors.
_GATES = "submod\ndffunmap\ntechmap\nopt_expr\nopt_clean\ntee -q -o areas.json stat -tech cmos -json\n"
#: File name of the flat design. It is kept, since Yosys renumbers cells whenever it flattens, and faults refer to cell
#: names.
FLAT = "flat.il"
_READ = f"read_rtlil {FLAT}\n"


@dataclass(frozen=True)
class Fault:
    """A single fault, as Yosys injects it."""

    number: int  #: Value of the fault-selecting port that activates the fault
    component: str  #: Name of the component that contains the fault
    #: Yosys command that injects the fault at one port bit of a cell. Its kinds are ``inv``, ``const0``, ``const1``,
    #: and ``cnot0`` and ``cnot1``, which invert the bit depending on another bit.
    command: str

    @property
    def cell(self) -> str:
        """Name of the faulty cell in the netlist."""
        return self.command.split()[6]

    def __str__(self) -> str:
        return self.command.removeprefix("mutate -mode ")


@dataclass(frozen=True)
class Netlist:
    """A design that contains selectable faults."""

    verilog: str  #: Verilog of the design with all faults and the port that selects one of them
    faults: tuple[Fault, ...]  #: Faults that the selecting port can activate
    #: Estimated number of transistors of each component, from its gates before optimisation.
    areas: dict[str, int]


def mutated(
    rtlil: str,
    top: str,
    components: Mapping[str, Sequence[str]],
    count: int,
    seed: int,
    folder: Path,
    *,
    whole: str = "",
) -> Netlist:
    """Insert `count` single faults into a design, distributed over its components in proportion to area.

    Each component gets at least a quarter of an equal share, but no more faults than it has; one without cells raises a
    `BackendError`. Within a component all cells are equally likely, whatever their width, so that narrow control is not
    lost beside wide data. The components are lists of submodules, such as ``row.unit.align``, or :data:`REST`; the
    entry :data:`UNTOUCHED` has the submodules without faults. Yosys writes in `folder`; the design without faults stays
    there for :func:`~.equivalence.settled`. `whole` is a module that is not flattened; faults are drawn outside its
    instances only.
    """
    (folder / "design.il").write_text(rtlil, encoding="utf-8")
    cells = _selections(components, top)
    # Yosys 0.70 may not terminate if fewer faults are requested than exist, so list all faults and draw from the list.
    lists = [f"select {of_one}\nmutate -list {_EVERY} -o {name}.txt\nselect -clear\n" for name, of_one in cells.items()]
    keep = _KEEP.format(whole) if whole else ""
    # Detect renamed submodules, whose paths select no cells. A component without any cell is reported below.
    several = (paths for name, paths in components.items() if paths != REST and (name == UNTOUCHED or len(paths) > 1))
    paths = [path for paths in several for path in paths]
    exist = [f"select -assert-any {_cells_of(path, top)}\n" for path in paths]
    run_yosys(folder, _FLATTEN.format(top=top, keep=keep) + "".join([*exist, *lists]))
    areas = _areas(cells, folder, whole)
    faults = _drawn(areas, count, seed, folder)
    apply = "".join(f"{fault.command} -ctrl {SELECT} {_SELECT_BITS} {fault.number}\n" for fault in faults)
    run_yosys(folder, f"{_READ}chformal -remove\n{apply}write_verilog -noattr faulty.v\n")
    return Netlist((folder / "faulty.v").read_text(encoding="utf-8"), faults, areas)


def _drawn(areas: Mapping[str, int], count: int, seed: int, folder: Path) -> tuple[Fault, ...]:
    """Draw faults at random from the files of candidates that Yosys wrote, and delete these files."""
    drawn = []
    for name, share in zip(areas, _shares([*areas.values()], count), strict=True):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        with (folder / f"{name}.txt").open(encoding="utf-8") as candidates:
            drawn += [(name, command) for command in _draw(candidates, share, rng)]
        (folder / f"{name}.txt").unlink()
    assert len(drawn) < 1 << _SELECT_BITS
    return tuple(Fault(number, *of_component) for number, of_component in enumerate(drawn, 1))


def _selections(components: Mapping[str, Sequence[str]], top: str) -> dict[str, str]:
    """Return the Yosys selection of each component's cells; a cell in two components belongs to the first."""
    claimed = _cells_of("assumption", top)
    selections = {}
    for name, paths in sorted(components.items(), key=lambda item: item[1] == REST):
        own = f"{top}/c:*"
        if paths != REST:
            own = " ".join([_cells_of(paths[0], top), *(f"{_cells_of(path, top)} %u" for path in paths[1:])])
        selections[name] = f"{own} {claimed} %d"
        claimed = f"{claimed} {own} %u"
    return {name: selections[name] for name in components if name != UNTOUCHED}


def _cells_of(path: str, top: str) -> str:
    """Return the Yosys selection of a submodule: cells by name, and registers by the wires that they drive."""
    # Amaranth appends a number to the name of a module if a port has the same name.
    flat = rf"{top}/$flatten\{path}".replace(".", ".\\")
    return f"{flat}.* {flat}$* %u {top}/{path}.* %u {top}/w:{path}.* %ci1:+[Q] %u {top}/c:* %i"


def _areas(cells: Mapping[str, str], folder: Path, whole: str) -> dict[str, int]:
    """Return the estimated number of transistors of each component."""
    marks = "".join(f'select {of_one}\nsetattr -set submod "{name}"\nselect -clear\n' for name, of_one in cells.items())
    run_yosys(folder, _READ + "chformal -remove\n" + (f"blackbox {whole}\n" if whole else "") + marks + _GATES)
    modules = json.loads((folder / "areas.json").read_text(encoding="utf-8"))["modules"]
    areas = {}
    for name in cells:
        of_one = next((figures for module, figures in modules.items() if module.endswith(f"_{name}")), None)
        if of_one is None:
            raise BackendError(f"no cell of the design is in its component {name}")
        areas[name] = int(str(of_one["estimated_num_transistors"]).removesuffix("+"))
    return areas


def _shares(areas: Sequence[int], count: int) -> list[int]:
    """Divide `count` in proportion to areas; each share is at least a quarter of an equal share."""
    least = max(1, count // (_LEAST * len(areas)))
    return [max(least, ceil(count * area / sum(areas))) for area in areas]


def faulty_verilog(fault: Fault, folder: Path) -> str:
    """Return the Verilog of a design with one permanent fault; `folder` contains the design without faults."""
    run_yosys(folder, f"{_READ}chformal -remove\n{fault.command}\nwrite_verilog -noattr single.v\n")
    return (folder / "single.v").read_text(encoding="utf-8")


def _draw(candidates: Iterable[str], count: int, rng: np.random.Generator) -> list[str]:
    """Draw `count` of the fault candidates that Yosys lists; all cells are equally likely, whatever their width."""
    by_cell: dict[str, list[str]] = {}
    for line in candidates:
        if _CLOCK not in line:
            by_cell.setdefault(line.split()[6], []).append(line.strip())
    remaining = [rng.permutation(np.array(commands)).tolist() for commands in by_cell.values()]
    drawn: list[str] = []
    while remaining and len(drawn) < count:
        rng.shuffle(remaining)
        drawn += [commands.pop() for commands in remaining[: count - len(drawn)]]
        remaining = [commands for commands in remaining if commands]
    return drawn
