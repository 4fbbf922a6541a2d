"""``sptc compare``: compare the values of the tensors of two files, whose file formats may differ."""

import argparse
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import FileError
from ..infra.counts import counted
from ..tensors.checkpoints import contents, difference
from ..tensors.element_types import is_extension
from .options import Commands, add
from .terminal import print_result

__all__ = ["add_parser"]

_Tensors = Mapping[str, Callable[[], NDArray]]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc compare`` to the command line."""
    parser = commands.add_parser(
        "compare",
        help="compare the values of the tensors of two files",
        description="Compare the values of two files element by element: dense tensors, files of `sptc compress`, "
        "checkpoints of compressed-tensors (sparse-bitmask, sparse-24-bitmask, marlin_24), and state dictionaries of "
        "PyTorch with semi-structured tensors. Quantised values are multiplied by their scales. -0.0 equals 0, and NaN "
        "equals NaN. Tensors with equal names are compared; the names `layer` and `layer.weight` are equal. The exit "
        "status is 1 if values differ, or if only one of the files has a tensor.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help=".npy, .npz, .safetensors or .pt file")
    parser.add_argument("other", type=Path, metavar="OTHER", help="second file")
    add(parser, "tensor", help="compare only the tensor of this name (default: all)")
    parser.add_argument(
        "--other-tensor", metavar="NAME", help="name of the tensor in OTHER (default: its name in FILE)"
    )
    add(parser, "verbose", help="also print a line for each equal tensor")
    add(parser, "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    pairs, missing = _pairs(contents(options.file), contents(options.other), options)
    rows = []
    for name, left, right in pairs:
        one, other = left(), right()
        for path, part in ((options.file, one), (options.other, other)):
            if part.dtype.kind not in "biuf" and not is_extension(part.dtype):
                raise FileError(f"{path}: {name or 'the tensor'} must hold real numbers, not {part.dtype}")
        row: dict[str, Any] = {"tensor": name, "shape": list(one.shape), "elements": int(one.size), "differ": one.size}
        if one.shape == other.shape:
            row["differ"], first = difference(one, other)
            if first is not None:
                row |= {"first": list(first), "values": [_value(one[first]), _value(other[first])]}
        else:
            row["other_shape"] = list(other.shape)
        rows.append(row)
    differing = [row for row in rows if row["differ"] or "other_shape" in row]
    equal = not (missing or differing)
    lines = [_verdict(rows, differing, missing), *map(_line, rows if options.verbose else differing)]
    lines += [f"{name or 'the tensor'}: only in one file" for name in missing]
    values = {"equal": equal, "tensors": rows, "only_in_one": missing}
    return print_result(options, values, "\n".join(lines), good=equal)


def _value(number: Any) -> int | float | str:
    """Return a number as a JSON value: as text if neither JSON nor float64 can represent it."""
    if number.dtype.kind in "biu":
        return int(number)
    value = float(number)
    return value if isfinite(value) and value == number else str(number)


def _verdict(rows: list[dict[str, Any]], differing: list[dict[str, Any]], missing: list[str]) -> str:
    """Return one sentence on how many elements differ, and how many tensors are in only one of the two files."""
    elements, tensors = counted(sum(row["elements"] for row in rows), "element"), counted(len(rows), "tensor")
    parts = [f"all {elements} of {tensors} equal"] if rows or not missing else []
    if differing:
        count = sum(row["differ"] for row in differing)
        parts = [f"{count:,} of {elements} differ, in {len(differing):,} of {tensors}"]
    return "; ".join(parts + [f"only in one file: {counted(len(missing), 'tensor')}"] * bool(missing))


def _pairs(
    left: _Tensors, right: _Tensors, options: argparse.Namespace
) -> tuple[list[tuple[str, Callable[[], NDArray], Callable[[], NDArray]]], list[str]]:
    """Return the pairs of tensors to compare, and the names of tensors that only one of the two files has."""
    if options.tensor is None and options.other_tensor is None and len(left) == len(right) == 1:
        ((name, first),), (second,) = left.items(), right.values()
        return [(name, first, second)], []
    if options.tensor is not None or options.other_tensor is not None:
        names = options.tensor, options.other_tensor or options.tensor
        chosen = []
        for path, tensors, name in zip((options.file, options.other), (left, right), names, strict=True):
            key = next(iter(tensors)) if name is None and len(tensors) == 1 else _key(tensors, name or "")
            if key is None:
                some = ", ".join(map(repr, [*tensors][:5]))
                if name is None:
                    raise FileError(f"{path} holds {some}: --tensor must select one of them")
                raise FileError(f"{path} has no tensor {name!r}; it has {some}")
            chosen.append(tensors[key])
        return [(names[0] or names[1] or "", chosen[0], chosen[1])], []
    common = {name: key for name in left if (key := _key(right, name)) is not None}
    pairs = [(name, left[name], right[key]) for name, key in common.items()]
    return pairs, sorted({*left} - {*common}) + sorted({*right} - {*common.values()})


def _key(tensors: _Tensors, name: str) -> str | None:
    """Return the name of tensor `name` in a file, with or without `.weight`; None if the file lacks the tensor."""
    names = (name, f"{name}.weight", name.removesuffix(".weight"))
    return next((one for one in names if one in tensors), None)


def _line(row: Mapping[str, Any]) -> str:
    shape = " x ".join(map(str, row["shape"]))
    name = f"{row['tensor']}: " if row["tensor"] else ""
    if "other_shape" in row:
        return f"{name}shapes {shape} and {' x '.join(map(str, row['other_shape']))} differ"
    if not row["differ"]:
        return f"{name}{shape}, all {row['elements']} elements equal"
    first, values = ", ".join(map(str, row["first"])), row["values"]
    return (
        f"{name}{shape}, {row['differ']} of {row['elements']} elements differ, the first at ({first}): "
        f"{values[0]} and {values[1]}"
    )
