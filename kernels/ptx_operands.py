"""Operands in PTX text: registers, constants, vectors and addresses."""

import re
import struct
from collections.abc import Callable

from ..errors import KernelError
from .program import Address, Immediate, Negated, Operand, Pair, Register, Sink, Special, Symbol, Vector

__all__ = ["NamedOperand", "parse_constant", "parse_operand", "split"]

#: Operand that a declared name stands for.
NamedOperand = Register | Vector | Symbol
_OPEN, _CLOSE = "{[(", "}])"


def split(text: str) -> list[str]:
    """Split a list of operands at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


_FLOAT = re.compile(r"[+-]?\d+\.\d*(?:[eE][+-]?\d+)?")


def parse_constant(text: str) -> Immediate | None:
    """Parse a constant in PTX text. Return None if the text is not a constant."""
    if bits := re.fullmatch(r"(-?)0([fFdD])([0-9a-fA-F]+)", text):
        width = 32 if bits[2] in "fF" else 64
        if len(bits[3]) == width // 4:
            return Immediate(int(bits[3], 16) ^ (bool(bits[1]) << width - 1), f"f{width}")
    if _FLOAT.fullmatch(text):
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), "f64")
    number = re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?", text)
    if not number:
        return None
    digits = number[2].lower()
    value = int(digits, 8) if re.fullmatch(r"0[0-7]+", digits) else int(digits, 0)
    if value >= 1 << 64:
        raise KernelError(f"the constant {text[:40]} has more than 64 bits")
    return Immediate(-value if number[1] else value)


_NAME = r"[%$\w]+(?:\.[xyzw])?"
_ADDRESS = re.compile(rf"({_NAME}|-?\w+)\s*(?:([+-])\s*(-?\w+))?")


def parse_operand(text: str, find: Callable[[str], NamedOperand | None]) -> Operand:
    """Parse an operand. `find` returns what a declared name stands for, or None."""
    if text.startswith("["):
        first, *more = (split(text[1:-1]) or [""]) if text.endswith("]") else (text,)
        match = _ADDRESS.fullmatch(first)
        offset = parse_constant(match[3] or "0") if match else None
        if not match or offset is None or offset.value >= 1 << 31:
            raise KernelError(f"'{first[:60]}' is not an address")
        signed = -offset.value if match[2] == "-" else offset.value
        return Address(_scalar(match[1], find), signed, tuple(_vector(part, find) for part in more))
    if text.startswith("!"):
        return Negated(_scalar(text[1:].strip(), find))
    if "|" in text:
        first, _, second = text.partition("|")
        return Pair(_scalar(first.strip(), find), _scalar(second.strip(), find))
    return _vector(text, find)


def _vector(text: str, find: Callable[[str], NamedOperand | None]) -> Operand:
    if text.startswith("{") and text.endswith("}"):
        return Vector(tuple(_scalar(part, find) for part in split(text[1:-1])))
    return _scalar(text, find)


def _scalar(text: str, find: Callable[[str], NamedOperand | None]) -> Operand:
    if text == "_":
        return Sink()
    if constant := parse_constant(text):
        return constant
    if register := find(text):
        return register
    if text == "WARP_SZ":
        return Immediate(32)
    if not re.fullmatch(_NAME, text):
        raise KernelError(f"'{' '.join(text.split())[:60]}' is not an operand")
    return Special(text) if text.startswith("%") else Symbol(text)
