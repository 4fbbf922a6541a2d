"""Random PTX kernels whose threads diverge and meet again, for a comparison of the interpreter with a GPU.

A kernel mixes arithmetic, predicates, branches, loops, memory accesses, atomics, instructions of warps, barriers and
``mma``. PTX defines all its results: no thread reads what another may still write, and no shuffle reads an absent lane.
Instructions are left out where the compiler decides which bits a NaN result has (``neg`` and ``abs`` of floats, f64
arithmetic with several operands, conversions between f16 values), and conversions to tf32, whose low bits are not
defined.

CUDA driver 580 compiles about one in a hundred of these kernels for sm_90 to code whose results depend on the level of
optimisation, or that does not end. ``record_opcodes.py`` leaves out such kernels. To keep them few, no loop has four
iterations, no register of D of an ``mma`` is an operand, and f16 results are not stored as bytes. ``testp`` and ``set``
with a result of f32 have no guard predicate, since the driver compiles each to two instructions and guards only one.
This module needs only numpy, so that it also runs on a machine with a GPU but without this package.
"""

import random
import re
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from kernel_opcodes import OPCODES, SPECIAL
from numpy.typing import NDArray

#: Number of CTAs of a launch, number of threads per CTA, and number of recorded kernels, whose seeds count from 0.
GRID, BLOCK, KERNELS = 2, 64, 2000
#: For each letter of a register type: number of registers, and PTX type.
REGISTERS = {"r": (12, "b32"), "f": (8, "f32"), "q": (6, "b64"), "d": (4, "f64"), "h": (8, "b16"), "p": (6, "pred")}
#: Bytes per thread: operands, results, and private memory (as much in each of global, shared and local memory).
SOURCE, TARGET, PRIVATE = 208, 432, 64
#: Number of statements of a kernel, and largest depth of branches and loops.
_STATEMENTS, _DEPTH = 90, 4
_FLOAT = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
#: Register with the mask of all lanes, and constants of 32 bits: limits of types and of shift counts.
_ALL = "%all"
_CONSTANTS = (0, 1, 2, 3, 5, 7, 15, 31, 32, 33, 63, 255, -1, -2, 65535, 0x7FFFFFFF, 0x80000000)


def _rounded(opcode: str) -> str:
    """Return an opcode with ``.rn``, so that the compiler does not combine a product and a sum to an ``fma``."""
    name, *words = opcode.split(".")
    exact = name in ("add", "sub", "mul") and words[-1] in _FLOAT and not {"rz", "rm", "rp"} & {*words}
    return ".".join([name, "rn", *words]) if exact else opcode


#: Operand types and opcode of each instruction, as in `OPCODES`.
_INSTRUCTIONS = [
    (types, _rounded(opcode)) for types, opcodes in OPCODES.items() for opcode in opcodes.split()
    if types not in ("d dd", "d ddd", "h h") and "tf32" not in opcode and "sync" not in opcode and
    not (opcode.startswith(("neg", "abs")) and opcode.split(".")[-1] in _FLOAT)
]  # fmt: skip
_REDUCTIONS = ("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32")
_ATOMICS = ("add.u32", "min.s32", "exch.b32", "inc.u32", "dec.u32", "xor.b32", "add.f32", "add.noftz.f16x2",
            "add.noftz.bf16x2", "add.u64", "exch.b64", "min.s64", "max.u64")  # fmt: skip
#: Opcode of each tensor-core instruction, letter of D and C, and registers of D (and C), A and B. The sparse
#: instructions have metadata as a further operand.
_MMA = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "f", 4, 4, 2),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "r", 2, 4, 2),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "f", 4, 4, 2),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "f", 4, 4, 2),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", "r", 4, 4, 2),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "f", 4, 4, 4),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32", "f", 4, 4, 4),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u8.s8.s32", "r", 4, 4, 4),
)


class _Kernel:
    """Text of a kernel that is being written. Register `members` has the mask of the threads that run the next line."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.left, self.depth, self.labels = _STATEMENTS, 0, 0
        self.members: str | None = _ALL

    def one(self, letter: str) -> str:
        """Return the name of a random register of the type that a letter denotes."""
        return f"%{letter}{self.random.randrange(REGISTERS[letter][0])}"

    def several(self, letter: str, count: int) -> list[str]:
        """Return different random registers of a type."""
        return [f"%{letter}{number}" for number in self.random.sample(range(REGISTERS[letter][0]), count)]

    def filled(self, template: str) -> str:
        """Replace ``<a|b>`` in a template by a or b, ``%r`` by a random register of type r, # by a constant, / by |."""
        text = re.sub(r"<([^<>]*)>", lambda match: self.random.choice(match[1].split("|")), template)
        text = re.sub(r"%([rfqdhp])(?!\w)", lambda match: self.one(match[1]), text)
        constants = (*_CONSTANTS, self.random.getrandbits(32))
        return re.sub("#", lambda match: str(self.random.choice(constants)), text).replace("/", "|")

    def write(self, *templates: str, guard: bool = False) -> None:
        """Append one statement per template. With `guard`, one statement in eight gets a random guard predicate."""
        for template in templates:
            guarded = guard and self.random.random() < 0.12
            self.lines.append(self.filled(f"@<|!>%p {template}" if guarded else template))

    # Statements

    def arithmetic(self) -> None:
        """Write an arithmetic instruction whose operands are different registers."""
        types, opcode = self.random.choice(_INSTRUCTIONS)
        result, letters = types.split()
        operands: list[str] = []
        for letter in dict.fromkeys(letters):
            count = letters.count(letter)
            if letter == "b":
                self.write(*(f"and.b32 %t{place}, %r, 255;" for place in range(count)))
            operands += [f"%t{place}" for place in range(count)] if letter == "b" else self.several(letter, count)
        if letters in ("rr", "rrr") and "16" not in opcode and self.random.random() < 0.3:
            operands[1] = "#"
        kind = opcode.split(".")[-1]
        if opcode.startswith(("div", "rem")) and kind not in _FLOAT:
            divisor = {"16": "%t16", "32": "%t9", "64": "%t64"}[kind[1:]]
            self.write(f"or.b{kind[1:]} {divisor}, {operands[1]}, 1;")
            operands[1] = divisor
        is_guarded = not opcode.startswith("testp") and (result, opcode[:4]) != ("f", "set.")
        self.write(f"{opcode} %{result}, {', '.join(operands)};", guard=is_guarded)

    def carry(self) -> None:
        """Write additions and subtractions, in any order, that pass on the carry flag."""
        low, middle, high = self.several("r", 3)
        self.write(f"<add|sub>.cc.u32 {low}, %r, %r;", f"<add|sub>c.cc.u32 {middle}, %r, %r;",
                   f"<add|sub>c.u32 {high}, %r, %r;")  # fmt: skip

    def selection(self) -> None:
        """Write an instruction that compares, selects or moves values."""
        (one, two), (low, high) = self.several("p", 2), self.several("h", 2)
        self.write(self.random.choice([
            f"setp.<lt|le|gt|ne>.<and|or|xor>.s32 {one}/{two}, %r, %r, <|!>%p;",
            f"setp.<lt|ltu|geu|nan>.<and|or|xor>.f32 {one}, %f, %f, <|!>%p;",
            "selp.b32 %r, %r, #, %p;", f"lop3.b32 %r, %r, %r, %r, {self.random.randrange(256)};",
            f"mov.b32 {{{low}, {high}}}, %r;", "mov.b32 %r, {%h, %h};", "mov.b32 %f, %r;", "mov.b32 %r, %f;",
            "mov.b64 %q, {%r, %r};", "mov.b64 %d, %q;", "<and|or|xor>.pred %p, %p, %p;", "not.pred %p, %p;",
        ]), guard=True)  # fmt: skip

    def memory(self) -> None:
        """Write a load, store or copy in the thread's private memory; the offset is a constant or in a register."""
        if self.random.random() < 0.1:
            size = self.random.choice([4, 8, 16])
            to, start = (size * self.random.randrange(PRIVATE // size) for _ in range(2))
            wait, label = self.random.randrange(3), self.labels
            self.labels += 1
            self.write(f"cp.async.ca.shared.global [%shared+{to}], [%global+{start}], {size};", (
                "cp.async.wait_all;", "cp.async.mbarrier.arrive.noinc.shared.b64 [%mbar];",
                "cp.async.mbarrier.arrive.shared.b64 [%mbar]; mbarrier.arrive.shared.b64 _, [%mbar];",
            )[wait])  # fmt: skip
            if wait:
                self.write(f"WAIT{label}: mbarrier.try_wait.parity.shared.b64 %again, [%mbar], %phase;",
                           f"@!%again bra WAIT{label};", "xor.b32 %phase, %phase, 1;")  # fmt: skip
            return
        space = self.random.choice(["shared", "local", "global"])
        letter, type_, count = self.random.choice([
            ("r", "u8", 1), ("r", "s8", 1), ("r", "s16", 1), ("r", "b32", 1), ("r", "b32", 4), ("h", "u16", 1),
            ("h", "u16", 4), ("q", "b64", 1), ("q", "u64", 2), ("f", "f32", 2), ("d", "f64", 1),
        ])  # fmt: skip
        size, names = int(type_[1:]) // 8 * count, self.several(letter, count)
        registers, vector = (f"{{{', '.join(names)}}}", f".v{count}") if count > 1 else (names[0], "")
        address = f"[%{space}+{self.random.randrange(PRIVATE // size) * size}]"
        if size == 4 and self.random.random() < 0.5:
            width = 64 if space == "global" else 32
            address = f"[%a{width}]"
            self.write(f"and.b32 %t5, %r, {PRIVATE - size};", f"cvt.u{width}.u32 %a{width}, %t5;",
                       f"add.u{width} %a{width}, %a{width}, %{space};")  # fmt: skip
        elif space != "global" and self.random.random() < 0.2:
            self.write(f"cvt.u64.u32 %a64, %{space};", f"cvta.{space}.u64 %a64, %a64;",
                       f"isspacep.<shared|local|global> {self.one('p')}, %a64;")  # fmt: skip
            space, address = "", address.replace(f"%{space}", "%a64")
        space = space and f".{space}"
        load = f"ld{space}{vector}.{type_} {registers}, {address};"
        store = f"st{space}{vector}.{type_.replace('s', 'u')} {address}, {registers};"
        self.write(self.random.choice([load, store]), guard=True)

    def atomic(self) -> None:
        """Write a reduction into counters of all threads, or an atomic update of the thread's private memory."""
        space = self.random.choice(["shared", "global"])
        if self.random.random() < 0.5:
            number = self.random.randrange(len(_REDUCTIONS))
            counter = f"{'%' if space == 'global' else ''}counters+{4 * number}"
            self.write(f"red.{space}.{_REDUCTIONS[number]} [{counter}], %r;", guard=True)
            return
        operation = self.random.choice(_ATOMICS)
        letter = "q" if operation.endswith("64") else "f" if operation == "add.f32" else "r"
        size = 8 if letter == "q" else 4
        address = f"[%{space}+{size * self.random.randrange(PRIVATE // size)}]"
        self.write(f"atom.{space}.{operation} %{letter}, {address}, %{letter};", guard=True)
        if letter == "r":
            self.write(f"atom.{space}.cas.b32 %r, {address}, %r, %r;", guard=True)

    def exchange(self) -> None:
        """Write an exchange of values between the threads of the member mask. ``shfl`` is only used by whole warps."""
        mode, width = self.random.choice(["up", "down", "bfly", "idx"]), self.random.choice([8, 16, 32])
        control = (0 if mode == "up" else 31) | 32 - width << 8
        shuffle = f"shfl.sync.{mode}.b32 %r/%p, %r, <%r|{self.random.randrange(32)}>, {control}"
        others = ["vote.sync.ballot.b32 %r, <|!>%p", "vote.sync.<any|all|uni>.pred %p, <|!>%p",
                  "redux.sync.<add|min|max>.<s32|u32> %r, %r", "redux.sync.<and|or|xor>.b32 %r, %r",
                  "match.any.sync.b32 %r, %r", "match.all.sync.b64 %r/%p, %q"]  # fmt: skip
        text = self.random.choice(others + [shuffle] * (4 if self.members == _ALL else 0))
        self.write(f"{text}, {self.members};")

    def branch(self) -> None:
        """Write a branch that divides the threads of the member mask. A ballot gives the masks of both sides."""
        label, members = self.labels, self.members
        self.labels += 1
        yes, no = f"%yes{label}", f"%no{label}"
        self.write(f"and.pred %c{label}, %p, %p;", f"vote.sync.ballot.b32 {yes}, %c{label}, {members};",
                   f"not.b32 {no}, {yes}; and.b32 {no}, {no}, {members};", f"@!%c{label} bra ELSE{label};")  # fmt: skip
        self.inside(yes)
        self.write(f"bra END{label};", f"ELSE{label}:")
        if self.random.random() < 0.6:
            self.inside(no)
        self.write(f"END{label}:")
        if self.random.random() < 0.5:
            self.write(f"bar.warp.sync {members};")

    def switch(self) -> None:
        """Write a branch with three targets, which an index in a register selects."""
        label, cases = self.labels, range(3)
        self.labels += 1
        targets = ", ".join(f"CASE{label}_{case}" for case in cases)
        self.write(f"TABLE{label}: .branchtargets {targets};", f"min.u32 %t5, %r, {cases[-1]};",
                   f"brx.idx %t5, TABLE{label};")  # fmt: skip
        for case in cases:
            self.write(f"CASE{label}_{case}:")
            self.inside(None)
            self.write(f"bra END{label};")
        self.write(f"END{label}:")

    def loop(self) -> None:
        """Write a loop with one to three iterations. In half of the loops, the count depends on the thread."""
        label, same = self.labels, self.random.random() < 0.5
        self.labels += 1
        count = f"%k{label}"
        number = f"mov.u32 {count}, <1|2|3>;" if same else f"and.b32 {count}, %r, 1; add.u32 {count}, {count}, 1;"
        self.write(number, f"LOOP{label}:")
        self.inside(self.members if same else None)
        if not same:
            self.write(f"@%p bra BREAK{label};")
        self.write(f"sub.u32 {count}, {count}, 1; setp.ne.u32 %again, {count}, 0;", f"@%again bra LOOP{label};",
                   f"BREAK{label}:")  # fmt: skip

    def inside(self, members: str | None) -> None:
        """Write the statements in a branch or loop. `members` masks the threads that run them (None: unknown)."""
        outside, self.members = self.members, members
        self.depth += 1
        for _ in range(self.random.randrange(2, 7)):
            self.statement()
        self.depth -= 1
        self.members = outside

    def barrier(self) -> None:
        """Write a reduction of predicates over the CTA, or an exchange of values through shared memory."""
        names = ", ".join(self.several("r", count := self.random.choice([1, 2, 4])))
        matrix = f"sync.aligned.m8n8.x{count}<|.trans>.shared.b16"
        stored, loaded = self.random.choice([
            ("st.shared.b32 [%word], %r;", "ld.shared.b32 %r, [%other];"),
            ("st.shared.v2.b32 [%words], {%r, %r};", f"ldmatrix.{matrix} {{{names}}}, [%rows];"),
            (f"stmatrix.{matrix} [%own_rows], {{{names}}};", "ld.shared.b32 %r, [%other];"),
            ("bar.red.popc.u32 %r, <0|1|15>, <|!>%p;", "bar.red.<and|or>.pred %p, 1, %p;"),
            ("movmatrix.sync.aligned.m8n8.trans.b16 %r, %r;", "movmatrix.sync.aligned.m8n8.trans.b16 %r, %r;"),
        ])  # fmt: skip
        self.write(f"bar.warp.sync {_ALL}; bar.sync 0;", stored, "bar.sync 0;", loaded)

    def tensor_core(self) -> None:
        """Write a tensor-core instruction on registers. No register of D is also a register of A, B or C."""
        opcode, letter, count, a, b = self.random.choice(_MMA)
        words = self.several("r", REGISTERS["r"][0])
        pool = self.several("f", REGISTERS["f"][0]) if letter == "f" else words
        d, c = pool[:count], pool[count : 2 * count]
        free = words if letter == "f" else words[count:]
        factors = [[self.random.choice(free) for _ in range(number)] for number in (a, b)]
        operands = ", ".join(f"{{{', '.join(names)}}}" for names in (d, *factors, c))
        metadata = f", %e<0|1>, <{'0|1' if 'k32' in opcode else '0'}>" if ".sp" in opcode else ""
        self.write(f"bar.warp.sync {_ALL};", f"{opcode} {operands}{metadata};")

    def statement(self) -> None:
        """Write one random statement of a kind that is allowed next in the kernel."""
        self.left -= 1
        deeper = self.depth < _DEPTH and self.left > 10
        choices: list[tuple[int, Callable[[], None], bool]] = [
            (40, self.arithmetic, True), (2, self.carry, True), (12, self.selection, True), (12, self.memory, True),
            (5, self.atomic, True), (10, self.exchange, self.members is not None),
            (8, self.branch, deeper and self.members is not None), (5, self.loop, deeper), (2, self.switch, deeper),
            (4, self.barrier, self.depth == 0), (5, self.tensor_core, self.depth == 0),
        ]  # fmt: skip
        allowed = [(weight, write) for weight, write, valid in choices if valid]
        self.random.choices([write for _, write in allowed], [weight for weight, _ in allowed])[0]()


def program(seed: int) -> str:
    """Return the text of the random kernel ``kernel`` of a seed. Its parameters are the arrays of :func:`buffers`."""
    kernel = _Kernel(seed)
    while kernel.left > 0:
        kernel.statement()
    first, last = [], []
    places = {"r": 0, "f": 48, "q": 80, "d": 128, "h": 160, "p": 176}
    for letter, (count, type_) in REGISTERS.items():
        size = 4 if type_ == "pred" else int(type_[1:]) // 8
        for number in range(count):
            name, place = f"%{letter}{number}", places[letter] + size * number
            if letter == "p":
                first.append(f"ld.global.b32 %t0, [%source+{place}]; and.b32 %t0, %t0, 1; setp.ne.u32 {name}, %t0, 0;")
                last.append(f"selp.b32 %t0, 1, 0, {name}; st.global.b32 [%target+{place}], %t0;")
            else:
                first.append(f"ld.global.{type_} {name}, [%source+{place}];")
                last.append(f"st.global.{type_} [%target+{place}], {name};")
    clear, word = "{%t0, %t0, %t0, %t0}", "{%t0, %t1, %t2, %t3}"
    for place in range(0, PRIVATE, 16):
        for start, space in ((SOURCE, "local"), (SOURCE + PRIVATE, "shared")):
            first.append(f"mov.b32 %t0, 0; st.{space}.v4.b32 [%{space}+{place}], {clear};")
            last.append(
                f"ld.{space}.v4.b32 {word}, [%{space}+{place}]; st.global.v4.b32 [%target+{start + place}], {word};"
            )
    end = SOURCE + 2 * PRIVATE
    declared = " ".join(f".reg .{type_} %{letter}<{count}>;" for letter, (count, type_) in REGISTERS.items())
    branches = kernel.labels + 1
    body, start, finish = "\n".join(kernel.lines), "\n".join(first), "\n".join(last)
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)
{{
{declared}
.reg .pred %again, %c<{branches}>; .reg .b32 %yes<{branches}>, %no<{branches}>, %k<{branches}>;
.reg .b32 %t<10>, %a32, %e<2>, %shared, %local, %word, %other, %words, %rows, %own_rows, %all, %thread, %number;
.reg .b32 %mbar, %phase; .reg .b16 %t16; .reg .b64 %t64, %a64, %source, %target, %global, %counters;
.shared .align 16 .b8 private[{BLOCK * PRIVATE}]; .shared .align 16 .b8 words[2048];
.shared .align 16 .b8 counters[{4 * BLOCK}]; .shared .align 8 .b64 mbars[{BLOCK}];
.local .align 16 .b8 local[{PRIVATE}];
mov.u32 {_ALL}, 0xffffffff; mov.u32 %thread, %tid.x;
mov.u32 %t0, %ctaid.x; mad.lo.u32 %number, %t0, {BLOCK}, %thread;
ld.param.u64 %source, [p0]; mad.wide.u32 %source, %number, {SOURCE}, %source;
ld.param.u64 %target, [p1]; mad.wide.u32 %target, %number, {TARGET}, %target;
ld.param.u64 %global, [p2]; mad.wide.u32 %global, %number, {PRIVATE}, %global;
ld.param.u64 %counters, [p3];
mov.u32 %mbar, mbars; mad.lo.u32 %mbar, %thread, 8, %mbar; mbarrier.init.shared.b64 [%mbar], 1; mov.u32 %phase, 0;
mov.u32 %local, local; mov.u32 %shared, private; mad.lo.u32 %shared, %thread, {PRIVATE}, %shared;
mov.u32 %word, words; mad.lo.u32 %words, %thread, 8, %word; and.b32 %t0, %thread, 31; mad.lo.u32 %rows, %t0, 16, %word;
shr.u32 %t0, %thread, 5; mad.lo.u32 %own_rows, %t0, 512, %rows;
xor.b32 %t0, %thread, 37; mad.lo.u32 %other, %t0, 4, %word; mad.lo.u32 %word, %thread, 4, %word;
{" ".join(f"st.shared.b32 [%word+{offset}], %thread;" for offset in range(0, 2048, 4 * BLOCK))}
mov.u32 %t1, counters; mad.lo.u32 %t1, %thread, 4, %t1; mov.b32 %t0, 0; st.shared.b32 [%t1], %t0;
ld.global.b32 %e0, [%source+200]; ld.global.b32 %e1, [%source+204];
{start}
bar.sync 0;
{body}
{finish}
bar.warp.sync {_ALL}; bar.sync 0;
ld.shared.b32 %t0, [%word]; st.global.b32 [%target+{end}], %t0;
mov.u32 %t1, counters; mad.lo.u32 %t1, %thread, 4, %t1; ld.shared.b32 %t0, [%t1];
st.global.b32 [%target+{end + 4}], %t0;
ret;
}}
"""


def buffers(seed: int) -> dict[str, NDArray[np.uint32]]:
    """Return the arrays of a launch: operands, results and private memory by thread, and counters of all threads.

    Half of the operands are special words or small numbers. The last two words of a row are metadata.
    """
    rng, threads = np.random.default_rng(seed), GRID * BLOCK
    source = rng.integers(0, 1 << 32, (threads, SOURCE // 4), dtype=np.uint32)
    special = np.array([int(word, 16) for word in SPECIAL.split()], np.uint32)
    chosen = rng.random(source.shape)
    source = np.where(chosen < 0.35, rng.choice(special, source.shape), source)
    source = np.where(chosen > 0.85, rng.integers(0, 64, source.shape, dtype=np.uint32), source)
    nibbles = rng.choice(np.array([4, 8, 9, 12, 13, 14], np.uint32), (threads, 2, 8))
    source[:, -2:] = (nibbles << 4 * np.arange(8, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    return {
        "source": source,
        "target": np.zeros((threads, TARGET // 4), np.uint32),
        "private": np.zeros((threads, PRIVATE // 4), np.uint32),
        "counters": np.zeros(BLOCK, np.uint32),
    }


def digest(ptx: str, results: Mapping[str, NDArray[np.uint32]]) -> int:
    """Return the CRC-32 of a kernel and of all its arrays after a run."""
    return zlib.crc32(b"".join([ptx.encode(), *(results[name].tobytes() for name in sorted(results))]))
