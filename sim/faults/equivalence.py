"""Proofs with Yosys and ABC: either a fault never changes an output of the design, or some input reveals the fault.

Each proof decides a miter (:mod:`.miter`) of the cone of the fault: the cells behind the faulty cell, some or all of
them, and the logic in front of them, some or all of it. Shorter logic has fewer registers and is easier to prove. But a
difference proves that the design differs only if nothing was left out.

A pipeline is compared as a whole, without its registers, one control word at a time. A fixed control word removes the
logic of other formats, which makes the proof of the multipliers much easier.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...errors import BackendError
from ...infra.abc import run_abc
from ...infra.yosys import run_yosys
from ...rtl.emit import unit_of
from ..engine.pipelines import WITHOUT_REGISTERS, flat_module, is_balanced, write_wires
from .miter import Depth, FlatDesign, control_of
from .mutants import FLAT, Fault

__all__ = ["Pipeline", "Verdict", "settled"]

#: Yosys commands that also flatten the dot-product units, which contain no faults. The proof then allows differences
#: at inputs of a unit that do not affect its result.
_WHOLE = "setattr -mod -unset keep_hierarchy *\nflatten\nopt_clean\n"
#: Yosys commands that replace the dot-product units by ports: the miter compares their inputs and assumes that equal
#: inputs give equal outputs.
_CLOSED = "select -set parts {top}/t:{part}\ncd {top}\nexpose -evert @parts\ncd ..\nopt_clean\n"
#: Yosys commands that insert faults, each with an input that activates it, and remove bits that cannot influence a
#: result, such as the upper bits of a truncated difference. Registers start at zero. Nets are split by driver, so that
#: no net is driven both inside and outside a cone.
_FAULTY = (
    "read_rtlil ../{flat}\nchformal -lower\n{insert}wreduce\nopt_clean\n{prepare}dffunmap\nzinit -all\nopt_clean\n"
    "splitnets -driver -ports\nwrite_rtlil faulty.il\n"
)
_MITER = (
    "read_rtlil miter.il\nhierarchy -top {top}\nflatten\nopt_expr\nwreduce\nopt_clean -purge\nopt_merge -share_all\n"
    "opt_clean -purge\nsetundef -undriven -anyseq\ntechmap\nopt_expr\nopt_merge\nopt_clean -purge\nzinit -all\n"
    "aigmap\nopt_clean\nwrite_aiger -map miter.map miter.aig\n"
)
#: Limits of successive proof attempts. The first cell of a cone inserts the fault, and the second is the faulty cell if
#: the fault is at an input. Short miters leave out assumptions, which may have much more logic.
_DEPTHS = (
    Depth(3, 8, assumes=False),
    Depth(6, 15, assumes=False),
    Depth(10, 25),
    Depth(4, None),
    Depth(10, None),
    Depth(None, None),
)
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
#: ABC commands for a proof of the whole design, without abstraction.
_CONCRETE = _Search("orpos; strash; scorr -F 2 -C 10000; dc2; scorr; pdr -T {seconds}; iprove", concrete=True)


def settled(
    top: str, faults: Sequence[Fault], folder: Path, timeout: float, pipeline: Pipeline | None = None, box: str = ""
) -> dict[Fault, Verdict]:
    """Decide for each fault whether it can change any output, for all inputs that the design's assumptions allow.

    If `pipeline` is given and the registers of the design only add latency, the designs with and without the fault are
    compared without registers, once for each case of `pipeline`. Otherwise, or if this leaves the fault undecided, the
    cone of the fault is compared from cleared registers: first only the logic near the fault, finally the whole cone.
    Each of these attempts is made twice for an array. First its dot-product units are left out: the proof must show
    that their inputs are the same with and without the fault. Then the units are flattened into the design, since some
    inputs may not affect a result.

    ``$assume`` cells constrain the inputs of the top module. `folder` has the files of :func:`~.mutants.mutated`, and
    `timeout` is the limit of each search in seconds. `box` is a module that is left out instead of the units, and whose
    inputs are always compared; its outputs have any values, the same with and without the fault.
    """
    with TemporaryDirectory(dir=folder) as scratch:
        proofs = _Proofs(top, faults, Path(scratch), timeout, pipeline, box)
        return {fault: proofs.verdict(fault) for fault in faults}


class _Proofs:
    """Proofs of the faults of a design. Each netlist with all faults is made when the first proof needs it."""

    def __init__(
        self, top: str, faults: Sequence[Fault], place: Path, timeout: float, pipeline: Pipeline | None, box: str
    ) -> None:
        self._top, self._faults, self._place, self._timeout, self._pipeline = top, faults, place, timeout, pipeline
        self._designs: dict[str, FlatDesign] = {}
        part = box or unit_of(top)
        has_part = f"module \\{part}\n" in (place.parent / FLAT).read_text(encoding="utf-8")
        closed = [_CLOSED.format(top=top, part=part)] if has_part else []
        #: Yosys commands that prepare the netlists to try, in this order.
        self._attempts = closed if closed and box else [*closed, _WHOLE]
        if pipeline and not is_balanced(flat_module(f"../{FLAT}", top, place), pipeline.enable):
            self._pipeline = None

    def verdict(self, fault: Fault) -> Verdict:
        """Decide whether the fault can change an output."""
        verdict = Verdict.UNDECIDED
        if self._pipeline and _ENABLE not in fault.command:
            verdict = self._by_cases(fault, self._pipeline)
            if verdict is not Verdict.UNDECIDED:
                return verdict
        for depth, prepare in product(_DEPTHS, self._attempts):
            verdict = self._of_cone(fault, prepare, depth)
            if verdict is Verdict.EQUIVALENT:
                break
        return verdict

    def _by_cases(self, fault: Fault, pipeline: Pipeline) -> Verdict:
        """Decide whether the fault can change a result of a pipelined design, with one proof per case."""
        write_wires(self._place)
        design = self._design(_WHOLE + WITHOUT_REGISTERS)
        try:
            if not self._write_miter(fault, design, Depth()):
                return Verdict.EQUIVALENT
            numbers = _inputs(self._place, pipeline.control)
            for case in pipeline.cases:
                fixed = "".join(f"&cof -V {numbers[bit]} -C {value}; " for bit, value in case.items() if bit in numbers)
                printed = run_abc(self._place, "miter.aig", _OF_A_CASE.format(fixed=fixed), self._timeout)
                if "UNSATISFIABLE" not in printed:
                    return Verdict.TOLD_APART if "SATISFIABLE" in printed else Verdict.UNDECIDED
        except (BackendError, TimeoutError):
            return Verdict.UNDECIDED
        return Verdict.EQUIVALENT

    def _of_cone(self, fault: Fault, prepare: str, depth: Depth) -> Verdict:
        """Decide whether the fault changes an output of its cone; only the cone of the whole design can prove that."""
        whole = depth.behind is None and prepare == _WHOLE
        design = self._design(prepare)
        try:
            if not self._write_miter(fault, design, depth):
                return Verdict.EQUIVALENT
        except BackendError:
            return Verdict.UNDECIDED
        seconds = self._timeout if whole else _SHARE_OF_A_PART * self._timeout
        for search in (_RUN, _ABSTRACTION, *([_CONCRETE] if whole else [])):
            commands = search.commands.format(seconds=max(1, int(seconds)), frames=128 if whole else 24)
            try:
                printed = run_abc(self._place, "miter.aig", commands, 2 * seconds)
            except (BackendError, TimeoutError):
                continue
            if any(words in printed for words in _PROVED):
                return Verdict.EQUIVALENT
            if search.concrete and re.search(r"was asserted in frame|\bSATISFIABLE", printed):
                return Verdict.TOLD_APART if whole else Verdict.UNDECIDED
        return Verdict.UNDECIDED

    def _design(self, prepare: str) -> FlatDesign:
        """Return the netlist with all faults, prepared by some Yosys commands; it is made at the first call."""
        if prepare not in self._designs:
            insert = "".join(f"{fault.command} -ctrl {control_of(fault.number)} 1 1\n" for fault in self._faults)
            run_yosys(self._place, _FAULTY.format(flat=FLAT, insert=insert, prepare=prepare))
            text = (self._place / "faulty.il").read_text(encoding="utf-8")
            self._designs[prepare] = FlatDesign(text, self._top)
        return self._designs[prepare]

    def _write_miter(self, fault: Fault, design: FlatDesign, depth: Depth) -> bool:
        """Write ``miter.aig``, the claim that a fault changes nothing; return whether anything depends on the fault."""
        miter = design.miter(fault.number, depth)
        if miter:
            (self._place / "miter.il").write_text(miter, encoding="utf-8")
            run_yosys(self._place, _MITER.format(top=self._top), self._timeout)
        return bool(miter)


def _inputs(place: Path, port: str) -> dict[int, int]:
    """Return the input numbers in the AIG file for those bits of a port on which the claim depends."""
    lines = (line.split() for line in (place / "miter.map").read_text(encoding="utf-8").splitlines())
    return {int(bit): int(number) for kind, number, bit, *name in lines if [kind, *name] == ["input", port]}
