"""ldmatrix and stmatrix on images: rows scattered anywhere, and the fragments of mma.sp they are made for."""

from importlib import resources

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.errors import InstructionError, OperandError
from sptc.golden.registers import pack
from sptc.isa.fragments import a_fragment, b_fragment
from sptc.isa.instructions import parse
from sptc.isa.matrix_moves import MatrixMove, every_matrix_move, matrix_move_map

EVERY = every_matrix_move()
LOADS = [move for move in EVERY if move.opcode == "ldmatrix"]
STORES = [move for move in EVERY if move.opcode == "stmatrix"]
BYTES = 2048

Octets = NDArray[np.uint8]
Words = NDArray[np.uint32]


def _image(rng: np.random.Generator, *batch: int) -> Octets:
    return rng.integers(0, 256, (*batch, BYTES), np.uint8)


def _addresses(rng: np.random.Generator, *batch: int) -> NDArray[np.intp]:
    """Give every lane a row of its own."""
    rows = np.broadcast_to(np.arange(BYTES // 16), (*batch, BYTES // 16))
    return 16 * rng.permuted(rows, axis=-1)[..., :32]


def _registers(rng: np.random.Generator, *shape: int) -> Words:
    return rng.integers(0, 2**32, shape, np.uint32)


def _loaded(move: MatrixMove, smem: Octets, addresses: NDArray[np.intp]) -> list[list[int]]:
    """Load with Python integers, bit by bit as the map says."""
    where = matrix_move_map(move)
    registers = [[0] * move.registers for _ in range(32)]
    for lane, register, j in np.ndindex(*where.rows.shape):
        place = lane, register, j
        start = int(addresses[where.address_lanes[where.matrices[place], where.rows[place]]])
        row = int.from_bytes(smem[start : start + 16].tobytes(), "little")
        element = row >> int(where.row_low_bits[place]) & (1 << move.element_bits) - 1
        registers[lane][register] |= element << int(where.register_low_bits[j])
    return registers


@pytest.mark.parametrize("move", LOADS, ids=str)
def test_a_load_follows_the_map(move: MatrixMove, rng: np.random.Generator) -> None:
    smem, addresses = _image(rng), _addresses(rng)
    assert sptc.ldmatrix(str(move), smem, addresses).tolist() == _loaded(move, smem, addresses)


@pytest.mark.parametrize("move", [move for move in STORES if move.element == "b16"], ids=str)
def test_a_load_undoes_a_store(move: MatrixMove, rng: np.random.Generator) -> None:
    smem, addresses, registers = _image(rng, 3), _addresses(rng, 3), _registers(rng, 3, 32, move.registers)
    stored = sptc.stmatrix(str(move), smem, addresses, registers)
    assert (sptc.ldmatrix(str(move).replace("st", "ld", 1), stored, addresses) == registers).all()


@pytest.mark.parametrize("count", [1, 2])
def test_a_square_load_undoes_two_narrow_stores(count: int, rng: np.random.Generator) -> None:
    """Up to the byte shuffle that CUTLASS puts behind the load: bytes 0, 1 of both registers, then bytes 2, 3."""
    smem, addresses, registers = _image(rng), _addresses(rng), _registers(rng, 32, 2 * count)
    stored = sptc.stmatrix(f"stmatrix.sync.aligned.m16n8.x{2 * count}.trans.b8", smem, addresses, registers)
    # The load's rows 4 t to 4 t + 3 are the rows 2 t, 2 t + 1 of one stored matrix and then of the next.
    t, j = np.divmod(np.arange(16), 4)
    order = 2 * t + j % 2 + 8 * (j // 2)
    permuted = np.concatenate([addresses[16 * matrix + order] for matrix in range(count)])
    lanes = np.concatenate([permuted, permuted]) if count == 1 else permuted
    loaded = sptc.ldmatrix(f"ldmatrix.sync.aligned.m16n16.x{count}.trans.b8", stored, lanes)
    halves = loaded.view(np.uint16).reshape(32, count, 2, 2)
    assert (np.ascontiguousarray(halves.swapaxes(2, 3)).view(np.uint32).reshape(32, -1) == registers).all()


@pytest.mark.parametrize("move", STORES, ids=str)
def test_a_store_writes_its_rows_alone(move: MatrixMove, rng: np.random.Generator) -> None:
    smem, addresses, registers = _image(rng), _addresses(rng), _registers(rng, 32, move.registers)
    before = smem.copy(), addresses.copy(), registers.copy()
    stored = sptc.stmatrix(str(move), smem, addresses, registers)
    for operand, copy in zip((smem, addresses, registers), before, strict=True):
        assert (operand == copy).all()
    written = np.zeros(BYTES, bool)
    written[addresses[: 8 * move.matrices, None] + np.arange(16)] = True
    assert (stored[~written] == smem[~written]).all()
    assert sorted(stored[written].tolist()) == sorted(registers.view(np.uint8).ravel().tolist())


def test_a_store_by_hand() -> None:
    """Byte e of lane l of m16n8 is row l / 4 + 8 (e / 2), column 2 (l % 4) + e % 2, and columns become rows."""
    registers = (4 * np.arange(32)[:, None] + np.arange(4)).astype(np.uint8).view(np.uint32)
    text = "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8"
    stored = sptc.stmatrix(text, np.zeros(128, np.uint8), 16 * np.arange(32), registers).reshape(8, 16)
    for lane, octet in np.ndindex(32, 4):
        assert stored[2 * (lane % 4) + octet % 2, lane // 4 + 8 * (octet // 2)] == 4 * lane + octet


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_batches_broadcast(move: MatrixMove, rng: np.random.Generator) -> None:
    smem, addresses, registers = _image(rng, 3, 1), _addresses(rng, 2), _registers(rng, 1, 2, 32, move.registers)
    if move.opcode == "ldmatrix":
        found = sptc.ldmatrix(str(move), smem, addresses)
        each = [[sptc.ldmatrix(str(move), smem[i, 0], addresses[j]) for j in range(2)] for i in range(3)]
    else:
        found = sptc.stmatrix(str(move), smem, addresses, registers)
        each = [
            [sptc.stmatrix(str(move), smem[i, 0], addresses[j], registers[0, j]) for j in range(2)] for i in range(3)
        ]
    assert found.shape == np.shape(each)
    assert (found == np.array(each)).all()


def _tile(matrix: NDArray, pitch: int) -> Octets:
    """Lay a matrix out row by row, `pitch` bytes apart."""
    octets = np.ascontiguousarray(matrix).view(np.uint8)
    image = np.zeros((len(octets), pitch), np.uint8)
    image[:, : octets.shape[1]] = octets
    return image.ravel()


LANE = np.arange(32)
#: Rows 0 to 7, then 8 to 15 of a tile, for its first 16 bytes and then for the next 16, as the registers of A follow.
A_ROWS, A_OFFSET = LANE % 16, 16 * (LANE // 16)


@pytest.mark.parametrize(
    "text",
    [
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32",
        "mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32",
    ],
)
def test_a_of_mma_sp(text: str, rng: np.random.Generator) -> None:
    """Compressed A, row by row in memory, 48 bytes apart, comes in one x4 whatever the type."""
    octets = rng.integers(0, 256, (16, 32), np.uint8)
    fragment = a_fragment(parse(text))
    codes = np.stack([octets & 15, octets >> 4], -1).reshape(16, 64) if fragment.element_bits == 4 else octets
    codes = codes.view({4: "u1", 8: "u1", 16: "<u2", 32: "<u4"}[fragment.element_bits])
    loaded = sptc.ldmatrix("ldmatrix.sync.aligned.m8n8.x4.shared.b16", _tile(octets, 48), 48 * A_ROWS + A_OFFSET)
    assert (loaded == pack(codes[None], fragment)[0]).all()


def test_b_of_mma_sp_by_columns(rng: np.random.Generator) -> None:
    """B with contiguous k: matrix r of the load is the k-block of register r."""
    matrix = rng.integers(0, 2**16, (32, 8), np.uint16)
    fragment = b_fragment(parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"))
    loaded = sptc.ldmatrix("ldmatrix.sync.aligned.m8n8.x4.b16", _tile(matrix.T, 80), 80 * (LANE % 8) + 16 * (LANE // 8))
    assert (loaded == pack(matrix[None], fragment)[0]).all()


def test_b_of_mma_sp_by_rows(rng: np.random.Generator) -> None:
    """B with contiguous n needs the transposition."""
    matrix = rng.integers(0, 2**16, (32, 8), np.uint16)
    fragment = b_fragment(parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"))
    loaded = sptc.ldmatrix("ldmatrix.sync.aligned.m8n8.x4.trans.b16", _tile(matrix, 16), 16 * LANE)
    assert (loaded == pack(matrix[None], fragment)[0]).all()


def test_bytes_of_b_by_rows(rng: np.random.Generator) -> None:
    """Two loads of 32 rows by 16 columns give the four registers of two tiles of B, one in the odd registers."""
    matrix = rng.integers(0, 256, (64, 16), np.uint8)
    fragment = b_fragment(parse("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32"))
    text = "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8"
    loaded = np.concatenate([sptc.ldmatrix(text, _tile(matrix, 16), 16 * (LANE + start)) for start in (0, 32)], axis=-1)
    for tile in (0, 1):
        assert (loaded[:, tile::2] == pack(matrix[None, :, 8 * tile : 8 * tile + 8], fragment)[0]).all()


@pytest.mark.parametrize(("element", "source", "bits"), [("e2m1", "b4x16_p64", 4), ("e3m2", "b6x16_p32", 6)])
def test_padded_a_of_mma_sp(element: str, source: str, bits: int, rng: np.random.Generator) -> None:
    """Six-bit elements arrive where mma wants them; four-bit ones must be shifted, as CUTLASS does."""
    text = f"mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.{element}.e4m3.f32"
    instruction = parse(text)
    matrix = rng.integers(0, 1 << bits, (16, 32), np.uint8)
    digits = np.unpackbits(matrix[..., None], axis=-1, bitorder="little")[..., :bits].reshape(16, 2, -1)
    image = _image(rng)
    image[:512].reshape(16, 2, 16)[..., : 2 * bits] = np.packbits(digits, axis=-1, bitorder="little")
    load = f"ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{source}"
    loaded = sptc.ldmatrix(load, image, 32 * A_ROWS + A_OFFSET)
    low_bit = instruction.low_bit(instruction.a)
    assert low_bit == {"e2m1": 2, "e3m2": 0}[element]
    assert (loaded << np.uint32(low_bit) == pack(matrix[None] << low_bit, a_fragment(instruction))[0]).all()


LOAD = "ldmatrix.sync.aligned.m8n8.x2.shared.b16"
STORE = "stmatrix.sync.aligned.m8n8.x2.shared.b16"


@pytest.mark.parametrize(
    ("lane", "address", "said"),
    [
        (3, 24, f"lane 3 of {LOAD} gives the row address 24, no multiple of 16"),
        (
            15,
            2048,
            f"lane 15 of {LOAD} gives the row address 2048, not the start of 16 bytes of an image of 2048 bytes",
        ),
        (0, -16, f"lane 0 of {LOAD} gives the row address -16, not the start of 16 bytes of an image of 2048 bytes"),
    ],
)
def test_a_wrong_address(lane: int, address: int, said: str, rng: np.random.Generator) -> None:
    smem, addresses = _image(rng), _addresses(rng)
    addresses[lane] = address
    with pytest.raises(OperandError) as caught:
        sptc.ldmatrix(LOAD, smem, addresses)
    assert str(caught.value) == said
    with pytest.raises(OperandError, match=f"^batch 1, {said.replace('ldmatrix', 'stmatrix')}$"):
        sptc.stmatrix(STORE, smem, np.stack([_addresses(rng), addresses]), _registers(rng, 32, 2))


def test_a_row_that_the_image_cuts() -> None:
    said = r"^lane 7 of .* gives the row address 112, not the start of 16 bytes of an image of 127 bytes$"
    with pytest.raises(OperandError, match=said):
        sptc.ldmatrix(LOAD, np.zeros(127, np.uint8), 16 * np.arange(32))


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_the_last_lane_that_is_read(move: MatrixMove, rng: np.random.Generator) -> None:
    """Lanes behind it may give anything."""
    last = move.matrices * move.rows - 1
    smem, addresses, operands = _image(rng), _addresses(rng), [_registers(rng, 32, move.registers)]
    function = sptc.stmatrix if move.opcode == "stmatrix" else sptc.ldmatrix
    tail = operands if move.opcode == "stmatrix" else []
    expected = function(str(move), smem, addresses, *tail)
    addresses[last + 1 :] = -1
    assert (function(str(move), smem, addresses, *tail) == expected).all()
    addresses[last] = 8
    with pytest.raises(OperandError, match=f"^lane {last} of "):
        function(str(move), smem, addresses, *tail)


def test_two_rows_at_one_address(rng: np.random.Generator) -> None:
    smem, addresses = _image(rng), _addresses(rng)
    addresses[9] = addresses[4]
    said = f"lane 4 and lane 9 of {STORE} both give the row address {addresses[4]}; which row remains is undefined"
    with pytest.raises(OperandError) as caught:
        sptc.stmatrix(STORE, smem, addresses, _registers(rng, 32, 2))
    assert str(caught.value) == said
    assert sptc.ldmatrix(LOAD, smem, addresses).shape == (32, 2)


def test_wrong_operands(rng: np.random.Generator) -> None:
    smem, addresses, registers = _image(rng), _addresses(rng), _registers(rng, 32, 2)
    for image in (smem.astype(np.int8), smem[0], [0] * 64):
        with pytest.raises(
            OperandError, match=rf"^smem of {LOAD} must be a uint8 array of shape \(\.\.\., bytes\), not"
        ):
            sptc.ldmatrix(LOAD, image, addresses)
    for lanes in (addresses[:16], addresses.astype(float), addresses.astype(np.uint64), addresses.tolist()):
        with pytest.raises(
            OperandError, match=rf"^addresses of {LOAD} must be an intp array of shape \(\.\.\., 32\), not"
        ):
            sptc.ldmatrix(LOAD, smem, lanes)
    for held in (registers[:, :1], registers.astype(np.int32), registers[0]):
        with pytest.raises(
            OperandError, match=r"^registers of .* must be a uint32 array of shape \(\.\.\., 32, 2\), not"
        ):
            sptc.stmatrix(STORE, smem, addresses, held)
    with pytest.raises(OperandError, match=r"do not broadcast: smem \(2,\), addresses \(3,\)$"):
        sptc.ldmatrix(LOAD, _image(rng, 2), _addresses(rng, 3))
    with pytest.raises(OperandError, match=r"do not broadcast: smem \(\), addresses \(3,\), registers \(2,\)$"):
        sptc.stmatrix(STORE, smem, _addresses(rng, 3), _registers(rng, 2, 32, 2))


def test_the_other_opcode(rng: np.random.Generator) -> None:
    with pytest.raises(InstructionError, match=rf"^{STORE} is not a form of ldmatrix; use sptc\.stmatrix\.$"):
        sptc.ldmatrix(STORE, _image(rng), _addresses(rng))
    with pytest.raises(InstructionError, match=rf"^{LOAD} is not a form of stmatrix; use sptc\.ldmatrix\.$"):
        sptc.stmatrix(LOAD, _image(rng), _addresses(rng), _registers(rng, 32, 2))


def test_narrow_addresses(rng: np.random.Generator) -> None:
    smem, addresses = _image(rng), _addresses(rng)
    assert (sptc.ldmatrix(LOAD, smem, addresses.astype(np.uint32)) == sptc.ldmatrix(LOAD, smem, addresses)).all()


def recorded_moves() -> dict[str, np.ndarray]:
    with np.load(str(resources.files("sptc") / "recordings" / "matrix_moves" / "b16.npz")) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("text", sorted({name.partition("/")[0] for name in recorded_moves() if "/" in name}))
def test_what_a_real_gpu_moved(text: str) -> None:
    parts = {name.partition("/")[2]: part for name, part in recorded_moves().items() if name.startswith(f"{text}/")}
    if text.startswith("ldmatrix"):
        np.testing.assert_array_equal(sptc.ldmatrix(text, parts["smem"], parts["addresses"]), parts["registers"])
    else:
        stored = sptc.stmatrix(text, parts["smem"], parts["addresses"], parts["registers"])
        np.testing.assert_array_equal(stored, parts["stored"])
