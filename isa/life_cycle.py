"""Checker of the order of ``wgmma`` calls: fences, multiplications, commits, waits, register and memory accesses."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from ..errors import OperandError, OrderError, shown
from .fragments import a_fragment, accumulator_fragment
from .names import resolve

__all__ = ["WgmmaSequence"]

#: Upper bound on the number of registers that one operand can have.
_MOST_REGISTERS = 256


@dataclass(frozen=True)
class _Use:
    """Access to a register by an instruction of a thread, or by an asynchronous ``wgmma`` multiplication."""

    call: int
    words: str
    # Role of the register: "a" if a wgmma reads A from the register, the shape of the wgmma if the wgmma accumulates in
    # the register, or empty if an instruction of a thread accesses the register
    role: str = ""


@dataclass
class _Group:
    """Registers and buffers that a commit group (multiplications up to a ``wgmma.commit_group``) accesses."""

    registers: dict[Hashable, _Use] = field(default_factory=dict)
    buffers: dict[Hashable, _Use] = field(default_factory=dict)  # shared-memory buffers that the commit group reads
    every_buffer: _Use | None = None  # last multiplication that was recorded without a buffer, and may read any

    def use(self, kind: str, name: Hashable) -> _Use | None:
        """Return the multiplication of this commit group that accesses a register or buffer, or None if none does."""
        return self.registers.get(name) if kind == "register" else self.buffers.get(name, self.every_buffer)


class WgmmaSequence:
    """Check the order of ``wgmma`` calls of one warpgroup. An access with an undefined result in PTX raises an error.

    Registers are named by any hashable values, for example ``"d0"`` or numbers. A name stands for that register in
    every thread of the warpgroup. Buffers of shared memory are also named by hashable values. Calls are counted from 1.

    Examples
    --------
    >>> sequence = WgmmaSequence()
    >>> sequence.write("d0", "d1", "d2", "d3")
    >>> sequence.write_shared("tile of A", "tile of B")
    >>> sequence.fence_proxy()
    >>> sequence.fence()
    >>> sequence.mma_async("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", ["d0", "d1", "d2", "d3"])
    >>> sequence.commit_group()
    >>> sequence.wait_group(0)
    >>> sequence.read("d0", "d1", "d2", "d3")
    >>> sequence.end()

    Notes
    -----
    Source: PTX ISA 9.7.15.7 (fence, commit_group, wait_group); "Async proxy": ``wgmma`` reads shared memory through the
    asynchronous proxy, to which writes of threads are visible only after ``fence.proxy.async``. Barriers between the
    threads that write and the warpgroup are not checked. Copies by the asynchronous proxy itself, such as those of TMA,
    need no ``fence.proxy.async`` and are not checked either.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._fenced = False
        self._used: dict[Hashable, _Use] = {}  # registers that were accessed since the last wgmma.fence
        self._unfenced: dict[Hashable, _Use] = {}  # buffers of shared memory written since the last fence.proxy.async
        self._open = _Group()
        self._committed: list[_Group] = []

    def read(self, *registers: Hashable) -> None:
        """Record that threads of the warpgroup read registers.

        Raises
        ------
        OrderError
            A multiplication that uses one of the registers may be unfinished.
        """
        self._access("register", "read", registers)

    def write(self, *registers: Hashable) -> None:
        """Record that threads of the warpgroup write registers.

        Raises
        ------
        OrderError
            A multiplication that uses one of the registers may be unfinished.
        """
        self._access("register", "written", registers)

    def write_shared(self, *buffers: Hashable) -> None:
        """Record that threads write buffers of shared memory by ``st.shared`` or other generic stores.

        Raises
        ------
        OrderError
            A multiplication that reads one of the buffers may be unfinished.
        """
        self._access("buffer", "written", buffers)

    def fence_proxy(self) -> None:
        """Issue ``fence.proxy.async``: later multiplications read the data of all earlier writes to shared memory."""
        self._calls += 1
        self._unfenced.clear()

    def fence(self) -> None:
        """Issue ``wgmma.fence``: later multiplications read the data of all earlier register writes."""
        self._calls += 1
        self._fenced = True
        self._used.clear()

    def mma_async(
        self,
        instruction: str,
        d: Iterable[Hashable],
        a: Iterable[Hashable] | None = None,
        shared: Iterable[Hashable] | None = None,
    ) -> None:
        """Issue a ``wgmma.mma_async`` multiplication.

        Parameters
        ----------
        instruction : str
            PTX opcode and qualifiers of a ``wgmma``.
        d : iterable of hashable
            Accumulator registers.
        a : iterable of hashable, optional
            Registers of A; None if A is in shared memory.
        shared : iterable of hashable, optional
            Buffers of shared memory that the descriptors of the instruction address. Default: all buffers.

        Raises
        ------
        InstructionError, OperandError
            The instruction does not parse or is not a ``wgmma``, or `d` or `a` has a wrong number of registers.
        OrderError
            ``wgmma.fence`` or ``fence.proxy.async`` is missing.
        """
        parsed = resolve(instruction, family="wgmma").instruction
        if parsed.family != "wgmma":
            raise OperandError(f"{parsed} is not a wgmma instruction")
        operands = {"d": _names("d", d), "a": [] if a is None else _names("a", a)}
        counts = {"d": accumulator_fragment(parsed).registers, "a": 0 if a is None else a_fragment(parsed).registers}
        for name, registers in operands.items():
            if len(set(registers)) != len(registers) or len(registers) != counts[name]:
                raise OperandError(
                    f"{name!r} of {parsed} must be {counts[name]} different registers, not {shown(registers)}"
                )
        if both := set(operands["d"]) & set(operands["a"]):
            raise OperandError(f"operands D and A of {parsed} share the register {shown(min(both, key=repr))}")
        buffers = None if shared is None else _names("shared", shared)
        self._calls += 1
        for buffer, write in self._unfenced.items():
            if buffers is None or buffer in buffers:
                raise OrderError(
                    f"call {self._calls}: buffer {shown(buffer)} of shared memory was written in call {write.call}, "
                    "and no fence.proxy.async came in between"
                )
        if not self._fenced:
            raise OrderError(f"call {self._calls}: the first wgmma.mma_async needs a wgmma.fence before it")
        uses = {
            "d": _Use(self._calls, f"accumulated by {parsed.shape}", parsed.shape),
            "a": _Use(self._calls, "read as A", "a"),
        }
        for name, registers in operands.items():
            for register in registers:
                use = self._used.get(register)
                if use and use.role != uses[name].role:
                    raise OrderError(
                        f"call {self._calls}: register {shown(register)} was {use.words} in call {use.call}, "
                        "and no wgmma.fence came in between"
                    )
        for name, registers in operands.items():
            for register in registers:
                self._used[register] = self._open.registers[register] = uses[name]
        read = _Use(self._calls, "read")
        if buffers is None:
            self._open.every_buffer = read
        else:
            self._open.buffers |= dict.fromkeys(buffers, read)

    def commit_group(self) -> None:
        """Issue ``wgmma.commit_group``: multiplications since the previous commit form a group, which may be empty."""
        self._calls += 1
        self._committed.append(self._open)
        self._open = _Group()

    def wait_group(self, pending: int) -> None:
        """Issue ``wgmma.wait_group N`` with N = `pending`: all groups except the latest N are finished afterwards.

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
        """End the sequence of ``wgmma`` calls. Raise an error if a multiplication was not committed or waited for.

        Raises
        ------
        OrderError
            A multiplication was never committed, or never waited for.
        """
        for groups, missing in (([self._open], "wgmma.commit_group"), (self._committed, "wgmma.wait_group")):
            calls = [use.call for group in groups for use in group.registers.values()]
            if calls:
                raise OrderError(f"the multiplication of call {min(calls)} is never finished: no {missing} follows it")

    def _access(self, kind: str, words: str, names: tuple[Hashable, ...]) -> None:
        _check_names(kind, names)
        self._calls += 1
        for name in names:
            for groups, missing in (([self._open], "wgmma.commit_group"), (self._committed, "wgmma.wait_group")):
                if uses := [use for group in groups if (use := group.use(kind, name))]:
                    raise OrderError(
                        f"call {self._calls}: {kind} {shown(name)} is {words} while the multiplication of call "
                        f"{uses[-1].call} may still use it: no {missing} came in between"
                    )
            (self._used if kind == "register" else self._unfenced)[name] = _Use(self._calls, words)


def _names(operand: str, values: Iterable[Hashable]) -> list[Hashable]:
    """Return at most `_MOST_REGISTERS` + 1 register or buffer names of an operand, since `values` may be endless."""
    kind = "buffer" if operand == "shared" else "register"
    try:
        names = list(islice(values, _MOST_REGISTERS + 1))
    except TypeError:
        raise OperandError(f"{operand!r} must be an iterable of {kind} names, not {shown(values)}") from None
    _check_names(kind, names)
    return names


def _check_names(kind: str, names: Iterable[object]) -> None:
    for name in names:
        try:
            hash(name)
        except TypeError:
            raise OperandError(f"the name of a {kind} must be hashable, not {shown(name)}") from None
