"""Instructions that exchange values between the threads of a warp, and hints that do not affect results.

Source: PTX ISA, "Data Movement and Conversion Instructions" (``shfl.sync``) and "Parallel Synchronization and
Communication Instructions" (``vote``, ``elect``, ``match``, ``redux``). Member masks are ignored: the threads that
execute the instruction take part.
"""

import numpy as np
from numpy.typing import NDArray

from .integers import COMBINATIONS
from .machine import Builder, Machine, Mask, Step, not_modelled
from .program import Instruction, Pair, Sink
from .values import numpy_type

__all__ = ["WARPS"]

_WARP = 32


def _shuffle(machine: Machine, ins: Instruction) -> Step:
    """Execute ``shfl.sync``: read a source lane, or the thread's own lane if the source lane is outside the segment."""
    words = ins.words
    if words[1] != "sync" or words[2] not in ("up", "down", "bfly", "idx"):
        raise not_modelled(ins)
    destination, value, position, control = ins.operands[:4]
    pair = destination if isinstance(destination, Pair) else Pair(destination, Sink())
    write, write_valid = machine.writer(pair.first, "b32"), machine.writer(pair.second, "pred")
    read, read_position, read_control = (machine.reader(operand, "u32") for operand in (value, position, control))
    lane = machine.thread_numbers % _WARP
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


def _by_warp(machine: Machine, mask: Mask) -> NDArray[np.bool_]:
    whole = np.ones(machine.count, np.bool_) if mask is None else mask
    return whole.reshape(-1, _WARP)


_BIT = np.uint32(1) << np.arange(_WARP, dtype=np.uint32)


def _vote(machine: Machine, ins: Instruction) -> Step:
    words = ins.words
    kind, type_ = words[-2], words[-1]
    if kind not in ("ballot", "any", "all", "uni"):
        raise not_modelled(ins)
    read, write = machine.reader(ins.operands[1], "pred"), machine.writer(ins.operands[0], type_)

    def step(mask: Mask) -> None:
        takes_part = _by_warp(machine, mask)
        true = machine.every(read()).reshape(-1, _WARP) & takes_part
        some, every = true.any(1), (true == takes_part).all(1)
        if kind == "ballot":
            write(mask, (true * _BIT).sum(1, dtype=np.uint32).repeat(_WARP))
        else:
            write(mask, {"any": some, "all": every}.get(kind, every | ~some).repeat(_WARP))

    return step


def _elect(machine: Machine, ins: Instruction) -> Step:
    """Execute ``elect.sync``: elect the lowest participating thread of each warp, as an H100 does."""
    destination = ins.operands[0]
    pair = destination if isinstance(destination, Pair) else Pair(Sink(), destination)
    write_lane, write = machine.writer(pair.first, "b32"), machine.writer(pair.second, "pred")

    def step(mask: Mask) -> None:
        takes_part = _by_warp(machine, mask)
        leader = takes_part.argmax(1)
        write_lane(mask, leader.astype(np.uint32).repeat(_WARP))
        write(mask, machine.thread_numbers % _WARP == leader.repeat(_WARP))

    return step


def _reduce(machine: Machine, ins: Instruction) -> Step:
    """Execute ``redux.sync`` of integers, for warps in which all threads participate."""
    words = ins.words
    name, type_ = words[2], words[-1]
    if type_ not in ("u32", "s32", "b32") or name not in COMBINATIONS:
        raise not_modelled(ins)
    read, write = machine.reader(ins.operands[1], type_), machine.writer(ins.operands[0], type_)

    def step(mask: Mask) -> None:
        machine.whole_groups(mask, _WARP, ins)
        values = COMBINATIONS[name].reduce(machine.every(read()).reshape(-1, _WARP), axis=1, dtype=numpy_type(type_))
        write(mask, values.repeat(_WARP))

    return step


def _active_mask(machine: Machine, ins: Instruction) -> Step:
    write = machine.writer(ins.operands[0], "b32")
    return lambda mask: write(mask, (_by_warp(machine, mask) * _BIT).sum(1, dtype=np.uint32).repeat(_WARP))


def _nothing(machine: Machine, ins: Instruction) -> Step:
    """Return a function without effect, for instructions that affect only speed or memory order."""
    return lambda mask: None


def _fence(machine: Machine, ins: Instruction) -> Step:
    """Execute ``fence``. Only ``fence.proxy.async`` has an effect, on the checker, because execution is in order."""
    if "proxy" not in ins.words or not machine.checker or not any(word.startswith("async") for word in ins.words):
        return lambda mask: None
    return lambda mask: machine.checker.fence(mask)


def _policy(machine: Machine, ins: Instruction) -> Step:
    write = machine.writer(ins.operands[0], "b64")
    return lambda mask: write(mask, np.zeros(1, np.uint64))


WARPS: dict[str, Builder] = {
    "shfl": _shuffle,
    "vote": _vote,
    "elect": _elect,
    "redux": _reduce,
    "activemask": _active_mask,
    "createpolicy": _policy,
    "fence": _fence,
    **dict.fromkeys(
        ("membar", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep", "setmaxnreg", "pmevent"),
        _nothing,
    ),
    "griddepcontrol": _nothing,
}
