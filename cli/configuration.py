"""Options that choose a datapath: a preset or a JSON file, and changes of single fields."""

import argparse
import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from ..errors import Error, FileError
from ..infra.reading import read_json
from ..rtl.config import CUTS, MUXES, PRESETS, CoreConfig
from .arguments import integer

__all__ = ["add_datapath", "cuts", "datapath", "datapaths", "read_configuration", "words"]

_WANTED: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    tuple[str, ...]: "a list of strings",
}


#: Fields that have an option of the same name.
_CHANGES = ("formats", "scales", "step_bytes", "alignment_bits", "mux", "rows", "columns", "cuts")


def words(text: str) -> tuple[str, ...]:
    """Parse comma-separated words."""
    return tuple(text.split(","))


def cuts(text: str) -> tuple[str, ...]:
    """Parse comma-separated pipeline cuts, or the word ``none``."""
    chosen = () if text == "none" else words(text)
    for word in chosen:
        if word not in CUTS:
            raise argparse.ArgumentTypeError(f"must be 'none' or among {', '.join(CUTS)}, with commas, not {text!r}")
    return tuple(cut for cut in CUTS if cut in chosen)


def add_datapath(parser: argparse.ArgumentParser, default: str | None = None, *, several: bool = False) -> None:
    """Add the options that choose a datapath, which :func:`datapath` or :func:`datapaths` reads.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    default : str, optional
        Preset that is used if no option is given.
    several : bool
        Whether ``--preset`` takes several names. All presets are then the default.
    """
    group = parser.add_argument_group(
        "datapath",
        "A preset or a file, and options that change single fields of it. Without both, fields without an option have "
        "their default.",
    )
    which = group.add_mutually_exclusive_group()
    if several:
        which.add_argument(
            "--preset", nargs="+", choices=PRESETS, help="presets (default: all); only one can be changed"
        )
    else:
        which.add_argument("--preset", choices=PRESETS, help="preset" + (f" (default {default})" if default else ""))
    which.add_argument(
        "--config", type=Path, metavar="FILE", help="JSON object with the fields that `sptc presets --json` prints"
    )
    group.add_argument("--formats", type=words, metavar="LIST", help="comma-separated element formats, e.g. f16,e4m3")
    group.add_argument("--scales", type=words, metavar="LIST", help="comma-separated block scale formats")
    size = group.add_mutually_exclusive_group()
    size.add_argument("--step-bytes", type=integer(1), metavar="N", help="bytes of stored A per unit and cycle")
    size.add_argument(
        "--products",
        type=integer(1),
        metavar="N",
        help="products of the widest format per unit and cycle, instead of --step-bytes",
    )
    group.add_argument(
        "--alignment", type=integer(0), metavar="F", dest="alignment_bits", help="alignment bits: bits kept below 2**E"
    )
    group.add_argument("--mux", choices=MUXES, help="operand multiplexers of the units")
    group.add_argument("--rows", type=integer(1), metavar="N", help="rows of units in the array")
    group.add_argument("--columns", type=integer(1), metavar="N", help="columns of units in the array")
    group.add_argument(
        "--cuts", type=cuts, metavar="LIST", help="comma-separated cuts that have a pipeline register, or none"
    )
    group.add_argument("--dense", action="store_true", help="remove the support of sparsity")
    parser.set_defaults(default_preset=default)


def datapath(options: argparse.Namespace) -> CoreConfig:
    """Return the datapath that the options of :func:`add_datapath` describe.

    Raises
    ------
    Error
        No option is given, or the configuration is invalid.
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
        raise Error("which datapath: add --preset NAME, --config FILE or --formats LIST")
    if options.products:
        widest = max(element.container_bits for element in replace(config, **changes).elements)
        if options.products * widest % 8:
            raise Error(f"--products {options.products} of {widest} bits are no whole bytes")
        changes["step_bytes"] = options.products * widest // 8
    name = config.name if changes.keys() <= {"sparse"} else "own"
    return replace(config, name=name, **changes)


def datapaths(options: argparse.Namespace) -> list[CoreConfig] | None:
    """Return the datapaths that the options of :func:`add_datapath` describe, None if no option is given.

    Raises
    ------
    Error
        The configuration is invalid, or options change several presets at once.
    """
    names, changed = options.preset or [], bool(_changes(options) or options.products)
    if len(names) > 1 and changed:
        raise Error("options change one datapath, not several: name one --preset")
    if not changed and not options.config:
        return [PRESETS[name] for name in dict.fromkeys(names)] or None
    return [datapath(argparse.Namespace(**vars(options) | {"preset": names[0] if names else None}))]


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that options change, except `step_bytes` of ``--products``, which depends on the others."""
    changes = {name: getattr(options, name) for name in _CHANGES if getattr(options, name) is not None}
    return changes | ({"sparse": False} if options.dense else {})


def read_configuration(path: Path) -> CoreConfig:
    """Read a configuration in the form that ``sptc presets --json`` prints.

    Parameters
    ----------
    path : Path
        JSON file with an object whose keys are fields of :class:`~sptc.rtl.config.CoreConfig`. Fields with a default
        may be missing. If `name` is missing, the datapath is named after the file.

    Raises
    ------
    FileError
        The file cannot be read, or does not hold such an object.
    """
    read = read_json(path)
    if not isinstance(read, dict):
        raise FileError(f"{path} must hold a JSON object with the fields of a configuration")
    known = {field.name: field for field in fields(CoreConfig)}
    if unknown := [name for name in read if name not in known]:
        raise FileError(f"{path}: there is no field {unknown[0]!r}; there are {', '.join(known)}")
    values: dict[str, Any] = {"name": path.stem} | read
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in values]:
        raise FileError(f"{path}: the field {missing[0]} is missing")
    for name, value in values.items():
        if not _fits(value, known[name].type):
            raise FileError(f"{path}: {name} must be {_WANTED[known[name].type]}, not {json.dumps(value)}")
    arguments: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in values.items()}
    try:
        return CoreConfig(**arguments)
    except Error as error:
        raise FileError(f"{path}: {error}") from None


def _fits(value: object, wanted: object) -> bool:
    if wanted == tuple[str, ...]:
        return isinstance(value, list) and all(isinstance(word, str) for word in value)
    return type(value) is wanted
