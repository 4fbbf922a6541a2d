"""Execute loads, stores and atomics of single threads, and the matrix instructions ``ldmatrix`` and ``stmatrix``.

Source: PTX ISA, "Data Movement and Conversion Instructions". Stores of several threads to one address, and atomics,
are executed in the order of thread numbers; PTX does not define this order.
"""

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError
from ..isa.matrix_moves import ROW_BYTES, matrix_move_map, parse_matrix_move
from ..operands.matrix_moves import unpacked
from .machine import WARP, Builder, Machine, Places, Step, not_modelled
from .memory import UNSIGNED
from .program import Address, Instruction, Operand, Register, Symbol, items_of, size_of
from .reductions import REDUCTIONS, apply_in_turn, is_reduction, memory_type, reduction
from .registers import CLUSTER_SHIFT, Mask
from .values import numpy_type

__all__ = ["ACCESS", "space_of"]

_SPACES = ("global", "shared", "param", "local", "const")
#: Qualifiers of loads and stores that do not affect the value that is loaded or stored.
_HINTS = {
    *("weak", "relaxed", "acquire", "release", "volatile", "mmio", "nc", "cta", "gpu", "sys", "cluster"),
    *("ca", "cg", "cs", "cv", "wb", "wt", "lu", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"),
    *(f"L{n}::evict_{word}" for n in (1, 2) for word in ("normal", "unchanged", "first", "last")),
    "L1::no_allocate",
}
#: Qualifiers of strong accesses, which do not race with one another (PTX ISA, "Memory Consistency Model").
_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def space_of(ins: Instruction) -> str:
    """Return the state space in an instruction's opcode, or ``"generic"`` if the opcode has none."""
    return next((word.split("::")[0] for word in ins.words[1:] if word.split("::")[0] in _SPACES), "generic")


def _type_of(ins: Instruction) -> tuple[str, int]:
    """Return the element type of a load or store, and the number of elements. One b128 counts as two b64."""
    count = next((_VECTORS[word] for word in ins.words[1:-1] if word in _VECTORS), 1)
    return ("b64", 2 * count) if ins.words[-1] == "b128" else (ins.words[-1], count)


def _accesses(machine: Machine, ins: Instruction, address: Operand, registers: int) -> tuple[Places, int, int]:
    """Check a load or store. Return a function that gives the addresses, and the bytes per thread and per access."""
    for word in ins.words[1:-1]:
        if word.split("::")[0] not in _SPACES and word not in _HINTS and word not in _VECTORS:
            raise not_modelled(ins, f"the qualifier '.{word}' is not supported")
    type_, count = _type_of(ins)
    size = size_of(type_)
    if registers != count or size > 8:
        raise not_modelled(ins, f"an operand has {registers} elements of {8 * size} bits, not {count} of up to 64 bits")
    octets = size * count
    return machine.places(address, space_of(ins), ins, octets), octets, min(octets, 16)


def _order(
    machine: Machine, ins: Instruction, mask: Mask, at: NDArray[np.int64], octets: int
) -> AbstractContextManager[None]:
    """Return a context for accesses to shared memory: the checker orders atomics and strong accesses."""
    is_strong = ins.words[0] in ("atom", "red") or not _STRONG.isdisjoint(ins.words)
    context: AbstractContextManager[None] = machine.checker.strong(mask, at, octets) if is_strong else nullcontext()
    return context


def _load(machine: Machine, ins: Instruction) -> Step:
    if ins.words[1] == "matrix":
        raise not_modelled(ins)
    (type_, _), items = _type_of(ins), items_of(ins.operands[0])
    places, octets, unit = _accesses(machine, ins, ins.operands[1], len(items))
    dtype, writes = numpy_type(type_), [machine.writer(item, type_) for item in items]
    shift, columns = unit.bit_length() - 1, unit // dtype.itemsize

    def load(mask: Mask) -> None:
        where, at = places(mask)
        if machine.checker and where == "shared":
            with _order(machine, ins, mask, at, octets):
                machine.checker.reads(ins, mask, at, octets)
        memory, index = machine.views[where][unit], at >> shift
        for first in range(0, len(items), columns):
            data = memory.take(index + first // columns if first else index).view(dtype).reshape(-1, columns)
            for place, column in enumerate(np.ascontiguousarray(data.T), first):
                writes[place](mask, column)

    return load


def _store(machine: Machine, ins: Instruction) -> Step:
    size, items = size_of(_type_of(ins)[0]), items_of(ins.operands[1])
    places, octets, unit = _accesses(machine, ins, ins.operands[0], len(items))
    reads = [machine.reader(item, f"b{8 * size}") for item in items]
    shift, columns = unit.bit_length() - 1, unit // size

    def store(mask: Mask) -> None:
        where, at = places(mask)
        if where == "param":
            raise machine.fault(ins, "the instruction stores to parameter space")
        if machine.checker and where == "shared":
            with _order(machine, ins, mask, at, octets):
                machine.checker.wrote(ins, mask, at, octets)
        memory, chosen = machine.views[where][unit], slice(None) if mask is None else mask
        index = machine.every(at)[chosen] >> shift
        for first in range(0, len(items), columns):
            data = np.empty((len(index), columns), UNSIGNED[size])
            for place in range(columns):
                values = reads[first + place]()
                data[:, place] = values if values.size == 1 else values[chosen]
            memory[index + first // columns if first else index] = data.view(memory.dtype)[:, 0]

    return store


def _atomic(machine: Machine, ins: Instruction) -> Step:
    """Execute ``atom`` and ``red`` on scalars and vectors, one thread after the other."""
    words = ins.words
    returns = words[0] == "atom"
    names = [word for word in words[1:] if word in REDUCTIONS]
    known = {*names, *_VECTORS, *_HINTS, "acq_rel", "noftz", "global", "shared", "shared::cta", "shared::cluster"}
    if unknown := [word for word in words[1:-1] if word not in known]:
        raise not_modelled(ins, f"the qualifier '.{unknown[0]}' is not supported")
    name, type_ = names[0] if len(names) == 1 else "", words[-1]
    if not is_reduction(name, type_):
        raise not_modelled(ins)
    # An atomic f32 addition flushes subnormal values to zero in global memory, but not in shared memory.
    functions = {
        space: reduction(name, type_, flush=name == "add" and space == "global") for space in ("global", "shared")
    }
    type_ = memory_type(type_)
    address, *sources = ins.operands[returns:]
    count = 2 if name == "cas" else 1
    vectors = [items_of(source) for source in sources if not isinstance(source, Address)][:count]
    if [*map(len, vectors)] != [next((_VECTORS[word] for word in words if word in _VECTORS), 1)] * count:
        raise not_modelled(ins, "the number of operands or of their elements is wrong")
    places = machine.places(address, space_of(ins), ins, size_of(type_) * len(vectors[0]))
    reads = [[machine.reader(item, type_) for item in items] for items in vectors]
    width = len(reads[0])
    writes = [machine.writer(item, type_) for item in items_of(ins.operands[0])] if returns else []
    size, dtype = size_of(type_), numpy_type(type_)

    def step(mask: Mask) -> None:
        threads = machine.active(mask)
        where, at = places(mask)
        if where not in functions:
            raise machine.fault(ins, f"{where} memory has no atomic operations", int(threads[0]))
        if machine.checker and where == "shared":
            with _order(machine, ins, mask, at, size * width):
                machine.checker.wrote(ins, mask, at, size * width)
        elements = machine.every(at)[threads] // size
        memory = machine.views[where][size].view(dtype)
        for place in range(width):
            values = [machine.every(vector[place]())[threads] for vector in reads]
            before = apply_in_turn(functions[where], memory, elements + place, values)
            if writes:
                whole = np.zeros(machine.count, dtype)
                whole[threads] = before
                writes[place](mask, whole)

    return step


# Matrix loads and stores


def _matrix_move(machine: Machine, ins: Instruction) -> Step:
    """Execute ``ldmatrix`` and ``stmatrix``, which move matrices between registers and rows of shared memory."""
    try:
        move = parse_matrix_move(ins.opcode)
    except InstructionError as error:
        raise not_modelled(ins, str(error)) from None
    is_load = move.opcode == "ldmatrix"
    registers, address = ins.operands if is_load else ins.operands[::-1]
    numbers, places = machine.register_numbers(registers), machine.places(address, "shared", ins, ROW_BYTES)
    if len(numbers) != move.registers:
        raise not_modelled(ins, f"the instruction has {len(numbers)} registers instead of {move.registers}")
    where = matrix_move_map(move)
    every_lane = where.address_lanes.size == WARP
    gives_row: Mask = None if every_lane else np.isin(machine.thread_numbers % WARP, where.address_lanes)
    # Index maps between registers and rows of shared memory: for each element of the registers, `in_rows` has its index
    # in the rows; for each element of the rows, `in_registers` has its index in the registers.
    size = move.container_bits // 8
    of_row = where.address_lanes.size // move.matrices * where.matrices + where.rows
    elements = of_row * move.row_elements + where.elements
    in_rows, lanes = elements.swapaxes(0, 1).reshape(move.registers, -1), where.address_lanes.ravel()
    in_registers = np.argsort(elements.ravel())

    def step(mask: Mask) -> None:
        groups = machine.whole_groups(mask, WARP, ins)
        rows_of = mask if gives_row is None else gives_row if mask is None else gives_row & mask
        space, at = places(rows_of)
        at = machine.every(at)
        if machine.checker:
            (machine.checker.reads if is_load else machine.checker.wrote)(ins, rows_of, at, ROW_BYTES)
        rows = at.reshape(-1, WARP)[:, lanes] >> 4
        rows, memory = rows if groups is None else rows[groups], machine.views[space][ROW_BYTES]
        if is_load:
            data = memory.take(rows)
            if move.source:
                data = unpacked(move, data.view(np.uint8).reshape(*rows.shape, ROW_BYTES)).reshape(len(rows), -1)
            data = data.view(f"<u{size}")
            values = np.stack([data.take(places, axis=1).view("<u4") for places in in_rows])
            machine.spread(numbers, np.moveaxis(values, 0, -1), groups, WARP)
        else:
            data = machine.stacked(numbers, WARP, groups).reshape(len(rows), -1).view(f"<u{size}")
            memory[rows] = data.take(in_registers, axis=1).view(memory.dtype)

    return step


def _map_to_cluster(machine: Machine, ins: Instruction) -> Step:
    """Execute ``mapa``: return the address of the same variable in another CTA of the cluster."""
    type_ = ins.words[-1]
    destination, source, rank = ins.operands
    if "shared::cluster" not in ins.opcode or not isinstance(source, Register | Symbol):
        raise not_modelled(ins, "the instruction must have '.shared::cluster', and a register or variable as source")
    write, read = machine.writer(destination, type_), machine.reader(source, type_)
    read_rank = machine.reader(rank, "u32")

    def step(mask: Mask) -> None:
        dtype = numpy_type(type_).type
        offset = read() & dtype((1 << CLUSTER_SHIFT) - 1)
        write(mask, offset | read_rank().astype(dtype) << dtype(CLUSTER_SHIFT))

    return step


ACCESS: dict[str, Builder] = {
    "ld": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrix_move),
    "mapa": _map_to_cluster,
}
