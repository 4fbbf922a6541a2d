"""Single faults in a design, drawn with Yosys' ``mutate``, in one netlist with a port that activates one fault."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from ctypes import CDLL
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from ...errors import BackendError
from ...infra.loader import load_library
from ...infra.verilator import compile_library
from ...infra.yosys import run_yosys
from ..engine.driver import driver

__all__ = ["FLAT", "REST", "SELECT", "TOP", "UNTOUCHED", "Fault", "Netlist", "faulty_verilog", "mutated"]

#: Module name of the top module in every fault regression.
TOP = "bench"
#: Name of the input port that selects the active fault; at zero, no fault is active.
SELECT = "active_fault"
_SELECT_BITS = 16
#: Number of faults requested from Yosys: more than any design can have, so that Yosys lists all possible faults.
_EVERY = 10**8
#: Yosys commands that flatten the design, convert tables, wide multiplexers and memories to logic, and remove logic
#: without effect on outputs. A fault in such logic would change nothing.
_FLATTEN = (
    "read_rtlil design.il\nhierarchy -top {top}\nproc -norom\npmuxtree\n{keep}flatten\nmemory_collect\n"
    "memory_map\nopt -full\nopt_clean\nwrite_rtlil flat.il\n"
)
_KEEP = "setattr -mod -set keep_hierarchy 1 {}\n"
#: Marker in place of a component's list of submodules: the component gets all cells that no other component has.
REST = ()
#: Key of the argument `components` of :func:`mutated` for the submodules in which no faults are injected.
UNTOUCHED = ""
#: Text in the Yosys command of a fault at a clock port; such faults are excluded, since a simulation without delays
#: cannot detect an inverted clock.
_CLOCK = " -port CLK "
#: Divisor of the minimum share of faults: each component gets at least 1/4 of an equal share, whatever its area.
_LEAST = 4
#: Yosys commands that put each component into a module of its own, map it to gates and estimate its transistor count.
_GATES = "submod\ndffunmap\ntechmap\nopt_expr\nopt_clean\ntee -q -o areas.json stat -tech cmos -json\n"
#: File name of the flat design, which is kept since faults refer to its cell names: Yosys would number the cells
#: differently when it flattens again.
FLAT = "flat.il"
_READ = f"read_rtlil {FLAT}\n"


@dataclass(frozen=True)
class Fault:
    """Single fault (one changed port bit of a cell) that Yosys injects."""

    number: int  #: Value of the port `active_fault` that activates this fault
    component: str  #: Name of the component that contains the fault
    #: Yosys command that injects the fault at one port bit of a cell. Fault kinds are ``inv``, ``const0`` and
    #: ``const1``, and also ``cnot0`` and ``cnot1``, which invert the bit depending on another bit.
    command: str

    def __str__(self) -> str:
        return self.command.removeprefix("mutate -mode ")


@dataclass(frozen=True)
class Netlist:
    """Netlist of a design with injected faults; an input port activates one fault at a time."""

    verilog: str  #: Verilog of the design with all faults and the port that selects the active fault
    faults: tuple[Fault, ...]  #: Injected faults, in the order of their numbers
    #: Estimated number of transistors of each component, before logic optimisation.
    areas: dict[str, int]

    def compiled(self, folder: Path, source: str, constants: Mapping[str, int], ports: Sequence[str] = ()) -> CDLL:
        """Build a shared library in a folder from the design, whose top module is :data:`TOP`; return the library.

        The C++ driver is that of :func:`~sptc.sim.engine.driver.driver` for the file `source`, `constants` and `ports`.
        """
        library = folder / "model.so"
        # Both drivers, ``faults.cpp`` and `source`, have a header ``configuration.h``. The header of `source` is used.
        sources = {**driver("faults.cpp", {}), **driver(source, constants, top=TOP, ports=ports)}
        compile_library(self.verilog, TOP, sources, library, optimisation=("-O1",))
        return load_library(library)


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
    """Insert `count` single faults into a design; each component gets faults in proportion to its area.

    Each component gets at least a quarter of an equal share, but no more faults than Yosys lists for it; a component
    without cells raises a `BackendError`. Within a component all cells are equally likely, whatever their width, so
    that narrow control logic gets faults as well as wide data paths. The components are lists of submodules, such as
    ``row.unit.align``, or :data:`REST`; the entry :data:`UNTOUCHED` has the submodules without faults. Yosys writes
    files to `folder`; the design without faults stays there for :func:`~.equivalence.settled`. `whole` is a module that
    is not flattened and gets no faults.
    """
    (folder / "design.il").write_text(rtlil, encoding="utf-8")
    cells = _selections(components, top)
    # List all faults and draw from the list: Yosys 0.70 may not terminate if fewer faults are requested than exist.
    lists = [f"select {of_one}\nmutate -list {_EVERY} -o {name}.txt\nselect -clear\n" for name, of_one in cells.items()]
    keep = _KEEP.format(whole) if whole else ""
    # Yosys stops if a path selects no cells, for example the path of a renamed submodule. :func:`_areas` reports a
    # component without any cells.
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
    """Draw faults at random from the candidate files that Yosys wrote, and delete the files."""
    drawn = []
    for name, share in zip(areas, _shares([*areas.values()], count), strict=True):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        with (folder / f"{name}.txt").open(encoding="utf-8") as candidates:
            drawn += [(name, command) for command in _draw(candidates, share, rng)]
        (folder / f"{name}.txt").unlink()
    assert len(drawn) < 1 << _SELECT_BITS
    return tuple(Fault(number, *of_component) for number, of_component in enumerate(drawn, 1))


def _selections(components: Mapping[str, Sequence[str]], top: str) -> dict[str, str]:
    """Return the Yosys selection of each component's cells; a cell that two components select belongs to the first."""
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
    """Return a Yosys expression that selects a submodule's cells by name, and its registers by the wires they drive."""
    # Amaranth appends ``$`` and a number to the name of a module if a port has the same name.
    flat = rf"{top}/$flatten\{path}".replace(".", ".\\")
    return f"{flat}.* {flat}$* %u {top}/{path}.* %u {top}/w:{path}.* %ci1:+[Q] %u {top}/c:* %i"


def _areas(cells: Mapping[str, str], folder: Path, whole: str) -> dict[str, int]:
    """Return the estimated number of transistors of each component of a design."""
    marks = "".join(f'select {of_one}\nsetattr -set submod "{name}"\nselect -clear\n' for name, of_one in cells.items())
    run_yosys(folder, _READ + "chformal -remove\n" + (f"blackbox {whole}\n" if whole else "") + marks + _GATES)
    modules = json.loads((folder / "areas.json").read_text(encoding="utf-8"))["modules"]
    areas = {}
    for name in cells:
        of_one = next((figures for module, figures in modules.items() if module.endswith(f"_{name}")), None)
        if of_one is None:
            raise BackendError(f"component {name} of the design has no cells")
        areas[name] = int(str(of_one["estimated_num_transistors"]).removesuffix("+"))
    return areas


def _shares(areas: Sequence[int], count: int) -> list[int]:
    """Divide `count` faults in proportion to areas; each share is at least a quarter of an equal share."""
    least = max(1, count // (_LEAST * len(areas)))
    return [max(least, ceil(count * area / sum(areas))) for area in areas]


def faulty_verilog(fault: Fault, folder: Path) -> str:
    """Return the Verilog of a design with one permanent fault; `folder` contains the design without faults."""
    run_yosys(folder, f"{_READ}chformal -remove\n{fault.command}\nwrite_verilog -noattr single.v\n")
    return (folder / "single.v").read_text(encoding="utf-8")


def _draw(candidates: Iterable[str], count: int, rng: np.random.Generator) -> list[str]:
    """Choose `count` random faults from the candidates that Yosys lists. All cells are equally likely."""
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
