"""Execute the notebooks of the site: ``python docs/execute.py [NAME...]`` writes what they show now into them."""

import argparse
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

_FOLDER = Path(__file__).parent / "notebooks"


def _execute(path: Path, target: Path) -> None:
    """Execute a notebook in a folder of its own, and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as scratch:
        where = {"metadata": {"path": scratch}}
        # What a cell prints may come in parts, by chance: they become one.
        NotebookClient(notebook, timeout=600, resources=where, coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which are others each time
    nbformat.write(notebook, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones (default: all)")
    parser.add_argument("--output", type=Path, default=_FOLDER, metavar="FOLDER", help="instead of over themselves")
    chosen = parser.parse_args()
    for name in chosen.names or sorted(path.stem for path in _FOLDER.glob("*.ipynb")):
        _execute(_FOLDER / f"{name}.ipynb", chosen.output / f"{name}.ipynb")
