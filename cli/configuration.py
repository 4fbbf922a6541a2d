"""Which datapath is meant: a preset, a JSON file, and options that change their fields."""

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


#: Options that change one field, by the field.
_CHANGES = ("formats", "scales", "step_bytes", "alignment_bits", "mux", "rows", "columns", "cuts")


def words(text: str) -> tuple[str, ...]:
    """Read words with commas between."""
    return tuple(text.split(","))


def cuts(text: str) -> tuple[str, ...]:
    """Read pipeline registers with commas between, or none."""
    chosen = () if text == "none" else words(text)
    for word in chosen:
        if word not in CUTS:
            raise argparse.ArgumentTypeError(f"must be 'none' or among {', '.join(CUTS)}, with commas, not {text!r}")
    return tuple(cut for cut in CUTS if cut in chosen)


def add_datapath(parser: argparse.ArgumentParser, default: str | None = None, *, several: bool = False) -> None:
    """Add the options that say which datapath is meant, for :func:`datapath` to read, or several for :func:`datapaths`.

    Parameters
    ----------
    parser : ArgumentParser
        Of the command.
    default : str, optional
        Preset that is meant without any of them.
    several : bool
        Whether several presets may be named, and all are meant without any option.
    """
    group = parser.add_argument_group(
        "datapath", "a preset or a file, and what is changed of it; without either, what is not said has its default"
    )
    which = group.add_mutually_exclusive_group()
    if several:
        which.add_argument("--preset", nargs="+", choices=PRESETS, help="by name, several unchanged (default: all)")
    else:
        which.add_argument("--preset", choices=PRESETS, help="by name" + (f" (default {default})" if default else ""))
    which.add_argument(
        "--config", type=Path, metavar="FILE", help="a JSON object as `sptc presets --json` prints for each"
    )
    group.add_argument("--formats", type=words, metavar="LIST", help="element formats, with commas, as f16,e4m3")
    group.add_argument("--scales", type=words, metavar="LIST", help="block scale formats, with commas")
    size = group.add_mutually_exclusive_group()
    size.add_argument("--step-bytes", type=integer(1), metavar="N", help="bytes of A a cycle")
    size.add_argument("--products", type=integer(1), metavar="N", help="products a cycle of the widest format, instead")
    group.add_argument(
        "--alignment", type=integer(0), metavar="F", dest="alignment_bits", help="bits kept below the largest exponent"
    )
    group.add_argument("--mux", choices=MUXES, help="operand multiplexers")
    group.add_argument("--rows", type=integer(1), metavar="N", help="rows of units")
    group.add_argument("--columns", type=integer(1), metavar="N", help="columns of units")
    group.add_argument("--cuts", type=cuts, metavar="LIST", help="pipeline registers, with commas, or none")
    group.add_argument("--dense", action="store_true", help="without sparsity")
    parser.set_defaults(default_preset=default)


def datapath(options: argparse.Namespace) -> CoreConfig:
    """Return the datapath that the options of :func:`add_datapath` say.

    Raises
    ------
    Error
        They say none, or none that there can be.
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
    """Return the datapaths that the options of :func:`add_datapath` say, where they may be several; None if none.

    Raises
    ------
    Error
        As :func:`datapath`; or they change several at once.
    """
    names, changed = options.preset or [], bool(_changes(options) or options.products)
    if len(names) > 1 and changed:
        raise Error("options change one datapath, not several: name one --preset")
    if not changed and not options.config:
        return [PRESETS[name] for name in dict.fromkeys(names)] or None
    return [datapath(argparse.Namespace(**vars(options) | {"preset": names[0] if names else None}))]


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that options change, but for the number of products, which the others decide."""
    changes = {name: getattr(options, name) for name in _CHANGES if getattr(options, name) is not None}
    return changes | ({"sparse": False} if options.dense else {})


def read_configuration(path: Path) -> CoreConfig:
    """Read a configuration, as ``sptc presets --json`` prints one.

    Parameters
    ----------
    path : Path
        A JSON object with the fields of :class:`~sptc.rtl.config.CoreConfig`; what has a default may be left out, and
        the name of the file is that of the datapath if it has none.

    Raises
    ------
    FileError
        It cannot be read, or is no such object.
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
