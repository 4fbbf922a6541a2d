"""Execute calls of functions of the CUDA runtime: ``vprintf`` (``printf``) and ``__assertfail`` (``assert``).

Source: CUDA C++ Programming Guide, "Formatted Output" and "Assertion". Functions that a module defines are replaced
inline by the parser.
"""

import re

import numpy as np

from .machine import Builder, Machine, Step, not_modelled
from .memory import UNSIGNED
from .program import Instruction
from .registers import Mask

__all__ = ["call_step"]

#: Maximum number of bytes of a string.
_MOST_BYTES = 1 << 16
#: A conversion in a format string. Its groups are flags, width, precision, length and type, such as ``d``.
_CONVERSION = re.compile(r"%([-+ #0]*)(\d*|\*)(?:\.(\d*|\*))?(hh|h|ll|l|j|z|t)?([diouxXcsfFeEgGaAp%])")
#: Number of decimal digits from which a width or precision is ignored.
_MOST_DIGITS = 5


def call_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes a call. Its operands are the function's name, the parameters, and the result."""
    functions: dict[str, tuple[Builder, int]] = {"vprintf": (_print, 2), "__assertfail": (_fail, 5)}
    name = getattr(ins.operands[0], "name", "")
    builder, parameters = functions.get(name, (None, 0))
    if builder is None:
        raise not_modelled(ins, f"the module does not define the function '{name}'")
    variables = [getattr(operand, "name", "") in machine.kernel.local for operand in ins.operands[1:]]
    if not all(variables) or len(variables) not in (parameters, parameters + 1):
        raise not_modelled(ins, f"{name} needs {parameters} parameters in '.param'")
    return builder(machine, ins)


def _parameter(machine: Machine, ins: Instruction, index: int, thread: int) -> int:
    """Return the pointer or number that a thread passes to a function."""
    start, size = machine.kernel.local[getattr(ins.operands[1 + index], "name", "")]
    return _number(machine, ins, "local", thread * machine.kernel.local_bytes + start, size)


def _number(machine: Machine, ins: Instruction, space: str, place: int, size: int) -> int:
    """Return the integer of `size` bytes at an offset in the memory of a state space."""
    octets = machine.views[space][1][place : place + size]
    if len(octets) != size or size not in UNSIGNED:
        raise machine.fault(ins, "an argument of the function is not inside memory")
    return int(octets.view(UNSIGNED[size])[0])


def _text(machine: Machine, ins: Instruction, address: int, thread: int) -> str:
    """Return the null-terminated text at a generic address."""
    space, place = _place(machine, ins, address, thread)
    return machine.views[space][1][place : place + _MOST_BYTES].tobytes().partition(b"\0")[0].decode(errors="replace")


def _place(machine: Machine, ins: Instruction, address: int, thread: int) -> tuple[str, int]:
    mask = machine.thread_numbers == thread
    space, places = machine.resolve(np.full(machine.count, address), "generic", ins, mask)
    return space, int(machine.every(places)[thread])


def _fail(machine: Machine, ins: Instruction) -> Step:
    def step(mask: Mask) -> None:
        thread = int(machine.active(mask)[0])
        message, file, function = (
            _text(machine, ins, _parameter(machine, ins, index, thread), thread) for index in (0, 1, 3)
        )
        line = _parameter(machine, ins, 2, thread)
        raise machine.fault(ins, f"the assertion '{message}' fails ({file}:{line}, {function})", thread)

    return step


def _print(machine: Machine, ins: Instruction) -> Step:
    """Print the text of each thread, in the order of threads. The result is the number of printed arguments."""
    result = machine.kernel.local[getattr(ins.operands[3], "name", "")][0] if len(ins.operands) > 3 else None

    def step(mask: Mask) -> None:
        for thread in machine.active(mask).tolist():
            address, values = (_parameter(machine, ins, index, thread) for index in (0, 1))
            text, count = _formatted(machine, ins, _text(machine, ins, address, thread), values, thread)
            machine.printed.append(text)
            if result is not None:
                machine.views["local"][4][(thread * machine.kernel.local_bytes + result) // 4] = count

    return step


def _formatted(machine: Machine, ins: Instruction, form: str, values: int, thread: int) -> tuple[str, int]:
    """Return the text of a format string, and the number of values.

    The values lie at the address `values`, each aligned to its size.
    """
    space, place = _place(machine, ins, values, thread) if values else ("local", 0)
    count = 0

    def following(size: int) -> int:
        nonlocal place, count
        place, count = -(-place // size) * size + size, count + 1
        return _number(machine, ins, space, place - size, size)

    def conversion(match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width, precision = (str(_signed(following(4), 4)) if part == "*" else part for part in (width, precision))
        if width.startswith("-"):
            flags, width = f"{flags}-", width[1:]
        size = 8 if kind in "sfFeEgGaAp" or length in ("l", "ll", "j", "z", "t") else 4
        bits = following(size)
        size = {"hh": 1, "h": 2}.get(length, size)
        options = flags + (width if len(width) < _MOST_DIGITS else "")
        if precision is not None and not precision.startswith("-") and len(precision) < _MOST_DIGITS:
            options += f".{precision or 0}"
        return _converted(machine, ins, kind, options, bits, size, thread)

    return _CONVERSION.sub(conversion, form), count


def _converted(machine: Machine, ins: Instruction, kind: str, options: str, bits: int, size: int, thread: int) -> str:
    """Return the text of one value of `size` bytes, as the C function ``printf`` does."""
    if kind in "fFeEgGaA":
        value = float(np.uint64(bits).view(np.float64))
        if kind in "aA":
            text = float.hex(value)
            return f"%{options}s" % (text.upper() if kind == "A" else text)
        return f"%{options if np.isfinite(value) else options.replace('0', ' ', options.startswith('0'))}{kind}" % value
    bits &= (1 << 8 * size) - 1
    if kind in "di":
        return f"%{options}d" % _signed(bits, size)
    if kind in "uoxX":
        options = options.replace("+", "").replace(" ", "")
        if "#" in options and (kind == "o" or not bits):
            options = options.replace("#", "")
            return f"%{options}s" % f"0{bits:o}" if kind == "o" and bits else f"%{options}d" % bits
        return f"%{options}{'d' if kind == 'u' else kind}" % bits
    if kind == "s":
        return f"%{options}s" % _text(machine, ins, bits, thread)
    return f"%{options}s" % (hex(bits) if kind == "p" else chr(bits & 0xFF))


def _signed(bits: int, size: int) -> int:
    return bits - (bits >> 8 * size - 1 << 8 * size)
