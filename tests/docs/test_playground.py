"""In Chromium, libsptc and the trace of the playground page give the bits and steps of the golden model."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.isa.instructions import Instruction
from sptc.isa.numerics import Method, numerics
from sptc.tests.docs.test_pages import ROOT
from sptc.verify.stimulus import draw_tiles, drawn_distributions
from sptc.verify.trace import OutputTrace, Step
from sptc.verify.trace_golden import golden_traces

LARGEST, LEAST_STEPS = 1_500_000, 10_000
TOOLS = {"emcc": "emscripten", "chromium": "chromium"}

#: Script that is appended to the page. It computes each case with libsptc and with the trace of the page, fills
#: the operands with every pattern, and selects options in every drop-down list.
_SCRIPT = """
<script id="answers" type="application/json"></script>
<script>
const ofStep = (step) => [
  step.c, step.e_max, step.alignment_bits, step.total, step.rounding, step.d,
  step.products.map((p) => [p.element, p.chunk, p.nibble, p.selected, p.a, p.b, String(p.value)]),
  step.terms.map((t) => [t.elements, String(t.value), t.exponent, t.shift, t.kept, t.cut]),
];
const answers = CASES.map(({ text, arch, operands }) => {
  const i = CATALOGUE.instructions.find((each) => each.text === text), d = CATALOGUE.formats[i.d];
  const traced = trace(CATALOGUE, i, arch, operands);
  const word = library.multiply(text, arch, i.k, operands, i.container, d.bits);
  const state = { i, arch, operands: { ...operands, c: [operands.c] } };
  const again = computed(fromFragment(toFragment(state)).operands);
  const isShared = Object.keys(operands).every((name) => String(again[name]) === String(operands[name]));
  return [word, traced.d, traced.added, isShared, traced.steps.map(ofStep)];
});
const verdicts = new Set([get("verdict").className]);
const draw = (state) => { show(state); verdicts.add(get("verdict").className); };
for (const { i, arch } of PAIRS.filter((_, place) => place % 60 === 0)) {
  for (const name of Object.keys(FILLINGS)) draw({ i, arch, operands: fill(i, name) });
}
const ignored = [];
for (let turn = 0; turn < 20 * FACETS.length; ++turn) {
  const place = turn % FACETS.length, { options } = get(`facet-${place}`), { value } = options[turn % options.length];
  get(`facet-${place}`).value = value;
  get(`facet-${place}`).dispatchEvent(new Event("change"));
  verdicts.add(get("verdict").className);
  if (FACETS[place][1](state.i, state.arch) !== value) ignored.push([place, value]);
}
const plain = (name, value) => (typeof value === "bigint" ? String(value) : value);
const said = { verdicts: [...verdicts], ignored, answers };
document.getElementById("answers").textContent = JSON.stringify(said, plain);
</script>
"""


@pytest.fixture
def playground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import playground

    yield playground
    sys.modules.pop("playground", None)


def in_chromium(page: str, cases: list[dict[str, Any]], path: Path) -> dict[str, Any]:
    script = _SCRIPT.replace("<script>\n", f"<script>\nconst CASES = {json.dumps(cases)};\n", 1)
    path.write_text(page.replace("</body>", f"{script}</body>"), encoding="utf-8")
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent / 'profile'}"]
    words += ["--dump-dom", path.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=900)
    answers = re.search(r'<script id="answers" [^>]*>(\{.*?\})</script>', done.stdout, re.DOTALL)
    assert answers, done.stderr
    return json.loads(answers[1])


def drawn(text: str, i: Instruction, arch: str, tiles: int, rng: np.random.Generator) -> Iterator[Any]:
    """Yield pairs of a case with one output, for the page, and the golden model's trace of this case."""
    one = replace(i, m=1, n=1)
    for nibbles in ("legal", "all") if i.rule else ("legal",):
        matrices = draw_tiles(one, drawn_distributions(one, None), nibbles, tiles, rng).matrices
        for tile, golden in enumerate(golden_traces(one, arch, matrices)):
            arrays = (matrices.nibbles, matrices.scale_a, matrices.scale_b)
            parts = [[] if array is None else array[tile].ravel().tolist() for array in arrays]
            operands = {
                "a": matrices.a[tile, 0].tolist(),
                "b": matrices.b[tile, :, 0].tolist(),
                "c": matrices.c[tile].item(),
                **dict(zip(("nibbles", "scaleA", "scaleB"), parts, strict=True)),
            }
            yield {"text": text, "arch": arch, "operands": operands}, golden


def as_answer(golden: OutputTrace) -> list[Any]:
    """Return D by libsptc, D by the trace, C if it is added last, True if a link restores operands, and steps."""
    return [golden.d, golden.d, golden.added, True, [_of_step(step) for step in golden.steps]]


def _of_step(step: Step) -> list[Any]:
    return [
        step.c, step.e_max, step.alignment_bits, _text(step.total), step.rounding, step.d,
        [[p.element, p.chunk, p.nibble, p.selected, p.a, p.b, _value(p.value)] for p in step.products],
        [[[*t.elements], _value(t.value), t.exponent, t.shift, _text(t.kept), t.cut] for t in step.terms],
    ]  # fmt: skip


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _value(value: float | int | str) -> float | str:
    """Return a value to compare instead of a number: equal for all NaN, and equal for zeros of both signs."""
    number = float(value)
    return "nan" if number != number else number


def differing(cases: list[Any], answers: list[Any]) -> list[str]:
    texts = []
    for (case, golden), answer in zip(cases, answers, strict=True):
        for *_, products, terms in answer[-1]:
            for product in products:
                product[-1] = _value(product[-1])
            for term in terms:
                term[1] = _value(term[1])
        if answer != as_answer(golden):
            texts.append(f"{case}\ngolden model: {as_answer(golden)}\npage: {answer}")
    return texts


@pytest.mark.regression
def test_the_page_gives_what_the_golden_model_gives(playground: Any, rng: np.random.Generator, tmp_path: Path) -> None:
    for tool, package in TOOLS.items():
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}: on Debian or Ubuntu, `apt install {package}`")
    pairs = [(text, i, arch) for text, i in playground.instructions().items() for arch in i.architectures]
    cases = [case for pair in pairs for case in drawn(*pair, 6, rng)]
    assert {numerics(i, arch).method for _, i, arch in pairs} == {*Method}
    assert sum(len(golden.steps) for _, golden in cases) >= LEAST_STEPS
    page = playground.page(shutil.which("emcc"))
    assert len(page.encode()) < LARGEST
    said = in_chromium(page, [case for case, _ in cases], tmp_path / "page.html")
    assert said["verdicts"] == ["good"]
    assert said["ignored"] == []
    assert differing(cases, said["answers"]) == []
    # The comparison detects a script that truncates toward minus infinity.
    wrong = page.replace("return m < 0n ? -kept : kept;", "return e < 0 ? m >> BigInt(-e) : m << BigInt(e);")
    assert wrong != page
    few = cases[:: len(cases) // 1000]
    said = in_chromium(wrong, [case for case, _ in few], tmp_path / "wrong.html")
    assert len(differing(few, said["answers"])) > 10


def test_choices_determine_an_instruction(playground: Any) -> None:
    """An architecture and an option of every drop-down list of page.js select at most one instruction."""
    names = ("family", "sparse", "a", "b", "d", "k", "kind", "satfinite", "scales", "scale")
    rows = playground.catalogue()["instructions"]
    words = [(arch, *(row[name] for name in names)) for row in rows for arch in row["on"]]
    assert len({*words}) == len(words) > 1000


def test_without_emcc_a_sentence_says_how_to_install_it(
    playground: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    playground.write(tmp_path / playground.NAME)
    assert playground.LEFT_OUT in (tmp_path / playground.NAME).read_text(encoding="utf-8")
    assert "apt install emscripten" in capsys.readouterr().err
