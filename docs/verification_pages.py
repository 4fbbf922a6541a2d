"""Pages about the verification: comparisons with GPUs, proofs, tests, faults, and an index with their totals."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from page_text import ROOT, escaped, index, table
from sptc.formal.catalogue import PROPERTIES
from sptc.sim.benches.settings import TOPS

__all__ = ["figures", "verification_pages"]

_VERDICTS = ("faults", "killed", "equivalent", "told apart", "undecided")
#: Parts of the hardware into which faults are injected, each with a description.
_PARTS = {
    "components": "components of a dot-product unit, each by itself",
    "row": "one dot-product unit with its metadata decoder",
    "core": "array of dot-product units with stream ports",
    "warp": "tensor core with the registers of a warp",
    "warpgroup": "four tensor cores with shared memory, for `wgmma`",
    "tcgen05": "control of the tensor cores of a CTA, for `tcgen05.mma`",
}


@cache
def _record(*path: str) -> Any:
    return json.loads(ROOT.joinpath(*path).read_text(encoding="utf-8"))


@cache
def _campaigns() -> list[Any]:
    """Return the records of all comparisons with GPUs, in the order of their dates."""
    folder = ROOT / "recordings" / "campaigns"
    records = (json.loads(gzip.decompress(path.read_bytes())) for path in folder.glob("*.json.gz"))
    return sorted(records, key=lambda record: record["date"])


def _faults() -> list[Any]:
    """Return a record of the injected faults of each datapath and each part of the hardware."""
    records: list[Any] = _record("benchmarks", "faults.json")
    return records


def _fault_sums() -> dict[str, int]:
    return {name: sum(top[name] for top in _faults()) for name in _VERDICTS}


def figures(folder: str) -> list[tuple[str, str, str]]:
    """Return the totals of the verification, each total with a description and a link to a page in `folder`."""
    totals = [record["total"] for record in _campaigns()]
    outputs, wrong = (sum(total[name] for total in totals) for name in ("outputs", "mismatches"))
    gpus = ", ".join(dict.fromkeys(record["gpu"] for record in _campaigns()))
    cases = {(proof["property"], proof["case"]) for proof in _record("formal", "proved.json")["proofs"]}
    sums = _fault_sums()
    return [
        (
            f"**{outputs:,}**",
            f"outputs of {len({name for one in _campaigns() for name in one['instructions']}):,} instructions that "
            f"`sptc gpu verify` compared with a GPU ({gpus}); {wrong:,} differ",
            f"[comparisons with GPUs]({folder}silicon.md)",
        ),
        (
            f"**{len(PROPERTIES)}**",
            f"properties of the hardware that `sptc prove` proves for every datapath, in {len(cases)} cases",
            f"[proved properties]({folder}proofs.md)",
        ),
        (
            f"**{sums['killed']:,}** of {sums['faults'] - sums['equivalent']:,}",
            "faults injected by `benchmarks/faults.py` that the vectors of the benches detect; faults that change no "
            "output are not counted",
            f"[fault injection]({folder}faults.md)",
        ),
    ]


def verification_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield file name and text of each page about the verification, of their index, and of a file with totals."""
    yield "proofs.md", _proofs()
    yield "regression.md", _regression()
    yield "planted.md", _planted()
    yield "faults.md", _injected()
    yield "silicon.md", _silicon()
    heads = ("number", "counted items", "page")
    yield "figures.txt", table(heads, figures("generated/verification/"))
    done = _tested()
    more = [
        (
            f"**{sum(entry['passed'] for entry in done):,}**",
            f"tests in {len(done)} files that passed in `make regression`",
            "[results of the regression](regression.md)",
        ),
        (
            f"**{len(_record('tests', 'planted', 'found.json'))}**",
            "faults that `tests/planted/` plants in the sources, each detected by a test",
            "[planted faults](planted.md)",
        ),
    ]
    words = (
        "The models are compared with GPUs, and properties of the hardware are proved. Tests compare the hardware with "
        "the models, and faults are injected to measure the share of faults that the tests detect:\n\n"
        + table(heads, [*figures(""), *more])
        + "\n[Evidence for the models](../../explanation/evidence.md) describes which instructions were compared with "
        "which GPU, and [limitations](../../reference/limitations.md) lists the limits of the proofs."
    )
    yield index("Verification", words, ("silicon", "proofs", "faults", "regression", "planted"), hidden=True)


def _proofs() -> str:
    topics: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for item in PROPERTIES:
        topics[item.name.split(".")[0]].append((item.name, item.statement))
    proofs = "\n".join(
        f"## {topic}\n\n" + "".join(f"* `{name}`: {escaped(statement)}\n" for name, statement in members)
        for topic, members in topics.items()
    )
    return f"# Proved properties\n\n`sptc prove` proves these hardware properties for every datapath.\n\n{proofs}"


def _tested() -> list[Any]:
    return [entry for entry in _record("tests", "regression.json") if entry["sources"]]


def _regression() -> str:
    done = _tested()
    skipped = [f"* `{name}`: {reason}" for entry in done for name, reason in entry["skipped"].items()]
    rows = table(
        ["file", "tests passed", "seconds", "seed"],
        ((f"`{e['file']}`", e["passed"], round(e["seconds"]), e["seed"]) for e in done),
    )
    return (
        "# Results of the regression\n\n"
        f"The record of the regression contains {len(done)} of {len(_record('tests', 'regression.json'))} test files: "
        f"{sum(e['passed'] for e in done)} tests passed, in {sum(e['seconds'] for e in done) / 60:.0f} minutes of one "
        "core. The table gives the result of each test file when the file last passed, possibly with other sources; "
        f"`make regression` tests the present sources.\n\n{rows}\n"
        + ("## Skipped\n\n" + "\n".join(skipped) + "\n" if skipped else "")
    )


def _planted() -> str:
    rows = ((f"`{name}`", f"`{one['test']}`") for name, one in _record("tests", "planted", "found.json").items())
    return (
        "# Planted faults\n\nThe table lists deliberate faults planted in the sources, and the first test that detects "
        f"each fault.\n\n{table(['fault', 'test that detects the fault'], rows)}"
    )


def _injected() -> str:
    """Return the page of injected faults."""
    tops, sums = _faults(), _fault_sums()
    changing = sums["faults"] - sums["equivalent"]
    return (
        "# Fault injection\n\n"
        f"`benchmarks/faults.py` injected {sums['faults']:,} single faults into the netlists of the hardware, drawn by "
        f"area. {sums['equivalent']:,} faults are *equivalent*: a prover shows that they change no observed output. "
        f"The vectors of the benches detect {sums['killed']:,} of the other {changing:,} faults (*killed*), which is "
        f"{sums['killed'] / changing:.2%}. For {sums['told apart']:,} faults, only the prover finds a difference "
        f"(*told apart*), and {sums['undecided']:,} faults are *undecided*: the prover neither proves that a fault "
        "changes no output, nor finds a difference.\n\n"
        "A row of the second table gives the injected faults in one part of the hardware of one datapath, with the "
        "date and the seed of the draw. After a change of a part or of its vectors, new faults are drawn for this part."
        "\n\n"
        + table(["part", "hardware"], ((f"`{part}`", _PARTS[part]) for part in TOPS))
        + "\n"
        + table(
            ["datapath", "part", *_VERDICTS, "date", "seed"],
            [
                *(
                    (f"`{top['preset']}`", f"`{top['top']}`", *(top[name] for name in (*_VERDICTS, "date", "seed")))
                    for top in tops
                ),
                ("all", "", *sums.values(), "", ""),
            ],
        )
    )


def _silicon() -> str:
    """Return the page of comparisons with GPUs: campaigns and recordings."""
    campaigns = []
    for record in _campaigns():
        gpu = f"{record['gpu']}, CUDA {record['cuda']}, driver {record['driver']}"
        total, count = record["total"], len(record["instructions"])
        campaigns.append((record["date"], gpu, count, f"{total['outputs']:,}", total["mismatches"]))
    recorded = [
        (arch, f"A in {a_from}", len(files), len(set(files.values())))
        for arch, places in _record("recordings", "manifest.json").items()
        for a_from, files in places.items()
    ]
    return (
        "# Comparisons with GPUs\n\n`sptc gpu verify` compared a GPU with the golden model on seeded operands of every "
        "distribution, with legal and with undefined metadata:\n\n"
        + table(["date", "GPU", "instructions", "outputs", "outputs that differ"], campaigns)
        + "\n`sptc run` replays the following recordings on the golden model, the hardware and the C++ library:\n\n"
        + table(["architecture", "form", "files", "instructions"], recorded)
        + "\n[Evidence for the models](../../explanation/evidence.md) describes the evidence labels.\n"
    )
