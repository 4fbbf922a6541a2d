"""The manifest of the shipped register files, from which labels of evidence are made.

``python -m sptc.verify.manifest`` writes ``recordings/manifest.json`` again, after recordings were added.
"""

import json
from pathlib import Path

from ..infra.files import write_whole
from .register_file import RegisterFile, read, shipped

__all__ = ["manifest"]


def manifest() -> str:
    """Return the manifest: by architecture and by where A is, each file's instruction; JSON, one file a line."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for path in shipped():
        file = read(path)
        if isinstance(file, RegisterFile) and file.d is not None and file.recorded:
            places = found.setdefault(file.arch, {"registers": {}, "shared": {}})
            places[file.a_from or "registers"][path.name] = str(file.instruction)
    return json.dumps(found, indent=0, sort_keys=True) + "\n"


if __name__ == "__main__":
    write_whole(Path(__file__).parents[1] / "recordings" / "manifest.json", manifest().encode())
