"""The plan of the house: who may import whom, what `import sptc` costs, and how files are kept."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("isa", "golden", "tensors", "rtl", "gpu", "sim", "formal", "synth", "cli")
STANDARD = set(sys.stdlib_module_names)
LONGEST = 500


def python_files(folder: Path) -> list[Path]:
    """Python files below a folder, without hidden folders, environments and build products."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if not any(part.startswith(".") or part in ("build", "dist", "__pycache__") for part in parts):
            found.append(path)
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("sptc", *parts)).removesuffix(".__init__")


def imports(text: str, module: str, is_package: bool) -> set[str]:
    """Return the absolute names of all that a source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")
                above = above[: len(above) - node.level + is_package]
                base = ".".join([*above, *([base] if base else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def imports_of(path: Path) -> set[str]:
    return imports(path.read_text(encoding="utf-8"), module_name(path), path.name == "__init__.py")


def floor(name: str) -> str:
    """Return what an import is charged to: `sptc.isa.formats.Format` to `sptc.isa`, `numpy.typing` to `numpy`."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "sptc" else parts[0]


def floors_of(folder: str) -> dict[str, set[str]]:
    """Return what each file of a floor imports, without the standard library and its own floor."""
    own = STANDARD | {f"sptc.{folder}"}
    return {
        path.relative_to(ROOT).as_posix(): {floor(name) for name in imports_of(path)} - own
        for path in python_files(ROOT / folder)
    }


def strangers(folder: str, allowed: set[str]) -> dict[str, set[str]]:
    return {path: names - allowed for path, names in floors_of(folder).items() if names - allowed}


def test_the_reader_of_imports_sees_every_form() -> None:
    text = (
        "import numpy.typing\nfrom amaranth.hdl import Signal\nfrom .. import golden, errors\n"
        "from ..golden.decode import decode\nfrom .formats import Format\nfrom . import memory\n"
        "def late():\n    from ..cli import main\nif TYPE_CHECKING:\n    import sptc.rtl.core\n"
    )
    assert imports(text, "sptc.isa.thing", is_package=False) == {
        "numpy.typing",
        "amaranth.hdl.Signal",
        "sptc.golden",
        "sptc.errors",
        "sptc.golden.decode.decode",
        "sptc.isa.formats.Format",
        "sptc.isa.memory",
        "sptc.cli.main",
        "sptc.rtl.core",
    }
    assert imports("from .main import main", "sptc.cli", is_package=True) == {"sptc.cli.main.main"}
    assert imports("from .errors import Error", "sptc", is_package=True) == {"sptc.errors.Error"}
    assert imports("from . import golden", "sptc.operations", is_package=False) == {"sptc.golden"}
    assert [floor(name) for name in ("sptc.isa.formats.Format", "numpy.typing", "sptc.errors")] == [
        "sptc.isa",
        "numpy",
        "sptc.errors",
    ]


def test_the_floors_are_there() -> None:
    for name in ("isa", "golden", "sim", "formal", "synth", "cli"):
        assert len(floors_of(name)) > 1


def test_isa_stands_on_nothing() -> None:
    """Index maps are numpy arrays; nothing of ours computes below, and no hardware language."""
    assert strangers("isa", {"sptc.errors", "numpy"}) == {}


def test_golden_stands_on_isa_alone() -> None:
    assert strangers("golden", {"sptc.isa", "sptc.errors", "numpy"}) == {}


def test_the_gpu_knows_only_instructions() -> None:
    """It is the third answer, and CuPy is imported when it is asked."""
    assert strangers("gpu", {"sptc.isa", "sptc.errors", "numpy"}) == {}


def test_tensors_stand_on_golden() -> None:
    """They need no hardware, and no simulator."""
    own = {"sptc.isa", "sptc.golden", "sptc.errors", "sptc.files"}
    assert strangers("tensors", own | {"numpy", "ml_dtypes", "safetensors"}) == {}


def test_two_independent_answers() -> None:
    """The hardware never sees the golden model, nor the golden model the hardware."""
    assert not [path for path, names in floors_of("rtl").items() if "sptc.golden" in names]
    assert not [path for path, names in floors_of("golden").items() if names & {"sptc.rtl", "amaranth"}]


def test_proofs_speak_of_the_hardware_alone() -> None:
    """A property states what is right in its own words: neither the golden model nor a bench says it for it."""
    allowed = {"sptc.isa", "sptc.rtl", "sptc.errors", "sptc.yosys", "amaranth", "numpy", "vcd"}
    assert strangers("formal", allowed) == {}


def test_synthesis_speaks_of_the_hardware_alone() -> None:
    """It needs no simulator and no expected result."""
    own = {"sptc.isa", "sptc.rtl", "sptc.errors", "sptc.files", "sptc.pools", "sptc.yosys", "sptc.__version__"}
    assert strangers("synth", own | {"amaranth"}) == {}


def test_nothing_imports_the_command_line() -> None:
    """Apart from itself and `python -m sptc`."""
    for path in python_files(ROOT):
        place = path.relative_to(ROOT)
        if place.parts[0] not in ("cli", "tests") and place.name != "__main__.py":
            assert "sptc.cli" not in {floor(name) for name in imports_of(path)}, place.as_posix()


def test_nothing_imports_a_test() -> None:
    for path in python_files(ROOT):
        if path.relative_to(ROOT).parts[0] != "tests":
            names = imports_of(path)
            assert not {floor(name) for name in names} & {"sptc.tests", "tests", "pytest", "hypothesis"}, path.name


def test_the_package_imports_itself_relatively() -> None:
    """Readers, type checkers and tools can follow a relative import whatever the folder is called."""
    inside = [*ROOT.glob("*.py"), *(path for name in FLOORS for path in python_files(ROOT / name))]
    for path in inside:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] == "sptc" for alias in node.names), path.name
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").split(".")[0] != "sptc", path.name


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    program = "import sys, json, sptc; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    loaded = set(json.loads(output.stdout))
    assert {"sptc", "sptc.golden", "numpy"} <= loaded
    assert not loaded & {"amaranth", "cocotb", "torch", "tqdm", "hypothesis", "pytest", "ml_dtypes", "sptc.cli"}


def test_no_file_is_too_long() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(ROOT)
    }
    assert "operations.py" in lengths
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}


PUBLIC = [path for name in FLOORS for path in python_files(ROOT / name)] + [
    path for path in ROOT.glob("*.py") if not path.name.startswith("__")
]


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_is_public_is_documented(path: Path) -> None:
    """The module has a docstring and lists its names; each exists, and its functions and classes have docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    definitions, names, exported = {}, set(), None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            definitions[node.name] = ast.get_docstring(node)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [
                part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])
            ]
            names |= {part.id for part in parts if isinstance(part, ast.Name)}
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                assert node.value
                exported = ast.literal_eval(node.value)
    if exported is None:
        assert path.name == "__init__.py", "no __all__"
        exported = []
    assert len(set(exported)) == len(exported)
    assert set(exported) <= names | definitions.keys()
    assert [name for name in exported if name in definitions and not definitions[name]] == []
