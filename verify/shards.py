"""Shards of a campaign: independent comparisons of hardware with the golden model, determined by seed and index.

The plan repeats a rotation over all pairs of formats of all datapaths, in which the datapaths alternate. Each rotation
takes the next instruction of each pair of formats. Whenever an instruction occurs again, its operands have the next
distribution.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ..api.backends import TOP_LEVEL, backend
from ..api.recorder import Recorder
from ..errors import InstructionError
from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.instructions import ARCHITECTURES, Instruction, every_instruction, require_architecture
from ..isa.names import Subject, subject_named
from ..isa.tcgen05 import Opcode
from ..operands.arrangement import arrangement
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from ..rtl.tcgen05 import TCGEN05_ARRAY
from ..sim.benches.random_operands import distributions
from ..sim.coverage.groups import Coverage
from ..sim.coverage.steps import StepCoverage
from ..sim.engine.engine import engine_for
from ..sim.engine.tcgen05_commands import cta_command
from ..sim.engine.tops import tops_of
from .archive import Replayable
from .candidates import least_matrices
from .directed import directed_matrices
from .pack_files import every_subject, file_of
from .replay import flags_and_rules
from .stimulus import Given, draw_tiles, matrices_file, random_register_file
from .vector_steps import directed_steps

__all__ = [
    "DEFAULT_BACKEND",
    "DEFAULT_TILES",
    "LEAST",
    "Hits",
    "Plan",
    "Shard",
    "ShardResult",
    "both",
    "draw",
    "empty_coverage",
    "pair_of",
    "run_shard",
    "steps_beside",
]

#: Default back end to compare with the golden model.
DEFAULT_BACKEND = "rtl"
#: Default number of tiles that form one shard. With it, scheduling costs little, and a shard takes less than a second.
DEFAULT_TILES = 256
_DIRECTED = "directed"
#: Distribution of terms near zero. Command ``sptc gpu record --least`` uses it, and campaigns do not use it.
LEAST = "least"
_MATRICES = {_DIRECTED: directed_matrices, LEAST: least_matrices}
#: Number of steps (cycles) with directed inputs, which test a dot-product unit if coverage is sampled.
_DIRECTED_STEPS = 1024
#: Lock of the compiled model of the dot-product unit, which only one thread may use at once; a worker process of a
#: Dask cluster may have several threads.
_ENGINE = threading.RLock()

#: Coverage of a shard (group of tiles): for each group of bins, flat indices of bins that were hit, and hit counts.
Hits = dict[tuple[str, str], tuple[NDArray[np.intp], NDArray[np.int64]]]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Part of a campaign: tiles of one instruction with operands of one distribution, which are compared together."""

    #: Seed of the campaign, and index of the shard; together they determine the operands.
    seed: int
    index: int
    arch: str
    instruction: Instruction
    #: Name of the distribution of operands: ``"directed"``, :data:`LEAST`, or a name that is returned by the function
    #: `sptc.sim.benches.random_operands.distributions`.
    distribution: str
    any_nibble: bool  #: Whether metadata may have any of the sixteen nibbles, not only legal nibbles
    tiles: int  #: Number of tiles (operands of one instruction each) to compare
    backends: tuple[str, ...] = (DEFAULT_BACKEND,)  #: Back ends that are compared with the golden model
    opcode: Opcode | None = None  #: PTX opcode of a ``tcgen05.mma``

    @property
    def subject(self) -> Subject:
        """Instruction that this shard (group of tiles) tests, with its opcode if it is a ``tcgen05`` instruction."""
        return Subject(self.instruction, self.opcode)

    @property
    def preset(self) -> str:
        """Name of the datapath preset that computes the tiles."""
        return PRESET_OF_ARCHITECTURE[self.arch]

    @property
    def pair(self) -> str:
        """Formats of A, B and D, kind and block scales of the instruction, as one name."""
        return pair_of(self.instruction)

    @property
    def outputs(self) -> int:
        """Number of outputs in the comparison of this shard (group of tiles): all elements of D."""
        return self.tiles * self.instruction.m * self.instruction.n


@dataclass(frozen=True)
class ShardResult:
    """Result of the comparison of back ends with the golden model on one shard (group of tiles) of a campaign."""

    shard: Shard
    #: Number of outputs and flags that differ from the golden model, for the first back end with a difference.
    mismatches: int
    a_from: str | None = None  #: Location of A, ``"registers"`` or ``"shared"``
    hits: Hits | None = None  #: Coverage bins that were hit; None if coverage was not sampled


def pair_of(instruction: Instruction) -> str:
    """Return one name that combines formats, kind and block scales of an instruction."""
    i = instruction
    scales = f"{i.scale_size}X {i.scale_format.name}" if i.scale_format else ""
    return " ".join(filter(None, (f"{i.a.name} x {i.b.name} to {i.d.name}", i.kind, scales)))


def _distributions(instruction: Instruction) -> tuple[str, ...]:
    return (*distributions(instruction), _DIRECTED)


@dataclass(frozen=True)
class _Place:
    """Instructions with equal formats on one datapath; each instruction has a list of architectures that support it."""

    preset: str
    instructions: tuple[tuple[Subject, tuple[str, ...]], ...]

    @property
    def visits(self) -> int:
        return len(self.instructions) * len(_distributions(self.instructions[0][0].instruction))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Endless sequence of shards (groups of tiles that are compared together), which make up a campaign.

    Raise an `InstructionError` if an instruction does not parse or is not tested; if an architecture has none of the
    instructions; or if the back ends execute none of them.
    """

    seed: int  #: Seed of the campaign
    architectures: tuple[str, ...] = ()  #: Architectures to test; if empty, all that support a chosen instruction
    #: Instructions to test. If empty: every ``mma`` and every ``wgmma`` with n = 8, or for back end ``tcgen05``,
    #: every ``tcgen05.mma`` with the smallest N. A back end that simulates a top-level module tests only instructions
    #: that the module executes.
    instructions: tuple[str, ...] = ()
    tiles: int = DEFAULT_TILES  #: Number of tiles that each shard (part of a campaign) compares
    backends: tuple[str, ...] = (DEFAULT_BACKEND,)  #: Back ends that are compared with the golden model
    #: Whether ``wgmma`` is tested with every n. If true, `instructions` may name any n, and empty `instructions` mean
    #: every n. If false, only n = 8 is tested.
    every_n: bool = False

    def __post_init__(self) -> None:
        for text in self.instructions:
            instruction = subject_named(text).instruction
            if instruction.family == "wgmma" and instruction.n != 8 and not self.every_n:
                raise InstructionError(f"{instruction} has n = {instruction.n}; only wgmma with n = 8 is tested")
            if self.architectures and not set(self.architectures) & set(instruction.architectures):
                require_architecture(instruction, self.architectures[0])
        for arch in self.architectures:
            if arch not in ARCHITECTURES:
                raise InstructionError(f"{arch!r} is no known architecture; expected {', '.join(ARCHITECTURES)}")
            if not any(arch in subject.instruction.architectures for subject in self._chosen()):
                raise InstructionError(f"{arch} has none of the instructions {', '.join(self.instructions)}")
        if not self._places:
            words = ", ".join(self.instructions or self.architectures) or "any instruction"
            raise InstructionError(
                f"no instruction runs on all back ends ({', '.join(self.backends)}); chosen: {words}"
            )

    def _chosen(self) -> Sequence[Subject]:
        if self.instructions:
            return list(dict.fromkeys(subject_named(text) for text in self.instructions))
        if "tcgen05" in self.backends:
            return [subject for subject in every_subject("sm_100") if subject.opcode]
        return [Subject(i) for i in every_instruction() if i.family == "mma" or i.n == 8 or self.every_n]

    def _executes(self, subject: Subject, arch: str) -> bool:
        """Return whether every back end to be tested executes an instruction of an architecture."""
        tops = tops_of(subject.instruction, arch)
        if not all(name in tops for name in self.backends if name in TOP_LEVEL):
            return False
        if subject.opcode is None or "tcgen05" not in self.backends:
            return True
        where = arrangement(subject.opcode, subject.instruction)
        descriptor = decode_instruction_descriptor(subject.opcode, where.idesc)
        return cta_command(TCGEN05_ARRAY, subject.opcode, descriptor, where.addresses) is not None

    @cached_property
    def _places(self) -> tuple[_Place, ...]:
        presets: dict[str, dict[str, dict[Subject, list[str]]]] = {}
        for arch in self.architectures or ARCHITECTURES:
            for subject in self._chosen():
                if arch in subject.instruction.architectures and self._executes(subject, arch):
                    pairs = presets.setdefault(PRESET_OF_ARCHITECTURE[arch], {})
                    pairs.setdefault(pair_of(subject.instruction), {}).setdefault(subject, []).append(arch)
        # Interleave datapaths evenly: a datapath with few pairs of formats then runs as early as the other datapaths.
        spread = []
        for preset, pairs in presets.items():
            for number, instructions in enumerate(pairs.values()):
                entries = tuple((i, tuple(dict.fromkeys(archs))) for i, archs in instructions.items())
                spread.append((number / len(pairs), _Place(preset, entries)))
        return tuple(place for _, place in sorted(spread, key=lambda entry: entry[0]))

    @property
    def lap(self) -> int:
        """Number of shards (groups of tiles) that test each instruction on each datapath with each distribution."""
        return len(self._places) * max(place.visits for place in self._places)

    @property
    def datapaths(self) -> list[str]:
        """For each datapath of the campaign, one of the architectures that the datapath supports."""
        return list({place.preset: place.instructions[0][1][0] for place in self._places}.values())

    def shard(self, index: int) -> Shard:
        """Return a shard (group of tiles of one instruction) of the campaign by its index, from 0 on."""
        rotation, number = divmod(index, len(self._places))
        place = self._places[number]
        lap, visit = divmod(rotation, place.visits)
        turn, choice = divmod(visit, len(place.instructions))
        subject, architectures = place.instructions[choice]
        instruction = subject.instruction
        names = _distributions(instruction)
        distribution = names[(turn + choice + number) % len(names)]
        return Shard(
            seed=self.seed,
            index=index,
            arch=architectures[(lap // 2 + turn // 2 + choice) % len(architectures)],
            instruction=instruction,
            distribution=distribution,
            any_nibble=bool(instruction.sparse and distribution != _DIRECTED and (lap + turn + number) % 2),
            tiles=self.tiles,
            backends=self.backends,
            opcode=subject.opcode,
        )

    def shards(self) -> Iterator[Shard]:
        """Yield all shards (groups of tiles) of the campaign, from index 0 on."""
        return map(self.shard, count())


def draw(shard: Shard) -> Replayable:
    """Return the operands of a shard (group of tiles): contents of registers or, for ``tcgen05.mma``, of memories."""
    rng = np.random.default_rng([shard.seed, shard.index])
    i = shard.instruction
    sparsity_selector = int(rng.integers(i.sparsity_selectors))
    if shard.opcode:
        if shard.distribution in _MATRICES:
            operands = Given(_MATRICES[shard.distribution](i, rng, shard.tiles))
        else:
            operands = draw_tiles(i, (shard.distribution,), "all" if shard.any_nibble else "legal", shard.tiles, rng)
        return file_of(shard.subject, shard.arch, operands, rng, sparsity_selector)
    if shard.distribution not in _MATRICES:
        return random_register_file(
            i, shard.arch, shard.distribution, shard.tiles, rng,
            sparsity_selector=sparsity_selector, any_nibble=shard.any_nibble,
        )  # fmt: skip
    matrices = _MATRICES[shard.distribution](i, rng, shard.tiles)
    file = matrices_file(i, shard.arch, matrices, rng, sparsity_selector=sparsity_selector)
    return replace(file, scale_d=True) if shard.distribution == LEAST else file


def both(file: Replayable, backends: Sequence[str] = (DEFAULT_BACKEND,)) -> tuple[NDArray, NDArray]:
    """Return results and flags of hardware and golden model for a register file, each of shape (cases, m, n + nibbles).

    Each row has n results and then a flag for each chunk, 1 for undefined metadata: the flags that the hardware raises,
    and the flags that the metadata rule requires. If the back end raises no flags, rows have results only. With several
    back ends, the codes are those of the first back end that differs from the golden model, or else of the last.
    """
    d = file.matrix(file.run("golden"))
    for name in backends:
        recorder = Recorder(backend(name))
        with _ENGINE:
            hardware = file.matrix(file.run(recorder))
        flags = flags_and_rules(recorder.products, file.cases)
        raised, required = (array.reshape(*d.shape[:2], -1).astype(d.dtype) for array in flags)
        hardware, golden = np.concatenate([hardware, raised], axis=2), np.concatenate([d, required], axis=2)
        if (hardware != golden).any():
            break
    return hardware, golden


@lru_cache(maxsize=16)
def _sampler(preset: str) -> StepCoverage:
    """Return the coverage sampler of this process for a datapath; cleared after each shard (group of tiles)."""
    return StepCoverage(PRESETS[preset])


def empty_coverage(preset: str) -> Coverage:
    """Return the coverage groups of a datapath, with all hits zero."""
    with _ENGINE:
        return _sampler(preset).coverage


def run_shard(shard: Shard, sample: bool) -> ShardResult:
    """Compute a shard (group of tiles) with RTL and golden model, compare results, and sample coverage on request.

    If coverage is sampled, the hardware also runs directed steps that occur in no instruction. A wrong result of such a
    step hits a bin that is declared unreachable.
    """
    file = draw(shard)
    if not sample:
        hardware, golden = both(file, shard.backends)
        return ShardResult(shard, int((hardware != golden).sum()), file.a_from)
    with _ENGINE:
        sampler = _sampler(shard.preset)
        try:
            unit = engine_for(shard.arch)
            with unit.observed(sampler.sample):
                hardware, golden = both(file, shard.backends)
                unit.push(steps_beside(shard))
            flat = ((group.key, group.hits.reshape(-1)) for group in sampler.coverage)
            hits = {key: (np.flatnonzero(counts), counts[counts != 0]) for key, counts in flat if counts.any()}
            return ShardResult(shard, int((hardware != golden).sum()), file.a_from, hits)
        finally:
            for group in sampler.coverage:
                group.hits[...] = 0


def steps_beside(shard: Shard) -> NDArray[np.uint32]:
    """Return directed inputs for a dot-product unit, which a shard tests besides its tiles, shape (steps, words)."""
    rng = np.random.default_rng([shard.seed, shard.index, _DIRECTED_STEPS])
    return directed_steps(PRESETS[shard.preset], rng, _DIRECTED_STEPS)
