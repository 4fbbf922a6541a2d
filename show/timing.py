"""Cycles of instructions on a real GPU, as tables, JSON values and a plot."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isnan
from pathlib import Path

from ..errors import InstructionError
from ..infra.figures import picture
from ..isa.architectures import require_target, same_numerics, target_named
from ..isa.instructions import Instruction, every_instruction, parse
from ..isa.kernel_timing import ProductTiming
from ..isa.names import Subject, resolve, subject_named
from ..isa.rates import timing_on
from ..isa.tcgen05 import every_opcode, instructions_of
from ..isa.timing import A_PLACES, ARCHITECTURE, LAWS, Resource, Source, Timing, tcgen05_timing, timing
from .sass import machine_instruction

__all__ = ["Row", "plot_rates", "product_table", "shape_note", "timing_rows", "timing_table"]

#: Values of N for which ``wgmma`` is listed if no instruction is given.
_LISTED = (8, 32, 64, 128, 256)
#: Values of N and kinds of ``tcgen05`` for which cycles are listed if no instruction is given. The listed kinds differ
#: only in products per cycle.
_LISTED_TCGEN05 = (64, 128, 256)
_LISTED_KINDS = (("f16", "bf16"), ("i8", "s8"), ("mxf4", "e2m1"))


@dataclass(frozen=True)
class Row:
    """Timing of an instruction with A in registers, or with A in shared memory, or with A in tensor memory."""

    text: str  #: Instruction in PTX syntax
    instruction: Instruction
    a_from: str  #: Location of A, such as ``registers`` or ``shared``
    timing: Timing  #: Interval and latency of the instruction in cycles, and resource that limits the rate
    arch: str  #: Target of the instruction, such as ``sm_90a``

    def as_dict(self) -> dict[str, object]:
        """Return the timing as JSON values."""
        i, cycles = self.instruction, self.timing
        return {
            "instruction": self.text,
            "arch": self.arch,
            "sparse": bool(i.sparse),
            "element": i.a.name,
            "n": i.n,
            "a_from": self.a_from,
            "interval": float(cycles.interval),
            "latency": None if isnan(cycles.latency) else float(cycles.latency),
            "bound_by": cycles.bound_by.value,
            "kept_mac_per_cycle": float(cycles.kept_mac_per_cycle),
            "source": cycles.source.value,
            "reference": cycles.reference or None,
        }

    @property
    def is_listed(self) -> bool:
        """Whether `sptc timing` lists the instruction if the command names no instruction."""
        i = self.instruction
        plain = not i.satfinite and i.a == i.b and i.d.name in ("f32", "s32") and i.a.name not in ("e5m2", "u8")
        if i.family == "tcgen05":
            return plain and (i.kind, i.a.name) in _LISTED_KINDS and i.n in _LISTED_TCGEN05
        twin = i.sparse == "sp::ordered_metadata" and not i.kind  # .sp::ordered_metadata takes as many cycles as .sp
        return plain and not twin and (i.family == "mma" or i.n in _LISTED)


def timing_rows(text: str | None, arch: str | None) -> Iterator[Row]:
    """Yield the timing of an instruction, or of all instructions of a target, for each location of A.

    The default target is sm_90, or the first architecture that has the instruction. A SASS name stands for the PTX
    instructions that compile to a single SASS instruction with this name.
    """
    if text is None:
        yield from _every_row(arch or ARCHITECTURE)
        return
    for subject, architectures in _subjects(text, arch):
        name = arch or (ARCHITECTURE if ARCHITECTURE in architectures else architectures[0])
        require_target(subject.instruction, name, subject.opcode)
        yield from _rows([subject], name)


def _every_row(name: str) -> Iterator[Row]:
    subjects: Iterator[Subject] = map(Subject, every_instruction())
    if same_numerics(name) == LAWS["tcgen05"].arch:
        opcodes = (opcode for opcode in every_opcode() if not opcode.weight_stationary)
        subjects = chain((Subject(i, opcode) for opcode in opcodes for i in instructions_of(opcode)), subjects)
    yield from _rows((subject for subject in subjects if target_named(name).has(subject.instruction)), name)


def _subjects(text: str, arch: str | None) -> list[tuple[Subject, tuple[str, ...]]]:
    """Return the instructions that a text names, each with the architectures to which the text applies."""
    if machine := machine_instruction(text, arch):
        whole = [one for one in machine.implemented if one.count == 1]
        if not whole:
            raise InstructionError(
                f"the cycle count of {machine.name} is unknown: it implements only a part of an instruction of {arch}"
            )
        return [(subject_named(one.instruction), one.architectures) for one in whole]
    subject = resolve(text, arch)
    return [(subject, subject.instruction.architectures)]


def shape_note(text: str | None, rows: Sequence[Row]) -> str | None:
    """Return a note on the chosen shape if `text` names a ``tcgen05`` opcode without a shape, else None."""
    if text is None or "(" in text or not rows or rows[0].instruction.family != "tcgen05":
        return None
    if any(subject_named(row.text) != subject_named(row.text.partition(" ")[0]) for row in rows):
        return None  # the user's text gives the shape, in words or as a descriptor
    note = "without shape and types in brackets after the opcode, the shape with the largest M and smallest N is taken"
    shapes = {row.instruction.shape_and_types for row in rows}
    return f"{note}: ({shapes.pop()})" if len(shapes) == 1 else note


def _rows(subjects: Iterable[Subject], name: str) -> Iterator[Row]:
    for subject in subjects:
        i, opcode = subject.instruction, subject.opcode
        for a_from in A_PLACES if opcode else ("registers", "shared") if i.family == "wgmma" else ("registers",):
            cycles = tcgen05_timing(opcode, i, a_from) if opcode else timing_on(i, name, a_from)
            if cycles and opcode and not target_named(name).same_chip:
                cycles = replace(cycles, source=Source.MODELLED)
            if cycles:
                yield Row(subject.name, i, a_from, cycles, name)


def timing_table(rows: Sequence[Row]) -> str:
    """Return the timing of instructions as a table."""
    width = max(len(row.text) for row in rows)
    lines = [
        f"{'instruction':{width}}  {'A from':9} {'interval':>8} {'latency':>8} {'kept MAC':>8}  bound by       known"
    ]
    lines += [
        f"{row.text:{width}}  {row.a_from:9} {row.timing.interval:8g} {_cycles(row.timing.latency):>8} "
        f"{row.timing.kept_mac_per_cycle:8.1f}  {row.timing.bound_by.value:13}  {row.timing.source.value}"
        for row in rows
    ]
    lines += dict.fromkeys(
        f"{row.timing.source.value}: {reference}" for row in rows if (reference := row.timing.reference)
    )
    return "\n".join(lines)


def _cycles(number: float) -> str:
    return "-" if isnan(number) else f"{number:g}"


def product_table(instructions: Sequence[Instruction], timings: Sequence[ProductTiming]) -> str:
    """Return a table of the estimated cycles of a matrix product, with a line for each of the given instructions."""
    width = max(len(str(i)) for i in instructions)
    lines = [f"{'instruction':{width}} {'cycles':>10} {'waves':>6} {'multiplying':>12} {'storing':>10}  bound by"]
    for i, cycles in zip(instructions, timings, strict=True):
        lines.append(
            f"{i!s:{width}} {cycles.cycles:10} {cycles.waves:6} {cycles.multiplying:12} {cycles.storing:10}  "
            f"{cycles.bound_by}"
        )
    if len(instructions) > 1:
        gain = timings[1].cycles / timings[0].cycles
        lines.append(
            f"the sparse product is {gain:.2f} times as fast; estimated by the timing model and three fitted figures"
        )
    return "\n".join(lines)


#: For `plot_rates`: PTX opcode with gaps for `.sp`, N and K; shape of the plot's dots for each resource; values of N.
_PLOTTED = "wgmma.mma_async{}.sync.aligned.m64n{}k{}.f32.f16.f16"
_MARKERS = {Resource.TENSOR_CORE: "o", Resource.SHARED_MEMORY: "s", Resource.REGISTER_FILE: "^"}
_COLUMNS = range(8, 257, 8)


def plot_rates(path: Path) -> None:
    """Plot the MACs of stored elements per cycle and tensor core for f16 ``wgmma``, by N, sparsity and location of A.

    Raise the errors of :func:`~sptc.infra.figures.picture`.
    """
    with picture(path, 9, 5) as axes:
        for colour, (sparse, k) in enumerate((("", 16), (".sp", 32))):
            for a_from, style in (("registers", "-"), ("shared", "--")):
                timings = [(n, timing(parse(_PLOTTED.format(sparse, n, k)), ARCHITECTURE, a_from)) for n in _COLUMNS]
                points = [(n, one.kept_mac_per_cycle, one.bound_by) for n, one in timings if one]
                name = f"{'sparse' if sparse else 'dense'}, A from {a_from}"
                axes.plot(
                    [n for n, *_ in points], [rate for _, rate, _ in points], style, color=f"C{colour}", label=name
                )
                for resource, marker in _MARKERS.items():
                    bound = [(n, rate) for n, rate, limit in points if limit is resource]
                    columns, rates = zip(*bound, strict=True) if bound else ([], [])
                    axes.plot(columns, rates, marker, color=f"C{colour}", markersize=4)
        for resource, marker in _MARKERS.items():
            axes.plot([], [], marker, color="gray", label=f"bound by {resource.value}")
        axes.set_xlabel("columns N of wgmma.mma_async, f16")
        axes.set_ylabel("kept MACs per cycle and tensor core")
        axes.set_xlim(0, _COLUMNS[-1] + 8)
        axes.set_ylim(0)
        axes.legend(frameon=False)
