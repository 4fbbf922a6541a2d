"""Digest of Python source code that does not change with comments, docstrings or layout."""

import hashlib
import io
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from .cache import recall, store

__all__ = ["code_digest", "code_of"]

#: Source text of this module, which is part of the cache key of each digest.
_WRITTEN = Path(__file__).read_bytes()
#: Types of tokens after which a string that is a whole statement is a docstring.
_STATEMENT_STARTS = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
#: Types of tokens for layout and comments, which the digest ignores.
_IGNORED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING})
#: From Python 3.12 on, a formatted string is several tokens. It counts as one token here, as in earlier versions.
_STRING_BEGINS = getattr(tokenize, "FSTRING_START", None)
_STRING_ENDS = getattr(tokenize, "FSTRING_END", None)


def code_of(source: str) -> list[str]:
    """Return the tokens of a Python source without comments, docstrings and layout, equal in every Python version.

    Raise a `SyntaxError` or `tokenize.TokenError` if the source cannot be parsed.
    """
    tokens = [token for token in _tokens(source) if token.type not in _IGNORED]
    code, previous = [], tokenize.NEWLINE
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        ends_line = following is None or following.type in (tokenize.NEWLINE, tokenize.ENDMARKER)
        if token.type == tokenize.STRING and previous in _STATEMENT_STARTS and ends_line:
            continue  # `previous` is not updated, so that the NEWLINE token after the docstring is also ignored.
        if not (token.type == tokenize.NEWLINE and previous in _STATEMENT_STARTS):
            is_layout = token.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE)
            code.append(tokenize.tok_name[token.type] if is_layout else token.string)
        previous = token.type
    return code


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    lines, depth, start = source.splitlines(keepends=True), 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == _STRING_BEGINS:
            depth += 1
            start = token.start if depth == 1 else start
        if not depth:
            yield token
        if token.type == _STRING_ENDS:
            depth -= 1
            if not depth:
                text = "".join(lines[start[0] - 1 : token.end[0]])
                cut = text[start[1] : len(text) - len(lines[token.end[0] - 1]) + token.end[1]]
                # The type is NUMBER instead of STRING, so that a formatted string does not count as a docstring.
                yield tokenize.TokenInfo(tokenize.NUMBER, cut, start, token.end, token.line)


def code_digest(paths: Iterable[Path], *others: str) -> str:
    """Return a digest (16 hexadecimal digits) of the code of files, of the file names, and of further strings.

    A file that is not Python is hashed with all of its bytes. The further strings are, for example, versions of
    packages. Tokenising a hundred files takes seconds, so the digest is cached under a hash of the file contents.
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
        code = "\n".join(code_of(data.decode())).encode() if suffix == ".py" else data
        digest.update(f"\0{file}\0".encode() + hashlib.sha256(code).digest())
    code_only = digest.hexdigest()[:16]
    store(name, code_only.encode())
    return code_only
