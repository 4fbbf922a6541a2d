"""``mma`` of a kernel, executed by the public function of this package on any back end, when it is executed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.warp import mma
from ..errors import Error, KernelError, MetadataError
from ..isa.instructions import Instruction as TensorInstruction
from ..isa.instructions import parse
from .cycles import TensorWork
from .machine import Machine, Mask, Reader, Step, not_modelled
from .program import Immediate, Instruction, Operand, Vector

__all__ = ["MMA", "called", "constant_number", "independent_runs", "mma_run", "parsed"]

_WARP = 32


def parsed(ins: Instruction) -> TensorInstruction:
    """Parse the opcode of a tensor-core instruction, and name the line if it is none."""
    try:
        return parse(ins.opcode)
    except Error as error:
        raise KernelError(f"line {ins.line}: {error}") from None


def constant_number(operand: Operand, ins: Instruction) -> int:
    """Return an operand that must be a constant."""
    if not isinstance(operand, Immediate):
        raise not_modelled(ins, "one of its operands must be a constant")
    return operand.value


def called(
    machine: Machine,
    ins: Instruction,
    function: Callable[..., NDArray],
    *arguments: Any,
    holder: Callable[[MetadataError], str] | None = None,
    **options: Any,
) -> NDArray:
    """Call a function of the package, and name the line where it refuses its operands.

    Undefined metadata is reported with its `holder`, a thread or CTA, and then selects as the multiplexers of silicon
    do. Without a holder, the :class:`~sptc.errors.MetadataError` is raised.
    """

    def call(**policy: str) -> NDArray:
        try:
            return function(ins.opcode, *arguments, **options, **policy)
        except MetadataError:
            raise
        except Error as error:
            raise KernelError(f"line {ins.line}: {error}") from None

    try:
        return call()
    except MetadataError as error:
        if holder is None:
            raise
        text = str(error.at(())).removeprefix("undefined ")
        machine.report(ins, "undefined metadata", "Sparse matrix storage", text, holder(error))
        return call(metadata="silicon")


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
    instruction = parsed(ins)
    d, a, b, c = (machine.register_numbers(operand) for operand in ins.operands[:4])
    rest = list(ins.operands[4:])
    metadata, selector = (rest.pop(0), constant_number(rest.pop(0), ins)) if instruction.sparse else (None, 0)
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
    """Return the step of several ``mma`` that are independent of each other: one call of the back end for all.

    Where metadata is undefined, each is called alone, so that the report names its line.
    """
    ins, launch = instructions[0], machine.launch
    every = [_fragments(machine, each) for each in instructions]
    alone = [mma_run(machine, [each]) for each in instructions] if len(instructions) > 1 and every[0].e else []
    works = [TensorWork(each.line, each.opcode) for each in instructions]

    def step(mask: Mask) -> None:
        groups = machine.whole_groups(mask, _WARP, ins)
        warps = np.arange(machine.count // _WARP) if groups is None else groups
        chosen = slice(None) if groups is None else groups

        def stacked(name: str) -> NDArray[np.uint32]:
            return np.stack([machine.stacked(getattr(each, name), _WARP)[chosen] for each in every])

        options: dict[str, Any] = {"arch": launch.arch, "backend": launch.backend}
        if every[0].e:
            options |= {"e": stacked("e")[..., 0], "selector": every[0].selector}
        for name, (read, byte_id, thread_id) in every[0].scales.items():
            data = machine.every(read()).reshape(-1, _WARP)[chosen]
            options[name] = (np.ascontiguousarray(data), byte_id, thread_id)

        def holder(error: MetadataError) -> str:
            return machine.who(int(warps[error.batch[-1]]) * _WARP + error.lane)

        operands = [stacked(name) for name in "abc"]
        try:
            results = called(machine, ins, mma, *operands, holder=None if alone else holder, **options)
        except MetadataError:
            for one in alone:
                one(mask)
            return
        for fragments, result, work in zip(every, results, works, strict=True):
            machine.spread(fragments.d, result, groups, _WARP)
            machine.work.multiplications[work] += len(warps)

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
        byte_id, thread_id = (constant_number(item, ins) for item in ids.items)
        found[name] = machine.reader(register, "b32"), byte_id, thread_id
    return found


MMA: dict[str, Callable[[Machine, Instruction], Step]] = {"mma": _mma}
