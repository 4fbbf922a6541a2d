"""Generate the pages of the site that come from code: commands, ports, instructions, numerics, proofs, regression."""

import argparse
import gzip
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

from sptc.cli import main
from sptc.cli.examples import commands
from sptc.cli.main import command_parser
from sptc.formal.catalogue import PROPERTIES
from sptc.isa.evidence import Evidence, evidence
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction
from sptc.isa.numerics import Numerics, numerics
from sptc.isa.tcgen05 import every_opcode, instructions_of
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import TOPS

__all__ = ["write"]

ROOT = Path(__file__).resolve().parents[1]


def write(folder: Path) -> None:
    """Write all pages below a folder. Unchanged files are not written, so that Sphinx does not read them again."""
    for name, make in _PAGES.items():
        for path, text in make(folder):
            _keep(folder / name / path, text)


def _keep(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _printed(*words: str) -> str:
    """Return the text that an sptc command prints."""
    with redirect_stdout(io.StringIO()) as printed:
        status = main(words)
    assert status == 0, words
    return printed.getvalue()


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [[*heads], [*("---" for _ in heads)], *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _index(title: str, words: str, names: Iterable[str]) -> tuple[str, str]:
    entries = "\n".join(names)
    return "index.md", f"# {title}\n\n{words}\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"


# ---- commands


def _commands(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each command, with its help in lines of 100 characters."""
    parsers = sorted(commands(command_parser()))
    yield _index("Commands", "The help text of each command.", (name.replace(" ", "-") for name, _ in parsers))
    for name, command in parsers:
        command.formatter_class = _wide(command.formatter_class)
        description = command.description or ""
        text = command.format_help()
        yield f"{name.replace(' ', '-')}.md", f"# sptc {name}\n\n{_escaped(description)}\n\n```text\n{text}```\n"


def _wide(formatter: type) -> Callable[[str], argparse.HelpFormatter]:
    return lambda prog: formatter(prog, width=100)


def _escaped(text: str) -> str:
    return re.sub(r"([*_<>\[\]`])", r"\\\1", text)


# ---- ports


def _ports(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each preset and top, with every field of every port."""
    names = []
    for preset in PRESETS:
        for top in TOPS:
            names.append(f"{preset}-{top}")
            text = _printed("ports", "--preset", preset, "--top", top)
            yield f"{names[-1]}.md", f"# Ports of `{preset}`, top `{top}`\n\n```text\n{text}```\n"
    words = "The pages list every field of the Verilog ports. `sptc ports` prints the same list for your own datapaths."
    yield _index("Ports", words, names)


# ---- instructions


def _layouts() -> dict[str, list[tuple[str, Instruction]]]:
    """Return the instructions by operand layout: for `wgmma` and `tcgen05`, only those with the smallest N."""
    layouts: dict[str, list[tuple[str, Instruction]]] = defaultdict(list)
    for i in every_instruction():
        if i.family != "wgmma" or i.n == 8:
            layouts[_layout(i, i.family)].append((str(i), i))
    for opcode in every_opcode():
        for i in instructions_of(opcode):
            if i.n == opcode.columns[0]:
                layouts[_layout(i, str(opcode).split(".kind")[0])].append((f"{opcode} ({i.shape_and_types})", i))
    return layouts


def _layout(i: Instruction, family: str) -> str:
    sparsity = i.granularity.name if i.granularity else "dense"
    scales = f"-{i.scale_size}x" if i.scale_format else ""
    shape = f"m{i.m}n{'N' if family != 'mma' else i.n}k{i.k}"
    words = f"{family}-{sparsity}-{shape}-{i.container_bits}bit-d{i.d.bits}{scales}"
    return re.sub(r"[^A-Za-z0-9-]+", "-", words).lower()


def _instructions(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each operand layout, with its drawing and a list of all instructions that have this layout."""
    layouts = _layouts()
    drawn_by = max(path.stat().st_mtime for room in ("show", "isa") for path in (ROOT / room).glob("*.py"))
    for name, members in layouts.items():
        text, first = members[0]
        picture = folder / "instructions" / f"{name}.svg"
        if not picture.exists() or picture.stat().st_mtime < drawn_by:
            picture.parent.mkdir(parents=True, exist_ok=True)
            _printed("explain", text, "--svg", str(picture))
        rows = (
            (f"`{text}`{{#{_anchor(text)}}}", *(_level(i, arch) for arch in first.architectures)) for text, i in members
        )
        yield (
            f"{name}.md",
            f"# {_title(first, name)}\n\n"
            f"![Lanes, registers and bits of every operand of {text}]({name}.svg)\n\n"
            f"## Instructions\n\n{_table(['instruction', *first.architectures], rows)}\n"
            f"## Position of every bit\n\nOutput of `sptc explain` for the first instruction of the table:\n\n"
            f"```text\n{_printed('explain', text, '--arch', first.architectures[-1])}```\n",
        )
    words = "Each page shows one operand layout. For `wgmma` and `tcgen05`, the layout with the smallest N is drawn."
    yield _index("Instructions", words, sorted(layouts))


def _title(i: Instruction, name: str) -> str:
    sparsity = f"{i.granularity.name} sparse" if i.granularity else "dense"
    family = name.split("-")[0]
    return f"`{family}` m{i.m}k{i.k}, {sparsity}, containers of {i.container_bits} bits, results of {i.d.bits}"


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _level(i: Instruction, arch: str) -> str:
    return evidence(i, arch).value if arch in i.architectures else "-"


# ---- numerics


def _numerics(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield table rows of numerics parameters, each with its evidence and the number of outputs compared with GPUs."""
    rows: dict[tuple[str, Numerics], list[Instruction]] = defaultdict(list)
    for i in (*every_instruction(), *(i for opcode in every_opcode() for i in instructions_of(opcode))):
        for arch in i.architectures:
            rows[arch, numerics(i, arch)].append(i)
    table = _table(
        ["architecture", "types", "method", "L", "F", "e_zero", "rounding", "evidence", "known from"],
        (
            (
                arch,
                ", ".join(sorted({f"{i.a.name} x {i.b.name} to {i.d.name}" for i in members}, key=len)[:6])
                + (" ..." if len({(i.a, i.b, i.d) for i in members}) > 6 else ""),
                row.method.value,
                row.step,
                row.alignment_bits or "",
                row.zero_exponent or "",
                row.rounding.value,
                ", ".join(sorted({_level(i, arch) for i in members})),
                row.source,
            )
            for (arch, row), members in sorted(rows.items(), key=lambda item: ARCHITECTURES.index(item[0][0]))
        ),
    )
    meanings = "\n".join(f"* **{level.value}**: {level.meaning}." for level in Evidence)
    words = "The parameters L, F and e_zero are defined in [how a result is formed](../../explanation/result.md)."
    yield "index.md", f"# Numerics\n\n{words}\n\n{table}\n{meanings}\n"


# ---- verification


def _verification(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield pages: proved properties, results of the last regression, and tests that find planted faults."""
    topics: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for item in PROPERTIES:
        topics[item.name.split(".")[0]].append((item.name, item.statement))
    proofs = "\n".join(
        f"## {topic}\n\n" + "".join(f"* `{name}`: {_escaped(statement)}\n" for name, statement in members)
        for topic, members in topics.items()
    )
    yield "proofs.md", f"# Proved properties\n\n`sptc prove` proves these properties for every datapath.\n\n{proofs}"
    record = json.loads((ROOT / "tests" / "regression.json").read_text(encoding="utf-8"))
    done = [entry for entry in record if entry["sources"]]
    skipped = [f"* `{name}`: {reason}" for entry in done for name, reason in entry["skipped"].items()]
    table = _table(
        ["file", "tests passed", "seconds", "seed"],
        ((f"`{e['file']}`", e["passed"], round(e["seconds"]), e["seed"]) for e in done),
    )
    yield (
        "regression.md",
        "# Results of the regression\n\n"
        f"The record contains {len(done)} of {len(record)} test files: {sum(e['passed'] for e in done)} tests passed, "
        f"in {sum(e['seconds'] for e in done) / 60:.0f} minutes of one core. The table gives the result of each file "
        "when it last passed, possibly with other sources; `make regression` tests the present sources.\n\n"
        f"{table}\n" + ("## Skipped\n\n" + "\n".join(skipped) + "\n" if skipped else ""),
    )
    detections = json.loads((ROOT / "tests" / "planted" / "found.json").read_text(encoding="utf-8"))
    yield (
        "planted.md",
        "# Planted faults\n\nThe table lists faults planted in the sources, and the first quick test that detects each "
        "fault.\n\n"
        + _table(["fault", "seen by"], ((f"`{name}`", f"`{entry['test']}`") for name, entry in detections.items())),
    )
    tops = json.loads((ROOT / "benchmarks" / "faults.json").read_text(encoding="utf-8"))
    verdicts = ("faults", "killed", "equivalent", "told apart", "undecided")
    sums = {name: sum(top[name] for top in tops) for name in verdicts}
    share = sums["killed"] / (sums["faults"] - sums["equivalent"])
    yield (
        "faults.md",
        "# Fault injection\n\n"
        "`benchmarks/faults.py` injects single faults into the netlist of each part, drawn by area. A fault is "
        "*killed* if the vectors of the benches detect it. It is *equivalent* if a prover shows that it changes no "
        "observed output, and *told apart* if only the prover finds a difference. The vectors detect "
        f"{share:.2%} of the faults that are not equivalent, if every undecided fault changes an output. After a "
        "change of the hardware or the vectors of a part, faults of this part were drawn again.\n\n"
        + _table(
            ["datapath", "part", "date", "seed", *verdicts],
            [
                *((f"`{top['preset']}`", *(top[name] for name in ("top", "date", "seed", *verdicts))) for top in tops),
                ("all", "", "", "", *sums.values()),
            ],
        ),
    )
    yield "silicon.md", _silicon()
    words = "Evidence for the hardware and the models: comparisons with GPUs, proofs, tests and injected faults."
    yield _index("Verification", words, ("silicon", "proofs", "regression", "faults", "planted"))


def _silicon() -> str:
    """Return the page of comparisons with GPUs: campaigns and recordings."""
    campaigns = []
    for path in sorted((ROOT / "recordings" / "campaigns").glob("*.json.gz")):
        record = json.loads(gzip.decompress(path.read_bytes()))
        gpu = f"{record['gpu']}, CUDA {record['cuda']}, driver {record['driver']}"
        total, count = record["total"], len(record["instructions"])
        campaigns.append((record["date"], gpu, count, f"{total['outputs']:,}", total["mismatches"]))
    manifest = json.loads((ROOT / "recordings" / "manifest.json").read_text(encoding="utf-8"))
    recorded = [
        (arch, f"A in {a_from}", len(files), len(set(files.values())))
        for arch, places in manifest.items()
        for a_from, files in places.items()
    ]
    return (
        "# Comparisons with GPUs\n\n`sptc gpu verify` compared a GPU with the golden model on seeded operands of every "
        "distribution, with any metadata:\n\n"
        + _table(["date", "GPU", "instructions", "outputs", "that differ"], campaigns)
        + "\n`sptc run` replays these recordings on the golden model, the hardware and the C++ library:\n\n"
        + _table(["architecture", "form", "files", "instructions"], recorded)
        + "\n[Evidence for the models](../../explanation/evidence.md) describes the evidence labels.\n"
    )


# ---- benchmarks


def _benchmarks(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the page with the recorded results of the speed benchmarks."""
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    parts = [
        f"## `benchmarks/{name}.py`\n\n{_escaped(entry['what'])}\n\n{entry['date']}, {entry['machine']}\n\n"
        + _table(
            ["figure", "value", "unit"],
            ((row["name"].strip(), f"{row['value']:.4g}", row["unit"]) for row in entry["rows"]),
        )
        for name, entry in results.items()
    ]
    words = (
        "`python benchmarks/record.py` recorded these results. Each table names the date and the machine, and its "
        "values hold for that machine. A ratio compares two measurements of one run. The [area "
        "guide](../../guides/area.md) compares areas and delays with those of other units."
    )
    yield "index.md", "\n".join(["# Benchmarks", "", words, "", *parts])


#: Function that generates the pages of a folder, by name of the folder.
_PAGES: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "commands": _commands,
    "ports": _ports,
    "instructions": _instructions,
    "numerics": _numerics,
    "verification": _verification,
    "benchmarks": _benchmarks,
}
