"""The package keeps its rules for imports, for modules that `import sptc` loads, and for files and docstrings."""

import ast
import inspect
import json
import pydoc
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest
import sptc
from sptc.gemm import multiply

ROOT = Path(__file__).parents[1]
#: Subpackages ("rooms") by layer, the lowest first. Each imports only its own layer and lower ones, without cycles.
FLOORS = (
    "infra", "isa", "operands", "golden rtl tensors", "sim formal synth native gpu", "api", "gemm kernels",
    "verify show", "cli",
)  # fmt: skip
#: Subpackages and other packages that each subpackage may import. A nested subpackage is written with a slash.
MAY_IMPORT = {
    "infra": "errors numpy filelock platformdirs tqdm",
    "isa": "errors numpy",
    "operands": "isa errors numpy",
    "golden": "isa errors numpy",
    "rtl/cells": "isa amaranth",
    "rtl": "rtl/cells isa infra errors amaranth",
    "gpu": "isa errors numpy",
    "native": "isa infra errors numpy",
    "tensors": "golden operands isa infra errors numpy ml_dtypes safetensors",
    "sim/engine": "rtl/cells rtl isa infra errors numpy amaranth vcd",
    "sim/coverage": "sim/engine golden rtl isa infra errors numpy amaranth",
    "sim/benches": "sim/coverage sim/engine native golden operands rtl/cells rtl isa infra errors numpy amaranth "
    "cocotb cocotb_tools",
    "sim/faults": "sim/benches sim/coverage sim/engine golden rtl isa infra errors numpy amaranth",
    "sim": "",
    "api": "sim/engine native gpu golden operands isa errors numpy",
    "verify": "api gpu sim/benches sim/coverage sim/engine golden operands rtl isa infra errors numpy jinja2 "
    "__version__",
    "formal": "rtl/cells rtl isa infra errors numpy amaranth vcd",
    "synth": "rtl/cells rtl isa infra errors amaranth __version__",
    "synth/energy": "synth sim/engine gpu golden operands rtl isa infra errors numpy amaranth",
    "gemm": "api golden operands isa tensors infra errors numpy",
    "kernels": "api operands isa tensors infra errors numpy triton tilelang",
    "show": "verify gemm api tensors golden operands rtl isa infra errors numpy",
    "cli": "show verify kernels formal synth/energy synth gemm tensors api sim/benches sim/coverage sim/engine native "
    "gpu golden operands rtl isa infra errors numpy tqdm matplotlib shtab __version__",
    "": "api isa errors cli gemm kernels tensors",  # cli: by __main__; gemm, kernels, tensors: at first use
}
ROOMS = tuple(room for room in MAY_IMPORT if room)
LONGEST_FILE, MOST_PARAMETERS = 450, 8
#: Public functions with many keyword parameters, which may exceed MOST_PARAMETERS, and the subpackage of each.
PUBLIC_FUNCTIONS = {
    **dict.fromkeys(("mma", "wgmma", "tcgen05_mma"), "api"),
    **dict.fromkeys(("gemm", "identify", "pack", "unpack"), "gemm"),
    **dict.fromkeys(("run_kernel", "run"), "kernels"),
}


def python_files(folder: Path) -> list[Path]:
    """Return the Python files below a folder, without hidden folders, environments and build results."""

    def is_ours(part: str) -> bool:
        return not part.startswith(".") and part not in ("build", "dist", "__pycache__")

    return [path for path in sorted(folder.rglob("*.py")) if all(map(is_ours, path.relative_to(ROOT).parts))]


def module_name(path: Path) -> str:
    return ".".join(("sptc", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module, module: str, is_package: bool) -> set[str]:
    """Return the absolute names of all imports in a source file, including those inside functions."""
    result, package = set(), module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            result |= {f"{base}.{alias.name}" for alias in node.names}
    return result


@cache
def imports_of(path: Path) -> set[str]:
    return imports(syntax(path), module_name(path), path.name == "__init__.py")


def room_of(parts: list[str]) -> str:
    """Return the innermost subpackage that contains a path. `parts` are the parts of the path below the root."""
    inner = "/".join(parts[:2])
    return inner if inner in MAY_IMPORT else parts[0] if parts[0] in MAY_IMPORT else ""


def charged(name: str) -> str:
    """Return the subpackage or foreign package that a name is in: `sim/engine` for `sptc.sim.engine.steps.x`."""
    first, *parts = name.split(".")
    if first != "sptc":
        return first
    return (parts and room_of(parts)) or (parts[0] if parts else "")


def files_of(room: str) -> list[Path]:
    """Return the files of a subpackage, without the files of the subpackages inside it."""
    files = python_files(ROOT / room) if room else sorted(set(ROOT.glob("*.py")) - {ROOT / "setup.py"})
    return [path for path in files if room_of([*path.relative_to(ROOT).parts[:-1], ""]) == room]


def test_every_form_of_import_is_found() -> None:
    text = (
        "import numpy.typing\nfrom amaranth.hdl import Signal\nfrom .. import golden, errors\n"
        "from ..golden.decode import decode\nfrom .formats import Format\nfrom . import memory\n"
        "def late():\n    from ..cli import main\nif TYPE_CHECKING:\n    import sptc.rtl.core\n"
    )
    assert imports(ast.parse(text), "sptc.isa.thing", is_package=False) == {
        "numpy.typing", "amaranth.hdl.Signal", "sptc.golden", "sptc.errors", "sptc.golden.decode.decode",
        "sptc.isa.formats.Format", "sptc.isa.memory", "sptc.cli.main", "sptc.rtl.core",
    }  # fmt: skip
    assert imports(ast.parse("from .main import main"), "sptc.cli", is_package=True) == {"sptc.cli.main.main"}
    assert imports(ast.parse("from .errors import Error"), "sptc", is_package=True) == {"sptc.errors.Error"}
    assert imports(ast.parse("from . import cuda"), "sptc.api.warp", is_package=False) == {"sptc.api.cuda"}
    names = ("sptc.isa.formats.Format", "sptc.sim.engine.steps", "sptc.sim.nothing", "numpy.typing", "sptc.errors")
    assert [charged(name) for name in names] == ["isa", "sim/engine", "sim", "numpy", "errors"]


def test_files_are_in_subpackages_and_not_too_long() -> None:
    inside = {path for room in MAY_IMPORT for path in files_of(room)}
    outside = {path.relative_to(ROOT).parts[0] for path in python_files(ROOT) if path not in inside}
    assert outside == {"tests", "benchmarks", "docs", "fusesoc", "setup.py"}
    assert all(len(files_of(room)) > 1 for room in ROOMS if room != "sim")
    assert {path.name for path in files_of("")} == {"__init__.py", "__main__.py", "errors.py"}
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(ROOT)}
    assert ROOT / "api" / "warp.py" in lengths
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_subpackage_imports_from_a_higher_layer() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms.split()}
    below = {room: {name for name in words.split() if name in ROOMS} for room, words in MAY_IMPORT.items()}
    assert floor.keys() == {room.split("/")[0] for room in ROOMS}
    for room, names in below.items():
        assert not room or all(floor[name.split("/")[0]] <= floor[room.split("/")[0]] for name in names), room
    rooms = {room: {name.split("/")[0] for of in ROOMS if of.split("/")[0] == room for name in below[of]} - {room}
             for room in floor}  # fmt: skip
    for graph in (below, rooms):
        TopologicalSorter(graph).prepare()  # raises an error if the graph has a cycle


@pytest.mark.parametrize("room", MAY_IMPORT, ids=lambda room: room or "root")
def test_permitted_imports(room: str) -> None:
    allowed = {*sys.stdlib_module_names, room, *MAY_IMPORT[room].split()}
    found = {path.relative_to(ROOT).as_posix(): {charged(name) for name in imports_of(path)} for path in files_of(room)}
    assert {path: names - allowed for path, names in found.items() if names - allowed} == {}


def test_no_cyclic_imports() -> None:
    graph: dict[str, set[str]] = {}
    modules = {module_name(path) for room in MAY_IMPORT for path in files_of(room)}
    for room in MAY_IMPORT:
        for path in files_of(room):
            result = {name if name in modules else name.rpartition(".")[0] for name in imports_of(path)} & modules
            graph[module_name(path)] = result - {module_name(path)}
    TopologicalSorter(graph).prepare()  # raises an error if the graph has a cycle


def test_imports_are_relative_and_exclude_tests() -> None:
    """Modules import no tests, and use relative imports, so that the checkout folder may have any name."""
    for path in python_files(ROOT):
        if path.relative_to(ROOT).parts[0] != "tests":
            names = imports_of(path)
            assert not {name.split(".")[0] for name in names} & {"tests", "pytest", "hypothesis"}, path.name
            assert not any(name.startswith("sptc.tests") for name in names), path.name
    for path in [path for room in MAY_IMPORT for path in files_of(room)]:
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] == "sptc" for alias in node.names), path.name
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").split(".")[0] != "sptc", path.name


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    program = "import sys, json, sptc; print(json.dumps([dir(sptc), sptc.__all__, sorted(sys.modules)]))"
    output = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    listed, public, modules = json.loads(output.stdout)
    loaded = set(modules)
    assert {*public, "__version__"} <= {*listed}
    assert {"sptc", "sptc.golden", "numpy"} <= loaded
    heavy = "amaranth cocotb torch tqdm filelock platformdirs sqlite3 ml_dtypes sptc.cli sptc.gemm hypothesis pytest"
    assert not loaded & {*heavy.split()}


def test_public_functions_show_their_signatures() -> None:
    """`help` shows the signature of each public function, also of `sptc.gemm`, which is a callable package."""
    shown = pydoc.render_doc(sptc.gemm, renderer=pydoc.plaintext)
    assert "\n    gemm(\n        a: Any,\n        b: Any,\n" in shown
    assert "split_k : int" not in shown
    assert "split_k, order, k_order, interleave, promote" in shown
    assert inspect.signature(sptc.gemm) == inspect.signature(multiply.gemm)
    for name in sptc.__all__:
        if callable(member := getattr(sptc, name)) and not inspect.isclass(member):
            kinds = {parameter.kind for parameter in inspect.signature(member).parameters.values()}
            assert inspect.Parameter.VAR_POSITIONAL not in kinds, name
            assert inspect.Parameter.VAR_KEYWORD not in kinds or name == "save", name


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [node.arg for node in ast.iter_child_nodes(function.args) if isinstance(node, ast.arg)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_no_function_has_too_many_parameters() -> None:
    results = []
    for path in python_files(ROOT):
        for node in ast.walk(syntax(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if any(ast.unparse(decorator) == "triton.jit" for decorator in node.decorator_list):
                continue  # a Triton kernel has one parameter for each argument of its launch
            if PUBLIC_FUNCTIONS.get(node.name) != path.parent.name and _parameters(node) > MOST_PARAMETERS:
                results.append(f"{path.relative_to(ROOT).as_posix()}:{node.name} takes {_parameters(node)}")
    assert results == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_lists_its_public_names(room: str) -> None:
    """Each module has one `__all__` without duplicates. Ruff checks that these names exist and have docstrings."""
    for path in [*files_of(room), ROOT / "errors.py"]:
        text = path.read_text(encoding="utf-8")
        lists = [
            ast.literal_eval(node.value)
            for node in syntax(path).body
            if isinstance(node, ast.Assign | ast.AnnAssign) and re.match("__all__ *[:=]", ast.unparse(node))
        ]
        assert len(lists) == 1 or path.name == "__init__.py", f"{path} has {len(lists)} lists __all__"
        assert all(len({*names}) == len(names) for names in lists), path
        assert all(text.count(name) > 1 for names in lists for name in names), f"{path} does not define its names"
