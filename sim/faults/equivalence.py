"""Proofs with Yosys and ABC: either a fault never changes an output of the design, or some input reveals the fault.

Only the cone of a fault, that is the cells that the fault can affect, is built twice: with and without the fault. All
other cells have equal values in both designs as long as the outputs of the two cones are equal. So the proof shows that
these outputs are equal:

    rest of the design --+--> cone without the fault --+--> rest of the design
                         |                             = ?
                         +--> cone with the fault -----+

The cone may be cut at any depth: after the faulty cell, some cells later, or at the outputs of the design. The logic in
front of the cone may be cut as well: free values replace the cells farther from the cone. Shorter logic has fewer
registers and is easier to prove. But a difference proves that the design differs only if nothing was cut.

A pipeline is compared as a whole, without its registers, one control word at a time. A fixed control word removes the
logic of other formats, which makes the proof of the multipliers much easier.
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

#: Name of the input that activates the fault, and name of the module that contains the cone of the fault.
_FAULTY, _CONE = "is_faulty", "cone"
#: Yosys commands that also flatten the dot-product units, which contain no faults. The proof then allows differences
#: at inputs of a unit that do not affect its result.
_WHOLE = "setattr -mod -unset keep_hierarchy *\nflatten\nopt_clean\n"
#: Yosys commands that replace the dot-product units by ports: the miter compares their inputs and assumes that equal
#: inputs give equal outputs.
_CLOSED = "select -set parts {top}/t:{part}\ncd {top}\nexpose -evert @parts\ncd ..\nopt_clean\n"
#: Yosys commands that move the cone of the fault to a module of its own. They first remove bits that cannot influence a
#: result, such as the upper bits of a truncated difference. Registers start at zero. Nets are split by driver, since
#: Yosys would connect the drivers of a net that is driven both inside and outside the cone.
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
#: Yosys commands that keep only the cells near the claimed equality; free inputs replace all other cells.
_CUT = "cd {top}\nselect -set near t:$assert %ci{levels}\ndelete t:* @near %d\ncd ..\nopt_clean -purge\n"
_PORT = re.compile(
    r"^  wire (?:width (\d+) )?(?:upto )?(?:offset \S+ )?(input|output|inout) \d+ (?:signed )?(\S+)$", re.M
)
#: Limits of successive proof attempts, in logic levels: levels of the cone behind the fault, and levels of logic in
#: front of the cone; None means no limit. Wires and cells both count as levels; with fewer than six, the cone may not
#: contain the faulty cell.
_LEVELS = ((6, 16), (12, 30), (8, None), (20, None), (None, None))
#: Fraction of the time limit that a proof attempt on a partial cone may use.
_SHARE_OF_A_PART = 0.25


class Verdict(Enum):
    """Outcome of the equivalence proof for one fault."""

    EQUIVALENT = "equivalent"
    TOLD_APART = "told apart"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Pipeline:
    """Ports of a pipelined design, and the cases into which its proof is divided."""

    enable: str  #: Name of the input that enables all registers of the pipeline
    control: str  #: Name of the input whose values define the proof cases
    #: For each proof case, the values of some bits of the control input; together, the cases cover all values that
    #: occur.
    cases: tuple[Mapping[int, int], ...]


class _Search(NamedTuple):
    """ABC commands of one proof attempt, and whether a difference that they report exists in the design itself."""

    commands: str
    concrete: bool


#: ABC commands for a bounded search for an input sequence that reveals the fault. An instruction of a small array takes
#: about ninety cycles, so the search of the whole design needs more frames.
_RUN = _Search("orpos; strash; bmc3 -F {frames} -T {seconds}", concrete=True)
#: ABC commands for a proof on an abstraction of the design, which keeps only the gates that a bounded proof needs.
_ABSTRACTION = _Search(
    "orpos; strash; &get; &gla -F 40 -T {seconds}; &gla_derive; &put; scleanup; pdr -T {seconds}", concrete=False
)
#: ABC's messages for a proved claim; the last message is printed if the claim is trivial.
_PROVED = ("Property proved", "UNSATISFIABLE", "Sequential miter is trivially UNSAT")
#: Text in the Yosys command of a fault at the enable input of a register. Such a fault disappears when registers are
#: replaced by wires.
_ENABLE = " -port EN "
_OF_A_CASE = "orpos; strash; &get; {fixed}&put; strash; iprove"
_WITHOUT_IT = _Search("orpos; strash; scorr -F 2 -C 10000; dc2; scorr; pdr -T {seconds}; iprove", concrete=True)


def settled(
    top: str, fault: Fault, folder: Path, timeout: float, pipeline: Pipeline | None = None, box: str = ""
) -> Verdict:
    """Decide whether a fault can change any output, for all inputs that the design's assumptions allow.

    If `pipeline` is given and the registers of the design only add latency, the designs with and without the fault are
    compared without registers, once for each case of `pipeline`. Otherwise, or if this leaves the fault undecided, the
    cone of the fault is compared from cleared registers: first only the logic near the fault, finally the whole cone.
    Each of these attempts is made twice for an array. First its dot-product units are left out: the proof must show
    that their inputs are the same with and without the fault. Then the units are flattened into the design, since some
    inputs may not affect a result.

    ``$assume`` cells constrain the inputs of the top module. `folder` has the files of :func:`~.mutants.mutated`, and
    `timeout` is the limit of each search in seconds. `box` is a module that is left out instead of the units: its
    inputs are compared, and its outputs have any values, the same with and without the fault.
    """
    text = (folder / FLAT).read_text(encoding="utf-8")
    part = box or unit_of(top)
    closed = [_CLOSED.format(top=top, part=part)] if f"module \\{part}\n" in text else []
    verdict = Verdict.UNDECIDED
    with TemporaryDirectory(dir=folder) as scratch:
        place = Path(scratch)
        if pipeline and _ENABLE not in fault.command and _is_pipeline(top, pipeline, place):
            verdict = _by_cases(top, fault, place, timeout, pipeline)
            if verdict is not Verdict.UNDECIDED:
                return verdict
        for behind, before in _LEVELS:
            for prepare in closed if box else (*closed, _WHOLE):
                verdict = _of_cone(top, fault, place, timeout, prepare, behind, before)
                if verdict is Verdict.EQUIVALENT:
                    return verdict
    return verdict


def _is_pipeline(top: str, pipeline: Pipeline, place: Path) -> bool:
    return is_balanced(flat_module(f"../{FLAT}", top, place), pipeline.enable)


def _by_cases(top: str, fault: Fault, place: Path, timeout: float, pipeline: Pipeline) -> Verdict:
    """Decide whether a fault can change a result of a pipelined design, with one proof per case of control input."""
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
    """Return the input numbers in the AIG file for those bits of a port on which the claim depends."""
    lines = (line.split() for line in (place / "miter.map").read_text(encoding="utf-8").splitlines())
    return {int(bit): int(number) for kind, number, bit, *name in lines if [kind, *name] == ["input", port]}


def _of_cone(
    top: str, fault: Fault, place: Path, timeout: float, prepare: str, behind: int | None, before: int | None
) -> Verdict:
    """Decide whether a fault changes an output of its cone; only a cone of the whole design can prove a difference."""
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
    """Write ``miter.aig``, the claim that a fault changes no output; return whether any output depends on the fault."""
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
    """Return width (empty for 1 bit), direction and name of each port of the cone; empty if there is no cone."""
    begin = split.find(f"module \\{_CONE}\n")
    ports = _PORT.findall(split[begin : split.index("\nend\n", begin)]) if begin >= 0 else []
    assert all(direction != "inout" for _, direction, _ in ports)
    return ports


def _both(ports: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield RTLIL lines of a miter: the cone with and without the fault, and the claim that both have equal outputs."""
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
