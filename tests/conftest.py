"""Seeds for random tests: one a run, printed, with the command that repeats a failure."""

import secrets
import zlib
from pathlib import Path

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="seed of the random tests (default: a new one)")
    parser.addoption("--waves", type=Path, default=None, metavar="FOLDER", help="write the waves of the benches there")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--seed") is None:
        config.option.seed = secrets.randbelow(2**31)


def pytest_report_header(config: pytest.Config) -> str:
    return f"random tests use --seed {config.getoption('--seed')}"


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed."""
    return int(request.config.getoption("--seed"))


@pytest.fixture
def rng(request: pytest.FixtureRequest, seed: int) -> np.random.Generator:
    """A generator that depends on the run's seed and the test's name alone."""
    return np.random.default_rng([seed, zlib.crc32(request.node.nodeid.encode())])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        command = f"pytest '{item.nodeid}' --seed {item.config.getoption('--seed')}"
        report.sections.append(("repeat with", command))
    return report
