"""``sptc campaign``: compare RTL and golden model on shards (groups of seeded random tiles), up to a given limit."""

import argparse
import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

from .. import __version__
from ..api.backends import MODELS, TOP_LEVEL
from ..errors import Error, FileError
from ..infra.counts import counted
from ..infra.pools import Pool, WorkError, cluster_pool, cores, local_pool
from ..isa.architectures import require_target, same_numerics
from ..isa.names import resolve
from ..rtl.config import PRESET_OF_ARCHITECTURE
from ..verify.campaign import Record, StateFolder, parameters, prepare, run, unfinished
from ..verify.register_file import write
from ..verify.replay import as_number
from ..verify.shards import DEFAULT_BACKEND, DEFAULT_TILES, Plan, Shard
from ..verify.shrink import reproduce
from .options import Commands, add, integer, positive, switch
from .progress import bar
from .reports import Check, report
from .terminal import listed, print_result

__all__ = ["add_limits", "add_parser", "common", "conduct"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc campaign`` to the command line."""
    parser = commands.add_parser(
        "campaign",
        help="compare hardware and golden model on random operands",
        description="Compare the hardware with the golden model on seeded random shards, on all cores. Consecutive "
        "shards cover every pair of formats of every datapath. Back ends warp, warpgroup and tcgen05 compute the "
        "instructions that these top-level modules execute. Each pass takes the next instruction and operand "
        "distribution of each pair. Without a limit, the campaign ends when every instruction and distribution has "
        "been used once. At the first mismatch, stop and write a register file with one tile that has a mismatch.",
    )
    add(parser, "arch", nargs="+", default=[], help="architectures to test (default: all)")
    add(
        parser,
        "preset",
        nargs="+",
        choices=[*dict.fromkeys(PRESET_OF_ARCHITECTURE.values())],
        default=[],
        help="presets of datapaths to test, with all architectures that each preset models",
    )
    add(add_limits(parser), "scheduler")
    add(
        parser,
        "backend",
        nargs="+",
        choices=[*(name for name in MODELS if name != "golden"), *TOP_LEVEL],
        default=[DEFAULT_BACKEND],
        help=f"back ends to compare with the golden model (default {DEFAULT_BACKEND})",
    )
    switch(parser, "--coverage", "sample functional coverage")
    parser.set_defaults(execute=_execute)


def add_limits(parser: argparse.ArgumentParser) -> "argparse._MutuallyExclusiveGroup":
    """Add the options that all campaign commands share; return the option group that contains ``--jobs``."""
    add(parser, "instruction", nargs="+", default=[], help="instructions to test, in PTX syntax (default: all)")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--seconds", type=positive, metavar="S", help="start no new tests after S seconds of this run")
    limit.add_argument(
        "--outputs", type=integer(1), metavar="N", help="stop after N outputs, including outputs of earlier runs"
    )
    limit.add_argument(
        "--shards", type=integer(1), metavar="N", help="stop after N shards (groups of tiles), earlier runs included"
    )
    limit.add_argument("--only", type=integer(0), metavar="INDEX", help="run only shard (group of tiles) number INDEX")
    add(parser, "tiles", default=DEFAULT_TILES, help="number of random tiles that form one shard (default %(default)s)")
    add(parser, "seed", note=" (default: a random seed, which is printed)")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="store the results of the campaign in this folder; the same command resumes the campaign",
    )
    add(parser, "verbose", help="also print the numbers of outputs and mismatches for each pair of element formats")
    add(parser, "json", "junit", "github")
    execution = parser.add_mutually_exclusive_group()
    add(execution, "jobs")
    return execution


def _execute(options: argparse.Namespace) -> int:
    by_preset = [arch for arch, preset in PRESET_OF_ARCHITECTURE.items() if preset in options.preset]
    for name, text in product(options.arch, options.instruction):
        if same_numerics(name) in (instruction := resolve(text, name).instruction).architectures:
            require_target(instruction, name)
    architectures = tuple(dict.fromkeys([*map(same_numerics, options.arch), *by_preset]))
    chosen = ["--arch", *architectures] if architectures else []
    backends = tuple(dict.fromkeys(options.backend))
    if options.coverage and DEFAULT_BACKEND not in backends:
        raise Error(f"--coverage is sampled only on back end {DEFAULT_BACKEND}: add {DEFAULT_BACKEND} to --backend")
    if backends != (DEFAULT_BACKEND,):
        chosen += ["--backend", *backends]
    plan = Plan(seed=0, architectures=architectures, backends=backends, **common(options))
    status, _ = conduct(options, plan, ["sptc", "campaign"], chosen)
    return status


def common(options: argparse.Namespace) -> dict[str, Any]:
    """Return the campaign parameters that the options of :func:`add_limits` set. The keys are parameter names."""
    return {
        "instructions": tuple(dict.fromkeys(resolve(text).name for text in options.instruction)),
        "tiles": options.tiles,
    }


def conduct(
    options: argparse.Namespace, plan: Plan, command: Sequence[str], chosen: Sequence[str]
) -> tuple[int, Record]:
    """Run a campaign and print its result. Return the exit status and the campaign's record, even after an interrupt.

    The options are those of :func:`add_limits`, and `coverage`: whether to sample functional coverage. The seed of
    `plan` is replaced by ``--seed``, else by the seed of the resumed campaign, else by a random seed. `command` has the
    words of the command, and `chosen` the other options that determine the plan, without those of :func:`add_limits`.
    """
    if options.only is not None and options.state:
        raise FileError("--only cannot be combined with --state: the result of a single shard is not stored")
    plan = replace(plan, seed=options.seed or 0)
    with closing(StateFolder(options.state)) if options.state else nullcontext() as folder:
        if options.seed is None:
            resumed = folder.parameters if folder else None
            seed = resumed["seed"] if resumed else secrets.randbelow(1 << 32)
            plan = replace(plan, seed=seed)
        if folder:
            folder.begin(parameters(plan, options.coverage, __version__))
        record = Record(plan, folder, options.coverage)
        if not options.json:
            print(f"seed {plan.seed}", flush=True)
        return _Run(options, record, command, chosen).execute(), record


class _Run:
    """One run of a command that compares shards of random tiles (a campaign) and prints the result."""

    def __init__(
        self, options: argparse.Namespace, record: Record, command: Sequence[str], chosen: Sequence[str]
    ) -> None:
        self.options = options
        self.command = command
        self.chosen = chosen
        self.record = record
        self.before = record.total.outputs
        self.seconds = 0.0
        self.mismatch: dict[str, Any] | None = None

    def execute(self) -> int:
        options, interrupted = self.options, False
        with cluster_pool(options.scheduler) if options.scheduler else local_pool(options.jobs or cores()) as pool:
            try:
                self._run(pool)
                if self.record.failed:
                    self.mismatch = self._describe(self.record.failed, pool)
            except WorkError as error:
                if not isinstance(error.argument, Shard):
                    raise
                again = self._rerun(error.argument.index)
                raise Error(
                    f"shard {error.argument.index} (group of tiles) failed: it {error.reason}; repeat it with `{again}`"
                ) from error
            except KeyboardInterrupt:
                interrupted = True
        if not (interrupted or self.record.total.outputs):
            raise Error("no output was compared, because time was up before the first shard: increase --seconds")
        good = not (self.record.failed or self._contradicted())
        status = print_result(options, partial(self._as_dict, interrupted), self._text, good=good)
        report(options, self._checks(), self.record.plan.seed)
        if interrupted:
            kept = f"; finished shards are stored in {options.state}" if options.state else ""
            print(f"{' '.join(self.command)}: interrupted{kept}", file=sys.stderr)
            return 130
        return status

    def _contradicted(self) -> list[str]:
        """Return the names of coverage bins that were hit although the bins are declared unreachable.

        A hit of an unreachable bin fails the campaign even if no shard has a mismatch.
        """
        groups = self.record.coverage or ()
        return [f"{group.configuration} {group.name}: {name}" for group in groups for name in group.contradicted(3)]

    def _run(self, pool: Pool) -> None:
        options, record = self.options, self.record
        shards = (
            unfinished(record, shards=self._last(), outputs=options.outputs)
            if options.only is None
            else iter([record.plan.shard(options.only)])
        )
        if record.failed:
            return
        prepare(record, pool, here=not options.scheduler)
        with bar("shard", total=self._last(), initial=record.total.shards) as shown:
            begun = time.monotonic()

            def finished() -> None:
                self.seconds = time.monotonic() - begun
                shown.set_postfix_str(f"{self._speed():.3g} outputs/s{self._coverage_in_short()}", refresh=False)
                shown.update(record.total.shards - shown.n)

            run(record, pool, shards, options.seconds, finished)

    def _last(self) -> int | None:
        """Return the number of shards (groups of tiles) to run; None if time or a number of outputs is the limit."""
        options = self.options
        if options.only is not None:
            return 1
        return options.shards or (None if options.seconds or options.outputs else self.record.plan.lap)

    def _speed(self) -> float:
        return (self.record.total.outputs - self.before) / self.seconds if self.seconds else 0.0

    def _coverage_in_short(self) -> str:
        reached, reachable = self.record.reached
        return f", coverage {100 * reached / reachable:.1f} %" if reachable else ""

    def _rerun(self, index: int) -> str:
        plan = self.record.plan
        words = [*self.command, "--seed", str(plan.seed), "--tiles", str(plan.tiles), *self.chosen]
        words += ["--instruction", *plan.instructions] if plan.instructions else []
        return shlex.join([*words, "--only", str(index)])

    def _describe(self, shard: Shard, pool: Pool) -> dict[str, Any]:
        """Write reduced operands that still cause the mismatch as an ``.npz`` file. Return a JSON description."""
        path = (self.options.state or Path()) / f"campaign-{shard.seed}-shard-{shard.index}.npz"
        description: dict[str, Any] = {
            "shard": shard.index,
            "arch": shard.arch,
            "instruction": shard.subject.name,
            "distribution": shard.distribution,
            "rerun": self._rerun(shard.index),
            "file": None,
        }
        [reproduced] = chain.from_iterable(pool.run(reproduce, [(shard,)]))
        if reproduced is None:
            return description | {"note": "the shard has no mismatch when it is run again; start a new campaign"}
        try:
            write(path, reproduced.file)
        except FileError as error:
            print(f"{' '.join(self.command)}: {error}", file=sys.stderr)
            return description | {"note": "the register file that reproduces the mismatch is not written"}
        first, fmt = reproduced.mismatch, shard.instruction.d
        for name, code in (("computed", first.computed), ("expected", first.expected)):
            description[name] = str(code) if first.is_flag else f"0x{code:0{fmt.bits // 4}x}"
            description[f"{name}_number"] = repr(code if first.is_flag else as_number(code, fmt))
        position = {"case": first.case, "row": first.row, "chunk" if first.is_flag else "column": first.column}
        (backend, *_), replay = self.record.plan.backends, ["sptc", "run", str(path)]
        replay += ["--backend", backend] if backend != DEFAULT_BACKEND else []
        return description | position | {"file": str(path), "replay": shlex.join(replay)}

    def _checks(self) -> Iterator[Check]:
        for (preset, pair), totals in sorted(self.record.pairs.items()):
            differ = f"{totals.mismatches:,} of {totals.outputs:,} outputs differ"
            yield Check(preset, pair, "\n".join([differ, *self._mismatch_as_text()]) if totals.mismatches else "")
        for name in self._contradicted():
            yield Check("coverage", name, "the coverage bin was hit, but is declared unreachable")

    def _as_dict(self, interrupted: bool) -> dict[str, Any]:
        record = self.record
        result: dict[str, Any] = {
            "seed": record.plan.seed,
            "pairs": [
                {"preset": preset, "pair": pair, **vars(totals)} for (preset, pair), totals in record.pairs.items()
            ],
            "total": {**vars(record.total), "seconds": self.seconds, "outputs_per_second": self._speed()},
            "interrupted": interrupted,
            "mismatch": self.mismatch,
        }
        if record.coverage is not None:
            reached, reachable = record.reached
            result["coverage"] = {"reached": reached, "reachable": reachable, "contradicted": self._contradicted()}
        return result

    def _text(self) -> str:
        """Return the result of the campaign as text; ``--verbose`` adds a table with a line per pair of formats."""
        contradicted = self._contradicted()
        lines = [self._verdict(len(contradicted)), *self._mismatch_as_text()]
        lines += [f"coverage bin hit, but declared unreachable: {name}" for name in contradicted]
        return "\n".join(lines + [self._table()] * self.options.verbose)

    def _verdict(self, contradicted: int) -> str:
        total, pairs = self.record.total, self.record.pairs
        if not total.outputs:
            return "no output was compared: no shard was run"
        new = f"{counted(total.outputs - self.before, 'output')} in this run, " if self.before else ""
        speed = f"{new}{self.seconds:.1f} s, {self._speed():,.0f} outputs/s{self._coverage_in_short()}"
        shards = f"{counted(total.shards, 'shard')} and {counted(len(pairs), 'pair')} of formats"
        if names := sorted(f"{preset}: {pair}" for (preset, pair), one in pairs.items() if one.mismatches):
            return f"{total.mismatches:,} of {counted(total.outputs, 'output')} of {shards} differ, in {listed(names)}"
        reached = f", but {counted(contradicted, 'unreachable coverage bin')} hit" if contradicted else ""
        return f"all {counted(total.outputs, 'output')} of {shards} equal{reached}: {speed}"

    def _table(self) -> str:
        rows = [(f"{preset}: {pair}", totals) for (preset, pair), totals in sorted(self.record.pairs.items())]
        rows.append(("total", self.record.total))
        width = max(len(name) for name, _ in [("datapath: formats", None), *rows])
        lines = [f"{'datapath: formats':{width}}  {'shards':>7} {'outputs':>12} {'mismatches':>10}"]
        lines += [f"{name:{width}}  {one.shards:>7} {one.outputs:>12} {one.mismatches:>10}" for name, one in rows]
        return "\n".join(lines)

    def _mismatch_as_text(self) -> list[str]:
        first = self.mismatch
        if first is None:
            return []
        place = f"first mismatch: shard {first['shard']}, {first['arch']}, {first['instruction']}, "
        place += f"{first['distribution']} operands"
        if first["file"] is None:
            return [f"{place}: {first['note']}", f"run the shard again with: {first['rerun']}"]
        if "chunk" in first:
            values = (
                f"chunk {first['chunk']}: metadata flag {first['computed']}, but the rule gives {first['expected']}"
            )
        else:
            values = f"column {first['column']}: computed {first['computed']} ({first['computed_number']}), "
            values += f"golden model {first['expected']} ({first['expected_number']})"
        return [
            f"{place}, row {first['row']}, {values}",
            f"replay it with: {first['replay']}",
            f"run the shard again with: {first['rerun']}",
        ]
