"""Interface of a row (dot-product unit) for software: bit positions of fields, control codes, operand orders.

The RTL in Amaranth defines this interface, but importing Amaranth takes most of the start-up time. So the interface is
cached, and a process that only runs a compiled row does not import Amaranth.
"""

import json
from dataclasses import asdict, dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from sys import modules
from typing import NamedTuple

from ...errors import FileError
from ...infra.cache import recall, store
from ...infra.reading import parse_json
from ...rtl.config import CoreConfig
from .fingerprint import hardware_fingerprint, require_hashed_hardware

__all__ = ["Field", "RowInterface", "row_interface"]

#: Source text of this module at import time, a part of the cache key of a dot-product unit's interface.
_WRITTEN = Path(__file__).read_text(encoding="utf-8")


class Field(NamedTuple):
    """Position of a bit field in a word: its lowest bit and its width in bits."""

    offset: int
    width: int


@dataclass(frozen=True)
class RowInterface:
    """Layouts, codes and operand orders with which software packs inputs of a dot-product unit and unpacks results."""

    #: Bit fields of the layouts :func:`~sptc.rtl.step.row_step_layout` (`step`),
    #: :func:`~sptc.rtl.step.row_result_layout` (`result`) and :func:`~sptc.rtl.step.control_layout` (`control`).
    step: dict[str, Field]
    result: dict[str, Field]
    control: dict[str, Field]
    #: Codes of the enumeration fields of the control word. Keys: name of the field, then name of the code.
    codes: dict[str, dict[str, int]]
    dense_nibble: int  #: Metadata nibble of every chunk in a dense step
    #: For each byte at the B input of a unit, its source byte in the column of B, as :func:`~sptc.rtl.order.byte_order`
    #: returns them; indexed by `wide`, then by `sparse`.
    byte_order: list[list[list[int | None]]]
    #: For each value of `wide`: index along K of each metadata decoder's nibble (:func:`~sptc.rtl.order.nibble_order`)
    nibble_order: list[list[int]]


@lru_cache(maxsize=64)
def row_interface(config: CoreConfig) -> RowInterface:
    """Return the interface of a dot-product unit: from the RTL if Amaranth is already imported, else from the cache.

    Raise a `BackendError` if another user could have written the cache entry, or the hardware's sources have changed
    since the process began.
    """
    if "amaranth" in modules:
        return _of_hardware(config)
    entry = f"row-{hardware_fingerprint(config, _WRITTEN)}.json"
    data = recall(entry)
    interface = None if data is None else _read(data, entry)
    if interface is None:
        require_hashed_hardware()
        interface = _of_hardware(config)
        store(entry, json.dumps(asdict(interface)).encode())
    return interface


def _read(data: bytes, entry: str) -> RowInterface | None:
    """Return the dot-product unit's interface stored in a cache entry, or None if the entry is damaged."""
    try:
        fields = parse_json(data, entry)
        for layout in ("step", "result", "control"):
            fields[layout] = {name: Field(*place) for name, place in fields[layout].items()}
        return RowInterface(**fields)
    except (FileError, AttributeError, KeyError, TypeError):
        return None


def _of_hardware(config: CoreConfig) -> RowInterface:
    from ...rtl.metadata import RuleCode
    from ...rtl.order import DENSE_NIBBLE, byte_order, nibble_order
    from ...rtl.round import ResultCode
    from ...rtl.scale import ScaleCode
    from ...rtl.step import control_layout, row_result_layout, row_step_layout

    step, result, control = (
        {str(name): Field(field.offset, field.width) for name, field in layout}
        for layout in (row_step_layout(config), row_result_layout(config), control_layout())
    )
    enumerations: dict[str, type[Enum]] = {"result": ResultCode, "rule": RuleCode, "scale": ScaleCode}
    return RowInterface(
        step=step,
        result=result,
        control=control,
        codes={field: {code.name: code.value for code in codes} for field, codes in enumerations.items()},
        dense_nibble=DENSE_NIBBLE,
        byte_order=[
            [byte_order(config, wide=wide, sparse=sparse) for sparse in (False, True)] for wide in (False, True)
        ],
        nibble_order=[nibble_order(config, wide=wide) for wide in (False, True)],
    )
