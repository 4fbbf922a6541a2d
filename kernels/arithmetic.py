"""Execute integer, logic, move and floating-point instructions of single threads.

Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Data Movement and Conversion
Instructions" and "Floating Point Instructions".
"""

import operator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from . import integers
from .float_arithmetic import APPROXIMATE, approximate_step, float_step
from .machine import Builder, Machine, Step, not_modelled
from .memory import GLOBAL_BASE, LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, UNSIGNED
from .operation import Function, operation, source_count
from .program import Instruction, Special, Vector, items_of, size_of
from .registers import Mask
from .values import numpy_type

__all__ = ["ARITHMETIC"]

#: Special registers that count cycles or nanoseconds.
_CLOCKS = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")
_INTEGERS = {*(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64)), "u16x2", "s16x2"}
#: Instructions that have the type ``pred``.
_LOGIC = ("and", "or", "xor", "not")
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64")

_INTEGER: dict[str, Function] = {
    **integers.COMBINATIONS,
    "sub": operator.sub,
    "not": operator.invert,
    "neg": operator.neg,
    "abs": np.abs,
    "div": integers.divided,
    "rem": integers.remainder,
    "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
    "clz": integers.leading_zeros,
    "brev": integers.reversed_bits,
    "cnot": lambda a: (a == 0).astype(a.dtype),
    "sad": lambda a, b, c: np.where(a > b, a - b, b - a) + c,
}
#: Qualifiers that integer instructions may have.
_KNOWN = {"lo", "hi", "wide"}
#: Instructions that read the carry flag of the thread.
_CARRIED = ("addc", "subc", "madc")
#: Key: qualifier that only some integer instructions may have. Value: these instructions.
_FURTHER = {"cc": ("add", "sub", "mad", *_CARRIED), "shiftamt": ("bfind",)}
#: Types of instructions that accept only integers of 32 and 64 bits.
_WORDS = ("u32", "s32", "u64", "s64")


def _integer(machine: Machine, ins: Instruction) -> Step:
    name, *qualifiers = ins.words
    type_ = qualifiers[-1]
    if type_ in _FLOATS:
        return float_step(machine, ins)
    if type_ not in _INTEGERS and (type_, name in _LOGIC) != ("pred", True):
        raise not_modelled(ins)
    if unknown := [word for word in qualifiers[:-1] if word not in _KNOWN and name not in _FURTHER.get(word, ())]:
        raise not_modelled(ins, f"the qualifier '.{unknown[0]}' is not supported")
    if name in _CARRIED or "cc" in qualifiers:
        return _with_carry(machine, ins, type_)
    if name in ("mul", "mad"):
        return _product(machine, ins, type_)
    if name in ("mul24", "mad24"):
        return _product_of_24_bits(machine, ins, type_)
    if name == "bfind":
        if type_ not in _WORDS:
            raise not_modelled(ins)
        distance = "shiftamt" in qualifiers
        return operation(machine, ins, lambda a: integers.highest_bit(a, distance=distance), [type_], "u32")
    if type_.endswith("x2"):
        return _halfwords(machine, ins, type_)
    result = "u32" if name in ("popc", "clz") else type_
    return operation(machine, ins, _INTEGER[name], [type_] * source_count(ins), result)


def _halfwords(machine: Machine, ins: Instruction, type_: str) -> Step:
    """Execute packed ``add``, ``min`` and ``max``: each register holds two 16-bit integers."""
    name, *qualifiers = ins.words
    if name not in ("add", "min", "max") or len(qualifiers) > 1:
        raise not_modelled(ins)
    element = f"<{'i' if type_ == 's16x2' else 'u'}2"

    def combine(*words: NDArray) -> NDArray[np.uint32]:
        halves = (np.ascontiguousarray(word).view(element) for word in np.broadcast_arrays(*words))
        return _INTEGER[name](*halves).view(np.uint32)

    return operation(machine, ins, combine, ["b32", "b32"], "b32")


def _with_carry(machine: Machine, ins: Instruction, type_: str) -> Step:
    """Execute an addition or subtraction that reads or writes the carry flag, the bit ``CC.CF`` of each thread."""
    name, bits, dtype = ins.words[0], f"u{8 * size_of(type_)}", UNSIGNED[size_of(type_)]
    carry = machine.unit("carry", lambda machine: np.zeros(machine.count, np.bool_))
    write, *reads = machine.writer(ins.operands[0], bits), *(machine.reader(item, type_) for item in ins.operands[1:])
    product = integers.high_product if "hi" in ins.words else operator.mul
    parts = [word for word in ins.words[1:-1] if word != "cc"]
    count, allowed = (3, [["lo"], ["hi"]]) if name.startswith("mad") else (2, [[]])
    if len(reads) != count or parts not in allowed or type_ not in _WORDS:
        raise not_modelled(ins)

    def step(mask: Mask) -> None:
        *factors, b = (machine.every(read()) for read in reads)
        a = product(*factors) if len(factors) > 1 else factors[0]
        # As measured on an H200, a - b is a + ~b + 1, and the flag is the carry of this sum: true without a borrow.
        subtracts = name.startswith("sub")
        before = carry if name in _CARRIED else np.full(1, subtracts)
        b = b.view(dtype)
        total, after = integers.sum_and_carry(a.view(dtype), ~b if subtracts else b, before)
        write(mask, total)
        if "cc" in ins.words:
            np.copyto(carry, after, where=np.True_ if mask is None else mask)

    return step


def _product(machine: Machine, ins: Instruction, type_: str) -> Step:
    words, add = ins.words, ins.words[0] == "mad"
    result, product = type_, integers.high_product if "hi" in words else operator.mul
    if "wide" in words:
        if size_of(type_) > 4:
            raise not_modelled(ins)
        result, product = f"{type_[0]}{16 * size_of(type_)}", integers.wide_product
    if add:
        return operation(machine, ins, lambda a, b, c: product(a, b) + c, [type_, type_, result], result)
    return operation(machine, ins, product, [type_, type_], result)


def _product_of_24_bits(machine: Machine, ins: Instruction, type_: str) -> Step:
    """Execute ``mul24`` and ``mad24``, which multiply the low 24 bits of their operands to a product of 48 bits."""
    if type_ not in ("u32", "s32") or ins.words[1:-1] not in (["lo"], ["hi"]):
        raise not_modelled(ins)
    shift, places = np.dtype(numpy_type(type_)).type(8), 16 if "hi" in ins.words else 0

    def product(a: NDArray, b: NDArray) -> NDArray:
        whole = integers.wide_product(a << shift >> shift, b << shift >> shift)
        return (whole >> whole.dtype.type(places)).astype(a.dtype)

    function: Function = product if ins.words[0] == "mul24" else lambda a, b, c: product(a, b) + c
    return operation(machine, ins, function, [type_] * source_count(ins), type_)


#: For each opcode: the function that computes results, and the type of each source operand as a letter. Letter t is
#: the type in the opcode; u and p are u32 and pred.
_FORMS: dict[str, tuple[Function, str]] = {
    "shl": (integers.shift_left, "tu"), "shr": (integers.shift_right, "tu"), "lop3": (integers.lookup, "tttu"),
    "bfe": (integers.extracted, "tuu"), "bfi": (integers.inserted, "ttuu"), "selp": (integers.selected, "ttp"),
    "copysign": (lambda a, b: np.copysign(b, a), "tt"),
}  # fmt: skip


def _mixed(machine: Machine, ins: Instruction) -> Step:
    """Execute shifts, bit-field instructions, logic by a table (``lop3``) and selections."""
    words = ins.words
    types = {"t": words[-1], "u": "u32", "p": "pred"}
    if words[0] == "copysign" and words[1:] not in (["f32"], ["f64"]):
        raise not_modelled(ins)
    shift = words[0] == "shf"
    function, letters = (integers.funnel("l" in words, "clamp" in words), "uuu") if shift else _FORMS[words[0]]
    return operation(machine, ins, function, [types[letter] for letter in letters], "b32" if shift else words[-1])


def _permute(machine: Machine, ins: Instruction) -> Step:
    """Execute ``prmt``. With a mode, the two low bits of the last operand choose one of four lists of selectors."""
    _, type_, *modes = ins.words
    if type_ != "b32" or (modes and (len(modes) > 1 or modes[0] not in integers.PERMUTATIONS)):
        raise not_modelled(ins)
    lists = integers.PERMUTATIONS[modes[0]] if modes else None

    def permute(a: NDArray, b: NDArray, select: NDArray) -> NDArray:
        return integers.permuted(a, b, select if lists is None else lists[select & np.uint32(3)])

    return operation(machine, ins, permute, ["b32", "b32", "u32"], "b32")


def _bit_field(machine: Machine, ins: Instruction) -> Step:
    """Execute ``bmsk`` and ``szext``, whose operands above 32 are clamped or wrap."""
    name, mode, type_ = ins.words
    function, first = (integers.bit_mask, "u32") if name == "bmsk" else (integers.extended, type_)
    if mode not in ("clamp", "wrap") or type_ not in (("b32",) if name == "bmsk" else ("u32", "s32")):
        raise not_modelled(ins)
    return operation(machine, ins, partial(function, clamp=mode == "clamp"), [first, "u32"], type_)


def _dot_product(machine: Machine, ins: Instruction) -> Step:
    """Execute ``dp4a``, and ``dp2a`` with the low or high half of operand b."""
    *words, a_type, b_type = ins.words
    high = None if words[0] == "dp4a" else "hi" in words
    total = "s32" if "s32" in (a_type, b_type) else "u32"
    return operation(machine, ins, integers.dot_product(a_type, b_type, high), ["b32", "b32", total], total)


def _move(machine: Machine, ins: Instruction) -> Step:
    type_ = ins.words[-1]
    destination, source = ins.operands
    if type_ == "b128":
        if [*map(len, map(items_of, (destination, source)))] != [2, 2]:
            raise not_modelled(ins)
        halves = [machine.reader(item, "b64") for item in items_of(source)]
        both = [machine.writer(item, "b64") for item in items_of(destination)]
        return lambda mask: [write(mask, value) for write, value in zip(both, [half() for half in halves], strict=True)]
    if isinstance(source, Special) and source.name in _CLOCKS:
        return _clock(machine, ins, source.name)
    packs = [len(operand.items) for operand in (destination, source) if isinstance(operand, Vector)]
    if len(packs) > 1 or any(not parts or size_of(type_) % parts for parts in packs):
        raise not_modelled(ins)
    if isinstance(destination, Vector):
        part = size_of(type_) // len(destination.items)
        read = machine.reader(source, f"b{8 * size_of(type_)}")
        writes = [machine.writer(item, f"b{8 * part}") for item in destination.items]

        def unpack(mask: Mask) -> None:
            parts = np.ascontiguousarray(read()).view(f"<u{part}").reshape(-1, len(writes))
            for place, write in enumerate(writes):
                write(mask, np.ascontiguousarray(parts[:, place]))

        return unpack
    if isinstance(source, Vector):
        part = size_of(type_) // len(source.items)
        reads = [machine.reader(item, f"b{8 * part}") for item in source.items]
        write_whole = machine.writer(destination, type_)
        whole = f"<u{size_of(type_)}"

        def pack(mask: Mask) -> None:
            parts = np.stack(np.broadcast_arrays(*(read() for read in reads)), -1)
            write_whole(mask, np.ascontiguousarray(parts).view(whole)[:, 0])

        return pack
    return operation(machine, ins, lambda a: a, [type_], type_)


def _clock(machine: Machine, ins: Instruction, name: str) -> Step:
    """Read a clock: the number of thread instructions that the launch has executed. A GPU counts cycles or time."""
    if not machine.launch.approximate:
        raise not_modelled(ins, APPROXIMATE)
    type_, shift = ins.words[-1], 32 if name.endswith("_hi") else 0
    write, dtype = machine.writer(ins.operands[0], type_), UNSIGNED[size_of(type_)]

    def step(mask: Mask) -> None:
        machine.exact = False
        write(mask, np.array([machine.work.thread_instructions >> shift]).astype(dtype))

    return step


def _to_generic(machine: Machine, ins: Instruction) -> Step:
    """Execute ``cvta``: convert addresses of a state space to generic addresses, or in the other direction."""
    words = ins.words
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}
    start = next((window[word.split("::")[0]] for word in words if word.split("::")[0] in window), 0)
    add = np.uint64((-start if "to" in words else start) % (1 << 64))
    return operation(machine, ins, lambda a: a + add, [words[-1]], words[-1])


def _in_space(machine: Machine, ins: Instruction) -> Step:
    """Execute ``isspacep``: tell whether a generic address lies in a state space."""
    space = ".".join(ins.words[1:])
    if space in ("shared", "shared::cta") and machine.launch.cluster_size == 1:
        space = "shared::cluster"
    windows = {"shared::cluster": [SHARED_WINDOW], "local": [LOCAL_WINDOW], "param": [PARAMETER_WINDOW],
               "global": [PARAMETER_WINDOW, GLOBAL_BASE]}  # fmt: skip
    if space not in windows:
        raise not_modelled(ins)

    def inside(address: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return np.logical_or.reduce([(address >= start) & (address < 2 * start) for start in windows[space]])

    return operation(machine, ins, inside, ["u64"], "pred")


ARITHMETIC: dict[str, Builder] = {
    **dict.fromkeys((*_INTEGER, *_CARRIED, "mul", "mad", "mul24", "mad24", "bfind"), _integer),
    **dict.fromkeys(("dp2a", "dp4a"), _dot_product),
    **dict.fromkeys((*_FORMS, "shf"), _mixed),
    **dict.fromkeys(("bmsk", "szext"), _bit_field),
    "prmt": _permute,
    **dict.fromkeys(("fma", "sqrt", "rcp"), float_step),
    **dict.fromkeys(("ex2", "lg2", "rsqrt", "sin", "cos", "tanh"), approximate_step),
    "mov": _move,
    "cvta": _to_generic,
    "isspacep": _in_space,
}
