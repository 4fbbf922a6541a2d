"""``sptc prove``: formal proofs of the hardware."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..errors import FileError
from ..infra.pools import cores, local_pool
from ..rtl.config import PRESETS
from .arguments import integer, seconds

__all__ = ["add_parser"]

#: Datapaths of the quick set.
_QUICK = ("tiny", "hopper")
#: Seconds for each question to a solver.
_LIMIT = 400.0


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "prove",
        help="prove properties of the hardware",
        description="Prove properties of the hardware, each for every datapath, and check that none holds for want of "
        "cases. Status 0: all proved; 1: a property is broken, undecided or vacuous; of a broken one the values that "
        "break it are printed and, with --trace, written as waves.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="properties or topics (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="print what there is to prove, and prove nothing")
    parser.add_argument("--preset", nargs="+", choices=PRESETS, default=list(PRESETS), help="datapaths (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help=f"only of {' and '.join(_QUICK)}, and only what takes seconds"
    )
    parser.add_argument("--jobs", type=integer(1), default=cores(), metavar="N", help="processes (default: one a core)")
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=_LIMIT,
        metavar="S",
        help="for each question to a solver (default %(default)g)",
    )
    parser.add_argument("--trace", type=Path, metavar="FOLDER", help="write counterexamples there as VCD files")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..formal.catalogue import chosen
    from ..formal.properties import Case, cases
    from ..formal.report import as_dict, counterexample, table, write_trace

    properties = chosen(options.names)
    if options.list:
        found = {item.name: item.statement for item in properties}
        print(json.dumps(found, indent=1) if options.json else "\n".join(f"{n}\n    {s}" for n, s in found.items()))
        return 0
    presets = _QUICK if options.quick else options.preset
    wanted: list[Case] = cases(properties, [PRESETS[name] for name in presets])
    if options.quick:
        wanted = [case for case in wanted if not case.subject.slow]
    if options.trace:
        try:
            options.trace.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{options.trace} cannot hold traces ({error.strerror})") from None
    outcomes = sorted(_settled(wanted, options.jobs, options.seconds), key=lambda found: wanted.index(found.case))
    failed = [outcome for outcome in outcomes if outcome.result != "proved"]
    files = {}
    for outcome in failed:
        if options.trace and outcome.trace:
            name = f"{outcome.case.subject.name}-{wanted.index(outcome.case)}.vcd"
            write_trace(outcome.trace, options.trace / name)
            files[id(outcome)] = str(options.trace / name)
    if options.json:
        rows = [as_dict(outcome) | {"trace": files.get(id(outcome))} for outcome in outcomes]
        print(json.dumps({"proofs": rows, "proved": len(outcomes) - len(failed), "failed": len(failed)}, indent=1))
        return int(bool(failed))
    print(table(outcomes))
    for outcome in failed:
        print(f"\n{counterexample(outcome)}")
        if id(outcome) in files:
            print(f"  waves: {files[id(outcome)]}")
    return int(bool(failed))


def _settled(wanted: list[Any], jobs: int, limit: float) -> Iterator[Any]:
    """Yield the outcomes as they come, what takes longest begun first."""
    from ..formal.proof import settle

    waiting = sorted(wanted, key=lambda case: not case.subject.slow)
    with local_pool(jobs) as pool, tqdm(total=len(wanted), unit="proof", disable=None, leave=False) as bar:
        while waiting or pool.busy:
            while waiting and pool.accepts:
                pool.submit(settle, waiting.pop(0), limit)
            for outcome in pool.collect():
                bar.update()
                yield outcome
