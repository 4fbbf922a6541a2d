"""Fixture that compiles the C++ library before the tests, so that no test includes the time of the compilation."""

import pytest
from sptc.native.library import library_file


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    library_file()
