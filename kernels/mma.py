"""Execute the ``mma`` instructions of a kernel through the public functions of this package, on any back end."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.warp import mma_tiles
from ..errors import MetadataError
from ..isa.architectures import require_target
from ..isa.instructions import Instruction as TensorInstruction
from ..isa.instructions import parse
from ..isa.operands import Immediates
from .cycles import TensorWork
from .descriptors import constant_bits
from .machine import WARP, Machine, Step, not_modelled
from .program import Immediate, Instruction, Kernel, Operand, Vector, at_line
from .registers import Mask

__all__ = ["called", "constant_number", "mma_step", "mma_steps", "parsed"]


def parsed(ins: Instruction, arch: str | None = None) -> TensorInstruction:
    """Parse the opcode of a tensor-core instruction. If `arch` is given, check that `arch` has the instruction."""
    with at_line(ins):
        instruction = parse(ins.opcode)
        if arch is not None:
            require_target(instruction, arch)
        return instruction


def constant_number(kernel: Kernel, operand: Operand, ins: Instruction) -> int:
    """Return the value of an operand that must be a constant, or a register that always has the same constant."""
    if isinstance(operand, Immediate):
        return operand.value
    bits, whole = constant_bits(operand, kernel)
    if not whole:
        raise not_modelled(ins, "the sparsity selector, scale ids and immediate operands must be constants")
    return bits


def called(
    machine: Machine,
    ins: Instruction,
    function: Callable[..., NDArray],
    *arguments: Any,
    holder: Callable[[MetadataError], str] | None = None,
    **options: Any,
) -> NDArray:
    """Call the public function of a tensor-core instruction. Errors about operands contain the instruction's line.

    Undefined metadata is reported with its `holder`, a thread or CTA, and then selects elements of B as
    the multiplexers of the hardware do. Without a holder, the :class:`~sptc.errors.MetadataError` is raised.
    """

    def call(**policy: str) -> NDArray:
        with at_line(ins):
            return function(ins.opcode, *arguments, **options, **policy)

    try:
        return call()
    except MetadataError as error:
        if holder is None:
            raise
        text = str(error.at(())).removeprefix("undefined ")
        machine.report(ins, "undefined metadata", "Sparse matrix storage", text, holder(error))
        return call(metadata="silicon")


Numbers = tuple[int, ...]


@dataclass(frozen=True)
class _Multiplication:
    """Registers and immediate operands of one ``mma`` instruction."""

    d: Numbers
    c: Numbers
    a: Numbers
    e: Numbers
    scale_a: Numbers
    b: Numbers
    scale_b: Numbers
    immediates: Immediates

    @property
    def sources(self) -> set[int]:
        """Registers that the instruction reads, except those of C."""
        return {*self.a, *self.e, *self.scale_a, *self.b, *self.scale_b}


def _multiplication(machine: Machine, ins: Instruction) -> _Multiplication:
    instruction = parsed(ins)
    d, a, b, c = (machine.register_numbers(operand) for operand in ins.operands[:4])
    rest = list(ins.operands[4:])
    e, selector = (
        (rest.pop(0), constant_number(machine.kernel, rest.pop(0), ins)) if instruction.sparse else (Vector(()), 0)
    )
    scales, ids = _scales(machine.kernel, ins, rest) if instruction.scale_size else ([Vector(())] * 2, (0, 0, 0, 0))
    of_e, of_a, of_b = (machine.register_numbers(operand) for operand in (e, *scales))
    return _Multiplication(d, c, a, of_e, of_a, b, of_b, Immediates(selector, ids))


def _scales(
    kernel: Kernel, ins: Instruction, operands: list[Operand]
) -> tuple[list[Operand], tuple[int, int, int, int]]:
    """Return the scale registers of A and B, which may be in braces, and the byte id and thread id of each."""
    ids = [operand.items for operand in operands[1::2] if isinstance(operand, Vector)]
    if len(operands) != 4 or [*map(len, ids)] != [2, 2]:
        raise not_modelled(ins, "the block scales must be two registers, each with a constant byte id and thread id")
    byte_a, thread_a, byte_b, thread_b = (constant_number(kernel, item, ins) for pair in ids for item in pair)
    return operands[::2], (byte_a, thread_a, byte_b, thread_b)


def mma_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes an ``mma`` with a guard predicate; `mma_steps` serves all other ``mma``."""
    one = _multiplication(machine, ins)
    return _run_step(machine, [(ins, one)]) if ins.guard else _nothing


def _nothing(mask: Mask) -> None:
    """Do nothing for an ``mma`` that was computed together with an earlier ``mma``."""


def mma_steps(machine: Machine, joins: frozenset[int]) -> dict[int, Step]:
    """Return functions that execute the ``mma`` without a guard; the key is the index of the instruction.

    Consecutive ``mma`` are computed together at the first of them if each reads results of other ``mma`` only as its
    accumulator, and no other instruction reads those results: they form chains along K. Threads may branch to the
    instructions at the indices `joins`, which follow a label.
    """
    code = machine.kernel.instructions
    uses = Counter(name for ins in code for name in ins.registers)
    names = [*machine.kernel.registers]
    runs: dict[int, list[tuple[Instruction, _Multiplication]]] = {}
    run: list[tuple[Instruction, _Multiplication]] = []
    steps: dict[int, Step] = {}
    form: Any = None
    results: set[Numbers] = set()
    written: set[int] = set()
    for place, ins in enumerate(code):
        if ins.words[0] != "mma" or ins.guard:
            form = None
            continue
        one, form_before = _multiplication(machine, ins), form
        form = ins.opcode, one.immediates
        chained = one.c in results and (one.d == one.c or all(uses[names[number]] == 2 for number in one.c))
        free = one.sources if one.d == one.c and chained else one.sources.union(one.d, () if chained else one.c)
        if form == form_before and place not in joins and not free & written:
            run.append((ins, one))
            steps[place] = _nothing
            results.discard(one.c)
        else:
            run = runs[place] = [(ins, one)]
            written, results = set(), set()
        written.update(one.d)
        results.add(one.d)
    return steps | {place: _run_step(machine, run) for place, run in runs.items()}


#: Several ``mma`` instructions that add to the same accumulator, one after the other.
_Chain = list[_Multiplication]
_Grid = list[list[_Chain]]


def _grids(run: Sequence[_Multiplication]) -> list[list[_Grid]]:
    """Arrange chains of dependent ``mma`` in grids: equal A in a row, equal B in a column. Group grids by shape."""
    chains: dict[Numbers, _Chain] = {}
    for one in run:
        chains[one.d] = [*chains.pop(one.c, ()), one]
    rows: dict[Any, dict[Any, _Chain]] = {}
    for number, chain in enumerate(chains.values()):
        line = rows.setdefault(tuple((one.a, one.e, one.scale_a) for one in chain), {})
        column = tuple((one.b, one.scale_b) for one in chain), 0
        line[(column[0], number) if column in line else column] = chain
    alike: dict[frozenset[Any], list[dict[Any, _Chain]]] = {}
    for line in rows.values():
        alike.setdefault(frozenset(line), []).append(line)
    shapes: dict[tuple[int, int, int], list[_Grid]] = {}
    for lines in alike.values():
        grid = [[line[column] for column in lines[0]] for line in lines]
        shapes.setdefault((len(grid), len(grid[0]), len(grid[0][0])), []).append(grid)
    return [*shapes.values()]


class _Product:
    """Register indices for grids whose cells are chains of ``mma``. Axes: grid, row or column, ``mma``, register."""

    def __init__(self, machine: Machine, grids: list[_Grid]) -> None:
        self.machine = machine
        rows, columns = [[line[0] for line in grid] for grid in grids], [grid[0] for grid in grids]
        numbers = {name: np.array([[[getattr(one, name) for one in chain] for chain in side] for side in sides])
                   for name, sides in (("a", rows), ("b", columns), ("e", rows), ("scale_a", rows),
                                       ("scale_b", columns))}  # fmt: skip
        numbers["c"] = np.array([[[chain[0].c for chain in line] for line in grid] for grid in grids])
        self.d = np.array([[[chain[-1].d for chain in line] for line in grid] for grid in grids])
        self.numbers = {name: array for name, array in numbers.items() if array.size}

    def operands(self, groups: NDArray[np.intp] | None) -> dict[str, NDArray[np.uint32]]:
        """Return operands of chains of dependent ``mma`` as arguments of `mma_tiles`, with all warps in one batch."""
        values = {}
        for name, numbers in self.numbers.items():
            stacked = self.machine.stacked(numbers, WARP, groups)
            each = stacked.reshape(-1, *stacked.shape[2:])
            values[name] = each if name in "abc" else each[..., 0]
        return values

    def write(self, values: NDArray[np.uint32], groups: NDArray[np.intp] | None) -> None:
        """Write the results of all chains of dependent ``mma`` to registers."""
        self.machine.spread(self.d, values.reshape(len(self.d), -1, *values.shape[1:]), groups, WARP)


def _run_step(machine: Machine, run: Sequence[tuple[Instruction, _Multiplication]]) -> Step:
    """Return a function that executes consecutive ``mma`` in few calls of the back end, each with many matrix products.

    If metadata is undefined, each ``mma`` is executed alone, so that the report names its line.
    """
    (ins, first), launch = run[0], machine.launch
    alone = [_run_step(machine, [each]) for each in run] if len(run) > 1 and parsed(ins).sparse else []
    works = [TensorWork(each.line, each.opcode) for each, _ in run]
    products = [_Product(machine, grids) for grids in _grids([one for _, one in run])]
    multiply = partial(called, machine, ins, mma_tiles, arch=launch.arch, backend=launch.backend)

    def step(mask: Mask) -> None:
        groups = machine.whole_groups(mask, WARP, ins)
        warps = np.arange(machine.count // WARP) if groups is None else groups

        def holder(error: MetadataError) -> str:
            return machine.who(int(warps[error.batch[0]]) * WARP + error.lane)

        who = None if alone else holder
        try:
            results = [multiply(product.operands(groups), first.immediates, holder=who) for product in products]
        except MetadataError:
            for one in alone:
                one(mask)
            return
        for product, values in zip(products, results, strict=True):
            product.write(values, groups)
        for work in works:
            machine.work.multiplications[work] += len(warps)

    return step
