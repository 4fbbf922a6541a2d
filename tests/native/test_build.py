"""The library by itself: written out, built by make and CMake, installed, found, and used from C and C++."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.infra.compiler import cxx_compiler
from sptc.native.library import KERNELS, library
from sptc.native.tables import GENERATED, header
from sptc.native.vendor import files

EXAMPLES = {
    "first": "every element of D is 32\n",
    "product": "D[0][0] = ",
    "simulator_hook": "after two instructions D is 64\n",
}
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(words: Sequence[object], folder: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run([*map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def c_compiler() -> str:
    found = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    assert found
    return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `sptc native` writes."""
    folder = tmp_path_factory.mktemp("vendor") / "libsptc"
    assert main(["native", "--prefix", str(folder)]) == 0
    return folder


def test_every_source_is_written(sources: Path) -> None:
    here = Path(__file__).parents[2] / "native"
    written = {path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()}
    wanted = {p.relative_to(here).as_posix() for p in here.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    stored = {name for name in wanted if not name.endswith(".py")}
    assert written == stored | {GENERATED} == {str(name) for name in files()}
    assert GENERATED not in stored
    assert (sources / GENERATED).read_text(encoding="utf-8") == header()


def test_all_ways_to_build_compile_the_same_kernels() -> None:
    here = Path(__file__).parents[2] / "native"
    makefile, cmake = ((here / name).read_text(encoding="utf-8") for name in ("Makefile", "CMakeLists.txt"))
    sources = {path.stem for path in (here / "src").glob("*.cpp")} - {"kernels"}
    assert set(re.findall(r"^SOURCES = (.*)$", makefile, re.M)[0].split()) == sources
    assert {name.removesuffix(".cpp") for name in re.findall(r"src/(\w+)\.cpp", cmake)} == sources | {"kernels"}
    for kernels, flags in KERNELS.items():
        assert f"kernels_{kernels}.o" in makefile
        assert f"sptc_kernels({' '.join([kernels, *flags])})" in cmake
        assert not flags or f"kernels_{kernels}.o: FOR = {' '.join(flags)}" in makefile


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["native", "--prefix", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"sptc native: {tmp_path / 'file'}")


def test_the_first_example_is_c_without_warnings(tmp_path: Path) -> None:
    """Linked with the library of this process."""
    native = Path(__file__).parents[2] / "native"
    built = library()._name
    words = [*STRICT, f"-I{native / 'include'}", native / "examples" / "first.c", built, "-o", tmp_path / "first"]
    run([c_compiler(), *words], tmp_path)
    assert run([tmp_path / "first"], tmp_path) == EXAMPLES["first"]


@pytest.mark.regression
def test_make(sources: Path, tmp_path: Path) -> None:
    """Built and installed without CMake; the README's words link a program with it."""
    prefix, build = tmp_path / "installed", tmp_path / "build"
    run(["make", "-j2", "install", f"BUILD={build}", f"PREFIX={prefix}", "CXXFLAGS=-O1 -Werror"], sources)
    example = [*STRICT, f"-I{prefix / 'include'}", sources / "examples" / "first.c"]
    run([c_compiler(), *example, f"-L{prefix / 'lib'}", "-lsptc", "-o", tmp_path / "first"], tmp_path)
    assert run([tmp_path / "first"], tmp_path, LD_LIBRARY_PATH=str(prefix / "lib")) == EXAMPLES["first"]
    static = [prefix / "lib" / "libsptc.a", "-lstdc++", "-lm", "-pthread"]
    run([c_compiler(), *example, *static, "-o", tmp_path / "static"], tmp_path)
    assert run([tmp_path / "static"], tmp_path) == EXAMPLES["first"]
    assert f"prefix={prefix}" in (prefix / "lib" / "pkgconfig" / "sptc.pc").read_text()


@pytest.mark.regression
def test_cmake(sources: Path, tmp_path: Path) -> None:
    """Built, tested and installed; another project finds it."""
    build, prefix = tmp_path / "build", tmp_path / "installed"
    options = [f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib"]
    run(["cmake", "-S", sources, "-B", build, *options], tmp_path)
    run(["cmake", "--build", build, "--parallel", "2"], tmp_path)
    for name, printed in EXAMPLES.items():
        assert run([build / name], tmp_path).startswith(printed)
    run(["ctest", "--test-dir", build], tmp_path)
    run(["cmake", "--install", build], tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.15)\nproject(other C CXX)\nfind_package(sptc 1 REQUIRED)\n"
        f"foreach(kind shared static)\n  add_executable(${{kind}} {sources}/examples/first.c)\n"
        "  target_link_libraries(${kind} sptc::${kind})\nendforeach()\n",
        encoding="utf-8",
    )
    run(["cmake", "-S", other, "-B", other / "build", f"-DCMAKE_PREFIX_PATH={prefix}"], tmp_path)
    run(["cmake", "--build", other / "build"], tmp_path)
    for kind in ("shared", "static"):
        assert run([other / "build" / kind], tmp_path) == EXAMPLES["first"]


@pytest.mark.regression
def test_no_sanitizer_complains(sources: Path, tmp_path: Path) -> None:
    """Neither of addresses nor of undefined behaviour."""
    build = tmp_path / "build"
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    run(["make", "-j2", f"BUILD={build}", f"CXXFLAGS={flags}", f"{build}/libsptc.a"], sources)
    for example, printed in EXAMPLES.items():
        (source,) = (sources / "examples").glob(f"{example}.*")
        compiler = cxx_compiler() if source.suffix == ".cpp" else c_compiler()
        words = [source, build / "libsptc.a", "-Iinclude", "-lstdc++", "-lm", "-pthread", *flags.split()]
        run([compiler, *words, "-o", tmp_path / "program"], sources)
        assert run([tmp_path / "program"], tmp_path).startswith(printed)


def test_the_program_of_the_guide_is_the_first_example() -> None:
    root = Path(__file__).parents[2]
    program = (root / "native" / "examples" / "first.c").read_text(encoding="utf-8")
    assert f"```c\n{program}```\n" in (root / "docs" / "guides" / "c.md").read_text(encoding="utf-8")
