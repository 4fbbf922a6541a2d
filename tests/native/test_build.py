"""Build of the C++ library, and the header that is generated from ``isa``."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.cli import main
from sptc.errors import InstructionError
from sptc.infra.compiler import cxx_compiler
from sptc.isa.architectures import TARGETS, require_target
from sptc.isa.fragments import metadata_map
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.tcgen05 import every_opcode, instructions_of, parse_opcode
from sptc.native.library import KERNELS, library_file
from sptc.native.tables import GENERATED, forms, header
from sptc.native.vendor import files

from .held import RefusedError, opened, refuses

EXAMPLES = {"first": "every element of D is 32\n", "product": "D[0][0] = "}
EXAMPLES["simulator_hook"] = "after two instructions D is 64\n"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(words: Sequence[object], folder: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run([*map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def c_compiler() -> str:
    return shutil.which("gcc") or shutil.which("cc") or shutil.which("clang") or pytest.fail("there is no C compiler")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vendor") / "libsptc"
    assert main(["native", "--prefix", str(folder)]) == 0
    return folder


def test_every_source_is_written(sources: Path) -> None:
    here = Path(__file__).parents[2] / "native"
    written = {path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()}
    expected = {p.relative_to(here).as_posix() for p in here.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    stored = {name for name in expected if not name.endswith(".py")}
    assert written == stored | {GENERATED} == {str(name) for name in files()}
    assert GENERATED not in stored
    assert (sources / GENERATED).read_text(encoding="utf-8") == header()


def test_make_and_cmake_compile_the_same_kernels() -> None:
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
    (tmp_path / "folder" / "Makefile").mkdir(parents=True)
    for name, place in (("file", "file"), ("folder", "folder/Makefile")):
        assert main(["native", "--prefix", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.startswith(f"sptc native: {tmp_path / place}")
    assert [*(tmp_path / "folder").iterdir()] == [tmp_path / "folder" / "Makefile"]


def test_the_first_example_is_c_without_warnings_and_the_program_of_the_guide(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    native, built = root / "native", library_file()
    words = [*STRICT, f"-I{native / 'include'}", native / "examples" / "first.c", built, "-o", tmp_path / "first"]
    run([c_compiler(), *words], tmp_path)
    assert run([tmp_path / "first"], tmp_path) == EXAMPLES["first"]
    program = (native / "examples" / "first.c").read_text(encoding="utf-8")
    assert f"```c\n{program}```\n" in (root / "docs" / "guides" / "c.md").read_text(encoding="utf-8")


@pytest.mark.regression
def test_make(sources: Path, tmp_path: Path) -> None:
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
    for found in ("find_package(sptc 1 REQUIRED)", f"add_subdirectory({sources} libsptc)"):
        text = f"cmake_minimum_required(VERSION 3.15)\nproject(other C CXX)\n{found}\n"
        text += f"foreach(kind shared static)\n  add_executable(${{kind}} {sources}/examples/first.c)\n"
        text += "  target_link_libraries(${kind} sptc::${kind})\nendforeach()\n"
        (other / "CMakeLists.txt").write_text(text, encoding="utf-8")
        built = other / found.partition("(")[0]
        printed = run(["cmake", "-S", other, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}"], tmp_path)
        if found.startswith("add_subdirectory"):
            assert "CMAKE_BUILD_TYPE is not set; the library is compiled with -O3" in printed
            for part in ("parts", "kernels_portable"):
                flags = built / "libsptc" / "CMakeFiles" / f"sptc_{part}.dir" / "flags.make"
                assert " -O3" in flags.read_text(encoding="utf-8")
        run(["cmake", "--build", built, "--parallel", "2"], tmp_path)
        for kind in ("shared", "static"):
            assert run([built / kind], tmp_path) == EXAMPLES["first"]


@pytest.mark.regression
def test_no_sanitizer_complains(sources: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    run(["make", "-j2", f"BUILD={build}", f"CXXFLAGS={flags}", f"{build}/libsptc.a"], sources)
    for example, printed in EXAMPLES.items():
        (source,) = (sources / "examples").glob(f"{example}.*")
        compiler = cxx_compiler() if source.suffix == ".cpp" else [c_compiler()]
        words = [source, build / "libsptc.a", "-Iinclude", "-lstdc++", "-lm", "-pthread", *flags.split()]
        run([*compiler, *words, "-o", tmp_path / "program"], sources)
        assert run([tmp_path / "program"], tmp_path).startswith(printed)


def test_positions_of_metadata() -> None:
    """Lane and position of a nibble are sums over the bits of its row and chunk, and agree with the metadata map."""
    table = re.search(r"PLACES\[\] = \{\n(.*?)\n\};", header(), re.DOTALL)
    places = [np.array(re.findall(r"\d+", row), int).reshape(4, 8) for row in table[1].splitlines()]
    for i in (i for i in every_instruction() if i.sparse):
        where = metadata_map(i, 0)
        row, chunk = np.indices(where.lanes.shape)
        bits = [coordinate[..., None] >> np.arange(8) & 1 for coordinate in (row, chunk)]
        maps = [(bits[0] @ a + bits[1] @ b, bits[0] @ c + bits[1] @ d) for a, b, c, d in places]
        assert any((lanes == where.lanes).all() and (low == where.low_bits).all() for lanes, low in maps), i


def test_every_instruction_is_of_a_form() -> None:
    shapes = [(form.instruction, m, n) for form in forms() for m in form.rows for n in form.columns]
    held = {replace(instruction, m=m, n=n) for instruction, m, n in shapes}
    assert len(held) == len(shapes)
    assert {*every_instruction(), *(i for opcode in every_opcode() for i in instructions_of(opcode))} <= held
    # A form of tcgen05 combines every M with every N, although an opcode may reject some of the pairs.
    assert {i for i in held if i.family != "tcgen05"} == set(every_instruction())


def test_texts_without_the_number_of_block_scales() -> None:
    """A text without its number of block scales is rejected, or means the same instruction as for the Python parser."""
    for instruction in (i for i in every_instruction() if i.scale_size):
        text = str(instruction).replace(f".scale_vec::{instruction.scale_size}X", "")
        try:
            expected = str(parse(text))
        except InstructionError:
            expected = ""
        try:
            with opened(text, instruction.architectures[0]) as handle:
                result = handle.text
        except RefusedError:
            result = ""
        assert result == expected, text
        assert bool(result) == (instruction.kind != "mxf4nvf4")


def test_targets_of_the_assembler() -> None:
    """The library accepts the instructions that a target of the assembler has, and refuses all other instructions."""
    for name, target in TARGETS.items():
        for words in ("kind::f16", "kind::i8", "kind::mxf4.block_scale", "kind::mxf8f6f4.block_scale.scale_vec::1X"):
            for opcode in (parse_opcode(f"tcgen05.mma.{sp}cta_group::1.{words}") for sp in ("", "sp.")):
                try:
                    require_target(next(instructions_of(opcode)), name, opcode)
                    answer: AbstractContextManager[Any] = nullcontext()
                except InstructionError:
                    answer = refuses(f"{name} does not have")
                with answer, opened(str(opcode), name):
                    pass
        for kind in ("", "mxf4", "mxf8f6f4"):
            instruction = next(i for i in every_instruction("mma") if i.kind == kind and i.sparse.endswith("metadata"))
            answer = nullcontext() if target.has(instruction) else refuses(f"{name} does not have")
            with answer, opened(str(instruction), name) as handle:
                assert handle.text == str(instruction)
