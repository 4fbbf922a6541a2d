"""The source archive and the wheel have the right contents, and the installed wheel's command runs."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
import sptc

try:
    import tomllib
except ImportError:  # Python 3.10 has no tomllib; package `build` installs tomli there
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)
BESIDES = {"tests", "build", "dist"}
FLOORS = "api cli formal gemm golden gpu infra isa recordings rtl sim synth tensors tests benchmarks verify"


def call(*command: object, cwd: Path) -> str:
    words = [str(word) for word in command]
    process = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 0, f"{' '.join(words)}\n{process.stdout}\n{process.stderr}"
    return process.stdout


def packages() -> set[str]:
    folders = {path.parent.relative_to(ROOT) for path in ROOT.rglob("__init__.py")}
    own = {folder for folder in folders if not any(part.startswith(".") or part in BESIDES for part in folder.parts)}
    return {".".join(("sptc", *folder.parts)) for folder in own}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the source archive of a copy of this tree, and the wheel of the unpacked archive."""
    here = tmp_path_factory.mktemp("archives")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, here / "sources", ignore=ignored)
    (here / "empty").mkdir()
    try:
        major = int(importlib.metadata.version("setuptools").split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        major = 0
    build = (sys.executable, "-m", "build", *(["--no-isolation"] if major >= 77 else []), "--outdir", here)
    call(*build, "--sdist", here / "sources", cwd=here / "empty")
    (source,) = here.glob("*.tar.gz")
    # `unpack_archive` has no parameter `filter` in older Python versions, and warns without it in newer ones.
    shutil.unpack_archive(source, here / "unpacked", **({"filter": "data"} if sys.version_info >= (3, 11, 4) else {}))
    (unpacked,) = (here / "unpacked").iterdir()
    call(*build, "--wheel", unpacked, cwd=here / "empty")
    (wheel,) = here.glob("*.whl")
    return source, wheel


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_names_and_metadata(archives: tuple[Path, Path]) -> None:
    source, wheel = archives
    assert source.name == f"sptc-{sptc.__version__}.tar.gz"
    assert wheel.name == f"sptc-{sptc.__version__}-py3-none-any.whl"
    assert {name.split("/")[0] for name in names_in(wheel)} == {"sptc", f"sptc-{sptc.__version__}.dist-info"}
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"sptc-{sptc.__version__}.dist-info/METADATA").decode()
    metadata = HeaderParser().parsestr(text)
    assert metadata["Version"] == sptc.__version__
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(needed) == sorted(PROJECT["project"]["dependencies"])


def test_contents_of_the_wheel(archives: tuple[Path, Path]) -> None:
    names = names_in(archives[1])
    for package in packages():
        folder = Path(*package.split(".")[1:])
        modules = {f"sptc/{(folder / path.name).as_posix()}" for path in (ROOT / folder).glob("*.py")}
        assert modules
        assert modules <= names
    drivers = {f"sptc/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "sim/engine/drivers").iterdir()}
    assert len(drivers) > 10
    assert drivers <= names
    recordings = {
        f"sptc/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "recordings").rglob("*")
        if path.is_file() and path.name != "pyproject.toml"
    }
    assert len(recordings) > 400
    assert recordings <= names
    assert {"sptc/py.typed", f"sptc-{sptc.__version__}.dist-info/licenses/LICENSE"} <= names
    assert not any(name.startswith(("sptc/tests", "sptc/benchmarks")) for name in names)
    kept = [path for path in (ROOT / "fusesoc").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {f"sptc/{path.relative_to(ROOT).as_posix()}" for path in kept}
    assert expected == {name for name in names if name.startswith("sptc/fusesoc/")}
    with zipfile.ZipFile(archives[1]) as wheel:
        assert wheel.getinfo("sptc/fusesoc/bin/verilator").external_attr >> 16 & 0o111 == 0o111


@pytest.mark.regression
def test_recordings_in_a_separate_distribution(
    archives: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel without recordings and the wheel `sptc-recordings` together have the files of the complete wheel."""
    monkeypatch.setenv("SPTC_RECORDINGS", "apart")
    (sources,) = (archives[0].parent / "unpacked").iterdir()
    for folder in (sources, ROOT / "recordings"):
        copied = shutil.copytree(folder, tmp_path / "sources", dirs_exist_ok=False)
        call(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, copied, cwd=tmp_path)
        shutil.rmtree(copied)
    package, data = (next(tmp_path.glob(f"{name}-*.whl")) for name in ("sptc", "sptc_recordings"))
    assert data.name == f"sptc_recordings-{sptc.__version__}-py3-none-any.whl"
    assert package.stat().st_size < 10_000_000
    inside, apart = ({name for name in names_in(wheel) if "dist-info" not in name} for wheel in (package, data))
    assert not inside & apart
    assert inside | apart == {name for name in names_in(archives[1]) if "dist-info" not in name}

    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(site))
    words = ("-m", "sptc", "run", "--backend", "golden", "--limit", "1")
    call(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, package, cwd=tmp_path)
    lacking = subprocess.run([sys.executable, *words], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert (lacking.returncode, lacking.stdout) == (2, "")
    assert "pip install sptc-recordings" in lacking.stderr
    program = "import sptc; print(sptc.evidence('mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32', 'sm_90'))"
    assert call(sys.executable, "-c", program, cwd=elsewhere) == "recorded\n"
    with zipfile.ZipFile(data) as archive:
        archive.extractall(site)
    files = len([*(ROOT / "recordings").glob("*.npz"), *(ROOT / "recordings" / "elsewhere").glob("*.npz")])
    assert f"{files} files" in call(sys.executable, *words, cwd=elsewhere)


@pytest.mark.regression
def test_the_installed_command_runs_elsewhere(archives: tuple[Path, Path], tmp_path: Path) -> None:
    environment, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(environment, with_pip=True, symlinks=True)
    bin_folder = environment / "bin"
    call(bin_folder / "python", "-m", "pip", "install", "--quiet", archives[1], cwd=elsewhere)
    (site,) = environment.glob("lib/python*/site-packages")
    assert not {*FLOORS.split()} & {path.name for path in site.iterdir()}
    assert (site / "sptc" / "py.typed").is_file()
    where = call(bin_folder / "python", "-c", "import sptc; print(sptc.__file__)", cwd=elsewhere)
    assert Path(where.strip()) == site / "sptc" / "__init__.py"
    assert call(bin_folder / "sptc", "--version", cwd=elsewhere) == f"sptc {sptc.__version__}\n"
    total = call(bin_folder / "sptc", "run", "--limit", "1", cwd=elsewhere).splitlines()[-1].split()
    cores = Path(call(bin_folder / "sptc", "fusesoc-path", cwd=elsewhere).strip())
    assert cores == site / "sptc" / "fusesoc"
    assert os.access(cores / "bin" / "verilator", os.X_OK)
    files, dot_products, words = len([*(ROOT / "recordings").glob("*.npz")]), 46, 31
    assert (total[0], total[1], total[3], total[6]) == ("total", str(files + dot_products + words), "0", str(files + 2))


def test_packages_the_version_and_reasons_of_dependencies() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages()
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "sptc.__version__"}
    assert importlib.metadata.version("sptc") == sptc.__version__
    required = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        required += extra
    for requirement in set(required):
        lines = [line for line in PYPROJECT.splitlines() if f'"{requirement}"' in line]
        assert len(lines) == required.count(requirement), f"{requirement} is not alone on its line"
        for line in lines:
            assert re.search(r"\]?,?\s+# \w+( \S+)+$", line), f"no comment with a reason after {requirement}: {line}"
            own = requirement.startswith("sptc[")  # such a requirement includes other extras of this package
            assert own or re.search(r"[<>=]=", requirement), f"{requirement} has no version bound"


@pytest.mark.regression
def test_a_wheel_with_the_compiled_library(
    archives: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPTC_LIBRARY", "1")
    (sources,) = (archives[0].parent / "unpacked").iterdir()
    call(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, sources, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"sptc-{sptc.__version__}-py3-none-")
    assert not wheel.name.endswith("-any.whl")
    assert "sptc/native/lib/libsptc.so" in names_in(wheel)
    site, cache = tmp_path / "site", tmp_path / "cache"
    call(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    program = (
        "import numpy as np, sptc; a, b = (np.full((32, 4), x, np.uint32) for x in (0x3C003C00, 0x40004000))\n"
        "text = 'mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32'\n"
        "c, e = np.zeros((32, 4), np.uint32), np.full(32, 0x44444444, np.uint32)\n"
        "d = sptc.mma(text, a, b, c, e, selector=0, arch='sm_90', backend='native')\n"
        "print(sptc.__file__, (d.view(np.float32) == 32).all())"
    )
    for name, value in (("PYTHONPATH", str(site)), ("PATH", ""), ("CXX", ""), ("SPTC_CACHE", str(cache))):
        monkeypatch.setenv(name, value)
    assert call(sys.executable, "-c", program, cwd=tmp_path) == f"{site / 'sptc' / '__init__.py'} True\n"
    assert not cache.exists()
