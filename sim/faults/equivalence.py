"""Proofs that a fault changes nothing that anybody looks at, or that some input tells it, with Yosys and ABC.

Only what a fault can reach, its cone, stands twice, with the fault and without. All else is the same for both as long
as what leaves the cone is the same; so that is the claim:

    rest of the design --+--> cone without the fault --+--> rest of the design
                         |                             = ?
                         +--> cone with the fault -----+

The cone may end anywhere: at the faulty cell, some cells later, or where the design does. And the rest may begin
anywhere: what is farther from the cone may do what it likes. The shorter both are, the fewer registers a proof is
about; but a difference is one of the design only if both are whole.

Of a pipeline all is compared, without its registers and a control word at a time: of one that is fixed, all folds away
that other formats have, and with it most of what makes the proof of a multiplier hard.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...errors import BackendError
from ...infra.abc import run_abc
from ...infra.yosys import run_yosys
from ...rtl.emit import unit_of
from ..engine.pipelines import WITHOUT_REGISTERS, flat_module, is_balanced, write_wires
from .mutants import FLAT, Fault

__all__ = ["Pipeline", "Verdict", "settled"]

#: Input that turns the fault on, and the module of what depends on it.
_FAULTY, _CONE = "is_faulty", "cone"
#: Parts that the faults were drawn around, opened: some of what enters them may not matter.
_WHOLE = "setattr -mod -unset keep_hierarchy *\nflatten\nopt_clean\n"
#: Such parts become ports: what enters them is compared, what leaves them is the same.
_CLOSED = "select -set parts {top}/t:{part}\ncd {top}\nexpose -evert @parts\ncd ..\nopt_clean\n"
#: Without the bits of operands and registers that no result depends on, as the upper ones of a difference cut short.
#: Registers begin with zero. No wire is driven from within the cone and from without, since Yosys would tie both.
_SPLIT = (
    "read_rtlil ../{flat}\nchformal -lower\n{command} -ctrl {faulty} 1 1\nwreduce\nopt_clean\n{prepare}dffunmap\n"
    "zinit -all\nopt_clean\nsplitnets -driver -ports\ncd {top}\n"
    "select -set cone w:{faulty} %co{levels} t:* %i t:$assume %d\nsubmod -name {cone} @cone\ncd ..\n"
    "write_rtlil split.il\n"
)
_MITER = (
    "read_rtlil twice.il\nhierarchy -top {top}\nflatten\ncd {top}\ndelete -output o:*\ncd ..\nopt_clean -purge\n"
    "{cut}opt_expr\nopt_merge -share_all\nopt_clean -purge\nsetundef -undriven -anyseq\ntechmap\nopt_expr\nopt_merge\n"
    "opt_clean -purge\nzinit -all\naigmap\nopt_clean\nwrite_aiger -map miter.map miter.aig\n"
)
#: What is not near is driven by anything.
_CUT = "cd {top}\nselect -set near t:$assert %ci{levels}\ndelete t:* @near %d\ncd ..\nopt_clean -purge\n"
_PORT = re.compile(
    r"^  wire (?:width (\d+) )?(?:upto )?(?:offset \S+ )?(input|output|inout) \d+ (?:signed )?(\S+)$", re.M
)
#: How far the cone goes behind the fault's switch, wires and cells counted alike (six end with the faulty cell at the
#: earliest), and how far the rest before it. None is all there is.
_LEVELS = ((6, 16), (8, 24), (12, 30), (8, None), (20, 40), (20, None), (None, None))
#: Of the time for a search, what one gets that may fail for want of the rest.
_SHARE_OF_A_PART = 0.25


class Verdict(Enum):
    """What is known of a fault."""

    EQUIVALENT = "equivalent"
    TOLD_APART = "told apart"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Pipeline:
    """What is known of a pipeline.

    Attributes
    ----------
    enable : str
        Input that enables every register.
    control : str
        Input that tells the cases apart.
    cases : tuple of mapping of int to int
        Of each case the value of some bits of that input; together they are all that is ever driven.
    """

    enable: str
    control: str
    cases: tuple[Mapping[int, int], ...]


class _Search(NamedTuple):
    """What ABC is told, and whether a run that it finds is one of the design, not only of an abstraction."""

    commands: str
    concrete: bool


#: A run that tells the sides apart is short, but an instruction of a small array takes some ninety cycles.
_RUN = _Search("orpos; strash; bmc3 -F {frames} -T {seconds}", concrete=True)
#: Most of a design has no part in a proof: the gates that a bounded proof takes are enough, or nearly so.
_ABSTRACTION = _Search(
    "orpos; strash; &get; &gla -F 40 -T {seconds}; &gla_derive; &put; scleanup; pdr -T {seconds}", concrete=False
)
#: What ABC says of a claim that holds; the last if nothing of it is left to ask.
_PROVED = ("Property proved", "UNSATISFIABLE", "Sequential miter is trivially UNSAT")
#: A fault of what enables a register, which a wire in its place would hide.
_ENABLE = " -port EN "
_OF_A_CASE = "orpos; strash; &get; {fixed}&put; strash; iprove"
_WITHOUT_IT = _Search("orpos; strash; scorr -F 2 -C 10000; dc2; scorr; pdr -T {seconds}; iprove", concrete=True)


def settled(
    top: str, fault: Fault, folder: Path, timeout: float, pipeline: Pipeline | None = None, box: str = ""
) -> Verdict:
    """Say whether a fault can change any output, whatever is driven that the design's assumptions allow.

    A pipeline is asked case by case first. Else cones are tried from the shortest to the whole one, from cleared
    registers. Of an array's units it is enough that they are given the same; where they are not, they are opened, since
    some of it may not matter.

    Parameters
    ----------
    top : str
        Top module of the design, whose inputs keep its assumptions (``$assume`` cells).
    fault : Fault
        One of the design's.
    folder : Path
        Where the faults were drawn.
    timeout : float
        Seconds after which each search is given up.
    pipeline : Pipeline, optional
        The design, if it is one; used if its registers do add nothing but a latency.
    box : str
        A module of which nothing but ports is in the design: what enters it is compared, and anything may leave it.
    """
    text = (folder / FLAT).read_text(encoding="utf-8")
    part = box or unit_of(top)
    closed = [_CLOSED.format(top=top, part=part)] if f"module \\{part}\n" in text else []
    found = Verdict.UNDECIDED
    with TemporaryDirectory(dir=folder) as scratch:
        place = Path(scratch)
        if pipeline and _ENABLE not in fault.command and _is_pipeline(top, pipeline, place):
            found = _by_cases(top, fault, place, timeout, pipeline)
            if found is not Verdict.UNDECIDED:
                return found
        for prepare in closed if box else (*closed, _WHOLE):
            for behind, before in _LEVELS:
                found = _of_cone(top, fault, place, timeout, prepare, behind, before)
                if found is Verdict.EQUIVALENT:
                    return found
    return found


def _is_pipeline(top: str, pipeline: Pipeline, place: Path) -> bool:
    return is_balanced(flat_module(f"../{FLAT}", top, place), pipeline.enable)


def _by_cases(top: str, fault: Fault, place: Path, timeout: float, pipeline: Pipeline) -> Verdict:
    """Say whether any answer of a pipeline can differ, of each case by itself."""
    write_wires(place)
    try:
        if not _write_miter(top, fault, place, timeout, _WHOLE + WITHOUT_REGISTERS):
            return Verdict.EQUIVALENT
        numbers = _inputs(place, pipeline.control)
        for case in pipeline.cases:
            fixed = "".join(f"&cof -V {numbers[bit]} -C {value}; " for bit, value in case.items() if bit in numbers)
            printed = run_abc(place, "miter.aig", _OF_A_CASE.format(fixed=fixed), timeout)
            if "UNSATISFIABLE" not in printed:
                return Verdict.TOLD_APART if "SATISFIABLE" in printed else Verdict.UNDECIDED
    except (BackendError, TimeoutError):
        return Verdict.UNDECIDED
    return Verdict.EQUIVALENT


def _inputs(place: Path, port: str) -> dict[int, int]:
    """Return which inputs of the graph the bits of a port are, as far as anything depends on them."""
    lines = (line.split() for line in (place / "miter.map").read_text(encoding="utf-8").splitlines())
    return {int(bit): int(number) for kind, number, bit, *name in lines if [kind, *name] == ["input", port]}


def _of_cone(
    top: str, fault: Fault, place: Path, timeout: float, prepare: str, behind: int | None, before: int | None
) -> Verdict:
    """Say whether what leaves a cone can differ; a difference counts in the whole design only."""
    whole = behind is None and prepare == _WHOLE
    cut = "" if before is None else _CUT.format(levels=before, top=top)
    try:
        if not _write_miter(top, fault, place, timeout, prepare, behind, cut):
            return Verdict.EQUIVALENT
    except BackendError:
        return Verdict.UNDECIDED
    seconds = timeout if whole else _SHARE_OF_A_PART * timeout
    for search in (_RUN, _ABSTRACTION, *([_WITHOUT_IT] if whole else [])):
        commands = search.commands.format(seconds=max(1, int(seconds)), frames=128 if whole else 24)
        try:
            printed = run_abc(place, "miter.aig", commands, 2 * seconds)
        except (BackendError, TimeoutError):
            continue
        if any(words in printed for words in _PROVED):
            return Verdict.EQUIVALENT
        if search.concrete and re.search(r"was asserted in frame|\bSATISFIABLE", printed):
            return Verdict.TOLD_APART if whole else Verdict.UNDECIDED
    return Verdict.UNDECIDED


def _write_miter(
    top: str, fault: Fault, place: Path, timeout: float, prepare: str, behind: int | None = None, cut: str = ""
) -> bool:
    """Write the claim that a fault changes nothing as a graph, ``miter.aig``; say whether anything depends on it."""
    names = {"flat": FLAT, "top": top, "faulty": _FAULTY, "cone": _CONE}
    run_yosys(place, _SPLIT.format(command=fault.command, prepare=prepare, levels=behind or "*", **names), timeout)
    split = (place / "split.il").read_text(encoding="utf-8")
    ports = _ports(split)
    if not any(direction == "output" for _, direction, _ in ports):
        return False
    twice = split.replace(f"module \\{_CONE}\n", f"module \\{_CONE}_once\n") + "\n".join(_both(ports))
    (place / "twice.il").write_text(twice, encoding="utf-8")
    run_yosys(place, _MITER.format(cut=cut, **names), timeout)
    return True


def _ports(split: str) -> list[tuple[str, str, str]]:
    """Return the ports of the cone, as width (nothing for 1), direction and name; none if there is no cone."""
    begin = split.find(f"module \\{_CONE}\n")
    ports = _PORT.findall(split[begin : split.index("\nend\n", begin)]) if begin >= 0 else []
    assert all(direction != "inout" for _, direction, _ in ports)
    return ports


def _both(ports: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the lines of a module with the ports of the cone: two versions of it, and the claim that they agree."""
    yield f"module \\{_CONE}"
    for number, (width, direction, name) in enumerate(ports, 1):
        yield f"  wire width {width or 1} {direction} {number} {name}"
        if direction == "output":
            yield f"  wire width {width or 1} $faulty{number}"
    for cell, is_faulty in (("$right", 0), ("$faulty", 1)):
        yield f"  cell \\{_CONE}_once {cell}"
        for number, (_, direction, name) in enumerate(ports, 1):
            here = name if direction == "input" or not is_faulty else f"$faulty{number}"
            yield f"    connect {name} " + (f"1'{is_faulty}" if name == f"\\{_FAULTY}" else here)
        yield "  end"
    leaving = [(number, int(width or 1), name) for number, (width, way, name) in enumerate(ports, 1) if way == "output"]
    right, faulty = (" ".join(names) for names in zip(*((name, f"$faulty{n}") for n, _, name in leaving), strict=True))
    yield "  wire $same"
    yield "  cell $eq $compare"
    for port in "AB":
        yield f"    parameter \\{port}_SIGNED 0"
        yield f"    parameter \\{port}_WIDTH {sum(width for _, width, _ in leaving)}"
    yield "    parameter \\Y_WIDTH 1"
    yield f"    connect \\A {{ {right} }}"
    yield f"    connect \\B {{ {faulty} }}"
    yield "    connect \\Y $same"
    yield "  end"
    yield "  cell $assert $claim"
    yield "    connect \\A $same"
    yield "    connect \\EN 1'1"
    yield "  end"
    yield "end\n"
