"""Every benchmark script runs completely with small sizes, and prints the rows that it promises."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sptc.tests.synth.power_library import TEXT as POWER

pytestmark = pytest.mark.bench

FOLDER = Path(__file__).parents[2] / "benchmarks"
#: Files that are not run: helpers that benchmark scripts import or start, and scripts that need a GPU, the compilers of
#: kernels, or a library of standard cells with the power of all cells.
NOT_RUN = "measure oracle record record_kernels library_calls library_kernels planted_products planted_values "
NOT_RUN += "random_products fuzz_readers fuzz_target compile_cuda compile_cute compile_tilelang kernel_records "
NOT_RUN += "launch_kernels opensta cuda_programs"
SCRIPTS = sorted({path.stem for path in FOLDER.glob("*.py")} - {*NOT_RUN.split()})


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_runs(name: str, liberty: Path, tmp_path: Path) -> None:
    words = [sys.executable, str(FOLDER / f"{name}.py"), "--small", "--json"]
    variables = dict(os.environ)
    if name in ("energy", "energy_layers", "opensta"):
        (tmp_path / "power.lib").write_text(POWER, encoding="utf-8")
        words += ["--liberty", "power.lib"]
    if name == "area":
        words += ["--liberty", str(liberty)]
        variables["SPTC_CACHE"] = str(tmp_path)  # an empty cache, so that areas are measured again
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode == 2 and re.search("this (benchmark )?needs", done.stderr):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, f"benchmarks/{name}.py --small: {done.stderr.strip()}"
    rows = json.loads(done.stdout)
    assert len(rows) > 0
    for row in rows:
        assert row.keys() == {"name", "unit", "value"}
        assert isinstance(row["name"], str)
        assert isinstance(row["unit"], str)
        assert row["name"]
        assert isinstance(row["value"], int | float)
        assert math.isfinite(row["value"])
