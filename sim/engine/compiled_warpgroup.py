"""Warpgroup compiled by Verilator: executes ``wgmma`` and ``mma``, and returns results with their cycle numbers.

The driver models the surroundings in an SM: a shared memory, which returns data in the next cycle, and registers. An
accumulator is read from the registers as soon as the previous multiplication has written that accumulator.
"""

import ctypes
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...isa.memory import UNIT_BYTES
from ...rtl.fetch import ADDRESS_BITS, PANEL_ROWS, descriptor_layout
from ...rtl.life_cycle import Operation
from ...rtl.tensor_core import TENSOR_CORE
from ...rtl.tensor_cores import WARPS, mma_layout
from ...rtl.warp import CHUNKS, COLUMNS, LANES, REGISTERS, ROWS, warp_operands_layout
from ...rtl.warpgroup import Warpgroup, warpgroup_layout
from .array_units import CompiledTop, StandIn, TopModel
from .driver import PATIENCE, CycleBits, members
from .ports import payload_words
from .warp_operands import RESULT_WORDS, warp_results
from .warpgroup_commands import Command, Completion, WarpInstruction

__all__ = ["CArray", "CCommand", "CInstruction", "CWork", "CompiledWarpgroup", "GroupModel", "group_constants"]

#: Half the size of the addressable shared memory, in units of 16 bytes. The operands of consecutive commands alternate
#: between the two halves.
_HALF = 1 << ADDRESS_BITS - 1
_PANEL_OUTPUTS = ROWS * COLUMNS
#: Cycle events that offer all inputs and accept all results in every cycle, also for ``mma`` on each tensor core.
_ALWAYS = CycleBits.RESET - 1


class CCommand(ctypes.Structure):
    """C structure ``Command`` of ``drivers/warpgroup.cpp``: one warpgroup command with cycle numbers and results."""

    _fields_ = (
        *members(ctypes.c_void_p, "payload", "image", "c", "expected", "results"),
        *members(ctypes.c_int32, "operation", "pending", "panels", "first_unit", "image_units", "reads", "ready"),
        *members(ctypes.c_int64, "taken", "done"),
    )


class CInstruction(ctypes.Structure):
    """C structure ``Instruction`` of ``drivers/warpgroup.cpp``: one ``mma``, with its cycle numbers and result."""

    _fields_ = (
        *members(ctypes.c_void_p, "payload", "expected", "result"),
        *members(ctypes.c_int32, "after", "surroundings", "interval"),
        *members(ctypes.c_int64, "taken", "done"),
    )


class CArray(ctypes.Structure):
    """C structure ``Array`` of ``drivers/warpgroup.cpp``: the ``mma`` instructions for one tensor core."""

    _fields_ = (("instructions", ctypes.POINTER(CInstruction)), *members(ctypes.c_int32, "count", "issued", "answered"))


class CWork(ctypes.Structure):
    """C structure ``Work`` of ``drivers/warpgroup.cpp``: commands and instructions of a run, and its time limits."""

    _fields_ = (
        ("commands", ctypes.POINTER(CCommand)),
        ("arrays", ctypes.POINTER(CArray)),
        *members(ctypes.c_void_p, "pattern"),
        *members(ctypes.c_int64, "count", "pattern_cycles", "cycles", "patience", "longest_wait", "longest_silence"),
        *members(ctypes.c_int64, "ends_with_commands", "compares", "accepted"),
        *members(ctypes.c_void_p, "outputs"),
    )


def group_constants() -> dict[str, int]:
    """Return the constants of ``drivers/warpgroup.cpp``: codes of operations, numbers of words, bit positions."""
    operations = {name.lower(): operation.value for name, operation in Operation.__members__.items()}
    return operations | {
        "panel_words": WARPS * LANES * REGISTERS,
        "warp_words": RESULT_WORDS,
        "c_word": warp_operands_layout()["c"].offset // 32,
        "core_bit": mma_layout()["core"].offset,
        "warps": WARPS,
        "rows": PANEL_ROWS,
    }


class GroupModel(TopModel):
    """Model of one warpgroup, in a library built from ``drivers/warpgroup.cpp``."""

    prefix, arguments = "group", (ctypes.POINTER(CWork),)


class CompiledWarpgroup(CompiledTop[GroupModel]):
    """Warpgroup compiled by Verilator, with four tensor cores of sm_90."""

    top = title = "warpgroup"
    source = "warpgroup.cpp"

    def __init__(self, stand_in: StandIn | None = None) -> None:
        super().__init__(TENSOR_CORE, partial(Warpgroup, TENSOR_CORE), group_constants(), GroupModel, stand_in)

    def run(self, commands: Sequence[Command], pattern: NDArray[np.integer] | None = None) -> list[Completion]:
        """Reset the warpgroup and run commands until all results are delivered; see :meth:`run_beside`."""
        return self.run_beside(commands, [()] * WARPS, pattern)[0]

    def run_beside(
        self,
        commands: Sequence[Command],
        instructions: Sequence[Sequence[WarpInstruction]],
        pattern: NDArray[np.integer] | None = None,
    ) -> tuple[list[Completion], list[list[Completion]]]:
        """Reset the warpgroup, and run ``wgmma`` commands to completion, concurrently with ``mma`` of other warps.

        Commands, and the instructions of each array, run in order. The pattern has the
        :class:`~sptc.sim.engine.driver.CycleBits` of each cycle, and repeats. By default, all inputs are offered and
        all results accepted in every cycle. Raise an `AssertionError` if the hardware breaks a rule or does not finish.
        """
        entries, buffers, multiplied, columns = (CCommand * len(commands))(), [], 0, 0
        for command, entry in zip(commands, entries, strict=True):
            second = multiplied % 2 == 1 and command.image.size <= _HALF * UNIT_BYTES
            payload, image = _payload(command, second), command.image
            panels = command.n // COLUMNS
            if panels:
                assert command.c is not None or command.n == columns, (
                    "a multiplication without C must have as many columns as the multiplication before it"
                )
                multiplied, columns = multiplied + 1, command.n
            c = None if command.c is None else _panels(command.c, panels)
            results = np.zeros((panels, WARPS, RESULT_WORDS), np.uint32)
            buffers.append((payload, c, results))
            entry.payload, entry.image, entry.results = (array.ctypes.data for array in (payload, image, results))
            entry.c = None if c is None else c.ctypes.data
            entry.operation, entry.pending = command.fields["operation"].value, command.fields.get("pending", 0)
            entry.panels, entry.first_unit, entry.image_units = panels, _HALF * second, image.size // UNIT_BYTES
            entry.reads, entry.ready, entry.taken, entry.done = -1, -1, -1, -1
        arrays, answers = (CArray * WARPS)(), [_issued(of_array) for of_array in instructions]
        for place, (issued, _) in zip(arrays, answers, strict=True):
            place.instructions, place.count = issued, len(issued)
        bits = np.array([_ALWAYS] if pattern is None else pattern, np.uint16)
        work = CWork(entries, arrays, bits.ctypes.data, len(commands), len(bits))
        work.cycles = work.longest_wait = work.longest_silence = np.iinfo(np.int64).max
        work.patience = PATIENCE
        broken = self._model(_steps(commands, instructions)).run_driver(work)
        assert not broken, f"the warpgroup breaks a rule: it {broken}"
        return [
            _completion(entry, results, command.registers)
            for command, entry, (*_, results) in zip(commands, entries, buffers, strict=True)
        ], [
            [
                _completion(entry, result, one.registers)
                for one, entry, result in zip(of_array, issued, results, strict=True)
            ]
            for of_array, (issued, results) in zip(instructions, answers, strict=True)
        ]

    def run_on_all(self, instructions: Sequence[WarpInstruction]) -> list[Completion]:
        """Run independent ``mma`` instructions, assigned round-robin to the four tensor cores of an SM."""
        dealt = [instructions[place::WARPS] for place in range(WARPS)]
        _, of_arrays = self.run_beside([], dealt)
        return [of_arrays[number % WARPS][number // WARPS] for number in range(len(instructions))]


def _payload(command: Command, second: bool) -> NDArray[np.uint32]:
    """Return the payload words of a command. If `second`, its descriptors address the second half of shared memory."""
    layout = warpgroup_layout()
    words = np.zeros(-(-layout.size // 32), np.uint32)
    for name, registers in (("a", command.a), ("e", command.e)):
        if registers is not None:
            first = layout[name].offset // 32
            words[first : first + registers.size] = registers.ravel()
    fields = dict(command.fields)
    for name in {"a_descriptor", "b_descriptor"} & fields.keys() if second else ():
        fields[name] = descriptor_layout().from_bits(fields[name].as_bits() ^ _HALF)
    words[layout["operation"].offset // 32 :] = payload_words(layout, fields, "operation")
    return words


def _issued(instructions: Sequence[WarpInstruction]) -> tuple[Any, NDArray[np.uint32]]:
    """Return instructions as C structures, and the array into which the C++ driver writes their results."""
    issued, results = (CInstruction * len(instructions))(), np.zeros((len(instructions), 1, 1, RESULT_WORDS), np.uint32)
    for number, (one, entry) in enumerate(zip(instructions, issued, strict=True)):
        assert one.after is None or one.after < number, "C must be the result of an earlier instruction"
        entry.payload, entry.result = one.words.ctypes.data, results[number].ctypes.data
        entry.after, entry.surroundings = -1 if one.after is None else one.after, one.surroundings
        entry.interval = -1
    return issued, results


def _steps(commands: Sequence[Command], instructions: Sequence[Sequence[WarpInstruction]]) -> Counter[int]:
    """Return, for each control word, the number of steps (cycles of one unit) that all dot-product units execute."""
    steps: Counter[int] = Counter()
    for command in commands:
        if command.n:
            steps[int(command.fields["control"].as_bits())] += WARPS * _PANEL_OUTPUTS * command.n // COLUMNS
    for one in chain(*instructions):
        steps[one.control] += _PANEL_OUTPUTS
    return steps


def _panels(registers: NDArray[np.uint32], panels: int) -> NDArray[np.uint32]:
    """Split accumulator registers of 128 threads into panels of eight columns, shape (panels, 4, 32, 4)."""
    of_thread = registers.reshape(WARPS, LANES, panels, -1)
    whole = np.zeros((panels, WARPS, LANES, REGISTERS), np.uint32)
    whole[..., : of_thread.shape[-1]] = of_thread.transpose(2, 0, 1, 3)
    return whole


def _completion(entry: CCommand | CInstruction, words: NDArray[np.uint32], registers: int) -> Completion:
    """Return cycle numbers and results of an instruction. `words` has the shape (panels, warps, words per panel)."""
    panels, warps = words.shape[:2]
    d, flags = warp_results(words, registers)
    d = d.transpose(1, 2, 0, 3).reshape(warps * LANES, panels * registers)
    return Completion(entry.taken, entry.done, d, flags.reshape(panels, warps * ROWS, CHUNKS))
