"""Verilog and a driver to a shared library."""

import ctypes
import io
import re
import sys
from pathlib import Path

import pytest
from sptc.errors import BackendError
from sptc.infra.cache import cache_folder
from sptc.infra.compiler import cxx_compiler
from sptc.infra.installation import install_line
from sptc.infra.verilator import compile_library, verilator_root

VERILOG = "module add(input [7:0] a, input [7:0] b, output [8:0] sum); assign sum = a + b; endmodule\n"
DRIVER = """
extern "C" int add(int a, int b) {
    static Vadd top;
    top.a = a;
    top.b = b;
    top.eval();
    return top.sum;
}
"""
FAST = ("-O0",)


class Terminal(io.StringIO):
    """Somebody looks at it."""

    def isatty(self) -> bool:
        return True


def test_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was built on the way nothing stays but the runtime, which is compiled once.

    Who looks is told in one line, which is empty again at the end; a file hears nothing.
    """
    library = tmp_path / "add.so"
    runtime: dict[Path, int] = {}
    for stream, said in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        compile_library(VERILOG, "add", {"add.cpp": DRIVER}, library, optimisation=FAST)
        lines = [line for line in stream.getvalue().split("\r\033[K") if "runtime" not in line]
        assert lines == (["", "building add: verilating", "building add: compiling", ""] if said else [""])
        before, runtime = runtime, {path: path.stat().st_mtime_ns for path in cache_folder().glob("runtime-*.o")}
    assert before == runtime != {}
    assert ctypes.CDLL(str(library)).add(200, 100) == 300
    assert [*library.parent.iterdir()] == [library]


def test_sources_that_are_wrong(tmp_path: Path) -> None:
    for verilog, driver, message in (
        (
            VERILOG.replace("endmodule", ""),
            DRIVER,
            r"Verilator failed while building the simulation model: %Error: add\.v:1",
        ),
        (VERILOG, DRIVER.replace("int b)", "int b, int c)"), r"the C\+\+ compiler failed .*unused parameter .c."),
        (VERILOG, DRIVER.replace("top.sum", "top.sums"), r"the C\+\+ compiler failed while building .* model: .*sum"),
    ):
        with pytest.raises(BackendError, match=f"^{message}"):
            compile_library(verilog, "add", {"add.cpp": driver}, tmp_path / "add.so", optimisation=FAST)
        assert [*tmp_path.iterdir()] == []


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verilator", None)
    with pytest.raises(BackendError, match=f"^this needs Verilator: install it with `{re.escape(install_line())}`$"):
        verilator_root()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BackendError, match=r"^this needs a C\+\+ compiler: install g\+\+ \(on Debian or Ubuntu, `apt "):
        cxx_compiler()
