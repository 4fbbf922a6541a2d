"""Execute calls of functions of the CUDA runtime: ``vprintf`` (``printf``) and ``__assertfail`` (``assert``).

Source: CUDA C++ Programming Guide, "Formatted Output" and "Assertion". Functions that a module defines are replaced
inline by the parser.
"""

import re

import numpy as np

from .machine import Builder, Machine, Mask, Step, not_modelled
from .memory import UNSIGNED
from .program import Instruction

__all__ = ["call_step"]

#: Maximum number of bytes of a string.
_MOST_BYTES = 1 << 16
#: A conversion in a format string. Its groups are flags, width and precision; the length; and the type, such as ``d``.
_CONVERSION = re.compile(r"%([-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?)(hh|h|ll|l|j|z|t)?([diouxXcsfFeEgGaAp%])")


def call_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes a call. Its operands are the name of the function, and the parameters."""
    functions: dict[str, tuple[Builder, int]] = {"vprintf": (_print, 2), "__assertfail": (_fail, 5)}
    name = getattr(ins.operands[0], "name", "")
    builder, parameters = functions.get(name, (None, 0))
    if builder is None:
        raise not_modelled(ins, f"the module does not define the function '{name}'")
    if [getattr(operand, "name", None) in machine.kernel.local for operand in ins.operands[1:]] != [True] * parameters:
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
    """Print the text of each thread, in the order of threads."""

    def step(mask: Mask) -> None:
        for thread in machine.active(mask).tolist():
            address, values = (_parameter(machine, ins, index, thread) for index in (0, 1))
            form = _text(machine, ins, address, thread)
            machine.printed.append(_formatted(machine, ins, form, values, thread))

    return step


def _formatted(machine: Machine, ins: Instruction, form: str, values: int, thread: int) -> str:
    """Return the text of a format string. Its values lie at the address `values`, each aligned to its size."""
    space, place = _place(machine, ins, values, thread) if values else ("local", 0)

    def following(size: int) -> int:
        nonlocal place
        place = -(-place // size) * size + size
        return _number(machine, ins, space, place - size, size)

    def conversion(match: re.Match[str]) -> str:
        options, length, kind = match.groups()
        if kind == "%":
            return "%"
        while "*" in options:
            options = options.replace("*", str(_signed(following(4), 4)), 1)
        size = 8 if kind in "sfFeEgGaAp" or length in ("l", "ll", "j", "z", "t") else 4
        bits = following(size)
        if kind == "s":
            return f"%{options}s" % _text(machine, ins, bits, thread)
        if kind in "aA":
            return float(np.uint64(bits).view(np.float64)).hex()
        if kind in "fFeEgG":
            return f"%{options}{kind}" % np.uint64(bits).view(np.float64)
        if kind == "p":
            return f"%{options}s" % hex(bits)
        if kind == "c":
            return f"%{options}s" % chr(bits & 0xFF)
        return f"%{options}{'d' if kind == 'u' else kind}" % (_signed(bits, size) if kind in "di" else bits)

    return _CONVERSION.sub(conversion, form)


def _signed(bits: int, size: int) -> int:
    return bits - (bits >> 8 * size - 1 << 8 * size)
