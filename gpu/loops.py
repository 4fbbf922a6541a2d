"""PTX text of kernels that execute an instruction repeatedly and count cycles.

The warps of a CTA, on one SM, repeat the instruction on their own accumulators. Operands are inputs of the kernel, or
zeros in shared memory and small numbers in registers, since values do not affect the cycles. Further warps may run
another instruction until the first warps are done. Each warp writes its elapsed cycles of the SM clock and its
iterations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..isa.memory import SWIZZLES, UNIT_BYTES, encode_descriptor
from .ptx import VERSION, group, indented, target

__all__ = ["ENTRY", "WORDS", "Loop", "given_words", "kernel"]

ENTRY = "count_cycles"
#: Number of 64-bit words that each warp writes: its cycle count and its iteration count.
WORDS = 2
#: Metadata word whose nibbles are all defined under every metadata rule.
_LEGAL = "0x44444444"
#: Alignment in bytes of operands in shared memory: the size of the largest swizzle pattern.
_PATTERN_BYTES = 1024
_LANES = 32


@dataclass(frozen=True)
class Loop:
    """A loop of instructions that some warps of an SM execute."""

    instruction: Instruction  #: Instruction that the loop repeats, of family ``mma`` or ``wgmma``
    warps: int  #: Number of warps that execute the loop (``wgmma``: four warps per warpgroup)
    accumulators: int = 1  #: Number of independent accumulators of a warp, used in turn
    #: ``mma``: number of sets of A and B registers that a warp uses in turn. Hardware may cache a set that is used
    #: repeatedly.
    operands: int = 1
    #: Number of instructions per iteration (``wgmma``: per commit group). If the number is 0, the warps sleep.
    group: int = 8
    pending: int = 1  #: ``wgmma``: number of commit groups in flight while the next group is issued
    a_from: str = "registers"  #: Location of operand A: ``"registers"`` or ``"shared"``
    #: Swizzle of operands in shared memory, a key of :data:`~sptc.isa.memory.SWIZZLES`.
    swizzle: str = "128B"
    #: ``wgmma``: whether A, and whether B, is MN-major in shared memory.
    transposed: tuple[int, int] = (0, 0)
    #: ``mma``: whether each operand is computed again, with an add instruction, before each ``mma``. Otherwise the
    #: assembler would convert the operands of an emulated instruction only once for all iterations.
    fresh: bool = False
    given: bool = False  #: Whether the kernel gets its operands as input (:func:`given_words`)
    negated: bool = False  #: ``wgmma``: whether every second instruction negates A


def given_words(loop: Loop) -> tuple[int, int]:
    """Return sizes of a loop's operands in 32-bit words: in shared memory, and in the registers of one thread.

    The registers are those of A and B of every set of operands, and metadata. Each register is stored for all threads
    before the next.
    """
    i = loop.instruction
    of_a, of_b = a_fragment(i).registers, b_fragment(i).registers if i.family == "mma" else 0
    registers = (of_a if i.family == "mma" or loop.a_from == "registers" else 0) + of_b
    return _size([loop]) // 4, loop.operands * registers + bool(i.sparse)


def kernel(loops: Sequence[Loop], arch: str) -> str:
    """Return a PTX module with entry :data:`ENTRY`, in which each of the given loops runs on separate warps.

    The first loop runs for the given number of iterations, the others until the first is done. The parameters of the
    entry: the address where each warp writes :data:`WORDS` 64-bit numbers, the address where each thread writes a word,
    the iterations of the first loop, and if operands are given, the address of the operands.

    Source: PTX ISA 9.7.14 (mma), 9.7.15 (wgmma: fences, commit and wait).
    """
    images = [_Image(loop) for loop in loops]
    warps, parts = 0, []
    for number, (loop, image) in enumerate(zip(loops, images, strict=True)):
        warps += loop.warps
        if number < len(loops) - 1:
            parts += [f"setp.ge.u32 %beyond, %warp, {warps};", f"@%beyond bra next{number};"]
        parts += ["{", *_loop(loop, image, until_done=number > 0), "}", "bra done;", f"next{number}:"]
    threads, size = _LANES * warps, _size(loops)
    has_operands = any(loop.given for loop in loops)
    assert not has_operands or len(loops) == 1, "only a single loop can have given operands"
    further = ", .param .u64 given" if has_operands else ""
    return f"""\
.version {VERSION}
.target {target(arch)}
.address_size 64
.shared .align {_PATTERN_BYTES} .b8 image[{size}];
.shared .align 4 .b32 finished;
.visible .entry {ENTRY}(.param .u64 cycles, .param .u64 results, .param .u32 times{further})
  .maxntid {threads}
{{
  .reg .pred %beyond, %more, %yes;
  .reg .b32 %thread, %warp, %lane, %times, %round, %offset, %flag, %word, %unknown, %first;
  .reg .b64 %address, %wide, %begin, %end, %start, %own;
{indented([*_prologue(threads, size, has_operands), *parts, *_EPILOGUE])}
}}
"""


def _size(loops: Sequence[Loop]) -> int:
    """Return the size of a kernel's shared memory in bytes."""
    return max(4 * _LANES * sum(loop.warps for loop in loops), *(_Image(loop).size for loop in loops))


def _prologue(threads: int, size: int, given: bool) -> Iterator[str]:
    """Yield code that fills shared memory, and computes warp index and operand address (in 16-byte units)."""
    yield "mov.u32 %thread, %tid.x;"
    yield "and.b32 %lane, %thread, 31;"
    yield "shr.u32 %warp, %thread, 5;"
    yield "shfl.sync.idx.b32 %warp, %warp, 0, 31, -1;"
    yield "ld.param.u32 %times, [times];"
    yield "mov.u32 %round, 0;"
    yield "mov.u32 %word, 0;"
    yield "setp.eq.u32 %yes, %word, 0;"
    yield "st.volatile.shared.b32 [finished], %word;"
    yield "mov.u32 %first, image;"
    yield "shl.b32 %offset, %thread, 2;"
    if given:
        yield "ld.param.u64 %address, [given];"
    yield "clear:"
    yield "add.u32 %unknown, %first, %offset;"
    if given:
        yield "cvt.u64.u32 %wide, %offset;"
        yield "add.u64 %wide, %address, %wide;"
        yield "ld.global.b32 %word, [%wide];"
    yield "st.shared.b32 [%unknown], %word;"
    yield f"add.u32 %offset, %offset, {4 * threads};"
    yield f"setp.lt.u32 %more, %offset, {size - 3};"
    yield "@%more bra clear;"
    if given:
        yield "mul.wide.u32 %wide, %thread, 4;"
        yield "add.u64 %own, %address, %wide;"
        yield f"add.u64 %own, %own, {size};"
        yield "mov.u32 %word, 0;"
    yield "shr.u32 %first, %first, 4;"
    yield "cvt.u64.u32 %start, %first;"
    yield "bar.sync 0;"
    yield "ld.volatile.shared.b32 %unknown, [finished];"


#: Code at the end of a kernel. Each thread writes a combination of its results, so that the assembler cannot remove the
#: instructions. Each warp writes its cycle and iteration counts.
_EPILOGUE = (
    "done:",
    "ld.param.u64 %address, [results];",
    "mul.wide.u32 %wide, %thread, 4;",
    "add.u64 %address, %address, %wide;",
    "st.global.b32 [%address], %word;",
    "setp.ne.u32 %beyond, %lane, 0;",
    "@%beyond bra leave;",
    "ld.param.u64 %address, [cycles];",
    f"mul.wide.u32 %wide, %warp, {8 * WORDS};",
    "add.u64 %address, %address, %wide;",
    "sub.u64 %end, %end, %begin;",
    "st.global.b64 [%address], %end;",
    "cvt.u64.u32 %wide, %round;",
    "st.global.b64 [%address+8], %wide;",
    "leave:",
    "ret;",
)


class _Image:
    """Layout of a loop's operands in shared memory: A, if A is there, then B, each in whole swizzle patterns."""

    def __init__(self, loop: Loop) -> None:
        self.descriptors: dict[str, int] = {}
        self.size = 0
        if loop.instruction.family != "wgmma":
            return
        i, swizzle = loop.instruction, SWIZZLES[loop.swizzle]
        sizes, atom = {"a": (i.m, i.stored_k), "b": (i.n, i.k)}, swizzle.row_bytes * swizzle.pattern_rows
        for name, transposed in zip(sizes, loop.transposed, strict=True):
            if name == "b" or loop.a_from == "shared":
                mn, k = sizes[name]
                inner, outer = k * i.container_bits // 8, mn
                if transposed:  # only 16-bit elements can be MN-major
                    inner, outer = 2 * mn, k
                down, across = -(-outer // swizzle.pattern_rows), -(-inner // swizzle.row_bytes)
                stride, leading = (atom, atom * down) if across > 1 else (atom, UNIT_BYTES)
                if transposed and swizzle.units == 1:
                    stride, leading = leading, stride
                self.descriptors[name] = encode_descriptor(self.size, leading, stride, loop.swizzle)
                self.size += -(-atom * down * across // _PATTERN_BYTES) * _PATTERN_BYTES


def _loop(loop: Loop, image: _Image, *, until_done: bool) -> Iterator[str]:
    """Yield the code of a loop, which reads the clock before its first and after its last instruction."""
    wgmma = loop.instruction.family == "wgmma"
    count = accumulator_fragment(loop.instruction).registers
    yield "bar.sync 0;"
    for number in range(loop.accumulators):
        yield from _zeros(f"d{number}_", count)
    yield from _wgmma_operands(loop, image) if wgmma else _mma_operands(loop)
    yield "mov.u64 %begin, %clock64;"
    yield "round:"
    if not loop.group:
        yield "nanosleep.u32 1000;"
    if wgmma:
        yield "wgmma.fence.sync.aligned;"
    for number in range(loop.group):
        if loop.fresh:
            yield from _anew(loop, number)
        yield _wgmma(loop, number) if wgmma else _mma(loop, number)
    if wgmma:
        yield "wgmma.commit_group.sync.aligned;"
        yield f"wgmma.wait_group.sync.aligned {loop.pending};"
    yield "add.u32 %round, %round, 1;"
    if until_done:
        yield "ld.volatile.shared.b32 %flag, [finished];"
        yield "setp.eq.u32 %more, %flag, 0;"
    else:
        yield "setp.lt.u32 %more, %round, %times;"
    yield "@%more bra round;"
    if wgmma:
        yield "wgmma.wait_group.sync.aligned 0;"
    yield from (f"xor.b32 %word, %word, %d{number}_{r};" for number in range(loop.accumulators) for r in range(count))
    yield "mov.u64 %end, %clock64;"
    yield "mov.u32 %flag, 1;"
    yield "st.volatile.shared.b32 [finished], %flag;"


def _zeros(name: str, count: int) -> Iterator[str]:
    yield f".reg .b32 %{name}<{count}>;"
    yield from (f"mov.b32 %{name}{index}, 0;" for index in range(count))


def _operand(loop: Loop, name: str, count: int, first: int) -> Iterator[str]:
    """Yield code that loads an operand, or fills its registers with small numbers that the assembler cannot predict.

    If the assembler knew the numbers, it could merge equal operands or remove zeros.
    """
    yield f".reg .b32 %{name}<{count}>;"
    for number in range(first, first + count):
        register = f"%{name}{number - first}"
        yield _loaded(loop, register, number) if loop.given else f"add.u32 {register}, %unknown, {number};"


def _loaded(loop: Loop, register: str, number: int) -> str:
    return f"ld.global.b32 {register}, [%own+{4 * _LANES * loop.warps * number}];"


def _metadata(loop: Loop, number: int) -> Iterator[str]:
    if loop.instruction.sparse:
        yield ".reg .b32 %e;"
        yield _loaded(loop, "%e", number) if loop.given else f"add.u32 %e, %unknown, {_LEGAL};"


def _mma_operands(loop: Loop) -> Iterator[str]:
    first = 0
    for number in range(loop.operands):
        for name, fragment in (("a", a_fragment), ("b", b_fragment)):
            count = fragment(loop.instruction).registers
            yield from _operand(loop, f"{name}{number}_", count, first)
            first += count
    yield from _metadata(loop, first)


def _wgmma_operands(loop: Loop, image: _Image) -> Iterator[str]:
    for name, descriptor in image.descriptors.items():
        yield f".reg .b64 %descriptor_{name};"
        yield f"add.u64 %descriptor_{name}, %start, {descriptor};"
    a_registers = a_fragment(loop.instruction).registers if loop.a_from == "registers" else 0
    if a_registers:
        yield from _operand(loop, "a", a_registers, 0)
    yield from _metadata(loop, a_registers)
    yield "fence.proxy.async;"


def _mma(loop: Loop, number: int) -> str:
    i = loop.instruction
    d = group(f"d{number % loop.accumulators}_", accumulator_fragment(i).registers)
    operand_set = number % loop.operands
    a, b = group(f"a{operand_set}_", a_fragment(i).registers), group(f"b{operand_set}_", b_fragment(i).registers)
    return f"{i} {', '.join([d, a, b, d, *(['%e', '0x0'] if i.sparse else [])])};"


def _anew(loop: Loop, number: int) -> Iterator[str]:
    """Yield code that adds a zero, which is unknown to the assembler, to each operand register of an instruction."""
    i, operand_set = loop.instruction, number % loop.operands
    names = [f"a{operand_set}_{index}" for index in range(a_fragment(i).registers)]
    names += [f"b{operand_set}_{index}" for index in range(b_fragment(i).registers)]
    yield from (f"add.u32 %{name}, %{name}, %unknown;" for name in [*names, *(["e"] if i.sparse else [])])


def _wgmma(loop: Loop, number: int) -> str:
    i = loop.instruction
    in_registers = loop.a_from == "registers"
    a = group("a", a_fragment(i).registers) if in_registers else "%descriptor_a"
    words = [group(f"d{number % loop.accumulators}_", accumulator_fragment(i).registers), a, "%descriptor_b"]
    words += ["%e", "0x0"] if i.sparse else []
    sign = "-1" if loop.negated and number % 2 else "1"
    words += ["%yes"] if i.a.is_integer else ["%yes", sign, "1"]
    if i.container_bits == 16:
        words += [str(t) for t in loop.transposed[in_registers:]]
    return f"{i} {', '.join(words)};"
