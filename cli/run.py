"""``sptc run``: replay register files (operands and recorded results), and compare the results."""

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..api.backends import BACKENDS, MODELS
from ..api.operands import METADATA_POLICIES
from ..errors import Error, FileError
from ..infra.counts import counted
from ..isa.architectures import same_numerics
from ..show.outcomes import by_instruction, first_mismatch, mismatch_text, outcomes_as_dict, outcomes_table
from ..verify.dot_products import shipped_dot_products
from ..verify.register_file import shipped
from ..verify.replay import Outcome, replay
from .options import Commands, add, integer, refuse
from .progress import bar
from .reports import Check, report
from .terminal import listed, print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc run`` to the command line."""
    parser = commands.add_parser(
        "run",
        help="execute recorded instructions (.npz) and compare the results",
        description="Replay register files on the hardware and on the golden model. Compare the results with each "
        "other and with the D in the files. Without FILE.npz, replay the shipped recordings of an NVIDIA H200 and, "
        "unless the back end is a GPU or --arch is given, dot products of seven GPUs and single result words of a "
        "B200 that others recorded. The table lists cycles as interval/latency of one instruction: for wgmma with A in "
        "registers, then with A in shared memory. With back ends warp, warpgroup and tcgen05, --json also has "
        "simulated_cycles: the cycles of all tiles in the simulated hardware, from the first instruction accepted to "
        "the last result.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.npz", help="files of operands and results")
    add(parser, "backend", choices=BACKENDS, default="rtl", note=" (default %(default)s)")
    add(parser, "arch", note=" (default: the architecture named in each file)")
    parser.add_argument("--metadata", choices=METADATA_POLICIES, help="treatment of undefined metadata nibbles")
    parser.add_argument("--limit", type=integer(1), metavar="N", help="replay at most N random tiles of each file")
    add(parser, "seed", help="seed of the random choice of tiles for --limit and --waves (default 0)")
    parser.add_argument(
        "--waves", type=Path, metavar="FILE.vcd", help="simulate one tile of FILE.npz in pysim (Amaranth); write waves"
    )
    add(parser, "verbose", help="print the table of all instructions even if standard output is a terminal")
    add(parser, "json", "junit", "github")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if options.waves:
        refuse(options, ("backend", "limit"), "cannot be combined with --waves, which simulates one tile in pysim")
    elif not options.limit:
        refuse(options, ("seed",), "needs --limit or --waves")
    limit = 1 if options.waves else options.limit
    files = _with_waves(options) if options.waves else list(_replayed(options, options.backend, limit))
    outcomes = [outcome for file in files for outcome in file]
    if not any(outcome.outputs or outcome.mismatches for outcome in outcomes):
        raise FileError(
            "no output was compared: no file holds a result D, and the back end is the golden model; choose another "
            "--backend"
        )
    good = not any(outcome.mismatches for outcome in outcomes)
    lines = [_verdict(outcomes, limit), *([] if good else [mismatch_text(first_mismatch(outcomes), limit)])]
    lines += [outcomes_table(outcomes, len(files))] if options.verbose or not sys.stdout.isatty() else []
    values = partial(outcomes_as_dict, outcomes, len(files))
    status = print_result(options, values, "\n".join(lines), good=good)
    report(options, _checks(outcomes, limit))
    return status


def _verdict(outcomes: list[Outcome], limit: int | None) -> str:
    """Return one sentence on how many replayed outputs equal the recorded ones, and which instructions differ."""
    rows = by_instruction(outcomes)
    drawn = f", at most {counted(limit, 'random tile')} of each file" if limit else ""
    outputs, flags, _ = _counts(outcomes)
    if names := [str(row["instruction"]) for row in rows if row["mismatches"]]:
        where = f"{len(names):,} of {counted(len(rows), 'instruction')}{drawn}: {listed(names)}"
        return f"{_differences(outcomes)}, in {where}"
    equal = f"all {outputs} of {counted(len(rows), 'instruction')} equal"
    return equal + (f", and all {flags}" if flags else "") + drawn


def _counts(outcomes: list[Outcome]) -> list[str]:
    """Return the numbers of outputs, metadata flags and differences as texts; the text of zero is empty."""
    nouns = {"outputs": "output", "flags": "metadata flag", "mismatches": "difference"}
    numbers = {noun: sum(getattr(one, name) for one in outcomes) for name, noun in nouns.items()}
    return [counted(number, noun) if number else "" for noun, number in numbers.items()]


def _differences(outcomes: list[Outcome]) -> str:
    outputs, flags, differences = _counts(outcomes)
    return f"{differences} among {' and '.join(filter(None, (outputs, flags)))}"


def _with_waves(options: argparse.Namespace) -> list[list[Outcome]]:
    """Replay one tile of a register file (``.npz``) in Amaranth's simulator, and write the waves of all signals."""
    from ..sim.engine.engine import engine_for

    if len(options.files) != 1:
        raise FileError(f"--waves takes exactly one register file (.npz), not {len(options.files)}")
    # Check the file before a simulator is created: Amaranth warns about a simulator that never runs.
    [checked] = _replayed(options, "golden", 1)
    if len(checked) != 1:
        raise FileError(f"--waves does not take dot products: {options.files[0]} holds {len(checked)} sets of them")
    with engine_for(same_numerics(checked[0].arch), "amaranth").waves(options.waves):
        return list(_replayed(options, "pysim", 1))


def _replayed(options: argparse.Namespace, backend: str, limit: int | None) -> Iterator[list[Outcome]]:
    """Yield the outcomes of each ``.npz`` file: one for a recorded batch, or one for each set of dot products."""
    paths: list[Path] = options.files or [*shipped()]
    if not paths:
        raise FileError("the shipped recordings are not installed: install them with `pip install sptc-recordings`")
    if not options.files and backend in MODELS and not options.arch:
        paths = [*paths, *shipped_dot_products()]
    for path in bar("file", paths):
        try:
            yield replay(
                path, backend=backend, arch=options.arch, metadata=options.metadata, limit=limit, seed=options.seed or 0
            )
        except FileError:
            raise
        except Error as error:
            raise FileError(f"{path}: {error}") from None


def _checks(outcomes: list[Outcome], limit: int | None) -> Iterator[Check]:
    for row in by_instruction(outcomes):
        name, arch = str(row["instruction"]), str(row["arch"])
        group = [outcome for outcome in outcomes if (outcome.name, outcome.arch) == (name, arch)]
        problem = ""
        if row["mismatches"]:
            problem = f"{_differences(group)}\n{mismatch_text(first_mismatch(group), limit)}"
        yield Check(arch, name, problem)
