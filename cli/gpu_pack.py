"""``sptc gpu pack`` and ``judge``: write a script that records a GPU without sptc, and check the script's results."""

import argparse
from pathlib import Path

from ..infra.counts import counted
from ..infra.files import require_writable, write_whole
from ..isa.architectures import TARGETS
from ..isa.numerics import OPEN_RULES
from ..verify.conformance import Pack
from ..verify.recorder import Row, RowJudgement, judge_record, read_record, rows_of, rules_decided, script
from .options import Commands, add
from .progress import in_parallel
from .terminal import print_result

__all__ = ["add_actions"]


def add_actions(actions: Commands) -> None:
    """Add the subcommands ``pack`` and ``judge`` to the parser of ``sptc gpu``."""
    pack = actions.add_parser(
        "pack",
        help="write a script, independent of sptc, that records GPU results",
        description="Write a Python file with the conformance packs of all instructions of a GPU. The Python file "
        "needs a GPU driver and numpy. The file runs the packs and writes their results (at most 5 MB) for `sptc gpu "
        "judge`.",
    )
    add(pack, "instruction", nargs="+", default=[], help="instructions to run (default: all that the target has)")
    pack.add_argument("--arch", required=True, choices=sorted(TARGETS), metavar="ARCH", help="PTX target, e.g. sm_100")
    add(pack, "output", required=True, metavar="RECORD.py")
    add(pack, "seed", default=0, note=" (default %(default)s)")
    add(pack, "jobs")
    pack.set_defaults(execute=_pack)

    judge = actions.add_parser(
        "judge",
        help="compare the results of a script of `sptc gpu pack` with the model",
        description="Compare the results that a script of `sptc gpu pack` wrote with the model. A row is one "
        "instruction with one sparsity selector. If a row differs, print which wrong models, each "
        "with one wrong parameter or rule, give its results. Exit status 0: every row equals the model. "
        "1: a row differs or was not run.",
    )
    judge.add_argument(
        "results", type=Path, metavar="RESULTS.json", help="file of results that the script of `sptc gpu pack` wrote"
    )
    add(judge, "jobs", "json")
    judge.set_defaults(execute=_judge)


def _pack(options: argparse.Namespace) -> int:
    require_writable(options.output)
    rows = rows_of(options.arch, options.instruction)
    text = script(options.arch, options.seed, rows, _chosen(options.arch, options.seed, rows, options.jobs))
    write_whole(options.output, text.encode("ascii"))
    print(f"{options.output}: script that records {counted(len(rows), 'row')} of {options.arch}")
    return 0


def _chosen(name: str, seed: int, rows: list[Row], jobs: int | None) -> list[Pack]:
    """Return the conformance pack (chosen test cases) of each row, which is an instruction with a sparsity selector."""
    tasks = {f"row {number}, {row.subject.name}": (row, name, seed) for number, row in enumerate(rows)}
    return in_parallel("pack", Row.choose, tasks, jobs)


def _judge(options: argparse.Namespace) -> int:
    record = read_record(options.results)
    judged = list(
        judge_record(options.results, record, lambda name, seed, rows: _chosen(name, seed, rows, options.jobs))
    )
    rules = rules_decided(judged)
    gpu, right = record["gpu"], sum(row.as_modelled for row in judged)
    values = {"gpu": gpu, "target": record["target"], "rows": [_as_dict(row) for row in judged], "rules": rules}
    lines = [
        f"{'all' if right == len(judged) else f'{right:,} of'} {counted(len(judged), 'row')} equal to the model",
        f"{gpu.get('name')}, {record['target']}, driver {gpu.get('driver')}, CUDA {gpu.get('cuda')}",
        *(f"{_name(row)}: {_verdict(row)}" for row in judged if not row.as_modelled),
    ]
    for key, counts in rules.items():
        lines.append(
            f"rule '{key}' ({OPEN_RULES[key].name}): {counts['built']} rows agree with the modelled rule, "
            f"{counts['alternative']} with its alternative, {counts['neither']} with neither"
        )
    return print_result(options, values, "\n".join(lines), good=right == len(judged))


def _name(row: RowJudgement) -> str:
    selectors = row.row.subject.instruction.sparsity_selectors
    return row.row.subject.name + (f", selector {row.row.sparsity_selector}" if selectors > 1 else "")


def _verdict(row: RowJudgement) -> str:
    if row.error:
        return f"not run ({row.error})"
    if row.as_modelled:
        return "as modelled"
    if row.judgement is None:
        return "differs; the file does not contain the results of this row"
    if row.explained_by:
        return f"the results are those of a model with {', or with '.join(row.explained_by)}"
    judgement = row.judgement
    return (
        f"{judgement.differing} of {judgement.outputs} outputs of D and {judgement.beside} words outside D differ; "
        f"nearest model: {judgement.nearest or 'the right model'}, which gives {judgement.explained} of the outputs"
    )


def _as_dict(row: RowJudgement) -> dict[str, object]:
    return {
        "instruction": row.row.subject.name,
        "selector": row.row.sparsity_selector,
        "as_modelled": row.as_modelled,
        "explained_by": list(row.explained_by),
        "error": row.error or None,
        "verdict": _verdict(row),
    }
