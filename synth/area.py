"""What a datapath takes: its unit, what sparsity and each format add to it, its stages, and the array around it."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import Error
from ..rtl.config import ConfigError, CoreConfig
from .netlist import Netlist, around_units, registered_unit, stages, unit
from .parts import Part, warpgroup_parts
from .price import Measurement, Request, measure_all
from .recipe import Recipe

__all__ = ["CLOSER", "Amounts", "FormatShare", "Stage", "Survey", "summed", "survey"]

#: What is looked at closer if asked.
CLOSER = ("stage", "format", "warpgroup")
#: What adds up, by name.
Amounts = dict[str, float]


@dataclass(frozen=True)
class Stage:
    """All submodules of a unit that differ in their number alone.

    Attributes
    ----------
    name : str
        Without a number.
    count : int
        How many.
    amounts : dict of str to float
        Of all together.
    longest : float or None
        Longest path in one of them.
    """

    name: str
    count: int
    amounts: Amounts
    longest: float | None


@dataclass(frozen=True)
class FormatShare:
    """What an element format adds to a unit.

    Attributes
    ----------
    name : str
        The format.
    without : Measurement or None
        The unit without it.
    amounts : dict of str to float
        What it adds.
    refusal : str
        Why there is no unit without it, where there is none.
    """

    name: str
    without: Measurement | None
    amounts: Amounts
    refusal: str


@dataclass(frozen=True)
class Survey:
    """What a datapath takes.

    Attributes
    ----------
    config : CoreConfig
        Which.
    recipe : Recipe
        How all but those with full adders were measured.
    unit : Measurement
        One unit.
    twin : Measurement or None
        The same unit without sparsity.
    unit_with_adders, twin_with_adders : Measurement or None
        Both with full-adder cells.
    core : Measurement or None
        The array without its units: order and decoders of rows, order of columns, control.
    core_twin : Measurement or None
        The same of an array without sparsity.
    warp : Measurement or None
        The warp without its units; what :attr:`core` has is in it.
    refusal : str
        Why there is no warp, where there is none.
    stages : tuple of Stage
        Each submodule synthesised by itself.
    between : Measurement or None
        The unit without these.
    formats : tuple of FormatShare
        What each format adds.
    warpgroup : tuple of Stage
        The parts of a warpgroup of such arrays, the units first, each synthesised by itself.
    seconds : float
        Time that all of this took now.
    """

    config: CoreConfig
    recipe: Recipe
    unit: Measurement
    twin: Measurement | None
    unit_with_adders: Measurement | None
    twin_with_adders: Measurement | None
    core: Measurement | None
    core_twin: Measurement | None
    warp: Measurement | None
    refusal: str
    stages: tuple[Stage, ...]
    between: Measurement | None
    formats: tuple[FormatShare, ...]
    warpgroup: tuple[Stage, ...]
    seconds: float

    @property
    def units(self) -> Amounts:
        """All units of the array."""
        return self._units_of(self.unit)

    @property
    def array(self) -> Amounts | None:
        """Units and what is around them in the array."""
        return summed([self.units, self.core.amounts]) if self.core else None

    @property
    def warp_alone(self) -> Amounts | None:
        """What the warp has beside its array."""
        if not self.core or not self.warp:
            return None
        return {name: amount - self.core.amounts[name] for name, amount in self.warp.amounts.items()}

    @property
    def whole(self) -> Amounts | None:
        """The array and the warp that feeds it."""
        return summed([self.units, self.warp.amounts]) if self.warp else None

    @property
    def overhead(self) -> Amounts | None:
        """What sparsity adds to a unit, in per cent of its dense twin; ``longest`` too, where it is measured.

        What the twin has none of is left out.
        """
        if not self.twin:
            return None
        longest = [{"longest": each.longest} if each.longest else {} for each in (self.unit, self.twin)]
        return _per_cent({**self.unit.amounts, **longest[0]}, {**self.twin.amounts, **longest[1]})

    @property
    def array_overhead(self) -> Amounts | None:
        """The same of the array, where the decoders of metadata are, without its longest path."""
        if not self.array or not self.twin or not self.core_twin:
            return None
        return _per_cent(self.array, summed([self._units_of(self.twin), self.core_twin.amounts]))

    @property
    def stages_sum(self) -> Amounts | None:
        """All stages and what is between them."""
        return summed([*(stage.amounts for stage in self.stages), self.between.amounts]) if self.between else None

    @property
    def warpgroup_sum(self) -> Amounts | None:
        """All parts of the warpgroup."""
        return summed(part.amounts for part in self.warpgroup) if self.warpgroup else None

    def _units_of(self, unit: Measurement) -> Amounts:
        number = self.config.rows * self.config.columns
        return {name: number * amount for name, amount in unit.amounts.items()}


def _per_cent(with_it: Mapping[str, float], without: Mapping[str, float]) -> Amounts:
    """Return what is added, in per cent of what is there without; of nothing there is no share."""
    return {name: 100 * (with_it[name] - amount) / amount for name, amount in without.items() if amount}


def summed(parts: Iterable[Mapping[str, float]]) -> Amounts:
    """Add amounts that have the same names."""
    first, *rest = parts
    return {name: sum((part[name] for part in rest), start=amount) for name, amount in first.items()}


def survey(
    config: CoreConfig,
    recipe: Recipe,
    *,
    jobs: int,
    twin: bool = True,
    array: bool = True,
    closer: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Survey:
    """Measure a datapath.

    Parameters
    ----------
    config : CoreConfig
        Which.
    recipe : Recipe
        How. With ``full_adders``, units are measured in both ways. With ``combinational`` the unit's pipeline
        registers are wires; then, and on an FPGA, the array is not measured.
    jobs : int
        Processes.
    twin : bool
        The dense unit too, if `config` is sparse.
    array : bool
        What is around the units too, where it can be measured.
    closer : collection of str
        Of :data:`CLOSER`: ``stage``, the stages of the unit; ``format``, what each format adds; ``warpgroup``, the
        parts of a warpgroup of such arrays, where the array can be measured.
    progress : callable
        Told how many netlists are done of how many.

    Raises
    ------
    BackendError
        Yosys is not installed or fails, or the technology lacks a cell.
    Error
        The library has no full adder, and is asked for one.
    """
    start = time.perf_counter()
    plan = _Plan(config, recipe)
    plan.add_units(twin=twin and config.sparse)
    if array and not recipe.combinational and not recipe.fpga:
        plan.add_array()
        if "warpgroup" in closer:
            plan.add_warpgroup()
    if "stage" in closer:
        plan.add_stages()
    if "format" in closer:
        plan.add_formats()
    found = measure_all(plan.wanted, jobs, progress)
    return plan.survey(found, time.perf_counter() - start)


class _Plan:
    """What is to be measured of a datapath, by name, and why something cannot be."""

    def __init__(self, config: CoreConfig, recipe: Recipe) -> None:
        self.wanted: dict[str, Request] = {}
        self._config = config
        self._dense = replace(config, sparse=False)
        self._recipe = recipe
        self._plain = replace(recipe, full_adders=False)
        self._stages: tuple[str, ...] = ()
        self._formats: tuple[str, ...] = ()
        self._parts: list[Part] = []
        self._refusals: dict[str, str] = {}

    def _unit(self, config: CoreConfig) -> Netlist:
        if self._recipe.place:
            return registered_unit(config)
        return unit(config, combinational=self._recipe.combinational, fpga=bool(self._recipe.fpga))

    def add_units(self, *, twin: bool) -> None:
        netlists = {"unit": self._unit(self._config)} | ({"twin": self._unit(self._dense)} if twin else {})
        self.wanted |= {name: (netlist, self._plain) for name, netlist in netlists.items()}
        if self._recipe.full_adders:
            self.wanted |= {f"{name} with adders": (netlist, self._recipe) for name, netlist in netlists.items()}

    def add_array(self) -> None:
        """Add what is around the units, of the twin too where that is measured."""
        self.wanted["core"] = (around_units(self._config, "core"), self._plain)
        if "twin" in self.wanted:
            self.wanted["core twin"] = (around_units(self._dense, "core"), self._plain)
        try:
            self.wanted["warp"] = (around_units(self._config, "warp"), self._plain)
        except Error as error:
            self._refusals["warp"] = str(error)

    def add_warpgroup(self) -> None:
        """Add the parts of a warpgroup.

        Raises
        ------
        Error
            The configuration does not serve one.
        """
        self._parts = warpgroup_parts(self._config)
        self.wanted |= {f"part {part.name}": (part.netlist, self._plain) for part in self._parts if part.netlist}

    def add_stages(self) -> None:
        whole, _ = self.wanted["unit"]
        # What is always enabled is one part; its stages have no registers of their own.
        parts, between = stages(unit(replace(self._config, cuts=())) if self._recipe.combinational else whole)
        self._stages = tuple(parts)
        self.wanted |= {f"stage {name}": (netlist, self._plain) for name, netlist in parts.items()}
        self.wanted["between"] = (between, self._plain)

    def add_formats(self) -> None:
        """Add the unit without each of its formats in turn."""
        self._formats = self._config.formats
        for word in self._formats:
            try:
                fewer = replace(self._config, formats=tuple(other for other in self._formats if other != word))
            except ConfigError as error:
                self._refusals[word] = str(error)
            else:
                self.wanted[f"without {word}"] = (self._unit(fewer), self._plain)

    def survey(self, found: Mapping[str, Measurement], seconds: float) -> Survey:
        """Return what was measured by the names it was asked for."""
        return Survey(
            config=self._config,
            recipe=self._plain,
            unit=found["unit"],
            twin=found.get("twin"),
            unit_with_adders=found.get("unit with adders"),
            twin_with_adders=found.get("twin with adders"),
            core=found.get("core"),
            core_twin=found.get("core twin"),
            warp=found.get("warp"),
            refusal=self._refusals.get("warp", ""),
            stages=_grouped({name: found[f"stage {name}"] for name in self._stages}),
            between=found.get("between"),
            formats=tuple(
                _share(word, found["unit"], found.get(f"without {word}"), self._refusals.get(word, ""))
                for word in self._formats
            ),
            warpgroup=tuple(
                _part(part, found[f"part {part.name}" if part.netlist else "unit"]) for part in self._parts
            ),
            seconds=seconds,
        )


def _grouped(parts: Mapping[str, Measurement]) -> tuple[Stage, ...]:
    groups: dict[str, list[Measurement]] = {}
    for name, measurement in parts.items():
        # Amaranth puts a dollar and a number behind a name that is taken.
        groups.setdefault(re.sub(r"_?\d+$", "", name.partition("$")[0]), []).append(measurement)
    return tuple(
        Stage(
            name,
            len(members),
            summed(member.amounts for member in members),
            max((member.longest for member in members if member.longest is not None), default=None),
        )
        for name, members in groups.items()
    )


def _part(part: Part, one: Measurement) -> Stage:
    return Stage(part.name, part.count, {key: part.count * amount for key, amount in one.amounts.items()}, one.longest)


def _share(name: str, with_it: Measurement, without: Measurement | None, refusal: str) -> FormatShare:
    amounts = {key: amount - without.amounts[key] for key, amount in with_it.amounts.items()} if without else {}
    return FormatShare(name, without, amounts, refusal)
