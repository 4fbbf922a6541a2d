"""Reports of a sweep over configurations as a table, as JSON and as a plot."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .plot import Spot, axis_of, plot_spots
from .recipe import Recipe
from .report import about, columns, headers, heading, measured_as_dict, scatter, seconds, values
from .sweep import Point

__all__ = ["plot_sweep", "sweep_as_dict", "sweep_table"]


def sweep_table(points: Sequence[Point], recipe: Recipe) -> str:
    """Return a table with a line per configuration of a sweep. One column is the range of products per cycle."""
    timed = recipe.longest == "delay"
    scatters = [f"scatter of {name}" for name in headers(recipe)] if recipe.orders > 1 else []
    rows = [["formats", "A", "mux", "cuts", "F", "step [B]", *headers(recipe), *scatters, "products/cycle"]]
    rows[0] += ["products/ns", "seconds"] if timed else ["seconds"]
    for point in points:
        place, measurement = point.place, point.measurement
        words = place.words
        row = [words["formats"], words["a"], place.mux, words["cuts"], str(place.alignment_bits), str(place.step_bytes)]
        row += values(recipe, measurement.amounts, measurement.longest) if measurement else values(recipe, {})
        row += scatter(measurement, recipe) if scatters and measurement else ["-"] * len(scatters)
        row += [_range(point.products, 0), *([_range(point.products_per_ns, 2)] if timed else [])]
        rows.append([*row, seconds(measurement) if measurement else "-"])
    lines = columns(rows, 4)
    refused = [
        f"{line}  {point.refusal}" if point.refusal else line for line, point in zip(lines[1:], points, strict=True)
    ]
    return "\n".join([*heading(recipe), "", lines[0], *refused])


def sweep_as_dict(points: Sequence[Point], recipe: Recipe) -> dict[str, Any]:
    """Return a sweep over configurations as values for JSON, with all fields of each configuration."""
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

    Bars show the least and the largest area and delay over all orders of the ports. Errors are those of
    :func:`~.plot_spots`.
    """
    timed = recipe.longest == "delay"
    first = recipe.amounts[0]
    drawn = [point for point in points if point.measurement]
    words = [point.place.words for point in drawn]
    varied = [axis for axis in words[0] if axis not in ("formats", "a") and len({word[axis] for word in words}) > 1]
    both = len({word["a"] for word in words}) > 1
    spots = []
    for point, word in zip(drawn, words, strict=True):
        across = max((point.products_per_ns if timed else point.products).values(), default=0)
        measurement = point.measurement
        assert measurement
        ends = measurement.scatter
        # The longest delay gives the lowest throughput, so the two ends of the delay range are taken in reverse order.
        slow, fast = (
            [100 / (1 + end / 100) - 100 for end in ends.get("longest", (0.0, 0.0))[::-1]] if timed else (0.0, 0.0)
        )
        group = f"{word['formats']}, {word['a']}" if both else word["formats"]
        name = " ".join(word[axis].replace("none", "no cuts") for axis in varied)
        spots.append(
            Spot(group, name, float(across), measurement.amounts[first], (slow, fast), ends.get(first, (0.0, 0.0)))
        )
    technology = f", {recipe.library.name}" if recipe.library else ""
    technology += f", medians and ranges of {recipe.orders} port orders" if recipe.orders > 1 else ""
    kind = "dense unit" if not drawn[0].place.sparse and not both else "unit"
    x = f"kept products of the narrowest format per {'nanosecond' if timed else 'cycle'}"
    plot_spots(spots, x, axis_of(first), f"{kind}: {first} against throughput{technology}", path)


def _range(counts: Mapping[str, float], decimals: int) -> str:
    if not counts:
        return "-"
    ends = dict.fromkeys(f"{end(counts.values()):.{decimals}f}" for end in (min, max))
    return "-".join(ends)
