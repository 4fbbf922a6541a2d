"""A datapath of the user's own, read from a JSON file."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ..errors import Error, FileError
from ..infra.reading import read_json
from ..rtl.config import CoreConfig

__all__ = ["read_configuration"]

_WANTED: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    tuple[str, ...]: "a list of strings",
}


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
