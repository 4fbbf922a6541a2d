"""Instructions ``tcgen05`` of Blackwell for tensor memory: allocation, multiplication, copies and commits.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions". Multiplications, copies and commits are executed in
the order of issue, when no thread can continue without them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.tcgen05 import placement_of, tcgen05_mma
from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.memory import decode_descriptor, unit_address
from ..isa.tcgen05 import parse_opcode
from ..isa.tensor_memory import COLUMNS, LANES, TensorMap
from .barriers import barriers
from .cycles import TensorWork
from .machine import WARP, Builder, Machine, Step, not_modelled
from .mma import called
from .program import Address, Instruction, Vector, at_line
from .registers import Mask, Reader
from .tensor_access import load_step, store_step, tensor_memory
from .tensor_order import Accesses

__all__ = ["tcgen05_step"]

#: Masks of the address bits in operands for metadata and scales. CUTLASS passes the scale id in bits 30 and 31.
_PLACES = {"e": (1 << 32) - 1, "scale_a": (1 << 30) - 1, "scale_b": (1 << 30) - 1}


def tcgen05_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes a ``tcgen05`` instruction."""
    kind = ins.words[1].split("::")[0]
    builders: dict[str, Builder] = {
        "alloc": _allocate,
        "dealloc": _deallocate,
        "ld": load_step,
        "st": store_step,
        "mma": _multiply,
        "commit": _commit,
        "cp": _copy,
        "relinquish_alloc_permit": _relinquish,
    }
    if kind in ("wait", "fence"):
        return lambda mask: None
    if kind not in builders:
        raise not_modelled(ins)
    return builders[kind](machine, ins)


def _first_threads(machine: Machine, mask: Mask, ins: Instruction) -> NDArray[np.intp]:
    """Return the first thread of each warp that has threads in a mask."""
    warps = machine.whole_groups(mask, WARP, ins)
    return (np.arange(machine.count // WARP) if warps is None else warps) * WARP


def _allocate(machine: Machine, ins: Instruction) -> Step:
    places, read = machine.places(ins.operands[0], "shared", ins, 4), machine.reader(ins.operands[1], "u32")
    memory = tensor_memory(machine)

    def step(mask: Mask) -> None:
        at = machine.every(places(mask)[1])
        for thread in _first_threads(machine, mask, ins).tolist():
            columns = machine.value(read, thread)
            if columns not in (32, 64, 128, 256, 512):
                raise machine.fault(ins, f"the number of columns is {columns}, not 32, 64, 128, 256 or 512", thread)
            start = memory.allocate(ins, thread, columns)
            if start is None:
                raise machine.fault(ins, f"fewer than {columns} columns are free, and waiting is not modelled", thread)
            machine.views["shared"][4][at[thread] // 4] = start

    return step


def _deallocate(machine: Machine, ins: Instruction) -> Step:
    address, read = machine.reader(ins.operands[0], "u32"), machine.reader(ins.operands[1], "u32")
    memory = tensor_memory(machine)

    def step(mask: Mask) -> None:
        for thread in _first_threads(machine, mask, ins).tolist():
            start, columns = (machine.value(operand, thread) for operand in (address, read))
            memory.free(ins, thread, start & 0xFFFF, columns)

    return step


def _relinquish(machine: Machine, ins: Instruction) -> Step:
    memory = tensor_memory(machine)

    def step(mask: Mask) -> None:
        memory.relinquished[machine.cta_of_thread[machine.active(mask)]] = ins.line

    return step


def _commit(machine: Machine, ins: Instruction) -> Step:
    places, state = machine.places(ins.operands[0], "shared", ins, 8), barriers(machine)
    memory = tensor_memory(machine)
    multicast = machine.reader(ins.operands[1], "u16") if "multicast::cluster" in ins.words else None

    def complete(
        objects: NDArray[np.int64], done: int, threads: NDArray[np.intp], issued: AbstractContextManager[None]
    ) -> None:
        names = [("mbarrier", place) for place in objects.tolist()]
        if machine.checker:
            with issued:
                machine.checker.arrive(names, threads)
        if memory.order:
            machine.checker.complete(names, done)
        state.arrive(objects, 1, ins)

    def step(mask: Mask) -> None:
        at = machine.every(places(mask)[1])
        for thread in machine.active(mask).tolist():
            objects = np.array(machine.in_ctas(thread, int(at[thread]), multicast), np.int64) // 8
            done = memory.order.committed(thread) if memory.order else 0
            threads = np.full(len(objects), thread)
            issued = machine.checker.issued(threads) if machine.checker else nullcontext()
            machine.queue.append(partial(complete, objects, done, threads, issued))

    return step


def _ctas_of(machine: Machine, ins: Instruction, thread: int) -> Any:
    """Return the index of the thread's CTA, or of both CTAs of its pair for ``cta_group::2``."""
    cta = thread // machine.threads
    if "cta_group::2" not in ins.words:
        return cta
    machine.require_pairs(ins, thread)
    return slice(cta - cta % 2, cta - cta % 2 + 2)


#: For each shape of ``tcgen05.cp``: number of rows that the instruction reads, number of 16-byte words per row, and
#: first lane of each copy of these rows in tensor memory.
_COPIES = {
    "128x256b": (128, 2, (0,)), "128x128b": (128, 1, (0,)), "64x128b.warpx2::02_13": (64, 1, (0, 64)),
    "32x128b.warpx4": (32, 1, (0, 32, 64, 96)),
}  # fmt: skip
_UNIT_BYTES = 16


def _copy(machine: Machine, ins: Instruction) -> Step:
    """Execute ``tcgen05.cp``: copy rows of shared memory to lanes of tensor memory, in order with multiplications."""
    form = ".".join(word for word in ins.words if ("b" in word and word[0].isdigit()) or word.startswith("warpx"))
    formats = [word for word in ins.words if word.startswith(("b8x16", "b6x16", "b4x16"))]
    if form not in _COPIES or formats:
        raise not_modelled(ins, f"the shape must be {' or '.join(_COPIES)}, and the elements must keep their format")
    rows, units, lanes = _COPIES[form]
    operand, source = ins.operands
    base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
    read_to, read_from, memory = machine.reader(base, "u32"), machine.reader(source, "b64"), tensor_memory(machine)
    row, unit = np.arange(rows)[:, None], np.arange(units)

    def step(mask: Mask) -> None:
        for thread in machine.active(mask).tolist():
            to, value = (machine.value(operand, thread) for operand in (read_to, read_from))
            column = to + offset
            if column >> 16 or column + 4 * units > COLUMNS:
                what = f"the destination {column:#x} does not begin in lane 0, or exceeds the columns of tensor memory"
                raise machine.fault(ins, what, thread)
            with at_line(ins):
                start = unit_address(decode_descriptor(value, "tcgen05"), row, unit, "k")
            places = (start[..., None] + np.arange(_UNIT_BYTES)).reshape(rows, -1)
            if places.max() >= machine.shared_bytes:
                raise machine.fault(ins, "the descriptor reaches beyond shared memory", thread)
            ctas = _ctas_of(machine, ins, thread)
            written = np.zeros((LANES, COLUMNS), np.bool_)
            for lane in lanes:
                written[lane : lane + rows, column : column + 4 * units] = True
            _note(machine, ins, thread, ctas, Accesses.of(written, np.zeros_like(written), [places]))

            def work(ctas: Any = ctas, column: int = column, places: NDArray[np.int64] = places) -> None:
                words = np.ascontiguousarray(machine.shared[ctas][..., places]).view("<u4")
                for lane in lanes:
                    memory.words[ctas][..., lane : lane + rows, column : column + 4 * units] = words

            machine.queue.append(work)

    return step


def _note(machine: Machine, ins: Instruction, thread: int, ctas: Any, accesses: Accesses) -> None:
    """Check and record the accesses of a ``tcgen05`` multiplication or copy, if accesses are checked."""
    memory = tensor_memory(machine)
    if memory.order:
        numbers = np.arange(machine.ctas)[ctas].reshape(-1)
        memory.require(ins, thread, numbers[:, None], accesses.columns)
        memory.order.issue(ins, thread, numbers.tolist(), accesses)


def _multiply(machine: Machine, ins: Instruction) -> Step:
    with at_line(ins):
        opcode = parse_opcode(ins.opcode)
    operands = list(ins.operands)
    a_from = "tensor" if isinstance(operands[1], Address) else "shared"
    read: dict[str, tuple[Reader, int]] = {}
    for name in ("d", "a", "b", *"e" * opcode.sparse, "idesc", *["scale_a", "scale_b"] * ("block_scale" in ins.words)):
        operand = operands.pop(0)
        base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        wide = name in ("a", "b") and not isinstance(operand, Address)
        read[name] = machine.reader(base, "b64" if wide else "u32"), offset
    lanes: Sequence[Reader] = ()
    if operands and isinstance(mask_of_lanes := operands[0], Vector):
        operands.pop(0)
        lanes = [machine.reader(item, "u32") for item in mask_of_lanes.items]
    if len(operands) != 1:
        raise not_modelled(ins, "the instruction has operands after the predicate")
    adds, memory, launch = machine.reader(operands[0], "pred"), tensor_memory(machine), machine.launch
    multiply = partial(called, machine, ins, tcgen05_mma, arch=launch.arch, backend=launch.backend)

    @lru_cache(maxsize=64)
    def accesses(taken: tuple[tuple[str, int], ...], options: tuple[tuple[str, int], ...]) -> Accesses:
        """Return the memory accesses of a multiplication for given operand values."""
        operands, others = dict(taken), dict(options)
        with at_line(ins):
            descriptor = decode_instruction_descriptor(opcode, operands.pop("idesc"))
            addresses = operands | {name: others[name] for name in ("e",) if name in others}
            scales = {name: others.get(name) for name in ("scale_a", "scale_b")}
            placement = placement_of(opcode, descriptor, addresses, scales, None)
        read, places = np.zeros((LANES, COLUMNS), np.bool_), []
        for where in (placement.a, placement.b, placement.e, placement.scale_a, placement.scale_b):
            if isinstance(where, TensorMap):
                read |= where.words()
            elif where is not None:
                places.append((where.addresses.ravel()[:, None] + np.arange(-(-where.element_bits // 8))).ravel())
        return Accesses.of(placement.d.words(), read, places)

    def work(ctas: Any, who: str, arguments: dict[str, Any]) -> None:
        words, smem = memory.words[ctas], machine.shared[ctas]
        memory.words[ctas] = multiply(words, smem=smem, holder=lambda error: who, **arguments)

    def step(mask: Mask) -> None:
        for thread in machine.active(mask).tolist():
            taken: dict[str, Any] = {name: machine.value(r, thread) + offset for name, (r, offset) in read.items()}
            options: dict[str, Any] = {name: taken.pop(name) & bits for name, bits in _PLACES.items() if name in taken}
            disabled = [machine.value(lane, thread) for lane in lanes]
            if any(disabled):
                options["disable_output_lane"] = disabled
            options["enable_input_d"] = bool(machine.value(adds, thread))
            machine.work.multiplications[TensorWork(ins.line, ins.opcode, a_from, taken["idesc"])] += opcode.cta_group
            who = f"CTA {machine.place_of(thread // machine.threads)}"
            ctas = _ctas_of(machine, ins, thread)
            if machine.checker:
                _note(machine, ins, thread, ctas, accesses(tuple(taken.items()), tuple(options.items())))
            machine.queue.append(partial(work, ctas, who, taken | options))

    return step
