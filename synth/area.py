"""What a datapath takes: its unit, what sparsity and each format add to it, its stages, and the array around it."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import Error
from ..rtl.config import ConfigError, CoreConfig
from .netlist import Netlist, around_units, stages, unit
from .price import Measurement, Request, measure_all
from .recipe import Recipe

__all__ = ["Amounts", "FormatShare", "Stage", "Survey", "summed", "survey"]

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
    by_stage: bool = False,
    by_format: bool = False,
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
    by_stage, by_format : bool
        The stages of the unit, and what each format adds.
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
    plain = replace(recipe, full_adders=False)
    how = {"combinational": recipe.combinational, "operators": bool(recipe.fpga)}
    whole = unit(config, **how)
    wanted: dict[str, Request] = {"unit": (whole, plain)}
    if twin and config.sparse:
        dense = unit(replace(config, sparse=False), **how)
        wanted["twin"] = (dense, plain)
    if recipe.full_adders:
        wanted |= {f"{name} with adders": (netlist, recipe) for name, (netlist, _) in wanted.items()}
    refusal = ""
    if array and not recipe.combinational and not recipe.fpga:
        wanted["core"] = (around_units(config, "core"), plain)
        if "twin" in wanted:
            wanted["core twin"] = (around_units(replace(config, sparse=False), "core"), plain)
        try:
            wanted["warp"] = (around_units(config, "warp"), plain)
        except Error as error:
            refusal = str(error)
    parts: dict[str, Netlist] = {}
    if by_stage:
        # What is always enabled is one part; its stages have no registers of their own.
        parts, between = stages(unit(replace(config, cuts=())) if recipe.combinational else whole)
        wanted |= {f"stage {name}": (netlist, plain) for name, netlist in parts.items()}
        wanted["between"] = (between, plain)
    refusals: dict[str, str] = {}
    for word in config.formats if by_format else ():
        try:
            fewer = replace(config, formats=tuple(other for other in config.formats if other != word))
        except ConfigError as error:
            refusals[word] = str(error)
        else:
            wanted[f"without {word}"] = (unit(fewer, **how), plain)
    found = measure_all(wanted, jobs, progress)
    return Survey(
        config=config,
        recipe=plain,
        unit=found["unit"],
        twin=found.get("twin"),
        unit_with_adders=found.get("unit with adders"),
        twin_with_adders=found.get("twin with adders"),
        core=found.get("core"),
        core_twin=found.get("core twin"),
        warp=found.get("warp"),
        refusal=refusal,
        stages=_grouped({name: found[f"stage {name}"] for name in parts}),
        between=found.get("between"),
        formats=tuple(
            _share(word, found["unit"], found.get(f"without {word}"), refusals.get(word, ""))
            for word in (config.formats if by_format else ())
        ),
        seconds=time.perf_counter() - start,
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


def _share(name: str, with_it: Measurement, without: Measurement | None, refusal: str) -> FormatShare:
    amounts = {key: amount - without.amounts[key] for key, amount in with_it.amounts.items()} if without else {}
    return FormatShare(name, without, amounts, refusal)
