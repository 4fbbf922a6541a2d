"""Instructions that exchange values between the threads of a warp, and hints that do not affect results.

Source: PTX ISA, "Data Movement and Conversion Instructions" (``shfl.sync``) and "Parallel Synchronization and
Communication Instructions" (``vote``, ``match``, ``elect``, ``redux``). The results depend on the threads of the member
mask that execute the instruction together; see :mod:`sptc.kernels.convergence`.
"""

import numpy as np
from numpy.typing import NDArray

from .integers import COMBINATIONS
from .machine import LANE_BITS, WARP, Builder, Machine, Step, not_modelled
from .program import Instruction, Pair, Sink, pair_of
from .registers import Mask, Reader
from .values import numpy_type

__all__ = ["WARPS"]


def _shuffle(machine: Machine, ins: Instruction) -> Step:
    """Execute ``shfl.sync``: read a source lane, or the thread's own lane if the source lane is outside the segment."""
    words = ins.words
    if words[1] != "sync" or words[2] not in ("up", "down", "bfly", "idx"):
        raise not_modelled(ins)
    destination, value, position, control = ins.operands[:4]
    pair = pair_of(destination)
    write, write_valid = machine.writer(pair.first, "b32"), machine.writer(pair.second, "pred")
    read, read_position, read_control = (machine.reader(operand, "u32") for operand in (value, position, control))
    lane = machine.thread_numbers % WARP
    base, mode = machine.thread_numbers - lane, words[2]

    def step(mask: Mask) -> None:
        values, at = machine.every(read()), machine.every(read_position()).astype(np.int64) & 31
        clamp = machine.every(read_control()).astype(np.int64)
        limit, segment = clamp & 31, clamp >> 8 & 31
        highest = lane & segment | limit & ~segment
        lowest = lane & segment
        source = {
            "up": lane - at,
            "down": lane + at,
            "bfly": lane ^ at,
            "idx": lowest | at & ~segment,
        }[mode]
        valid = source >= highest if mode == "up" else source <= highest
        write(mask, values[base + np.where(valid, source, lane)])
        write_valid(mask, valid)

    return step


def _lanes(machine: Machine, mask: Mask, true: NDArray[np.bool_] | None = None) -> NDArray[np.uint32]:
    """Return for each thread a 32-bit mask of the lanes of its warp that are in `mask`, and in `true` if given."""
    chosen = np.ones(machine.count, np.bool_) if mask is None else mask
    chosen = chosen if true is None else chosen & true
    return (chosen.reshape(-1, WARP) * LANE_BITS).sum(1, dtype=np.uint32).repeat(WARP)


def _members(machine: Machine, mask: Mask, read: Reader) -> NDArray[np.uint32]:
    """Return for each thread a mask of its own lane and of those of its member lanes that execute the instruction."""
    return _lanes(machine, mask) & read() | LANE_BITS[machine.thread_numbers % WARP]


def _vote(machine: Machine, ins: Instruction) -> Step:
    """Execute ``vote.sync``: each thread learns for which threads of its member mask the predicate is true."""
    words = ins.words
    kind, type_ = words[-2], words[-1]
    if words[1] != "sync" or kind not in ("ballot", "any", "all", "uni"):
        raise not_modelled(ins)
    read, write = machine.reader(ins.operands[1], "pred"), machine.writer(ins.operands[0], type_)
    read_members = machine.reader(ins.operands[2], "u32")

    def step(mask: Mask) -> None:
        members = _members(machine, mask, read_members)
        true = _lanes(machine, mask, machine.every(read())) & members
        if kind == "ballot":
            write(mask, true)
        else:
            some, every = true != 0, true == members
            write(mask, {"any": some, "all": every}.get(kind, every | ~some))

    return step


def _match(machine: Machine, ins: Instruction) -> Step:
    """Execute ``match.sync``: find the threads of a member mask with equal values (``any``), or test all (``all``)."""
    _, kind, sync, type_ = ins.words
    if (kind, sync) not in (("any", "sync"), ("all", "sync")) or type_ not in ("b32", "b64"):
        raise not_modelled(ins)
    pair = pair_of(ins.operands[0])
    write, write_all = machine.writer(pair.first, "b32"), machine.writer(pair.second, "pred")
    read, read_members = machine.reader(ins.operands[1], type_), machine.reader(ins.operands[2], "u32")

    def step(mask: Mask) -> None:
        values, members = machine.every(read()).reshape(-1, WARP), _members(machine, mask, read_members)
        equal = ((values[:, :, None] == values[:, None]) * LANE_BITS).sum(2, dtype=np.uint32).reshape(-1) & members
        every = equal == members
        write(mask, equal if kind == "any" else np.where(every, members, np.uint32(0)))
        write_all(mask, every)

    return step


def _elect(machine: Machine, ins: Instruction) -> Step:
    """Execute ``elect.sync``: elect the lowest thread of each member mask, as an H100 does."""
    destination = ins.operands[0]
    pair = destination if isinstance(destination, Pair) else Pair(Sink(), destination)
    write_lane, write = machine.writer(pair.first, "b32"), machine.writer(pair.second, "pred")
    read_members = machine.reader(ins.operands[1], "u32")

    def step(mask: Mask) -> None:
        members = _members(machine, mask, read_members)
        lowest = members & -members
        write_lane(mask, np.bitwise_count(lowest - np.uint32(1)).astype(np.uint32))
        write(mask, lowest == LANE_BITS[machine.thread_numbers % WARP])

    return step


def _reduce(machine: Machine, ins: Instruction) -> Step:
    """Execute ``redux.sync`` of integers: combine the values of all threads of a member mask."""
    words = ins.words
    name, type_ = words[2], words[-1]
    if type_ not in ("u32", "s32", "b32") or name not in COMBINATIONS:
        raise not_modelled(ins)
    read, write = machine.reader(ins.operands[1], type_), machine.writer(ins.operands[0], type_)
    read_members, combine = machine.reader(ins.operands[2], "u32"), COMBINATIONS[name]

    def step(mask: Mask) -> None:
        values, members = machine.every(read()).reshape(-1, WARP), _members(machine, mask, read_members)
        result = np.zeros(machine.count, numpy_type(type_))
        for lanes in np.unique(members[machine.active(mask)]).tolist():  # each member mask gets its own reduction
            each = [lane for lane in range(WARP) if lanes >> lane & 1]
            combined = combine.reduce(values[:, each], axis=1, dtype=numpy_type(type_)).repeat(WARP)
            result = np.where(members == lanes, combined, result)
        write(mask, result)

    return step


def _transpose(machine: Machine, ins: Instruction) -> Step:
    """Execute ``movmatrix``: transpose a matrix of 8 x 8 elements of 16 bits, of which each lane holds two."""
    if ins.opcode != "movmatrix.sync.aligned.m8n8.trans.b16":
        raise not_modelled(ins)
    destination, source = ins.operands
    write, read = machine.writer(destination, "b32"), machine.reader(source, "b32")

    def step(mask: Mask) -> None:
        matrices = np.ascontiguousarray(machine.every(read())).view("<u2").reshape(-1, 8, 8)
        write(mask, np.ascontiguousarray(matrices.swapaxes(1, 2)).view("<u4").reshape(-1))

    return step


def _active_mask(machine: Machine, ins: Instruction) -> Step:
    write = machine.writer(ins.operands[0], "b32")
    return lambda mask: write(mask, _lanes(machine, mask))


def _nothing(machine: Machine, ins: Instruction) -> Step:
    """Return a function without effect, for instructions that affect only speed or memory order."""
    return lambda mask: None


def _fence(machine: Machine, ins: Instruction) -> Step:
    """Execute ``fence``: only inform the checker of ``fence.proxy.async``, since all accesses are executed in order."""
    if "proxy" not in ins.words or not machine.checker or not any(word.startswith("async") for word in ins.words):
        return lambda mask: None
    return lambda mask: machine.checker.fence(mask)


def _policy(machine: Machine, ins: Instruction) -> Step:
    write = machine.writer(ins.operands[0], "b64")
    return lambda mask: write(mask, np.zeros(1, np.uint64))


def _stop(machine: Machine, ins: Instruction) -> Step:
    """Execute ``trap`` and ``brkpt``: end the launch with an error."""
    if len(ins.words) != 1:
        raise not_modelled(ins)

    def step(mask: Mask) -> None:
        raise machine.fault(ins, "a thread stops the kernel", int(machine.active(mask)[0]))

    return step


WARPS: dict[str, Builder] = {
    **dict.fromkeys(("trap", "brkpt"), _stop),
    "match": _match,
    "shfl": _shuffle,
    "vote": _vote,
    "elect": _elect,
    "redux": _reduce,
    "movmatrix": _transpose,
    "activemask": _active_mask,
    "createpolicy": _policy,
    "fence": _fence,
    **dict.fromkeys(
        ("membar", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep", "setmaxnreg", "pmevent"),
        _nothing,
    ),
    "griddepcontrol": _nothing,
    "bar": _nothing,  # only bar.warp.sync: `Program` executes all other barriers as waits
}
