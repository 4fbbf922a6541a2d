"""Checker of the order of ``wgmma`` calls: fences, multiplications, commits, waits and register accesses."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from ..errors import OperandError, OrderError, shown
from .fragments import a_fragment, accumulator_fragment
from .instructions import parse

__all__ = ["WgmmaSequence"]

#: More registers than any operand has.
_MOST_REGISTERS = 256


@dataclass(frozen=True)
class _Use:
    """Access to a register, by a thread or by a multiplication."""

    call: int
    words: str
    shape: str | None = None  # of the multiplication, if the register is its accumulator
    as_a: bool = False  # a multiplication reads the register as A


@dataclass
class _Group:
    """Registers of a group: of all multiplications that one wait finishes together."""

    registers: dict[Hashable, _Use] = field(default_factory=dict)


class WgmmaSequence:
    """Check the calls of one warpgroup in their order; raise at the first that PTX leaves undefined.

    Registers are named by any hashable values, for example ``"d0"`` or numbers. A name stands for that register in
    every thread of the warpgroup. Calls are counted from 1.

    Examples
    --------
    >>> sequence = WgmmaSequence()
    >>> sequence.write("d0", "d1", "d2", "d3")
    >>> sequence.fence()
    >>> sequence.mma_async("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", ["d0", "d1", "d2", "d3"])
    >>> sequence.commit_group()
    >>> sequence.wait_group(0)
    >>> sequence.read("d0", "d1", "d2", "d3")
    >>> sequence.end()

    Notes
    -----
    Source: PTX ISA 9.7.15.7 (fence, commit_group, wait_group). Accesses to shared memory are not checked.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._fenced = False
        self._used: dict[Hashable, _Use] = {}  # registers since the last fence
        self._open = _Group()
        self._committed: list[_Group] = []

    def read(self, *registers: Hashable) -> None:
        """Record that the threads read registers.

        Raises
        ------
        OrderError
            A multiplication that uses one of them may be unfinished.
        """
        self._access("read", registers)

    def write(self, *registers: Hashable) -> None:
        """Record that the threads write registers.

        Raises
        ------
        OrderError
            A multiplication that uses one of them may be unfinished.
        """
        self._access("written", registers)

    def fence(self) -> None:
        """Issue ``wgmma.fence``: later multiplications see all register writes before it."""
        self._calls += 1
        self._fenced = True
        self._used.clear()

    def mma_async(self, instruction: str, d: Iterable[Hashable], a: Iterable[Hashable] | None = None) -> None:
        """Issue a multiplication.

        Parameters
        ----------
        instruction : str
            PTX opcode and qualifiers of a ``wgmma``.
        d : iterable of hashable
            Accumulator registers.
        a : iterable of hashable, optional
            Registers of A; None if A is in shared memory.

        Raises
        ------
        InstructionError, OperandError
            The instruction does not parse, is not a ``wgmma``, or has another number of registers.
        OrderError
            A fence is missing.
        """
        parsed = parse(instruction)
        if parsed.family != "wgmma":
            raise OperandError(f"{parsed} is not a wgmma instruction")
        held = {"d": _registers("d", d), "a": [] if a is None else _registers("a", a)}
        counts = {"d": accumulator_fragment(parsed).registers, "a": 0 if a is None else a_fragment(parsed).registers}
        for name, registers in held.items():
            if len(set(registers)) != len(registers) or len(registers) != counts[name]:
                raise OperandError(
                    f"{name} of {parsed} must be {counts[name]} different registers, not {shown(registers)}"
                )
        if both := set(held["d"]) & set(held["a"]):
            raise OperandError(f"d and a of {parsed} share the register {shown(min(both, key=repr))}")
        self._calls += 1
        if not self._fenced:
            raise OrderError(f"call {self._calls}: the first wgmma.mma_async needs a wgmma.fence before it")
        shape = f"m{parsed.m}n{parsed.n}k{parsed.k}"
        for name, registers in held.items():
            for register in registers:
                use = self._used.get(register)
                if use and not (use.shape == shape if name == "d" else use.as_a):
                    raise OrderError(
                        f"call {self._calls}: register {shown(register)} was {use.words} in call {use.call}, "
                        "and no wgmma.fence came between"
                    )
        for name, registers in held.items():
            use = (
                _Use(self._calls, f"accumulated by {shape}", shape)
                if name == "d"
                else _Use(self._calls, "read as A", as_a=True)
            )
            for register in registers:
                self._used[register] = self._open.registers[register] = use

    def commit_group(self) -> None:
        """Issue ``wgmma.commit_group``: the multiplications since the last one become a group, which may be empty."""
        self._calls += 1
        self._committed.append(self._open)
        self._open = _Group()

    def wait_group(self, pending: int) -> None:
        """Issue ``wgmma.wait_group N`` with N = `pending`: all groups except the last N are finished.

        Raises
        ------
        OperandError
            `pending` is not an integer of 0 or more.
        """
        if isinstance(pending, bool) or not isinstance(pending, int) or pending < 0:
            raise OperandError(f"wgmma.wait_group takes a number of groups, 0 or more, not {shown(pending)}")
        self._calls += 1
        self._committed = self._committed[-pending:] if pending else []

    def end(self) -> None:
        """End the sequence.

        Raises
        ------
        OrderError
            A multiplication was never committed, or never waited for.
        """
        for groups, missing in (([self._open], "wgmma.commit_group"), (self._committed, "wgmma.wait_group")):
            calls = [use.call for group in groups for use in group.registers.values()]
            if calls:
                raise OrderError(f"the multiplication of call {min(calls)} is never finished: no {missing} follows it")

    def _access(self, words: str, registers: tuple[Hashable, ...]) -> None:
        _check_names(registers)
        self._calls += 1
        for register in registers:
            for groups, missing in (([self._open], "wgmma.commit_group"), (self._committed, "wgmma.wait_group")):
                uses = [group.registers[register] for group in groups if register in group.registers]
                if uses:
                    raise OrderError(
                        f"call {self._calls}: register {shown(register)} is {words} while the multiplication of call "
                        f"{uses[-1].call} may still use it: no {missing} came between"
                    )
            self._used[register] = _Use(self._calls, words)


def _registers(name: str, given: Iterable[Hashable]) -> list[Hashable]:
    """Return the registers of an operand, cut off above `_MOST_REGISTERS`: the iterable may be endless."""
    try:
        found = list(islice(given, _MOST_REGISTERS + 1))
    except TypeError:
        raise OperandError(f"{name} must be the names of registers, not {shown(given)}") from None
    _check_names(found)
    return found


def _check_names(registers: Iterable[object]) -> None:
    for register in registers:
        try:
            hash(register)
        except TypeError:
            raise OperandError(f"the name of a register must be hashable, not {shown(register)}") from None
