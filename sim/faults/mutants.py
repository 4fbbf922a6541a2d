"""Single faults of a design, by Yosys' ``mutate``, all in one netlist behind a port that selects one of them."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...infra.yosys import run_yosys

__all__ = ["FLAT", "READ", "SELECT", "Fault", "Netlist", "faulty_verilog", "mutated"]

#: Port that selects the active fault; zero selects none.
SELECT = "active_fault"
_SELECT_BITS = 16
#: More faults than any design has.
_EVERY = 10**8
#: Everything in one module, without what no output needs: a fault there would change nothing.
_FLATTEN = (
    "read_rtlil design.il\nhierarchy -top {top}\nproc\n{keep}flatten\nopt -full\nopt_clean\nwrite_rtlil flat.il\n"
)
_KEEP = "setattr -mod -set keep_hierarchy 1 {}\n"
#: The design as its faults name it, in a file: Yosys numbers cells anew each time that it flattens.
FLAT = "flat.il"
READ = f"read_rtlil {FLAT}\n"


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
    """

    verilog: str
    faults: tuple[Fault, ...]


def mutated(
    rtlil: str, top: str, selections: Mapping[str, tuple[str, int]], seed: int, folder: Path, *, whole: str = ""
) -> Netlist:
    """Put single faults into a design.

    Parameters
    ----------
    rtlil : str
        The design.
    top : str
        Its top module.
    selections : mapping of str to (str, int)
        By component: its cells, as a Yosys selection of the flattened design, and how many faults to draw there.
    seed : int
        Of the draw.
    folder : Path
        Where Yosys may write; the design without faults stays there for :func:`~.equivalence.proved_equivalent`.
    whole : str
        Module that stays one: faults are drawn around its instances only.

    Returns
    -------
    Netlist
        Fewer faults than asked for where a component has fewer candidates.
    """
    (folder / "design.il").write_text(rtlil, encoding="utf-8")
    # Asked for fewer than there are, Yosys 0.70 may search without end: so take all, and draw here.
    lists = [
        f"select {cells}\nmutate -list {_EVERY} -o {name}.txt\nselect -clear\n"
        for name, (cells, _) in selections.items()
    ]
    keep = _KEEP.format(whole) if whole else ""
    run_yosys(folder, _FLATTEN.format(top=top, keep=keep) + "".join(lists))
    drawn = []
    for name, (_, count) in selections.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        with (folder / f"{name}.txt").open(encoding="utf-8") as candidates:
            drawn += [(name, command) for command in _draw(candidates, count, rng)]
    faults = tuple(Fault(number, *of_component) for number, of_component in enumerate(drawn, 1))
    assert len(faults) < 1 << _SELECT_BITS
    apply = "".join(f"{fault.command} -ctrl {SELECT} {_SELECT_BITS} {fault.number}\n" for fault in faults)
    run_yosys(folder, f"{READ}chformal -remove\n{apply}write_verilog -noattr faulty.v\n")
    return Netlist((folder / "faulty.v").read_text(encoding="utf-8"), faults)


def faulty_verilog(fault: Fault, folder: Path) -> str:
    """Return the design with one fault for good, without the selecting port; `folder` is where the fault was drawn."""
    run_yosys(folder, f"{READ}chformal -remove\n{fault.command}\nwrite_verilog -noattr single.v\n")
    return (folder / "single.v").read_text(encoding="utf-8")


def _draw(candidates: Iterable[str], count: int, rng: np.random.Generator) -> list[str]:
    """Return some of the faults that Yosys names, every cell as likely as any other, whatever its width."""
    by_cell: dict[str, list[str]] = {}
    for line in candidates:
        by_cell.setdefault(line.split()[6], []).append(line.strip())
    remaining = [rng.permutation(np.array(commands)).tolist() for commands in by_cell.values()]
    drawn: list[str] = []
    while remaining and len(drawn) < count:
        rng.shuffle(remaining)
        drawn += [commands.pop() for commands in remaining[: count - len(drawn)]]
        remaining = [commands for commands in remaining if commands]
    return drawn
