"""Build the playground: ``python docs/playground.py FILE`` writes one HTML page that computes outputs with libsptc.

emcc compiles libsptc to WebAssembly. The HTML page contains libsptc, the scripts, the style sheet and a table of all
instructions, and loads no other file. Without emcc, the page consists of one sentence.
"""

import base64
import hashlib
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from instruction_pages import every_subject
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sptc.infra.cache import built
from sptc.infra.compiler import run_tool
from sptc.isa.evidence import evidence
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import ARCHITECTURES, Instruction
from sptc.isa.metadata import MUX_OF_ARCHITECTURE, RULES, reachable
from sptc.isa.names import Subject
from sptc.isa.numerics import numerics
from sptc.native.library import SOURCES
from sptc.native.tables import header

__all__ = ["LEFT_OUT", "NAME", "catalogue", "instructions", "page", "write"]

#: Name of the HTML page in the web site.
NAME = "playground.html"
#: Sentence that replaces the playground, and is printed, if emcc is not installed.
LEFT_OUT = (
    "This site has no playground, because the compiler emcc was not found: install emcc "
    "(on Debian or Ubuntu, `apt install emscripten`) and build the site again."
)
_FOLDER = Path(__file__).with_suffix("")
_SCRIPTS = ("exact.js", "trace.js", "library.js", "page.js")
#: Functions of libsptc that the scripts of the page call.
_EXPORTS = ("malloc", "free", "sptc_open", "sptc_close", "sptc_last_error", "sptc_multiply")
_OPTIONS = (
    "-std=c++17", "-O2", "-msimd128", "-fwasm-exceptions", "-ffp-contract=off",
    "-DSPTC_KERNELS=portable_kernels", '-DSPTC_KERNELS_NAME="portable"',
    "-sSTANDALONE_WASM", "-sALLOW_MEMORY_GROWTH", "--no-entry",
    f"-sEXPORTED_FUNCTIONS={','.join(f'_{name}' for name in _EXPORTS)}",
)  # fmt: skip


def instructions() -> dict[str, Instruction]:
    """Return one instruction for each combination of properties except M and N, which do not affect an output."""
    first: dict[Instruction, Subject] = {}
    for subject in every_subject():
        first.setdefault(replace(subject.instruction, m=0, n=0), subject)
    return {subject.name: subject.instruction for subject in first.values()}


def catalogue() -> dict[str, Any]:
    """Return the tables that the scripts of the playground read, as JSON data."""
    tables = []
    rows = []
    for text, i in instructions().items():
        on = {}
        for arch in i.architectures:
            p = numerics(i, arch)
            row = {
                "method": p.method.value,
                "step": p.step,
                "bits": p.alignment_bits,
                "floor": p.zero_exponent,
                "rounding": p.rounding.value,
            }
            if row not in tables:
                tables.append(row)
            on[arch] = [tables.index(row), evidence(i, arch).value]
        rows.append({
            "text": text, "family": i.family, "sparse": i.sparse, "k": i.k, "kind": i.kind,
            "a": i.a.name, "b": i.b.name, "d": i.d.name, "satfinite": i.satfinite,
            "container": i.container_bits, "low": {"a": i.low_bit(i.a), "b": i.low_bit(i.b)},
            "stored": i.granularity.stored if i.granularity else 0,
            "logical": i.granularity.logical if i.granularity else 0,
            "rule": i.rule.name if i.rule else "", "scales": i.scale_size or 0,
            "scale": i.scale_format.name if i.scale_format else "", "on": on,
        })  # fmt: skip
    return {
        "formats": {name: _format(name) for name in FORMATS},
        "rules": {name: _rule(name) for name in RULES},
        "muxes": {arch: MUX_OF_ARCHITECTURE[arch] for arch in ARCHITECTURES},
        "numerics": tables,
        "instructions": rows,
    }


def _format(name: str) -> dict[str, Any]:
    fmt = FORMATS[name]
    return {
        "name": name, "signed": fmt.signed, "exponentBits": fmt.exponent_bits, "fractionBits": fmt.fraction_bits,
        "bias": fmt.bias, "specials": fmt.specials.value, "subnormals": fmt.subnormals, "bits": fmt.bits,
        "least": fmt.minimum_exponent,
    }  # fmt: skip


def _rule(name: str) -> dict[str, Any]:
    rule = RULES[name]
    muxes = dict.fromkeys(MUX_OF_ARCHITECTURE.values())
    delivered = {mux: [reachable(nibble, name, mux) for nibble in range(16)] for mux in muxes}
    return {"legal": sorted(rule.legal), "meaning": rule.meaning, "delivered": delivered}


def _library(emcc: str) -> bytes:
    """Return libsptc as WebAssembly, with portable code and without threads, compiled by emcc or from the cache."""
    tables = header()
    digest = hashlib.sha256(repr((tables, _OPTIONS, Path(emcc).stat().st_mtime_ns)).encode())
    for path in sorted([*SOURCES.glob("src/*"), *SOURCES.glob("include/*")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())

    def build(whole: Path) -> None:
        with tempfile.TemporaryDirectory(dir=whole.parent) as scratch:
            folder = Path(scratch)
            (folder / "tables.h").write_text(tables, encoding="utf-8")
            include = (f"-I{SOURCES / 'include'}", f"-I{SOURCES / 'src'}", f"-I{folder}")
            sources = map(str, sorted(SOURCES.glob("src/*.cpp")))
            run_tool([emcc, *_OPTIONS, *include, "-o", "libsptc.wasm", *sources], folder, "emcc", "libsptc")
            (folder / "libsptc.wasm").replace(whole)

    return built(f"libsptc-{digest.hexdigest()[:24]}.wasm", build).read_bytes()


def page(emcc: str) -> str:
    """Return the HTML text of the playground, with libsptc compiled by the given emcc."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, trim_blocks=True, autoescape=False
    )
    return environment.get_template("page.html").render(
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        scripts="\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _SCRIPTS),
        catalogue=json.dumps(catalogue(), separators=(",", ":")),
        library=base64.b64encode(_library(emcc)).decode(),
    )


def write(path: Path) -> None:
    """Write the playground. If emcc is missing, write a page with a sentence that names the missing compiler."""
    emcc = shutil.which("emcc")
    if not emcc:
        print(LEFT_OUT, file=sys.stderr)
    words = f"<title>sptc playground</title>\n<h1>Playground</h1>\n<p>{LEFT_OUT}</p>\n"
    path.write_text(page(emcc) if emcc else f'<!doctype html>\n<html lang="en">{words}</html>\n', encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
