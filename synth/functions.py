"""Logic functions of library cells: expressions in liberty syntax, compiled to Python functions."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import and_, or_, xor
from typing import Any

__all__ = ["Computing", "computing"]

#: Compiled logic function. Its arguments are the values of the pins and, for constants and inversion, a value in which
#: all bits are 1.
Computing = Callable[[Mapping[str, Any], Any], Any]

#: Maximum number of operands, operators and parentheses in an expression. Expressions of real libraries have fewer than
#: 100.
_MOST_TOKENS = 400
_TOKEN = re.compile(r"\s*(\w+|[()!'^&*|+])")
#: Precedence and Python operation of each operator between two operands. An operator of higher precedence binds first.
_OPERATORS = {"+": (0, or_), "|": (0, or_), "&": (1, and_), "*": (1, and_), "^": (2, xor)}


@cache
def computing(function: str) -> Computing:
    """Compile a logic function in liberty syntax to a Python function on single bits or on words of bits.

    Operators, highest precedence first: ``!`` and ``'`` (not); ``^`` (xor); ``&``, ``*`` or a space (and); ``+`` or
    ``|`` (or). The compiled function takes a mapping from pins to values with ``&``, ``|`` and ``^``, and a value with
    all bits one; the compiled function raises a KeyError for a pin without a value. Raise a ValueError if the text is
    not such an expression, or is longer than that of any real cell.
    """
    tokens, place = [], 0
    function = function.strip()
    while place < len(function):
        match = _TOKEN.match(function, place)
        if not match:
            raise ValueError(function)
        tokens.append(match[1])
        place = match.end()
    if len(tokens) > _MOST_TOKENS:
        raise ValueError(f"the logic function has {len(tokens)} operands and operators, more than {_MOST_TOKENS}")
    result, rest = _expression(tokens)
    if rest:
        raise ValueError(function)
    return result


def _both(operation: Callable[[Any, Any], Any], a: Computing, b: Computing) -> Computing:
    return lambda values, one: operation(a(values, one), b(values, one))


def _inverse(a: Computing) -> Computing:
    return lambda values, one: a(values, one) ^ one


def _leaf(word: str) -> Computing:
    constants: dict[str, Computing] = {"0": lambda values, one: one ^ one, "1": lambda values, one: one}
    return constants.get(word, lambda values, one: values[word])


def _expression(tokens: list[str], least: int = 0) -> tuple[Computing, list[str]]:
    """Compile operands that are joined by operators of precedence `least` or more; also return the remaining tokens."""
    result, tokens = _factor(tokens)
    while tokens and tokens[0] != ")":
        precedence, operation = _OPERATORS.get(tokens[0], _OPERATORS["*"])  # adjacent operands are ANDed
        if precedence < least:
            break
        other, tokens = _expression(tokens[1:] if tokens[0] in _OPERATORS else tokens, precedence + 1)
        result = _both(operation, result, other)
    return result, tokens


def _factor(tokens: list[str]) -> tuple[Computing, list[str]]:
    if not tokens:
        raise ValueError("the logic function ends where an operand must follow")
    first, tokens = tokens[0], tokens[1:]
    if first == "!":
        result, tokens = _factor(tokens)
        return _inverse(result), tokens
    if first == "(":
        result, tokens = _expression(tokens)
        if not tokens or tokens[0] != ")":
            raise ValueError("the logic function has a parenthesis that is not closed")
        tokens = tokens[1:]
    else:
        result = _leaf(first)
    while tokens and tokens[0] == "'":
        result, tokens = _inverse(result), tokens[1:]
    return result, tokens
