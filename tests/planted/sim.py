"""Faults of what simulates, drives, compares and counts."""

from dataclasses import replace
from typing import Any

from . import Change, fault


@fault("sim.scoreboard.low", "sim.benches.scoreboard")
def _(scoreboard: Any, change: Change) -> None:
    """Only the lowest 32 bits of a result are compared."""
    right = scoreboard.Scoreboard._compare

    def compare(item: Any, result: int) -> None:
        right(item, result & 0xFFFFFFFF | item.expected >> 32 << 32)

    change(scoreboard.Scoreboard, "_compare", staticmethod(compare))


@fault("sim.scoreboard.lost", "sim.benches.scoreboard")
def _(scoreboard: Any, change: Change) -> None:
    """A bench ends without waiting for what is under way."""
    change(scoreboard.Scoreboard, "under_way", property(lambda self: 0))


@fault("sim.scoreboard.patient", "sim.benches.scoreboard")
def _(scoreboard: Any, change: Change) -> None:
    """What waits at the input is forgotten whenever a result is kept from leaving."""
    right = scoreboard.Scoreboard.observe

    def observe(self: Any, cycle: Any, offered: Any) -> None:
        right(self, cycle, offered)
        if not cycle.o_ready:
            self._closed = 0

    change(scoreboard.Scoreboard, "observe", observe)


@fault("sim.streams.stalls", "sim.benches.streams")
def _(streams: Any, change: Change) -> None:
    """A result is taken as soon as it is there, whatever the pattern says."""
    right = streams.StreamDriver.drive

    def drive(self: Any, *, draining: bool = False) -> None:
        right(self, draining=draining)
        self._top.o__ready.value = int(not int(self._top.rst.value))

    change(streams.StreamDriver, "drive", drive)


@fault("sim.streams.reset", "sim.benches.streams")
def _(streams: Any, change: Change) -> None:
    """An item that a reset meets at the input is dropped."""
    right = streams.StreamDriver.update

    def update(self: Any, cycle: Any) -> None:
        right(self, cycle)
        if cycle.reset:
            self.offered = None

    change(streams.StreamDriver, "update", update)


@fault("sim.streams.rare", "sim.benches.streams")
def _(streams: Any, change: Change) -> None:
    """Patterns are followed blindly: rare meetings are left to luck."""
    change(streams, "rare_meetings", lambda rng, **how: lambda cycle: None)


@fault("sim.streams.monitor", "sim.benches.streams")
def _(streams: Any, change: Change) -> None:
    """A result that waits is not seen until it is taken."""
    right = streams.StreamMonitor.settle

    async def settle(self: Any) -> Any:
        cycle = await right(self)
        taken = cycle.o_valid and cycle.o_ready
        return streams.Cycle(cycle.reset, cycle.i_valid, cycle.i_ready, taken, cycle.o_ready, cycle.result)

    change(streams.StreamMonitor, "settle", settle)


@fault("sim.components.masked", "sim.benches.components")
def _(components: Any, change: Change) -> None:
    """Every answer of a component counts as one that means nothing."""
    right = components.component_benches

    def masked(values: Any) -> Any:
        from numpy.ma import masked_all_like

        return {port: masked_all_like(answers) for port, answers in values.items()}

    def benches(config: Any) -> dict[str, Any]:
        from dataclasses import replace

        return {
            name: replace(bench, model=lambda values, model=bench.model: masked(model(values)))
            for name, bench in right(config).items()
        }

    change(components, "component_benches", benches)


@fault("sim.items.noise", "sim.benches.items")
def _(items: Any, change: Change) -> None:
    """Registers that an instruction does not read hold zeros instead of noise."""

    def filled(registers: Any, rng: Any) -> list[list[int]]:
        held = items.np.zeros((items._LANES, items._REGISTERS), items.np.uint32)
        held[:, : registers.shape[2]] = registers[0]
        return list(held.tolist())

    change(items, "_filled", filled)


@fault("sim.items.nibbles", "sim.benches.items")
def _(items: Any, change: Change) -> None:
    """Metadata of a warp's items is legal always."""

    def legal(instruction: Any, selector: int, rng: Any) -> Any:
        from ...sim.benches.random_operands import random_metadata

        return random_metadata(instruction, selector, False, 1, rng)

    change(items, "_every_nibble", legal)


@fault("sim.items.flags", "sim.benches.items")
def _(items: Any, change: Change) -> None:
    """No flag of an illegal nibble is expected of a warp."""
    change(items, "_illegal_chunks", lambda instruction, matrices: [0] * items._ROWS)


@fault("sim.random_operands.selector", "sim.benches.random_operands")
def _(random_operands: Any, change: Change) -> None:
    """Metadata is always laid out for sparsity selector 0."""
    right = random_operands.random_metadata
    change(
        random_operands,
        "random_metadata",
        lambda instruction, selector, any_nibble, cases, rng: right(instruction, 0, any_nibble, cases, rng),
    )


@fault("sim.settings.record", "sim.benches.settings")
def _(settings: Any, change: Change) -> None:
    """The coverage of a second test replaces that of the first."""

    def record(self: Any, coverage: Any) -> None:
        if self.coverage:
            coverage.write(settings.Path(self.coverage))

    change(settings.Settings, "record", record)


@fault("sim.stream_coverage.warp", "sim.benches.stream_coverage")
def _(coverage: Any, change: Change) -> None:
    """What a warp cannot reach is not declared."""
    right = coverage.StreamCoverage._declare

    def declare(self: Any, most: int) -> None:
        if self._core:
            right(self, most)

    change(coverage.StreamCoverage, "_declare", declare)


@fault("sim.runner.errors", "sim.benches.runner")
def _(runner: Any, change: Change) -> None:
    """A test of a bench that fails is not reported."""
    right = runner.Bench.run

    def run(self: Any, seed: int, **options: Any) -> list[Any]:
        right(self, seed, **options)
        return []

    change(runner.Bench, "run", run)


@fault("sim.coverage.groups.complete", "sim.coverage.groups")
def _(groups: Any, change: Change) -> None:
    """Coverage is complete though bins were reached that cannot be."""
    change(groups.Coverage, "complete", property(lambda self: all(g.reached == g.reachable for g in self)))


@fault("sim.coverage.groups.hit", "sim.coverage.groups")
def _(groups: Any, change: Change) -> None:
    """What does not count is counted in the first bin."""
    right = groups.Group.count

    def count(self: Any, *places: Any, where: Any = None) -> None:
        if where is None:
            right(self, *places)
        else:
            right(self, *(groups.np.where(where, place, 0) for place in places))

    change(groups.Group, "count", count)


@fault("sim.coverage.code.merge", "sim.coverage.code")
def _(code: Any, change: Change) -> None:
    """Points that only one of two files has are lost where they merge."""

    def merge(self: Any, other: Any) -> Any:
        both = self.hits.keys() & other.hits.keys()
        return code.CodeCoverage({point: self.hits[point] + other.hits[point] for point in both})

    change(code.CodeCoverage, "merge", merge)


@fault("sim.engine.batch", "sim.engine.engine")
def _(engine: Any, change: Change) -> None:
    """Of a batch that is computed in parts every part has the flags of the first."""
    right = engine.Engine.multiply

    def multiply(self: Any, instruction: Any, operands: Any) -> Any:
        done = right(self, instruction, operands)
        tiles, m, n = done.d.shape
        of_first = engine.np.arange(tiles) % max(1, engine._BLOCK_OUTPUTS // (m * n))
        return engine.replace(done, illegal=done.illegal[of_first])

    change(engine.Engine, "multiply", multiply)


@fault("sim.engine.flags", "sim.engine.engine")
def _(engine: Any, change: Change) -> None:
    """The flags of an instruction are those of its last step, over and over."""
    right = engine.Engine._block

    def block(self: Any, instruction: Any, operands: Any) -> tuple[Any, Any, int]:
        d, flags, steps = right(self, instruction, operands)
        of_last = self.config.step_bytes // instruction.chunk_bytes if instruction.chunk_bytes else 1
        repeated = engine.np.tile(flags[..., -of_last:], -(-flags.shape[-1] // of_last))
        return d, repeated[..., : flags.shape[-1]], steps

    change(engine.Engine, "_block", block)


@fault("sim.engine.observed", "sim.engine.engine")
def _(engine: Any, change: Change) -> None:
    """An observer that is done is called on, and the one before it forgotten."""

    @engine.contextmanager
    def observed(self: Any, callback: Any) -> Any:
        self._observer = callback
        yield

    change(engine.Engine, "observed", observed)


@fault("sim.engine.last_flags", "sim.engine.engine")
def _(engine: Any, change: Change) -> None:
    """A product has the flags of its last step alone."""
    right = engine.multiply_with

    def multiply_with(*arguments: Any) -> Any:
        product = right(*arguments)
        return replace(product, flags=product.flags[-1:])

    change(engine, "multiply_with", multiply_with)


@fault("sim.fingerprint.late", "sim.engine.fingerprint")
def _(fingerprint: Any, change: Change) -> None:
    """Hardware that is imported late is kept under the name of sources that it is not of."""
    change(fingerprint, "_is_hashed", lambda: True)


@fault("sim.row_interface.another", "sim.engine.row_interface")
def _(row_interface: Any, change: Change) -> None:
    """What was kept of one datapath is read for every other."""
    change(row_interface, "hardware_fingerprint", lambda config, *others: "one")


@fault("sim.equivalence.undecided", "sim.faults.equivalence")
def _(equivalence: Any, change: Change) -> None:
    """A survivor whose search ends without an answer is taken to change nothing."""
    right = equivalence.settled

    def settled(*arguments: Any) -> Any:
        found = right(*arguments)
        return equivalence.Verdict.EQUIVALENT if found is equivalence.Verdict.UNDECIDED else found

    change(equivalence, "settled", settled)


@fault("sim.equivalence.cone", "sim.faults.equivalence")
def _(equivalence: Any, change: Change) -> None:
    """The cone with the fault is one without it: nothing ever differs."""
    right = equivalence._both
    change(equivalence, "_both", lambda ports: (line.replace("1'1", "1'0", "EN" not in line) for line in right(ports)))


@fault("sim.equivalence.part", "sim.faults.equivalence")
def _(equivalence: Any, change: Change) -> None:
    """What differs where a cone is cut short is taken for a difference of the design."""
    right = equivalence._of_cone

    def of_cone(*arguments: Any) -> Any:
        behind = arguments[-2]
        found = right(*arguments)
        return equivalence.Verdict.TOLD_APART if behind and found is equivalence.Verdict.UNDECIDED else found

    change(equivalence, "_of_cone", of_cone)


@fault("sim.equivalence.cases", "sim.faults.equivalence")
def _(equivalence: Any, change: Change) -> None:
    """Of a pipeline's cases the first alone is asked."""
    right = equivalence._by_cases

    def by_cases(*arguments: Any) -> Any:
        *others, pipeline = arguments
        return right(*others, replace(pipeline, cases=pipeline.cases[:1]))

    change(equivalence, "_by_cases", by_cases)


@fault("sim.equivalence.balanced", "sim.faults.equivalence")
def _(equivalence: Any, change: Change) -> None:
    """Whatever is said to be a pipeline is taken for one."""
    change(equivalence, "is_balanced", lambda *_: True)


@fault("sim.blocks.largest", "sim.benches.blocks")
def _(blocks: Any, change: Change) -> None:
    """No block's products are all the largest: no sum comes near the end of its range."""
    change(blocks, "_LARGEST", 0.0)


@fault("sim.blocks.near", "sim.benches.blocks")
def _(blocks: Any, change: Change) -> None:
    """No block has elements that are a bit away from a special one."""
    change(blocks, "_NEARLY_SPECIAL", 0.0)


@fault("sim.mutants.single", "sim.faults.mutants")
def _(mutants: Any, change: Change) -> None:
    """The design with one fault for good has none."""
    right = mutants.faulty_verilog
    none = "select -clear"
    change(mutants, "faulty_verilog", lambda fault, folder: right(mutants.Fault(fault.number, "", none), folder))


@fault("sim.mutants.numbers", "sim.faults.mutants")
def _(mutants: Any, change: Change) -> None:
    """Faults are numbered from 0, so that the first is there when none is selected."""
    right = mutants._drawn

    def drawn(*arguments: Any) -> Any:
        return tuple(mutants.Fault(f.number - 1, f.component, f.command) for f in right(*arguments))

    change(mutants, "_drawn", drawn)


@fault("sim.regressions.row", "sim.faults.regressions")
def _(regressions: Any, change: Change) -> None:
    """Of a row the result is compared, not the flags beside it."""
    right = regressions._Row.__init__

    def init(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self._mask &= 0xFFFFFFFF

    change(regressions._Row, "__init__", init)


@fault("sim.streams.selected", "sim.faults.streams")
def _(streams: Any, change: Change) -> None:
    """No fault is ever selected: what is run is the right hardware."""
    right = streams.StreamRegression.first_failure
    change(streams.StreamRegression, "first_failure", lambda self, fault: right(self, None))


@fault("sim.regressions.components", "sim.faults.regressions")
def _(regressions: Any, change: Change) -> None:
    """Of a component the first eight bits are compared."""
    right = regressions._octets
    change(regressions, "_octets", lambda vectors: right(vectors)[:, :1])


@fault("sim.assumptions.control", "sim.faults.assumptions")
def _(assumptions: Any, change: Change) -> None:
    """Of all instructions the first alone is assumed to come: what matters to others alone changes nothing."""
    right = assumptions.native
    change(assumptions, "native", lambda config, arch: list(right(config, arch))[:1])


@fault("sim.assumptions.codes", "sim.faults.assumptions")
def _(assumptions: Any, change: Change) -> None:
    """The last element of a configuration is assumed never to come."""
    right = assumptions.AssumedComponents.__init__

    def init(self: Any, config: Any, benches: Any) -> None:
        right(self, config, benches)
        self._elements -= 1

    change(assumptions.AssumedComponents, "__init__", init)


@fault("sim.assumptions.waits", "sim.faults.assumptions")
def _(assumptions: Any, change: Change) -> None:
    """Whatever is offered is assumed to be taken at once."""

    def stays(m: Any, name: str, source: Any) -> None:
        m.d.comb += assumptions.Assume(~source.valid | source.ready)

    change(assumptions.AssumedStream, "_stays", staticmethod(stays))


@fault("sim.libraries.control", "sim.engine.libraries")
def _(libraries: Any, change: Change) -> None:
    """A library with one control word tied is used for another that differs from it in the lowest bit."""
    right = libraries.Libraries.of

    def of(self: Any, steps: Any) -> Any:
        return right(self, {control & ~1: count for control, count in steps.items()})

    change(libraries.Libraries, "of", of)


@fault("sim.simd.carry", "sim.engine.simd")
def _(simd: Any, change: Change) -> None:
    """No carry leaves a limb."""
    right = simd._Writer._sum

    def _sum(self: Any, one: Any, other: Any, *, subtract: bool) -> Any:
        return [right(self, [a], [b], subtract=subtract)[0] for a, b in zip(one, other, strict=True)]

    change(simd._Writer, "_sum", _sum)


@fault("sim.warpgroup.computed", "sim.engine.array_units")
def _(array_units: Any, change: Change) -> None:
    """Units that are computed many at a time answer a cycle early."""
    right = array_units.driver

    def driver(name: str, constants: Any, **others: Any) -> Any:
        early = {"latency": constants["latency"] - 1} if "latency" in constants else {}
        return right(name, {**constants, **early}, **others)

    change(array_units, "driver", driver)
