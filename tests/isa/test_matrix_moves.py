"""All forms of ldmatrix and stmatrix in PTX ISA 9 are accepted. Their maps equal layouts of CuTe."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import InstructionError
from sptc.isa.matrix_moves import MatrixMove, every_matrix_move, matrix_move_map, parse_matrix_move

EVERY = every_matrix_move()

Index = NDArray[np.intp]

# All forms of ldmatrix and stmatrix in the syntax of PTX ISA 9.
SYNTAX = [
    *(f"ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16" for n in (1, 2, 4) for trans in ("", ".trans")),
    *(f"ldmatrix.sync.aligned.m16n16.x{n}.trans.shared.b8" for n in (1, 2)),
    *(f"ldmatrix.sync.aligned.m16n16.x{n}.trans.shared.b8x16.{f}" for f in ("b6x16_p32", "b4x16_p64") for n in (1, 2)),
    *(f"ldmatrix.sync.aligned.m8n16.x{n}.shared.b8x16.{f}" for f in ("b6x16_p32", "b4x16_p64") for n in (1, 2, 4)),
    *(f"stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16" for n in (1, 2, 4) for trans in ("", ".trans")),
    *(f"stmatrix.sync.aligned.m16n8.x{n}.trans.shared.b8" for n in (1, 2, 4)),
]


def test_every_form_parses_in_every_spelling() -> None:
    assert [str(move) for move in EVERY] == SYNTAX
    for move in EVERY:
        text = str(move)
        opcode, *words = text.split(".")
        for spelling in (text, f" {text}; ", text.replace(".shared", ""), text.replace(".shared", ".shared::cta")):
            assert parse_matrix_move(spelling) == move
        types = 2 if move.source else 1
        assert parse_matrix_move(".".join([opcode, *words[-types:], *reversed(words[:-types])])) == move


# Layouts of CuTe's copy traits: (size, stride) of each digit of the thread or of the value, the lowest digit first.
# The sum of digits times strides is a bit position in the tile. The address layout maps each lane to the row whose
# address it provides.


def _cute(index: Index, digits: list[tuple[int, int]]) -> Index:
    total = np.zeros_like(index)
    for size, stride in digits:
        total, index = total + index % size * stride, index // size
    return total


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_every_map_against_cute(move: MatrixMove) -> None:
    """Every byte of every register is at the position in the tile that CuTe's layout gives."""
    address, thread, shuffle = [(8 * move.matrices, 128)], [(4, 256), (8, 8)], None
    if move.shape == "m16n16":  # CuTe's SM100_U8x8_LDSM_T and SM100_U8x16_LDSM_T
        address = [(2, 128), (2, 1024), (4, 256), (2, 2048)]
        value = [(8, 1), (2, 128), (2, 64), (2 * move.matrices, 1024)]
        # CuTe's copy puts bytes 0 and 1 of both registers into the first register: byte b of register i becomes byte 2
        # * i + b % 2 of register b // 2.
        shuffle = [4 * (b // 2) + 2 * i + b % 2 for i, b in product(range(2), range(4))]
    elif move.shape == "m16n8":  # CuTe's SM100_U8x4_STSM_T, SM100_U8x8_STSM_T and SM100_U8x16_STSM_T
        value = [(8, 1), (2, 128), (2, 64), (move.matrices, 1024)]
    elif move.transposed:  # CuTe's SM75_U16x2_LDSM_T and its variants
        thread, value = [(4, 256), (8, 16)], [(16, 1), (2, 128), (move.matrices, 1024)]
    else:  # CuTe's SM75_U32x1_LDSM_N, SM90_U32x1_STSM_N, SM100_SU4_DU8x16_x1_LDSM_N and their variants
        thread, value = [(32, 32)], [(32, 1), (move.matrices, 1024)]
    where = matrix_move_map(move)
    assert (where.row_low_bits == where.elements * move.element_bits).all()
    assert where.register_low_bits.tolist() == list(range(0, 32, move.container_bits))
    # Lane that provides the address of each row of the tile.
    owner = {int(_cute(np.array(lane), address)) // 128: lane for lane in range(move.matrices * move.rows)}
    bits = _cute(np.arange(32), thread)[:, None] + _cute(8 * np.arange(4 * move.registers), value)
    lane = np.vectorize(owner.__getitem__)(bits // 128)
    place = bits % 128 // 8
    if shuffle is not None:
        lane, place = (part.reshape(32, -1, 8)[:, :, shuffle].reshape(32, -1) for part in (lane, place))
    containers = move.container_bits // 8
    held = where.address_lanes[where.matrices, where.rows].reshape(32, -1).repeat(containers, axis=1)
    offset = (where.elements[..., None] * containers + np.arange(containers)).reshape(32, -1)
    assert (lane == held).all()
    assert (place == offset).all()


LD, ST = "ldmatrix.sync.aligned", "stmatrix.sync.aligned"
ALL_TYPES = r"'\.b8', '\.b8x16\.b6x16_p32' or '\.b8x16\.b4x16_p64'$"
MALFORMED = [
    ("movmatrix.sync.aligned.m8n8.trans.b16", "^'movmatrix' in", r"accepted are ldmatrix and stmatrix$"),
    (f"{LD}.m8n8.x4.global.b16", r"^'\.global' in", r"no part of ldmatrix; .*'\.shared', '\.shared::cta', '\.b16'"),
    (f"{ST}.m8n8.x8.b16", r"^'\.x8' in", r"expected '\.sync', .*'\.m8n8', '\.m16n8', '\.x1', .* '\.b16' or '\.b8'$"),
    ("ldmatrix.aligned.m8n8.x4.b16", r"^'\.sync' is missing", "ldmatrix requires it"),
    (f"{LD}.x4.b16", "^the shape is missing in", r"expected '\.m8n8', '\.m16n16' or '\.m8n16'$"),
    (f"{LD}.m16n8.x1.trans.b8", r"^'\.m16n8' in .* shape", r"expected '\.m8n8', '\.m16n16' or '\.m8n16'$"),
    (f"{LD}.m8n8.x1.x2.b16", r"has both '\.x1' and '\.x2'", r"only one of them is allowed$"),
    (f"{LD}.m8n8.x1.trans.trans.b16", r"^'\.trans' appears twice in", r"once is expected$"),
    (f"{LD}.m8n8.x1", "^the type is missing in", r"expected '\.b16'$"),
    (f"{LD}.m16n16.x1.trans.b8x16", r"^'\.b8x16' in .* type;", f"expected {ALL_TYPES}"),
    (f"{LD}.m8n16.x1.b4x16_p64.b8x16", r"^'\.b4x16_p64\.b8x16' in", r"expected '\.b8x16\.b6x16_p32' or"),
    (f"{LD}.m8n8.b16", "^the number of matrices is missing in", r"expected '\.x1', '\.x2' or '\.x4'$"),
    (f"{LD}.m16n16.x4.trans.b8", r"^'\.x4' in .* number of matrices", r"expected '\.x1' or '\.x2'$"),
    (f"{LD}.m16n16.x1.b8", r"^'\.trans' is missing in", r"'\.m16n16' is always transposed$"),
    (f"{LD}.m8n16.x1.trans.b8x16.b4x16_p64", r"^'\.trans' is not accepted", r"'\.m8n16' cannot be transposed$"),
]


def test_malformed() -> None:
    for text, wrong, accepted in MALFORMED:
        with pytest.raises(InstructionError, match=f"{wrong}.*{accepted}") as caught:
            parse_matrix_move(text)
        assert repr(text) in str(caught.value)
    with pytest.raises(InstructionError, match=r"^an instruction must be a string, not int$"):
        parse_matrix_move(8)  # type: ignore[arg-type]
