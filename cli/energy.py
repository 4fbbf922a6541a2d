"""``sptc energy``: report energy per multiplication by a stored element of A, by stage, instruction and operands."""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Error
from ..gemm.operands import ProductRequest, prepare
from ..gemm.ways import Way
from ..gpu.distributions import DISTRIBUTIONS
from ..infra.escapes import one_line
from ..isa.architectures import require_target
from ..isa.instructions import Instruction
from ..isa.names import in_registers
from ..isa.numerics import Method, Numerics, numerics
from ..isa.operands import MatrixOperands
from ..isa.timing import ARCHITECTURE, timing
from ..rtl.config import WARP_ROWS, CoreConfig
from ..sim.coverage.operands import operation_of
from .configuration import add_datapath, datapath, library_of
from .factors import add_matrices, add_transpose, architecture_of, sources
from .options import Commands, add, flag, integer, switch, words
from .progress import progress_bar
from .terminal import print_result

if TYPE_CHECKING:
    from ..synth.energy.electrical import CellLibrary
    from ..synth.energy.measure import Measured

__all__ = ["add_parser"]

#: Default instructions: a sparse instruction, and a dense instruction for comparison.
_INSTRUCTIONS = (
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
)
_DISTRIBUTIONS = ("zeros", "half", "positive", "normal")
_CYCLES = 100_000
_WHOLE_STEP = 16
_TOPS = ("unit", "warp")
#: Options that are valid only with ``--top unit``.
_UNIT_OPTIONS = ("flat", "glitches", "what_if")


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc energy`` to the command line."""
    parser = commands.add_parser(
        "energy",
        help="estimate the energy per product of a stored element of A",
        description="Map a metadata decoder and a unit, or a warp, to the cells of a liberty file. Run chains of "
        "instructions through the mapped netlist in the order in which an array executes them. Compare every result "
        "with the golden model. Count the toggles of the nets and report energy in fJ per kept product, by stage, by "
        "instruction and by operands. Operands follow a distribution or are two matrices. Wires have no capacitance. "
        "Gates have no delay, unless --glitches is given. A step of the unit takes 16 bytes of stored A or a multiple "
        "of 16 bytes (--step-bytes, --products).",
    )
    parser.add_argument(
        "instructions",
        nargs="*",
        metavar="INSTRUCTION",
        help="mma or wgmma instructions without block scales (default: sparse and dense f16 with f32 accumulator)",
    )
    add_datapath(parser, default="hopper")
    add(parser, "arch", note=" of the golden model (default: of the files of A and B, or of the datapath)")
    note = ", with power tables; repeat it for more files (default: no library, count switched gate equivalents)"
    add(parser, "liberty", nargs=1, note=note)
    add(parser, "dont_use", nargs=1)
    parser.add_argument(
        "--operands",
        type=_distributions,
        metavar="LIST",
        help=f"comma-separated distributions of the values of A and B: {', '.join(DISTRIBUTIONS)}, or a share of zeros "
        f"among normally distributed numbers, e.g. 25%% (default: {','.join(_DISTRIBUTIONS)})",
    )
    add_matrices(parser)
    add_transpose(parser)
    add(parser, "prune", note=" (sparse instructions)")
    parser.add_argument(
        "--cycles",
        type=integer(1, 1_000_000_000),
        default=_CYCLES,
        metavar="N",
        help=f"minimum number of simulated cycles, unless multiplying --a by --b takes fewer (default: {_CYCLES})",
    )
    add(parser, "seed", default=0, note=" (default %(default)s)")
    add(
        parser,
        "top",
        choices=_TOPS,
        default="unit",
        help="module to map to cells: unit (a dot-product unit with its metadata decoder) or warp (an array of units "
        "with the logic that moves operands and results between registers and array); default unit",
    )
    switch(
        parser,
        "--flat",
        "map the flattened netlist, as `sptc area` does, and report no stages (default: map each module separately)",
    )
    switch(
        parser,
        "--glitches",
        "give every gate a delay of one unit, count all toggles until the nets settle, and report the additional "
        "energy",
    )
    switch(
        parser,
        "--what-if",
        "also report the energy saved by operand isolation, by clock gating, by reordering K, and by a datapath with "
        "only the formats in use",
    )
    add(parser, "plot", help="draw energy by stage, and by share of zeros (needs pip install 'sptc[area]')")
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="FILE.csv",
        help="also write the energy of each action for estimators such as Accelergy",
    )
    add(parser, "json")
    parser.set_defaults(execute=_execute)


def _distributions(text: str) -> tuple[str, ...]:
    from ..synth.energy.operands import share_of_zeros

    for word in words(text):
        if word not in DISTRIBUTIONS and share_of_zeros(word) is None:
            known = ", ".join(DISTRIBUTIONS)
            raise argparse.ArgumentTypeError(f"expected {known}, or a share of zeros such as 25%, not {word!r}")
    return words(text)


def _execute(options: argparse.Namespace) -> int:
    config = datapath(options)
    _check(options, config)
    texts = options.instructions or _INSTRUCTIONS[0 if config.sparse else 1 :]
    arch = architecture_of(options)
    instructions = [_measurable(text, config, options.top, arch) for text in texts]
    operands = _operand_names(options)
    from ..synth.energy.electrical import CellLibrary
    from ..synth.energy.gates import GATES
    from ..synth.energy.plot import plot
    from ..synth.energy.report import as_dict, table, write_csv

    library = library_of(options)
    cells = CellLibrary.of(library) if library else GATES
    cases = [(instruction, arch, name) for instruction, arch in instructions for name in operands]
    with progress_bar("instruction", "sptc energy") as progress:
        measured = _measured(options, config, cells, cases, progress)
    print_result(options, partial(as_dict, measured, cells), partial(table, measured, cells))
    if options.csv:
        write_csv(measured, cells, options.csv)
    if options.plot:
        plot(measured, cells, options.plot)
    return 0


def _check(options: argparse.Namespace, config: CoreConfig) -> None:
    """Raise an `Error` if the energy of the datapath cannot be measured, or an option needs another ``--top``."""
    if config.step_bytes % _WHOLE_STEP:
        raise Error(
            f"energy cannot be measured for units that read {config.step_bytes} bytes of stored A per cycle, only for "
            f"multiples of {_WHOLE_STEP} bytes: change --step-bytes or --products"
        )
    if options.top == "warp":
        for name in _UNIT_OPTIONS:
            if getattr(options, name):
                raise Error(f"{flag(name)} cannot be combined with --top warp")


def _measured(
    options: argparse.Namespace,
    config: CoreConfig,
    cells: "CellLibrary",
    cases: list[tuple[Instruction, str, str]],
    progress: Callable[[int, int], None],
) -> list["Measured"]:
    """Map the top module that ``--top`` names to cells, and measure the energy of each case.

    A case is an instruction, the architecture whose results the top module must give, and the name of the operands.
    """
    from ..synth.energy.measure import MappedUnit
    from ..synth.energy.warp import MappedWarp
    from ..synth.energy.what_if import what_ifs

    progress(0, len(cases) + 1)
    top: MappedUnit | MappedWarp
    if options.top == "warp":
        top = MappedWarp(config, cells)
    else:
        top = MappedUnit(config, cells, by_module=not options.flat, glitches=options.glitches)
    results = []
    for done, (instruction, arch, name) in enumerate(cases, 1):
        progress(done, len(cases) + 1)
        tiles = partial(top.tiles, instruction, options.cycles)
        drawn = _operands(options, instruction, arch, name, tiles)
        measured = top.measure(instruction, arch, drawn, name)
        if options.what_if and isinstance(top, MappedUnit):
            measured = replace(measured, what_if=dict(what_ifs(top, instruction, arch, drawn)))
        results.append(measured)
    progress(len(cases) + 1, len(cases) + 1)
    return results


def _measurable(text: str, config: CoreConfig, top: str, arch: str | None) -> tuple[Instruction, str]:
    """Parse an instruction, check that its energy can be measured, and return it with an architecture.

    If `arch` is None, the architecture is the first with the numerics of the datapath. Raise an `Error` if there is
    none, the instruction is neither ``mma`` nor ``wgmma``, or has block scales, or the datapath or the top module does
    not compute it.
    """
    instruction = in_registers(text, arch or ARCHITECTURE)
    arch = arch and require_target(instruction, arch)
    if instruction.family not in ("mma", "wgmma") or instruction.scale_format:
        raise Error(f"{text}: energy is measured only for mma and wgmma without block scales")
    if top == "warp" and (instruction.family, instruction.m) != ("mma", WARP_ROWS):
        raise Error(f"{text}: --top warp executes only mma with {WARP_ROWS} rows of A")
    if top == "warp" and timing(instruction, ARCHITECTURE) is None:
        raise Error(f"{text}: --top warp is measured only with instructions of {ARCHITECTURE}")
    if instruction.sparse and not config.sparse:
        raise Error(f"{text} is sparse, but the datapath does not support sparsity")
    for fmt in (instruction.a, instruction.b):
        config.element_code(fmt, instruction.container_bits)
    return instruction, arch or _arch_of(config, instruction)


def _arch_of(config: CoreConfig, i: Instruction) -> str:
    """Return an architecture on which an instruction has the numerics of a datapath, if possible sm_90.

    Raise an `Error` if no architecture has these numerics.
    """

    def limited(parameters: Numerics) -> Numerics:
        """Return numerics whose step has no more products than the instruction has along K."""
        return replace(parameters, step=min(parameters.step, i.stored_k), source="")

    for arch in sorted(i.architectures, key=lambda arch: arch != ARCHITECTURE):
        known = numerics(i, arch)
        if known.method is Method.INTEGER or limited(known) == limited(operation_of(config, i).numerics):
            return arch
    raise Error(
        f"{i}: no architecture sums products as the datapath {config.name} does: change the datapath, or add --arch "
        "ARCH to compare results with those of an architecture"
    )


def _operand_names(options: argparse.Namespace) -> list[str]:
    """Return the names of the operands in the report: distributions, or the files or tensors of ``--a`` and ``--b``.

    Raise an `Error` if only one of ``--a`` and ``--b`` is given, or both are given together with ``--operands``.
    """
    if (options.a is None) != (options.b is None):
        raise Error("--a and --b must be given together")
    if options.a is None:
        for name in ("prune", "a_tensor", "b_tensor", "transpose_b"):
            if getattr(options, name):
                raise Error(f"{flag(name)} needs --a and --b")
        return list(dict.fromkeys(options.operands or _DISTRIBUTIONS))
    if options.operands:
        raise Error("--operands cannot be combined with --a and --b")
    pairs = ((options.a, options.a_tensor), (options.b, options.b_tensor))
    return [" x ".join(one_line(tensor or path.name) for path, tensor in pairs)]


def _operands(
    options: argparse.Namespace, instruction: Instruction, arch: str, name: str, tiles: Callable[[int], int]
) -> MatrixOperands:
    """Return operands of ``tiles(n)`` sequences of n instructions that accumulate along K, from files or at random."""
    from ..synth.energy.operands import CHAIN, cut, drawn

    rng = np.random.default_rng(options.seed)
    if options.a is None:
        return drawn(instruction, name, tiles(CHAIN), rng)
    way = Way(instruction=str(instruction), arch=arch)
    request = ProductRequest(way, *sources(options), prune=options.prune and bool(instruction.sparse))
    with tempfile.TemporaryDirectory() as folder:
        factors = prepare(Path(folder), request).factors(instruction)
        return cut(instruction, factors.a, factors.b, factors.nibbles, tiles(factors.count), rng)
