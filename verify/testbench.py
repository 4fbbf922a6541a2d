"""SystemVerilog testbenches (Icarus Verilog, Verilator) that apply test vectors to an emitted top-level module.

A testbench is the template ``testbench.sv.jinja`` beside this file, filled with names and widths.
The template has no array parameters and no ``break``, which Icarus 11 does not support, and its own random numbers,
because those of Icarus differ from those of Verilator.
"""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..rtl.config import CoreConfig
from ..rtl.emit import emit, module_name
from ..sim.benches.systemverilog import ALIKE, units_alike
from .vector_levels import Table

__all__ = ["BENCH", "bench_files"]

#: Name of the testbench module and of its file.
BENCH = "tb"
_UNITS = "units.vlt"
_OPTIONS = "--binary --timing -Wno-fatal -Wno-lint -CFLAGS -std=gnu++20 -MAKEFLAGS CFG_CXXFLAGS_PCH_I=-include"


def bench_files(config: CoreConfig, top: str, tables: Sequence[Table], seed: int) -> dict[str, str]:
    """Return the files of a testbench as text, by name: the emitted top-level module, and the testbench that drives it.

    `top` is ``unit``, ``row`` or ``warp``. `tables` are the tables of inputs and of expected outputs, which the
    testbench reads from files of the same names. `seed` determines random gaps of inputs and stalls of outputs.
    """
    inputs, results = tables
    design = module_name(config, top)
    rows, columns, steps = (1, 1, 1) if top == "warp" else inputs.shape[1:]
    streams = top == "warp"
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    text = environment.get_template("testbench.sv.jinja").render(
        columns=columns,
        config=config,
        design=design,
        inputs=inputs,
        options=" ".join([_OPTIONS, *ALIKE, _UNITS]) if streams else _OPTIONS,
        results=results,
        rows=rows,
        state=seed % ((1 << 32) - 1) + 1,
        steps=steps,
        top=top,
    )
    files = {f"{design}.v": emit(config, top, design), f"{BENCH}.sv": text}
    return files | {_UNITS: units_alike(design)} if streams else files
