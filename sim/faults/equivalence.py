"""Proofs that a fault changes nothing that anybody looks at, or that some input tells it, with Yosys and ABC."""

import re
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...errors import BackendError
from ...infra.abc import run_abc
from ...infra.yosys import run_yosys
from ...rtl.emit import unit_of
from .mutants import FLAT, Fault

__all__ = ["Verdict", "settled"]

#: Only ports and registers keep names that the two sides are matched by: what lies between may differ.
_HIDE = "dffunmap\nopt_clean\nselect -set named t:$dff %co1:+[Q] w:* %i x:* %u\nrename -hide w:* @named %d\n"
#: Parts that the faults were drawn around, opened: some of what enters them may not matter.
_WHOLE = "setattr -mod -unset keep_hierarchy *\nflatten\nopt_clean\n"
#: Without the bits of operands and registers that no result depends on, as the upper ones of a difference cut short.
_NARROW = "wreduce\nopt_clean\n"
#: Such parts become ports: what enters them is compared, what leaves them is the same.
_CLOSED = "select -set parts {top}/t:{part}\ncd {top}\nexpose -evert @parts\ncd ..\nopt_clean\n"
#: Of the faulty cell's outputs, made a port, and nothing else.
_CELL = "delete -output {top}/o:* {top}/w:{port} %d\nopt_clean -purge\nopt_expr\nopt_clean\n"
_ANSWER = "answer_of_the_faulty_cell"
#: Ports that a cell may have for its answer to be all that leaves it.
_PORTS = {*"ABSDYQ", "CLK", "EN", "SRST", "ARST"}
_BOTH = "design -copy-from right -as right right\ndesign -copy-from faulty -as faulty faulty\n"
_INDUCTION = (
    _BOTH + "equiv_make right faulty both\nhierarchy -top both\nsimplemap\nopt_expr\nopt_merge\nopt_clean\n"
    "equiv_induct -seq 1 -set-assumes\nequiv_status -assert\n"
)
#: What the two sides have in common is merged before it is turned into gates.
_MITER = (
    "chformal -assume -remove faulty\nmiter -equiv -make_assert -flatten right faulty miter\nhierarchy -top miter\n"
    "opt_expr\nopt_merge -share_all\nopt_clean\nopt_merge -share_all\nopt_expr\nopt_clean\ndffunmap\n"
    "setundef -undriven -anyseq\ntechmap\nopt_expr\nopt_merge\nopt_clean\nzinit -all\naigmap\nopt_clean\n"
    "write_aiger miter.aig\n"
)
#: A run that tells the sides apart is short. To merge what is equal takes longer where multipliers are compared.
_SEARCHES = (
    "orpos; strash; bmc3 -F 32 -T {seconds}",
    "orpos; strash; scorr -F 2 -C 10000; dc2; scorr; pdr -T {seconds}; iprove",
)


class Verdict(Enum):
    """What is known of a fault."""

    EQUIVALENT = "equivalent"
    TOLD_APART = "told apart"
    UNDECIDED = "undecided"


class _Way(NamedTuple):
    """A way to compare: which file the design is in, and what is done with either side first."""

    file: str
    prepare: str


def settled(top: str, fault: Fault, folder: Path, timeout: float) -> Verdict:
    """Say whether a fault can change any output, whatever is driven that the design's assumptions allow.

    First at the faulty cell: if nothing that is ever driven makes it answer otherwise, all else is the same. Then by
    induction: the two sides share their inputs and, in the cycle before, their registers; that registers and outputs
    agree again is proved. Where that fails, since it starts from registers that nothing can leave so, ABC looks for a
    run from cleared registers that tells the sides apart, or proves that there is none. Of an array's units it is
    enough that they are given the same.

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
    """
    text = (folder / FLAT).read_text(encoding="utf-8")
    closed = [_CLOSED.format(top=top, part=unit_of(top))] if f"module \\{unit_of(top)}\n" in text else []
    ways = [_Way(f"../{FLAT}", prepare) for prepare in (*closed, _WHOLE)]
    with TemporaryDirectory(dir=folder) as scratch:
        place = Path(scratch)
        at_cell = _at_cell(top, fault, text, place, ways[0].prepare)
        if at_cell and _by_search(top, fault, place, timeout, at_cell) is Verdict.EQUIVALENT:
            return Verdict.EQUIVALENT
        if any(_by_induction(top, fault, place, timeout, way) for way in ways):
            return Verdict.EQUIVALENT
        found = Verdict.UNDECIDED
        for way in ways:
            found = _by_search(top, fault, place, timeout, way)
            if found is Verdict.EQUIVALENT:
                break
    return found


def _at_cell(top: str, fault: Fault, text: str, place: Path, prepare: str) -> _Way | None:
    """Write the design with the answer of the faulty cell at a port, unless something else leaves the cell too."""
    start = text.index(f"module \\{top}\n")
    end = text.index("\nend\n", start) + 1
    found = re.search(rf"^  cell \S+ {re.escape(fault.cell)}\n(.*?)^  end\n", text[start:end], re.DOTALL | re.MULTILINE)
    connected = dict(re.findall(r"^    connect \\(\S+) (.*)$", found[1] if found else "", re.MULTILINE))
    width = re.search(r"^    parameter \\(?:Y_)?WIDTH (\d+)$", found[1] if found else "", re.MULTILINE)
    answer = connected.get("Y", connected.get("Q"))
    if answer is None or not connected.keys() <= _PORTS:
        return None
    port = f"  wire width {width[1] if width else 1} output 1000000 \\{_ANSWER}\n  connect \\{_ANSWER} {answer}\n"
    (place / "cell.il").write_text(text[:end] + port + text[end:], encoding="utf-8")
    return _Way("cell.il", prepare + _CELL.format(top=top, port=_ANSWER))


def _sides(top: str, fault: Fault, way: _Way, finish: str) -> str:
    return "".join(
        f"read_rtlil {way.file}\nchformal -lower\n{command}\n{_NARROW}{way.prepare}rename {top} {name}\n{finish}"
        f"design -stash {name}\n"
        for name, command in (("right", ""), ("faulty", fault.command))
    )


def _by_induction(top: str, fault: Fault, place: Path, timeout: float, way: _Way) -> bool:
    try:
        run_yosys(place, _sides(top, fault, way, _HIDE) + _INDUCTION, timeout)
    except BackendError:
        return False
    return True


def _by_search(top: str, fault: Fault, place: Path, timeout: float, way: _Way) -> Verdict:
    try:
        run_yosys(place, _sides(top, fault, way, "") + _BOTH + _MITER, timeout)
    except BackendError:
        return Verdict.UNDECIDED
    for search in _SEARCHES:
        try:
            printed = run_abc(place, "miter.aig", search.format(seconds=int(timeout)), timeout)
        except (BackendError, TimeoutError):
            continue
        if "Property proved" in printed or "UNSATISFIABLE" in printed:
            return Verdict.EQUIVALENT
        if re.search(r"was asserted in frame|\bSATISFIABLE", printed):
            return Verdict.TOLD_APART
    return Verdict.UNDECIDED
