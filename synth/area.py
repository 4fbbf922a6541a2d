"""Area survey of a datapath: dot-product unit, cost of sparsity and of each format, stages, array and warp."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import Error
from ..rtl.config import ConfigError, CoreConfig
from .netlist import Netlist, around_units, registered_unit, stages, unit
from .parts import Part, parts_of
from .price import Measurement, Request, measure_all
from .recipe import Recipe

__all__ = ["CLOSER", "Amounts", "FormatShare", "Stage", "Survey", "summed", "survey"]

#: Names of optional details that the area measurements of a datapath (:func:`survey`) can include.
CLOSER = ("stage", "format")
#: Measured amounts by name: area, gates or cells. Amounts of the parts of a design add up to the design's amounts.
Amounts = dict[str, float]


@dataclass(frozen=True)
class Stage:
    """Area of all instances of one stage of a dot-product unit, or of one part of a top module."""

    name: str  #: Name of the stage or part, without instance numbers
    count: int  #: Number of instances of the stage or part
    amounts: Amounts  #: Area, gates or cells of all instances together
    longest: float | None  #: Length of the longest path within one instance of the stage or part


@dataclass(frozen=True)
class FormatShare:
    """Cost of an element format in a dot-product unit."""

    name: str
    without: Measurement | None  #: Measurement of a unit without this element format; None if such a unit is not valid
    amounts: Amounts  #: Amounts (area, gates or cells) that the element format adds to the dot-product unit
    refusal: str  #: Reason why a dot-product unit without the element format is not valid


@dataclass(frozen=True)
class Survey:
    """Area measurements of a datapath: dot-product unit, array, warp, stages and formats."""

    config: CoreConfig
    recipe: Recipe  #: Synthesis recipe of all measurements except the two with full-adder cells
    unit: Measurement
    twin: Measurement | None  #: Measurement of the dense dot-product unit: the same unit without sparsity
    #: Measurements of the dot-product unit and of the dense unit, both synthesised with full-adder cells.
    unit_with_adders: Measurement | None
    twin_with_adders: Measurement | None
    #: Logic of the array outside its dot-product units: control, metadata decoders and operand reordering of the rows,
    #: and operand reordering of the columns.
    core: Measurement | None
    core_twin: Measurement | None  #: Logic of the dense array (without sparsity) outside its dot-product units
    warp: Measurement | None  #: Logic of the warp outside its dot-product units, including array logic (:attr:`core`)
    refusal: str  #: Reason why module `warp`, which executes ``mma``, cannot be built; empty if it can be built
    stages: tuple[Stage, ...]  #: Stages of the dot-product unit, each synthesised separately
    between: Measurement | None  #: Logic of the dot-product unit that belongs to no stage
    formats: tuple[FormatShare, ...]  #: Area that each element format adds to the dot-product unit
    top: str  #: Name of the top module that was split into :attr:`parts`; empty if no top module was split
    #: Parts of the top module, each synthesised separately. The dot-product units are the first part.
    parts: tuple[Stage, ...]
    seconds: float  #: Elapsed time of all measurements in seconds

    @property
    def units(self) -> Amounts:
        """Amounts (area, gates or cells) of all dot-product units of the array together."""
        return self._units_of(self.unit)

    @property
    def array(self) -> Amounts | None:
        """Amounts (area, gates or cells) of the array: all dot-product units, and the logic around them."""
        return summed([self.units, self.core.amounts]) if self.core else None

    @property
    def warp_alone(self) -> Amounts | None:
        """Amounts (area, gates or cells) of the warp logic without the array of dot-product units."""
        if not self.core or not self.warp:
            return None
        return {name: amount - self.core.amounts[name] for name, amount in self.warp.amounts.items()}

    @property
    def whole(self) -> Amounts | None:
        """Amounts (area, gates or cells) of the array of dot-product units and the warp logic around it."""
        return summed([self.units, self.warp.amounts]) if self.warp else None

    @property
    def overhead(self) -> Amounts | None:
        """Overhead of sparsity in a dot-product unit, in per cent: area, gates and, if measured, longest path.

        Amounts that are zero in the dense unit are omitted.
        """
        if not self.twin:
            return None
        return _per_cent(self.unit.figures, self.twin.figures)

    @property
    def array_overhead(self) -> Amounts | None:
        """Overhead of sparsity in the array, in per cent of the dense array. The delay is not compared."""
        if not self.array or not self.twin or not self.core_twin:
            return None
        return _per_cent(self.array, summed([self._units_of(self.twin), self.core_twin.amounts]))

    @property
    def stages_sum(self) -> Amounts | None:
        """Total areas and cell counts of all pipeline stages and of the logic between them."""
        return summed([*(stage.amounts for stage in self.stages), self.between.amounts]) if self.between else None

    @property
    def parts_sum(self) -> Amounts | None:
        """Total areas and cell counts of all parts of the top module."""
        return summed(part.amounts for part in self.parts) if self.parts else None

    @property
    def overhead_scatter(self) -> dict[str, tuple[float, float]]:
        """Least and largest overhead of sparsity in a dot-product unit, in per cent, over all orders of its ports."""
        pairs = zip(self.unit.orders, self.twin.orders, strict=True) if self.twin else ()
        overheads = [_per_cent(sparse.figures, dense.figures) for sparse, dense in pairs]
        return (
            {name: (min(o[name] for o in overheads), max(o[name] for o in overheads)) for name in overheads[0]}
            if overheads
            else {}
        )

    def _units_of(self, unit: Measurement) -> Amounts:
        number = self.config.rows * self.config.columns
        return {name: number * amount for name, amount in unit.amounts.items()}


def _per_cent(with_it: Mapping[str, float], without: Mapping[str, float]) -> Amounts:
    """Return by how many per cent each area or count exceeds that in `without`; zero values are left out."""
    return {name: 100 * (with_it[name] - amount) / amount for name, amount in without.items() if amount}


def summed(parts: Iterable[Mapping[str, float]]) -> Amounts:
    """Return, for each amount (such as area, gates or cells), the sum over several parts of the hardware."""
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
    top: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Survey:
    """Measure the area of a datapath: dot-product unit, array, warp and, on request, stages, formats and other parts.

    Parameters
    ----------
    config, recipe, jobs : CoreConfig, Recipe, int
        Datapath, synthesis recipe and number of processes. With ``full_adders``, units are measured with and without
        full-adder cells. With ``combinational``, pipeline registers of the unit are wires. With ``combinational`` or an
        FPGA, the array is not measured.
    twin, array : bool
        Whether to measure the dense unit, too, if `config` is sparse; and the logic around the units, if possible.
    closer : collection of str
        Details from :data:`CLOSER`: ``stage``, the stages of the unit; ``format``, the cost of each format.
    top : str
        Top module whose parts are measured, too, if the array can be measured: a key of
        :data:`~sptc.synth.parts.TOPS`, or an empty string.
    progress : callable
        Called with the number of finished netlists and the number of all netlists.

    Raises
    ------
    BackendError, Error
        Yosys is not installed or fails, or the technology lacks a cell; the library has no full adder for
        ``full_adders``.
    """
    start = time.perf_counter()
    plan = _Plan(config, recipe)
    plan.add_units(twin=twin and config.sparse)
    if array and not recipe.combinational and not recipe.fpga:
        plan.add_array()
        if top:
            plan.add_parts(top)
    if "stage" in closer:
        plan.add_stages()
    if "format" in closer:
        plan.add_formats()
    measurements = measure_all(plan.requests, jobs, progress)
    return plan.survey(measurements, time.perf_counter() - start)


class _Plan:
    """Netlists that an area survey measures, by name, and reasons why some measurements are impossible."""

    def __init__(self, config: CoreConfig, recipe: Recipe) -> None:
        self.requests: dict[str, Request] = {}
        self._config = config
        self._dense = replace(config, sparse=False)
        self._recipe = recipe
        self._plain = replace(recipe, full_adders=False)
        self._stages: tuple[str, ...] = ()
        self._formats: tuple[str, ...] = ()
        self._top, self._parts = "", list[Part]()
        self._refusals: dict[str, str] = {}

    def _unit(self, config: CoreConfig) -> Netlist:
        if self._recipe.place:
            return registered_unit(config)
        return unit(config, combinational=self._recipe.combinational, fpga=bool(self._recipe.fpga))

    def add_units(self, *, twin: bool) -> None:
        netlists = {"unit": self._unit(self._config)} | ({"twin": self._unit(self._dense)} if twin else {})
        self.requests |= {name: (netlist, self._plain) for name, netlist in netlists.items()}
        if self._recipe.full_adders:
            self.requests |= {f"{name} with adders": (netlist, self._recipe) for name, netlist in netlists.items()}

    def add_array(self) -> None:
        """Plan measurements of the logic around dot-product units in an array, a warp and perhaps a dense array."""
        self.requests["core"] = (around_units(self._config, "core"), self._plain)
        if "twin" in self.requests:
            self.requests["core twin"] = (around_units(self._dense, "core"), self._plain)
        try:
            self.requests["warp"] = (around_units(self._config, "warp"), self._plain)
        except Error as error:
            self._refusals["warp"] = str(error)

    def add_parts(self, top: str) -> None:
        """Plan measurements of a top module's parts. Raise an `Error` if the configuration cannot form this module."""
        self._top, self._parts = top, parts_of(self._config, top)
        self.requests |= {f"part {part.name}": (part.netlist, self._plain) for part in self._parts if part.netlist}

    def add_stages(self) -> None:
        whole, _ = self.requests["unit"]
        # With the option `combinational`, the only submodule in the measured netlist is the whole unit, so that this
        # netlist cannot be split into stages. Therefore, split the netlist of a unit without pipeline registers: each
        # stage is one of its submodules.
        parts, between = stages(unit(replace(self._config, cuts=())) if self._recipe.combinational else whole)
        self._stages = tuple(parts)
        self.requests |= {f"stage {name}": (netlist, self._plain) for name, netlist in parts.items()}
        self.requests["between"] = (between, self._plain)

    def add_formats(self) -> None:
        """Plan, for each element format, a measurement of the dot-product unit without this format."""
        self._formats = self._config.formats
        for word in self._formats:
            try:
                fewer = replace(self._config, formats=tuple(other for other in self._formats if other != word))
            except ConfigError as error:
                self._refusals[word] = str(error)
            else:
                self.requests[f"without {word}"] = (self._unit(fewer), self._plain)

    def survey(self, measurements: Mapping[str, Measurement], seconds: float) -> Survey:
        return Survey(
            config=self._config,
            recipe=self._plain,
            unit=measurements["unit"],
            twin=measurements.get("twin"),
            unit_with_adders=measurements.get("unit with adders"),
            twin_with_adders=measurements.get("twin with adders"),
            core=measurements.get("core"),
            core_twin=measurements.get("core twin"),
            warp=measurements.get("warp"),
            refusal=self._refusals.get("warp", ""),
            stages=_grouped({name: measurements[f"stage {name}"] for name in self._stages}),
            between=measurements.get("between"),
            formats=tuple(
                _share(word, measurements["unit"], measurements.get(f"without {word}"), self._refusals.get(word, ""))
                for word in self._formats
            ),
            top=self._top,
            parts=tuple(
                _part(part, measurements[f"part {part.name}" if part.netlist else "unit"]) for part in self._parts
            ),
            seconds=seconds,
        )


def _grouped(parts: Mapping[str, Measurement]) -> tuple[Stage, ...]:
    groups: dict[str, list[Measurement]] = {}
    for name, measurement in parts.items():
        # Amaranth appends a dollar sign and a number to a submodule name that is already used.
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
