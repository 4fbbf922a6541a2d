"""Rows of sm_100 against recordings of sm_90: fp8 through registers, which the assembler makes of steps of f16 there.

What undefined nibbles select is not the same.
"""

from pathlib import Path

import numpy as np
import pytest
from sptc.verify.register_file import read, shipped

EMULATED = [
    path
    for path in shipped()
    if path.name.startswith("mma.")
    and {"e4m3", "e5m2"} & set(path.name.split("."))
    and "every-nibble" not in path.name.split(".")
]


@pytest.mark.parametrize("name", ["golden", "native", pytest.param("rtl", marks=pytest.mark.regression)])
@pytest.mark.parametrize("path", EMULATED, ids=lambda path: path.stem)
def test_emulated_fp8_of_sm_100_is_that_of_sm_90(path: Path, name: str) -> None:
    file = read(path).assuming("sm_100", None)
    np.testing.assert_array_equal(file.run(name), file.d)
