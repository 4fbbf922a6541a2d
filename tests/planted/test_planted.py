"""Planted faults: each changes an existing attribute, and reaches started processes."""

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from sptc.sim.benches.blocks import _LARGEST
from sptc.tests.planted import ROOMS, faults
from sptc.tests.planted.table import FOUND, ROOT, read

FAULTS = {name: found for room in ROOMS for name, found in faults(room).items()}
#: Program that prints the share of large blocks in a bench, run by a process that another process starts.
PROGRAM = "from sptc.sim.benches.blocks import _LARGEST; print(_LARGEST)"
STARTED = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PROGRAM!r}], check=True)"


def test_each_changes_what_its_module_has() -> None:
    for name, fault in FAULTS.items():
        with pytest.MonkeyPatch.context() as monkeypatch:
            changed = Recorded(monkeypatch)
            fault.plant(import_module(fault.module), changed.change)
        assert changed.attributes, name
        assert fault.mistake.endswith("."), name


def test_the_record_names_faults_and_tests_that_exist() -> None:
    """The record has exactly the planted faults, and the test function of each exists."""
    record = read(FOUND)
    assert record.keys() == FAULTS.keys()
    functions: dict[Path, set[str]] = {}
    for name, found in record.items():
        file, _, test = (found.test or "").partition("::")
        path = ROOT / file
        assert path.is_file(), (name, found.test)
        if path not in functions:
            body = ast.parse(path.read_text(encoding="utf-8")).body
            functions[path] = {node.name for node in body if isinstance(node, ast.FunctionDef)}
        assert test.partition("[")[0] in functions[path], (name, found.test)


class Recorded:
    """Sets attributes until the end of a test, and records their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.attributes: list[str] = []

    def change(self, target: object, name: str, value: object) -> None:
        assert hasattr(target, name), (target, name)
        self.attributes.append(name)
        self._monkeypatch.setattr(target, name, value)


@pytest.mark.parametrize(("name", "share"), [("sim.blocks.largest", 0.0), ("sim.blocks.near", _LARGEST)])
def test_a_fault_reaches_what_a_planted_process_starts(name: str, share: float) -> None:
    program = f"import sptc.tests.planted; {STARTED}"
    environment = {**os.environ, "SPTC_PLANT": name}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{share}\n"


#: Program with an import hook in front of all others, as pytest installs one in simulators of benches.
CLAIMED = f"""
import sys
from importlib.machinery import PathFinder
class First:
    @staticmethod
    def find_spec(name, path, target=None):
        return PathFinder.find_spec(name, path) if name.startswith("sptc.sim") else None
sys.meta_path.insert(0, First)
{PROGRAM}
"""


def test_a_fault_is_planted_whoever_loads_modules() -> None:
    program = f"import sptc.tests.planted; import subprocess, sys; subprocess.run([sys.executable, '-c', {CLAIMED!r}])"
    environment = {**os.environ, "SPTC_PLANT": "sim.blocks.largest"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0.0\n"


def test_compiled_models_of_a_planted_process_are_its_own() -> None:
    program = "import sptc.tests.planted; from sptc.infra.cache import cache_folder; print(cache_folder())"
    folders = []
    for name in ("", "sim.blocks.largest", "rtl.order.dense", "rtl.order.dense"):
        environment = {**os.environ, "SPTC_PLANT": name}
        environment.pop("SPTC_PLANT_CACHE", None)
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        folders.append(done.stdout)
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3
