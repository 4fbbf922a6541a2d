"""The digest of Python code ignores comments, docstrings and layout, and depends on everything else."""

from pathlib import Path

import pytest
from sptc.infra import sources
from sptc.infra.sources import code_digest, code_of

CODE = '''"""A module."""
import os
LIMIT = 3  # a comment
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
    "comments": CODE.replace("# a comment", "# another").replace("import os\n", "# first\nimport os\n"),
    "docstrings": CODE.replace('"""A thing."""', '"""Another\n    thing."""').replace('"""A module."""\n', ""),
    "a string after a block": CODE + '"not used"\n',
    "no docstring": CODE.replace('        """Count."""\n', ""),
    "layout": CODE.replace('("a",\n         "b")', '(\n    "a", "b")').replace("\n\n\n", "\n"),
}
OTHER = {
    "a number": CODE.replace("= 3", "= 4"),
    "a sign": CODE.replace("= 3", "= -3"),
    "a string": CODE.replace("# none", "# nothing"),
    "a formatted string": CODE.replace("!r", "!s"),
    "a block": CODE.replace('        return "# none"', '            return "# none"'),
    "an operator": CODE.replace("if text", "if not text"),
    "a name": CODE.replace("count(self", "counted(self"),
    "an import": CODE.replace("import os", "import ast"),
}


def test_code_and_nothing_else_is_kept() -> None:
    for name, text in SAME.items():
        assert text != CODE, name
        assert code_of(text) == code_of(CODE), name
    for name, text in OTHER.items():
        assert code_of(text) != code_of(CODE), name


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
