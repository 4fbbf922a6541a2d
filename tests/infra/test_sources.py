"""The digest of Python code ignores comments, docstrings and layout, and depends on everything else."""

import ast
from pathlib import Path

import pytest
import sptc
from sptc.infra import sources
from sptc.infra.sources import code_digest, code_of

CODE = '''"""A module."""
import os
LIMIT = 3  # of something
NAMES = ("a",
         "b")


class Thing:
    """A thing."""

    def count(self, text: str) -> str:
        """Count."""
        "not used"
        if text:
            return f"{len(text)} of {LIMIT!r}"
        return "# none"
'''
SAME = {
    "comments": CODE.replace("# of something", "# another").replace("import os\n", "# first\nimport os\n"),
    "docstrings": CODE.replace('"""A thing."""', '"""Another\n    thing."""').replace('"""A module."""\n', ""),
    "no docstring": CODE.replace('        """Count."""\n', ""),
    "layout": CODE.replace('("a",\n         "b")', '(\n    "a", "b")').replace("\n\n\n", "\n"),
}
OTHER = {
    "a number": CODE.replace("= 3", "= 4"),
    "a string": CODE.replace("# none", "# nothing"),
    "a formatted string": CODE.replace("!r", "!s"),
    "a block": CODE.replace('        return "# none"', '            return "# none"'),
    "an operator": CODE.replace("if text", "if not text"),
}


def test_code_and_nothing_else_is_kept() -> None:
    for name, text in SAME.items():
        assert text != CODE, name
        assert code_of(text) == code_of(CODE), name
    for name, text in OTHER.items():
        assert code_of(text) != code_of(CODE), name


def _without_docstrings(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            node.body = [
                of for of in node.body if not (isinstance(of, ast.Expr) and isinstance(of.value, ast.Constant))
            ]
    return ast.dump(tree)


def test_equal_code_is_an_equal_program() -> None:
    """If one character of a module is changed, its digest stays equal exactly if its syntax tree stays equal."""
    text = (Path(sptc.__file__).parent / "infra" / "figures.py").read_text(encoding="utf-8")
    right, compared = code_of(text), 0
    for place in range(0, len(text), 7):
        changed = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]
        try:
            tree = _without_docstrings(changed)
        except SyntaxError:
            continue
        assert (code_of(changed) == right) == (tree == _without_docstrings(text)), place
        compared += 1
    assert compared > 100


def test_a_digest_depends_on_code_names_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "cache"))
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text(CODE)
    other.write_text(SAME["comments"])
    digest = code_digest([one])
    assert len({digest, code_digest([one], "0.5"), code_digest([other]), code_digest([one, other])}) == 4
    one.write_text(SAME["comments"])
    assert code_digest([one]) == digest
    monkeypatch.setattr(sources, "code_of", lambda source: pytest.fail("the digest is not taken from the cache"))
    assert code_digest([one]) == digest
    text = tmp_path / "one.csv"
    text.write_text("# no comment\n")
    assert code_digest([text]) != code_digest([text], "0.5")
