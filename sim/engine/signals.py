"""Values of the hardware's internal signals for each dot product, read from a VCD file of Amaranth's simulator."""

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from vcd.reader import TokenKind, tokenize

from ...rtl.config import CoreConfig
from .engine import Engine
from .python_simulator import PERIOD

__all__ = ["Signals", "WatchedRow"]

_T = TypeVar("_T")
#: Number of VCD scopes that enclose the module `row`. The names of these scopes are not part of component names.
_OUTER = 2
_FEMTOSECONDS = round(PERIOD * 1e15)


@dataclass(frozen=True, eq=False)
class Signals:
    """Values of all internal signals of a dot-product unit in one cycle, identified by component and signal name."""

    #: VCD identifier code and width in bits of each signal. Keys: component name (path below module `row`, such as
    #: ``unit.align.align3``) and signal name.
    codes: dict[tuple[str, str], tuple[str, int]]
    values: dict[str, int | str]  #: Signal values in this step; the keys are VCD identifier codes

    def word(self, component: str, name: str) -> str:
        """Return the value of an enumeration signal in this cycle as the name of an enumeration member."""
        return str(self.values[self.codes[component, name][0]])

    def unsigned(self, component: str, name: str) -> int:
        """Return the value of a hardware signal in this cycle as an unsigned integer."""
        value = self.values[self.codes[component, name][0]]
        assert isinstance(value, int), f"{component}.{name} is {value}"
        return value

    def signed(self, component: str, name: str, bits: int | None = None) -> int:
        """Return the value of a signal, or of its lowest `bits` bits, as a number in two's complement."""
        width = bits or self.codes[component, name][1]
        value = self.unsigned(component, name) & (1 << width) - 1
        return value - (value >> width - 1 << width)


class WatchedRow:
    """Datapath in Amaranth's simulator, with all internal signals recorded.

    Its pipeline registers are removed, so that all signals of a step are valid at the same time.
    """

    def __init__(self, config: CoreConfig) -> None:
        self._engine = Engine(replace(config, cuts=()), "amaranth")

    def run(self, multiply: Callable[[Engine], _T]) -> tuple[_T, list[Signals]]:
        """Run the function `multiply` on the datapath in a new simulation.

        Return the result of the computation, and the signals of each step, in the order in which steps were pushed.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "row.vcd"
            with self._engine.waves(path) as entered:
                result = multiply(self._engine)
            return result, list(_read(path, entered))


def _read(path: Path, periods: Sequence[int]) -> Iterator[Signals]:
    """Yield the signal values for each dot product, at the end of the clock period in which its inputs are applied."""
    codes: dict[tuple[str, str], tuple[str, int]] = {}
    values: dict[str, int | str] = {}
    scopes: list[str] = []
    ends = deque(_FEMTOSECONDS * (period + 1) for period in periods)
    with path.open("rb") as file:
        for token in tokenize(file):
            match token.kind:
                case TokenKind.SCOPE:
                    scopes.append(token.scope.ident)
                case TokenKind.UPSCOPE:
                    scopes.pop()
                case TokenKind.VAR:
                    codes[".".join(scopes[_OUTER:]), token.var.reference] = token.var.id_code, token.var.size
                case TokenKind.CHANGE_TIME:
                    while ends and token.time_change >= ends[0]:
                        ends.popleft()
                        yield Signals(codes, dict(values))
                case TokenKind.CHANGE_SCALAR:
                    values[token.scalar_change.id_code] = int(token.scalar_change.value)
                case TokenKind.CHANGE_VECTOR:
                    values[token.vector_change.id_code] = token.vector_change.value
                case TokenKind.CHANGE_STRING:
                    values[token.string_change.id_code] = token.string_change.value
    for _ in ends:
        yield Signals(codes, dict(values))
