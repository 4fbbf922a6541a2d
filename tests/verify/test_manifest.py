"""The manifest of shipped register files is that of the files."""

from pathlib import Path

from sptc.verify.manifest import manifest

SHIPPED = Path(__file__).parents[2] / "recordings" / "manifest.json"


def test_the_manifest_is_that_of_the_files() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == manifest(), "run `python -m sptc.verify.manifest`"
