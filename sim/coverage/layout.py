"""Layout of coverage: the text of a coverage file, and a table for readers."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["of_file", "ranges", "text_of"]


def ranges(places: NDArray[np.intp]) -> list[list[int]]:
    """Return ascending indices as ranges of first and last."""
    if not places.size:
        return []
    ends = np.flatnonzero(np.diff(places) > 1)
    firsts = places[np.concatenate([[0], ends + 1])]
    lasts = places[np.concatenate([ends, [places.size - 1]])]
    return np.stack([firsts, lasts], 1).tolist()


def of_file(kind: str, version: int, groups: Iterable[tuple[Mapping[str, Any], NDArray[np.int64]]]) -> str:
    """Return the JSON text of a coverage file: one line for each field, and one for the hits along the last axis.

    Parameters
    ----------
    kind : str
        Kind of the file.
    version : int
        Version of the format.
    groups : iterable of (mapping, ndarray)
        Fields of each group except the hits, and the hits.
    """
    records = []
    for head, hits in groups:
        fields = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        rows = [f"   {json.dumps(row, separators=(',', ':'))}" for row in hits.reshape(-1, hits.shape[-1]).tolist()]
        fields.append('  "hits": [\n' + ",\n".join(rows) + "\n  ]")
        records.append(" {\n" + ",\n".join(fields) + "\n }")
    body = "[\n" + ",\n".join(records) + "\n]" if records else "[]"
    return f'{{"kind": {json.dumps(kind)}, "version": {version}, "groups": {body}}}\n'


def text_of(report: Mapping[str, Any]) -> str:
    """Return a report as text: groups, unreachable bins with reasons, contradictions, missing bins."""
    groups = report["groups"]
    names = [f"{group['configuration']}: {group['name']}" for group in groups]
    width = max([*map(len, names), len("group")])
    lines = [f"{'group':{width}}  {'bins':>7} {'reachable':>9} {'reached':>7}  {'%':>6}"]
    rows = [*zip(names, groups, strict=True), ("total", report)]
    for name, row in rows:
        share = _percentage(row["reached"], row["reachable"])
        lines.append(f"{name:{width}}  {row['bins']:>7} {row['reachable']:>9} {row['reached']:>7}  {share:>6}")
    for name, group in zip(names, groups, strict=True):
        lines += [f"unreachable: {name}: {part['bins']} bins: {part['reason']}" for part in group["unreachable"]]
    for name, group in zip(names, groups, strict=True):
        named = _named(group["contradicted"], group["contradictions"])
        lines += [f"CONTRADICTED, declared unreachable but reached: {name}: {line}" for line in named]
    for name, group in zip(names, groups, strict=True):
        lines += [
            f"missing: {name}: {line}" for line in _named(group["missing"], group["reachable"] - group["reached"])
        ]
    return "\n".join(lines)


def _named(first: list[str], total: int) -> list[str]:
    more = total - len(first)
    return [*first, *([f"and {more} more"] if first else [f"{more} bins"])] if more else first


def _percentage(reached: int, reachable: int) -> str:
    """Return a percentage with one decimal, rounded down; 100.0 means all."""
    thousandths = 1000 * reached // reachable if reachable else 1000
    return f"{thousandths // 10}.{thousandths % 10}"
