"""Report of a matrix product by ``sptc gemm``: agreement of back ends, cycles of the hardware, and errors."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import reduce
from operator import add
from typing import Any

from ..gemm.product import Block, Problem, instruction_count
from ..gemm.ways import Way
from ..infra.counts import counted
from ..isa.instructions import Instruction
from ..isa.numerics import Method, numerics
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from ..verify.timing import step_count

__all__ = ["product_report", "product_text"]


def product_report(problem: Problem, blocks: Iterable[Block]) -> dict[str, Any]:
    """Return the report of a matrix product as JSON values; `blocks` are the results of all parts of D."""
    done: list[Block] = sorted(blocks, key=lambda block: block.index)
    way, i, (m, n, k) = problem.way, problem.way.parsed, problem.shape
    products = m * n * k
    first = next((block.first for block in done if block.first), None)
    errors = {name: reduce(add, (block.errors[name] for block in done)) for name in done[0].errors}
    report: dict[str, Any] = {
        "instruction": way.instruction,
        "arch": way.arch,
        "way": asdict(way),
        "shape": [m, n, k],
        "numerics": problem.numerics,
        "scale": problem.scale,
        "backends": list(problem.backends),
        "outputs": sum(block.outputs for block in done),
        "mismatches": sum(block.mismatches for block in done),
        "first_mismatch": first,
        "dense_products": products,
        "kept_products": products // 2 if i.sparse else products,
        "instructions": instruction_count(problem),
    }
    report |= _cycles(problem, i)
    return report | {"errors": {name: vars(value) for name, value in errors.items()}}


def _cycles(problem: Problem, i: Instruction) -> dict[str, Any]:
    """Return the cycles of a matrix product on an array with a full pipeline, and the utilisation of multipliers."""
    config = PRESETS[PRESET_OF_ARCHITECTURE[problem.way.arch]]
    if problem.numerics or not config.holds(i) or numerics(i, problem.way.arch).method is Method.EMULATED:
        return {"cycles": None, "utilisation": None}
    steps = instruction_count(problem) * i.m * i.n * step_count(config, i)
    slots = 8 * config.step_bytes // i.container_bits
    m, n, k = problem.shape
    useful = m * n * k * i.stored_k / i.k
    return {"cycles": -(-steps // (config.rows * config.columns)), "utilisation": useful / (steps * slots)}


def product_text(report: Mapping[str, Any], way: Way) -> str:
    """Return a report of a matrix product from :func:`product_report` as text, without the comparison of back ends."""
    rows, columns, k = report["shape"]
    lines = [f"{rows} x {columns} x {k}: {way}"]
    if changes := report["numerics"]:
        rounding = numerics(way.parsed, way.arch).replace(**changes).rounding.value
        words = [f"{name} {value}" for name, value in changes.items() if name != "rounding"]
        lines.append(f"other numerics: {', '.join([*words, f'rounding of each step {rounding}'])}")
    if report["scale"] != 1:
        lines.append(f"the matrices were divided by scales: multiply the sums by {report['scale']:.9g}")
    kept = f"{report['kept_products']} of {report['dense_products']} products kept"
    lines.append(f"{kept}, {counted(report['instructions'], 'instruction')}")
    if report["cycles"]:
        used = f"multipliers {100 * report['utilisation']:.1f} % used"
        preset = PRESET_OF_ARCHITECTURE[way.arch]
        lines.append(f"{counted(report['cycles'], 'cycle')} of one array of the datapath {preset}, {used}")
    lines.append(f"{'error against float64':38} {'largest':>10} {'mean':>10} {'mean of product':>16}")
    meanings = {
        "arithmetic": f"product of rounded{' and pruned' if way.parsed.sparse else ''} A, B",
        "whole": "product of A and B as given",
        "dense": "product of A and B as given, A dense",
    }
    for name, values in report["errors"].items():
        mean, product = (values[key] / report["outputs"] for key in ("total", "total_reference"))
        lines.append(f"  {meanings[name]:36} {values['largest']:10.4g} {mean:10.4g} {product:16.4g}")
    if "output" in report:
        lines.append(f"written to {report['output']}")
    return "\n".join(lines)
