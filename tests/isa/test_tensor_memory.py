"""Tensor memory: every map is a bijection that scatters and gathers, and its places are those the sources name."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.golden.tensor_memory import gather_tensor, scatter_tensor
from sptc.isa.instructions import Instruction
from sptc.isa.tcgen05 import Opcode, instructions_of, parse_opcode
from sptc.isa.tensor_memory import (
    COLUMNS,
    LANES,
    LAYOUTS,
    TensorMap,
    a_map,
    accumulator_map,
    decode_address,
    layout_for,
    metadata_map,
    scale_map,
)

KINDS = {
    "tf32": "tcgen05.mma.sp.cta_group::1.kind::tf32",
    "f16": "tcgen05.mma.sp.cta_group::1.kind::f16",
    "f8f6f4": "tcgen05.mma.sp.cta_group::1.kind::f8f6f4",
    "i8": "tcgen05.mma.sp.cta_group::1.kind::i8",
    "mxf8f6f4": "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale",
    "mxf4": "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale",
    "mxf4nvf4": "tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16",
}
#: Layouts whose metadata the sources place.
WHOLE = ("A", "D", "E", "G")
HALF = ("C", "F")


def instruction(kind: str, a: str = "") -> Instruction:
    return next(i for i in instructions_of(parse_opcode(KINDS[kind])) if a in ("", i.a.name))


def opcode(qualifiers: str, sparse: bool = True) -> Opcode:
    head, _, rest = qualifiers.rpartition("cta_group")
    return parse_opcode(f"tcgen05.mma.{head}{'sp.' if sparse else ''}cta_group{rest}.kind::f16")


def at(where: TensorMap, row: int, column: int) -> tuple[int, int, int]:
    return tuple(int(part[row, column]) for part in (where.lanes, where.columns, where.low_bits))  # type: ignore[return-value]


def _maps() -> dict[str, TensorMap]:
    """Every map there is, at bases away from zero."""
    maps = {}
    for layout in LAYOUTS.values():
        for n in (64, 128) if layout.folded else (64, 128, 256):
            for bits in (16, 32):
                for lane in (0, 16) if layout.half_lanes else (0,):
                    name = f"d in {layout.name}, n {n}, {bits} bits, lane {lane}"
                    maps[name] = accumulator_map(layout, n, bits, lane << 16 | 100)
        for kind in KINDS:
            if layout.column_parts == 1:
                for lane in (0, 16) if layout.half_lanes else (0,):
                    maps[f"a of {kind} in {layout.name}, lane {lane}"] = a_map(
                        layout, instruction(kind), lane << 16 | 7
                    )
            if layout.name in WHOLE:
                for sparsity_selector in range(instruction(kind).sparsity_selectors):
                    name = f"e of {kind} in {layout.name}, selector {sparsity_selector}"
                    maps[name] = metadata_map(layout, instruction(kind), sparsity_selector, 20)
    for lines in (8, 24, 128, 256):
        for size in (1, 2, 4):
            for scale_id in range(0, 4, size):
                maps[f"{size} scales of {lines}, id {scale_id}"] = scale_map("scale_a", lines, size, scale_id, 30)
    return maps


MAPS = _maps()


@pytest.mark.quick_cases(50)
@pytest.mark.parametrize("name", MAPS)
def test_a_map_scatters_and_gathers(name: str, rng: np.random.Generator) -> None:
    """Every element has bits of its own, inside the memory, in each copy; reading them back gives the matrix."""
    where = MAPS[name]
    bits = where.element_bits
    for copy in where.copies:
        first = ((where.lanes + copy) * COLUMNS + where.columns) * 32 + where.low_bits
        taken = first[..., None] + np.arange(bits)
        assert len(np.unique(taken)) == taken.size
        assert taken.min() >= 0
        assert taken.max() < LANES * COLUMNS * 32
        assert (where.low_bits + bits <= 32).all()
        codes = rng.integers(0, 1 << bits, (2, *where.lanes.shape), dtype=np.uint64)
        tmem = rng.integers(0, 1 << 32, (2, LANES, COLUMNS), dtype=np.uint32)
        written = tmem.copy()
        # Bit by bit, since the places of this test are single bits.
        flat = np.unpackbits(written.view(np.uint8), axis=-1, bitorder="little").reshape(2, -1)
        flat[:, taken] = codes[..., None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)
        written = np.packbits(flat, axis=-1, bitorder="little").view(np.uint32).reshape(tmem.shape)
        np.testing.assert_array_equal(gather_tensor(written, where, copy), codes)
    words = where.words()
    assert words.sum() == len(where.copies) * len(np.unique(where.lanes * COLUMNS + where.columns))
    if name.startswith("d"):
        scatter_tensor(tmem, where, gather_tensor(written, where))
        np.testing.assert_array_equal(tmem, written)


def test_copies_are_of_all_lanes_together() -> None:
    for name, where in MAPS.items():
        lanes = np.unique(where.lanes[..., None] + np.array(where.copies))
        if name.startswith(("e", "1 scales of 128")):
            np.testing.assert_array_equal(lanes, np.arange(LANES), err_msg=name)


@pytest.mark.parametrize(
    ("name", "n", "address", "places"),
    [
        ("D", 256, 0, {(0, 0): (0, 0), (127, 255): (127, 255), (33, 5): (33, 5)}),
        ("A", 16, 9, {(127, 15): (127, 24)}),
        ("F", 64, 0, {(15, 1): (15, 1), (16, 1): (32, 1), (63, 63): (111, 63), (47, 0): (79, 0)}),
        ("F", 64, 16 << 16, {(0, 0): (16, 0), (16, 1): (48, 1), (63, 63): (127, 63)}),
        ("C", 32, 16 << 16 | 3, {(63, 31): (127, 34)}),
        ("E", 128, 0, {(3, 63): (3, 63), (3, 64): (67, 0), (63, 127): (127, 63)}),
        ("G", 128, 8, {(3, 31): (3, 39), (3, 32): (35, 8), (3, 64): (67, 8), (31, 127): (127, 39)}),
    ],
)
def test_places_of_d(name: str, n: int, address: int, places: dict[tuple[int, int], tuple[int, int]]) -> None:
    where = accumulator_map(LAYOUTS[name], n, 32, address)
    for (row, column), (lane, col) in places.items():
        assert at(where, row, column) == (lane, col, 0)


@pytest.mark.parametrize(
    ("m", "qualifiers", "sparse", "dense"),
    [
        (256, "cta_group::2", "A", "A"), (128, "cta_group::2", "C", "B"), (128, "cta_group::1", "D", "D"),
        (128, "ws.cta_group::1", "D", "D"), (64, "ws.cta_group::1", "E", "E"), (64, "cta_group::1", "F", "F"),
        (32, "ws.cta_group::1", "G", "G"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_sparse", [True, False])
def test_layout_of_a_shape(m: int, qualifiers: str, sparse: str, dense: str, is_sparse: bool) -> None:
    name = sparse if is_sparse else dense
    layout = layout_for(opcode(qualifiers, is_sparse), m)
    assert layout is LAYOUTS[name]
    assert layout.rows * layout.cta_group == m
    assert layout.half_lanes == (name in HALF)


@pytest.mark.parametrize(("m", "qualifiers"), [(32, "cta_group::1"), (256, "cta_group::1"), (64, "cta_group::2")])
def test_no_layout(m: int, qualifiers: str) -> None:
    with pytest.raises(ValueError, match=f"no layout has {m} rows"):
        layout_for(opcode(qualifiers), m)


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        ("tf32", {(5, 0): (5, 7, 0), (5, 7): (5, 14, 0)}),
        ("f16", {(5, 1): (5, 7, 16), (5, 2): (5, 8, 0), (127, 15): (127, 14, 16)}),
        ("i8", {(5, 3): (5, 7, 24), (5, 4): (5, 8, 0), (0, 31): (0, 14, 24)}),
        ("mxf4", {(5, 1): (5, 7, 4), (5, 8): (5, 8, 0), (0, 63): (0, 14, 28)}),
    ],
)
def test_places_of_a(kind: str, places: dict[tuple[int, int], tuple[int, int, int]]) -> None:
    where = a_map(LAYOUTS["D"], instruction(kind), 7)
    for (row, column), place in places.items():
        assert at(where, row, column) == place


def test_a_shares_the_lanes_of_d() -> None:
    for name in ("A", "C", "D", "F"):
        for lane in (0, 16) if name in HALF else (0,):
            d = accumulator_map(LAYOUTS[name], 8, 32, lane << 16)
            np.testing.assert_array_equal(
                a_map(LAYOUTS[name], instruction("f16"), lane << 16).lanes[:, 0], d.lanes[:, 0]
            )


@pytest.mark.parametrize(
    ("kind", "sparsity_selector", "places"),
    [
        ("f16", 0, {(0, 0): (0, 20, 0), (0, 3): (0, 20, 12), (0, 4): (8, 20, 0), (8, 0): (0, 20, 16),
                    (9, 7): (9, 20, 28), (16, 0): (16, 20, 0), (127, 7): (127, 20, 28)}),
        ("f16", 1, {(0, 0): (0, 21, 0), (23, 5): (31, 21, 4), (24, 5): (24, 21, 20)}),
        ("tf32", 1, {(121, 6): (121, 21, 24)}),
        ("i8", 0, {(0, 0): (0, 20, 0), (9, 7): (9, 20, 28), (9, 8): (9, 21, 0), (127, 15): (127, 21, 28)}),
        ("mxf4", 0, {(77, 9): (77, 21, 4)}),
    ],
)  # fmt: skip
def test_places_of_metadata(
    kind: str, sparsity_selector: int, places: dict[tuple[int, int], tuple[int, int, int]]
) -> None:
    where = metadata_map(LAYOUTS["D"], instruction(kind), sparsity_selector, 20)
    for (row, chunk), place in places.items():
        assert at(where, row, chunk) == place


def test_metadata_of_fewer_rows_is_that_of_the_first_ones() -> None:
    for kind in KINDS:
        whole = metadata_map(LAYOUTS["D"], instruction(kind), 0, 0)
        for name, copies in (("E", (0, 64)), ("G", (0, 32, 64, 96))):
            part = metadata_map(LAYOUTS[name], instruction(kind), 0, 0)
            assert part.copies == copies
            np.testing.assert_array_equal(part.lanes, whole.lanes[: LAYOUTS[name].rows])


def test_places_of_scales() -> None:
    where = scale_map("scale_b", 256, 2, 2, 40)
    assert at(where, 0, 0) == (0, 40, 16)
    assert at(where, 33, 1) == (1, 41, 24)
    assert at(where, 255, 0) == (31, 47, 16)
    assert where.copies == (0, 32, 64, 96)
    assert at(scale_map("scale_a", 128, 1, 3, 0), 127, 0) == (31, 3, 24)
    assert at(scale_map("scale_a", 128, 4, 0, 0), 64, 3) == (0, 2, 24)


D, E, F = LAYOUTS["D"], LAYOUTS["E"], LAYOUTS["F"]
I8 = instruction("i8")
F16 = instruction("f16")

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: decode_address(1 << 32, "d"), r"^d must be a 32-bit address of tensor memory, not 4294967296$"),
    (lambda: decode_address(-1, "e"), r"^e must be a 32-bit address"),
    (lambda: decode_address(True, "e"), r"^e must be a 32-bit address of tensor memory, not True$"),
    (lambda: decode_address(128 << 16, "d"), r"lane 0 to 127 and column 0 to 511 .*, not of lane 128 and column 0$"),
    (lambda: decode_address(512, "d"), r"not of lane 0 and column 512$"),
    (lambda: accumulator_map(D, 256, 32, 257), r"^d at column 257 .* reaches column 512, beyond the last one, 511$"),
    (lambda: accumulator_map(E, 128, 32, 449), r"^d at column 449 .* reaches column 512"),
    (lambda: accumulator_map(D, 8, 32, 16 << 16), r"^d must start at lane 0 .* in layout D, not 16$"),
    (lambda: accumulator_map(F, 8, 32, 8 << 16), r"^d must start at lane 0 or 16 .* in layout F, not 8$"),
    (lambda: a_map(D, F16, 505), r"^a at column 505 .* reaches column 512"),
    (lambda: a_map(D, F16, 32 << 16), r"^a must start at lane 0 "),
    (
        lambda: a_map(E, I8, 0),
        r"^a of .* no public source .* '\.ws' with M = 64 wants elements of 8 bits",
    ),
    (lambda: a_map(LAYOUTS["G"], F16, 0), r"^a of .* no public source .* '\.ws' with M = 32 wants elements of 16 bits"),
    (lambda: a_map(D, instruction("f8f6f4", "e2m1"), 0), r"^a of .* no public source states in words where a 4-bit"),
    (lambda: a_map(D, instruction("mxf8f6f4", "e3m2"), 0), r"^a of .* no public source states in words where a 6-bit"),
    (lambda: a_map(D, instruction("mxf8f6f4", "e2m1"), 0), r"^a of .* no public source states in words"),
    (lambda: metadata_map(F, F16, 0, 8 << 16), r"^e must start at lane 0 or 16 .* in layout F, not 8$"),
    (lambda: scale_map("scale_b", 96, 1, 0, 0, 2), r"^scale_b must be of a multiple of 64 columns, not 96: no public"),
    (lambda: metadata_map(D, F16, 2, 0), r"^the selector of .* must be 0 or 1: no public source .* columns 2 picks$"),
    (lambda: metadata_map(D, F16, 0, 5), r"^e of .* must start at an even column of tensor memory, not 5$"),
    (lambda: metadata_map(D, F16, 0, 1 << 16), r"^e must start at lane 0 "),
    (lambda: scale_map("scale_a", 128, 1, 0, 509), r"^scale_a at column 509 .* reaches column 512"),
    (lambda: scale_map("scale_b", 8, 1, 0, 32 << 16), r"^scale_b must start at lane 0 of tensor memory, not 32$"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(OperandError) as caught:
        call()
    assert re.search(message, str(caught.value)), str(caught.value)


def test_the_last_column_may_be_used() -> None:
    assert accumulator_map(D, 256, 32, 256).columns.max() == 511
    assert metadata_map(D, I8, 0, 510).columns.max() == 511
    assert scale_map("scale_a", 128, 1, 0, 508).columns.max() == 511
