"""The little library with power, read."""

import pytest
from sptc.energy.electrical import ElectricalLibrary
from sptc.synth.liberty import Library
from sptc.tests.energy.power_library import TEXT


@pytest.fixture
def library() -> Library:
    return Library("power.lib", TEXT)


@pytest.fixture
def electrical(library: Library) -> ElectricalLibrary:
    return ElectricalLibrary.of(library)
