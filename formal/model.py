"""Convert a harness with Yosys to SMT-LIB for Bitwuzla, and to and-inverter graphs for ABC."""

import importlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BackendError
from ..infra.installation import install_line
from ..infra.yosys import run_yosys
from ..rtl.convert import to_rtlil
from .harness import Harness

__all__ = ["BINARY_GRAPH", "TEXT_GRAPH", "Model", "Trace", "UndecidedError", "written"]

_TOP = "top"
#: File names of the and-inverter graphs that :func:`written` writes. Each output of a graph is a cover condition, and
#: each bad state of a graph is a broken claim.
BINARY_GRAPH, TEXT_GRAPH = f"{_TOP}.aig", f"{_TOP}.aag"
_FLATTEN = (
    f"read_rtlil {_TOP}.il\nhierarchy -top {_TOP}\nproc\nflatten\n{{simplify}}"
    "async2sync\nchformal -lower\ndffunmap\nopt_clean\n"
)
_SMT = f"write_smt2 -stbv -wires {_TOP}.smt2\n"
_GRAPH = (
    "chformal -cover -remove\nsetundef -undriven -anyseq\ntechmap\n{simplify}dffunmap\naigmap\nopt_clean\n"
    f"write_aiger -symbols{{zero}} {BINARY_GRAPH}\nwrite_aiger -ascii -symbols{{zero}} {TEXT_GRAPH}\n"
)
#: Yosys commands and options that depend on :attr:`Harness.any_state`, the key of this table. With False, registers
#: keep their initial values. With True, the initial values of all registers of components are removed; the wire names
#: of these registers contain a dot. With True, Yosys must also not optimise registers, because it would treat a
#: register that is never written as undefined.
_REGISTERS = {
    False: {"simplify": "opt -full\n", "zero": " -zinit"},
    True: {"simplify": "setattr -unset init w:*.*\nopt -full -noff\n", "zero": ""},
}


class UndecidedError(Exception):
    """Error: the solver did not decide a query within its time limit."""


@dataclass(frozen=True)
class Trace:
    """A sequence of cycles in which a design reaches a cover or breaks a claim."""

    widths: dict[str, int]  #: Widths of the wires in bits; the keys are wire names
    steps: list[dict[str, int]]  #: For each cycle, the values of the wires; the keys are wire names


def written(harness: Harness, folder: Path, *, graph: bool) -> str:
    """Return a harness as SMT-LIB text. If `graph` is true, also write and-inverter graphs to `folder`."""
    ports = [*harness.ports, *(harness.flags[name] for name in harness.covers if graph)]
    text = to_rtlil(harness.m, _TOP, ports=ports, platform="formal")
    (folder / f"{_TOP}.il").write_text(text, encoding="utf-8")
    commands = _FLATTEN + _SMT + (_GRAPH if graph else "")
    run_yosys(folder, commands.format(**_REGISTERS[harness.any_state]))
    return (folder / f"{_TOP}.smt2").read_text(encoding="utf-8")


class Model:
    """A design in an SMT solver, unrolled for as many cycles as queries need. `text` is the SMT-LIB from Yosys.

    Each query is limited to `seconds`. Raise a `BackendError` if Bitwuzla is not installed.
    """

    def __init__(self, text: str, seconds: float | None) -> None:
        if importlib.util.find_spec("bitwuzla") is None:
            raise BackendError(f"proofs need Bitwuzla: install it with `{install_line('formal')}`")
        solver: Any = importlib.import_module("bitwuzla")
        options = solver.Options()
        options.set(solver.Option.PRODUCE_MODELS, True)
        if seconds is not None:
            options.set(solver.Option.TIME_LIMIT_PER, max(int(1000 * seconds), 1))  # to Bitwuzla, 0 means no limit
        self._results = solver.Result
        self._parser = solver.Parser(solver.TermManager(), options)
        self._parse(f"(set-logic ALL)\n{text}")
        self._solver = self._parser.bitwuzla()
        self._steps = 0
        wire = r"^; yosys-smt2-(?:input|wire|output|register) (\S+) (\d+)$"
        widths = {name: int(width) for name, width in re.findall(wire, text, re.MULTILINE)}
        self._widths = {name: width for name, width in widths.items() if width}
        self._unroll(1)

    def _parse(self, text: str) -> None:
        self._parser.parse(text, False, False)

    def _unroll(self, steps: int) -> None:
        while self._steps < steps:
            step = self._steps
            self._parse(f"(declare-fun s{step} () |{_TOP}_s|)\n")
            self._assert(f"(|{_TOP}_h| s{step})")
            self._assert(f"(|{_TOP}_t| s{step - 1} s{step})" if step else f"(|{_TOP}_i| s0)")
            self._assert(f"(|{_TOP}_u| s{step})")
            self._steps += 1

    def _assert(self, text: str) -> None:
        self._solver.assert_formula(self._parser.parse_term(text))

    def _possible(self, condition: str) -> bool:
        answer = self._solver.check_sat(self._parser.parse_term(condition))
        if answer == self._results.UNKNOWN:
            raise UndecidedError
        return bool(answer == self._results.SAT)

    def violation(self, claims: Sequence[str], steps: int) -> Trace | None:
        """Return a run of at most `steps` cycles that ends with a broken claim, or None if there is no such run.

        Raise an `UndecidedError` if the time limit was reached.
        """
        for step in range(steps):
            self._unroll(step + 1)
            for claim in claims:
                if self._possible(f"(not (|{_TOP}_n {claim}| s{step}))"):
                    return self._trace(step + 1)
                self._assert(f"(|{_TOP}_n {claim}| s{step})")
        return None

    def reachable(self, cover: str) -> bool:
        """Return whether a wire can be true in the first cycle of a run."""
        return self._possible(f"(|{_TOP}_n {cover}| s0)")

    def with_inputs(self, inputs: dict[str, int]) -> Trace:
        """Return the values of all wires in the first cycle, given input bits by name: ``wire[bit]`` or ``wire``."""
        for name, value in inputs.items():
            wire, bit = re.fullmatch(r"(\S+?)(?:\[(\d+)\])?", name).groups()  # type: ignore[union-attr]
            term = f"(|{_TOP}_n {wire}| s0)"
            if self._widths[wire] > 1:
                term = f"(= ((_ extract {bit} {bit}) {term}) #b1)"
            self._assert(term if value else f"(not {term})")
        assert self._possible("true")
        return self._trace(1)

    def _trace(self, steps: int) -> Trace:
        values = [{name: self._value(name, step) for name in self._widths} for step in range(steps)]
        return Trace(self._widths, values)

    def _value(self, name: str, step: int) -> int:
        value = self._solver.get_value(self._parser.parse_term(f"(|{_TOP}_n {name}| s{step})")).value()
        return int(value) if isinstance(value, bool) else int(value, 2)
