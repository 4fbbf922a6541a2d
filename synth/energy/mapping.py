"""Map netlists to library cells, flat or module by module, and cache the results by content."""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from amaranth.hdl import Module, Signal

from ...infra.cache import recall, store
from ...infra.reading import parse_json
from ...infra.yosys import run_yosys
from ...rtl.config import CoreConfig
from ...rtl.convert import to_rtlil
from ...rtl.row import Row
from ...rtl.step import row_result_layout, row_step_layout
from ..liberty import Library
from ..netlist import TOP, Netlist
from ..price import versions
from ..recipe import Recipe
from .netlist import MappedNetlist

__all__ = ["mapped", "mapped_row"]

_MAPPED = "mapped.json"


def mapped_row(config: CoreConfig, library: Library, *, by_module: bool) -> MappedNetlist:
    """Return the netlist of a row (a metadata decoder and a dot-product unit), mapped to library cells.

    The netlist includes the registers at the pipeline cuts, but no registers in front of the row. Other parameters and
    errors are those of :func:`mapped`.
    """
    return mapped(_netlist(config), library, by_module=by_module)


def mapped(netlist: Netlist, library: Library, *, by_module: bool = True, boxes: Sequence[str] = ()) -> MappedNetlist:
    """Return a netlist mapped to library cells. Instances of the modules `boxes` are kept as black boxes.

    A library with empty text stands for static CMOS gates. With `by_module` each module is mapped separately, so that
    every cell has a stage; otherwise the flat netlist is mapped, as by ``sptc area``. Raise an `Error` if the library
    lacks a cell, and a `BackendError` if Yosys is not installed or fails.
    """
    recipe = Recipe(library=library if library.text else None, by_module=by_module)
    script = f"{recipe.mapping(netlist)}write_json {_MAPPED}\n"
    parts = [repr(versions()).encode(), script.encode(), *(data for _, data in sorted(recipe.files(netlist).items()))]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
    entry = f"synth/mapped-{digest.hexdigest()[:40]}.json"
    data = recall(entry)
    if data is None:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in recipe.files(netlist).items():
                (Path(folder) / name).write_bytes(content)
            run_yosys(Path(folder), script)
            module = json.loads((Path(folder) / _MAPPED).read_text(encoding="utf-8"))["modules"][TOP]
        data = json.dumps(module).encode()
        store(entry, data)
    return MappedNetlist.of(parse_json(data, entry), library, boxes)


def _netlist(config: CoreConfig) -> Netlist:
    """Return the netlist of a dot-product unit with decoder. Enable is constant, so no register feeds itself back."""
    m = Module()
    m.submodules.row = row = Row(replace(config, rows=1, columns=1))
    step = Signal(row_step_layout(config), name="step")
    result = Signal(row_result_layout(config), name="result")
    m.d.comb += [row.step.eq(step), row.enable.eq(1), result.eq(row.result)]
    return Netlist("row", to_rtlil(m, TOP, ports=[step.as_value(), result.as_value()]))
