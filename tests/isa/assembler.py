"""Make valid and invalid lines of PTX for all instruction families, and find the lines that ptxas accepts."""

import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path

#: A line of PTX: the opcode with its qualifiers, and the operands.
Line = tuple[str, str]

_NAMES = {32: "f32 s32 tf32", 16: "f16 bf16", 8: "e4m3 e5m2 e3m2 e2m3 e2m1 s8 u8", 4: "s4 u4"}
_BITS = {name: bits for bits, names in _NAMES.items() for name in names.split()}
_SMALL = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_CLASSES = (("f16",), ("bf16",), ("tf32",), _SMALL, ("s8", "u8"), ("s4", "u4"))
_SPARSE = ("", "sp", "sp::ordered_metadata")
_SCALE_WORDS = ("", "scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")
_HEAD = """\
.version 9.0
.target {target}
.address_size 64
.visible .entry kernel() {{
.reg .b32 r<400>; .reg .f64 x<16>; .reg .b64 d<4>; .reg .pred p;
"""


def ptxas() -> Path:
    """Return the path of the assembler of CUDA 13, which the extra `oracle` installs."""
    spec = find_spec("nvidia")
    assert spec, "ptxas is missing: install the extra 'oracle'"
    folders = spec.submodule_search_locations or ()
    (found,) = (path for where in folders for path in Path(where).glob("cu13/bin/ptxas"))
    return found


def accepted(lines: list[Line], target: str, folder: Path) -> set[int]:
    """Return the indices of the lines that the assembler accepts for a target."""
    head = _HEAD.format(target=target)
    left = list(range(len(lines)))
    source = folder / "kernel.ptx"
    while True:
        source.write_text(head + "".join(f"{' '.join(lines[j])};\n" for j in left) + "ret;\n}\n")
        command = [ptxas(), f"-arch={target}", source, "-o", folder / "kernel.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        places = re.findall(r"line (\d+); error", done.stderr)
        wrong = {left[place] for number in places if 0 <= (place := int(number) - head.count("\n") - 1) < len(left)}
        if not wrong:
            assert done.returncode == 0, done.stderr
            return set(left)
        left = [j for j in left if j not in wrong]


def _vector(count: int, first: int) -> str:
    return "{" + ", ".join(f"r{first + j}" for j in range(count)) + "}"


def mma_lines() -> Iterator[Line]:
    """Yield ``mma`` lines with all combinations of shape, types of one class, accumulators, kind, scale, saturation."""
    shapes = [(8, 16), (8, 32), (8, 128), *((16, k) for k in (4, 8, 16, 32, 64, 128, 256))]
    accumulators = [("f32", "f32"), ("f16", "f16"), ("s32", "s32"), ("f32", "f16"), ("f16", "f32")]
    for sp, (m, k), types in product(_SPARSE, shapes, _CLASSES):
        for (a, b), (d, c), kind in product(product(types, types), accumulators, ("", "f8f6f4")):
            for saturates in (False, True):
                yield from _mma(sp, m, k, a, b, d, c, [kind and f"kind::{kind}"], saturates=saturates)
        if types is _SMALL:
            kinds, stypes = ("mxf8f6f4", "mxf4", "mxf4nvf4"), ("ue8m0", "ue4m3")
            for (a, b), kind, word, stype in product(product(types, types), kinds, _SCALE_WORDS[:4], stypes):
                yield from _mma(sp, m, k, a, b, "f32", "f32", [f"kind::{kind}", "block_scale", word], stype=stype)


def _mma(sp: str, m: int, k: int, *types: str | list[str], saturates: bool = False, stype: str = "") -> Iterator[Line]:
    """Yield one line of ``mma``, or none if an operand does not fill 1 to 16 whole registers per lane."""
    a, b, d, c, qualifiers = types
    packed = any("kind::mxf4" in word for word in qualifiers)
    bits_a, bits_b = (4 if packed else _BITS[str(name)] for name in (a, b))
    counts = [m * 8 * _BITS[str(d)], m * (k // 2 if sp else k) * bits_a, k * 8 * bits_b, m * 8 * _BITS[str(c)]]
    if any(count % 1024 or not 0 < count <= 16 * 1024 for count in counts):
        return
    words = ["mma", sp, "sync", "aligned", f"m{m}n8k{k}", "row", "col", *qualifiers, "satfinite" if saturates else ""]
    operands = [_vector(count // 1024, 20 * place) for place, count in enumerate(counts)]
    operands += ["r80", "0x0"] if sp else []
    operands += ["{r81}", "{0, 0}", "{r82}", "{0, 0}"] if stype else []
    yield ".".join(filter(None, [*words, d, a, b, c, stype])), ", ".join(operands)


def wgmma_lines() -> Iterator[Line]:
    """Yield lines of ``wgmma`` with A in shared memory: every N and K, and N = 264, which is too large."""
    shapes, results = product(range(8, 265, 8), (8, 16, 32, 64)), ("f32", "f16", "s32")
    for sp, (n, k), types, d, saturates in product(("", "sp"), shapes, _CLASSES, results, (False, True)):
        for a, b in product(types[:2], types[:2]):
            words = ["wgmma", "mma_async", sp, "sync", "aligned", f"m64n{n}k{k}", "satfinite" if saturates else ""]
            operands = [_vector(64 * n * _BITS[d] // (128 * 32), 0), "d0", "d1", *(["r399", "0"] if sp else []), "1"]
            operands += [] if d == "s32" else ["1", "1"]
            operands += ["0", "0"] if a in ("f16", "bf16") else []
            yield ".".join(filter(None, [*words, d, a, b])), ", ".join(operands)


def tcgen05_lines(cta: int) -> Iterator[Line]:
    """Yield lines of ``tcgen05.mma`` with every qualifier, for one CTA or a pair. A kernel cannot mix CTA groups."""
    kinds = ("tf32", "f16", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
    usages = ("a::fill", "a::discard", "a::lastuse", "b0::use", "b3::lastuse")
    collectors = ("", *(f"collector::{usage}" for usage in usages))
    for ws, sp, kind, scaled, word, collector, shift in product(
        ("", "ws"), ("", "sp"), kinds, ("", "block_scale"), _SCALE_WORDS, collectors, ("", "ashift")
    ):
        words = ["tcgen05", "mma", ws, sp, f"cta_group::{cta}", f"kind::{kind}", scaled, word, collector, shift]
        operands = ["[r0]", "[r5]" if shift else "d0", "d1", *(["[r1]"] if sp else []), "r2"]
        operands += [*(["[r3]", "[r4]"] if scaled else []), "p"]
        yield ".".join(filter(None, words)), ", ".join(operands)


def unmodelled_lines() -> list[Line]:
    quarters = "{r0, r1, r2, r3, r4, r5, r6, r7}, {r10, r11}, {r20, r21}, {r30, r31, r32, r33, r34, r35, r36, r37}"
    return [
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "{x0, x1}, {x2}, {x3}, {x4, x5}"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", quarters),
        ("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32", quarters),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc", "{r0, r1}, {r2}, {r3}, {r4, r5}"),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
         "{r0, r1, r2, r3}, {r4, r5, r6, r7}, {r8, r9}, {r10, r11, r12, r13}"),
    ]  # fmt: skip
