"""Execute the notebooks of the web site: ``python docs/execute.py [NAME...]`` stores new outputs in the notebooks."""

import argparse
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

_FOLDER = Path(__file__).parent / "notebooks"


def _execute(path: Path, target: Path) -> None:
    """Execute a notebook in a scratch folder, and write the notebook with the outputs to `target`."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as scratch:
        where = {"metadata": {"path": scratch}}
        # The parts of a cell's output are joined, so that the file does not depend on the number of parts.
        NotebookClient(notebook, timeout=600, resources=where, coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # Execution times differ in every run.
    nbformat.write(notebook, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks to execute (default: all)")
    parser.add_argument(
        "--output",
        type=Path,
        default=_FOLDER,
        metavar="FOLDER",
        help="output folder (default: overwrite the notebooks)",
    )
    chosen = parser.parse_args()
    for name in chosen.names or sorted(path.stem for path in _FOLDER.glob("*.ipynb")):
        _execute(_FOLDER / f"{name}.ipynb", chosen.output / f"{name}.ipynb")
