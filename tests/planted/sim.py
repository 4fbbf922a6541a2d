"""Faults of simulators, drivers, benches, replays, checkers and coverage."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from numpy.ma import masked_all_like

from . import Change, computes, fault, holds, instead, register_all


@fault("sim.scoreboard.low", "sim.benches.scoreboard")
def _(scoreboard: Any, change: Change) -> None:
    """Only the lowest 32 bits of a result are compared."""
    right = scoreboard.Scoreboard._compare

    def compare(item: Any, result: int) -> None:
        right(item, result & 0xFFFFFFFF | item.expected >> 32 << 32)

    change(scoreboard.Scoreboard, "_compare", staticmethod(compare))


holds("sim.scoreboard.lost", "sim.benches.scoreboard", "Scoreboard.under_way",
      "A bench ends without waiting for pending results.", property(lambda self: 0))  # fmt: skip


@instead("sim.scoreboard.patient", "sim.benches.scoreboard", "Scoreboard.observe")
def _(scoreboard: Any, right: Any, self: Any, cycle: Any, offered: Any) -> None:
    """The count of cycles that an input item has waited is cleared whenever the output stalls."""
    right(self, cycle, offered)
    if not cycle.o_ready:
        self._closed = 0


@instead("sim.streams.stalls", "sim.benches.streams", "StreamDriver.drive")
def _(streams: Any, right: Any, self: Any, *, draining: bool = False) -> None:
    """A result is accepted as soon as it is valid, without the stalls of the pattern."""
    right(self, draining=draining)
    self._top.o__ready.value = int(not int(self._top.rst.value))


@instead("sim.streams.reset", "sim.benches.streams", "StreamDriver.update")
def _(streams: Any, right: Any, self: Any, cycle: Any) -> None:
    """An item that is at the input during a reset is dropped."""
    right(self, cycle)
    if cycle.reset:
        self.offered = None


@instead("sim.streams.monitor", "sim.benches.streams", "StreamMonitor.sample")
def _(streams: Any, right: Any, self: Any) -> Any:
    """The monitor of a stream does not see a valid result that waits. It sees the result only when it is accepted."""
    cycle = right(self)
    taken = cycle.o_valid and cycle.o_ready
    return streams.Cycle(cycle.reset, cycle.i_valid, cycle.i_ready, taken, cycle.o_ready, cycle.result)


@instead("sim.components.masked", "sim.benches.components", "component_benches")
def _(components: Any, right: Any, config: Any) -> dict[str, Any]:
    """All results of a component are masked as meaningless, so that none is compared."""

    def masked(model: Callable[..., Any]) -> Callable[..., Any]:
        return lambda values: {port: masked_all_like(answers) for port, answers in model(values).items()}

    return {name: replace(bench, model=masked(bench.model)) for name, bench in right(config).items()}


@instead("sim.items.noise", "sim.benches.items", "_filled")
def _(items: Any, right: Any, registers: Any, rng: Any) -> list[list[int]]:
    """Registers that an instruction does not read hold zeros instead of random bits."""
    filled = items.np.zeros((items.LANES, items.REGISTERS), items.np.uint32)
    filled[:, : registers.shape[2]] = registers[0]
    return list(filled.tolist())


@instead("sim.items.nibbles", "sim.benches.items", "_every_nibble")
def _(items: Any, right: Any, instruction: Any, selector: int, rng: Any) -> Any:
    """The metadata of a warp's items is always legal."""
    from ...sim.benches.random_operands import random_metadata

    return random_metadata(instruction, selector, False, 1, rng)


holds("sim.coverage.groups.complete", "sim.coverage.groups", "Coverage.complete",
      "Coverage counts as complete although bins declared unreachable were reached.",
      property(lambda self: all(group.reached == group.reachable for group in self)))  # fmt: skip


@instead("sim.engine.batch", "sim.engine.engine", "Engine.multiply")
def _(engine: Any, right: Any, self: Any, instruction: Any, operands: Any) -> Any:
    """If a batch is computed in parts, every part gets the flags of the first part."""
    done = right(self, instruction, operands)
    tiles, m, n = done.d.shape
    of_first = engine.np.arange(tiles) % max(1, engine._BLOCK_OUTPUTS // (m * n))
    return engine.replace(done, illegal=done.illegal[of_first])


@instead("sim.engine.flags", "sim.engine.engine", "Engine._block")
def _(engine: Any, right: Any, self: Any, instruction: Any, operands: Any) -> tuple[Any, Any]:
    """The flags of an instruction repeat those of its last step."""
    d, flags = right(self, instruction, operands)
    of_last = self.config.step_bytes // instruction.chunk_bytes if instruction.chunk_bytes else 1
    return d, engine.np.tile(flags[..., -of_last:], -(-flags.shape[-1] // of_last))[..., : flags.shape[-1]]


@fault("sim.engine.observed", "sim.engine.engine")
def _(engine: Any, change: Change) -> None:
    """An observer is still called after its context has ended, and the previous observer is lost."""

    @engine.contextmanager
    def observed(self: Any, callback: Any) -> Any:
        self._observer = callback
        yield

    change(engine.Engine, "observed", observed)


holds("sim.blocks.largest", "sim.benches.blocks", "_LARGEST",
      "No block of stimulus has only the largest products, so no sum is near the end of its range.", 0.0)  # fmt: skip
holds("sim.blocks.near", "sim.benches.blocks", "_NEARLY_SPECIAL",
      "No block of stimulus has elements that differ from a special value in one bit.", 0.0)  # fmt: skip


@instead("sim.regressions.row", "sim.faults.regressions", "_Row.__init__")
def _(regressions: Any, right: Any, self: Any, *arguments: Any) -> None:
    """Only the result of a row is compared, not its flags."""
    right(self, *arguments)
    self._mask &= 0xFFFFFFFF


@instead("sim.assumptions.codes", "sim.faults.assumptions", "AssumedComponents.__init__")
def _(assumptions: Any, right: Any, self: Any, config: Any, benches: Any) -> None:
    """Proofs assume that the last element type of a configuration never occurs."""
    right(self, config, benches)
    self._elements -= 1


@fault("sim.assumptions.waits", "sim.faults.assumptions")
def _(assumptions: Any, change: Change) -> None:
    """Proofs assume that every offered item is accepted at once."""

    def stays(m: Any, name: str, source: Any) -> None:
        m.d.comb += assumptions.Assume(~source.valid | source.ready)

    change(assumptions.AssumedStream, "_stays", staticmethod(stays))


@instead("sim.assumptions.array", "sim.faults.assumptions", "AssumedArray.elaborate")
def _(assumptions: Any, right: Any, self: Any, platform: Any) -> Any:
    """Proofs assume that an array holds one item less than it can."""
    fewer = type("Fewer", (type(self.config),), {"warp_items": self.config.warp_items - 1})
    self.config = copy(self.config)
    object.__setattr__(self.config, "__class__", fewer)
    return right(self, platform)


register_all(computes, [
    ("sim.streams.rare", "sim.benches.streams", "rare_meetings",
     "Stimulus does not force rare coincidences of gaps, stalls and resets.",
     lambda streams, right, rng, **how: lambda cycle: None),
    ("sim.streams.memory", "sim.benches.streams", "MemoryPort.drive",
     "In cycles without a read, the modelled shared memory repeats the last data instead of random bits.",
     lambda streams, right, self: self._answers and right(self)),
    ("sim.settings.record", "sim.benches.settings", "Settings.record",
     "The coverage of a second test replaces that of the first.",
     lambda settings, right, self, coverage: self.coverage and coverage.write(settings.Path(self.coverage))),
    ("sim.runner.errors", "sim.benches.runner", "Bench.run", "Failing tests of a bench are not reported.",
     lambda runner, right, self, seed, **options: (right(self, seed, **options), [])[1]),
    ("sim.coverage.groups.hit", "sim.coverage.groups", "Group.count", "Excluded samples are counted in the first bin.",
     lambda groups, right, self, *places, where=True:
         right(self, *(groups.np.where(where, place, 0) for place in places))),
    ("sim.engine.last_flags", "sim.engine.engine", "multiply_with",
     "A product has the flags of its last step only.",
     lambda engine, right, *arguments: replace(product := right(*arguments), flags=product.flags[-1:])),
    ("sim.equivalence.cases", "sim.faults.equivalence", "_Proofs._by_cases",
     "Of the cases into which the proof of a pipeline is divided, only the first is proved.",
     lambda equivalence, right, *others: right(*others[:-1], replace(others[-1], cases=others[-1].cases[:1]))),
    ("sim.coverage.code.merge", "sim.coverage.code", "CodeCoverage.merge",
     "Coverage points that occur in only one of two merged files are lost.",
     lambda code, right, self, other: code.CodeCoverage(
         {point: self.hits[point] + other.hits[point] for point in self.hits.keys() & other.hits.keys()})),
    ("sim.warpgroup.computed", "sim.engine.array_units", "driver",
     "Units that are computed in batches give results a cycle early.",
     lambda array_units, right, name, constants, **others: right(
         name, {key: value - (key == "latency") for key, value in constants.items()}, **others)),
    ("sim.items.flags", "sim.benches.items", "undefined_bits",
      "The expected results of a warp have no flags of undefined nibbles.",
     lambda items, right, instruction, nibbles: 0),
    ("sim.stream_coverage.warp", "sim.benches.stream_coverage", "_illegal_handshakes",
     "Unreachable coverage bins of a warp are not declared.",
     lambda coverage, right, top, most: right(top, most) if top == "core" else {}),
    ("sim.fingerprint.late", "sim.engine.fingerprint", "_is_hashed",
     "A model of hardware that was imported after a source change is cached under the old digest.",
     lambda fingerprint, right: True),
    ("sim.row_interface.another", "sim.engine.row_interface", "hardware_fingerprint",
     "The cached interface of one datapath is used for all datapaths.",
     lambda row_interface, right, config, *others: "one"),
    ("sim.equivalence.undecided", "sim.faults.equivalence", "_Proofs.verdict",
     "A surviving fault whose proof is undecided counts as proved to change nothing.",
     lambda equivalence, right, *arguments: equivalence.Verdict.EQUIVALENT
     if (result := right(*arguments)) is equivalence.Verdict.UNDECIDED else result),
    ("sim.equivalence.structures", "sim.faults.equivalence", "_Proofs._are_proved",
     "Only one claim of each structure is proved even with assumptions that tell the claims apart.",
     lambda equivalence, right, self, slices, claims: right(self, slices, slices.representatives(claims))),
    ("sim.slices.copy", "sim.faults.slices", "Slices._faulty",
     "The copy with the fault contains no fault, so a proof finds no difference.",
     lambda slices, right, self, literal: literal & 1 if literal >> 1 == self._active else right(self, literal)),
    ("sim.slices.assumptions", "sim.faults.graph", "Graph.conjuncts",
     "Assumptions about inputs are left out of a slice.", lambda graph, right, self, literal: []),
    ("sim.slices.shared", "sim.faults.slices", "Slices._structure",
     "Slices whose inputs have different assumptions count as equal.",
     lambda slices, right, self, claim: (self._shared.clear(), right(self, claim))[1]),
    ("sim.slices.ends", "sim.faults.slices", "Slices._ends",
     "Registers at which a short slice ends are always zero.",
     lambda slices, right, self, *arguments: (self._constants.update(ends := right(self, *arguments)), ends)[1]),
    ("sim.slices.groups", "sim.faults.slices", "Slices.representatives",
     "Only one structure of slices is proved.", lambda slices, right, *arguments: right(*arguments)[:1]),
    ("sim.slices.next_state", "sim.faults.slices", "Slices.claims_about",
     "The next state of registers is not compared.",
     lambda slices, right, self, number, cycles: [
         claim for claim in right(self, number, cycles) if claim.right in self._graph.outputs
     ]),
    ("sim.equivalence.balanced", "sim.faults.equivalence", "is_balanced",
     "Every design is treated as a pipeline, without a check.", lambda equivalence, right, *_: True),
    ("sim.streams.selected", "sim.faults.streams", "StreamRegression.first_failure",
     "No fault is selected, so the regression runs on hardware without a fault.",
     lambda streams, right, self, fault: right(self, None)),
    ("sim.regressions.components", "sim.faults.regressions", "_octets",
     "Only the first eight bits of a component's outputs are compared.",
     lambda regressions, right, vectors: right(vectors)[:, :1]),
    ("sim.assumptions.control", "sim.faults.assumptions", "native",
     "Proofs assume that only the first instruction occurs, so faults that affect other instructions seem harmless.",
     lambda assumptions, right, config, arch: list(right(config, arch))[:1]),
    ("sim.libraries.control", "sim.engine.libraries", "Libraries.of",
     "A library for one control word is also used for a control word that differs in the lowest bit.",
     lambda libraries, right, self, steps: right(self, {control & ~1: count for control, count in steps.items()})),
    ("sim.steps.clamp", "sim.engine.steps", "control_word",
     "Every step clamps a saturating sum, instead of only the last step.",
     lambda steps, right, config, instruction, last: right(config, instruction, True)),
    ("sim.random_operands.selector", "sim.benches.random_operands", "random_metadata",
     "Metadata is always laid out for sparsity selector 0.",
     lambda random_operands, right, instruction, selector, any_nibble, cases, rng:
         right(instruction, 0, any_nibble, cases, rng)),
    ("sim.mutants.single", "sim.faults.mutants", "faulty_verilog",
     "The Verilog of a design with one permanent fault contains no fault.",
     lambda mutants, right, injected, folder: right(mutants.Fault(injected.number, "", "select -clear"), folder)),
    ("sim.mutants.numbers", "sim.faults.mutants", "_drawn",
     "Faults are numbered from 0, so that the first fault is active when none should be.",
     lambda mutants, right, *arguments:
         tuple(mutants.Fault(f.number - 1, f.component, f.command) for f in right(*arguments))),
    ("sim.simd.carry", "sim.engine.simd", "_Writer._sum", "Carries between the machine words of a wide sum are lost.",
     lambda simd, right, self, one, other, *, subtract:
         [right(self, [a], [b], subtract=subtract)[0] for a, b in zip(one, other, strict=True)]),
])  # fmt: skip


@instead("verify.replay.agrees", "verify.replay", "compare")
def _(replay: Any, right: Any, computed: Any, references: Any) -> Any:
    """A back end that agrees with the recording is not compared with the golden model."""
    every = list(references)
    agrees = every and every[0][0] == "recorded" and bool((computed == every[0][1]).all())
    return right(computed, every[:1] if agrees else every)


@instead("verify.tensor_memory_file.beside", "verify.tensor_memory_file", "TensorMemoryFile.beside")
def _(tensor_memory_file: Any, right: Any, self: Any, result: Any) -> Any:
    """Changes in the upper half of a word of D are ignored, although an instruction with an f16 D must not make any."""
    words, place = right(self, result), self._place_of_d
    words[..., place.lanes, place.columns] = 0
    return words
