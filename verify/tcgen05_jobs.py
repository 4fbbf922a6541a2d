"""Random programs for the tensor cores of a CTA: sequences of instructions of all kinds on random bits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.tcgen05 import placement_of, tcgen05_mma
from ..isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from ..isa.memory import encode_descriptor
from ..isa.tcgen05 import Opcode, every_opcode, instructions_of
from ..isa.tensor_memory import COLUMNS, LANES
from ..operands.shared_memory import gather_shared
from ..operands.tensor_memory import Placement, gather_tensor
from ..rtl.config import WARP_COLUMNS, CoreConfig
from ..rtl.fetch import CORE_MATRICES, UNIT_BITS
from ..rtl.tcgen05 import tcgen05_layout
from ..sim.benches.tcgen05_items import CtaPanel, CtaTask, CtaWork, columns_from, joined_words, units_of
from ..sim.engine.echo import EchoBackend
from ..sim.engine.tcgen05_commands import COMMIT, CtaCommand, cta_command
from ..sim.engine.tcgen05_work import CtaProgram

__all__ = ["CtaInstruction", "echoing_program", "random_instruction", "random_memories", "random_work"]

#: Columns of tensor memory: D in the lower ones, all other operands in the upper ones, equal in all four partitions.
_D_COLUMNS, _OPERAND_COLUMNS = 256, 256
_SHARED_BYTES = 1 << 18
_OPERANDS, _SCALES = ("a", "b", "d", "e"), ("scale_a", "scale_b")
_SWIZZLES = ["none", "32B", "64B", "128B"]
#: Panels of A over all rows, and shared-memory reads of each; columns of A, and of the block scales of 128 rows.
_A_PANELS, _A_READS, _A_COLUMNS, _SCALE_COLUMNS = LANES // 8, 2, 8, 4
#: Panels of B whose block scales share a column.
_SCALED_PANELS = 4


@dataclass(frozen=True, eq=False)
class CtaInstruction:
    """An instruction with its arguments, in the forms of the front door and of the hardware.

    Attributes
    ----------
    opcode : Opcode
        Opcode.
    descriptor : InstructionDescriptor
        Decoded instruction descriptor.
    arguments : dict
        Arguments of :func:`sptc.tcgen05_mma`, except the memories.
    command : CtaCommand
        Command for the hardware.
    """

    opcode: Opcode
    descriptor: InstructionDescriptor
    arguments: dict[str, Any]
    command: CtaCommand

    @property
    def placement(self) -> Placement:
        """Places of the operands in each CTA."""
        operands = {name: self.arguments[name] for name in _OPERANDS if name in self.arguments}
        scales = {name: self.arguments.get(name) for name in _SCALES}
        return placement_of(self.opcode, self.descriptor, operands, scales, None)

    def run(
        self, tensor: NDArray[np.uint32], shared: NDArray[np.uint8], backend: str | Backend = "golden"
    ) -> NDArray[np.uint32]:
        """Return tensor memory after the instruction; memories as for :func:`sptc.tcgen05_mma`."""
        return tcgen05_mma(**self.arguments, tmem=tensor, smem=shared, backend=backend, metadata="silicon")


def random_memories(ctas: int, rng: np.random.Generator) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return random tensor memory, shape (CTAs, 128, 512), and shared memory, shape (CTAs, 2**18)."""
    tensor = rng.integers(0, 1 << 32, (ctas, LANES, COLUMNS), dtype=np.uint32)
    tensor[:, :, _OPERAND_COLUMNS:] = np.tile(tensor[:, :32, _OPERAND_COLUMNS:], (1, 4, 1))
    return tensor, rng.integers(0, 256, (ctas, _SHARED_BYTES), dtype=np.uint8)


def random_instruction(
    config: CoreConfig, opcode: Opcode, rng: np.random.Generator, widest: int = 128
) -> CtaInstruction:
    """Return a random instruction that a datapath executes, with operands at random places.

    Parameters
    ----------
    config : CoreConfig
        Datapath.
    opcode : Opcode
        Opcode without ``.ws``.
    rng : Generator
        Draws types, shape, places and flags.
    widest : int
        Most columns of D.
    """
    rows = LANES * opcode.cta_group
    all_of_them = [i for i in instructions_of(opcode) if i.m == rows and i.n <= widest]
    i = all_of_them[int(rng.integers(len(all_of_them)))]
    in_tensor = bool(rng.integers(2)) and not i.a.bits < i.container_bits == 8
    flags = {name: bool(rng.integers(2)) for name in ("negate_a", "negate_b") if not i.a.is_integer}
    moves = ("transpose_b",) if in_tensor else ("transpose_a", "transpose_b")
    flags |= {name: bool(rng.integers(2)) for name in moves if i.container_bits == 16}
    ids = [int(rng.choice(range(0, 4, i.scale_size))) if i.scale_size else 0 for _ in "ab"]
    selector = int(rng.integers(i.sparsity_selectors)) if opcode.sparse else 0
    descriptor = InstructionDescriptor(
        instruction=i, sparsity_selector=selector, scale_id_a=ids[0], scale_id_b=ids[1], **flags
    )

    def in_shared() -> int:
        start, leading, stride = (16 * int(value) for value in rng.integers(0, 512, 3))
        swizzle, base_offset = str(rng.choice(_SWIZZLES)), int(rng.integers(8))
        return encode_descriptor(start, leading, stride, swizzle, base_offset=base_offset, family="tcgen05")

    columns = (_OPERAND_COLUMNS + 2 * rng.integers(0, 120, 4)).tolist()
    arguments: dict[str, Any] = {
        "instruction": str(opcode),
        "idesc": encode_instruction_descriptor(opcode, descriptor),
        "d": 8 * int(rng.integers(0, (_D_COLUMNS - i.n) // 8 + 1)),
        "a": columns[0] if in_tensor else in_shared(),
        "b": in_shared(),
        "enable_input_d": bool(rng.integers(4)),
    }
    arguments |= {"e": columns[1]} if opcode.sparse else {}
    arguments |= {"scale_a": columns[2], "scale_b": columns[3]} if i.scale_size else {}
    operands = {name: arguments[name] for name in (*_OPERANDS, *_SCALES) if name in arguments}
    command = cta_command(config, opcode, descriptor, operands, enable_input_d=arguments["enable_input_d"])
    assert command is not None, i
    return CtaInstruction(opcode, descriptor, arguments, command)


def random_work(
    config: CoreConfig, opcodes: list[Opcode], instructions: int, rng: np.random.Generator, widest: int = 64
) -> CtaWork:
    """Return random work of one CTA; a part of the instructions runs on a pair with another CTA.

    Parameters
    ----------
    config : CoreConfig
        Datapath of an array.
    opcodes : list of Opcode
        Opcodes to draw from.
    instructions : int
        Number of instructions. Commits follow some of them, at times many in a row; the last task is a commit.
    rng : Generator
        Source of randomness.
    widest : int
        Most columns of an instruction.
    """
    (before, shared), which = random_memories(2, rng), int(rng.integers(2))
    tensor, tasks = before, []
    for _ in range(instructions):
        instruction = random_instruction(config, opcodes[int(rng.integers(len(opcodes)))], rng, widest)
        after = tensor.copy()
        if instruction.opcode.cta_group == 2:
            after[:] = instruction.run(tensor, shared)
        else:
            after[which] = instruction.run(tensor[which], shared[which])
        tasks.append(_task(instruction, which, after[which], before[which], shared[1 - which]))
        tensor = after
        if rng.random() < 0.6:
            tasks += [_commit()] * (12 if rng.random() < 0.2 else 1)
    return CtaWork(before[which], units_of(shared[which].tobytes()), [*tasks, _commit()])


def echoing_program(config: CoreConfig, instructions: int, rng: np.random.Generator, widest: int = 32) -> CtaProgram:
    """Return random work of a pair of CTAs, alone and together, with the results of arrays that echo their operands.

    Parameters
    ----------
    config : CoreConfig
        Datapath of an array.
    instructions : int
        Number of instructions. Commits follow some of them, at times many in a row; the last command is a commit.
    rng : Generator
        Source of randomness.
    widest : int
        Most columns of an instruction.
    """
    opcodes = [opcode for opcode in every_opcode() if not opcode.weight_stationary]
    tmem, smem = random_memories(2, rng)
    expected, commands, flags = tmem, [], []
    for _ in range(instructions):
        instruction = random_instruction(config, opcodes[int(rng.integers(len(opcodes)))], rng, widest)
        pair, echo = instruction.opcode.cta_group == 2, EchoBackend(config)
        if pair:
            expected = instruction.run(expected, smem, echo)
        else:
            expected = np.stack([instruction.run(*memories, echo) for memories in zip(expected, smem, strict=True)])
        beside = np.concatenate(echo.flags)
        count = beside.shape[1]
        order = [place // 2 + place % 2 * (count // 2) if pair else place for place in range(count)]
        flags.append(beside[:, order])
        commands.append(instruction.command)
        if rng.random() < 0.6:
            commands += [COMMIT] * (12 if rng.random() < 0.2 else 1)
    return CtaProgram([*commands, COMMIT], tmem, smem, expected, np.concatenate(flags, axis=1))


def _commit() -> CtaTask:
    return CtaTask("commit", _payload(COMMIT.fields), [])


def _payload(fields: dict[str, Any]) -> int:
    return int(tcgen05_layout().const(fields).as_value().value)


def _task(
    instruction: CtaInstruction,
    which: int,
    after: NDArray[np.uint32],
    before: NDArray[np.uint32],
    others: NDArray[np.uint8],
) -> CtaTask:
    """Return the task of one CTA, `which` of a pair, for an instruction after which its tensor memory is `after`."""
    i, pair = instruction.descriptor.instruction, instruction.opcode.cta_group == 2
    fields = instruction.command.fields | {"odd": which}
    half, count = i.d.bits == 16, i.n // WARP_COLUMNS
    illegal = _illegal(instruction, before)
    others_b = _panels_of_b(instruction, others) if pair else []
    panels = []
    for place in range(count):
        number = place // 2 + place % 2 * (count // 2) if pair else place
        column = instruction.arguments["d"] + number * WARP_COLUMNS
        words = after[:, columns_from(column)] & np.uint32(0xFFFF if half else 0xFFFFFFFF)
        other = others_b[place // 2] if pair and place % 2 != which else None
        panels.append(CtaPanel(column, half, joined_words(words), illegal, pair, other))
    in_tensor = not fields["a_shared"]
    reads = count // instruction.opcode.cta_group * (CORE_MATRICES if i.sparse else CORE_MATRICES // 2)
    columns = (2 if i.container_bits < 16 else 1) * bool(i.sparse) + in_tensor * _A_COLUMNS
    columns += _SCALE_COLUMNS + -(-count // _SCALED_PANELS) if i.scale_size else 0
    name = f"{instruction.opcode} ({i.shape_and_types})"
    return CtaTask(name, _payload(fields), panels, reads + (0 if in_tensor else _A_PANELS * _A_READS), columns)


def _illegal(instruction: CtaInstruction, tensor: NDArray[np.uint32]) -> int:
    """Return the flags of undefined metadata of all rows as one integer, 16 bits for each row."""
    rule, where = instruction.descriptor.instruction.rule, instruction.placement.e
    if rule is None or where is None:
        return 0
    flags = ~np.isin(gather_tensor(tensor[None], where)[0], sorted(rule.legal))
    return sum(1 << 16 * int(row) + int(chunk) for row, chunk in np.argwhere(flags))


def _panels_of_b(instruction: CtaInstruction, shared: NDArray[np.uint8]) -> list[int]:
    """Return the panels of B that a CTA of a pair sends to its peer: rows of 64 bytes, as stored."""
    i = instruction.descriptor.instruction
    bits = i.b.container_bits
    per_unit = i.padded_unit(i.b) or UNIT_BITS // bits
    rows = [
        sum(int(code) << k // per_unit * UNIT_BITS + k % per_unit * bits for k, code in enumerate(row))
        for row in gather_shared(shared[None], instruction.placement.b)[0]
    ]
    width = CORE_MATRICES * UNIT_BITS
    return [
        sum(row << width * number for number, row in enumerate(rows[first : first + WARP_COLUMNS]))
        for first in range(0, len(rows), WARP_COLUMNS)
    ]
