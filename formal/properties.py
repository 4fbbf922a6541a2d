"""Formal properties of the hardware, topics that group them, and proof cases: a property with one set of parameters."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from ..rtl.config import PRESETS, CoreConfig
from .harness import Harness

__all__ = ["Case", "Engine", "Parameters", "Property", "Topic", "anonymous", "cases", "once"]

#: Arguments of the function that builds a harness: hashable values that are computed from a configuration.
Parameters = tuple[object, ...]


class Engine(Enum):
    """Engine that decides whether a property is true."""

    SOLVER = "Bitwuzla"  #: SMT solver, for harnesses without registers
    EXHAUSTIVE = "exhaustion"  #: evaluation of the harness for every assignment of its inputs
    REACHABILITY = "ABC pdr"  #: property-directed reachability, for harnesses with registers


@dataclass(frozen=True)
class Property:
    """A property: one statement about the hardware that is proved for every configuration."""

    name: str  #: Name in the form ``topic.property``
    statement: str  #: Statement of the property: the docstring of `build`
    build: Callable[..., None]  #: Function that builds the harness of the property for a set of parameters
    #: Function from a configuration to the parameter sets for which the property is proved. A set that several
    #: configurations share is proved once.
    parameters: Callable[[CoreConfig], Iterable[Parameters]]
    #: Engine for harnesses without registers. Harnesses with registers always use property-directed reachability.
    engine: Engine
    #: Function from the parameters to the number of cycles within which a design with registers must reach its covers.
    cycles: Callable[..., int]

    @property
    def presets(self) -> list[str]:
        """Names of the presets to which the property applies."""
        return [name for name, config in PRESETS.items() if any(True for _ in self.parameters(config))]

    def __reduce__(self) -> tuple[Callable[..., "Property"], tuple[Callable[..., None], str]]:
        """Pickle a property as its name. Unpickling imports the module of `build`, which registers the property."""
        return _named, (self.build, self.name)


#: All formal properties; the keys are their names.
_ENTERED: dict[str, Property] = {}


def _named(build: Callable[..., None], name: str) -> Property:
    return _ENTERED[name]


@dataclass(frozen=True)
class Case:
    """Proof case: a property with one set of parameters."""

    subject: Property
    parameters: Parameters  #: Arguments of the property's function `build` in this proof case
    presets: tuple[str, ...]  #: Configurations for which the property is proved with these parameters

    def __str__(self) -> str:
        return f"the proof of {self.subject.name} ({self.described})"

    def harness(self) -> Harness:
        """Build the harness of the property for this set of parameters."""
        harness = Harness()
        self.subject.build(harness, *self.parameters)
        return harness

    @property
    def described(self) -> str:
        """Parameters of the proof as text. `4x4x32 B`: 4 x 4 dot-product units, each with 32 bytes of A per cycle."""
        return " ".join(map(_word, self.parameters)) or "-"

    @property
    def cycles(self) -> int:
        """Number of cycles within which the covers of this proof case must be reached."""
        return self.subject.cycles(*self.parameters)


def _word(parameter: object) -> str:
    if isinstance(parameter, CoreConfig):
        return f"{parameter.rows}x{parameter.columns}x{parameter.step_bytes} B"
    return "/".join(map(str, parameter)) if isinstance(parameter, tuple) else str(parameter)


class Topic(list[Property]):
    """A topic: a group of properties. The name of each property starts with the topic's name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def property(
        self,
        name: str,
        parameters: Callable[[CoreConfig], Iterable[Parameters]],
        engine: Engine = Engine.SOLVER,
        cycles: Callable[..., int] | int = 1,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator that registers a harness function as a property, with its docstring as the statement."""
        in_cycles = cycles if callable(cycles) else lambda *_: cycles

        def enter(build: Callable[..., None]) -> Callable[..., None]:
            statement = " ".join((build.__doc__ or "").split())
            item = Property(f"{self.name}.{name}", statement, build, parameters, engine, in_cycles)
            _ENTERED[item.name] = item
            self.append(item)
            return build

        return enter


def once(config: CoreConfig) -> list[Parameters]:
    """Return one empty set of parameters, for a property that does not depend on the configuration."""
    return [()]


def anonymous(config: CoreConfig) -> CoreConfig:
    """Return a configuration with a fixed name and array size, so that equal units have equal configurations."""
    return replace(config, name="unit", rows=1, columns=1)


def cases(chosen: Iterable[Property], presets: Iterable[CoreConfig]) -> list[Case]:
    """Return one proof case for each property and each different set of parameters; configurations may share it."""
    names: dict[tuple[Property, Parameters], list[str]] = {}
    for item in chosen:
        for config in presets:
            for parameters in dict.fromkeys(item.parameters(config)):
                names.setdefault((item, parameters), []).append(config.name)
    return [Case(item, parameters, tuple(of_case)) for (item, parameters), of_case in names.items()]
