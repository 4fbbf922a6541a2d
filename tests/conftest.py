"""Options and fixtures for all tests: one random seed per run, and files that many tests read."""

import importlib
import secrets
import signal
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "planted" / "start"))
import planting  # must precede all imports of the package, so that it plants the fault that SPTC_PLANT names
from numpy.typing import NDArray
from sptc.tests.cost import CostPlugin

# Each fixture imports from the package inside its function, so that tests/dependencies.py counts these imports only for
# tests that use the fixture.

#: With the option ``--rooms``: names of all modules that `import sptc` has loaded before the first test.
_LOADED: set[str] = set()
#: Folders of tests that compile. These tests begin first, so that no worker is idle at the end.
_FIRST = ("benches/", "native/", "rtl/", "cli/", "verify/", "sim/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="seed of the random tests (default: a random seed)")
    parser.addoption("--waves", type=Path, default=None, metavar="FOLDER", help="write waves of the benches to FOLDER")
    parser.addoption("--rooms", default=None, metavar="ROOMS", help="fail if tests load a subpackage not in ROOMS")
    parser.addoption("--again", action="store_true", help="repeat proofs whose results are recorded")
    parser.addoption("--cost", type=Path, default=None, metavar="FILE", help="write measured processor time to FILE")
    parser.addoption("--recordings", type=Path, default=None, metavar="FOLDER", help="replay all recordings in FOLDER")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell lets background jobs ignore SIGINT
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Workers are forked on purpose, although this process has threads. Newer Python versions warn at every fork.
    config.addinivalue_line("filterwarnings", "ignore:.*use of fork:DeprecationWarning")
    hypothesis.settings.register_profile("quick", max_examples=25)
    hypothesis.settings.register_profile("regression", max_examples=150)
    hypothesis.settings.load_profile("quick" if "not regression" in config.getoption("markexpr") else "regression")
    if config.getoption("--rooms") is not None:
        importlib.import_module("sptc")
        _LOADED.update(sys.modules)
    if (path := config.getoption("--cost")) is not None:
        config.pluginmanager.register(CostPlugin(path))
    if config.getoption("--seed") is None:
        config.option.seed = secrets.randbelow(2**31)


@pytest.hookimpl(tryfirst=True)  # this hook must run before pytest deselects the tests of other tiers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked ``quick_cases(n)``, run only n evenly spread cases in the quick tier, all in the regression."""
    items.sort(key=lambda item: _place(f"{item.path.parent.name}/{item.path.name}"))
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick_cases") and not item.get_closest_marker("regression"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for alike in cases.values():
        mark = alike[0].get_closest_marker("quick_cases")
        assert mark
        quick = {round(place) for place in np.linspace(0, len(alike) - 1, mark.args[0])}
        for place, item in enumerate(alike):
            if place not in quick:
                item.add_marker(pytest.mark.regression)


def _place(file: str) -> int:
    return next((place for place, start in enumerate(_FIRST) if file.startswith(start)), len(_FIRST))


def pytest_report_header(config: pytest.Config) -> list[str]:
    planted = [f"planted: {planting.NAME}"] if planting.NAME else []
    return [f"random tests use --seed {config.getoption('--seed')}", *planted]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if the tests have loaded a module of a subpackage that the option ``--rooms`` does not list."""
    if (said := session.config.getoption("--rooms")) is None:
        return
    loaded = sys.modules.keys() - _LOADED
    from sptc.tests.dependencies import rooms_of_modules  # after `loaded`, because this import loads subpackages

    if strangers := rooms_of_modules(loaded) - {*said.split(",")}:
        print(f"\ntests loaded subpackages that tests/dependencies.py does not list: {', '.join(sorted(strangers))}")
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Seed of all random tests in this run of pytest."""
    return int(request.config.getoption("--seed"))


@pytest.fixture(scope="session", autouse=True)
def seed_in_the_report(record_testsuite_property: Callable[[str, object], None], seed: int) -> None:
    """Write the seed to the JUnit XML, if any, so that the run can be repeated."""
    record_testsuite_property("seed", seed)


@pytest.fixture
def rng(request: pytest.FixtureRequest, seed: int) -> np.random.Generator:
    """Random generator that depends only on the seed of the run and on the name of the test."""
    return np.random.default_rng([seed, zlib.crc32(request.node.nodeid.encode())])


def _cell(name: str, area: int, inputs: str, functions: dict[str, str], register: str = "") -> str:
    """Return the liberty text of a cell with a delay of 100 ps from each input to each output, for any load."""
    table = '(scalar) { values ("0.1"); }'
    times = " ".join(f"{kind} {table}" for kind in ("cell_rise", "cell_fall", "rise_transition", "fall_transition"))
    pins = [f"pin ({pin}) {{ direction : input; capacitance : 0.001; }}" for pin in inputs]
    for output, function in functions.items():
        arcs = " ".join(f'timing () {{ related_pin : "{pin}"; timing_sense : non_unate; {times} }}' for pin in inputs)
        pins.append(f'pin ({output}) {{ direction : output; function : "{function}"; max_capacitance : 1000; {arcs} }}')
    return f"cell ({name}) {{ area : {area}; {register} {' '.join(pins)} }}"


@pytest.fixture(scope="session")
def liberty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Liberty file with a few cells, one per line. The delay of a path is 100 ps per cell."""
    cells = [
        _cell("INV", 2, "A", {"Y": "!A"}),
        _cell("BUF", 3, "A", {"Y": "A"}),
        _cell("BIG_NAND2", 8, "AB", {"Y": "!(A&B)"}),
        _cell("NAND2", 4, "AB", {"Y": "!(A B)"}),
        _cell("NOR2", 5, "AB", {"Y": "(A+B)'"}),
        _cell("ADD", 30, "ABC", {"CO": "(A*B)|(C*(A|B))", "S": "A^B^C"}),
        _cell("FLOP", 16, "DK", {"Q": "IQ"}, 'ff (IQ, IQN) { next_state : "D"; clocked_on : "K"; }'),
    ]
    units = 'delay_model : table_lookup; time_unit : "1ns"; capacitive_load_unit (1, pf);'
    path = tmp_path_factory.mktemp("liberty") / "little.lib"
    path.write_text("\n".join(["/* a few cells */ library (little) {", units, *cells, "}\n"]))
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("repeat with", f"pytest '{item.nodeid}' --seed {item.config.getoption('--seed')}"))
    return report


@pytest.fixture
def faulty_flags() -> Callable[..., NDArray[np.uint64]]:
    """Stand-in for `Engine.compute` that also flags chunk 3 of row 5 of each 16 x 8 tile, even a legal nibble."""
    from sptc.rtl.step import row_result_layout
    from sptc.sim.engine.engine import Engine
    from sptc.sim.engine.steps import Steps

    compute = Engine.compute

    def computed(engine: Engine, steps: Steps, previous: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        results = compute(engine, steps, previous)
        results[:, 5] |= np.uint64(1 << row_result_layout(engine.config)["illegal"].offset + 3)
        return results

    return computed


@pytest.fixture
def faulty_compute() -> Callable[..., NDArray[np.uint64]]:
    """Replacement for `Engine.compute` that flips result bit 4 if A's first element is negative and C ends in 0b101."""
    from sptc.sim.engine.engine import Engine
    from sptc.sim.engine.steps import Steps

    compute = Engine.compute

    def computed(engine: Engine, steps: Steps, previous: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        words = steps.whole(previous)
        hit = (words[..., steps.words.a.start] & 0x8000 != 0) & (words[..., steps.words.c.start] & 7 == 5)
        return compute(engine, steps, previous) ^ hit.astype(np.uint64) << np.uint64(4)

    return computed
