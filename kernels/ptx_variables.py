"""Variables of a PTX module: limits of their state spaces, and the initial contents of global and constant memory.

Source: PTX ISA, "State Spaces" and "Variables".
"""

import re
from math import prod

import numpy as np

from ..errors import KernelError
from .program import size_of
from .ptx_operands import parse_constant
from .values import constant, numpy_type

__all__ = ["DECLARED", "VARIABLE", "check_size", "initial_content"]

#: Maximum bytes of shared variables per CTA, of local variables per thread, of parameters per kernel, and of global or
#: constant variables per module (PTX ISA, "Kernel Function Parameters"; CUDA C++ Programming Guide, "Technical
#: Specifications per Compute Capability").
_MOST_BYTES = {"shared": 227 << 10, "local": 512 << 10, "param": 32764, "global or constant": 1 << 30}
#: Pattern of the start of a declaration in global or constant memory.
VARIABLE = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)?\.(?:global|const)\b")
#: Pattern of a variable's declaration, with single spaces as separators: type, name, array sizes and initial values.
DECLARED = re.compile(
    r"(?:\.\w+ )*?(?:\.align \d+ )?(?:\.v(?P<vector>[248]) )?\.(?P<type>\w+) (?P<name>[%$\w]+)"
    r"(?P<sides>(?: ?\[\d*\])*)(?: ?= ?(?P<initial>.*?))? ?;"
)


def check_size(space: str, size: int) -> None:
    """Raise an error if a state space has more bytes than a GPU allows."""
    if size > _MOST_BYTES[space]:
        raise KernelError(f"the module declares {size} bytes of {space} memory, more than {_MOST_BYTES[space]}")


def initial_content(declared: re.Match[str]) -> bytes:
    """Return the initial content of a variable. Inner braces enclose the values of a row of an array, as in C."""
    initial, type_ = declared["initial"] or "", declared["type"]
    sides = [int(side) if side else 0 for side in re.findall(r"\[(\d*)\]", declared["sides"])]
    vector = int(declared["vector"] or 1)
    if sides == [0]:
        sides = [-(-len(re.findall(r"[^{},\s]+", initial)) // vector)]
    if vector > 1:
        sides.append(vector)
    check_size("global or constant", prod(sides) * size_of(type_))
    values = np.zeros(prod(sides), numpy_type(type_))
    place, rows = 0, list[int]()  # index of the next value; for each open brace, index at which its row ends
    for item in re.findall(r"[{}]|[^{},\s]+", initial):
        if item == "{":
            rows.append(place + prod(sides[len(rows) :]))
        elif item == "}":
            place = rows.pop() if rows else place
        else:
            number = parse_constant(item)
            if number is None or place >= (rows[-1] if rows else 1):
                raise KernelError(f"'{item}' is not modelled as an initial value of a variable")
            values[place] = constant(number, type_)[0]
            place += 1
    return values.tobytes()
