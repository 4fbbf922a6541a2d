"""Logic functions of library cells: expressions in liberty syntax, compiled to Python functions."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import and_, or_, xor
from typing import Any

__all__ = ["Computing", "computing", "evaluate"]

#: Compiled logic function. Its arguments are the values of the pins, and a value in which all bits are one.
Computing = Callable[[Mapping[str, Any], Any], Any]

#: Maximum number of operands, operators and parentheses in an expression. Expressions of real libraries have fewer than
#: 100.
_MOST_TOKENS = 500
_TOKEN = re.compile(r"\s*(\w+|[()!'^&*|+])")


def evaluate(function: str, values: Mapping[str, bool]) -> bool:
    """Evaluate a liberty function for given values of the pins, as :func:`computing` describes."""
    return computing(function)(values, True)


@cache
def computing(function: str) -> Computing:
    """Compile a liberty function to a Python function that computes it for single bits or for words of bits.

    Parameters
    ----------
    function : str
        Expression with ``!`` and ``'`` (not), ``^`` (xor), ``&``, ``*`` or a space (and), ``+`` or ``|`` (or), highest
        precedence first.

    Returns
    -------
    callable
        Function of a mapping from pins to values with ``&``, ``|`` and ``^``, and of a value with all bits one. It
        raises KeyError for a pin without a value.

    Raises
    ------
    ValueError
        The text is not such an expression, or it is longer than that of any real cell.
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
        raise ValueError(f"the function has {len(tokens)} operands and operators, more than {_MOST_TOKENS}")
    result, rest = _disjunction(tokens)
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


def _disjunction(tokens: list[str]) -> tuple[Computing, list[str]]:
    result, tokens = _conjunction(tokens)
    while tokens and tokens[0] in "+|":
        other, tokens = _conjunction(tokens[1:])
        result = _both(or_, result, other)
    return result, tokens


def _conjunction(tokens: list[str]) -> tuple[Computing, list[str]]:
    result, tokens = _difference(tokens)
    while tokens and tokens[0] not in "+|)":
        other, tokens = _difference(tokens[1:] if tokens[0] in "&*" else tokens)
        result = _both(and_, result, other)
    return result, tokens


def _difference(tokens: list[str]) -> tuple[Computing, list[str]]:
    result, tokens = _factor(tokens)
    while tokens and tokens[0] == "^":
        other, tokens = _factor(tokens[1:])
        result = _both(xor, result, other)
    return result, tokens


def _factor(tokens: list[str]) -> tuple[Computing, list[str]]:
    if not tokens:
        raise ValueError("an operand is missing")
    first, tokens = tokens[0], tokens[1:]
    if first == "!":
        result, tokens = _factor(tokens)
        return _inverse(result), tokens
    if first == "(":
        result, tokens = _disjunction(tokens)
        if not tokens or tokens[0] != ")":
            raise ValueError("a parenthesis is not closed")
        tokens = tokens[1:]
    else:
        result = _leaf(first)
    while tokens and tokens[0] == "'":
        result, tokens = _inverse(result), tokens[1:]
    return result, tokens
