"""Proofs take no expected value from the hardware: they import only components, ports and configurations of ``rtl``."""

import ast
import inspect
from collections.abc import Iterator
from enum import EnumMeta
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
from amaranth.lib import data, wiring
from sptc.formal.catalogue import chosen
from sptc.formal.proof import settle
from sptc.formal.properties import cases
from sptc.rtl import multiply, slots, unpack, widths
from sptc.rtl.config import PRESETS

FORMAL = Path(__file__).parents[2] / "formal"
#: Module with the configurations of datapaths, which proofs may import.
CONFIGURATION = "sptc.rtl.config"
#: Function that converts a design to a netlist, which proofs may import.
WRITER = "to_rtlil"
#: Attribute in which a component stores the widths that the hardware has computed.
OWN_WIDTHS = "widths"


def is_allowed(module: str, name: str) -> bool:
    """Return whether proofs may import a name of ``rtl``: a configuration, component, enumeration or port layout."""
    if module == CONFIGURATION or name == WRITER:
        return True
    thing = getattr(import_module(module), name)
    if isinstance(thing, type):
        return issubclass(thing, wiring.Component) or isinstance(thing, EnumMeta)
    if not inspect.isfunction(thing):
        return False
    returned = get_type_hints(thing).get("return")
    return isinstance(returned, type) and issubclass(returned, (data.Layout, wiring.Signature))


def refused(source: str) -> Iterator[str]:
    """Yield the names that a file of ``formal`` takes from the hardware although they are not allowed."""
    has_components = "from ..rtl." in source
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and has_components and node.attr == OWN_WIDTHS:
            yield f".{OWN_WIDTHS} in line {node.lineno}"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("sptc"))
        elif isinstance(node, ast.ImportFrom) and node.level == 2:
            module = f"sptc.{node.module}" if node.module else "sptc"
            for name in (alias.name for alias in node.names):
                whole_module = module in ("sptc", "sptc.rtl")
                if whole_module or (module.startswith("sptc.rtl.") and not is_allowed(module, name)):
                    yield f"{module}.{name}"


@pytest.mark.parametrize("path", sorted(FORMAL.glob("*.py")), ids=lambda path: path.stem)
def test_a_proof_takes_no_answer_from_the_hardware(path: Path) -> None:
    assert [*refused(path.read_text(encoding="utf-8"))] == []


def test_imports_of_hardware_functions_are_detected() -> None:
    source = (FORMAL / "alignment.py").read_text(encoding="utf-8")
    for planted in (
        "from ..rtl.widths import Widths", "from ..rtl.slots import kept_bits", "from ..rtl import order",
        "from ..rtl.codes import ELEMENT_CODE_BITS", "import sptc.rtl.order", "bits = stage.widths.integer_bits",
    ):  # fmt: skip
        assert len([*refused(f"{source}\n{planted}\n")]) == 1, planted


def test_a_wrong_width_of_the_hardware_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the hardware keeps one bit less than F, its widths still match, but a proof against the numerics fails."""
    right = slots.kept_bits
    for module in (slots, widths, multiply, unpack):
        monkeypatch.setattr(module, "kept_bits", lambda config, element: right(config, element) - 1)
    of_floats, _ = cases(chosen(["alignment.terms"]), [PRESETS["tiny"]])
    assert settle(of_floats, None).result == "broken"
