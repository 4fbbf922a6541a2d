"""The faults that can be planted, and how they reach a process."""

import os
import subprocess
import sys
from importlib import import_module

import pytest
from sptc.tests.planted import ROOMS, Fault, faults

FAULTS = {name: found for room in ROOMS for name, found in faults(room).items()}
#: Says, in a process that another one starts, which rows of B a nibble of the pair-wise granularity selects.
PROGRAM = """
import numpy as np
from sptc.golden.select import kept_rows
from sptc.isa.metadata import GRANULARITIES
print(kept_rows(np.array([[0b0100]], np.uint8), GRANULARITIES["4:8"]).tolist())
"""
STARTED = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PROGRAM!r}], check=True)"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_each_changes_what_its_module_has(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = []

    def change(target: object, name: str, value: object) -> None:
        assert hasattr(target, name)
        changed.append(name)
        monkeypatch.setattr(target, name, value)

    fault.plant(import_module(fault.module), change)
    assert changed
    assert fault.mistake.endswith(".")


def test_numbers() -> None:
    rooms = [fault.module.split(".")[1] for fault in FAULTS.values()]
    assert {room: rooms.count(room) for room in ROOMS} == {
        "rtl": 93,
        "golden": 8,
        "isa": 7,
        "verify": 3,
        "gemm": 5,
        "native": 21,
        "formal": 20,
        "sim": 43,
    }


@pytest.mark.parametrize(
    ("name", "rows"), [("golden.select.pairs", [[0, 2, 1, 3]]), ("golden.rounding.overflow", [[0, 1, 2, 3]])]
)
def test_a_fault_reaches_what_a_planted_process_starts(name: str, rows: list[list[int]]) -> None:
    program = f"import sptc.tests.planted; {STARTED}"
    environment = {**os.environ, "SPTC_PLANT": name}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{rows}\n"


#: What the simulators of benches do: who rewrites assertions comes first, and loads what it likes.
CLAIMED = f"""
import sys
from importlib.machinery import PathFinder
class First:
    @staticmethod
    def find_spec(name, path, target=None):
        return PathFinder.find_spec(name, path) if name.startswith("sptc.golden") else None
sys.meta_path.insert(0, First)
{PROGRAM}
"""


def test_a_fault_is_planted_whoever_loads_modules() -> None:
    program = f"import sptc.tests.planted; import subprocess, sys; subprocess.run([sys.executable, '-c', {CLAIMED!r}])"
    environment = {**os.environ, "SPTC_PLANT": "golden.select.pairs"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[[0, 2, 1, 3]]\n"


def test_compiled_models_of_a_planted_process_are_its_own() -> None:
    program = "import sptc.tests.planted; from sptc.infra.cache import cache_folder; print(cache_folder())"
    folders = []
    for name in ("", "golden.select.pairs", "rtl.order.dense", "rtl.order.dense"):
        environment = {**os.environ, "SPTC_PLANT": name}
        environment.pop("SPTC_PLANT_CACHE", None)
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        folders.append(done.stdout)
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3
