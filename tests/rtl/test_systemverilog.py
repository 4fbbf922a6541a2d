"""The SystemVerilog structures of ports fit the emitted module, and each of their fields has the right bits."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from sptc.infra.verilator import verilator as installed_verilator
from sptc.rtl.cells.described import DescribedLayout, DescribedSignature
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.emit import TOPS, emit, unit_of
from sptc.rtl.ports import Array, Structure, Type, ports
from sptc.rtl.step import unit_result_layout, unit_step_layout
from sptc.rtl.systemverilog import lines_of_ports, package

TINY = PRESETS["tiny"]
Done = subprocess.CompletedProcess[str]
#: Lint options: style warnings are off inside the emitted module, and on at its ports.
_STYLE = '`verilator_config\nlint_off -file "*emitted.v"\n'
#: Top-level modules with many arrays, and top-level modules without logic around a unit.
LARGE = ("warpgroup", "warpgroups", "tcgen05")
WITHOUT_PARTS = ("unit", "row")
#: Top-level modules: the quick tier lints only "core". Named arrays, as in warpgroups, abort Icarus Verilog 11.
LINTED = [pytest.param(top, marks=() if top == "core" else pytest.mark.regression) for top in TOPS]
WITHOUT_NAMED_ARRAYS = [top for top in LINTED if "warpgroup" not in str(top.values[0])]
COMBINATIONAL = replace(TINY, name="combinational", rows=1, columns=1, cuts=())


def verilator(folder: Path, *words: str) -> Done:
    tool = installed_verilator()
    command = [tool.program, *words]
    return subprocess.run(command, cwd=folder, env=tool.environment, capture_output=True, text=True, check=False)


@cache
def emitted(config: CoreConfig, top: str) -> str:
    """Return an emitted top-level module. If it contains dot-product units, these are replaced by a stub."""
    if top in WITHOUT_PARTS:
        return emit(config, top, "it")
    step, result = unit_step_layout(config).size, unit_result_layout().size
    ports = f"input [{step - 1}:0] step, input clk, input rst, input enable, output [{result - 1}:0] result"
    unit = f"module {unit_of('it')}({ports});\n  assign result = step[{result - 1}:0];\nendmodule\n"
    return emit(config, top, "it", with_unit=False) + unit


def lint(config: CoreConfig, top: str, folder: Path, of_package: CoreConfig | None = None) -> Done:
    """Lint a top-level module with its package, or with the package of another configuration."""
    (folder / "style.vlt").write_text(_STYLE)
    (folder / "emitted.v").write_text(emitted(config, top))
    (folder / "it_pkg.sv").write_text(package(of_package or config, top, "it"))
    files = ("style.vlt", "emitted.v", "it_pkg.sv")
    return verilator(folder, "--lint-only", "-Wall", "--top-module", "it_typed", *files)


@pytest.mark.parametrize("top", LINTED)
def test_structures_fit_the_module(top: str, tmp_path: Path) -> None:
    done = lint(TINY, top, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is missing: apt-get install iverilog")
@pytest.mark.parametrize("top", WITHOUT_NAMED_ARRAYS)
def test_icarus_accepts_the_package(top: str, tmp_path: Path) -> None:
    (tmp_path / "it.sv").write_text(package(TINY, top, "it"), encoding="utf-8")
    (tmp_path / "emitted.v").write_text(emitted(TINY, top), encoding="utf-8")
    words = ["iverilog", "-g2012", "-t", "null", "-s", "it_typed", "it.sv", "emitted.v"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_modules_without_registers_have_no_clock(tmp_path: Path) -> None:
    done = lint(COMBINATIONAL, "core", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for top in ("unit", "row", "core"):
        assert "clk" not in {port.name for port in ports(COMBINATIONAL, top)}, top


@pytest.mark.regression
def test_structures_of_other_datapaths(tmp_path: Path, rng: np.random.Generator) -> None:
    """The lint accepts a random preset for each small top-level module and for one large top-level module."""
    for top in (*(name for name in TOPS if name not in LARGE), str(rng.choice(LARGE))):
        preset = str(rng.choice([name for name in PRESETS if name != "tiny"]))
        done = lint(PRESETS[preset], top, tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), (top, preset)


def test_a_wrong_width_is_detected(tmp_path: Path) -> None:
    """The lint fails if the package has another step length than the module."""
    done = lint(TINY, "core", tmp_path, replace(TINY, step_bytes=32))
    assert done.returncode
    assert "WIDTHTRUNC" in done.stderr


def probes(kind: Type, path: str, low: int) -> Iterator[tuple[str, int, int, str]]:
    """Yield path, lowest bit, width and meaning of each field, and of the first and last element of each array."""
    if isinstance(kind, Structure):
        for field in kind.fields:
            yield f"{path}.{field.name}", low + field.low, field.type.width, field.meaning
            yield from probes(field.type, f"{path}.{field.name}", low + field.low)
    elif isinstance(kind, Array):
        for index in (0, kind.count - 1):
            yield f"{path}[{index}]", low + index * kind.element.width, kind.element.width, "element"
            yield from probes(kind.element, f"{path}[{index}]", low + index * kind.element.width)


def test_every_field_has_its_bits(tmp_path: Path, rng: np.random.Generator) -> None:
    """If a field of a structure is set to ones, the structure has ones in the bits of this field only."""
    lines: list[str] = []
    text = ""
    for top in rng.choice([*TOPS], 4, replace=False).tolist():
        text += package(TINY, top, top).partition("\nmodule")[0]
        for port in ports(TINY, top):
            if not isinstance(port.type, Structure | Array):
                continue
            width = port.type.width
            kind = re.sub(r"__\d+$", "_element", port.name).replace("__", "_")
            for path, low, bits, _ in probes(port.type, "v", 0):
                name, mask = f"f{len(lines)}", ((1 << bits) - 1) << low
                lines.append(
                    f"  function automatic [{width - 1}:0] {name}(input bit unused);\n"
                    f"    {top}_pkg::{kind}_t v; v = {width}'h0; {path} = {{{bits}{{1'b1}}}};\n"
                    f"    {name} = v;\n  endfunction\n"
                    f'  if ({name}(0) != {width}\'h{mask:x}) $error("{top} {port.name} {path}");'
                )
    (tmp_path / "probe.sv").write_text(f"{text}\nmodule probe;\n" + "\n".join(lines) + "\nendmodule\n")
    words = ("--lint-only", "-Wno-lint", "-Wno-ENUMVALUE", "-Wno-WIDTHCONCAT", "--top-module", "probe", "probe.sv")
    done = verilator(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert len(lines) > 100


def test_a_table_of_ports() -> None:
    lines = lines_of_ports(ports(TINY, "core"))
    assert lines[0].split() == ["port", "bits", "what", "meaning"]
    (code,) = (line for line in lines if line.split()[0] == "b" and "F16" in line)
    assert code.split()[1:6] == ["[7:4]", "0", "F16,", "1", "S8"]
    (metadata,) = (line for line in lines if line.split()[0] == "metadata")
    assert " ".join(metadata.split()).startswith("metadata [176:145] 1 x 32 bits Metadata nibbles of each row: ")
    numbered = lines_of_ports(ports(TINY, "warpgroup"))
    assert sum("memory__data" in line for line in numbered) == 1
    assert sum(line.split()[0] == "[0].illegal" for line in numbered) == 1


@pytest.mark.regression
def test_every_field_is_explained() -> None:
    for name, tops in (("tiny", TOPS), ("rtx-blackwell", ("unit", "row"))):
        for top in tops:
            for port in ports(PRESETS[name], top):
                assert port.meaning, port.name
                assert [path for path, *_, meaning in probes(port.type, port.name, 0) if not meaning] == []


def test_descriptions_of_fields_and_ports_change_no_layout() -> None:
    layout = DescribedLayout({"a": (3, "First."), "b": (1, "Second.")})
    assert layout == data.StructLayout({"a": 3, "b": 1})
    assert layout == DescribedLayout({"a": (3, ""), "b": (1, "")})
    assert layout != DescribedLayout({"a": (1, "First."), "b": (3, "Second.")})
    assert {name: meaning for name, (_, meaning) in layout.fields.items()} == {"a": "First.", "b": "Second."}
    signature = DescribedSignature({"a": (In(3), "First."), "b": (Out(1), "Second.")})
    assert signature == wiring.Signature({"a": In(3), "b": Out(1)})
    assert signature.flip() == DescribedSignature({"a": (Out(3), ""), "b": (In(1), "")})
    assert signature != DescribedSignature({"a": (Out(3), "First."), "b": (Out(1), "Second.")})
    assert signature.flip().meanings == {"a": "First.", "b": "Second."}
