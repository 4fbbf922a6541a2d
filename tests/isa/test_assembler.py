"""The assembler of CUDA 13 and the package's parser accept the same lines, except for listed differences."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sptc.errors import InstructionError
from sptc.isa.architectures import TARGETS, require_target
from sptc.isa.names import forms_named

from .assembler import Line, accepted, mma_lines, tcgen05_lines, unmodelled_lines, wgmma_lines

LINES: dict[str, Callable[[], list[Line]]] = {
    "mma": lambda: [*dict(mma_lines()).items()],
    "wgmma": lambda: [*dict(wgmma_lines()).items()],
    "tcgen05 of one CTA": lambda: list(tcgen05_lines(1)),
    "tcgen05 of two CTAs": lambda: list(tcgen05_lines(2)),
    "unmodelled": unmodelled_lines,
}
CHIPS = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
#: Targets of the assembler of CUDA 13, which has renamed sm_101 to sm_110.
KNOWN = [name for name in TARGETS if not name.startswith("sm_101")]
OF_TENSOR_MEMORY = tuple(f"sm_{number}{suffix}" for number in (100, 103, 110) for suffix in "af")
OF_SM_120 = tuple(f"sm_{number}{suffix}" for number in (120, 121) for suffix in "af")
#: Lines that only the package accepts: pattern of the opcode, targets, and the reason.
TAKEN_HERE = [
    ("wgmma", ("sm_90",), "the package accepts sm_90 as a name of the same chip as sm_90a"),
    ("tcgen05", CHIPS[1:4], "the package treats a target without suffix like the one with suffix a"),
    (r"mma.*(kind|e4m3|e5m2)", CHIPS[4:], "the package treats a target without suffix like the one with suffix a"),
    (r"mma.*scale_vec::4X.*ue8m0", OF_SM_120, "the qualifiers are new in PTX ISA 9.1, and this assembler has 9.0"),
]
#: Lines that only the assembler accepts: pattern of the opcode, targets, and the reason.
TAKEN_THERE = [
    (r"mma.*kind::f8f6f4", OF_TENSOR_MEMORY, "the emulation of mma with kind::f8f6f4 by these targets is not modelled"),
    (r"mma.*m16n8k16.*kind::f8f6f4", OF_SM_120, "mma with kind::f8f6f4 and K = 16 is not modelled"),
    (r"mma.*(f64|b1|m8n8k4)", tuple(TARGETS), "dense forms with .f64, .b1 or m8n8k4 are not modelled"),
]


def _takes(text: str, target: str) -> bool:
    try:
        subject = forms_named(text)[0]
        require_target(subject.instruction, target, subject.opcode)
    except InstructionError:
        return False
    return True


@pytest.mark.regression
@pytest.mark.parametrize("target", ["sm_100a", *(name for name in KNOWN if name != "sm_100a")])
def test_every_difference_has_a_reason(target: str, tmp_path: Path) -> None:
    """For 50,000 lines, most of them invalid, parser and ptxas differ exactly where the two lists say so."""
    used = set()
    for family, make in LINES.items():
        lines = make()
        there = accepted(lines, target, tmp_path)
        here = {place for place, (text, _) in enumerate(lines) if _takes(text, target)}
        for places, known in ((here - there, TAKEN_HERE), (there - here, TAKEN_THERE)):
            for place in places:
                text, _ = lines[place]
                reasons = [why for pattern, targets, why in known if target in targets and re.match(pattern, text)]
                assert len(reasons) == 1, (family, target, text, reasons)
                used.update(reasons)
        assert family == "unmodelled" or here or not there
        assert len(there) == 1056 or (family, target) != ("wgmma", "sm_90a")
    assert used == {reason for _, targets, reason in (*TAKEN_HERE, *TAKEN_THERE) if target in targets}
