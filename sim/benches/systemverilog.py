"""SystemVerilog benches that compare a design with libsptc; the compiled programs run without Python."""

import shlex
import subprocess
from pathlib import Path

from ...infra.compiler import cxx_compiler, run_tool
from ...infra.verilator import verilator
from ...native.vendor import write_files
from ...rtl.config import CoreConfig
from ...rtl.emit import emit, unit_of
from .datapath import row_package, warp_package

__all__ = ["ALIKE", "PORTABLE_MAKE", "build_bench", "build_library", "build_program", "run", "units_alike"]

_OPTIONS = ("--binary", "--timing", "-Wno-fatal", "-Wno-lint", "-j", "2")
#: Variable for make. It replaces the compiler option for precompiled headers that Verilator's Python package uses,
#: since some compilers lack this option.
PORTABLE_MAKE = "CFG_CXXFLAGS_PCH_I=-include"
#: Verilator options that turn off optimisations which would make the units of an array different, so that all units
#: share one compiled model.
ALIKE = ("-fno-dfg", "-fno-table")
_PACKAGES = {"row": row_package, "warp": warp_package}


def units_alike(top: str) -> str:
    """Return a Verilator configuration that keeps all inputs of every dot-product unit, so that all share one model."""
    ports = "".join(f'public_flat_rd -module "{unit_of(top)}" -var "{port}"\n' for port in ("step", "enable"))
    return f"`verilator_config\n{ports}"


def build_library(folder: Path) -> Path:
    """Write libsptc and its SystemVerilog import declarations to a folder, build the library, and return the folder."""
    write_files(folder)
    run_tool(["make", "-s", "-j2", f"CXX={shlex.join(cxx_compiler())}", "build/libsptc.a"], folder, "make", "libsptc")
    return folder


def build_program(top: str, sources: list[Path], folder: Path, library: Path) -> Path:
    """Compile SystemVerilog sources that import libsptc into a program; return the path of the program.

    The program is built in `folder`. Included files are in this folder or beside the sources; `library` is the folder
    of :func:`build_library`. Raise a `BackendError` if Verilator or a compiler is missing or fails.
    """
    tool = verilator()
    words = [tool.program, *_OPTIONS, *ALIKE, "--top-module", top]
    words += [f"-I{place}" for place in (library / "dpi", folder, *{path.parent for path in sources})]
    words += ["-CFLAGS", f"-std=gnu++20 -fcoroutines -I{library}/include"]
    words += ["-LDFLAGS", f"{library}/build/libsptc.a -pthread", "-MAKEFLAGS", PORTABLE_MAKE]
    words += ["--Mdir", str(folder / "obj"), "-o", top, *map(str, sources), str(library / "dpi" / "sptc_dpi.cpp")]
    run_tool(words, folder, "Verilator", top, tool.environment)
    return folder / "obj" / top


def build_bench(
    top: str, config: CoreConfig, arch: str, bench: Path, folder: Path, library: Path, *, design: str = ""
) -> Path:
    """Build the testbench of Verilog module ``row`` or ``warp`` in a folder; return the path of the program.

    The module of the file `bench` has the same name as the file. Instructions are those of `arch`; `library` is the
    folder of :func:`build_library`, and `design` is Verilog text that replaces the emitted design, such as a faulty
    one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "datapath.svh").write_text(_PACKAGES[top](config, arch), encoding="utf-8")
    source = folder / f"{top}.v"
    source.write_text(design or emit(config, top, top), encoding="utf-8")
    alike = folder / "alike.vlt"
    alike.write_text(units_alike(top), encoding="utf-8")
    return build_program(bench.stem, [alike, source, bench], folder, library)


def run(program: Path, *plusargs: str, seed: int) -> subprocess.CompletedProcess[str]:
    """Run a compiled bench, which exits with a nonzero status at the first difference between design and libsptc."""
    words = [str(program), *plusargs, f"+verilator+seed+{seed}"]
    return subprocess.run(words, cwd=program.parent, capture_output=True, text=True, check=False)
