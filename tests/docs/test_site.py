"""Pages of the site list every public name and match the code, and the check of the site finds planted problems."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sptc
from sptc.cli.examples import EXAMPLES
from sptc.formal.catalogue import PROPERTIES
from sptc.gemm.ways import ORDERS, Way
from sptc.sim.benches.settings import TOPS
from sptc.tests.docs.test_pages import PAGES, ROOT

DOCS = ROOT / "docs"
PAGE = '<html lang="en"><body><h1 id="top">Title</h1><p>' + 25 * "word " + "</p>{}</body></html>"


@pytest.fixture
def of_docs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(DOCS))
    yield
    for name, module in [*sys.modules.items()]:
        if Path(getattr(module, "__file__", None) or "").parent == DOCS:
            sys.modules.pop(name)


def test_every_public_name_and_every_page_is_on_the_site() -> None:
    text = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    # These functions are documented under the names of their modules, because each has the same name as its package.
    assert [name for name in sptc.__all__ if f":: sptc.{name}\n" not in text] == ["gemm", "tilelang", "triton"]
    assert ":: sptc.gemm.multiply.gemm\n" in text
    for compiler in ("tilelang", "triton"):
        assert f":: sptc.kernels.{compiler}.run\n" in text
    contents = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = [path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES if path.is_relative_to(DOCS)]
    assert [page for page in pages if page != "index" and f"\n{page}\n" not in contents] == []


def test_the_version_the_number_of_properties_and_links_of_the_readme() -> None:
    assert f"\nversion: {sptc.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'\nversion = "{sptc.__version__}"\n' in (ROOT / "recordings" / "pyproject.toml").read_text(encoding="utf-8")
    assert sptc.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1].splitlines()[0]
    readme, development = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/guides/development.md"))
    for text in (readme, development):
        assert re.findall(r"(\d+) properties of the hardware", text) == [str(len(PROPERTIES))]
    assert "(docs/glossary.md)" in readme
    assert "(docs/guides/is-my-kernel-exact.md)" in readme


@pytest.mark.usefixtures("of_docs")
def test_pages_are_made_from_code(tmp_path: Path) -> None:
    import generate
    import instruction_pages

    makers = {name: make for name, make in generate.PAGES.items() if name not in ("ports", "instructions")}
    pages = {name: dict(make(tmp_path)) for name, make in makers.items()}
    commands = pages["commands"]
    assert commands.keys() == {"index.md", *(f"{name.replace(' ', '-')}.md" for name in EXAMPLES)}
    assert "sptc run --backend golden" in commands["run.md"]
    layouts = instruction_pages.layouts()
    assert sum(map(len, layouts.values())) > 1300
    for group in layouts.values():
        instructions = [subject.instruction for subject in group]
        assert len({(i.m, i.k, i.granularity, i.container_bits) for i in instructions}) == 1
        assert {i.a for i in instructions} == {i.b for i in instructions}  # page titles name only the types of A
    page = instruction_pages.page_of("mma-2-4-m16n8k32-16bit-d32", layouts["mma-2-4-m16n8k32-16bit-d32"])
    assert page.startswith("# `mma.sp` m16n8k32 f16/bf16 to f32, 2:4\n")
    assert "| instruction | sm_90 | sm_80 | sm_86 | sm_89 | sm_100 | sm_120 |" in page
    tensor = [group for group in layouts.values() if group[0].opcode]
    assert instruction_pages._section(tensor[:2]).startswith("| instruction | types | A is | sm_100 | in PTX |\n")
    page = pages["numerics"]["index.md"]
    assert "\n## sm_90\n" in page
    assert page.count("MMA-Sim") == 1
    assert "| `mma`, `wgmma`: f16/bf16 to f32 | fused: L = 16, F = 25, e_zero = -133; truncated to f32 | rec" in page
    assert "## `benchmarks/golden.py`" in pages["benchmarks"]["index.md"]


@pytest.mark.usefixtures("of_docs")
def test_figures_of_the_verification(tmp_path: Path) -> None:
    import verification_pages

    pages = dict(verification_pages.verification_pages(tmp_path))
    texts = {"index.md", "proofs.md", "regression.md", "faults.md", "planted.md", "silicon.md", "figures.txt"}
    assert pages.keys() == texts
    assert "| 1216 | 18,083,602,432 | 0 |" in pages["silicon.md"]
    for text in (pages["index.md"], pages["figures.txt"]):
        assert re.search(r"^\| \*\*18,083,602,432\*\* \| outputs of 1,216 .*; 0 differ \|", text, re.MULTILINE)
        assert f"| **{len(PROPERTIES)}** | properties of the hardware that `sptc prove` proves" in text
    rows = re.findall(r"^\| (`\S+`|all) \| (?:`(\w+)`)? \| ([\d |]+) \|", pages["faults.md"], re.MULTILINE)
    numbers = [[*map(int, row[2].split(" | ")[:5])] for row in rows]
    assert {row[1] for row in rows[:-1]} <= {*TOPS}, "the page shows a top-level module that no longer exists"
    assert [sum(column) for column in zip(*numbers[:-1], strict=True)] == numbers[-1]
    faults, killed, equivalent, *others = numbers[-1]
    assert faults == killed + equivalent + sum(others)
    assert f"| **{killed:,}** of {faults - equivalent:,} |" in pages["figures.txt"]


def test_every_extra_is_on_the_installation_page() -> None:
    text = (DOCS / "guides" / "install.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project.optional-dependencies]\n")[1]
    extras = re.findall(r"^(\w+) = \[$", project.split("\n[")[0], re.MULTILINE)
    assert len(extras) > 10
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", text, re.MULTILINE)))
    assert {*extras} - {"all"} <= {*named}
    assert "\n```{toctree}\n:caption: Start\n:hidden:\n\nguides/install\n" in (DOCS / "index.md").read_text("utf-8")


def test_the_index_includes_parts_of_the_readme() -> None:
    readme, index = (path.read_text(encoding="utf-8") for path in (ROOT / "README.md", DOCS / "index.md"))
    parts = re.findall(r':start-after: "(.*?)"\n:end-before: "(.*?)"\n', index)
    assert len(parts) == 3
    for begin, end in parts:
        assert readme.count(begin) == readme.count(end) == 1
        assert len(readme.split(begin)[1].split(end)[0].split()) > 20


@pytest.mark.usefixtures("of_docs")
def test_block_diagrams_are_as_commands_draw_them_now(tmp_path: Path) -> None:
    import draw

    for name in draw.BLOCK_DIAGRAMS:
        assert draw.draw(name, tmp_path / "drawn.svg") == 0
        same = (tmp_path / "drawn.svg").read_bytes() == (draw.FOLDER / f"{name}.svg").read_bytes()
        assert same, f"the picture is out of date: run python docs/draw.py {name}"
    assert {path.stem for path in draw.FOLDER.glob("*.svg")} == {*draw.PICTURES}


@pytest.mark.usefixtures("of_docs")
def test_problems_that_the_check_finds(tmp_path: Path) -> None:
    import check

    styles = tmp_path / "_static" / "styles" / "furo.css"
    styles.parent.mkdir(parents=True)
    scheme = "{{--color-background-primary:{};--color-foreground-primary:{}}}"
    styles.write_text("a" + scheme.format("#fff", "#000") + "b" + scheme.format("#131416", "#cfd0d0"))
    right = PAGE.format('<a href="#top">x</a><a href="right.html#top">y</a>')
    (tmp_path / "right.html").write_text(right, encoding="utf-8")
    assert [*check.findings(tmp_path)] == []
    for name, content, problem in (  # each page has a different name, because the check caches pages
        ("page", '<a href="nowhere.html">x</a>', "link nowhere.html has no target"),
        ("anchor", '<a href="#nowhere">x</a>', "link #nowhere has no target"),
        ("picture", '<img src="picture.svg">', "picture picture.svg has no alternative text"),
        ("script", '<script src="https://elsewhere/x.js"></script>', "fetches https://elsewhere/x.js"),
        ("level", "<h3>Too deep</h3>", "a heading of level 3 follows a heading of level 1"),
        ("titles", "<h1>Another</h1>", "has 2 headings of level 1"),
        ("size", "<p>" + 500_000 * "x" + "</p>", "bytes"),
    ):
        wrong = tmp_path / f"wrong-{name}.html"
        wrong.write_text(PAGE.format(content), encoding="utf-8")
        (found,) = check.findings(tmp_path)
        assert found.startswith(f"{wrong.name}: "), problem
        assert problem in found
        wrong.unlink()
    styles.write_text("a" + scheme.format("#fff", "#999") + "b" + scheme.format("#131416", "#cfd0d0"))
    (found,) = check.findings(tmp_path)
    assert "too little contrast" in found


def test_every_entry_says_where_its_word_is_defined() -> None:
    entries = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n* ")[1:]
    assert len(entries) > 30
    for entry in entries:
        link = re.search(r"\[(\S+)\]\(\.\./(\S+)\),\s+`(\w+)`\s*(\n\n##.*)?$", entry)
        assert link, entry
        assert link[1] == link[2]
        text = (ROOT / link[1]).read_text(encoding="utf-8")
        name = rf"\b{link[3]}\b"
        assert re.search(rf"(def|class) {name}|^\s*[\w, ]*{name}[\w, ]*[:=]|\"{name}\"", text, re.MULTILINE), entry
    words = [re.match(r"\*\*(.+?)\*\*: ", entry) for entry in entries]
    assert all(words)
    assert len({word[1] for word in words if word}) == len(entries)


def test_every_word_of_a_way_is_explained() -> None:
    text = (ROOT / "docs" / "guides" / "is-my-kernel-exact.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`(\w+)`", row)} == {*Way.__dataclass_fields__}
    assert all(f"`{order}`" in text for order in ORDERS)
