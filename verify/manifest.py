"""The manifest of the shipped register files, the source of the labels of evidence.

``python -m sptc.verify.manifest`` rewrites ``recordings/manifest.json`` after recordings were added.
"""

import json
from pathlib import Path

from ..infra.files import write_whole
from .register_file import RegisterFile, read, shipped

__all__ = ["manifest"]


def manifest() -> str:
    """Return the manifest: each file's instruction by architecture and location of A; JSON, one file a line."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for path in shipped():
        file = read(path)
        if isinstance(file, RegisterFile) and file.d is not None and file.recorded:
            places = found.setdefault(file.arch, {"registers": {}, "shared": {}})
            places[file.a_from or "registers"][path.name] = str(file.instruction)
    return json.dumps(found, indent=0, sort_keys=True) + "\n"


if __name__ == "__main__":
    write_whole(Path(__file__).parents[1] / "recordings" / "manifest.json", manifest().encode())
