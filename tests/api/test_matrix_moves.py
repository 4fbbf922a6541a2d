"""``ldmatrix`` and ``stmatrix`` on memory images agree with their map and with a GPU, and reject wrong operands."""

from importlib import resources

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.errors import InstructionError, OperandError
from sptc.isa.matrix_moves import MatrixMove, every_matrix_move, matrix_move_map

EVERY = every_matrix_move()
BYTES = 2048
LOAD = "ldmatrix.sync.aligned.m8n8.x2.shared.b16"
STORE = "stmatrix.sync.aligned.m8n8.x2.shared.b16"


def _image(rng: np.random.Generator, *batch: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, (*batch, BYTES), np.uint8)


def _addresses(rng: np.random.Generator, *batch: int) -> NDArray[np.intp]:
    return 16 * rng.permuted(np.broadcast_to(np.arange(BYTES // 16), (*batch, BYTES // 16)), axis=-1)[..., :32]


def _registers(rng: np.random.Generator, *shape: int) -> NDArray[np.uint32]:
    return rng.integers(0, 2**32, shape, np.uint32)


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_a_move_follows_the_map(move: MatrixMove, rng: np.random.Generator) -> None:
    smem, addresses, registers = _image(rng), _addresses(rng), _registers(rng, 32, move.registers)
    before = smem.copy(), addresses.copy(), registers.copy()
    where, loads = matrix_move_map(move), move.opcode == "ldmatrix"
    rows = {int(start): int.from_bytes(smem[start : start + 16].tobytes(), "little") for start in addresses}
    loaded = [[0] * move.registers for _ in range(32)]
    mask = (1 << move.element_bits) - 1
    for lane, register, j in np.ndindex(*where.rows.shape):
        place = lane, register, j
        start = int(addresses[where.address_lanes[where.matrices[place], where.rows[place]]])
        low_bit, register_bit = int(where.row_low_bits[place]), int(where.register_low_bits[j])
        if loads:
            loaded[lane][register] |= (rows[start] >> low_bit & mask) << register_bit
        else:
            element = int(registers[lane, register]) >> register_bit & mask
            rows[start] = rows[start] & ~(mask << low_bit) | element << low_bit
    if loads:
        assert sptc.ldmatrix(str(move), smem, addresses).tolist() == loaded
    else:
        expected = smem.copy()
        for start, row in rows.items():
            expected[start : start + 16] = np.frombuffer(row.to_bytes(16, "little"), np.uint8)
        assert (sptc.stmatrix(str(move), smem, addresses, registers) == expected).all()
    for operand, copy in zip((smem, addresses, registers), before, strict=True):
        assert (operand == copy).all()


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_batches_broadcast(move: MatrixMove, rng: np.random.Generator) -> None:
    smem, addresses, registers = _image(rng, 3, 1), _addresses(rng, 2), _registers(rng, 1, 2, 32, move.registers)
    text = str(move)
    if move.opcode == "ldmatrix":
        result = sptc.ldmatrix(text, smem, addresses)
        each = [[sptc.ldmatrix(text, smem[i, 0], addresses[j]) for j in range(2)] for i in range(3)]
    else:
        result = sptc.stmatrix(text, smem, addresses, registers)
        each = [[sptc.stmatrix(text, smem[i, 0], addresses[j], registers[0, j]) for j in range(2)] for i in range(3)]
    np.testing.assert_array_equal(result, each, strict=True)


def test_wrong_addresses(rng: np.random.Generator) -> None:
    outside = "not the start of 16 bytes in an image of 2048 bytes"
    for lane, address, reason in ((3, 24, "not a multiple of 16"), (15, 2048, outside), (0, -16, outside)):
        smem, addresses = _image(rng), _addresses(rng)
        addresses[lane] = address
        with pytest.raises(OperandError) as caught:
            sptc.ldmatrix(LOAD, smem, np.ma.array(addresses, mask=True))
        assert str(caught.value) == f"lane {lane} of {LOAD} gives the row address {address}, which is {reason}"
        message = f"^batch 1, lane {lane} of {STORE} gives the row address {address}, which is {reason}$"
        with pytest.raises(OperandError, match=message):
            sptc.stmatrix(STORE, smem, np.stack([_addresses(rng), addresses]), _registers(rng, 32, 2))
    smem, addresses = _image(rng), _addresses(rng)
    addresses[9] = addresses[4]
    message = f"lane 4 and lane 9 of {STORE} both give the row address {addresses[4]}; which row is stored is undefined"
    with pytest.raises(OperandError) as caught:
        sptc.stmatrix(STORE, smem, addresses, _registers(rng, 32, 2))
    assert str(caught.value) == message
    assert sptc.ldmatrix(LOAD, smem, addresses).shape == (32, 2)


@pytest.mark.parametrize("move", EVERY, ids=str)
def test_the_last_lane_that_is_read(move: MatrixMove, rng: np.random.Generator) -> None:
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


def test_wrong_operands_and_empty_batches(rng: np.random.Generator) -> None:
    smem, addresses, registers = _image(rng), _addresses(rng), _registers(rng, 32, 2)
    words = rf"^smem of {LOAD} must be a uint8 array of shape \(\.\.\., bytes\), not"
    for image in (smem.astype(np.int8), smem[0], [0] * 64):
        with pytest.raises(OperandError, match=words):
            sptc.ldmatrix(LOAD, image, addresses)
    words = rf"^addresses of {LOAD} must be an integer array of shape \(\.\.\., 32\), not"
    for lanes in (addresses[:16], addresses.astype(float), addresses.astype(np.uint64), addresses.tolist()):
        with pytest.raises(OperandError, match=words):
            sptc.ldmatrix(LOAD, smem, lanes)
    words = r"^registers of .* must be a uint32 array of shape \(\.\.\., 32, 2\), not"
    for values in (registers[:, :1], registers.astype(np.int32), registers[0]):
        with pytest.raises(OperandError, match=words):
            sptc.stmatrix(STORE, smem, addresses, values)
    with pytest.raises(OperandError, match=r"do not broadcast: smem \(2,\), addresses \(3,\)$"):
        sptc.ldmatrix(LOAD, _image(rng, 2), _addresses(rng, 3))
    with pytest.raises(OperandError, match=r"do not broadcast: smem \(\), addresses \(3,\), registers \(2,\)$"):
        sptc.stmatrix(STORE, smem, _addresses(rng, 3), _registers(rng, 2, 32, 2))
    with pytest.raises(InstructionError, match=rf"^{STORE} is not a form of ldmatrix; use sptc\.stmatrix$"):
        sptc.ldmatrix(STORE, smem, addresses)
    with pytest.raises(InstructionError, match=rf"^{LOAD} is not a form of stmatrix; use sptc\.ldmatrix$"):
        sptc.stmatrix(LOAD, smem, addresses, registers)
    assert (sptc.ldmatrix(LOAD, smem, addresses.astype(np.uint32)) == sptc.ldmatrix(LOAD, smem, addresses)).all()
    smem, addresses = np.zeros((0, 512), np.uint8), np.zeros((0, 32), np.int64)
    assert sptc.ldmatrix(np.array(LOAD), smem, addresses).shape == (0, 32, 2)
    assert sptc.stmatrix(STORE, smem, addresses, np.zeros((0, 32, 2), np.uint32)).shape == (0, 512)


def test_what_a_real_gpu_moved() -> None:
    with np.load(str(resources.files("sptc") / "recordings" / "matrix_moves" / "b16.npz")) as archive:
        parts = {name: archive[name] for name in archive.files}
    texts = sorted({name.partition("/")[0] for name in parts if "/" in name})
    assert {text.partition(".")[0] for text in texts} == {"ldmatrix", "stmatrix"}
    for text in texts:
        smem, addresses, registers = (parts[f"{text}/{name}"] for name in ("smem", "addresses", "registers"))
        if text.startswith("ldmatrix"):
            np.testing.assert_array_equal(sptc.ldmatrix(text, smem, addresses), registers, text)
        else:
            stored = sptc.stmatrix(text, smem, addresses, registers)
            np.testing.assert_array_equal(stored, parts[f"{text}/stored"], text)
