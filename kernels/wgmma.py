"""Execute the ``wgmma`` instructions of a kernel through the public function of this package, on any back end.

A ``wgmma`` reads its operands and is computed when its warpgroup waits for its group: a write to shared memory before
this wait changes the operands. An access to its registers before the wait is reported, and completes the ``wgmma``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..api.warpgroup import wgmma_chain
from ..errors import KernelError, MetadataError
from ..isa.instructions import Instruction as TensorInstruction
from ..isa.memory import SharedDescriptor, decode_descriptor, operand_map
from ..isa.operands import Immediates
from .copies import ThreadGroups, group_step
from .cycles import TensorWork
from .machine import WARP, WARPGROUP, Machine, Step, not_modelled
from .memory import pieces_of
from .mma import called, constant_number, parsed
from .program import Address, Instruction, Vector, at_line, register_names
from .registers import Mask

__all__ = ["waiting_for_wgmma", "wgmma_registers", "wgmma_step"]

_UNIT = 16
#: Maximum number of multiplications that are computed together. This maximum limits the memory that a run needs.
_MOST_STEPS = 16


class _RegisterFences:
    """Registers of ``wgmma`` that threads wrote since the last fence, by register and warpgroup."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.index = {number: index for index, number in enumerate(sorted(wgmma_registers(machine)))}
        #: Line of the last write to each register, for each warpgroup; 0 if a fence followed the write, -1 before the
        #: first fence.
        self.line = np.full((len(self.index), machine.count // WARPGROUP), -1, np.int32)

    def _places(self, registers: frozenset[int], mask: Mask) -> tuple[NDArray[np.intp], ...]:
        groups = np.arange(self.line.shape[1])
        if mask is not None:
            groups = np.intersect1d(groups, np.flatnonzero(mask) // WARPGROUP)
        return np.ix_(np.array([self.index[number] for number in sorted(registers)], np.intp), groups)

    def write(self, ins: Instruction, registers: frozenset[int], mask: Mask) -> None:
        """Record that threads have written registers of ``wgmma``."""
        self.line[self._places(registers, mask)] = ins.line

    def fence(self, mask: Mask) -> None:
        """Execute ``wgmma.fence``: order all register writes of the threads before later multiplications."""
        self.line[self._places(frozenset(self.index), mask)] = 0

    def check(self, ins: Instruction, registers: frozenset[int], mask: Mask) -> None:
        """Report a multiplication whose registers were written without a later fence."""
        lines = self.line[self._places(registers, mask)]
        if (last := lines[lines != 0]).size:
            written = "no wgmma.fence was executed" if last[0] < 0 else f"no wgmma.fence follows line {last[0]}"
            what = f"{written}, which writes registers of the instruction" if last[0] > 0 else written
            self.machine.report(ins, "registers without a fence", "wgmma.fence", what)


class _Groups(ThreadGroups):
    """Commit groups of ``wgmma``. Instructions that add to the same accumulators are computed together."""

    def execute(self, works: list[tuple[Callable[[Mask], None], Mask]]) -> None:
        """Complete ``wgmma`` multiplications. Multiplications that add to the same accumulators stay in order."""
        issued = [(work, mask) for work, mask in works if isinstance(work, _Issued)]
        accumulators = {work.form.d for work, _ in issued}
        written = {number for d in accumulators for number in d}
        separate = len(written) == sum(map(len, accumulators)) and not any(
            written.intersection(work.form.a, work.form.e) for work, _ in issued
        )
        chains: list[tuple[list[_Issued], Mask]] = []
        latest: dict[tuple[int, ...], tuple[list[_Issued], Mask]] = {}
        for work, mask in issued:
            chain, others = latest.get(work.form.d, ([], None))
            same = mask is others or (mask is not None and others is not None and np.array_equal(mask, others))
            if separate and chain and same and chain[0].takes(work) and len(chain) < _MOST_STEPS:
                chain.append(work)
            else:
                chains.append(([work], mask))
                latest[work.form.d] = chains[-1]
        for chain, mask in chains:
            try:
                chain[0].compute(chain, mask)
            except KernelError:
                for work in chain:  # Complete multiplications one by one, so that the error names the line that fails.
                    work(mask)


@dataclass(frozen=True)
class _Form:
    """Registers and immediate operands of a ``wgmma`` instruction."""

    ins: Instruction
    d: tuple[int, ...]
    #: Registers of A (empty if A is in shared memory), and registers of the metadata (empty if A is dense).
    a: tuple[int, ...]
    e: tuple[int, ...]
    immediates: Immediates


@dataclass(eq=False)
class _Issued:
    """A ``wgmma`` multiplication that was issued and is not complete."""

    machine: Machine
    form: _Form
    #: For each warpgroup: descriptors of A and B, and whether D is added to the product.
    keys: NDArray[np.uint64]
    #: For each warpgroup, if accesses are checked: offsets in shared memory that are read, and bytes read at each.
    reading: dict[int, tuple[NDArray[np.int64], int]]

    def takes(self, other: "_Issued") -> bool:
        """Return whether one call can do both multiplications: both dense, options equal, and `other` adds to D."""
        forms = [(form.ins.opcode, form.e, form.immediates) for form in (self.form, other.form)]
        return not self.form.e and forms[0] == forms[1] and bool(other.keys[:, 2].all())

    def __call__(self, chosen: Mask) -> None:
        """Complete the ``wgmma`` multiplication for the selected threads."""
        self.compute([self], chosen)

    def compute(self, chain: "list[_Issued]", chosen: Mask) -> None:
        """Complete successive multiplications (`chain`, which starts with `self`) on the same accumulators."""
        machine, form = self.machine, self.form
        groups = None if chosen is None else np.flatnonzero(chosen[::WARPGROUP])
        which = np.arange(len(self.keys)) if groups is None else groups
        for issued in chain:
            for group in issued.reading.keys() & {*which.tolist()}:
                machine.checker.ends(*issued.reading.pop(group), "read")
        accumulators = machine.stacked(form.d, WARPGROUP, groups)
        of_a = [machine.stacked(issued.form.a, WARPGROUP, groups) if issued.form.a else None for issued in chain]
        e = machine.stacked(form.e, WARPGROUP, groups)[..., 0] if form.e else None
        ctas = machine.cta_of_thread[::WARPGROUP][which]
        keys = np.stack([issued.keys[which] for issued in chain], 1)
        results = np.empty_like(accumulators)
        for key in np.unique(keys, axis=0):
            same = (keys == key).all((1, 2))
            every = same.all() and len(which) == machine.ctas and (ctas == np.arange(machine.ctas)).all()
            options = {
                "smem": machine.shared if every else machine.shared[ctas[same]],
                "immediates": replace(form.immediates, scale_d=bool(key[0, 2])),
                "backend": machine.launch.backend,
            }
            steps = [(int(step[0]) if a is None else a[same], int(step[1])) for step, a in zip(key, of_a, strict=True)]
            firsts = which[same] * WARPGROUP

            def holder(error: MetadataError, firsts: NDArray[np.intp] = firsts) -> str:
                return machine.who(int(firsts[error.batch[-1]]) + error.lane)

            operands = accumulators[same], steps, None if e is None else e[same]
            results[same] = called(machine, form.ins, wgmma_chain, *operands, holder=holder, **options)
        machine.spread(form.d, results, groups, WARPGROUP)


def wgmma_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes a ``wgmma`` instruction."""
    groups = machine.unit("wgmma", _Groups)
    if ins.words[1] == "fence":
        return machine.unit("wgmma.fence", _RegisterFences).fence
    return group_step(ins, groups) or _multiply(machine, ins, groups)


def _multiply(machine: Machine, ins: Instruction, groups: ThreadGroups) -> Step:
    instruction = parsed(ins, machine.launch.arch)
    operands = list(ins.operands)
    if machine.threads % WARPGROUP:
        raise not_modelled(ins, f"a CTA has {machine.threads} threads, which is not a multiple of {WARPGROUP}")
    d, first = machine.register_numbers(operands.pop(0)), operands.pop(0)
    a = machine.register_numbers(first) if isinstance(first, Vector) else ()
    read_a = None if a else machine.reader(first, "b64")
    read_b = machine.reader(operands.pop(0), "b64")
    metadata, selector = (
        (operands.pop(0), constant_number(machine.kernel, operands.pop(0), ins)) if instruction.sparse else (None, 0)
    )
    e = machine.register_numbers(metadata) if metadata is not None else ()
    read_scale = machine.reader(operands.pop(0), "pred") if operands else None
    numbers = [constant_number(machine.kernel, operand, ins) for operand in operands]
    scales = (numbers[0], numbers[1]) if numbers else (1, 1)
    transposed = (0 if a else numbers[-2], numbers[-1]) if len(numbers) > 2 else (0, 0)
    form = _Form(ins, d, a, e, Immediates(selector, imm_scale=scales, imm_trans=transposed))
    fenced, fences = frozenset((*d, *a)), machine.unit("wgmma.fence", _RegisterFences)
    work = TensorWork(ins.line, ins.opcode, "registers" if a else "shared")

    def reads(mask: Mask, keys: NDArray[np.uint64]) -> dict[int, tuple[NDArray[np.int64], int]]:
        """Check the reads of shared memory. Return, for each warpgroup, the offsets and the bytes per offset."""
        read = {}
        for group in np.unique(machine.active(mask) // WARPGROUP).tolist():
            first = group * WARPGROUP
            of_a, of_b, _ = keys[group].tolist()
            with at_line(ins):
                places, octets, matrices = _operand_places(instruction, None if a else of_a, of_b, transposed)
            cta = first // machine.threads
            read[group] = places + cta * machine.shared_bytes, octets
            for name, descriptor, units in matrices:
                machine.checker.tiles.describe(ins, name, descriptor, cta, units + cta * machine.shared_bytes // _UNIT)
            machine.checker.reads_in_bulk(ins, range(first, first + WARPGROUP, WARP), *read[group])
            machine.checker.begins(ins, *read[group], "read")
        return read

    def step(mask: Mask) -> None:
        fences.check(ins, fenced, mask)
        active = machine.whole_groups(mask, WARPGROUP, ins)
        machine.work.multiplications[work] += machine.count // WARPGROUP if active is None else len(active)
        leaders = slice(0, None, WARPGROUP)
        descriptors = machine.every(read_b())[leaders]
        of_a = machine.every(read_a())[leaders] if read_a else descriptors
        adds = machine.every(read_scale() if read_scale else np.ones(1, np.bool_))[leaders]
        keys = np.stack([of_a, descriptors, adds.astype(np.uint64)], -1)
        reading = reads(mask, keys) if machine.checker else {}
        groups.add(mask, _Issued(machine, form, keys, reading), frozenset((*d, *a, *e)))

    return step


@lru_cache(maxsize=1024)
def _operand_places(
    instruction: TensorInstruction, a: int | None, b: int, transposed: tuple[int, int]
) -> tuple[NDArray[np.int64], int, list[tuple[str, SharedDescriptor, NDArray[np.int64]]]]:
    """Return the offsets in shared memory from which a multiplication reads, and the number of bytes at each offset.

    In addition, return a tuple for each descriptor without swizzle: operand, descriptor, and those 16-byte units of the
    operand whose following unit belongs to the operand, too.
    """
    places, matrices = [], []
    for name, descriptor, turned in zip("ab", (a, b), transposed, strict=True):
        if descriptor is not None:
            decoded = decode_descriptor(descriptor)
            where = operand_map(instruction, name, decoded, transposed=bool(turned))
            places.append((where.addresses.ravel()[:, None] + np.arange(-(-where.element_bits // 8))).ravel())
            if decoded.swizzle.name == "none":
                units = np.unique(places[-1] // _UNIT)
                matrices.append((name, decoded, units[:-1][np.diff(units) == 1]))
    return *pieces_of(np.concatenate(places)), matrices


def wgmma_registers(machine: Machine) -> frozenset[int]:
    """Return the registers that any ``wgmma`` of the kernel reads or writes."""
    vectors = [
        operand
        for ins in machine.kernel.instructions
        if ins.opcode.startswith("wgmma.mma_async")
        for operand in ins.operands
        if isinstance(operand, Vector)
    ]
    return frozenset(number for vector in vectors for number in machine.register_numbers(vector))


def waiting_for_wgmma(machine: Machine, ins: Instruction, registers: frozenset[int], step: Step) -> Step:
    """Return a function that first completes and reports pending ``wgmma`` that use `registers`, then runs `step`.

    PTX leaves such an access undefined ("Asynchronous Warpgroup Level Matrix Instructions"). The assembler completes
    the multiplication first, so that a GPU has the same result: measured on an H100 with kernels of Triton 3.6, whose
    code reads f16 accumulators, and promoted partial sums, before the wait.
    """
    groups, fences = machine.unit("wgmma", _Groups), machine.unit("wgmma.fence", _RegisterFences)
    result = ins.operands[0]
    written = (
        frozenset() if isinstance(result, Address) else registers & {*machine.numbers_of(register_names([result]))}
    )

    def checked(mask: Mask) -> None:
        if written:
            fences.write(ins, written, mask)
        if groups.pending and groups.uses(registers, mask):
            kind, rule = "registers before the wait", "Asynchronous Warpgroup Level Matrix Instructions"
            machine.report(ins, kind, rule, "the instruction accesses registers of a wgmma before wgmma.wait_group")
            groups.wait(mask, 0, closed=False)
        step(mask)

    return checked
