"""Every entry of the glossary names a file that is there and a name that stands in it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENTRIES = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n* ")[1:]


def test_every_entry_says_where_its_word_is_defined() -> None:
    assert len(ENTRIES) > 30
    for entry in ENTRIES:
        found = re.search(r"\[(\S+)\]\(\.\./(\S+)\),\s+`(\w+)`\s*(\n\n##.*)?$", entry)
        assert found, entry
        assert found[1] == found[2]
        text = (ROOT / found[1]).read_text(encoding="utf-8")
        name = rf"\b{found[3]}\b"
        assert re.search(rf"(def|class) {name}|^\s*[\w, ]*{name}[\w, ]*[:=]|\"{name}\"", text, re.MULTILINE), entry
    words = [re.match(r"\*\*(.+?)\*\*: ", entry) for entry in ENTRIES]
    assert all(words)
    assert len({word[1] for word in words if word}) == len(ENTRIES)


def test_the_readme_leads_to_it() -> None:
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
