"""Bulk copies ``cp.async.bulk``, of bytes or of tensor tiles, between global and shared memory.

Source: PTX ISA, "Asynchronous copy: bulk" and "bulk tensor". A load is executed when no thread can continue
without it, a store when its thread waits for its group, or at the end of the kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..isa.memory import SWIZZLES, UNIT_BYTES
from .access import space_of
from .barriers import barriers
from .codes import Rounding, encoded
from .copies import ThreadGroups, copy_step, group_step
from .machine import WARP, Machine, Step, not_modelled
from .memory import GLOBAL_BASE, SHARED_WINDOW, GlobalMemory
from .program import Address, Immediate, Instruction, Operand, Vector, at_line
from .reductions import REDUCTIONS, is_reduction, memory_type, reduction
from .registers import Mask, Reader
from .tensor_maps import FIELDS, MAP_BYTES, MapRecord
from .values import numpy_type

__all__ = ["Box", "any_copy_step", "map_step", "write_later"]

#: Alignment of tiles in shared memory, in bytes.
_TILE_ALIGNMENT = 128
_WORD = 4
#: Names of the reductions of bulk copies in opcodes.
_OPERATIONS = tuple(name for name in REDUCTIONS if name not in ("exch", "cas"))
#: Parts that the opcode of a bulk copy may have between its dots. The only modelled mode of tensor copies is ``.tile``.
_KNOWN = {
    *("cp", "reduce", "async", "bulk", "tensor", "1d", "2d", "3d", "4d", "5d", "tile", "bulk_group", "noftz"),
    *("global", "shared::cta", "shared::cluster", "multicast::cluster", "mbarrier::complete_tx::bytes"),
    *("L2::cache_hint", "cta_group::1", "cta_group::2", *_OPERATIONS, "u32", "s32", "u64", "s64", "b32", "b64"),
    *("f16", "bf16", "f32", "f64"),
}


@dataclass(frozen=True)
class Box:
    """Bytes in global memory that one bulk copy moves: a box of a tensor, or consecutive bytes."""

    octets: int  #: number of bytes that the copy moves
    element: str  #: PTX type of the elements, used by reductions; tf32 elements are reduced as f32
    offsets: NDArray[np.int64]  #: offset in global memory of each unit of 16 bytes
    inside: NDArray[np.int64]  #: number of bytes of each unit that the tensor contains
    places: NDArray[np.int64]  #: offset of each unit in the tile in shared memory, before the swizzle
    swizzle: str = "none"  #: swizzle mode of the bytes in shared memory
    unit_octets: int = UNIT_BYTES  #: number of bytes of a unit of shared memory that are not padding
    fill: int = 0  #: 16-bit word that fills the parts of the box outside the tensor
    rounds: bool = False  #: whether loads round f32 words to tf32
    flushes: bool = False  #: whether additions flush subnormal f32 operands and results to zero

    @classmethod
    def from_map(cls, tile: MapRecord, corner: list[int]) -> "Box":
        """Return the box of a tensor map. The first element of the box has the coordinates `corner`."""
        offsets, inside, places = tile.units(corner)
        fill = 0x7FF7 if tile.fill == "nan" else 0  # as measured: NaN that an H200 writes outside the tensor
        offsets = offsets + (tile.address - GLOBAL_BASE)
        rounds, element = tile.element.startswith("tf32"), tile.element.removeprefix("t").removesuffix(".ftz")
        flushes = tile.element.endswith(".ftz")
        return cls(
            tile.box_bytes, element, offsets, inside, places, tile.swizzle, tile.unit_octets, fill, rounds, flushes
        )

    @property
    def extent(self) -> int:
        """Number of bytes of shared memory from the first to the last byte of the tile, before the swizzle."""
        return int(self.places.max(initial=-UNIT_BYTES)) + UNIT_BYTES

    def shared_units(self, machine: Machine, start: int) -> NDArray[np.int64]:
        """Return the index of each unit of 16 bytes of a tile in the shared memory of all CTAs, swizzled.

        The tile begins at the offset `start` in the shared memory of all CTAs.
        """
        cta, offset = divmod(start, machine.shared_bytes)
        units: NDArray[np.int64] = SWIZZLES[self.swizzle].apply(offset + self.places)
        return (units + cta * machine.shared_bytes) // UNIT_BYTES

    def has_reduction(self, operation: str) -> bool:
        """Return whether elements can be reduced by `operation`. Integers except ``s64`` also count as bits.

        As measured on an H200, elements of ``s64`` have only minimum and maximum.
        """
        bits = f"b{self.element[1:]}" if self.element in ("u32", "s32", "u64") else self.element
        return is_reduction(operation, self.element) or is_reduction(operation, bits)

    def words(self) -> NDArray[np.int64]:
        """Return the offset in global memory of each 4-byte word of the box."""
        return (self.offsets[:, None] + np.arange(0, UNIT_BYTES, _WORD)).reshape(-1)

    def read(self, memory: GlobalMemory) -> NDArray[np.uint8]:
        """Return the bytes of the box. Bytes outside the tensor have the fill value.

        Words of a tensor of tf32 are rounded to nearest even; a NaN becomes 0x7fffe000. Measured on an H200.
        """
        is_whole = bool((self.inside == UNIT_BYTES).all())
        offsets = self.offsets if is_whole else np.where(self.inside > 0, self.offsets, 0)
        if self.unit_octets < UNIT_BYTES:  # units with padding begin at multiples of 4 bytes in global memory
            data = memory.views[_WORD].take(offsets[:, None] // _WORD + np.arange(UNIT_BYTES // _WORD)).view(np.uint8)
        else:
            data = memory.views[UNIT_BYTES].take(offsets // UNIT_BYTES).view(np.uint8)
        if self.rounds:
            words = data.view(np.float32).astype(np.float64)
            data = encoded(words, "tf32", Rounding("rn")).view(np.uint8)
        if is_whole:
            return data
        fill = np.full(UNIT_BYTES // 2, self.fill, np.uint16).view(np.uint8)
        outside = np.arange(UNIT_BYTES) >= self.inside[:, None]
        return np.where(outside, fill, data.reshape(-1, UNIT_BYTES)).reshape(-1)

    def write(self, memory: GlobalMemory, data: NDArray, operation: str | None) -> None:
        """Write `data` to the tensor, or combine it with the old contents of the tensor by a reduction.

        Units of 16 bytes that begin inside the tensor are written as a whole, even at its edge. Measured on an H200.
        """
        units, begins = memory.views[UNIT_BYTES], self.inside > 0
        places, new = self.offsets[begins] // UNIT_BYTES, data.view(units.dtype)[begins]
        if operation:
            dtype = numpy_type(memory_type(self.element))
            combine = reduction(operation, self.element, flush=self.flushes)
            new = combine(units.take(places).view(dtype), new.view(dtype)).view(units.dtype)
        units[places] = new


def any_copy_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes a bulk or non-bulk ``cp`` instruction: a copy, a commit, a wait or a prefetch."""
    words = ins.words
    if "bulk" not in words:
        return copy_step(machine, ins)
    stores = machine.unit("cp.async.bulk", ThreadGroups)
    if step := group_step(ins, stores):
        return step
    if "prefetch" in words:
        return lambda mask: None
    if unknown := [word for word in words if word not in _KNOWN]:
        raise not_modelled(ins, f"the qualifier '.{unknown[0]}' is not supported")
    order = [word.split("::")[0] for word in words if word.split("::")[0] in ("shared", "global")]
    if order == ["shared", "global"]:
        return _load(machine, ins)
    if order == ["global", "shared"]:
        return _store(machine, ins, stores)
    raise not_modelled(ins)


def _boxes(machine: Machine, ins: Instruction, operand: Operand, rest: list[Operand]) -> Callable[[int], Box]:
    """Return a function from a thread to the global memory (a tensor's box, or bytes) that the thread's copy moves.

    For a copy without a tensor map, also remove the size operand, which is the first operand in `rest`.
    """
    if not isinstance(operand, Address):
        raise not_modelled(ins)
    read, offset, writes = machine.reader(operand.base, "u64"), operand.offset, "bulk_group" in ins.words
    if "tensor" in ins.words:
        if len(operand.more) != 1 or not isinstance(operand.more[0], Vector):
            raise not_modelled(ins, "the coordinates of a tile must be one vector")
        coordinates = [machine.reader(item, "s32") for item in operand.more[0].items]
        if f"{len(coordinates)}d" not in ins.words:
            raise not_modelled(ins, f"the number of coordinates, {len(coordinates)}, is not that of the opcode")

        def tile(thread: int) -> Box:
            record = tensor_map(machine, ins, machine.value(read, thread) + offset, thread)
            if len(coordinates) != (axes := len(record.shape)):
                raise machine.fault(ins, f"the tensor map has {axes} axes, not {len(coordinates)}", thread)
            corner = [machine.value(coordinate, thread) for coordinate in coordinates]
            # An H200 stops at these coordinates with the error "illegal instruction".
            if corner[0] % record.first_step:
                unit = f"{record.first_step} elements" if record.unit_octets < UNIT_BYTES else "16 bytes"
                raise machine.fault(ins, f"the first coordinate, {corner[0]}, is not at a multiple of {unit}", thread)
            if writes and record.unit_octets < UNIT_BYTES:
                raise machine.fault(ins, f"a store of {record.element} is not modelled", thread)
            if writes and min(corner) < 0:
                raise machine.fault(ins, f"a store to a tensor has the negative coordinate {min(corner)}", thread)
            box = Box.from_map(record, corner)
            used = box.inside > 0
            starts, ends = box.offsets, box.offsets + (UNIT_BYTES if writes else box.inside)  # stores write whole units
            if used.any() and not machine.memory.contains(int(starts[used].min()), int(ends[used].max())):
                raise machine.fault(ins, "the tensor of the tensor map is not inside one array", thread)
            return box

        return tile
    read_size = machine.reader(rest.pop(0), "u32")

    def octets(thread: int) -> Box:
        start, size = machine.value(read, thread) + offset - GLOBAL_BASE, machine.value(read_size, thread)
        if start % 16 or not machine.memory.contains(start, start + size):
            what = "is not inside one array" if start % 16 == 0 else "does not begin at a multiple of 16 bytes"
            raise machine.fault(ins, f"a copy of {size} bytes {what}", thread)
        offsets = np.arange(start, start + size, 16)
        return Box(size, ins.words[-1], offsets, np.full(len(offsets), UNIT_BYTES), np.arange(0, size, UNIT_BYTES))

    return octets


def tensor_map(machine: Machine, ins: Instruction, address: int, thread: int) -> MapRecord:
    """Return the tensor map at a generic address, which is in parameter space, global memory or shared memory."""
    if address < SHARED_WINDOW:
        raise machine.fault(ins, f"there is no tensor map at {address:#x}", thread)
    where, at = machine.resolve(np.array([address]), "generic", ins)
    start = int(machine.every(at)[thread])
    with at_line(ins):
        record = MapRecord.decoded(machine.views[where][1][start : start + MAP_BYTES].tobytes())
    if record is None:
        raise machine.fault(ins, f"there is no tensor map at {address:#x}", thread)
    return record


def _load(machine: Machine, ins: Instruction) -> Step:
    """Copy from global to shared memory, and count the copied bytes at an ``mbarrier``."""
    destination, source, *rest = ins.operands
    box_of = _boxes(machine, ins, source, rest)
    to, barrier = machine.places(destination, "shared", ins), machine.places(rest.pop(0), "shared", ins)
    multicast = machine.reader(rest[0], "u16") if "multicast::cluster" in ins.opcode else None

    def step(mask: Mask) -> None:
        at, objects = (machine.every(places(mask)[1]) for places in (to, barrier))
        for thread in machine.active(mask).tolist():
            box, place = box_of(thread), int(at[thread])
            _check_tile(machine, ins, place, box, thread)
            # The checker compares the layout of a tile with source addresses only for copies without swizzle. Only such
            # copies can write tiles that do not consist of core matrices.
            compared = machine.checker and machine.checker.tiles and box.swizzle == "none"
            write_later(
                machine,
                ins,
                thread,
                [box.shared_units(machine, start) for start in machine.in_ctas(thread, place, multicast)],
                _barriers(machine, ins, thread, int(objects[thread]), multicast),
                partial(box.read, machine.memory),
                box.octets,
                box.words() if compared else None,
            )

    return step


def _barriers(machine: Machine, ins: Instruction, thread: int, place: int, multicast: Reader | None) -> list[int]:
    """Return the index of the ``mbarrier`` that counts the bytes of each destination CTA.

    With ``.cta_group::2``, a copy to either CTA of a pair is counted in the CTA whose rank is even or odd like that of
    the CTA with the given ``mbarrier``.
    """
    size = machine.shared_bytes
    places = machine.in_ctas(thread, place, multicast)
    if multicast and "cta_group::2" in ins.words:
        machine.require_pairs(ins, thread)
        places = [each + ((place // size) % 2 - (each // size) % 2) * size for each in places]
    return [each // 8 for each in places]


def write_later(
    machine: Machine,
    ins: Instruction,
    thread: int,
    targets: list[NDArray[np.int64]],
    slots: list[int],
    read: Callable[[], NDArray],
    octets: int,
    origins: NDArray[np.int64] | None = None,
) -> None:
    """Queue an asynchronous write of units of 16 bytes to the shared memory of one or more CTAs.

    Each of `targets` contains the indices of the units in one CTA, and the element of `slots` at the same place is the
    index of the ``mbarrier`` that counts `octets` written bytes. The function `read` returns the data at the time of
    the write. `origins` are the offsets in global memory of the words that a copy moves.
    """
    if machine.checker:
        for units in targets:
            machine.checker.overwrite(ins, np.array([thread]), units * UNIT_BYTES, UNIT_BYTES)
            machine.checker.begins(ins, units * UNIT_BYTES, UNIT_BYTES, "write")

    def write() -> None:
        data = read().view(np.complex128)
        for units, slot in zip(targets, slots, strict=True):
            machine.work.octets[ins.line] += octets
            machine.views["shared"][UNIT_BYTES][units] = data
            if machine.checker:
                machine.checker.ends(units * UNIT_BYTES, UNIT_BYTES, "write")
                machine.checker.wrote_in_bulk(ins, units * UNIT_BYTES, slot, origins)
            barriers(machine).complete(slot, octets, ins)

    machine.queue.append(write)


def _check_tile(machine: Machine, ins: Instruction, place: int, box: Box, thread: int) -> None:
    """Raise an error if a tile in shared memory is misaligned, or is not inside the shared memory of a CTA."""
    start = place - int(machine.shared_start[thread])
    alignment = _TILE_ALIGNMENT if "tensor" in ins.words else 16
    for what, number, unit in (("address in shared memory", start, alignment), ("size", box.octets, 16)):
        if number % unit:
            raise machine.fault(ins, f"the {what} is not a multiple of {unit} bytes", thread)
    if machine.launch.cluster_size > 1:  # the destination may be in another CTA of the cluster
        start = place % machine.shared_bytes
    if not 0 <= start <= machine.shared_bytes - box.extent:
        raise machine.fault(ins, f"a tile of {box.extent} bytes is not inside shared memory", thread)


def _store(machine: Machine, ins: Instruction, stores: ThreadGroups) -> Step:
    """Copy or reduce from shared to global memory, as part of the bulk group that the thread commits next."""
    operation = next((word for word in ins.words if word in _OPERATIONS), None)
    destination, source, *rest = ins.operands
    type_ = ins.words[-1]
    if ("reduce" in ins.opcode) != (operation is not None):
        raise not_modelled(ins)
    if operation and "tensor" not in ins.words:
        needs_noftz = operation == "add" and type_ in ("f16", "bf16")
        if not is_reduction(operation, type_) or needs_noftz != ("noftz" in ins.words):
            raise not_modelled(ins)
    box_of, origin = _boxes(machine, ins, destination, rest), machine.places(source, "shared", ins)

    def step(mask: Mask) -> None:
        at = machine.every(origin(mask)[1])
        tasks: dict[int, tuple[Box, int]] = {}
        for thread in machine.active(mask).tolist():
            box, place = tasks[thread] = box_of(thread), int(at[thread])
            if operation and not box.has_reduction(operation):
                raise machine.fault(ins, f"there is no reduction '.{operation}' of {box.element}", thread)
            _check_tile(machine, ins, place, box, thread)
            machine.work.octets[ins.line] += box.octets
            if machine.checker:
                read = box.shared_units(machine, place) * UNIT_BYTES
                machine.checker.reads_in_bulk(ins, [thread], read, UNIT_BYTES)
                machine.checker.begins(ins, read, UNIT_BYTES, "read")

        def execute(chosen: Mask) -> None:
            for thread, (box, place) in tasks.items():
                if chosen is None or chosen[thread]:
                    units = box.shared_units(machine, place)
                    if machine.checker:
                        machine.checker.ends(units * UNIT_BYTES, UNIT_BYTES, "read")
                    box.write(machine.memory, machine.views["shared"][UNIT_BYTES].take(units), operation)

        stores.add(mask, execute)

    return step


def map_step(machine: Machine, ins: Instruction) -> Step:
    """Execute ``tensormap``: replace a field of a tensor map, or copy a tensor map from shared to global memory."""
    words = ins.words
    if words[1] == "cp_fenceproxy":
        to, origin = (machine.places(operand, space, ins, 16)
                      for operand, space in zip(ins.operands, ("global", "shared"), strict=False))  # fmt: skip

        def copy(mask: Mask) -> None:
            places, starts = (machine.every(each(mask)[1]) for each in (to, origin))
            for thread in machine.active(mask)[::WARP].tolist():
                place, start = int(places[thread]), int(starts[thread])
                machine.memory.octets[place : place + MAP_BYTES] = machine.shared.reshape(-1)[start : start + MAP_BYTES]

        return copy
    if words[1] != "replace" or words[3] not in FIELDS:
        raise not_modelled(ins)
    start, size, count = FIELDS[words[3]]
    number = ins.operands[1] if len(ins.operands) > 2 else Immediate(0)
    if not isinstance(number, Immediate) or not 0 <= number.value < count:
        raise not_modelled(ins, f"the index into field '{words[3]}' must be a constant from 0 to {count - 1}")
    target, read = machine.places(ins.operands[0], space_of(ins), ins, 16), machine.reader(ins.operands[-1], words[-1])
    offset = start + size * number.value

    def replace(mask: Mask) -> None:
        where, at = target(mask)
        at, values, octets = machine.every(at), machine.every(read()), machine.views[where][1]
        for thread in machine.active(mask).tolist():
            place = int(at[thread]) + offset
            field = (int(values[thread]) & (1 << 8 * size) - 1).to_bytes(size, "little")
            octets[place : place + size] = np.frombuffer(field, np.uint8)

    return replace
