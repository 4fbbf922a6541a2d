"""Compare public models of tensor cores with the golden model: outputs and differences by instruction.

mmasim (extra `oracle`) models float instructions; a sparse instruction is compared with the dense instruction whose K
is the stored K. The model of sf-tensor/tcgen05 computes single outputs of `tcgen05.mma`, and is compared if the package
`tcgen05_model` is installed. No code of these models is copied. For each instruction, the script prints the first
difference with its operands, and the number of differences that each open rule explains. Open rules (`OPEN_RULES`) are
rules in which public models differ.
"""

from measure import Row, options, show

parser = options(__doc__)
parser.add_argument(
    "--outputs", type=int, default=100_000, metavar="N", help="number of outputs per instruction (default %(default)s)"
)
parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the operands (default %(default)s)")
parser.add_argument(
    "--words", nargs="*", default=[], metavar="WORD", help="compare only instructions whose names contain these words"
)
OPTIONS = parser.parse_args()

import importlib.util  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from sptc.golden.matrix import multiply_by  # noqa: E402
from sptc.isa.instructions import Instruction, every_instruction  # noqa: E402
from sptc.isa.metadata import MUX_OF_ARCHITECTURE  # noqa: E402
from sptc.isa.numerics import OPEN_RULES, Method, numerics  # noqa: E402
from sptc.isa.operands import MatrixOperands  # noqa: E402
from sptc.isa.tcgen05 import every_opcode, instructions_of  # noqa: E402
from sptc.verify.candidates import draw_candidates  # noqa: E402

for package in ("mmasim", "torch"):
    if importlib.util.find_spec(package) is None:
        sys.exit("this benchmark needs the extra 'oracle' (pip install -e '.[oracle]')")

from oracle import expected_of, oracle_of  # noqa: E402

#: Number of candidate tiles (tiles of random operands) per distribution in each batch.
TILES = 4


@dataclass
class Comparison:
    """Comparison of a public model with the golden model for one instruction on one architecture."""

    model: str
    instruction: str
    arch: str
    outputs: int = 0
    differences: int = 0
    first: str = ""  #: First output that differs from the golden model, with its operands
    #: For each alternative of an undecided rule of numerics (`OPEN_RULES`), number of differences that it explains.
    explained: dict[str, int] | None = None


def subjects() -> Iterator[tuple[Instruction, str]]:
    """Yield (float instruction, architecture). Of `wgmma` or `tcgen05` that differ only in M and N, yield one."""
    seen = set()
    tensor = (i for opcode in every_opcode() if not opcode.weight_stationary for i in instructions_of(opcode))
    for i in (*every_instruction(), *tensor):
        for arch in i.architectures:
            form = (replace(i, m=0, n=0) if i.family != "mma" else i), arch
            if form not in seen and not i.a.is_integer and numerics(i, arch).method is not Method.EMULATED:
                seen.add(form)
                yield i, arch


def narrowed(i: Instruction) -> Instruction:
    """Return an instruction with smaller M and N, since an output does not depend on the M and N of its instruction."""
    return i if i.family == "mma" else replace(i, m=16, n=8)


def models() -> Iterator[tuple[str, Callable[[Instruction, str], Any]]]:
    """Yield the name of each installed public model, and a function that returns the public model of an instruction."""
    yield "mmasim", of_mmasim
    if importlib.util.find_spec("tcgen05_model") is not None:
        yield "tcgen05_model", of_tcgen05_model


def of_mmasim(i: Instruction, arch: str) -> Callable[[MatrixOperands], np.ndarray] | None:
    """Return the public model mmasim of an instruction, or None if mmasim does not support the instruction."""
    try:
        oracle = oracle_of(replace(i, m=128, n=8) if i.family == "tcgen05" else i, arch)
    except AssertionError:
        return None
    return lambda operands: expected_of(narrowed(i), arch, oracle, operands)


def of_tcgen05_model(i: Instruction, arch: str) -> Callable[[MatrixOperands], np.ndarray] | None:
    """Return sf-tensor/tcgen05's model of an instruction, or None if sf-tensor/tcgen05 does not support it."""
    if i.family != "tcgen05" or i.sparse:
        return None
    import tcgen05_model  # type: ignore[import-not-found]

    scales = {"scaling": i.scale_format.name, "scale_vec": i.scale_size, "kind": i.kind} if i.scale_format else {}
    try:
        model = tcgen05_model.make_model(i.a.name, i.b.name, d_type=i.d.name, **scales)
    except ValueError:
        return None

    def words(operands: MatrixOperands) -> np.ndarray:
        d = np.empty_like(operands.c)
        for tile, row, column in np.ndindex(*d.shape):
            a = operands.a[tile, row] >> (i.low_bit(i.a) if i.a.name == "e2m1" else 0)
            b = operands.b[tile, :, column] >> (i.low_bit(i.b) if i.b.name == "e2m1" else 0)
            # A bf16 result is the high half of a 32-bit word.
            up = 16 if i.a.name == "bf16" else 0
            parts = [tuple(int(code) << up for code in codes) for codes in (a, b)]
            named = {}
            if operands.scale_a is not None and operands.scale_b is not None:
                named = {
                    "scale_a": tuple(operands.scale_a[tile, row].tolist()),
                    "scale_b": tuple(operands.scale_b[tile, column].tolist()),
                }
            case = tcgen05_model.DotProduct(*parts, int(operands.c[tile, row, column]), **named)
            d[tile, row, column] = model.eval(case)
        return d

    return words


def compare(name: str, i: Instruction, arch: str, model: Callable[[MatrixOperands], np.ndarray]) -> Comparison:
    """Compare a public model with the golden model on random operands like those of conformance tests."""
    row = Comparison(name, str(i), arch)
    rng = np.random.default_rng([OPTIONS.seed, len(str(i))])
    narrow = narrowed(i)
    parameters, mux = numerics(i, arch), MUX_OF_ARCHITECTURE[arch]
    while row.outputs < (1 if OPTIONS.small else OPTIONS.outputs):
        for candidates in draw_candidates(narrow, parameters, rng, TILES):
            operands = candidates.matrices
            computed, expected = multiply_by(narrow, parameters, mux, operands), model(operands)
            wrong = computed != expected
            row.outputs, row.differences = row.outputs + computed.size, row.differences + int(wrong.sum())
            if wrong.any():
                row.first = row.first or described(operands, computed, expected)
                row.explained = row.explained or dict.fromkeys(OPEN_RULES, 0)
                for key in OPEN_RULES:
                    other = multiply_by(narrow, numerics(i, arch, [key]), mux, operands)
                    row.explained[key] += int((wrong & (other == expected)).sum())
            if OPTIONS.small:
                break
    return row


def described(operands: MatrixOperands, found: np.ndarray, expected: np.ndarray) -> str:
    """Return the first differing output as text, with its operands as hexadecimal codes."""
    tile, row, column = np.argwhere(found != expected)[0]
    parts = {"a": operands.a[tile, row], "b": operands.b[tile, :, column], "c": operands.c[tile, row, column]}
    parts |= {"nibbles": operands.nibbles[tile, row]} if operands.nibbles is not None else {}
    if operands.scale_a is not None and operands.scale_b is not None:
        parts |= {"scale_a": operands.scale_a[tile, row], "scale_b": operands.scale_b[tile, column]}
    words = [f"{name} {' '.join(f'{int(code):x}' for code in np.ravel(codes))}" for name, codes in parts.items()]
    where = int(found[tile, row, column]), int(expected[tile, row, column])
    return f"golden {where[0]:x}, model {where[1]:x}; {'; '.join(words)}"


def main() -> None:
    """Print a line and the first difference for each instruction and public model, and the totals of each model."""
    rows = []
    for name, model_of in models():
        for i, arch in subjects():
            model = model_of(i, arch) if all(word in str(i) for word in OPTIONS.words) else None
            if model is None:
                continue
            row = compare(name, i, arch, model)
            rows.append(row)
            if not OPTIONS.json:
                print(f"{row.model}  {row.arch:6}  {row.outputs:8}  {row.differences:6}  {row.instruction}", flush=True)
                if row.first:
                    print(f"    differences explained by open rules: {row.explained}; first difference: {row.first}")
            if OPTIONS.small and len(rows) % 3 == 0:
                break
    figures = []
    for name in dict.fromkeys(row.model for row in rows):
        own = [row for row in rows if row.model == name]
        totals = {"rows": len(own), "outputs": sum(row.outputs for row in own)}
        totals["differences"] = sum(row.differences for row in own)
        figures += [Row(f"{name}: {key}", key, value) for key, value in totals.items()]
        if not OPTIONS.json:
            print(f"{name}: {totals['rows']} rows, {totals['outputs']} outputs, {totals['differences']} differences")
    if OPTIONS.json:
        show(figures, as_json=True)


if __name__ == "__main__":
    main()
