"""Each property sees a fault planted in the source of the design: the command says so, and with which values."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from sptc.formal.catalogue import PROPERTIES

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "formal", "golden", "isa", "rtl", "sim", "synth")


@dataclass(frozen=True)
class Plant:
    """A line of the design, what is put in its place, and on which datapath that shows."""

    file: str
    right: str
    wrong: str
    preset: str = "tiny"


PLANTS = {
    "metadata.legal": Plant(
        "rtl/metadata.py", "for nibble in nibbles).any()", "for nibble in [*nibbles, 0b1010]).any()"
    ),
    "metadata.selects": Plant("rtl/metadata.py", "_one_hot(self.index1)", "_one_hot(self.index0)"),
    "metadata.exchange": Plant("rtl/metadata.py", "(n[0] & ~n[3]) | (n[1] & ~n[2])", "(n[0] & ~n[3])", "blackwell"),
    "metadata.chunk": Plant(
        "rtl/select.py", "self.nibbles.word_select(lane, 4)", "self.nibbles.word_select(max(lane, 1), 4)"
    ),
    "selection.units": Plant("rtl/select.py", "~(even | odd)", "~even"),
    "selection.isolation": Plant("rtl/select.py", "~(even | odd)", "~(even | odd | self.units[1][0])"),
    "selection.tf32": Plant("rtl/metadata.py", "Mux(self.swap, i0, i1)", "Mux(self.swap, i0, i1 & 2)"),
    "selection.step": Plant(
        "rtl/select.py",
        "self.b.word_select(group, UNITS_PER_CHUNK * parts * unit_bits)",
        "self.b.word_select(max(group, 1), UNITS_PER_CHUNK * parts * unit_bits)",
    ),
    "operands.unpack": Plant("rtl/unpack.py", "raw.exponent.eq(exponent | ~hidden)", "raw.exponent.eq(exponent)"),
    "operands.accumulator": Plant("rtl/unpack.py", "self.inf.eq(special & ~fraction.any())", "self.inf.eq(special)"),
    "operands.multiply": Plant("rtl/multiply.py", "a.special & (a.nan | b.zero)", "a.special & a.nan"),
    "operands.exact": Plant("rtl/booth.py", "negation.eq(negative & ~magnitude[0])", "negation.eq(negative)"),
    "operands.products": Plant(
        "rtl/unpack.py", "sign.replicate(width - len(bits))", "Const(0).replicate(width - len(bits))", "ampere"
    ),
    "scaling.offset": Plant(
        "rtl/scale.py", "self._bias(m, self.a) + self._bias(m, self.b)", "self._bias(m, self.a) + self._bias(m, self.a)"
    ),
    "scaling.group": Plant(
        "rtl/scale.py", "nan = Mux(small, code[:7].all(), nan)", "nan = Mux(small, code.all(), nan)", "blackwell"
    ),
    "alignment.maximum": Plant(
        "rtl/align.py", "Mux(right > left, right, left)", "Mux(right[:10] > left[:10], right, left)"
    ),
    "alignment.shift": Plant(
        "rtl/align.py", "self.distance[amount_bits:].any()", "self.distance[amount_bits + 1 :].any()"
    ),
    "alignment.largest": Plant(
        "rtl/products.py", "Mux(product.zero | packed, 0, product.exponent)", "Mux(packed, 0, product.exponent)"
    ),
    "alignment.terms": Plant("rtl/terms.py", " | of_products[bits:].any().replicate(bits)", ""),
    "reduction.tree": Plant(
        "rtl/reduce.py", "(first & second) | (third & (first | second))", "(first & second) | (third & first)"
    ),
    "reduction.adder": Plant("rtl/adder.py", "makes | (passes & carry)", "makes | passes"),
    "reduction.group": Plant(
        "rtl/group.py", "tree.increments.eq(self.signs)", "tree.increments.eq(self.signs[:-1])", "ampere"
    ),
    "reduction.width": Plant("rtl/widths.py", "bound.bit_length() + 1", "bound.bit_length() - 1"),
    "rounding.truncation": Plant("rtl/round.py", "self.headroom + 1 - shift, 0)", "self.headroom - shift, 0)"),
    "rounding.nearest": Plant("rtl/round.py", "guard & (sticky | odd))", "guard)"),
    "rounding.specials": Plant("rtl/round.py", "self.nan | (self.positive_inf & self.negative_inf)", "self.nan"),
    "rounding.integers": Plant("rtl/round.py", "| ~value[31:].any()", "| ~value[32:].any()"),
    "unit.floats": Plant("rtl/terms.py", "negative = self.i.c_sign & ~integer", "negative = Const(0)"),
    "unit.integers": Plant("rtl/dot_product.py", "Cat(step.c, step.c[-1] ^ step.overflow)", "Cat(step.c, step.c[-1])"),
    "core.order": Plant("rtl/core.py", "self.o.ready | ~self.o.valid", "self.o.ready | ~self.o.valid | self.i.valid"),
    "core.reset": Plant("rtl/core.py", "Signal(config.latency)", "Signal(config.latency, reset_less=True)"),
    "warp.order": Plant("rtl/warp.py", "core.o.ready.eq(~full | self.o.ready)", "core.o.ready.eq(1)"),
    "warp.reset": Plant("rtl/warp.py", "busy = Signal()", "busy = Signal(reset_less=True)"),
    "tensor_memory.registers": Plant(
        "rtl/tensor_memory.py",
        "request.scale_b_column + request.panel[2:]",
        "request.scale_b_column + request.panel[3:]",
    ),
    "tensor_memory.order": Plant(
        "rtl/reads.py",
        "(~(self.arriving & arriving_last) & (~full | self.o_ready))",
        "~(self.arriving & arriving_last)",
    ),
    "fetch.address": Plant(
        "rtl/fetch.py",
        "(linear[3:6] - descriptor.base_offset)",
        "(linear[3:6] + descriptor.base_offset)",
    ),
    "fetch.panel": Plant(
        "rtl/reads.py",
        "(~(self.arriving & arriving_last) & (~full | self.o_ready))",
        "(~full | self.o_ready)",
    ),
    "wgmma.order": Plant("rtl/wgmma.py", "Cat(wanted_of_a == 1, held.warp)", "Cat(wanted_of_a == 2, held.warp)"),
}


def copied(folder: Path) -> Path:
    """Copy the package's source into a folder and return its place."""
    package = folder / "sptc"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.py"):
        shutil.copy(path, package)
    return package


def prove(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sptc", "prove", *words]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_there_is_a_fault_for_each() -> None:
    assert PLANTS.keys() == {item.name for item in PROPERTIES}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_seen(name: str, tmp_path: Path) -> None:
    plant = PLANTS[name]
    path = copied(tmp_path) / plant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(plant.right) == 1
    path.write_text(text.replace(plant.right, plant.wrong), encoding="utf-8")
    done = prove(tmp_path, name, "--preset", plant.preset, "--jobs", "1", "--json", "--trace", "waves")
    assert (done.returncode, done.stderr) == (1, "")
    broken = [row for row in json.loads(done.stdout)["proofs"] if row["result"] == "broken"]
    assert broken
    for row in broken:
        assert row["property"] == name
        assert row["broken"]
        assert row["counterexample"][-1]
        assert (tmp_path / row["trace"]).read_text(encoding="ascii").startswith("$")


def test_a_copy_without_a_fault_is_proved(tmp_path: Path) -> None:
    copied(tmp_path)
    done = prove(tmp_path, "metadata.legal", "--preset", "tiny")
    assert (done.returncode, done.stderr) == (0, "")
