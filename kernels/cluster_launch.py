"""Execute ``clusterlaunchcontrol``: cancel the launch of a cluster, so that a running cluster computes its tile.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: clusterlaunchcontrol". PTX does not define
the 16 bytes of a response. Here, a response consists of the indices x, y and z of the first CTA of the cancelled
cluster, and of the number 1; if no cluster was left, all bytes are zero.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..isa.memory import UNIT_BYTES
from .bulk_copies import write_later
from .geometry import cta_numbers, positions
from .machine import Machine, Step, not_modelled
from .program import Immediate, Instruction, Vector, items_of
from .registers import Mask

__all__ = ["cluster_launch_step"]

_AXES = "xyz"
_REQUEST = ["try_cancel", "async", "mbarrier::complete_tx::bytes", "b128"]
_TO_ALL_CTAS = "multicast::cluster::all"


def cluster_launch_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes a ``clusterlaunchcontrol`` instruction."""
    words = [word for word in ins.words[1:] if word not in ("shared::cta", _TO_ALL_CTAS)]
    if words == _REQUEST:
        return _request(machine, ins)
    if words[:1] == ["query_cancel"] and words[-1] == "b128":
        return _query(machine, ins, words[1:-1])
    raise not_modelled(ins)


def _response(machine: Machine) -> NDArray[np.uint32]:
    """Cancel the next cluster that has not started, and return the response to the request."""
    cancelled = machine.clusters.take(1)
    if not cancelled:
        return np.zeros(4, np.uint32)
    first = cta_numbers(machine.launch, cancelled)[:1]
    return np.concatenate([*positions(first, machine.launch.grid), [1]]).astype(np.uint32)


def _request(machine: Machine, ins: Instruction) -> Step:
    """Execute ``try_cancel``: write the response to shared memory, and count 16 bytes at an ``mbarrier``."""
    space = "shared" if "shared::cta" in ins.words else "generic"
    response, barrier = (machine.places(operand, space, ins, octets)
                         for operand, octets in zip(ins.operands, (UNIT_BYTES, 8), strict=True))  # fmt: skip
    multicast = machine.reader(Immediate(0xFFFF), "u16") if _TO_ALL_CTAS in ins.words else None

    def step(mask: Mask) -> None:
        (where, at), (also, objects) = response(mask), barrier(mask)
        if (where, also) != ("shared", "shared"):
            raise machine.fault(ins, "the response and the mbarrier must be in shared memory")
        at, objects = machine.every(at), machine.every(objects)
        for thread in machine.active(mask).tolist():
            targets = [np.array([each]) // UNIT_BYTES for each in machine.in_ctas(thread, int(at[thread]), multicast)]
            slots = [each // 8 for each in machine.in_ctas(thread, int(objects[thread]), multicast)]
            write_later(machine, ins, thread, targets, slots, partial(_response, machine), UNIT_BYTES)

    return step


def _query(machine: Machine, ins: Instruction, words: list[str]) -> Step:
    """Execute ``query_cancel``: read whether a cluster was cancelled, or the indices of its first CTA."""
    destination, response = ins.operands
    if not isinstance(response, Vector):
        raise not_modelled(ins, "the response must be a register of .b128")
    low, high = (machine.reader(half, "b64") for half in response.items)

    def fields() -> list[NDArray[np.uint32]]:
        return [(half() >> np.uint64(shift)).astype(np.uint32) for half in (low, high) for shift in (0, 32)]

    if words == ["is_canceled", "pred"]:
        write = machine.writer(destination, "pred")
        return lambda mask: write(mask, fields()[3] == 1)
    if words == ["get_first_ctaid", "v4", "b32"] and len(items_of(destination)) == 4:
        chosen = dict(enumerate(items_of(destination)))
    elif words[1:] == ["b32"] and words[0] in (names := [f"get_first_ctaid::{axis}" for axis in _AXES]):
        chosen = {names.index(words[0]): destination}
    else:
        raise not_modelled(ins)
    writes = {place: machine.writer(item, "b32") for place, item in chosen.items()}

    def step(mask: Mask) -> None:
        values = fields()
        if (machine.every(values[3])[machine.active(mask)] != 1).any():
            machine.report(ins, "index of no cluster", "clusterlaunchcontrol", "no cluster was cancelled")
        for place, write in writes.items():
            write(mask, values[place])

    return step
