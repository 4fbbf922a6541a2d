"""Dependencies of test files include every file that a test could read, and few other files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sptc.tests import dependencies
from sptc.tests.dependencies import EVERYTHING, digest_of, needs, rooms_of_modules
from sptc.tests.test_house import MAY_IMPORT, ROOT

TESTS = ROOT / "tests"
#: Subpackages on which every test depends that uses public names of `sptc`.
PUBLIC = "api gemm golden gpu infra isa kernels native operands rtl rtl/cells sim/engine tensors"


def test_needed_subpackages() -> None:
    for file, rooms in (
        ("formal/test_proofs.py", "formal infra isa rtl rtl/cells"),
        ("infra/test_diagram.py", "infra"),
        ("isa/test_numerics.py", "isa"),
        ("tensors/test_sparsify.py", "golden infra isa operands tensors"),
        # These files use subpackages through public names of `sptc`, a conftest, or a fixture for all tests.
        ("hostile/test_api.py", PUBLIC),
        ("gemm/test_product.py", PUBLIC),
        ("rtl/test_config.py", "infra isa rtl rtl/cells sim/engine"),
        ("cli/test_run.py", " ".join(MAY_IMPORT)),
    ):
        assert needs(TESTS / file) - {""} == {*rooms.split()}, file
    assert needs(TESTS / "hostile" / "test_kills.py") == EVERYTHING - {"outside"}
    assert needs(TESTS / "test_house.py") == needs(TESTS / "cli" / "test_instructions.py") == EVERYTHING
    names = ["sptc", "sptc.isa.formats", "sptc.sim", "sptc.sim.engine.steps", "numpy"]  # sptc.sim has no code
    assert rooms_of_modules(names) == {"isa", "sim/engine"}


def test_a_digest_depends_on_needed_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    file, read = TESTS / "infra" / "test_diagram.py", dependencies._content
    before = digest_of(file)
    assert digest_of(file) == before
    others, needed = ("cli/main.py", "README.md"), ("infra/yosys.py", "pyproject.toml")
    for name in (*others, *needed):

        def changed(path: Path, *at: Any, name: str = name) -> bytes:
            return b"other" if path == ROOT / name else read(path, *at)

        monkeypatch.setattr(dependencies, "_content", changed)
        assert (digest_of(file) == before) == (name in others), name


@pytest.mark.regression
def test_an_undeclared_subpackage_fails_a_run() -> None:
    """With ``--rooms=LIST``, pytest fails if a test loads a subpackage that LIST lacks. Every regression uses it."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rooms=isa"]
    words.append("tests/infra/test_diagram.py")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode, done.stdout + done.stderr
    assert "does not list: infra" in done.stdout
