"""``sptc prove``: prove properties of the RTL formally."""

import argparse
import sys
from collections.abc import Collection, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..errors import Error
from ..infra.counts import counted
from ..infra.files import create_folder
from ..infra.pools import cores, local_pool
from ..rtl.config import PRESETS
from .configuration import add_datapath, datapaths
from .options import Commands, add, positive, refuse_others, switch
from .progress import bar
from .reports import Check, report
from .terminal import listed, print_result

__all__ = ["add_parser"]

#: Presets for which ``--quick`` proves properties.
_QUICK = ("tiny", "hopper")
#: Maximum recorded processor time of a proof that ``--quick`` runs, in seconds.
_QUICK_SECONDS = 10.0
#: Default time limit per solver query, in seconds.
_LIMIT = 400.0


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc prove`` to the command line."""
    parser = commands.add_parser(
        "prove",
        help="prove properties of the hardware formally",
        description="Prove each property of the hardware of sptc for every datapath, and check that no proof is "
        "vacuous. The arguments are names of properties; Verilog files cannot be proved. If a property "
        "fails, print its counterexample. With --trace, also write the counterexample as waves. Exit status 0: all "
        "properties are proved. 1: a property failed, is undecided or is vacuous.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="properties or topics (default: all; see --list)")
    switch(parser, "--list", "list the properties and the time that each takes")
    switch(
        parser,
        "--quick",
        f"run only proofs whose recorded processor time is at most {_QUICK_SECONDS:g} s; unless datapaths are "
        f"named, only for {' and '.join(_QUICK)}",
    )
    add(parser, "jobs")
    parser.add_argument(
        "--seconds",
        type=positive,
        default=_LIMIT,
        metavar="S",
        help="time limit per solver query in seconds (default %(default)g)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="skip proofs that FILE already lists for the same netlist and claims, and add new proofs to FILE",
    )
    switch(parser, "--first", "stop at the first property that is not proved")
    parser.add_argument("--trace", type=Path, metavar="FOLDER", help="write counterexamples as VCD to this folder")
    add(parser, "verbose", help="print a line for each proof when it ends, and the verdict last")
    add(parser, "json", "junit", "github")
    add_datapath(parser, several=True)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..formal.catalogue import chosen
    from ..formal.properties import Case, cases
    from ..formal.record import Record, expected_seconds, read_record, source_digest
    from ..formal.report import Table, as_dict, counterexample, listed_as_dict, write_trace
    from ..formal.report import listed as property_list

    properties = chosen(options.names)
    if options.list:
        refuse_others(options, ("names", "list", "json"), "has no effect with --list")
        return print_result(options, listed_as_dict(properties), property_list(properties))
    configs = datapaths(options) or [PRESETS[name] for name in (_QUICK if options.quick else PRESETS)]
    proofs: list[Case] = cases(properties, configs)
    if options.quick:
        proofs = [case for case in proofs if expected_seconds(case) <= _QUICK_SECONDS]
    if not proofs:
        raise Error("there is nothing to prove: none of the chosen properties applies to a chosen datapath")
    if options.trace:
        create_folder(options.trace)
    record = read_record(options.record) if options.record else None
    table, rows, checks = Table(proofs), {}, []
    failures: list[str] = []
    recorded: list[Any] = []

    def show(text: str) -> None:
        """Print a line above the progress bar and flush standard output, for ``--verbose``."""
        if options.verbose:
            tqdm.write(text)
            sys.stdout.flush()

    show(table.head)
    known = record.by_digest if record else {}
    with closing(_settled(proofs, options.jobs or cores(), options.seconds, known)) as outcomes:
        for outcome, proof in outcomes:
            if record and outcome.result == "proved":
                recorded.append(proof)
                if proof not in record.proofs:  # write each proof immediately, so an interrupted run can be continued
                    record = record.with_proof(proof)
                    record.write(options.record)
            number, file = proofs.index(outcome.case), None
            if options.trace and outcome.trace:
                file = options.trace / f"{outcome.case.subject.name}-{number}.vcd"
                write_trace(outcome.trace, file)
            rows[number] = as_dict(outcome) | {"trace": file and str(file)}
            show(table.row(outcome))
            topic, _, name = outcome.case.subject.name.partition(".")
            problem = "" if outcome.result == "proved" else counterexample(outcome)
            checks.append(Check(topic, f"{name} {outcome.case.described}", problem, outcome.seconds))
            if problem:
                failures.append(problem + (f"\n  waves: {file}" if file else ""))
                show(failures[-1])
                if options.first:
                    break
    show(table.total)
    is_complete = len(recorded) == len(proofs) and not (options.names or options.quick or datapaths(options))
    if record and is_complete:  # drop the recorded proofs that are not part of this run
        Record(source_digest(), tuple(recorded)).write(options.record)
    values = {"proofs": [row for _, row in sorted(rows.items())]}
    counts = {"proved": len(rows) - len(failures), "failed": len(failures)}
    lines = [_verdict(rows.values(), len(proofs)), *([] if options.verbose else failures)]
    status = print_result(options, values | counts, "\n".join(lines), good=not failures)
    report(options, checks)
    return status


def _verdict(rows: Collection[Mapping[str, Any]], proofs: int) -> str:
    """Return one sentence on how many of `proofs` proofs succeeded, and which properties are not proved."""
    failed = [f"{row['property']} is {row['result']}" for row in rows if row["result"] != "proved"]
    if not failed:
        properties = counted(len({row["property"] for row in rows}), "property")
        return f"{'all ' * (len(rows) > 1)}{counted(len(rows), 'proof')} of {properties} succeeded"
    left = f"; {counted(proofs - len(rows), 'proof')} not attempted" if len(rows) < proofs else ""
    return f"{len(failed):,} of {counted(len(rows), 'proof')} failed: {listed([*dict.fromkeys(failed)])}{left}"


def _settled(
    proofs: list[Any], jobs: int, limit: float, known: Mapping[str, Any]
) -> Generator[tuple[Any, Any], None, None]:
    """Yield the outcome and the record of each proof in order of completion; the longest proofs are started first.

    `known` holds recorded proofs, which are not repeated; a key is the digest of a problem.
    """
    from ..formal.record import expected_seconds, settle_unless_recorded

    waiting, failed = sorted(proofs, key=expected_seconds, reverse=True), 0
    with local_pool(jobs) as pool, bar("proof", total=len(proofs)) as shown:
        for pairs in pool.run(settle_unless_recorded, ((case, limit, known) for case in waiting)):
            for outcome, proof in pairs:
                shown.update()
                failed += outcome.result != "proved"
                shown.set_postfix_str(f"{failed} not proved" if failed else "")
                yield outcome, proof
