"""Catalogue of all proved properties of the hardware, in the order of the datapath."""

from collections.abc import Sequence
from difflib import get_close_matches

from ..errors import Error
from .accumulators import ACCUMULATORS
from .alignment import ALIGNMENT
from .commits import COMMITS
from .fetch import FETCH
from .gathering import WARP
from .metadata import METADATA
from .operands import OPERANDS
from .properties import Property
from .reduction import REDUCTION
from .rounding import ROUNDING
from .routing import CORE
from .scaling import SCALING
from .selection import SELECTION
from .stages import UNIT
from .tcgen05_streams import TCGEN05  # TCGEN05 contains the formal properties of tcgen05.py and tcgen05_streams.py
from .tensor_core import TENSOR_CORE
from .tensor_operands import TENSOR_OPERANDS
from .validity import VALIDITY
from .warpgroup import WGMMA  # WGMMA contains the formal properties of wgmma.py and warpgroup.py

__all__ = ["PROPERTIES", "chosen"]

_ARITHMETIC = (*METADATA, *SELECTION, *OPERANDS, *SCALING, *ALIGNMENT, *REDUCTION, *ROUNDING, *UNIT)
_STREAMS = (*CORE, *WARP, *FETCH, *WGMMA, *TENSOR_CORE, *TCGEN05, *TENSOR_OPERANDS, *ACCUMULATORS, *COMMITS, *VALIDITY)
PROPERTIES: tuple[Property, ...] = (*_ARITHMETIC, *_STREAMS)


def chosen(words: Sequence[str]) -> list[Property]:
    """Return the properties whose names or topics are in `words`, or all properties if `words` is empty.

    Raise an `Error` for an unknown word, such as the name of a Verilog file.
    """
    names = [item.name for item in PROPERTIES]
    topics = list(dict.fromkeys(name.partition(".")[0] for name in names))
    for word in words:
        if word.endswith((".v", ".sv")):
            raise Error(
                f"{word!r} is not a property: `sptc prove` takes properties of sptc's own hardware, not Verilog files"
            )
        if word not in names and word not in topics:
            near = get_close_matches(word, [*names, *topics], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise Error(f"there is no property {word!r}{hint} (topics: {', '.join(topics)})")
    return [item for item in PROPERTIES if not words or item.name in words or item.name.partition(".")[0] in words]
