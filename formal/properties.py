"""What a property is, and how a topic lists its own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from ..rtl.config import CoreConfig
from .harness import Harness

__all__ = ["Case", "Engine", "Parameters", "Property", "Topic", "anonymous", "cases"]

#: What a harness is built from: hashable values that follow from a configuration.
Parameters = tuple[object, ...]


class Engine(Enum):
    """What decides a property."""

    SOLVER = "Bitwuzla"  #: an SMT solver, for what has no registers
    EXHAUSTIVE = "exhaustion"  #: every assignment of the inputs in turn
    REACHABILITY = "ABC pdr"  #: property-directed reachability, for what has registers


@dataclass(frozen=True)
class Property:
    """One statement about the hardware, for every configuration.

    Attributes
    ----------
    name : str
        ``topic.property``.
    statement : str
        In a sentence or two.
    build : callable
        Writes it into a harness, given the parameters.
    parameters : callable
        Returns what it is to be proved for in a configuration; equal parameters of two configurations are proved once.
    engine : Engine
        What decides it; for what has registers always reachability.
    cycles : callable
        Returns, given the parameters, in how many cycles what has registers must reach its covers.
    """

    name: str
    statement: str
    build: Callable[..., None]
    parameters: Callable[[CoreConfig], Iterable[Parameters]]
    engine: Engine
    cycles: Callable[..., int]

    def __reduce__(self) -> tuple[Callable[..., "Property"], tuple[Callable[..., None], str]]:
        """Travel to other processes by name; what builds it brings its module along."""
        return _named, (self.build, self.name)


#: What topics have entered, by name.
_ENTERED: dict[str, Property] = {}


def _named(build: Callable[..., None], name: str) -> Property:
    return _ENTERED[name]


@dataclass(frozen=True)
class Case:
    """A property for one set of parameters.

    Attributes
    ----------
    subject : Property
        Which.
    parameters : tuple
        What it is built from.
    presets : tuple of str
        Whose datapaths it speaks of.
    """

    subject: Property
    parameters: Parameters
    presets: tuple[str, ...]

    def harness(self) -> Harness:
        """Build it."""
        harness = Harness()
        self.subject.build(harness, *self.parameters)
        return harness

    @property
    def described(self) -> str:
        """The parameters in words; a configuration by what distinguishes it from others of the property."""
        return " ".join(map(_word, self.parameters)) or "-"

    @property
    def cycles(self) -> int:
        """In how many cycles its covers must be reached."""
        return self.subject.cycles(*self.parameters)


def _word(parameter: object) -> str:
    if isinstance(parameter, CoreConfig):
        return f"{parameter.rows}x{parameter.columns}x{parameter.step_bytes} B"
    return "/".join(map(str, parameter)) if isinstance(parameter, tuple) else str(parameter)


class Topic(list[Property]):
    """The properties of one topic.

    Parameters
    ----------
    name : str
        First part of their names.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def property(
        self,
        name: str,
        parameters: Callable[[CoreConfig], Iterable[Parameters]],
        engine: Engine = Engine.SOLVER,
        cycles: Callable[..., int] = lambda *_: 1,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Enter a function that builds a harness; its docstring is the statement."""

        def enter(build: Callable[..., None]) -> Callable[..., None]:
            statement = " ".join((build.__doc__ or "").split())
            item = Property(f"{self.name}.{name}", statement, build, parameters, engine, cycles)
            _ENTERED[item.name] = item
            self.append(item)
            return build

        return enter


def anonymous(config: CoreConfig) -> CoreConfig:
    """Return a unit's configuration without what a unit does not see, so that equal units are proved once."""
    return replace(config, name="unit", rows=1, columns=1)


def cases(chosen: Iterable[Property], presets: Iterable[CoreConfig]) -> list[Case]:
    """Return what is to be proved of some datapaths, each set of parameters once."""
    found: dict[tuple[Property, Parameters], list[str]] = {}
    for item in chosen:
        for config in presets:
            for parameters in dict.fromkeys(item.parameters(config)):
                found.setdefault((item, parameters), []).append(config.name)
    return [Case(item, parameters, tuple(names)) for (item, parameters), names in found.items()]
