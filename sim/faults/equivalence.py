"""Proofs with Yosys and ABC: either a fault never changes an output of the design, or some input reveals the fault.

Yosys makes one and-inverter graph of the design with all faults. For each fault, the graph is cut into slices
(:mod:`.slices`): one claim for each output bit, with only the logic that the bit depends on. A slice of a large design
has a few hundred registers, and most slices differ only in the data that they read, so that a few proofs suffice.

A pipeline is compared as a whole, without its registers, one control word at a time. A fixed control word removes the
logic of other formats, which makes the proof of the multipliers much easier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from ...errors import BackendError
from ...infra.abc import run_abc
from ...infra.yosys import run_yosys
from ...rtl.emit import unit_of
from ..engine.pipelines import WITHOUT_REGISTERS, flat_module, is_balanced, write_wires
from .graph import Graph
from .mutants import FLAT, Fault
from .slices import Claim, Slices

__all__ = ["Pipeline", "Verdict", "settled"]

#: Yosys commands that flatten the design, including dot-product units (which contain no faults). The proof then allows
#: differences at inputs of a unit that do not affect the result of the unit.
_WHOLE = "setattr -mod -unset keep_hierarchy *\nflatten\nopt_clean\n"
#: Yosys commands that replace the dot-product units by ports: the claims compare the inputs of the units, and assume
#: that equal inputs give equal outputs.
_CLOSED = "select -set parts {top}/t:{part}\ncd {top}\nexpose -evert @parts\ncd ..\nopt_clean\n"
#: Yosys commands that insert faults, each with an input that activates the fault, and write the and-inverter graph.
#: Registers start at zero. Bits without influence, such as upper bits of a truncated difference, are removed.
_GRAPH = (
    "read_rtlil ../{flat}\nchformal -lower\n{insert}wreduce\nopt_clean\n{prepare}dffunmap\nzinit -all\nopt_clean\n"
    "setundef -undriven -anyseq\ntechmap\nopt_expr\nopt_merge\nopt_clean -purge\naigmap\nopt_clean\n"
    "write_aiger -map faulty.map faulty.aig\n"
)


class Verdict(Enum):
    """Outcome of the equivalence proof for one fault."""

    EQUIVALENT = "equivalent"
    TOLD_APART = "told apart"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Pipeline:
    """Ports of a pipelined design, and the cases into which its equivalence proof is divided."""

    enable: str  #: Name of the input that enables all registers of the pipeline
    control: str  #: Name of the input whose values define the proof cases
    #: For each proof case, the values of some bits of the control input; together, the cases cover all values that
    #: occur.
    cases: tuple[Mapping[int, int], ...]


#: Numbers of cycles in successive proof attempts. Registers that the fault can affect within this number of cycles may
#: differ between the designs with and without the fault; with None, every register may differ.
_CYCLES = (0, 1, 2, None)
#: ABC commands of successive searches. The first search uses all logic that a claim depends on, so a difference that it
#: finds exists in this logic. The other two searches look for a small abstraction that suffices for the proof: the
#: second search abstracts the logic itself, and the third search abstracts the simplified logic.
_SEARCHES = (
    "strash; bmc3 -F 12 -T {seconds}; scorr; dc2; pdr -T {seconds}; iprove",
    "strash; &get; &gla -F 40 -T {seconds}; &gla_derive; &put; scleanup; pdr -T {seconds}",
    "strash; scorr; dc2; &get; &gla -F 150 -T {seconds}; &gla_derive; &put; scleanup; pdr -T {seconds}",
)
#: First search, for claims whose logic covers only a few cycles: number of these cycles, ABC commands, and maximum
#: number of claims for which the search is tried.
_DEPTH, _SHORT, _MOST_CLAIMS = 2, "strash; scorr; dc2; pdr -T {seconds}; iprove", 1000
#: Fraction of a proof's time limit that each successive ABC search may use for a single claim.
_SHARES = (0.125, 0.25, 1)
#: ABC commands for a bounded search for an input sequence that reveals the fault. An instruction of a small array takes
#: about ninety cycles.
_RUN = "strash; bmc3 -F 128 -T {seconds}; iprove"
_OF_A_CASE = "strash; iprove"
#: ABC's messages for a proved claim; the last message is printed if the claim is trivial.
_PROVED = ("Property proved", "UNSATISFIABLE", "Sequential miter is trivially UNSAT")
#: ABC's messages for a claim that is false for some inputs.
_DIFFERS = ("was asserted in frame", "SATISFIABLE")
#: Text in the Yosys command of a fault at the enable input of a register. Such a fault disappears when registers are
#: replaced by wires.
_ENABLE = " -port EN "


def settled(
    top: str, faults: Sequence[Fault], folder: Path, timeout: float, pipeline: Pipeline | None = None, box: str = ""
) -> dict[Fault, Verdict]:
    """Decide for each fault whether it can change any output, for all inputs that the design's assumptions allow.

    If `pipeline` is given and the registers of the design only add latency, the designs with and without the fault are
    compared without registers, once for each case of `pipeline`. Otherwise, or if this leaves the fault undecided, the
    designs are compared from cleared registers: first all registers, then fewer, then only outputs. For an array this
    is tried twice. First its dot-product units are left out: the proof must show that their inputs are the same with
    and without the fault. Then the units are flattened into the design, since some inputs may not affect a result.

    ``$assume`` cells constrain the inputs of the top module. `folder` has the files of :func:`~.mutants.mutated`, and
    `timeout` is the limit of the longest search in seconds. `box` is a module that is left out instead of the units,
    and whose inputs are always compared; its outputs have any values, the same with and without the fault.
    """
    with TemporaryDirectory(dir=folder) as scratch:
        proofs = _Proofs(top, faults, Path(scratch), timeout, pipeline, box)
        return {fault: proofs.verdict(fault) for fault in faults}


class _Proofs:
    """Equivalence proofs for all faults of a design. Each and-inverter graph is made when a proof first needs it."""

    def __init__(
        self, top: str, faults: Sequence[Fault], place: Path, timeout: float, pipeline: Pipeline | None, box: str
    ) -> None:
        self._faults, self._place, self._timeout, self._pipeline = faults, place, timeout, pipeline
        self._designs: dict[str, tuple[Graph, Slices]] = {}
        part = box or unit_of(top)
        has_part = f"module \\{part}\n" in (place.parent / FLAT).read_text(encoding="utf-8")
        closed = [_CLOSED.format(top=top, part=part)] if has_part else []
        #: Yosys commands that prepare the netlist of each proof attempt, in the order of the attempts.
        self._attempts = closed if closed and box else [*closed, _WHOLE]
        if pipeline and not is_balanced(flat_module(f"../{FLAT}", top, place), pipeline.enable):
            self._pipeline = None

    def verdict(self, fault: Fault) -> Verdict:
        verdict = Verdict.UNDECIDED
        if self._pipeline and _ENABLE not in fault.command:
            verdict = self._by_cases(fault, self._pipeline)
        for prepare in self._attempts:
            if verdict is Verdict.UNDECIDED:
                verdict = self._by_slices(fault, prepare)
        return verdict

    def _by_cases(self, fault: Fault, pipeline: Pipeline) -> Verdict:
        """Decide whether the fault can change a result of a pipelined design; one proof per kind of control word."""
        write_wires(self._place)
        graph, slices = self._design(_WHOLE + WITHOUT_REGISTERS)
        claims = slices.claims_about(fault.number, None)
        for case in pipeline.cases if claims else ():
            fixed = {graph.inputs[pipeline.control, bit]: value for bit, value in case.items()}
            verdict = self._search(slices, claims, _OF_A_CASE, self._timeout, fixed, all_assumed=True)
            if verdict is not Verdict.EQUIVALENT:
                return verdict
        return Verdict.EQUIVALENT

    def _by_slices(self, fault: Fault, prepare: str) -> Verdict:
        """Decide whether the fault changes an output; output bits with equal logic share one proof.

        With the units flattened into an array, slices are too large if every register may differ.
        """
        _, slices = self._design(prepare)
        for cycles in _CYCLES if prepare == self._attempts[0] else _CYCLES[:-1]:
            claims = slices.claims_about(fault.number, cycles)
            if self._are_proved(slices, claims):
                return Verdict.EQUIVALENT
        if prepare != _WHOLE:
            return Verdict.UNDECIDED
        claims = slices.claims_about(fault.number, None)
        verdict = self._search(slices, claims, _RUN, self._timeout, all_assumed=True)
        return Verdict.TOLD_APART if verdict is Verdict.TOLD_APART else Verdict.UNDECIDED

    def _are_proved(self, slices: Slices, claims: Sequence[Claim]) -> bool:
        """Return whether all claims are proved: by one search for all claims, or by separate searches for them."""
        if len(claims) <= _MOST_CLAIMS:
            short = self._search(slices, claims, _SHORT, self._timeout, depth=_DEPTH)
            if short is Verdict.EQUIVALENT:
                return True
        chosen = slices.representatives(claims)
        together = self._search(slices, chosen, _SEARCHES[0], self._timeout / 2)
        if together is Verdict.TOLD_APART:
            # The first search covered only the claims `chosen`, and left out assumptions that depend on many nodes. Two
            # claims about equal logic can differ in such assumptions. So search for all claims, with all assumptions.
            together = self._search(slices, claims, _SEARCHES[0], self._timeout / 2, all_assumed=True)
            return together is Verdict.EQUIVALENT
        return together is Verdict.EQUIVALENT or all(self._is_proved(slices, claim) for claim in chosen)

    def _is_proved(self, slices: Slices, claim: Claim) -> bool:
        for commands, share in zip(_SEARCHES, _SHARES, strict=True):
            verdict = self._search(slices, [claim], commands, self._timeout * share)
            if verdict is Verdict.EQUIVALENT or (verdict is Verdict.TOLD_APART and commands == _SEARCHES[0]):
                return verdict is Verdict.EQUIVALENT
        return False

    def _search(
        self,
        slices: Slices,
        claims: Sequence[Claim],
        commands: str,
        seconds: float,
        fixed: Mapping[int, int] | None = None,
        *,
        all_assumed: bool = False,
        depth: int | None = None,
    ) -> Verdict:
        """Search for a proof of the claims, and for inputs that make a claim false."""
        slices.write(self._place / "slice.aig", claims, fixed or {}, all_assumed=all_assumed, depth=depth)
        limited = commands.format(seconds=max(1, int(seconds)))
        try:
            printed = run_abc(self._place, "slice.aig", limited, 4 * seconds)
        except (BackendError, TimeoutError):
            return Verdict.UNDECIDED
        if any(words in printed for words in _PROVED):
            return Verdict.EQUIVALENT
        return Verdict.TOLD_APART if any(words in printed for words in _DIFFERS) else Verdict.UNDECIDED

    def _design(self, prepare: str) -> tuple[Graph, Slices]:
        """Run the Yosys commands `prepare`. Return a graph of the design with all faults, and each fault's logic."""
        if prepare not in self._designs:
            names = {fault.number: f"fault_{fault.number}" for fault in self._faults}
            insert = "".join(f"{fault.command} -ctrl {names[fault.number]} 1 1\n" for fault in self._faults)
            run_yosys(self._place, _GRAPH.format(flat=FLAT, insert=insert, prepare=prepare))
            graph = Graph(self._place / "faulty.aig", self._place / "faulty.map")
            self._designs[prepare] = graph, Slices(graph, names)
        return self._designs[prepare]
