"""Every form of ``tcgen05.mma``, dense and sparse, placed by the manual's text; every bit of tensor memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import sptc
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.formats import FORMATS
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import build_instruction, parse_opcode
from sptc.sim.benches.random_operands import distributions, random_codes

from .manual_tcgen05 import BITS, DENSE_K, SCALES, Form, Images

Random = np.random.Generator
SMALL = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
PAIRS = {
    "tf32": [("tf32", "tf32")],
    "f16": [("f16", "f16"), ("bf16", "bf16")],
    "f8f6f4": list(product(SMALL, SMALL)),
    "i8": list(product(("s8", "u8"), repeat=2)),
    "mxf8f6f4": list(product(SMALL, SMALL)),
    "mxf4": [("e2m1", "e2m1")],
    "mxf4nvf4": [("e2m1", "e2m1")],
}
#: The seven nibbles that the manual defines; of tf32 the two.
LEGAL = np.array([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110])
LEGAL_TF32 = np.array([0b0100, 0b1110])
#: Columns where operands start.
D_AT, A_AT, E_AT, SFA_AT, SFB_AT = 256, 4, 70, 100, 130
OUTPUTS = 1_000_000


@dataclass(frozen=True)
class _Shape:
    ctas: int
    m: int
    columns: tuple[int, ...]
    stationary: bool = False


def _shapes(kind: str, sparse: bool) -> list[_Shape]:
    """Return M and N of a kind, from the table of shapes."""
    one, two = tuple(range(8, 257, 8)), tuple(range(16, 257, 16))
    if kind == "i8":
        one, two = (8, 16, 24, *range(32, 257, 16)), tuple(range(32, 257, 32))
    if kind in SCALES:
        pair = [_Shape(2, 256, two)] if sparse else [_Shape(2, 256, two), _Shape(2, 128, (64, 128, 192, 256))]
        return [_Shape(1, 128, one), *pair]
    stationary = (64, 128) if sparse else (64, 128, 256)
    return [
        *(_Shape(1, m, one) for m in (64, 128)),
        *(_Shape(2, m, two) for m in (128, 256)),
        *(_Shape(1, m, stationary, True) for m in (32, 64, 128)),
    ]


def _forms(kind: str, rng: Random) -> Iterator[Form]:
    """Yield forms without end: each shape, sparse and dense, with A in either memory, largest N first."""
    choices = [(sp, tensor, shape) for sp, tensor in product((True, False), repeat=2) for shape in _shapes(kind, sp)]
    lap = 0
    while True:
        for sparse, in_tensor, shape in choices:
            a, b = PAIRS[kind][rng.integers(len(PAIRS[kind]))]
            a_in_words = BITS[a] >= 8 or kind in ("mxf4", "mxf4nvf4")
            placed = not shape.stationary or shape.m == 128 or (shape.m == 64 and BITS[a] == 16)
            if in_tensor and not (a_in_words and placed):
                continue
            scales = int(rng.choice([2, 4])) if kind == "mxf4nvf4" else SCALES.get(kind, 0)
            ids = tuple(int(rng.choice(range(0, 4, scales))) for _ in range(2)) if scales else (0, 0)
            half = shape.m // shape.ctas == 64 and not shape.stationary and (sparse or shape.ctas == 1)
            results = ["s32"] if kind == "i8" else ["f32"]
            results += ["f16"] if kind == "f8f6f4" or (kind == "f16" and a == "f16") else []
            yield Form(
                kind=kind,
                a=a,
                b=b,
                d=str(rng.choice(results)),
                m=shape.m,
                n=shape.columns[-1] if not lap else int(rng.choice(shape.columns)),
                ctas=shape.ctas,
                sparse=sparse,
                stationary=shape.stationary,
                a_in_tensor=in_tensor,
                lane=int(rng.choice([0, 16])) if half else 0,
                selector=int(rng.integers(2)) if sparse and kind in ("f16", "tf32") else 0,
                scale_ids=(ids[0], ids[1]),
                scale_type=str(rng.choice(["ue4m3", "ue8m0"])) if scales == 4 else "ue8m0",
                saturates=bool(rng.integers(2)) if kind == "i8" else False,
                scales=scales,
            )
        lap += 1


def _codes(name: str, distribution: str, shape: tuple[int, ...], rng: Random) -> np.ndarray:
    fmt = FORMATS[name]
    return random_codes(fmt, distribution, shape, rng).astype(np.int64) << fmt.ignored_low_bits


def _containers(form: Form, name: str, codes: np.ndarray) -> np.ndarray:
    """Return codes where the golden model's matrices have them: e2m1 of the mixed kinds two bits up."""
    up = 2 if BITS[name] == 4 and not form.packed else 0
    bits = 8 if form.kind in ("f8f6f4", "mxf8f6f4") else BITS[name]
    return (codes << up).astype(CONTAINERS[bits])


def _run(form: Form, rng: Random) -> int:
    """Place random operands, run, and compare every bit; return the outputs."""
    opcode = parse_opcode(form.text())
    i = build_instruction(
        opcode, form.m, form.n, form.d, form.a, form.b, form.saturates, form.scale_type if form.scales else None
    )
    distribution = str(rng.choice(distributions(i)))
    a = _codes(form.a, distribution, (form.m, form.stored_k), rng)
    b = _codes(form.b, distribution, (form.n, form.k), rng)
    c = _codes(form.d, distribution, (form.m, form.n), rng)
    images = Images(
        form,
        rng.integers(0, 1 << 32, (form.ctas, 128, 512), dtype=np.uint32),
        rng.integers(0, 256, (form.ctas, 1 << 16), dtype=np.uint8),
    )
    at = form.lane << 16
    images.put_d(c, D_AT)
    where = {"d": at | D_AT, "idesc": form.descriptor()}
    nibbles = None
    if form.sparse:
        legal = LEGAL_TF32 if form.kind == "tf32" else LEGAL
        nibbles = legal[rng.integers(0, len(legal), (form.m, form.chunks))]
        images.put_metadata(nibbles, E_AT)
        where["e"] = at | E_AT
    scales: list[np.ndarray | None] = [None, None]
    for index, (name, lines, base) in enumerate((("a", form.rows, SFA_AT), ("b", form.n, SFB_AT))):
        if form.scales:
            codes = _codes(form.scale_type, "mid", (form.ctas, lines, form.scales), rng)
            images.put_scales(name, codes, base)
            where[f"scale_{name}"] = base
            scales[index] = codes.astype(np.uint8)
    if form.a_in_tensor:
        images.put_a_in_tensor(a, A_AT)
        where["a"] = at | A_AT
    else:
        where["a"] = images.put_shared("a", a.reshape(form.ctas, form.rows, -1), 256)
    where["b"] = images.put_shared("b", b.reshape(form.ctas, form.n // form.ctas, -1), 1 << 15)
    given = {name: image.copy() for name, image in images.as_arguments().items()}
    found = sptc.tcgen05_mma(form.text(), **given, **where)

    def by_cta(codes: np.ndarray) -> np.ndarray:
        return codes.reshape(form.ctas, form.rows, -1)

    d = multiply(
        i,
        "sm_100",
        MatrixOperands(
            by_cta(_containers(form, form.a, a)),
            np.stack([_containers(form, form.b, b).T] * form.ctas),
            by_cta(c.astype(CONTAINERS[16 if form.d == "f16" else 32])),
            None if nibbles is None else by_cta(nibbles.astype(np.uint8)),
            *scales,
        ),
    )
    images.put_d(d.astype(np.int64).reshape(form.m, form.n), D_AT)
    np.testing.assert_array_equal(found, images.as_arguments()["tmem"], err_msg=str(form))
    return form.m * form.n


@pytest.mark.parametrize("kind", DENSE_K)
def test_every_shape(kind: str, rng: Random) -> None:
    """Each shape once, sparse and dense, with A in either memory."""
    forms = _forms(kind, rng)
    seen: set[tuple[object, ...]] = set()
    count = 2 * (len(_shapes(kind, True)) + len(_shapes(kind, False)))
    for _, form in zip(range(count), forms, strict=False):
        _run(form, rng)
        seen.add((form.layout, form.sparse, form.stationary))
    assert {layout for layout, _, _ in seen} >= (set("ABD") if kind in SCALES else set("ABCDEFG"))
    assert {sparse for _, sparse, _ in seen} == {True, False}


@pytest.mark.regression
@pytest.mark.parametrize("kind", DENSE_K)
def test_a_million_outputs(kind: str, rng: Random) -> None:
    outputs = 0
    for form in _forms(kind, rng):
        outputs += _run(form, rng)
        if outputs >= OUTPUTS:
            break


def test_a_map_that_is_wrong_is_seen(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata of rows 8 to 15 of half the lanes, where those of rows 0 to 7 belong."""
    form = Form(kind="f16", a="f16", b="f16", d="f32", m=64, n=64, sparse=True)
    assert _run(form, rng) == 64 * 64
    put = Images.put

    def exchanged(self: Images, cta: int, lane: np.ndarray, *rest: object) -> None:
        put(self, cta, lane ^ 8 if rest[2] == 4 else lane, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Images, "put", exchanged)
    with pytest.raises(AssertionError):
        _run(form, rng)
