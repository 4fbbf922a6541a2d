"""Proofs that a fault changes nothing that anybody looks at, or that some input tells it, with Yosys and ABC."""

import re
from enum import Enum
from pathlib import Path

from ...errors import BackendError
from ...infra.abc import run_abc
from ...infra.yosys import run_yosys
from ...rtl.emit import unit_of
from .mutants import FLAT, READ, Fault

__all__ = ["Verdict", "settled"]

#: Only ports and registers keep names that the two sides are matched by: what lies between may differ.
_HIDE = "dffunmap\nopt_clean\nselect -set named t:$dff %co1:+[Q] w:* %i x:* %u\nrename -hide w:* @named %d\n"
#: Parts that the faults were drawn around, opened: some of what enters them may not matter.
_WHOLE = "setattr -mod -unset keep_hierarchy *\nflatten\nopt_clean\n"
#: Without the bits of operands and registers that no result depends on, as the upper ones of a difference cut short.
_NARROW = "wreduce\nopt_clean\n"
#: Such parts become ports: what enters them is compared, what leaves them is the same.
_CLOSED = "select -set parts {top}/t:{part}\ncd {top}\nexpose -evert @parts\ncd ..\nopt_clean\n"
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


def settled(top: str, fault: Fault, folder: Path, timeout: float) -> Verdict:
    """Say whether a fault can change any output, whatever is driven that the design's assumptions allow.

    First by induction: the two sides share their inputs and, in the cycle before, their registers; that registers and
    outputs agree again is proved. Where that fails, since it starts from registers that nothing can leave so, ABC
    looks for a run from cleared registers that tells the sides apart, or proves that there is none. Of an array's
    units it is enough that they are given the same.

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
    closed = _CLOSED.format(top=top, part=unit_of(top))
    ways = [closed, _WHOLE] if f"module \\{unit_of(top)}\n" in (folder / FLAT).read_text(encoding="utf-8") else [_WHOLE]
    if any(_by_induction(top, fault, folder, timeout, way) for way in ways):
        return Verdict.EQUIVALENT
    found = Verdict.UNDECIDED
    for way in ways:
        found = _by_search(top, fault, folder, timeout, way)
        if found is Verdict.EQUIVALENT:
            break
    return found


def _sides(top: str, fault: Fault, prepare: str, finish: str) -> str:
    return "".join(
        f"{READ}chformal -lower\n{command}\n{_NARROW}{prepare}rename {top} {name}\n{finish}design -stash {name}\n"
        for name, command in (("right", ""), ("faulty", fault.command))
    )


def _by_induction(top: str, fault: Fault, folder: Path, timeout: float, prepare: str) -> bool:
    try:
        run_yosys(folder, _sides(top, fault, prepare, _HIDE) + _INDUCTION, timeout)
    except BackendError:
        return False
    return True


def _by_search(top: str, fault: Fault, folder: Path, timeout: float, prepare: str) -> Verdict:
    try:
        run_yosys(folder, _sides(top, fault, prepare, "") + _BOTH + _MITER, timeout)
    except BackendError:
        return Verdict.UNDECIDED
    for search in _SEARCHES:
        try:
            printed = run_abc(folder, "miter.aig", search.format(seconds=int(timeout)), timeout)
        except (BackendError, TimeoutError):
            continue
        if "Property proved" in printed or "UNSATISFIABLE" in printed:
            return Verdict.EQUIVALENT
        if re.search(r"was asserted in frame|\bSATISFIABLE", printed):
            return Verdict.TOLD_APART
    return Verdict.UNDECIDED
