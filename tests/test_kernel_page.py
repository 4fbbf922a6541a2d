"""The page on kernels explains every word of a way to sum."""

import re
from pathlib import Path

from sptc.gemm.ways import ORDERS, Way

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guides" / "is-my-kernel-exact.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_every_word_of_a_way_is_explained() -> None:
    explained = {
        word for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }
    assert explained == {*Way.__dataclass_fields__}
    assert all(f"`{order}`" in TEXT for order in ORDERS)


def test_the_readme_leads_to_it() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(docs/guides/is-my-kernel-exact.md)" in readme
