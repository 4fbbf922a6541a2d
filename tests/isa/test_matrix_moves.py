"""Forms of ldmatrix and stmatrix, and their maps against formulas of other sources."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import InstructionError
from sptc.isa.matrix_moves import MatrixMove, every_matrix_move, matrix_move_map, parse_matrix_move

EVERY = every_matrix_move()
LOADS = [move for move in EVERY if move.opcode == "ldmatrix"]
STORES = [move for move in EVERY if move.opcode == "stmatrix"]

Index = NDArray[np.intp]

# The syntax of PTX ISA 9, spelled out.
SYNTAX = [
    *(f"ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16" for n in (1, 2, 4) for trans in ("", ".trans")),
    *(f"ldmatrix.sync.aligned.m16n16.x{n}.trans.shared.b8" for n in (1, 2)),
    *(f"ldmatrix.sync.aligned.m16n16.x{n}.trans.shared.b8x16.{f}" for f in ("b6x16_p32", "b4x16_p64") for n in (1, 2)),
    *(f"ldmatrix.sync.aligned.m8n16.x{n}.shared.b8x16.{f}" for f in ("b6x16_p32", "b4x16_p64") for n in (1, 2, 4)),
    *(f"stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16" for n in (1, 2, 4) for trans in ("", ".trans")),
    *(f"stmatrix.sync.aligned.m16n8.x{n}.trans.shared.b8" for n in (1, 2, 4)),
]


def test_every_form() -> None:
    assert [str(move) for move in EVERY] == SYNTAX


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_a_form_parses_in_every_spelling(move: MatrixMove) -> None:
    text = str(move)
    opcode, *words = text.split(".")
    for spelling in (text, f" {text}; ", text.replace(".shared", ""), text.replace(".shared", ".shared::cta")):
        assert parse_matrix_move(spelling) == move
    types = 2 if move.source else 1
    assert parse_matrix_move(".".join([opcode, *words[-types:], *reversed(words[:-types])])) == move


# The number of registers is that of CUTLASS's copy operations and of ptxas.
@pytest.mark.parametrize(
    ("text", "registers", "rows", "bits"),
    [
        ("ldmatrix.sync.aligned.m8n8.x4.b16", 4, 8, 16),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.b8", 2, 16, 8),
        ("ldmatrix.sync.aligned.m16n16.x2.trans.b8x16.b6x16_p32", 4, 16, 6),
        ("ldmatrix.sync.aligned.m8n16.x2.b8x16.b4x16_p64", 2, 8, 4),
        ("stmatrix.sync.aligned.m16n8.x4.trans.b8", 4, 8, 8),
    ],
)
def test_sizes(text: str, registers: int, rows: int, bits: int) -> None:
    move = parse_matrix_move(text)
    assert (move.registers, move.rows, move.element_bits) == (registers, rows, bits)


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_a_map_is_one_to_one(move: MatrixMove) -> None:
    where = matrix_move_map(move)
    shape = (32, move.registers, 32 // move.container_bits)
    assert where.matrices.shape == where.rows.shape == where.elements.shape == where.row_low_bits.shape == shape
    sizes = (move.matrices, move.rows, move.row_elements)
    flat = np.ravel_multi_index((where.matrices, where.rows, where.elements), sizes)
    assert (np.bincount(flat.ravel(), minlength=np.prod(sizes)) == 1).all()
    assert where.address_lanes.ravel().tolist() == list(range(move.matrices * move.rows))
    assert (where.row_low_bits == where.elements * move.element_bits).all()
    assert where.row_low_bits.max() + move.element_bits == {16: 128, 8: 128, 6: 96, 4: 64}[move.element_bits]


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_a_register_holds_one_matrix(move: MatrixMove) -> None:
    """The matrices follow each other in the registers; a 16x16 one takes two of them."""
    per_matrix = 2 if move.shape == "m16n16" else 1
    registers = np.arange(move.registers)[:, None]
    assert (matrix_move_map(move).matrices == registers // per_matrix).all()


def test_maps_cannot_be_written() -> None:
    for index in vars(matrix_move_map(EVERY[0])).values():
        with pytest.raises(ValueError, match="read-only"):
            index[...] = 0


# CuTe layouts of the copy traits, as (shape, stride) of the thread's and the value's digits, least significant first:
# the sum gives a bit of the tile. Rows of the tile are numbered by the address layout.


def _cute(index: Index, digits: list[tuple[int, int]]) -> Index:
    total = np.zeros_like(index)
    for size, stride in digits:
        total, index = total + index % size * stride, index // size
    return total


def _row_of_tile(address: list[tuple[int, int]], lanes: int) -> dict[int, int]:
    """Return which lane gives the address of every row of the tile."""
    return {int(_cute(np.array(lane), address)) // 128: lane for lane in range(lanes)}


def _assert_cute(
    move: MatrixMove,
    address: list[tuple[int, int]],
    thread: list[tuple[int, int]],
    value: list[tuple[int, int]],
    shuffle: list[int] | None = None,
) -> None:
    """Compare byte by byte; `shuffle` says which byte of the operation's registers the instruction delivered where."""
    where = matrix_move_map(move)
    owner = _row_of_tile(address, move.matrices * move.rows)
    octets = np.arange(4 * move.registers)
    bits = _cute(np.arange(32), thread)[:, None] + _cute(8 * octets, value)
    lane = np.vectorize(owner.__getitem__)(bits // 128)
    place = bits % 128 // 8
    if shuffle is not None:
        lane, place = (part.reshape(32, -1, 8)[:, :, shuffle].reshape(32, -1) for part in (lane, place))
    containers = move.container_bits // 8
    held = where.address_lanes[where.matrices, where.rows].reshape(32, -1).repeat(containers, axis=1)
    offset = (where.elements[..., None] * containers + np.arange(containers)).reshape(32, -1)
    assert (lane == held).all()
    assert (place == offset).all()


@pytest.mark.parametrize("move", [move for move in EVERY if move.shape in ("m8n8", "m8n16")], ids=str)
def test_rows_against_cute(move: MatrixMove) -> None:
    """SM75_U32x1_LDSM_N, SM75_U16x2_LDSM_T, SM90_U32x1_STSM_N, SM100_SU4_DU8x16_x1_LDSM_N and their siblings."""
    address = [(8 * move.matrices, 128)]
    if move.transposed:
        _assert_cute(move, address, [(4, 256), (8, 16)], [(16, 1), (2, 128), (move.matrices, 1024)])
    else:
        _assert_cute(move, address, [(32, 32)], [(32, 1), (move.matrices, 1024)])


@pytest.mark.parametrize("move", [move for move in LOADS if move.shape == "m16n16"], ids=str)
def test_square_loads_against_cute(move: MatrixMove) -> None:
    """SM100_U8x8_LDSM_T and SM100_U8x16_LDSM_T, whose copy puts bytes 0, 1 of both registers into the first."""
    address = [(2, 128), (2, 1024), (4, 256), (2, 2048)]
    value = [(8, 1), (2, 128), (2, 64), (2 * move.matrices, 1024)]
    # Byte b of register i, as delivered, is byte 2 * i + b % 2 of register b // 2 after the shuffle.
    shuffle = [4 * (b // 2) + 2 * i + b % 2 for i, b in product(range(2), range(4))]
    _assert_cute(move, address, [(4, 256), (8, 8)], value, shuffle)


@pytest.mark.parametrize("move", [move for move in STORES if move.shape == "m16n8"], ids=str)
def test_narrow_stores_against_cute(move: MatrixMove) -> None:
    """SM100_U8x4_STSM_T, SM100_U8x8_STSM_T and SM100_U8x16_STSM_T."""
    value = [(8, 1), (2, 128), (2, 64), (move.matrices, 1024)]
    _assert_cute(move, [(8 * move.matrices, 128)], [(4, 256), (8, 8)], value)


@pytest.mark.parametrize(
    ("text", "lane", "register", "matrix", "row", "elements"),
    [
        # PTX ISA, Figure 104: thread 5 holds the second pair of row 1; with .trans, of column 1.
        ("ldmatrix.sync.aligned.m8n8.x2.b16", 5, 1, 1, 1, [2, 3]),
        ("ldmatrix.sync.aligned.m8n8.x4.b16", 31, 3, 3, 7, [6, 7]),
        ("stmatrix.sync.aligned.m8n8.x1.b16", 4, 0, 0, 1, [0, 1]),
        ("ldmatrix.sync.aligned.m8n16.x4.b8x16.b4x16_p64", 6, 2, 2, 1, [8, 9, 10, 11]),
    ],
)
def test_rows_by_hand(text: str, lane: int, register: int, matrix: int, row: int, elements: list[int]) -> None:
    where = matrix_move_map(parse_matrix_move(text))
    assert (where.matrices[lane, register] == matrix).all()
    assert (where.rows[lane, register] == row).all()
    assert where.elements[lane, register].tolist() == elements


@pytest.mark.parametrize(
    ("text", "lane", "register", "rows", "elements"),
    [
        ("ldmatrix.sync.aligned.m8n8.x1.trans.b16", 5, 0, [2, 3], [1, 1]),
        ("stmatrix.sync.aligned.m8n8.x1.trans.b16", 5, 0, [2, 3], [1, 1]),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.b8", 5, 0, [4, 5, 6, 7], [1, 1, 1, 1]),
        ("ldmatrix.sync.aligned.m16n16.x2.trans.b8x16.b6x16_p32", 5, 3, [4, 5, 6, 7], [9, 9, 9, 9]),
        ("stmatrix.sync.aligned.m16n8.x1.trans.b8", 5, 0, [2, 3, 2, 3], [1, 1, 9, 9]),
    ],
)
def test_columns_by_hand(text: str, lane: int, register: int, rows: list[int], elements: list[int]) -> None:
    where = matrix_move_map(parse_matrix_move(text))
    assert where.rows[lane, register].tolist() == rows
    assert where.elements[lane, register].tolist() == elements


def test_bits_of_the_padded_formats() -> None:
    """Element 5 of a row: bits 30 to 35 of six-bit elements, the high half of byte 2 of four-bit ones."""
    for source, low_bit in (("b6x16_p32", 30), ("b4x16_p64", 20)):
        where = matrix_move_map(parse_matrix_move(f"ldmatrix.sync.aligned.m8n16.x1.b8x16.{source}"))
        assert where.elements[1, 0, 1] == 5
        assert where.row_low_bits[1, 0, 1] == low_bit
        assert where.register_low_bits.tolist() == [0, 8, 16, 24]


LD, ST = "ldmatrix.sync.aligned", "stmatrix.sync.aligned"
ALL_TYPES = r"'\.b8', '\.b8x16\.b6x16_p32' or '\.b8x16\.b4x16_p64'\.$"
MALFORMED = [
    ("movmatrix.sync.aligned.m8n8.trans.b16", "^'movmatrix' in", r"accepted are ldmatrix and stmatrix\.$"),
    ("", "^'' in", r"accepted are ldmatrix and stmatrix\.$"),
    (
        f"{LD}.m8n8.x4.global.b16",
        r"^'\.global' in",
        r"no part of ldmatrix; expected .*'\.shared', '\.shared::cta', '\.b16'",
    ),
    (f"{LD}.m8n8.x4.shared::cluster.b16", r"^'\.shared::cluster' in", r"no part of ldmatrix"),
    (f"{ST}.m8n8.x8.b16", r"^'\.x8' in", r"expected '\.sync', .*'\.m8n8', '\.m16n8', '\.x1', .* '\.b16' or '\.b8'\.$"),
    (f"{LD}.m8n8.x3.b16", r"^'\.x3' in", r"no part of ldmatrix; expected .*'\.x1'"),
    (f"{LD}.m8n8.x4.b32", r"^'\.b32' in", r"no part of ldmatrix; expected .*'\.b16'"),
    ("ldmatrix.aligned.m8n8.x4.b16", r"^'\.sync' is missing", "ldmatrix requires it"),
    ("stmatrix.sync.m8n8.x4.b16", r"^'\.aligned' is missing", "stmatrix requires it"),
    (f"{LD}.x4.b16", "^the shape is missing in", r"expected '\.m8n8', '\.m16n16' or '\.m8n16'\.$"),
    (f"{LD}.m16n8.x1.trans.b8", r"^'\.m16n8' in .* shape", r"expected '\.m8n8', '\.m16n16' or '\.m8n16'\.$"),
    (f"{ST}.m16n16.x1.trans.b8", r"^'\.m16n16' in .* shape", r"expected '\.m8n8' or '\.m16n8'\.$"),
    (f"{LD}.m8n8.m8n16.x1.b16", r"^'\.m8n16' in", r"repeats '\.m8n8'; one is expected\.$"),
    (f"{LD}.m8n8.x1.x2.b16", r"^'\.x2' in", r"repeats '\.x1'; one is expected\.$"),
    (f"{LD}.m8n8.x1.shared.shared::cta.b16", r"^'\.shared::cta' in", r"repeats '\.shared'; one is expected\.$"),
    (f"{LD}.m8n8.x1.trans.trans.b16", r"^'\.trans' stands twice in", r"once is expected\.$"),
    (f"{LD}.m8n8.x1.b16.b16", r"^'\.b16' stands twice in", r"once is expected\.$"),
    (f"{LD}.m8n8.x1", "^the type is missing in", r"expected '\.b16'\.$"),
    (f"{LD}.m8n8.x1.b8", r"^'\.b8' in .* type;", r"expected '\.b16'\.$"),
    (f"{LD}.m16n16.x1.trans.b16", r"^'\.b16' in .* type;", f"expected {ALL_TYPES}"),
    (f"{LD}.m16n16.x1.trans.b8x16", r"^'\.b8x16' in .* type;", f"expected {ALL_TYPES}"),
    (f"{LD}.m8n16.x1.b4x16_p64.b8x16", r"^'\.b4x16_p64\.b8x16' in", r"expected '\.b8x16\.b6x16_p32' or"),
    (f"{LD}.m8n16.x1.b8", r"^'\.b8' in .* type;", r"expected '\.b8x16\.b6x16_p32' or '\.b8x16\.b4x16_p64'\.$"),
    (f"{ST}.m8n8.x1.b8x16.b4x16_p64", r"^'\.b8x16\.b4x16_p64' in .* type;", r"expected '\.b16'\.$"),
    (f"{LD}.m8n8.b16", "^the number of matrices is missing in", r"expected '\.x1', '\.x2' or '\.x4'\.$"),
    (f"{LD}.m16n16.x4.trans.b8", r"^'\.x4' in .* number of matrices", r"expected '\.x1' or '\.x2'\.$"),
    (f"{LD}.m16n16.x1.b8", r"^'\.trans' is missing in", r"'\.m16n16' is always transposed\.$"),
    (f"{ST}.m16n8.x1.b8", r"^'\.trans' is missing in", r"'\.m16n8' is always transposed\.$"),
    (f"{LD}.m8n16.x1.trans.b8x16.b4x16_p64", r"^'\.trans' is not accepted", r"'\.m8n16' cannot be transposed\.$"),
]


@pytest.mark.parametrize(("text", "wrong", "accepted"), MALFORMED)
def test_malformed(text: str, wrong: str, accepted: str) -> None:
    with pytest.raises(InstructionError, match=f"{wrong}.*{accepted}") as caught:
        parse_matrix_move(text)
    assert repr(text) in str(caught.value)


def test_not_a_string() -> None:
    with pytest.raises(InstructionError, match=r"^an instruction must be a string, not int\.$"):
        parse_matrix_move(8)  # type: ignore[arg-type]
