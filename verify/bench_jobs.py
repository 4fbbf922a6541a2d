"""Random instructions for testbenches: ``wgmma`` with operands and results, and programs of ``tcgen05.mma``."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.tcgen05 import placement_of, tcgen05_mma
from ..isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from ..isa.instructions import every_instruction
from ..isa.memory import ADDRESS_SPACE, UNIT_BYTES, SharedMap, encode_descriptor
from ..isa.tcgen05 import Opcode, every_opcode, instructions_of
from ..isa.tensor_memory import COLUMNS, LANES
from ..operands.registers import unpack_nibbles
from ..operands.shared_memory import gather_shared
from ..operands.tensor_memory import Placement, gather_tensor
from ..rtl.config import WARP_COLUMNS, WARP_ROWS, CoreConfig
from ..rtl.fetch import ADDRESS_BITS, CORE_MATRICES, PANEL_ROWS, UNIT_BITS, descriptor_layout
from ..rtl.life_cycle import Operation
from ..rtl.tcgen05 import tcgen05_layout
from ..rtl.tensor_cores import WARPS
from ..rtl.warp import FRAGMENT, REGISTERS, warp_result_layout
from ..rtl.warp import LANES as WARP_LANES
from ..rtl.warpgroup import warpgroup_layout
from ..sim.benches.items import Item, joined_words, undefined_bits, units_of
from ..sim.benches.random_operands import distributions
from ..sim.benches.tcgen05_items import CtaPanel, CtaTask, CtaWork, columns_from
from ..sim.benches.warpgroup_items import Job
from ..sim.engine.echo import EchoBackend
from ..sim.engine.ports import payload_bits
from ..sim.engine.tcgen05_commands import COMMIT, CtaCommand, CtaProgram, cta_command
from ..sim.engine.warpgroup_commands import wgmma_fields
from .register_file import RegisterFile
from .stimulus import random_register_file

__all__ = [
    "CtaInstruction",
    "Limits",
    "echoing_programs",
    "random_instruction",
    "random_memories",
    "random_warpgroup_jobs",
    "random_work",
    "warpgroup_jobs_of",
]

#: Size of shared memory and of the longest swizzle pattern, in units of 16 bytes.
_UNITS, _PATTERN_UNITS = 1 << ADDRESS_BITS, 64
#: Reciprocal of the probability that a random ``wgmma`` has more than four panels (eight columns each) of B.
_LONG_ONE_IN = 12
#: Reciprocal of the probability that the operands of a random ``wgmma`` are spread over much of shared memory.
_SPREAD_ONE_IN = 6


def warpgroup_jobs_of(file: RegisterFile, config: CoreConfig, rng: np.random.Generator, base: int) -> Iterator[Job]:
    """Yield each ``wgmma`` of a register file (``.npz``) for the top module `warpgroup`, with expected results.

    Expected results are the D of the file or, without D, results of the golden model. `rng` draws the contents of
    registers that the instruction does not read. `base` is the index of the 16-byte unit of shared memory at which the
    image of the file begins. `base` must be a multiple of 64, the length of the longest swizzle pattern.
    """
    i = file.instruction
    elements = i.n * i.k + (WARPS * WARP_ROWS * i.stored_k if file.a is None else 0)
    reads = elements * i.container_bits // 8 // (UNIT_BYTES * PANEL_ROWS)  # core matrices (8 x 16 bytes) to read
    element = config.element_code(i.a, i.container_bits)
    assert file.b_descriptor is not None
    d = file.run() if file.d is None else file.d
    e = rng.integers(0, 1 << 32, file.c.shape[:2], dtype=np.uint32) if file.e is None else file.e
    nibbles = unpack_nibbles(e, i, file.sparsity_selector) if i.rule else None
    fields = wgmma_fields(config, i, file.immediates) | {"operation": Operation.MULTIPLY}
    fields |= {"negated": True} if i.a.is_integer else {}  # integer instructions ignore the command field `negated`
    for case in range(file.cases):
        a_descriptor = rng.integers(1 << 63) if file.a_descriptor is None else file.a_descriptor[case]
        a_registers, metadata = [], []
        # For each panel (eight columns) of C and D, one integer that contains the registers of all warps.
        accumulators, results = (np.zeros(i.n // WARP_COLUMNS, object) for _ in range(2))
        for warp in range(WARPS):
            lanes, rows = (slice(size * warp, size * (warp + 1)) for size in (WARP_LANES, WARP_ROWS))
            a = rng.integers(0, 1 << 32, (WARP_LANES, REGISTERS)) if file.a is None else file.a[case, lanes]
            flags = undefined_bits(i, None if nibbles is None else nibbles[case, rows])
            flags <<= warp_result_layout()["illegal"].offset
            a_registers.append(a.tolist())
            metadata.append(e[case, lanes].tolist())
            for panel, registers in enumerate(_panels(file.c[case, lanes], i.n, rng)):
                payload = payload_bits(FRAGMENT, registers.tolist())
                accumulators[panel] += payload << FRAGMENT.size * warp
            for panel, registers in enumerate(_panels(d[case, lanes], i.n, None)):
                results[panel] += (joined_words(registers) | flags) << warp_result_layout().size * warp
        descriptors = {
            "a_descriptor": _moved(int(a_descriptor), base),
            "b_descriptor": _moved(int(file.b_descriptor[case]), base),
        }
        command = payload_bits(warpgroup_layout(), fields | descriptors | {"a": a_registers, "e": metadata})
        panels = [
            Item(f"{i}, case {case}, columns {WARP_COLUMNS * panel} to {WARP_COLUMNS * panel + 7}", *payloads, element)
            for panel, payloads in enumerate(zip(accumulators, results, strict=True))
        ]
        yield Job(command, units_of(file.b[case].tobytes()), base, reads, panels)


def random_warpgroup_jobs(config: CoreConfig, rng: np.random.Generator) -> Iterator[Job]:
    """Yield an endless sequence of random ``wgmma`` and operands, in the two halves of shared memory in turn.

    The hardware may have two instructions in flight. These instructions use different halves, so that each address
    belongs to only one instruction.
    """
    half, number = _UNITS // 2, 0
    for file in _random_files(config, rng):
        room = half - file.b.shape[1] * file.b.itemsize // UNIT_BYTES
        if room >= 0:
            base = half * (number % 2) + _PATTERN_UNITS * int(rng.integers(room // _PATTERN_UNITS + 1))
            yield from warpgroup_jobs_of(file, config, rng, base)
            number += 1


def _random_files(config: CoreConfig, rng: np.random.Generator) -> Iterator[RegisterFile]:
    """Yield single random ``wgmma`` with operands. Most have n <= 32; half use all sixteen metadata nibbles."""
    supported = [i for i in every_instruction("wgmma") if config.holds(i)]
    short, long = ([i for i in supported if (i.n > 4 * PANEL_ROWS) == is_long] for is_long in (False, True))
    while True:
        for place in rng.permutation(len(short)):
            i = short[place] if rng.integers(_LONG_ONE_IN) else long[rng.integers(len(long))]
            sparsity_selector = int(rng.integers(i.sparsity_selectors))
            yield random_register_file(
                i,
                "sm_90",
                str(rng.choice(distributions(i))),
                1,
                rng,
                sparsity_selector=sparsity_selector,
                any_nibble=bool(rng.integers(2)),
                spread=not rng.integers(_SPREAD_ONE_IN),
            )


def _moved(descriptor: int, base: int) -> Any:
    """Return a matrix descriptor with its start address moved by `base` units of 16 bytes."""
    return descriptor_layout().from_bits(descriptor // _UNITS * _UNITS | (descriptor + base) % _UNITS)


def _panels(registers: NDArray[np.uint32], n: int, rng: np.random.Generator | None) -> list[NDArray[np.uint32]]:
    """Return a warp's accumulators per eight columns of D: 32 lanes x 4 registers. Unused registers are random or 0."""
    used = registers.reshape(WARP_LANES, n // WARP_COLUMNS, -1).swapaxes(0, 1)
    shape = (len(used), WARP_LANES, REGISTERS)
    panels = np.zeros(shape, np.uint32) if rng is None else rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    panels[..., : used.shape[2]] = used
    return list(panels)


#: Number of tensor memory columns that are reserved for D: half of all columns. The other half holds other operands.
_D_COLUMNS = COLUMNS // 2
#: Number of tensor memory columns for D in programs whose successive instructions often write overlapping columns.
_OVERLAPPING_D_COLUMNS = 72
#: Upper bound, in units of 16 bytes, of start addresses and offsets in most random matrix descriptors. All operands
#: with these addresses fit into shared memory.
_NEAR_UNITS = 512
_OPERANDS, _SCALES = ("a", "b", "d", "e"), ("scale_a", "scale_b")
_SWIZZLES = ["none", "32B", "64B", "128B"]
#: Properties of A with 128 rows: number of panels (eight rows each), number of shared-memory reads per panel, number of
#: tensor memory columns that A occupies, and number of tensor memory columns that the block scales of A occupy.
_A_PANELS, _A_READS, _A_COLUMNS, _SCALE_COLUMNS = LANES // 8, 2, 8, 4
#: Number of panels (eight columns each) of B whose block scales are in the same column of tensor memory.
_SCALED_PANELS = 4


@dataclass(frozen=True, eq=False)
class CtaInstruction:
    """A ``tcgen05.mma``: its arguments for :func:`sptc.tcgen05_mma`, and the command that starts it in hardware."""

    opcode: Opcode
    descriptor: InstructionDescriptor  #: Decoded instruction descriptor
    arguments: dict[str, Any]  #: All arguments of :func:`sptc.tcgen05_mma` except the memories
    command: CtaCommand  #: Command with which the top-level module executes the instruction

    @property
    def placement(self) -> Placement:
        """Addresses of all elements of the operands in the memories of a CTA."""
        operands = {name: self.arguments[name] for name in _OPERANDS if name in self.arguments}
        scales = {name: self.arguments.get(name) for name in _SCALES}
        return placement_of(self.opcode, self.descriptor, operands, scales, None)

    def run(
        self, tensor: NDArray[np.uint32], shared: NDArray[np.uint8], backend: str | Backend = "golden"
    ) -> NDArray[np.uint32]:
        """Return tensor memory after the instruction; `tensor` and `shared` are as for :func:`sptc.tcgen05_mma`."""
        return tcgen05_mma(**self.arguments, tmem=tensor, smem=shared, backend=backend, metadata="silicon")


@dataclass(frozen=True)
class Limits:
    """Limits on the sizes and the addresses of operands of a random ``tcgen05.mma``."""

    narrowest: int = 8  #: Minimum number of columns of D
    widest: int = 128  #: Maximum number of columns of D
    d_first: int = 0  #: First column of the half of tensor memory for D, 0 or 256; other operands are in the other half
    d_columns: int = _D_COLUMNS  #: Number of tensor memory columns for D, from column `d_first` on
    in_shared: bool = False  #: Whether A must be in shared memory
    #: Whether start addresses and offsets in matrix descriptors may have any size. Otherwise all addresses and offsets
    #: are below 8 KiB, and all operands fit into shared memory.
    far: bool = False


def random_memories(
    ctas: int, rng: np.random.Generator, d_first: int = 0
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return random tensor memory, shape (CTAs, 128, 512), and shared memory, shape (CTAs, 2**18).

    `d_first` is the first column of the half of tensor memory for D. The other half has the same contents in each
    group of 32 lanes, as scales and metadata must.
    """
    tensor = rng.integers(0, 1 << 32, (ctas, LANES, COLUMNS), dtype=np.uint32)
    others = slice(_D_COLUMNS - d_first, COLUMNS - d_first)
    tensor[:, :, others] = np.tile(tensor[:, :32, others], (1, 4, 1))
    return tensor, rng.integers(0, 256, (ctas, ADDRESS_SPACE), dtype=np.uint8)


def random_instruction(
    config: CoreConfig,
    opcode: Opcode,
    rng: np.random.Generator,
    limits: Limits = Limits(),
    before: CtaInstruction | None = None,
) -> CtaInstruction:
    """Return a random ``tcgen05.mma`` that a datapath executes, with operands at random addresses.

    `opcode` must not have ``.ws``. Types, shape, addresses and flags are random. Where there is room, half of the
    instructions have a D that overlaps the D of the instruction `before`, if any, or lies beside it.
    """
    rows = LANES * opcode.cta_group
    fitting = [i for i in instructions_of(opcode) if i.m == rows and limits.narrowest <= i.n <= limits.widest]
    i = fitting[int(rng.integers(len(fitting)))]
    in_tensor = bool(rng.integers(2)) and not (limits.in_shared or i.a.bits < i.container_bits == 8)
    flags = {name: bool(rng.integers(2)) for name in ("negate_a", "negate_b") if not i.a.is_integer}
    moves = ("transpose_b",) if in_tensor else ("transpose_a", "transpose_b")
    flags |= {name: bool(rng.integers(2)) for name in moves if i.container_bits == 16}
    ids = [int(rng.choice(range(0, 4, i.scale_size))) if i.scale_size else 0 for _ in "ab"]
    selector = int(rng.integers(i.sparsity_selectors)) if opcode.sparse else 0
    descriptor = InstructionDescriptor(
        instruction=i, sparsity_selector=selector, scale_id_a=ids[0], scale_id_b=ids[1], **flags
    )

    def in_shared() -> int:
        bounds = 1 << rng.integers(1, ADDRESS_BITS + 1, 3) if limits.far else np.full(3, _NEAR_UNITS)
        units = rng.integers(0, bounds)
        start, leading, stride = (UNIT_BYTES * int(value) for value in units)
        swizzle, base_offset = str(rng.choice(_SWIZZLES)), int(rng.integers(8))
        return encode_descriptor(start, leading, stride, swizzle, base_offset=base_offset, family="tcgen05")

    columns = (_D_COLUMNS - limits.d_first + 2 * rng.integers(0, 120, 4)).tolist()
    arguments: dict[str, Any] = {
        "instruction": str(opcode),
        "idesc": encode_instruction_descriptor(opcode, descriptor),
        "d": limits.d_first + _offset_of_d(limits, i.n, rng, before),
        "a": columns[0] if in_tensor else in_shared(),
        "b": in_shared(),
        "enable_input_d": bool(rng.integers(4)),
    }
    arguments |= {"e": columns[1]} if opcode.sparse else {}
    arguments |= {"scale_a": columns[2], "scale_b": columns[3]} if i.scale_size else {}
    operands = {name: arguments[name] for name in (*_OPERANDS, *_SCALES) if name in arguments}
    command = cta_command(config, opcode, descriptor, operands, enable_input_d=arguments["enable_input_d"])
    assert command is not None, i
    if i.a.is_integer:  # integer instructions ignore the command field `negated`
        command = replace(command, fields=command.fields | {"negated": True})
    return CtaInstruction(opcode, descriptor, arguments, command)


def _offset_of_d(limits: Limits, n: int, rng: np.random.Generator, before: CtaInstruction | None) -> int:
    """Return a random first column of D in tensor memory, as an offset from `limits.d_first`. D has `n` columns."""
    last = limits.d_columns - n
    if before is not None and rng.integers(2):
        start = before.arguments["d"] - limits.d_first
        offset = start + int(rng.integers(-2 * PANEL_ROWS, before.descriptor.instruction.n + 1))
        if 0 <= offset <= last:
            return offset
    return int(rng.integers(0, last + 1))


def random_work(
    config: CoreConfig, opcodes: list[Opcode], instructions: int, rng: np.random.Generator, widest: int
) -> CtaWork:
    """Return memory contents and random ``tcgen05`` instructions of one CTA; `opcodes` may include ``cta_group::2``.

    ``tcgen05.commit`` follows some instructions, at times many in a row, and is the last task. The D of an instruction
    has at most `widest` columns.
    """
    commit = CtaTask("commit", payload_bits(tcgen05_layout(), COMMIT.fields), [])
    (before, shared), cta = random_memories(2, rng), int(rng.integers(2))
    tensor, tasks = before, []
    for _ in range(instructions):
        instruction = random_instruction(config, opcodes[int(rng.integers(len(opcodes)))], rng, Limits(widest=widest))
        after = tensor.copy()
        if instruction.opcode.cta_group == 2:
            after[:] = instruction.run(tensor, shared)
        else:
            after[cta] = instruction.run(tensor[cta], shared[cta])
        tasks.append(_task(instruction, cta, after[cta], before[cta], shared[1 - cta]))
        tensor = after
        tasks += [commit] * _commits(rng)
    return CtaWork(before[cta], units_of(shared[cta].tobytes()), [*tasks, commit])


def echoing_programs(config: CoreConfig, instructions: int, rng: np.random.Generator) -> Iterator[CtaProgram]:
    """Yield programs of a CTA pair, for hardware whose dot-product arrays output hashes of operands instead of sums.

    Four programs share the given number of instructions. Their D has at most 32 columns, and in half of the
    instructions D is among the first 72 columns, where D often overlaps the D of previous instructions. Seven
    programs with a tenth of the instructions each follow: four with block scales and more than 128 columns of D, two
    with any addresses in their matrix descriptors, and one with only D in tensor memory, at any column. Some programs
    have D in the lower half of tensor memory, and others in the upper half.
    """
    opcodes = [opcode for opcode in every_opcode() if not opcode.weight_stationary]
    scaled = [opcode for opcode in opcodes if opcode.scale_size]
    dense = [opcode for opcode in opcodes if not opcode.sparse and not opcode.scale_size]
    few = -(-instructions // 10)
    for number in range(4):
        d_first, count = _D_COLUMNS * (number % 2), instructions * (number + 1) // 4 - instructions * number // 4
        near = [
            Limits(widest=32, d_first=d_first, d_columns=columns) for columns in (_OVERLAPPING_D_COLUMNS, _D_COLUMNS)
        ]
        yield _echoing_program(config, opcodes, count, rng, near)
    for narrowest in (136, 240):
        for d_first in (0, _D_COLUMNS):
            yield _echoing_program(config, scaled, few, rng, [Limits(narrowest, _D_COLUMNS, d_first)])
        yield _echoing_program(config, opcodes, few, rng, [Limits(widest=_D_COLUMNS, d_first=_D_COLUMNS, far=True)])
    yield _echoing_program(config, dense, few, rng, [Limits(widest=32, d_columns=COLUMNS, in_shared=True)])


def _echoing_program(
    config: CoreConfig, opcodes: list[Opcode], instructions: int, rng: np.random.Generator, limits: list[Limits]
) -> CtaProgram:
    """Return random instructions of a CTA pair, and ``tcgen05.commit``; each obeys a random entry of `limits`."""
    tmem, smem = random_memories(2, rng, limits[0].d_first)
    expected, commands, flags = tmem, [], []
    before: CtaInstruction | None = None
    for _ in range(instructions):
        opcode, drawn = opcodes[int(rng.integers(len(opcodes)))], limits[int(rng.integers(len(limits)))]
        instruction = random_instruction(config, opcode, rng, drawn, before)
        while not _fits(instruction):
            instruction = random_instruction(config, opcode, rng, drawn, before)
        before = instruction
        pair, echo = instruction.opcode.cta_group == 2, EchoBackend(config)
        if pair:
            expected = instruction.run(expected, smem, echo)
        else:
            expected = np.stack([instruction.run(*memories, echo) for memories in zip(expected, smem, strict=True)])
        raised = np.concatenate(echo.flags)
        flags.append(raised[:, _panel_order(raised.shape[1], pair)])
        commands += [instruction.command, *[COMMIT] * _commits(rng)]
    return CtaProgram([*commands, COMMIT], tmem, smem, expected, np.concatenate(flags, axis=1))


def _fits(instruction: CtaInstruction) -> bool:
    """Return whether A and B, if they are in shared memory, fit into the shared memory of a CTA."""
    maps = [where for where in (instruction.placement.a, instruction.placement.b) if isinstance(where, SharedMap)]
    return all(where.first_beyond(ADDRESS_SPACE) is None for where in maps)


def _commits(rng: np.random.Generator) -> int:
    """Return a random number of ``tcgen05.commit`` after an instruction: none, one, or rarely up to twelve."""
    if rng.random() >= 0.6:
        return 0
    return int(rng.integers(2, 13)) if rng.random() < 0.25 else 1


def _panel_order(count: int, pair: bool) -> list[int]:
    """Return the panels of D (eight columns each) in order of computation; a CTA pair alternates between D's halves."""
    return [place // 2 + place % 2 * (count // 2) if pair else place for place in range(count)]


def _task(
    instruction: CtaInstruction,
    cta: int,
    after: NDArray[np.uint32],
    before: NDArray[np.uint32],
    peer_shared: NDArray[np.uint8],
) -> CtaTask:
    """Return the command of an instruction for a CTA, and the expected results; `after` is the final tensor memory."""
    i, pair = instruction.descriptor.instruction, instruction.opcode.cta_group == 2
    fields = instruction.command.fields | {"odd": cta}
    half, count = i.d.bits == 16, i.n // WARP_COLUMNS
    place_of_e = instruction.placement.e
    nibbles = None if place_of_e is None else gather_tensor(before[None], place_of_e)[0]
    illegal = undefined_bits(i, nibbles)
    peer_panels = _panels_of_b(instruction, peer_shared) if pair else []
    panels = []
    for place, number in enumerate(_panel_order(count, pair)):
        column = instruction.arguments["d"] + number * WARP_COLUMNS
        words = after[:, columns_from(column)] & np.uint32(0xFFFF if half else 0xFFFFFFFF)
        peer_panel = peer_panels[place // 2] if pair and place % 2 != cta else None
        panels.append(CtaPanel(column, half, joined_words(words), illegal, pair, peer_panel))
    in_tensor = not fields["a_shared"]
    reads = count // instruction.opcode.cta_group * (CORE_MATRICES if i.sparse else CORE_MATRICES // 2)
    columns = (2 if i.container_bits < 16 else 1) * bool(i.sparse) + in_tensor * _A_COLUMNS
    columns += _SCALE_COLUMNS + -(-count // _SCALED_PANELS) if i.scale_size else 0
    name = f"{instruction.opcode} ({i.shape_and_types})"
    return CtaTask(
        name,
        payload_bits(tcgen05_layout(), fields),
        panels,
        reads + (0 if in_tensor else _A_PANELS * _A_READS),
        columns,
    )


def _panels_of_b(instruction: CtaInstruction, shared: NDArray[np.uint8]) -> list[int]:
    """Return the panels of B that a CTA sends to its peer, as integers: eight columns of B with 64 bytes each."""
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
