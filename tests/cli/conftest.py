"""What the tests of commands share."""

import pytest
from sptc.sim.engine.engine import engine_for


@pytest.fixture(scope="session")
def compiled_engine() -> None:
    """The hardware of sm_80, compiled once, so that no test waits for it within a limit."""
    engine_for("sm_80")
