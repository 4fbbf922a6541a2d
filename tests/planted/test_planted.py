"""Each planted fault changes an existing attribute, and is also active in processes that a test starts."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from sptc.sim.benches.blocks import _LARGEST
from sptc.tests.planted import ROOMS, faults
from sptc.tests.planted.table import FOUND, ROOT, read

FAULTS = {name: found for room in ROOMS for name, found in faults(room).items()}
#: Program that prints the share of stimulus blocks with only the largest products in a bench.
PROGRAM = "from sptc.sim.benches.blocks import _LARGEST; print(_LARGEST)"


def printed(name: str, program: str) -> str:
    """Return the output of a program that runs in a process with a planted fault, after an import of all faults."""
    environment = {**os.environ, "SPTC_PLANT": name}
    environment.pop("SPTC_PLANT_CACHE", None)
    words = [sys.executable, "-c", f"import subprocess, sys, sptc.tests.planted; {program}"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


def printed_by_another(name: str, program: str) -> str:
    """Return the output of a program that runs in a child of a process with a planted fault."""
    return printed(name, f"subprocess.run([sys.executable, '-c', {program!r}], check=True)")


def test_each_fault_changes_an_existing_attribute() -> None:
    for name, fault in FAULTS.items():
        with pytest.MonkeyPatch.context() as monkeypatch:
            changed = Recorded(monkeypatch)
            fault.plant(import_module(fault.module), changed.change)
        assert changed.attributes, name
        assert fault.mistake.endswith("."), name


def test_faults_use_names_that_their_modules_have() -> None:
    """A fault that raises an `AttributeError` would be detected by any test, whatever the test compares."""
    for path in Path(__file__).parent.glob("*.py"):
        for module, wrong in wrong_functions(ast.parse(path.read_text(encoding="utf-8"))):
            owner, changed = wrong.args.args[0].arg, import_module(f"sptc.{module}")
            for node in ast.walk(wrong):
                match node:
                    case ast.Attribute(ast.Name(name), attribute) if name == owner:
                        assert hasattr(changed, attribute), (path.name, module, attribute)


def wrong_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.Lambda]]:
    """Yield, for each fault that a file defines, the module that it changes and the wrong function."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(
                decorator_list=[ast.Call(ast.Name("fault" | "instead"), [_, ast.Constant(module), *_])]
            ):
                yield module, node
            case ast.Call(ast.Name("computes"), [_, ast.Constant(module), *_, ast.Lambda() as wrong]):
                yield module, wrong
            case ast.Tuple(
                [_, ast.Constant(module), *_, ast.Lambda(ast.arguments([], [_, ast.arg("right"), *_])) as wrong]
            ):
                yield module, wrong


def test_the_record_names_faults_and_tests_that_exist() -> None:
    """The record has an entry for every planted fault and no others, and each recorded test function exists."""
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
    """Sets attributes of objects until the end of a test, and records the names of these attributes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.attributes: list[str] = []

    def change(self, target: object, name: str, value: object) -> None:
        assert hasattr(target, name), (target, name)
        self.attributes.append(name)
        self._monkeypatch.setattr(target, name, value)


@pytest.mark.parametrize(("name", "share"), [("sim.blocks.largest", 0.0), ("sim.blocks.near", _LARGEST)])
def test_a_fault_is_active_in_started_processes(name: str, share: float) -> None:
    assert printed_by_another(name, PROGRAM) == f"{share}\n"


#: Program that installs an import hook in front of all others, as pytest does in simulators of benches.
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


def test_a_fault_is_planted_despite_other_import_hooks() -> None:
    assert printed_by_another("sim.blocks.largest", CLAIMED) == "0.0\n"


def test_a_planted_process_has_its_own_compiled_models() -> None:
    names = ("", "sim.blocks.largest", "rtl.order.dense", "rtl.order.dense")
    folders = [printed(name, "from sptc.infra.cache import cache_folder; print(cache_folder())") for name in names]
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3
