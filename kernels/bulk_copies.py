"""Bulk copies ``cp.async.bulk``, of bytes or of tensor tiles, between global and shared memory.

Source: PTX ISA, "Asynchronous copy: bulk" and "bulk tensor". A load is executed when no thread can continue
without it, a store when its thread waits for its group, or at the end of the kernel.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..isa.memory import SWIZZLES
from .access import space_of
from .barriers import barriers
from .copies import ThreadGroups, copy_step, group_step
from .machine import Machine, Mask, Reader, Step, not_modelled
from .memory import GLOBAL_BASE, PARAMETER_WINDOW, SHARED_WINDOW
from .program import Address, Immediate, Instruction, Vector
from .reductions import memory_type
from .reductions import reduction as reduction_of
from .tensor_maps import FIELDS, MAP_BYTES, MapRecord
from .values import numpy_type

__all__ = ["BULK_COPIES"]

#: Reduction operations of bulk copies.
_REDUCTIONS = ("add", "min", "max", "and", "or", "xor")
#: Alignment of tiles in shared memory, in bytes.
_TILE_ALIGNMENT = 128
_WARP_THREADS, _WORD = 32, 4


def _step(machine: Machine, ins: Instruction) -> Step:
    words = ins.words
    if "bulk" not in words:
        return copy_step(machine, ins)
    stores = machine.unit("cp.async.bulk", ThreadGroups)
    if step := group_step(ins, stores):
        return step
    if "prefetch" in words:
        return lambda mask: None
    if any(word.startswith(("im2col", "tile::")) for word in words):
        raise not_modelled(ins, "only tile mode is modelled")
    order = [word.split("::")[0] for word in words if word.split("::")[0] in ("shared", "global")]
    if order == ["shared", "global"]:
        return _load(machine, ins)
    if order == ["global", "shared"]:
        return _store(machine, ins, stores)
    raise not_modelled(ins)


def tensor_map(machine: Machine, ins: Instruction, address: int, thread: int) -> MapRecord:
    """Return the tensor map at a generic address, which is in parameter space, global memory or shared memory."""
    if address >= GLOBAL_BASE:
        octets = machine.memory.octets[address - GLOBAL_BASE :][:MAP_BYTES].tobytes()
    elif address >= PARAMETER_WINDOW:
        octets = machine.parameters[address - PARAMETER_WINDOW :][:MAP_BYTES]
    else:
        start = address - SHARED_WINDOW
        octets = machine.shared[thread // machine.threads, start : start + MAP_BYTES].tobytes()
    record = MapRecord.decoded(octets)
    if record is None:
        raise machine.fault(ins, f"there is no tensor map at {address:#x}", thread)
    return record


def _load(machine: Machine, ins: Instruction) -> Step:
    """Copy from global to shared memory, and count the copied bytes at an ``mbarrier``."""
    tensor = "tensor" in ins.words
    destination, source, *rest = ins.operands
    if not isinstance(source, Address):
        raise not_modelled(ins)
    size = None if tensor else machine.reader(rest.pop(0), "u32")
    to = machine.places(destination, "shared", ins)
    barrier = machine.places(rest.pop(0), "shared", ins)
    multicast = machine.reader(rest[0], "u16") if "multicast::cluster" in ins.opcode else None
    read = machine.reader(source.base, "u64")
    coordinates = _coordinates(machine, ins, source) if tensor else []

    def step(mask: Mask) -> None:
        at, objects = (machine.every(places(mask)[1]) for places in (to, barrier))
        for thread in machine.active(mask).tolist():
            address = machine.value(read, thread) + source.offset
            data: Callable[[], NDArray[np.uint8]]
            origins: Callable[[], NDArray[np.int64]]
            if tensor:
                tile = tensor_map(machine, ins, address, thread)
                octets, swizzle = tile.box_bytes, tile.swizzle
                corner = [machine.value(coordinate, thread) for coordinate in coordinates]
                data, origins = partial(_tile, machine, tile, corner), partial(_tile_origins, tile, corner)
            else:
                octets, swizzle = machine.value(size, thread) if size else 0, "none"
                data = partial(_octets, machine, ins, address, octets)
                origins = partial(np.arange, address - GLOBAL_BASE, address - GLOBAL_BASE + octets, _WORD)
            place = int(at[thread])
            _check_tile(machine, ins, place - int(machine.shared_start[thread]), octets, thread, tensor=tensor)
            others = machine.distances(thread, machine.value(multicast, thread) if multicast else None)
            places = [place + other * machine.shared_bytes for other in others]
            slots = [(int(objects[thread]) + other * machine.shared_bytes) // 8 for other in others]
            if machine.checker:
                for start in places:
                    machine.checker.overwrite(ins, np.array([thread]), np.array([start]), octets)
                    machine.checker.begins(ins, np.array([start]), octets, "write")
            machine.queue.append(partial(_fill, machine, ins, data, origins, swizzle, places, slots))

    return step


def _fill(
    machine: Machine,
    ins: Instruction,
    data: Callable[[], NDArray[np.uint8]],
    origins: Callable[[], NDArray[np.int64]],
    swizzle: str,
    places: list[int],
    slots: list[int],
) -> None:
    """Write copied data to the shared memory of one or more CTAs, and count it at an ``mbarrier`` of each CTA."""
    octets = data()
    # The checker needs the source addresses only of copies without swizzle, whose tiles may lack core matrices.
    compared = machine.checker and machine.checker.tiles and swizzle == "none"
    offsets = origins() if compared else None
    for place, slot in zip(places, slots, strict=True):
        machine.work.octets[ins.line] += octets.size
        rows = _rows(machine, place, octets.size, swizzle)
        machine.views["shared"][16][rows] = octets.view(np.complex128)
        if machine.checker:
            machine.checker.ends(np.array([place]), octets.size, "write")
            machine.checker.wrote_in_bulk(ins, place, octets.size, slot, offsets)
        barriers(machine).complete(slot, octets.size, ins)


def _coordinates(machine: Machine, ins: Instruction, address: Address) -> list[Reader]:
    if len(address.more) != 1 or not isinstance(address.more[0], Vector):
        raise not_modelled(ins, "the coordinates of a tile must be one vector")
    return [machine.reader(item, "s32") for item in address.more[0].items]


def _check_tile(machine: Machine, ins: Instruction, start: int, octets: int, thread: int, *, tensor: bool) -> None:
    alignment = _TILE_ALIGNMENT if tensor else 16
    if start % alignment or octets % 16:
        raise machine.fault(ins, f"its address in shared memory is not a multiple of {alignment} bytes", thread)
    if machine.launch.cluster_size == 1 and not 0 <= start <= machine.shared_bytes - octets:
        raise machine.fault(ins, f"it accesses {octets} bytes outside of shared memory", thread)


def _pieces(
    machine: Machine, tile: MapRecord, corner: list[int]
) -> tuple[NDArray, NDArray[np.int64], NDArray[np.bool_]]:
    """Return global memory as an array of pieces, the index of each piece of a box, and whether the tensor has it."""
    octets, offsets, inside = tile.pieces(corner)
    return machine.memory.views[octets], (offsets + (tile.address - GLOBAL_BASE)) // octets, inside


def _tile(machine: Machine, tile: MapRecord, corner: list[int]) -> NDArray[np.uint8]:
    """Return the bytes of a tile. Elements outside the tensor have the fill value of the tensor map."""
    memory, places, inside = _pieces(machine, tile, corner)
    if inside.all():
        return memory.take(places).view(np.uint8)
    data = np.full(tile.box_bytes, 0xFF if tile.fill == "nan" else 0, np.uint8)
    data.view(memory.dtype)[inside] = memory.take(places[inside])
    return data


def _tile_origins(tile: MapRecord, corner: list[int]) -> NDArray[np.int64]:
    """Return the offset in global memory of each word of a tile."""
    octets, offsets, _ = tile.pieces(corner)
    starts = (offsets + tile.address - GLOBAL_BASE)[:, None] + np.arange(0, octets, _WORD)
    return starts.reshape(-1)[:: max(_WORD // octets, 1)]


def _octets(machine: Machine, ins: Instruction, address: int, octets: int) -> NDArray[np.uint8]:
    start = address - GLOBAL_BASE
    machine.checked("global", np.array([start]), 16, ins)
    return machine.memory.octets[start : start + octets]


def _rows(machine: Machine, place: int, octets: int, swizzle: str) -> NDArray[np.int64]:
    """Return the indices, in shared memory, of the 16-byte words of a tile."""
    cta, start = divmod(place, machine.shared_bytes)
    rows: NDArray[np.int64] = SWIZZLES[swizzle].apply(start + np.arange(0, octets, 16))
    return (rows + cta * machine.shared_bytes) >> 4


def _store(machine: Machine, ins: Instruction, stores: ThreadGroups) -> Step:
    """Copy or reduce from shared to global memory, as part of the bulk group that the thread commits next."""
    tensor, reduction = "tensor" in ins.words, next((word for word in ins.words if word in _REDUCTIONS), None)
    destination, source, *rest = ins.operands
    if not isinstance(destination, Address) or ("reduce" in ins.opcode) != (reduction is not None):
        raise not_modelled(ins)
    size = None if tensor else machine.reader(rest.pop(0), "u32")
    origin = machine.places(source, "shared", ins)
    read = machine.reader(destination.base, "u64")
    coordinates = _coordinates(machine, ins, destination) if tensor else []
    offset, type_ = destination.offset, ins.words[-1]

    def step(mask: Mask) -> None:
        at = machine.every(origin(mask)[1])
        tasks: dict[int, Callable[[], None]] = {}
        reading: dict[int, tuple[NDArray[np.int64], int]] = {}
        for thread in machine.active(mask).tolist():
            address, place = machine.value(read, thread) + offset, int(at[thread])
            start = place - int(machine.shared_start[thread])
            if tensor:
                tile = tensor_map(machine, ins, address, thread)
                _check_tile(machine, ins, start, tile.box_bytes, thread, tensor=True)
                corner = [machine.value(coordinate, thread) for coordinate in coordinates]
                tasks[thread] = _tile_store(machine, tile, corner, place, reduction)
                size_in_shared = tile.box_bytes
            else:
                octets = machine.value(size, thread) if size else 0
                _check_tile(machine, ins, start, octets, thread, tensor=False)
                machine.checked("global", np.array([address - GLOBAL_BASE]), 16, ins)
                tasks[thread] = _octet_store(machine, address - GLOBAL_BASE, place, octets, reduction, type_)
                size_in_shared = octets
            machine.work.octets[ins.line] += size_in_shared
            if machine.checker:
                reading[thread] = np.array([place]), size_in_shared
                machine.checker.reads_in_bulk(ins, [thread], *reading[thread])
                machine.checker.begins(ins, *reading[thread], "read")

        def execute(chosen: Mask) -> None:
            for thread, task in tasks.items():
                if chosen is None or chosen[thread]:
                    if thread in reading:
                        machine.checker.ends(*reading[thread], "read")
                    task()

        stores.add(mask, execute)

    return step


def _tile_store(
    machine: Machine, tile: MapRecord, corner: list[int], place: int, reduction: str | None
) -> Callable[[], None]:
    def work() -> None:
        data = machine.views["shared"][16].take(_rows(machine, place, tile.box_bytes, tile.swizzle))
        memory, places, inside = _pieces(machine, tile, corner)
        kept, places = data.view(memory.dtype)[inside], places[inside]
        if reduction:
            old = memory.take(places).view(np.uint8)
            kept = _reduced(reduction, tile.element, old, kept.view(np.uint8)).view(memory.dtype)
        memory[places] = kept

    return work


def _octet_store(
    machine: Machine, to: int, place: int, octets: int, reduction: str | None, type_: str
) -> Callable[[], None]:
    def work() -> None:
        data = machine.shared.reshape(-1)[place : place + octets]
        target = machine.memory.octets[to : to + octets]
        target[:] = _reduced(reduction, type_, target, data) if reduction else data

    return work


def _reduced(reduction: str, type_: str, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the old bytes in memory, combined with new bytes by a reduction."""
    dtype = numpy_type(memory_type(type_))
    octets: NDArray[np.uint8] = reduction_of(reduction, type_)(old.view(dtype), new.view(dtype)).view(np.uint8)
    return octets


def _map_step(machine: Machine, ins: Instruction) -> Step:
    """Execute ``tensormap``: replace a field of a tensor map, or copy a map from shared to global memory."""
    words = ins.words
    if words[1] == "cp_fenceproxy":
        to, origin = machine.places(ins.operands[0], "global", ins), machine.places(ins.operands[1], "shared", ins)

        def copy(mask: Mask) -> None:
            places, starts = (machine.checked(*each(mask), 16, ins, mask) for each in (to, origin))
            for thread in machine.active(mask)[::_WARP_THREADS].tolist():
                place, start = (int(machine.every(at)[thread]) for at in (places, starts))
                machine.memory.octets[place : place + MAP_BYTES] = machine.shared.reshape(-1)[start : start + MAP_BYTES]

        return copy
    if words[1] != "replace" or words[3] not in FIELDS:
        raise not_modelled(ins)
    start, size, count = FIELDS[words[3]]
    number = ins.operands[1] if len(ins.operands) > 2 else Immediate(0)
    if not isinstance(number, Immediate) or not 0 <= number.value < count:
        raise not_modelled(ins, "its field index is not a constant in the accepted range")
    target, read = machine.places(ins.operands[0], space_of(ins), ins), machine.reader(ins.operands[-1], words[-1])
    offset = start + size * number.value

    def replace(mask: Mask) -> None:
        where, at = target(mask)
        at = machine.every(machine.checked(where, at, 16, ins, mask))
        octets = machine.views[where][1]
        values = machine.every(read())
        for thread in machine.active(mask).tolist():
            place = int(at[thread]) + offset
            field = (int(values[thread]) & (1 << 8 * size) - 1).to_bytes(size, "little")
            octets[place : place + size] = np.frombuffer(field, np.uint8)

    return replace


BULK_COPIES: dict[str, Callable[[Machine, Instruction], Step]] = {"cp": _step, "tensormap": _map_step}
