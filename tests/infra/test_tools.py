"""ABC, Yosys and Verilator run in separate processes, with limits of time and memory and with readable errors."""

import ctypes
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sptc.errors import BackendError, Error
from sptc.infra import compiler
from sptc.infra.abc import run_abc
from sptc.infra.cache import cache_folder
from sptc.infra.compiler import compiler_stamp, cxx_compiler
from sptc.infra.installation import install_line
from sptc.infra.verilator import compile_library, toolchain, verilator
from sptc.infra.yosys import run_yosys, yosys_version

_PARENT = """
import subprocess, time
from sptc.infra.limits import limited
child = subprocess.Popen(["sleep", "600"], preexec_fn=limited())
print(child.pid, flush=True)
time.sleep(600)
"""
VERILOG = "module add(input [7:0] a, input [7:0] b, output [8:0] sum); assign sum = a + b; endmodule\n"
DRIVER = 'extern "C" int add(int a, int b) { static Vadd top; top.a = a; top.b = b; top.eval(); return top.sum; }\n'
FAST = ("-O0",)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_ends_with_its_parent(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        parent.send_signal(how)
        parent.wait()
    for _ in range(1000):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child process outlives its parent process")


def test_scripts(tmp_path: Path) -> None:
    assert "hello" in run_yosys(tmp_path, "log hello\nlog world\n")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BackendError, match=r"^Yosys failed: ERROR: .*nothing"):
        run_yosys(tmp_path, "hierarchy -top nothing\n")
    with pytest.raises(BackendError, match=r"^Yosys took longer than 0.01 seconds$"):
        run_yosys(tmp_path, "log hello\n", timeout=0.01)


def test_abc_takes_more_processor_time_than_its_limit(tmp_path: Path) -> None:
    (tmp_path / "graph.aig").write_text("aig 1 1 0 1 0\n2\n", encoding="ascii")
    assert "i/o =    1/    1" in run_abc(tmp_path, "graph.aig", "print_stats", 1)
    with pytest.raises(TimeoutError):
        run_abc(tmp_path, "graph.aig", f"gen -N 64 -m product.blif; read product.blif; strash; {'dch; ' * 200}", 1)


def test_a_script_that_takes_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_TOOL_GIB", "0.5")
    monkeypatch.setattr("sptc.infra.yosys._PROGRAM", "bytearray(1 << 30)")
    sentence = r"^Yosys ran out of memory: the limit is 0\.5 GiB, and SPTC_TOOL_GIB sets another limit$"
    with pytest.raises(BackendError, match=sentence):
        run_yosys(tmp_path, "")
    monkeypatch.setenv("SPTC_TOOL_GIB", "-1")
    with pytest.raises(Error, match=r"^SPTC_TOOL_GIB must be a number of GiB above 0 and below 1,048,576, not '-1'$"):
        run_yosys(tmp_path, "log hello\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows a build's progress in one line, which is cleared. Otherwise, the first build prints one line."""
    monkeypatch.setattr(compiler, "_announced", [])
    library = tmp_path / "add.so"
    runtime: dict[Path, int] = {}
    for stream, said in (
        (Terminal(), ["", "building add: verilating", "building add: compiling", ""]),
        (io.StringIO(), ["sptc: building add: a model is compiled at its first use and kept in the cache\n"]),
        (io.StringIO(), [""]),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        compile_library(VERILOG, "add", {"add.cpp": DRIVER}, library, optimisation=FAST)
        assert [line for line in stream.getvalue().split("\r\033[K") if "runtime" not in line] == said
        before, runtime = runtime, {path: path.stat().st_mtime_ns for path in cache_folder().glob("runtime-*.o")}
    assert before == runtime != {}
    assert ctypes.CDLL(str(library)).add(200, 100) == 300
    assert [*library.parent.iterdir()] == [library]


def test_sources_that_are_wrong(tmp_path: Path) -> None:
    for verilog, driver, message in (
        (VERILOG.replace("endmodule", ""), DRIVER,
         r"Verilator failed while building the simulation model: %Error: add\.v:1"),
        (VERILOG, DRIVER.replace("int b)", "int b, int c)"), r"the C\+\+ compiler failed .*unused parameter .c."),
        (VERILOG, DRIVER.replace("top.sum", "top.sums"), r"the C\+\+ compiler failed while building .* model: .*sum"),
    ):  # fmt: skip
        with pytest.raises(BackendError, match=f"^{message}"):
            compile_library(verilog, "add", {"add.cpp": driver}, tmp_path / "add.so", optimisation=FAST)
        assert [*tmp_path.iterdir()] == []


@pytest.mark.regression
def test_tools_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Environment variables select Verilator and Yosys of the system. Cache keys depend on the tool versions."""
    programs = {name: shutil.which(name) for name in ("verilator", "yosys")}
    if not all(programs.values()):
        pytest.skip("needs the system's Verilator and Yosys: apt-get install verilator yosys")
    ours = toolchain(), yosys_version()
    for name, program in programs.items():
        monkeypatch.setenv(f"SPTC_{name.upper()}", str(program))
    assert toolchain() != ours[0]
    assert yosys_version() != ours[1]
    compile_library(VERILOG, "add", {"add.cpp": DRIVER}, tmp_path / "add.so", optimisation=FAST)
    # The runtimes of two versions of Verilator share symbols, so a process must not load models of both.
    program = f"import ctypes; print(ctypes.CDLL({str(tmp_path / 'add.so')!r}).add(200, 100))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"300\n"
    (tmp_path / "add.v").write_text(VERILOG, encoding="utf-8")
    assert "Yosys" in run_yosys(tmp_path, "read_verilog add.v\nsynth -top add\nstat\n")


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verilator", None)
    line = re.escape(install_line())
    with pytest.raises(BackendError, match=f"^Verilator is not installed: install it with `{line}`$"):
        verilator()
    for variable, uses in (("SPTC_VERILATOR", verilator), ("SPTC_YOSYS", yosys_version)):
        monkeypatch.setenv(variable, "/nowhere/tool")
        with pytest.raises(BackendError, match=f"^{variable} names /nowhere/tool, which does not run: "):
            uses()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BackendError, match=r"^no C\+\+ compiler was found: install g\+\+ \(on Debian or U"):
        cxx_compiler()
    for given in ("no-such-compiler -O1", "g++ '-O1"):
        monkeypatch.setenv("CXX", given)
        with pytest.raises(BackendError, match=f"^CXX names .{re.escape(given)}., which is not found: correct or un"):
            cxx_compiler()
    monkeypatch.undo()
    monkeypatch.setenv("CXX", "g++ '-O 1'")
    assert cxx_compiler() == [shutil.which("g++"), "-O 1"]
    assert str(compiler_stamp()[0]).endswith("/g++ '-O 1'")
