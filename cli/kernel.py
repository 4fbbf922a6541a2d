"""``sptc kernel``: run compiled PTX kernels on the model, or list their instructions, copies and barriers."""

import argparse
import sys
import time
from pathlib import Path

from ..api.backends import BACKENDS
from ..infra.counts import counted
from ..infra.reading import read_text
from .options import Commands, add, integer, switch
from .progress import progress_bar
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
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
    add(
        run,
        "backend",
        choices=BACKENDS,
        default="native",
        help="back end that executes tensor-core instructions (default %(default)s)",
    )
    run.add_argument("--limit", type=integer(1), metavar="N", help="stop after N thread instructions")
    switch(run, "--approximate", "allow approximate functions, whose results are not exact")
    switch(run, "--timing", "print the cycles of tensor cores and shared memory for each loop")
    switch(run, "--no-check", "do not check the order of accesses to shared memory")
    add(run, "output", metavar="FILE.npz", help="write all arrays after the run; - is standard output")
    add(run, "json", "github")
    run.set_defaults(execute=_run)
    show = actions.add_parser("show", help="list the instructions, copies and barriers of the kernels of a module")
    show.add_argument("ptx", type=Path, metavar="K.ptx", help="PTX module")
    add(show, "json")
    show.set_defaults(execute=_show)


def _run(options: argparse.Namespace) -> int:
    from ..kernels.launch_file import read_launch
    from ..tensors.files import check_output, write_tensors

    ptx, launch = read_text(options.ptx), read_launch(options.launch)
    if options.output:
        check_output(options.output, launch.arrays)
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
        # Write the arrays that are arguments of the launch with their contents after the launch, which are in buffers.
        # Write all other arrays with their contents before the launch.
        after = {id(array): content for array, content in run.buffers}
        write_tensors(options.output, {name: after.get(id(one), one) for name, one in launch.arrays.items()}, {})
    names = ("kernel", "ctas", "threads", "seconds", "instructions", "opcodes", "cycles", "loops", "findings", "exact",
             "printed")  # fmt: skip
    values = {name: round(seconds, 3) if name == "seconds" else getattr(run, name) for name in names}
    size = f"{counted(run.ctas, 'CTA')} of {counted(run.threads, 'thread')}; {run.instructions} thread instructions"
    lines: list[object] = [*run.printed.splitlines(), f"{run.kernel}: {size} in {seconds:.2f} s"]
    if not run.exact:
        lines.append("not exact: approximate functions were executed")
    if options.timing:
        lines.append("cycles of one SM for all CTAs; issue, latency and global memory are not modelled:")
        lines += [f"  {loop}" for loop in run.loops]
    text = "\n".join(map(str, [*lines, *run.findings]))
    status = print_result(options, values, text, good=not run.findings, indent=None)
    if options.github:
        for finding in run.findings:
            place = f"file={options.ptx},line={finding.line},title=sptc kernel"
            print(f"::warning {place}::{finding.text}", file=sys.stderr)
    return status


def _show(options: argparse.Namespace) -> int:
    from ..kernels.summary import summaries

    kernels = summaries(read_text(options.ptx))
    text = "\n".join(line for summary in kernels for line in summary.lines())
    return print_result(options, {"kernels": kernels}, text, indent=None)
