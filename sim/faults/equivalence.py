"""Proofs that a fault changes nothing, with Yosys' SAT solver."""

import tempfile
from pathlib import Path

from ...errors import BackendError
from ...infra.yosys import run_yosys
from ...rtl.emit import unit_of
from .mutants import FLAT, READ, Fault

__all__ = ["proved_equivalent"]

#: Only ports and registers keep names that the two sides are matched by: what lies between may differ.
_HIDE = "dffunmap\nopt_clean\nselect -set named t:$dff %co1:+[Q] w:* %i x:* %u\nrename -hide w:* @named %d\n"
#: Parts that the faults were drawn around, opened: some of what enters them may not matter.
_WHOLE = "setattr -mod -unset keep_hierarchy *\nflatten\nopt_clean\n"
#: Such parts become ports: what enters them is compared, what leaves them is the same.
_CLOSED = "select -set parts {top}/t:{part}\ncd {top}\nexpose -evert @parts\ncd ..\nopt_clean\n"
_TRANSPARENT = """\
module \\$dffe (CLK, EN, D, Q);
  parameter WIDTH = 1;
  parameter CLK_POLARITY = 1;
  parameter EN_POLARITY = 1;
  input CLK, EN;
  input [WIDTH-1:0] D;
  output [WIDTH-1:0] Q;
  assign Q = D;
endmodule
module \\$sdffce (CLK, SRST, EN, D, Q);
  parameter WIDTH = 1;
  parameter CLK_POLARITY = 1;
  parameter EN_POLARITY = 1;
  parameter SRST_POLARITY = 1;
  parameter SRST_VALUE = 0;
  input CLK, SRST, EN;
  input [WIDTH-1:0] D;
  output [WIDTH-1:0] Q;
  assign Q = SRST == SRST_POLARITY ? SRST_VALUE : D;
endmodule
"""


def proved_equivalent(top: str, fault: Fault, folder: Path, timeout: float, *, pipeline: bool = False) -> bool:
    """Return whether a proof was found that a fault changes no output, whatever is driven.

    By induction: the two sides share their inputs and, in the cycle before, their registers; that registers and outputs
    agree again is proved. That the sides agree at first is what the regression has shown. Inputs keep the assumptions
    of the design (``$assume`` cells). Of an array's units it is enough that they are given the same.

    Parameters
    ----------
    top : str
        Top module of the design.
    fault : Fault
        One of the design's.
    folder : Path
        Where the faults were drawn.
    timeout : float
        Seconds after which a search is given up.
    pipeline : bool
        The design is a pipeline without feedback: where the induction fails, since it starts from registers that
        nothing can leave so, its registers with enables are taken for wires, which proves any fault outside them.
    """
    closed = _CLOSED.format(top=top, part=unit_of(top))
    ways = [closed, _WHOLE] if f"module \\{unit_of(top)}\n" in (folder / FLAT).read_text(encoding="utf-8") else [_WHOLE]
    if any(_proved(top, fault, folder, timeout, way) for way in ways):
        return True
    if not pipeline or "$auto$ff" in fault.command:
        return False
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".v", encoding="utf-8") as file:
        file.write(_TRANSPARENT)
        file.flush()
        return _proved(top, fault, folder, timeout, f"{_WHOLE}techmap -map {Path(file.name).name}\nopt_clean\n")


def _proved(top: str, fault: Fault, folder: Path, timeout: float, prepare: str) -> bool:
    sides = [
        f"{READ}chformal -lower\n{command}\n{prepare}rename {top} {name}\n{_HIDE}design -stash {name}\n"
        for name, command in (("right", ""), ("faulty", fault.command))
    ]
    compare = (
        "design -copy-from right -as right right\ndesign -copy-from faulty -as faulty faulty\n"
        "equiv_make right faulty both\nhierarchy -top both\nsimplemap\nopt_expr\nopt_merge\nopt_clean\n"
        "equiv_induct -seq 1 -set-assumes\nequiv_status -assert\n"
    )
    try:
        run_yosys(folder, "".join(sides) + compare, timeout)
    except BackendError:
        return False
    return True
