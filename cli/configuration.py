"""Options that choose a datapath: a preset or a JSON file, and changes of configuration fields."""

import argparse
import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Error, FileError
from ..infra.escapes import NAME, fitted_name
from ..infra.reading import read_json
from ..rtl.config import PRESETS, CoreConfig, with_alignment
from .options import add, integer, refuse, switch, words

if TYPE_CHECKING:
    from ..synth.liberty import Library

__all__ = ["DATAPATH_OPTIONS", "add_datapath", "datapath", "datapaths", "library_of", "orders_of", "read_configuration"]

_TYPE_NAMES: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    tuple[str, ...]: "a list of strings",
}


#: Fields of a datapath configuration that have an option of the same name.
_CHANGES = ("formats", "scales", "step_bytes", "alignment_bits", "fp8_alignment_bits", "mux", "rows", "columns", "cuts")
#: Attributes of the parsed command line that the options of :func:`add_datapath` set.
DATAPATH_OPTIONS = ("preset", "config", *_CHANGES, "products", "dense")


def add_datapath(parser: argparse.ArgumentParser, default: str | None = None, *, several: bool = False) -> None:
    """Add the options that choose a datapath; :func:`datapath` or :func:`datapaths` evaluates these options.

    `default` is the preset that is used if no option is given. With `several`, ``--preset`` takes several names, and
    all presets are the default.
    """
    others = f"; without --formats, start from preset {default}" if default else ""
    group = parser.add_argument_group(
        "datapath",
        "Start from a preset or a configuration file, whose fields the other options change. Without a preset and a "
        f"file, --formats starts from the default of each field{others}.",
    )
    base = group.add_mutually_exclusive_group()
    if several:
        add(base, "preset", nargs="+", help="presets (default: all); give only one if other options change its fields")
    else:
        add(base, "preset", note=f" (default {default}, unless --formats is given)" if default else "")
    base.add_argument(
        "--config", type=Path, metavar="FILE", help="JSON file with a configuration, as `sptc config --json` prints it"
    )
    add(group, "formats")
    group.add_argument("--scales", type=words, metavar="LIST", help="comma-separated block scale formats")
    size = group.add_mutually_exclusive_group()
    add(size, "step_bytes")
    add(size, "products", help="number of products of the widest format per unit and cycle; sets --step-bytes")
    note = "; also applies to 8-bit floats, unless the datapath keeps fewer bits for 8-bit floats"
    add(group, "alignment", dest="alignment_bits", note=note)
    add(group, "fp8_alignment", dest="fp8_alignment_bits", help="alignment bits of 8-bit floats, at most --alignment")
    add(group, "mux")
    group.add_argument("--rows", type=integer(1), metavar="N", help="number of rows of dot-product units")
    group.add_argument("--columns", type=integer(1), metavar="N", help="number of columns of dot-product units")
    add(group, "cuts")
    switch(group, "--dense", "support only a dense A: remove the logic for a sparse A")
    parser.set_defaults(default_preset=default)


def datapath(options: argparse.Namespace) -> CoreConfig:
    """Return the datapath that the options of :func:`add_datapath` describe.

    Raise an `Error` if no option is given, the configuration is invalid, or does not serve ``--top``.
    """
    changes = _changes(options)
    preset = options.preset or (None if "formats" in changes else options.default_preset)
    if options.config:
        config = read_configuration(options.config)
    elif preset:
        config = PRESETS[preset]
    elif "formats" in changes:
        config = CoreConfig(name="own", formats=changes["formats"], scales=changes.get("scales", ()))
    else:
        raise Error("no datapath is given: add --preset NAME, --config FILE or --formats LIST")
    if options.alignment_bits is not None:
        changes = with_alignment(config, options.alignment_bits) | changes
    if options.products:
        widest = max(element.container_bits for element in replace(config, **changes).elements)
        if options.products * widest % 8:
            raise Error(
                f"--products {options.products}: {options.products} elements of {widest} bits do not fill whole bytes"
            )
        changes["step_bytes"] = options.products * widest // 8
    name = config.name if changes.keys() <= {"sparse"} else "own"
    config = replace(config, name=name, **changes)
    widths = [element.container_bits for element in config.elements if not element.format.is_integer]
    if not widths:
        refuse(options, ("alignment_bits", "fp8_alignment_bits"), "has no effect, because no format is a float")
    if 8 not in widths:
        refuse(options, ("fp8_alignment_bits",), "has no effect, because no format is an 8-bit float")
    if getattr(options, "top", None) not in (None, "unit", "row", "core"):
        config.require_warp()
    return config


def datapaths(options: argparse.Namespace) -> list[CoreConfig] | None:
    """Return the datapaths that the options of :func:`add_datapath` describe; None if no option is given.

    Raise an `Error` if the configuration is invalid, or options change several presets at once.
    """
    names, changed = options.preset or [], bool(_changes(options) or options.products)
    if len(names) > 1 and changed:
        raise Error("options that change a configuration need one preset: give --preset a single name")
    if not changed and not options.config:
        return [PRESETS[name] for name in dict.fromkeys(names)] or None
    return [datapath(argparse.Namespace(**vars(options) | {"preset": names[0] if names else None}))]


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration fields that options change, except `step_bytes` if ``--products`` sets it."""
    changes = {name: getattr(options, name) for name in _CHANGES if getattr(options, name) is not None}
    return changes | ({"sparse": False} if options.dense else {})


def read_configuration(path: Path) -> CoreConfig:
    """Read a datapath configuration from JSON in the form that ``sptc config --json`` prints.

    The file holds an object whose keys are fields of :class:`~sptc.rtl.config.CoreConfig`. Fields with a default may be
    missing. If `name` is missing, the datapath is named after the file, with underscores for characters that a name
    cannot contain. Raise a `FileError` if the file cannot be read, or does not hold such an object.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise FileError(f"{path} must hold a JSON object with the fields of a configuration")
    known = {field.name: field for field in fields(CoreConfig)}
    if unknown := [name for name in content if name not in known]:
        raise FileError(f"{path}: unknown field {unknown[0]!r}; the fields are {', '.join(known)}")
    values: dict[str, Any] = {"name": fitted_name(path.stem)} | content
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in values]:
        raise FileError(f"{path}: the field {missing[0]} is missing")
    for name, value in values.items():
        if not _fits(value, known[name].type):
            raise FileError(f"{path}: {name} must be {_TYPE_NAMES[known[name].type]}, not {json.dumps(value)}")
    if not NAME.fullmatch(values["name"]):
        raise FileError(
            f"{path}: name must be a letter or underscore and then up to 63 letters, digits, underscores and hyphens, "
            f"not {json.dumps(values['name'])}"
        )
    arguments: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in values.items()}
    try:
        return CoreConfig(**arguments)
    except Error as error:
        raise FileError(f"{path}: {error}") from None


def _fits(value: object, expected: object) -> bool:
    if expected == tuple[str, ...]:
        return isinstance(value, list) and all(isinstance(word, str) for word in value)
    return type(value) is expected


def orders_of(options: argparse.Namespace) -> int:
    """Return the number of port orders that ``--orders`` gives; several orders without ``--liberty`` are an `Error`."""
    if options.orders > 1 and not options.liberty:
        raise Error("--orders permutes the ports before mapping to a cell library: add --liberty FILE")
    return int(options.orders)


def library_of(options: argparse.Namespace) -> "Library | None":
    """Read the cell library that ``--liberty`` and ``--dont-use`` choose; None without ``--liberty``.

    Raise an `Error` if ``--dont-use`` is given without ``--liberty``, or a file cannot be used (:meth:`.Library.read`).
    """
    from ..synth.liberty import DONT_USE, Library

    if not options.liberty:
        if options.dont_use:
            raise Error("--dont-use needs a cell library: add --liberty FILE")
        return None
    patterns = DONT_USE if options.dont_use is None else [word for word in options.dont_use if word != "none"]
    return Library.read(*options.liberty, dont_use=patterns)
