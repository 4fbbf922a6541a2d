"""Reports of a sweep as a table, as JSON and as a plot."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .plot import axis_of, scatter
from .recipe import Recipe
from .report import (
    about,
    columns,
    headers,
    heading,
    measured_as_dict,
    seconds,
    values,
)
from .sweep import Point

__all__ = ["plot_sweep", "sweep_as_dict", "sweep_table"]


def sweep_table(points: Sequence[Point], recipe: Recipe) -> str:
    """Return one table line per point of a sweep, in order. Ranges start with the value of the widest format."""
    timed = recipe.longest == "delay"
    rows = [["formats", "mux", "cuts", "F", "step [B]", *headers(recipe), "products/cycle"]]
    rows[0] += ["products/ns", "seconds"] if timed else ["seconds"]
    for point in points:
        place, measurement = point.place, point.measurement
        words = place.words
        row = [words["formats"], place.mux, words["cuts"], str(place.alignment_bits), str(place.step_bytes)]
        row += values(recipe, measurement.amounts, measurement.longest) if measurement else values(recipe, {})
        row += [_range(point.products, 0), *([_range(point.products_per_ns, 2)] if timed else [])]
        rows.append([*row, seconds(measurement) if measurement else "-"])
    lines = columns(rows, 3)
    refused = [
        f"{line}  {point.refusal}" if point.refusal else line for line, point in zip(lines[1:], points, strict=True)
    ]
    return "\n".join([*heading(recipe), "", lines[0], *refused])


def sweep_as_dict(points: Sequence[Point], recipe: Recipe) -> dict[str, Any]:
    """Return the points of a sweep as plain values, with all fields of each configuration."""
    rows = []
    for point in points:
        row: dict[str, Any] = asdict(point.place)
        row["configuration"] = point.config and asdict(point.config)
        row["refusal"] = point.refusal or None
        row["products_per_cycle"] = point.products
        if recipe.longest == "delay":
            row["products_per_ns"] = point.products_per_ns
        rows.append(row | {"unit": measured_as_dict(point.measurement, recipe)})
    return {**about(recipe), "points": rows}


def plot_sweep(points: Sequence[Point], recipe: Recipe, path: Path) -> None:
    """Draw the area of a dot-product unit against the products per cycle of its narrowest element format, as SVG.

    Errors are those of :func:`~.scatter`.
    """
    timed = recipe.longest == "delay"
    first = recipe.amounts[0]
    drawn = [point for point in points if point.measurement]
    words = [point.place.words for point in drawn]
    varied = [axis for axis in words[0] if axis != "formats" and len({word[axis] for word in words}) > 1]
    places = []
    for point, word in zip(drawn, words, strict=True):
        across = max((point.products_per_ns if timed else point.products).values(), default=0)
        up = point.measurement.amounts[first] if point.measurement else 0.0
        places.append(
            (word["formats"], " ".join(word[axis].replace("none", "no cuts") for axis in varied), float(across), up)
        )
    technology = f", {recipe.library.name}" if recipe.library else ""
    kind = "dense unit" if drawn[0].config and not drawn[0].config.sparse else "unit"
    x = f"kept products of the narrowest format a {'nanosecond' if timed else 'cycle'}"
    scatter(places, x, axis_of(first), f"{kind}: {first} against throughput{technology}", path)


def _range(counts: Mapping[str, float], decimals: int) -> str:
    """Format a range of numbers as text, from the smallest to the largest."""
    if not counts:
        return "-"
    ends = dict.fromkeys(f"{end(counts.values()):.{decimals}f}" for end in (min, max))
    return "-".join(ends)
