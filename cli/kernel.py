"""``sptc kernel``: run compiled PTX kernels on the model, or list their instructions, copies and barriers."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..api.backends import BACKENDS
from ..infra.reading import read_text
from .options import add, integer
from .progress import progress_bar

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the parser of ``sptc kernel`` to the command line."""
    parser = commands.add_parser(
        "kernel",
        help="run a compiled PTX kernel on the model, or list its contents",
        description="Run a kernel that Triton, CUDA or another compiler wrote as PTX: a back end of this package "
        "executes its tensor-core instructions. Or list the tensor-core instructions, copies and barriers "
        "of a kernel, and everything that is not modelled.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser("run", help="run a kernel on arrays")
    run.add_argument("ptx", type=Path, metavar="K.ptx", help="PTX module")
    run.add_argument(
        "--launch",
        type=Path,
        required=True,
        metavar="LAUNCH.json",
        help="JSON file with grid, arrays and arguments of the launch",
    )
    add(run, "arch", default="sm_90", note=" (default %(default)s)")
    add(run, "backend", choices=BACKENDS, default="native", note=" of tensor-core instructions (default %(default)s)")
    run.add_argument("--limit", type=integer(1), metavar="N", help="stop after N thread instructions")
    run.add_argument(
        "--approximate", action="store_true", help="allow approximate functions, whose results are not exact"
    )
    run.add_argument(
        "--timing", action="store_true", help="print the cycles of tensor cores and shared memory, by loop"
    )
    run.add_argument("--no-check", action="store_true", help="do not check the order of accesses to shared memory")
    add(run, "output", metavar="FILE.npz", help="write all arrays of the launch after the run")
    add(run, "json", "github")
    run.set_defaults(execute=_run)
    show = actions.add_parser("show", help="list the instructions, copies and barriers of the kernels of a module")
    show.add_argument("ptx", type=Path, metavar="K.ptx", help="PTX module")
    add(show, "json")
    show.set_defaults(execute=_show)


def _run(options: argparse.Namespace) -> int:
    from ..kernels.launch_file import read_launch
    from ..tensors.files import check_output, write_tensors

    if options.output:
        check_output(options.output)
    ptx, launch = read_text(options.ptx), read_launch(options.launch)
    begun = time.monotonic()
    with progress_bar("CTA") as advance:
        run = launch.run(
            ptx,
            arch=options.arch,
            backend=options.backend,
            check=not options.no_check,
            approximate=options.approximate,
            limit=options.limit,
            progress=advance,
        )
    seconds = time.monotonic() - begun
    if options.output:
        write_tensors(options.output, {name: run.after(array) for name, array in launch.arrays.items()}, {})
    if options.json:
        print(json.dumps({
            "kernel": run.kernel, "ctas": run.ctas, "threads": run.threads, "seconds": round(seconds, 3),
            "instructions": run.instructions, "opcodes": run.opcodes,
            "cycles": run.cycles, "loops": [asdict(loop) for loop in run.loops],
            "findings": [asdict(finding) for finding in run.findings], "exact": run.exact,
        }))  # fmt: skip
    else:
        count = run.instructions
        print(f"{run.kernel}: {run.ctas} CTAs of {run.threads} threads; {count} thread instructions in {seconds:.2f} s")
        if not run.exact:
            print("not exact: approximate functions were executed")
        if options.timing:
            print("cycles of one SM for all CTAs; issue, latency and global memory are not modelled:")
            print("\n".join(f"  {loop}" for loop in run.loops))
        for finding in run.findings:
            print(finding)
    if options.github:
        for finding in run.findings:
            place = f"file={options.ptx},line={finding.line},title=sptc kernel"
            print(f"::warning {place}::{finding.text}", file=sys.stderr)
    return int(bool(run.findings))


def _show(options: argparse.Namespace) -> int:
    from ..kernels.summary import summaries

    kernels = summaries(read_text(options.ptx))
    if options.json:
        print(json.dumps({"kernels": [asdict(summary) for summary in kernels]}))
    else:
        print("\n".join(line for summary in kernels for line in summary.lines()))
    return 0
