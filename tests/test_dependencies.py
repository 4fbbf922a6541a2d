"""Dependencies of test files include every file that a test could read, and as few others as possible."""

import subprocess
import sys

import pytest
from sptc.tests import dependencies
from sptc.tests.dependencies import EVERYTHING, digest_of, needs, rooms_of_modules
from sptc.tests.test_house import MAY_IMPORT, ROOT

TESTS = ROOT / "tests"


#: Rooms that the public names of the package need.
PUBLIC = "api gemm golden gpu infra isa kernels native operands rtl rtl/cells sim/engine tensors"


@pytest.mark.parametrize(
    ("file", "rooms"),
    [
        ("formal/test_proofs.py", "formal infra isa rtl rtl/cells"),
        ("infra/test_diagram.py", "infra"),
        ("isa/test_numerics.py", "isa"),
        ("tensors/test_sparsify.py", "golden infra isa operands tensors"),
        # These files reach rooms through exported names of the root, the conftest of their folder, or a fixture for all
        # tests.
        ("hostile/test_api.py", PUBLIC),
        ("gemm/test_product.py", PUBLIC),
        ("rtl/test_config.py", "infra isa rtl rtl/cells sim/engine"),
        ("cli/test_run_tensor_memory.py", " ".join(MAY_IMPORT)),
    ],
)
def test_rooms(file: str, rooms: str) -> None:
    assert needs(TESTS / file) - {""} == {*rooms.split()}


def test_what_starts_programs_depends_on_all_rooms() -> None:
    assert needs(TESTS / "hostile" / "test_kills.py") == EVERYTHING - {"outside"}
    assert needs(TESTS / "test_house.py") == needs(TESTS / "cli" / "test_instructions.py") == EVERYTHING


@pytest.mark.parametrize(
    ("changed", "same"),
    [("cli/main.py", True), ("README.md", True), ("infra/yosys.py", False), ("pyproject.toml", False)],
)
def test_a_digest_follows_what_is_needed(changed: str, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    file, read = TESTS / "infra" / "test_diagram.py", dependencies._content
    before = digest_of(file)
    assert digest_of(file) == before
    monkeypatch.setattr(
        dependencies, "_content", lambda path, *at: b"other" if path == ROOT / changed else read(path, *at)
    )
    assert (digest_of(file) == before) == same


def test_rooms_that_were_loaded() -> None:
    names = ["sptc", "sptc.isa.formats", "sptc.sim", "sptc.sim.engine.steps", "numpy"]  # sim has only a docstring
    assert rooms_of_modules(names) == {"isa", "sim/engine"}


@pytest.mark.regression
def test_a_room_that_is_not_known_of_fails_a_run() -> None:
    """A test run fails if a test loads a room that is not declared, so the regression checks its own dependencies."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rooms=isa"]
    done = subprocess.run(
        [*words, "tests/infra/test_diagram.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode, done.stdout + done.stderr
    assert "does not list: infra" in done.stdout
