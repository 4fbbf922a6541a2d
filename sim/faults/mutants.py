"""Single faults of a design, by Yosys' ``mutate``, all in one netlist behind a port that selects one of them."""

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

#: Port that selects the active fault; zero selects none.
SELECT = "active_fault"
_SELECT_BITS = 16
#: More faults than any design has.
_EVERY = 10**8
#: Everything in one module, tables, many-way multiplexers and memories as logic, without what no output needs: a fault
#: there would change nothing.
_FLATTEN = (
    "read_rtlil design.il\nhierarchy -top {top}\nproc -norom\npmuxtree\n{keep}flatten\nmemory_collect\n"
    "memory_map\nopt -full\nopt_clean\nwrite_rtlil flat.il\n"
)
_KEEP = "setattr -mod -set keep_hierarchy 1 {}\n"
#: In place of submodules: the cells that no other component has.
REST = ()
#: In place of a component's name: no fault is drawn there.
UNTOUCHED = ""
#: Registers change at one edge of one clock: a simulation without delays cannot tell what an inverted clock does.
_CLOCK = " -port CLK "
#: A component too small for any fault by its area gets one for so many of an equal share.
_LEAST = 4
#: Each component in a module of its own, in gates, whose transistors are estimated.
_GATES = "submod\ndffunmap\ntechmap\nopt_expr\nopt_clean\ntee -q -o areas.json stat -tech cmos -json\n"
#: The design as its faults name it, in a file: Yosys numbers cells anew each time that it flattens.
FLAT = "flat.il"
_READ = f"read_rtlil {FLAT}\n"


@dataclass(frozen=True)
class Fault:
    """One single fault.

    Attributes
    ----------
    number : int
        Value of the selecting port that activates it.
    component : str
        What it is in.
    command : str
        The Yosys command that makes it: what is done (``inv``, ``const0``, ``const1``, or ``cnot0`` and ``cnot1``,
        inverted by another bit), to which bit of which port of which cell.
    """

    number: int
    component: str
    command: str

    @property
    def cell(self) -> str:
        """Name of the cell that it is in."""
        return self.command.split()[6]

    def __str__(self) -> str:
        return self.command.removeprefix("mutate -mode ")


@dataclass(frozen=True)
class Netlist:
    """A design with faults.

    Attributes
    ----------
    verilog : str
        The design with all faults and the selecting port.
    faults : tuple of Fault
        What can be selected.
    areas : dict of str to int
        By component: transistors, estimated of its gates before any optimisation.
    """

    verilog: str
    faults: tuple[Fault, ...]
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
    """Put single faults into a design, into each component as many as its area wants.

    Within a component every cell is as likely as any other, whatever its width, so that narrow control is not lost
    beside wide data.

    Parameters
    ----------
    rtlil : str
        The design.
    top : str
        Its top module.
    components : mapping of str to sequence of str
        By component: the submodules that it is, as ``row.unit.align``, or :data:`REST`; under the name
        :data:`UNTOUCHED`, those without faults.
    count : int
        How many faults to draw; in each component at least a quarter of an equal share.
    seed : int
        Of the draw.
    folder : Path
        Where Yosys may write; the design without faults stays there for :func:`~.equivalence.settled`.
    whole : str
        Module that stays one: faults are drawn around its instances only.

    Returns
    -------
    Netlist
        Fewer faults than asked for where a component has fewer candidates.

    Raises
    ------
    BackendError
        A component has no cells.
    """
    (folder / "design.il").write_text(rtlil, encoding="utf-8")
    cells = _selections(components, top)
    # Asked for fewer than there are, Yosys 0.70 may search without end: so take all, and draw here.
    lists = [f"select {of_one}\nmutate -list {_EVERY} -o {name}.txt\nselect -clear\n" for name, of_one in cells.items()]
    keep = _KEEP.format(whole) if whole else ""
    # A submodule that was renamed must not be taken for one without cells; a component without any is named below.
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
    """Draw from the files of candidates, which go."""
    drawn = []
    for name, share in zip(areas, _shares([*areas.values()], count), strict=True):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        with (folder / f"{name}.txt").open(encoding="utf-8") as candidates:
            drawn += [(name, command) for command in _draw(candidates, share, rng)]
        (folder / f"{name}.txt").unlink()
    assert len(drawn) < 1 << _SELECT_BITS
    return tuple(Fault(number, *of_component) for number, of_component in enumerate(drawn, 1))


def _selections(components: Mapping[str, Sequence[str]], top: str) -> dict[str, str]:
    """Return the cells of each component as Yosys selects them; what two could claim is the first one's."""
    claimed = _cells_of("assumption", top)
    found = {}
    for name, paths in sorted(components.items(), key=lambda item: item[1] == REST):
        own = f"{top}/c:*"
        if paths != REST:
            own = " ".join([_cells_of(paths[0], top), *(f"{_cells_of(path, top)} %u" for path in paths[1:])])
        found[name] = f"{own} {claimed} %d"
        claimed = f"{claimed} {own} %u"
    return {name: found[name] for name in components if name != UNTOUCHED}


def _cells_of(path: str, top: str) -> str:
    """Return the cells of a submodule: by their names and, since those of registers are lost, by what they drive."""
    # Amaranth numbers a module whose name a port has taken.
    flat = rf"{top}/$flatten\{path}".replace(".", ".\\")
    return f"{flat}.* {flat}$* %u {top}/{path}.* %u {top}/w:{path}.* %ci1:+[Q] %u {top}/c:* %i"


def _areas(cells: Mapping[str, str], folder: Path, whole: str) -> dict[str, int]:
    """Return the estimated transistors of each component."""
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
    """Return shares of a count in proportion to areas, each at least a quarter of what equal shares would be."""
    least = max(1, count // (_LEAST * len(areas)))
    return [max(least, ceil(count * area / sum(areas))) for area in areas]


def faulty_verilog(fault: Fault, folder: Path) -> str:
    """Return the design with one fault for good, without the selecting port; `folder` is where the fault was drawn."""
    run_yosys(folder, f"{_READ}chformal -remove\n{fault.command}\nwrite_verilog -noattr single.v\n")
    return (folder / "single.v").read_text(encoding="utf-8")


def _draw(candidates: Iterable[str], count: int, rng: np.random.Generator) -> list[str]:
    """Return some of the faults that Yosys names, every cell as likely as any other, whatever its width."""
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
