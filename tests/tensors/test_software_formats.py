"""Software formats of compressed matrices equal those of PyTorch, CUTLASS and cuBLAS, and are read back."""

import itertools

import ml_dtypes
import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.errors import OperandError
from sptc.isa.fragments import accumulator_fragment, b_fragment
from sptc.isa.instructions import parse
from sptc.isa.metadata import GRANULARITIES
from sptc.operands.registers import to_registers
from sptc.tensors.compressed import Compressed, NibbleError
from sptc.tensors.cutlass import Atom, atom_sm90, atom_sm100, from_atoms, interleaved_positions, to_atoms
from sptc.tensors.scales import SCALE_LAYOUTS, from_scale_blocks, to_scale_blocks
from sptc.tensors.software_formats import SOFTWARE_FORMATS, PackingOptions
from sptc.tensors.sparsify import PRODUCERS, expand, sparsify

# Granularity and type of the stored elements; numbers of rows and columns that every software format supports.
KINDS = {
    "tf32": ("1:2", np.float32), "f16": ("2:4", np.float16), "bf16": ("2:4", ml_dtypes.bfloat16),
    "s8": ("2:4", np.int8), "e4m3": ("2:4", ml_dtypes.float8_e4m3fn), "s4": ("4:8", np.int8),
    "int4": ("4:8", ml_dtypes.int4), "e2m1": ("4:8", ml_dtypes.float4_e2m1fn),
}  # fmt: skip
ROWS, COLUMNS = 96, 640


def random_compressed(kind: str, rng: np.random.Generator, producer: str = "pytorch") -> Compressed:
    name, dtype = KINDS[kind]
    dense = rng.integers(-6, 7, (ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.5)
    return sparsify(dense.astype(np.float32).astype(dtype), name, prune=True, producer=producer)


def codes(array: NDArray, four_bits: bool) -> NDArray:
    """Return the bits of elements as unsigned integers. If `four_bits` is set, only the low four bits are kept."""
    raw = array.view(f"u{array.dtype.itemsize}")
    return raw & np.uint8(15) if four_bits else raw


def test_row_major_words(rng: np.random.Generator) -> None:
    for kind, dtype in (("f16", "int16"), ("tf32", "int16"), ("s8", "int32"), ("s4", "int32")):
        compressed = random_compressed(kind, rng)
        words = SOFTWARE_FORMATS["tilelang"].pack(compressed, PackingOptions())["metadata"]
        per_word = words.dtype.itemsize * 2
        assert words.dtype == dtype
        for chunk in range(0, compressed.nibbles.shape[1], 7):
            assert words[5, chunk // per_word] >> (4 * (chunk % per_word)) & 15 == compressed.nibbles[5, chunk]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_pytorch(dtype: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    from torch.sparse import _semi_structured_conversions as conversions

    kind = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8"}[dtype]
    dense = expand(random_compressed(kind, rng))
    if kind != "s8":
        dense[(dense == 0) & (rng.random(dense.shape) < 0.3)] = -0.0
    compressed = sparsify(dense, KINDS[kind][0])
    signed = dense.view(f"i{dense.dtype.itemsize}")
    tensor = torch.from_numpy(signed.copy()).view(getattr(torch, dtype))
    values, metadata = conversions.sparse_semi_structured_from_dense_cutlass(tensor)
    ours = SOFTWARE_FORMATS["cutlass2"].pack(compressed, PackingOptions())
    np.testing.assert_array_equal(metadata.numpy(), ours["metadata"].view(f"i{ours['metadata'].dtype.itemsize}"))
    as_integers = values.view(getattr(torch, f"int{8 * signed.itemsize}")).numpy()
    np.testing.assert_array_equal(as_integers, ours["values"].view(signed.dtype))
    back = conversions.sparse_semi_structured_to_dense_cutlass(values, metadata)
    np.testing.assert_array_equal(back.view(tensor.dtype).float().numpy(), dense.astype(np.float32))
    theirs = {"values": ours["values"], "metadata": metadata.numpy()}
    read = SOFTWARE_FORMATS["cutlass2"].unpack(theirs, compressed.granularity, PackingOptions())
    np.testing.assert_array_equal(read.nibbles, compressed.nibbles)


@pytest.mark.parametrize(
    ("kind", "shape", "types", "selector"),
    [
        ("f16", "m16n8k16", "f32.f16.f16.f32", 3), ("f16", "m16n8k32", "f32.f16.f16.f32", 1),
        ("tf32", "m16n8k16", "f32.tf32.tf32.f32", 0), ("s8", "m16n8k64", "s32.s8.s8.s32", 0),
        ("s4", "m16n8k64", "s32.s4.s4.s32", 1), ("s4", "m16n8k128", "s32.s4.s4.s32", 0),
    ],
)  # fmt: skip
def test_registers_multiply(kind: str, shape: str, types: str, selector: int, rng: np.random.Generator) -> None:
    """The registers of format "ptx" give the dense product of small integers if the golden model multiplies them."""
    text = f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.{types}"
    i = parse(text)
    compressed = random_compressed(kind, rng)
    dense = expand(compressed).astype(np.int64)
    arrays = SOFTWARE_FORMATS["ptx"].pack(compressed, PackingOptions(instruction=i, sparsity_selector=selector))
    b = rng.integers(-2, 3, (COLUMNS, 8))
    as_codes = {32: np.float32, 16: np.float16, 8: np.int8, 4: np.int8}[i.container_bits]
    b_codes = codes(b.astype(as_codes), i.container_bits == 4)
    for down in range(ROWS // 16):
        total = np.zeros((32, 4), np.uint32)
        for across in range(COLUMNS // i.k):
            tile = to_registers(b_codes[None, across * i.k : (across + 1) * i.k], b_fragment(i))[0]
            a, e = arrays["a"][down, across], arrays["e"][down, across]
            total = sptc.mma(text, a, tile, total, e, selector=selector, arch="sm_90")
        product = total.view(np.float32 if i.d.name == "f32" else np.int32).reshape(32, 4, 1)
        where = accumulator_fragment(i)
        np.testing.assert_array_equal(product, (dense[16 * down : 16 * down + 16] @ b)[where.rows, where.columns])


def test_registers_of_a_warpgroup_and_of_a_lone_e2m1(rng: np.random.Generator) -> None:
    halves = sparsify(rng.normal(size=(128, 64)).astype(np.float16), "2:4", prune=True)
    e2m1 = sparsify(rng.integers(0, 16, (16, 64), dtype=np.uint8), "2:4", prune=True)
    shifted = "mma.sp::ordered_metadata.sync.aligned.kind::f8f6f4.m16n8k64.row.col.f32.e2m1.e2m1.f32"
    for text, selector, compressed, shape in (
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", 1, halves, (2, 2, 128)),
        (shifted, 0, e2m1, (1, 1, 32)),
    ):
        options = PackingOptions(instruction=parse(text), sparsity_selector=selector)
        arrays = SOFTWARE_FORMATS["ptx"].pack(compressed, options)
        assert (arrays["a"].shape, arrays["e"].shape) == ((*shape, 4), shape)
        assert text != shifted or not (arrays["a"] & 0xC3C3C3C3).any()
        back = SOFTWARE_FORMATS["ptx"].unpack(arrays, compressed.granularity, options)
        np.testing.assert_array_equal(back.stored, codes(compressed.stored, False), text)
        np.testing.assert_array_equal(back.nibbles, compressed.nibbles, text)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_bitmask(producer: str, rng: np.random.Generator) -> None:
    compressed = random_compressed("bf16", rng, producer)
    dense = expand(compressed)
    flip = rng.random(compressed.nibbles.shape) < 0.5
    nibbles = np.where(flip, compressed.nibbles >> 2 | (compressed.nibbles & 3) << 2, compressed.nibbles)
    pairs = compressed.stored.reshape(*nibbles.shape, 2)
    stored = np.where(flip[..., None], pairs[..., ::-1], pairs).reshape(compressed.stored.shape)
    turned = Compressed(stored, nibbles.astype(np.uint8), compressed.granularity)
    arrays = SOFTWARE_FORMATS["bitmask"].pack(turned, PackingOptions())
    assert arrays["shape"].tolist() == [ROWS, COLUMNS]
    mask = np.unpackbits(arrays["bitmask"], axis=1, bitorder="little").astype(bool)
    assert (mask.reshape(ROWS, -1, 4).sum(-1) == 2).all()
    again = np.zeros((ROWS, COLUMNS), dense.dtype)
    again[mask] = arrays["compressed"].ravel()
    np.testing.assert_array_equal(again.astype(np.float32), dense.astype(np.float32))
    back = SOFTWARE_FORMATS["bitmask"].unpack(arrays, compressed.granularity, PackingOptions())
    np.testing.assert_array_equal(expand(back, "ordered", strict=True).astype(np.float32), dense.astype(np.float32))


def test_wrong_masks() -> None:
    granularity, unpack = GRANULARITIES["2:4"], SOFTWARE_FORMATS["bitmask"].unpack
    arrays = {
        "compressed": np.ones((2, 6), np.float16),
        "bitmask": np.array([[0x33, 0x3], [0x33, 0x7]], np.uint8),
        "shape": np.array([[2], [12]]),
    }
    with pytest.raises(OperandError, match="must mark 2 of every 4 elements, not 3: row 1, column 8"):
        unpack(arrays, granularity, PackingOptions())
    arrays["bitmask"][1, 1] = 0xC
    assert unpack(arrays, granularity, PackingOptions()).nibbles.tolist() == [[4, 4, 4], [4, 4, 0b1110]]
    with pytest.raises(OperandError, match=r"do not make a 2:4 matrix of shape \(2, 16\)"):
        unpack({**arrays, "shape": np.array([2, 16])}, granularity, PackingOptions())
    wrong = Compressed(np.ones((1, 2)), np.array([[0b0101]], np.uint8), granularity)
    with pytest.raises(NibbleError, match="row 0, chunk 0: nibble 0b0101"):
        SOFTWARE_FORMATS["bitmask"].pack(wrong, PackingOptions())


def test_matrices_that_a_format_or_instruction_does_not_support() -> None:
    for name, dtype, shape, granularity, message in (
        ("ptx", np.float16, (20, 64), "2:4", "multiples of 16 rows and 32 columns, not 20 x 64"),
        ("ptx", np.float32, (16, 64), "2:4", "2:4 is for elements of 8 or 16 bits, not float32"),
        ("cutlass2", np.float16, (48, 64), "2:4", "a multiple of 32 rows for 16-bit metadata words, not 48"),
        ("cutlass2", np.float16, (32, 16), "2:4", "even number of 16-bit metadata words per row, not 1"),
        ("tilelang", np.int8, (4, 16), "2:4", "multiple of 8 nibbles a row, not 4"),
        ("tilelang", np.int8, (4, 64), "4:8", "elements of 4:8 must fit into 4 bits: int8 elements must be -8 to 7"),
        ("bitmask", np.float32, (4, 64), "1:2", "the bitmask format stores only 2:4 sparsity"),
        ("bitmask", np.int8, (4, 64), "4:8", "the bitmask format stores only 2:4 sparsity"),
        ("cutlass3-sm90", np.int8, (4, 64), "4:8", "not 4-bit ones"),
        ("cutlass3-sm100", np.float16, (4, 64), "1:2", "1:2 is for elements of 32 bits, not float16"),
    ):
        compressed = sparsify(np.full(shape, 9, dtype), granularity, prune=True)
        with pytest.raises(OperandError, match=message):
            SOFTWARE_FORMATS[name].pack(compressed, PackingOptions())
    compressed = sparsify(np.ones((16, 32), np.float16), "2:4", prune=True)
    s8 = parse("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
    for options, message in (
        (PackingOptions(sparsity_selector=2), "must be below 2, not 2"),
        (PackingOptions(instruction=s8), "does not hold 2:4 elements of 16"),
        (PackingOptions(instruction=parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")), "does not hold 2:4"),
    ):
        with pytest.raises(OperandError, match=message):
            SOFTWARE_FORMATS["ptx"].pack(compressed, options)


def test_metadata_of_another_matrix(rng: np.random.Generator) -> None:
    for name in ("natural", "tilelang", "cutlass2", "cutlass3-sm90", "ptx"):
        fmt, options = SOFTWARE_FORMATS[name], PackingOptions()
        arrays = fmt.pack(random_compressed("f16", rng), options)
        last = arrays[fmt.tensors[-1]]
        for wrong in (last[: len(last) // 2], last.astype(np.float64)):
            with pytest.raises(OperandError):
                fmt.unpack({**arrays, fmt.tensors[-1]: wrong}, GRANULARITIES["2:4"], options)


def test_layouts_of_scales(rng: np.random.Generator) -> None:
    """Every block scale is at the offset that cuBLAS documents, and is read back with its type."""
    for rows, columns in ((128, 4), (128, 8), (256, 4), (1, 1), (130, 9), *rng.integers(1, 300, (3, 2)).tolist()):
        scales = rng.integers(1, 256, (rows, columns)).astype(np.uint8)
        blocks = to_scale_blocks(scales)
        down, across = -(-rows // 128), -(-columns // 4)
        expected = np.zeros(down * across * 512, np.uint8)
        for m, k in np.ndindex(rows, columns):
            block = (m // 128) * across + k // 4
            expected[block * 512 + 16 * (m % 32) + 4 * (m % 128 // 32) + k % 4] = scales[m, k]
        np.testing.assert_array_equal(blocks, expected, f"{rows} x {columns}")
        np.testing.assert_array_equal(from_scale_blocks(blocks.reshape(-1, 16), rows, columns), scales)
    for dtype in (np.uint8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu):
        scales = rng.integers(0, 127, (40, 6)).astype(np.uint8).view(dtype)
        blocks = to_scale_blocks(scales[:, ::2])
        assert blocks.dtype == dtype
        back = SCALE_LAYOUTS["128x4"].unpack(blocks, 40, 3)
        np.testing.assert_array_equal(back.view(np.uint8), scales[:, ::2].view(np.uint8))
    with pytest.raises(OperandError, match=r"^scales must be bytes with two axes, not float32 of shape \(2, 2\)$"):
        to_scale_blocks(np.ones((2, 2), np.float32))
    with pytest.raises(OperandError, match=r"^scales must be bytes with two axes, not uint8 of shape \(8,\)$"):
        to_scale_blocks(np.ones(8, np.uint8))
    with pytest.raises(OperandError, match=r"^scales must be an array of numpy, not list$"):
        to_scale_blocks([[0]])  # type: ignore[arg-type]
    with pytest.raises(OperandError, match=r"^blocks must be an array of numpy, not list$"):
        from_scale_blocks([0] * 512, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(OperandError, match=r"^129 x 4 scales in blocks of 128 x 4 take 1024 bytes, not 512 uint8$"):
        from_scale_blocks(np.ones(512, np.uint8), 129, 4)


def layout(shape: tuple[tuple[int, ...], ...], strides: tuple[tuple[int, ...], ...]) -> NDArray:
    """Return the table of offsets of a CuTe layout with two modes. The first digit of a mode varies fastest."""
    modes = []
    for sizes, steps in zip(shape, strides, strict=True):
        modes.append(np.dot(steps, np.unravel_index(np.arange(np.prod(sizes)), sizes, order="F")))
    return np.add.outer(*modes)


def ordered(shape: tuple[tuple[int, ...], ...], steps: tuple[tuple[int, ...], ...]) -> NDArray:
    """Return the offsets of CuTe's ``make_ordered_layout``: strides increase in the order that `steps` states."""
    sizes, order = list(itertools.chain(*shape)), list(itertools.chain(*steps))
    strides = [int(np.prod([size for size, other in zip(sizes, order, strict=True) if other < own])) for own in order]
    return layout(shape, (tuple(strides[: len(shape[0])]), tuple(strides[len(shape[0]) :])))


SM90 = {
    32: lambda blocks: ordered(((8, 2, 4), (8, 2, blocks)), ((3, 1, 5), (0, 4, 2))),
    16: lambda blocks: ordered(((8, 2, 4), (16, 2, blocks)), ((3, 1, 5), (0, 4, 2))),
    8: lambda blocks: ordered(((64,), (64 * blocks,)), ((1,), (0,))),
}
SM100 = {
    4: layout(((128,), (256,)), ((256,), (1,))),
    8: layout(((128,), (128,)), ((128,), (1,))),
    16: layout(((8, 2, 8), (16, 2, 4)), ((128, 16, 2048), (1, 1024, 32))),
    32: layout(((8, 2, 8), (8, 2, 4)), ((64, 8, 1024), (1, 512, 16))),
}
CHUNK = {4: 8, 8: 4, 16: 4, 32: 2}
ATOMS = [atom_sm90(8, 64), atom_sm90(16, 96), atom_sm90(32, 64), *map(atom_sm100, SM100)]


def test_atoms() -> None:
    for (bits, sm90), blocks in itertools.product(SM90.items(), (1, 2, 3, 4)):
        tile = blocks * 512 // bits
        if tile > 128:
            with pytest.raises(OperandError, match=f"multiple of {512 // bits} up to 128"):
                atom_sm90(bits, tile)
            continue
        expected = sm90(blocks)[:, :: CHUNK[bits]] // CHUNK[bits]
        np.testing.assert_array_equal(atom_sm90(bits, tile), expected, f"sm_90, {bits} bits, {tile}")
    for bits, sm100 in SM100.items():
        np.testing.assert_array_equal(atom_sm100(bits), sm100[:, :: CHUNK[bits]] // CHUNK[bits], f"sm_100, {bits} bits")


@pytest.mark.parametrize("atom", ATOMS, ids=range(7))
def test_whole_atoms(atom: Atom, rng: np.random.Generator) -> None:
    """CUTLASS atoms of metadata are ordered along M first, nibbles are at their positions in atoms, padding is zero."""
    rows, chunks = atom.shape[0] * 2 - 5, atom.shape[1] * 3 - 1
    nibbles = rng.integers(0, 16, (rows, chunks), dtype=np.uint8)
    octets = to_atoms(nibbles, atom)
    assert octets.size == 2 * 3 * atom.size // 2
    np.testing.assert_array_equal(from_atoms(octets, atom, rows, chunks), nibbles)
    for _ in range(50):
        row, chunk = rng.integers(rows), rng.integers(chunks)
        block = row // atom.shape[0] + 2 * (chunk // atom.shape[1])
        position = block * atom.size + atom[row % atom.shape[0], chunk % atom.shape[1]]
        assert octets[position // 2] >> (4 * (position % 2)) & 15 == nibbles[row, chunk]
    assert np.count_nonzero(octets & 15) + np.count_nonzero(octets >> 4) == np.count_nonzero(nibbles)
    with pytest.raises(OperandError, match="bytes of metadata in whole CUTLASS atoms"):
        from_atoms(octets[1:], atom, rows, chunks)


@pytest.mark.parametrize(("word_bits", "rows"), [(16, 96), (32, 48)])
def test_interleaved(word_bits: int, rows: int) -> None:
    """Metadata words are ordered as in CUTLASS's host_reorder.h, then stored column-major in pairs of columns."""
    group, interweave = (32, 4) if word_bits == 16 else (16, 2)
    columns = 6
    positions = interleaved_positions(rows, columns, word_bits)
    assert sorted(positions.ravel()) == list(range(rows * columns))
    for row, column in np.ndindex(rows, columns):
        to_row = row // group * group + row % 8 * interweave + row % group // 8
        to_column = column
        if to_row % 2 == 0 and to_column % 2 == 1:
            to_row, to_column = to_row + 1, to_column - 1
        elif to_row % 2 == 1 and to_column % 2 == 0:
            to_row, to_column = to_row - 1, to_column + 1
        assert positions[row, column] == to_column // 2 * rows * 2 + to_row * 2 + to_column % 2
