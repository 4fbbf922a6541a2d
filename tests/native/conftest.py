"""Fixture that compiles the C++ library once for this folder, so that no single test exceeds its budget."""

import pytest
from sptc.native.library import library_file


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    library_file()
