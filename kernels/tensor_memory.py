"""Tensor memory of Blackwell: allocation, loads and stores, multiplication and commits of ``tcgen05``.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions". A multiplication is done when no thread can go on
without it, in the order in which multiplications and commits were issued.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.tcgen05 import tcgen05_mma
from ..errors import Error, KernelError
from ..isa.memory import decode_descriptor, unit_address
from ..isa.tcgen05 import parse_opcode
from .barriers import barriers
from .cycles import TensorWork
from .machine import Machine, Mask, Reader, Step, not_modelled
from .mma import called
from .program import Address, Immediate, Instruction, Operand, Vector

__all__ = ["TENSOR_MEMORY"]

_LANES, _COLUMNS = 128, 512
#: What tensor memory holds before it is written.
_UNWRITTEN = 0x7FC0DEAD
_WARP_LANES = 32


class TensorMemory:
    """Tensor memory of the CTAs of a machine, and which columns are allocated."""

    def __init__(self, machine: Machine) -> None:
        self.words = np.full((machine.ctas, _LANES, _COLUMNS), _UNWRITTEN, np.uint32)
        self.used = np.zeros((machine.ctas, _COLUMNS), np.bool_)

    def allocate(self, cta: int, columns: int) -> int | None:
        """Return the first column of a free range; None if there is none."""
        for start in range(0, _COLUMNS - columns + 1, 32):
            if not self.used[cta, start : start + columns].any():
                self.used[cta, start : start + columns] = True
                return start
        return None


def _tensor_memory(machine: Machine) -> TensorMemory:
    return machine.unit("tcgen05", TensorMemory)


def _step(machine: Machine, ins: Instruction) -> Step:
    kind = ins.words[1].split("::")[0]
    builders: dict[str, Callable[[Machine, Instruction], Step]] = {
        "alloc": _allocate,
        "dealloc": _deallocate,
        "ld": _load,
        "st": _store,
        "mma": _multiply,
        "commit": _commit,
        "cp": _copy,
    }
    if kind in ("relinquish_alloc_permit", "wait", "fence"):
        return lambda mask: None
    if kind not in builders:
        raise not_modelled(ins)
    return builders[kind](machine, ins)


def _first_threads(machine: Machine, mask: Mask, ins: Instruction) -> NDArray[np.intp]:
    """Return the first thread of each warp that takes part."""
    warps = machine.whole_groups(mask, _WARP_LANES, ins)
    return (np.arange(machine.count // _WARP_LANES) if warps is None else warps) * _WARP_LANES


def _allocate(machine: Machine, ins: Instruction) -> Step:
    places, read = machine.places(ins.operands[0], "shared", ins, 4), machine.reader(ins.operands[1], "u32")
    memory = _tensor_memory(machine)

    def step(mask: Mask) -> None:
        at = machine.every(places(mask)[1])
        for thread in _first_threads(machine, mask, ins).tolist():
            columns = int(machine.every(read())[thread])
            if columns not in (32, 64, 128, 256, 512):
                raise machine.fault(ins, f"{columns} columns; 32, 64, 128, 256 or 512 can be allocated", thread)
            start = memory.allocate(thread // machine.threads, columns)
            if start is None:
                raise machine.fault(ins, f"no {columns} columns are left, and a wait for some is not modelled", thread)
            machine.views["shared"][4][at[thread] // 4] = start

    return step


def _deallocate(machine: Machine, ins: Instruction) -> Step:
    address, read = machine.reader(ins.operands[0], "u32"), machine.reader(ins.operands[1], "u32")
    memory = _tensor_memory(machine)

    def step(mask: Mask) -> None:
        for thread in _first_threads(machine, mask, ins).tolist():
            start, columns = (int(machine.every(value())[thread]) for value in (address, read))
            memory.used[thread // machine.threads, start & 0xFFFF : (start & 0xFFFF) + columns] = False

    return step


def _registers(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _rows(
    machine: Machine, ins: Instruction, operand: Operand, split: Operand | None
) -> Callable[[Mask], tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]]:
    """Return a function that gives CTA, lane and first column of each thread.

    ``.32x32b``: a lane for each thread of the warp. ``.16x32bx2``: sixteen lanes, of which the second half of the
    warp takes columns that lie `split` columns further.
    """
    halves = "16x32bx2" in ins.words
    if not (halves or "32x32b" in ins.words) or any("pack" in word for word in ins.words):
        raise not_modelled(ins, "only the shapes .32x32b and .16x32bx2 without packing")
    if not isinstance(operand, Address) or halves != isinstance(split, Immediate):
        raise not_modelled(ins, "its operands")
    read, offset = machine.reader(operand.base, "u32"), operand.offset
    lanes = _WARP_LANES // 2 if halves else _WARP_LANES
    further = split.value if isinstance(split, Immediate) else 0

    def rows(mask: Mask) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        threads = machine.active(mask)
        address = machine.every(read())[threads].astype(np.int64) + offset
        first, warp = address >> 16, threads % machine.threads // _WARP_LANES
        if (first % lanes).any():
            thread = int(threads[(first % lanes).argmax()])
            raise machine.fault(ins, f"the lane of its address is not a multiple of {lanes}", thread)
        # TileLang gives every warp the address of lane 0, and relies on the lanes of the warp's own quarter.
        own = warp % 4 * _WARP_LANES
        if (other := first // _WARP_LANES * _WARP_LANES != own).any():
            where = machine.who(int(threads[other.argmax()]))
            what = "its address names lanes of another warp; those of its own are taken"
            machine.report(ins, "lanes of another warp", "Tensor Memory Access Restrictions", what, where)
        column = (address & 0xFFFF) + threads % _WARP_LANES // lanes * further
        return machine.cta_of_thread[threads], own + first % _WARP_LANES + threads % lanes, column

    return rows


def _load(machine: Machine, ins: Instruction) -> Step:
    numbers = machine.register_numbers(ins.operands[0])
    writes = [machine.writer(item, "b32") for item in _registers(ins.operands[0])]
    split = ins.operands[2] if len(ins.operands) > 2 else None
    rows, memory = _rows(machine, ins, ins.operands[1], split), _tensor_memory(machine)

    def step(mask: Mask) -> None:
        cta, lane, column = rows(mask)
        for place in range(len(numbers)):
            values = np.zeros(machine.count, np.uint32)
            values[machine.active(mask)] = memory.words[cta, lane, column + place]
            writes[place](mask, values)

    return step


def _store(machine: Machine, ins: Instruction) -> Step:
    reads = [machine.reader(item, "b32") for item in _registers(ins.operands[-1])]
    split = ins.operands[1] if len(ins.operands) > 2 else None
    rows, memory = _rows(machine, ins, ins.operands[0], split), _tensor_memory(machine)

    def step(mask: Mask) -> None:
        cta, lane, column = rows(mask)
        for place, read in enumerate(reads):
            memory.words[cta, lane, column + place] = machine.every(read())[machine.active(mask)]

    return step


def _commit(machine: Machine, ins: Instruction) -> Step:
    places, state = machine.places(ins.operands[0], "shared", ins, 8), barriers(machine)
    multicast = machine.reader(ins.operands[1], "u16") if "multicast::cluster" in ins.words else None

    def step(mask: Mask) -> None:
        at = machine.every(places(mask)[1])
        objects = [
            (int(at[thread]) + other * machine.shared_bytes) // 8
            for thread in machine.active(mask).tolist()
            for other in machine.distances(thread, int(machine.every(multicast())[thread]) if multicast else None)
        ]
        machine.queue.append(lambda: state.arrive(np.array(objects), 1, ins))

    return step


def _ctas_of(machine: Machine, ins: Instruction, thread: int) -> Any:
    """Return the index of the thread's CTA, or of the pair that it belongs to."""
    cta = thread // machine.threads
    if "cta_group::2" not in ins.words:
        return cta
    if machine.launch.cluster_size % 2:
        raise machine.fault(ins, "a pair of CTAs needs a cluster with an even number of them", thread)
    return slice(cta - cta % 2, cta - cta % 2 + 2)


#: Rows and units of 16 bytes that ``tcgen05.cp`` reads, and the first lanes of the copies that it writes.
_COPIES = {
    "128x256b": (128, 2, (0,)), "128x128b": (128, 1, (0,)), "64x128b.warpx2::02_13": (64, 1, (0, 64)),
    "32x128b.warpx4": (32, 1, (0, 32, 64, 96)),
}  # fmt: skip
_UNIT_BYTES = 16


def _copy(machine: Machine, ins: Instruction) -> Step:
    """``tcgen05.cp``: rows of shared memory to lanes of tensor memory, in the order of multiplications."""
    form = ".".join(word for word in ins.words if ("b" in word and word[0].isdigit()) or word.startswith("warpx"))
    formats = [word for word in ins.words if word.startswith(("b8x16", "b6x16", "b4x16"))]
    if form not in _COPIES or formats:
        raise not_modelled(ins, f"copies are {', '.join(_COPIES)}, without a change of format")
    rows, units, lanes = _COPIES[form]
    operand, source = ins.operands
    base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
    read_to, read_from, memory = machine.reader(base, "u32"), machine.reader(source, "b64"), _tensor_memory(machine)
    row, unit = np.arange(rows)[:, None], np.arange(units)

    def step(mask: Mask) -> None:
        for thread in machine.active(mask).tolist():
            to, value = (int(machine.every(read())[thread]) for read in (read_to, read_from))
            column = to + offset
            if column >> 16 or column + 4 * units > _COLUMNS:
                raise machine.fault(ins, f"it writes lane 0 and columns of tensor memory, not {column:#x}", thread)
            try:
                start = unit_address(decode_descriptor(value, "tcgen05"), row, unit, "k")
            except Error as error:
                raise KernelError(f"line {ins.line}: {error}") from None
            places = (start[..., None] + np.arange(_UNIT_BYTES)).reshape(rows, -1)
            if places.max() >= machine.shared_bytes:
                raise machine.fault(ins, "its descriptor reaches beyond shared memory", thread)
            ctas = _ctas_of(machine, ins, thread)

            def work(ctas: Any = ctas, column: int = column, places: NDArray[np.int64] = places) -> None:
                words = machine.shared[ctas][..., places].view("<u4")
                for lane in lanes:
                    memory.words[ctas][..., lane : lane + rows, column : column + 4 * units] = words

            machine.queue.append(work)

    return step


def _multiply(machine: Machine, ins: Instruction) -> Step:
    try:
        opcode = parse_opcode(ins.opcode)
    except Error as error:
        raise KernelError(f"line {ins.line}: {error}") from None
    operands = list(ins.operands)
    a_from = "tensor" if isinstance(operands[1], Address) else "shared"
    read: dict[str, tuple[Reader, int]] = {}
    names = [
        "d",
        "a",
        "b",
        *("e" * opcode.sparse),
        "idesc",
        *(["scale_a", "scale_b"] * bool("block_scale" in ins.words)),
    ]
    for name in names:
        operand = operands.pop(0)
        base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        wide = name in ("a", "b") and not isinstance(operand, Address)
        read[name] = machine.reader(base, "b64" if wide else "u32"), offset
    lanes: Sequence[Reader] = ()
    if operands and isinstance(operands[0], Vector):
        first = operands.pop(0)
        lanes = [machine.reader(item, "u32") for item in _registers(first)]
    if len(operands) != 1:
        raise not_modelled(ins, "operands behind the predicate")
    adds, memory, launch = machine.reader(operands[0], "pred"), _tensor_memory(machine), machine.launch

    def value(reader: Reader, thread: int) -> int:
        return int(machine.every(reader())[thread])

    def step(mask: Mask) -> None:
        for thread in machine.active(mask).tolist():
            taken: dict[str, Any] = {name: value(reader, thread) + offset for name, (reader, offset) in read.items()}
            options: dict[str, Any] = {name: taken.pop(name) for name in ("e", "scale_a", "scale_b") if name in taken}
            disabled = [value(lane, thread) for lane in lanes]
            if any(disabled):
                options["disable_output_lane"] = disabled
            options["enable_input_d"] = bool(value(adds, thread))
            machine.work.multiplications[TensorWork(ins.line, ins.opcode, a_from, taken["idesc"])] += opcode.cta_group
            who = f"CTA {machine.place_of(thread // machine.threads)}"
            ctas = _ctas_of(machine, ins, thread)

            def work(
                ctas: Any = ctas, taken: dict[str, Any] = taken, options: dict[str, Any] = options, who: str = who
            ) -> None:
                memory.words[ctas] = called(
                    machine,
                    ins,
                    tcgen05_mma,
                    memory.words[ctas],
                    **taken,
                    smem=machine.shared[ctas],
                    arch=launch.arch,
                    backend=launch.backend,
                    holder=lambda error: who,
                    **options,
                )

            machine.queue.append(work)

    return step


TENSOR_MEMORY: dict[str, Callable[[Machine, Instruction], Step]] = {"tcgen05": _step}
