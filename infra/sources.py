"""Digest of Python source code that does not change with comments, docstrings or layout."""

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cache import recall, store

__all__ = ["code_digest", "code_of"]

#: Source text of this module, which is part of the cache key of each digest.
_WRITTEN = Path(__file__).read_bytes()


def code_of(source: str) -> str:
    """Return the syntax tree of Python source text, without docstrings, as a text that is equal in all Python versions.

    Raise a `SyntaxError` if the source cannot be parsed.
    """
    return repr(_plain(ast.parse(source)))


def _plain(value: Any) -> Any:
    """Return a part of a syntax tree as lists. Empty fields, of which newer Python versions have more, are left out."""
    if isinstance(value, list):
        return [_plain(item) for item in value if not _is_text(item)]
    if isinstance(value, ast.JoinedStr):  # Python 3.12.1 adds an empty string to the tree of a nested f-string format
        return ["JoinedStr", *(_plain(part) for part in value.values if getattr(part, "value", None) != "")]
    if isinstance(value, ast.AST):
        fields = ((name, _plain(field)) for name, field in ast.iter_fields(value))
        return [type(value).__name__, *(field for field in fields if field[1] not in (None, []))]
    return value


def _is_text(node: Any) -> bool:
    """Return whether a statement is only a string, such as a docstring, and therefore has no effect."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code_digest(paths: Iterable[Path], *others: str) -> str:
    """Return a digest (16 hexadecimal digits) of the code in some files, the names of these files, and further strings.

    A file that is not Python is hashed with all of its bytes. The further strings are, for example, versions of
    packages. Parsing a hundred files takes a second, so the digest is cached under a hash of the file contents.
    """
    files = [(path.name, path.suffix, path.read_bytes()) for path in sorted(paths)]
    written = hashlib.sha256(repr((_WRITTEN, others, [name for name, *_ in files])).encode())
    for _, _, data in files:
        written.update(hashlib.sha256(data).digest())
    name = f"code/{written.hexdigest()[:32]}"
    if (kept := recall(name)) is not None:
        return kept.decode()
    digest = hashlib.sha256(repr(others).encode())
    for file, suffix, data in files:
        code = code_of(data.decode()).encode() if suffix == ".py" else data
        digest.update(f"\0{file}\0".encode() + hashlib.sha256(code).digest())
    code_only = digest.hexdigest()[:16]
    store(name, code_only.encode())
    return code_only
