"""Tensor-core instructions of a kernel, executed by the public functions of this package on any back end.

``mma`` is computed when it is executed. ``wgmma`` is computed, and its registers and shared memory are read, when its
warpgroup waits for its group: an access that should have come behind the wait sees the old accumulators, or changes
what is multiplied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.warp import mma
from ..api.warpgroup import wgmma
from ..errors import Error, KernelError, MetadataError
from ..isa.instructions import Instruction as TensorInstruction
from ..isa.instructions import parse
from ..isa.memory import decode_descriptor, operand_map
from .copies import ThreadGroups
from .machine import Machine, Mask, Reader, Step, not_modelled
from .program import Address, Immediate, Instruction, Operand, Register, Vector

__all__ = ["TENSOR_CORES", "called", "independent_runs", "mma_run", "waiting_for_wgmma", "wgmma_registers"]

_WARP, _WARPGROUP = 32, 128


def _parsed(ins: Instruction) -> TensorInstruction:
    try:
        return parse(ins.opcode)
    except Error as error:
        raise KernelError(f"line {ins.line}: {error}") from None


def _number(operand: Operand, ins: Instruction) -> int:
    if not isinstance(operand, Immediate):
        raise not_modelled(ins, "an operand that must be a constant is none")
    return operand.value


def called(
    machine: Machine, ins: Instruction, function: Callable[..., NDArray], *arguments: Any, **options: Any
) -> NDArray:
    """Call a function of the package, and name the line where it refuses its operands.

    Metadata that the instruction leaves undefined is reported, and then selects as the multiplexers of silicon do.
    """
    try:
        try:
            return function(ins.opcode, *arguments, **options)
        except MetadataError as error:
            rule = "Sparse matrix storage"
            machine.report(ins, "undefined metadata", rule, str(error).removeprefix("undefined "))
            return function(ins.opcode, *arguments, metadata="silicon", **options)
    except Error as error:
        raise KernelError(f"line {ins.line}: {error}") from None


@dataclass(frozen=True)
class _Fragments:
    """Registers of one ``mma``, and what else it takes."""

    d: list[int]
    a: list[int]
    b: list[int]
    c: list[int]
    e: list[int]
    selector: int
    scales: dict[str, tuple[Reader, int, int]]

    @property
    def sources(self) -> frozenset[int]:
        """Registers that are read."""
        return frozenset((*self.a, *self.b, *self.c, *self.e))


def _fragments(machine: Machine, ins: Instruction) -> _Fragments:
    instruction = _parsed(ins)
    d, a, b, c = (machine.register_numbers(operand) for operand in ins.operands[:4])
    rest = list(ins.operands[4:])
    metadata, selector = (rest.pop(0), _number(rest.pop(0), ins)) if instruction.sparse else (None, 0)
    e = machine.register_numbers(metadata) if metadata is not None else []
    return _Fragments(d, a, b, c, e, selector, _scales(machine, ins, rest) if instruction.scale_size else {})


def _mma(machine: Machine, ins: Instruction) -> Step:
    return mma_run(machine, [ins])


def independent_runs(machine: Machine, joins: frozenset[int]) -> list[list[int]]:
    """Return runs of consecutive ``mma`` of which none reads a result of another: they can be computed together.

    Parameters
    ----------
    machine : Machine
        The kernel.
    joins : frozenset of int
        Places of instructions behind a label, at which no run continues.
    """
    runs: list[list[int]] = []
    written: set[int] = set()
    last: tuple[str, int] | None = None
    for place, ins in enumerate(machine.kernel.instructions):
        if ins.words[0] != "mma" or ins.guard:
            last = None
            continue
        fragments = _fragments(machine, ins)
        kind = (ins.opcode, fragments.selector)
        if kind == last and place not in joins and not fragments.scales and not fragments.sources & written:
            runs[-1].append(place)
        else:
            runs.append([place])
            written = set()
        written |= {*fragments.d}
        last = kind
    return [run for run in runs if len(run) > 1]


def mma_run(machine: Machine, instructions: Sequence[Instruction]) -> Step:
    """Return the step of several ``mma`` that are independent of each other: one call of the back end for all."""
    ins, launch = instructions[0], machine.launch
    every = [_fragments(machine, each) for each in instructions]

    def step(mask: Mask) -> None:
        groups = machine.whole_groups(mask, _WARP, ins)
        chosen = slice(None) if groups is None else groups
        warps = machine.count // _WARP if groups is None else len(groups)
        machine.work.multiplications.update({(each.line, 0): warps for each in instructions})

        def stacked(name: str) -> NDArray[np.uint32]:
            return np.stack([machine.stacked(getattr(each, name), _WARP)[chosen] for each in every])

        options: dict[str, Any] = {"arch": launch.arch, "backend": launch.backend}
        if every[0].e:
            options |= {"e": stacked("e")[..., 0], "selector": every[0].selector}
        for name, (read, byte_id, thread_id) in every[0].scales.items():
            data = machine.every(read()).reshape(-1, _WARP)[chosen]
            options[name] = (np.ascontiguousarray(data), byte_id, thread_id)
        results = called(machine, ins, mma, *(stacked(name) for name in "abc"), **options)
        for fragments, result in zip(every, results, strict=True):
            machine.spread(fragments.d, result, groups, _WARP)

    return step


def _scales(machine: Machine, ins: Instruction, operands: list[Operand]) -> dict[str, tuple[Reader, int, int]]:
    """Return scale data, byte id and thread id of A and B, which stand in braces or alone."""
    if len(operands) != 4:
        raise not_modelled(ins, "its block scales")
    found: dict[str, tuple[Reader, int, int]] = {}
    for name, data, ids in (("scale_a", operands[0], operands[1]), ("scale_b", operands[2], operands[3])):
        register = data.items[0] if isinstance(data, Vector) else data
        if not isinstance(ids, Vector) or len(ids.items) != 2:
            raise not_modelled(ins, "byte id and thread id of its block scales")
        byte_id, thread_id = (_number(item, ins) for item in ids.items)
        found[name] = machine.reader(register, "b32"), byte_id, thread_id
    return found


class _RegisterFences:
    """Which registers of ``wgmma`` were written by threads, and not fenced since: by register and warpgroup."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.index = {number: index for index, number in enumerate(sorted(wgmma_registers(machine)))}
        #: Line of the last write without a fence behind it; 0 with one. Before the first fence all are unfenced.
        self.line = np.full((len(self.index), machine.count // _WARPGROUP), -1, np.int32)

    def _places(self, registers: frozenset[int], mask: Mask) -> tuple[NDArray[np.intp], ...]:
        groups = np.unique(self.machine.active(mask) // _WARPGROUP)
        rows = np.array([self.index[number] for number in sorted(registers)], np.intp)
        return np.ix_(rows, groups[groups < self.line.shape[1]])

    def write(self, ins: Instruction, registers: frozenset[int], mask: Mask) -> None:
        """Note that threads write registers."""
        self.line[self._places(registers, mask)] = ins.line

    def fence(self, mask: Mask) -> None:
        """Order all writes of the threads before what follows."""
        self.line[self._places(frozenset(self.index), mask)] = 0

    def check(self, ins: Instruction, registers: frozenset[int], mask: Mask) -> None:
        """Report registers of a multiplication that are not fenced."""
        lines = self.line[self._places(registers, mask)]
        if (last := lines[lines != 0]).size:
            written = "no wgmma.fence was executed" if last[0] < 0 else f"no wgmma.fence is behind line {last[0]}"
            what = f"{written}, which writes its registers" if last[0] > 0 else written
            self.machine.report(ins, "registers without a fence", "wgmma.fence", what)


def _wgmma(machine: Machine, ins: Instruction) -> Step:
    words = ins.words
    groups = machine.unit("wgmma", ThreadGroups)
    if words[1] == "fence":
        return machine.unit("wgmma.fence", _RegisterFences).fence
    if words[1] == "commit_group":
        return groups.commit
    if words[1] == "wait_group":
        left = _number(ins.operands[0], ins)
        return lambda mask: groups.wait(mask, left)
    return _multiply(machine, ins, groups)


def _multiply(machine: Machine, ins: Instruction, groups: ThreadGroups) -> Step:
    instruction = _parsed(ins)
    operands = list(ins.operands)
    d, first = machine.register_numbers(operands.pop(0)), operands.pop(0)
    a = machine.register_numbers(first) if isinstance(first, Vector) else []
    read_a = None if a else machine.reader(first, "b64")
    read_b = machine.reader(operands.pop(0), "b64")
    metadata, selector = (operands.pop(0), _number(operands.pop(0), ins)) if instruction.sparse else (None, 0)
    e = machine.register_numbers(metadata) if metadata is not None else []
    read_scale = machine.reader(operands.pop(0), "pred") if operands else None
    immediates = [_number(operand, ins) for operand in operands]
    options: dict[str, Any] = {"backend": machine.launch.backend}
    if immediates:
        options |= {"imm_scale_a": immediates[0], "imm_scale_b": immediates[1]}
    if len(immediates) > 2:
        options |= {"imm_trans_a": 0 if a else immediates[-2], "imm_trans_b": immediates[-1]}

    registers = frozenset((*d, *a, *e))
    fenced, fences = frozenset((*d, *a)), machine.unit("wgmma.fence", _RegisterFences)

    def step(mask: Mask) -> None:
        fences.check(ins, fenced, mask)
        active = machine.whole_groups(mask, _WARPGROUP, ins)
        machine.work.multiplications[ins.line, 0] += machine.count // _WARPGROUP if active is None else len(active)
        leaders = slice(0, None, _WARPGROUP)
        descriptors = machine.every(read_b())[leaders]
        of_a = machine.every(read_a())[leaders] if read_a else descriptors
        adds = machine.every(read_scale() if read_scale else np.ones(1, np.bool_))[leaders]
        keys = np.stack([of_a, descriptors, adds.astype(np.uint64)], -1)
        reading = (
            _reads(machine, ins, instruction, mask, keys, options, in_registers=bool(a)) if machine.checker else {}
        )

        def execute(chosen: Mask) -> None:
            which = np.arange(len(keys)) if chosen is None else np.flatnonzero(chosen[leaders])
            for group in which.tolist():
                if group in reading:
                    machine.checker.ends(reading.pop(group), "read")
            accumulators = machine.stacked(d, _WARPGROUP)[which]
            registers = machine.stacked(a, _WARPGROUP)[which] if a else None
            words_of_e = machine.stacked(e, _WARPGROUP)[which, :, 0] if e else None
            ctas = machine.cta_of_thread[leaders][which]
            results = np.empty_like(accumulators)
            for key in np.unique(keys[which], axis=0):
                same = (keys[which] == key).all(-1)
                operand_a = int(key[0]) if registers is None else registers[same]
                sparse = () if words_of_e is None else (words_of_e[same], selector)
                results[same] = called(
                    machine,
                    ins,
                    wgmma,
                    accumulators[same],
                    operand_a,
                    int(key[1]),
                    *sparse,
                    smem=machine.shared[ctas[same]],
                    scale_d=bool(key[2]),
                    **options,
                )
            machine.spread(d, results, None if chosen is None else which, _WARPGROUP)

        groups.add(mask, execute, registers)

    return step


def _reads(
    machine: Machine,
    ins: Instruction,
    instruction: TensorInstruction,
    mask: Mask,
    keys: NDArray[np.uint64],
    options: dict[str, Any],
    *,
    in_registers: bool,
) -> dict[int, NDArray[np.int64]]:
    """Check what each warpgroup's ``wgmma`` reads from shared memory, and return the bytes by warpgroup."""
    read = {}
    for group in np.unique(machine.active(mask) // _WARPGROUP).tolist():
        cta = group * _WARPGROUP // machine.threads
        places = []
        for name, descriptor in zip("ab", keys[group].tolist(), strict=False):
            if name == "a" and in_registers:
                continue
            transposed = bool(options.get(f"imm_trans_{name}", 0))
            try:
                where = operand_map(instruction, name, decode_descriptor(descriptor), transposed=transposed)
            except Error as error:
                raise KernelError(f"line {ins.line}: {error}") from None
            octets = where.addresses.ravel()[:, None] + np.arange(-(-where.element_bits // 8))
            places.append(octets.ravel() + cta * machine.shared_bytes)
        together = np.concatenate(places)
        first = group * _WARPGROUP
        machine.checker.reads_in_bulk(ins, range(first, first + _WARPGROUP, _WARP), together)
        machine.checker.begins(ins, together, "read")
        read[group] = together
    return read


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
    """Return a step that first completes every ``wgmma`` in flight whose registers it touches, and reports it.

    PTX leaves such an access undefined ("Asynchronous Warpgroup Level Matrix Instructions"). The assembler completes
    the multiplication first, so that a GPU gives what is given here: measured on an H100 with kernels of Triton 3.6,
    which reads accumulators before the wait where they are f16 or where it adds partial sums itself.
    """
    groups, fences = machine.unit("wgmma", ThreadGroups), machine.unit("wgmma.fence", _RegisterFences)
    result = ins.operands[0]
    written = frozenset() if isinstance(result, Address) else registers & frozenset(_named(machine, result))

    def checked(mask: Mask) -> None:
        if written:
            fences.write(ins, written, mask)
        if groups.pending and groups.uses(registers, mask):
            machine.report(
                ins,
                "registers before the wait",
                "Asynchronous Warpgroup Level Matrix Instructions",
                "it touches registers of a wgmma before wgmma.wait_group",
            )
            groups.wait(mask, 0, closed=False)
        step(mask)

    return checked


def _named(machine: Machine, operand: Operand) -> list[int]:
    parts = operand.items if isinstance(operand, Vector) else (operand,)
    return [machine.numbers[part.name] for part in parts if isinstance(part, Register)]


TENSOR_CORES: dict[str, Callable[[Machine, Instruction], Step]] = {"mma": _mma, "wgmma": _wgmma}
