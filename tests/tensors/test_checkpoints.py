"""Compressed matrices in files of the package and of other software are read back, also in marlin_24."""

import hashlib
import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import Error, FileError, OperandError
from sptc.isa.formats import FORMATS
from sptc.isa.metadata import GRANULARITIES
from sptc.tensors.checkpoints import Checkpoint, read_compressed, write_compressed
from sptc.tensors.files import SUFFIXES, open_tensors, write_tensors
from sptc.tensors.marlin import from_marlin_scales, pack_marlin, to_marlin_scales, unpack_marlin
from sptc.tensors.quantise import quantise
from sptc.tensors.software_formats import SOFTWARE_FORMATS, PackingOptions
from sptc.tensors.sparsify import expand, sparsify

# Granularity, format and recipe of quantised matrices, with elements of every width.
QUANTISED = [
    *(("1:2", "tf32", "plain"), ("2:4", "f16", "plain"), ("2:4", "bf16", "plain"), ("2:4", "e4m3", "plain")),
    *(("2:4", "e4m3", "mx"), ("2:4", "e3m2", "mx"), ("2:4", "e2m1", "mx"), ("2:4", "s8", "plain")),
    *(("4:8", "e2m1", "nvfp4"), ("4:8", "e2m1", "mx"), ("4:8", "s4", "plain"), ("4:8", "u4", "plain")),
]
#: Granularities that are not supported, by software format.
LACKS = {"bitmask": ("1:2", "4:8"), "cutlass3-sm90": ("4:8",)}
#: Combinations that marlin_24 supports: integers with f16 scales.
MARLIN = [*itertools.product(["2:4"], ["s4", "s8"], ["group", "channel"])]


@pytest.mark.parametrize("name", SOFTWARE_FORMATS)
def test_round_trip(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    kinds = MARLIN if name == "marlin_24" else [*QUANTISED, ("2:4", "s8", "group")]
    for (granularity, fmt, recipe), suffix in itertools.product(kinds, SUFFIXES):
        if granularity in LACKS.get(name, ()):
            continue
        case = f"{granularity}, {fmt}, {recipe}, {suffix}"
        values = rng.normal(size=(192, 256))
        compressed = sparsify(np.abs(values) if fmt[0] == "u" else values, granularity, prune=True)
        quantised = quantise(compressed.stored, fmt, recipe=recipe)
        written, path = Checkpoint.of(compressed, quantised), tmp_path / f"x{suffix}"
        write_compressed(path, "layers.0.weight", written, name, PackingOptions(tile_k=64))
        back = read_compressed(path, name)
        assert back.quantised is not None, case
        assert back.compressed.granularity.name == granularity, case
        assert back.compressed.stored.dtype == written.compressed.stored.dtype, case
        assert back.quantised.tensor_scale == quantised.tensor_scale, case
        for found, expected in (
            (back.compressed.nibbles, compressed.nibbles),
            (back.quantised.codes, quantised.codes),
            (back.quantised.dequantise(np.float64), quantised.dequantise(np.float64)),
            (back.values().stored, quantised.dequantise()),
        ):
            np.testing.assert_array_equal(found, expected, case)


@pytest.mark.parametrize("name", ["natural", "ptx", "cutlass2", "cutlass3-sm100", "tilelang"])
def test_types_come_back(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    for granularity, dtype in (
        ("1:2", np.float32), ("2:4", ml_dtypes.bfloat16), ("2:4", ml_dtypes.float8_e5m2), ("2:4", np.int8),
        ("4:8", np.int8), ("4:8", ml_dtypes.int4), ("4:8", ml_dtypes.float4_e2m1fn),
    ):  # fmt: skip
        compressed = sparsify(rng.integers(-6, 7, (32, 256)).astype(np.float32).astype(dtype), granularity, prune=True)
        path = tmp_path / "x.npz"
        write_compressed(path, "", Checkpoint(compressed), name, PackingOptions())
        back = read_compressed(path, name).compressed
        assert back.stored.dtype == compressed.stored.dtype
        for found, expected in ((back.stored, compressed.stored), (expand(back), expand(compressed))):
            np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32), str(dtype))


def test_a_checkpoint_of_other_software(tmp_path: Path, rng: np.random.Generator) -> None:
    """A checkpoint with two layers in the layout sparse-24-bitmask of compressed-tensors is read."""
    path, tensors, dense = tmp_path / "model.safetensors", {}, {}
    for layer in ("a.q_proj.weight", "a.k_proj.weight"):
        matrix = rng.normal(size=(6, 24)).astype(np.float16).astype(ml_dtypes.bfloat16)
        kept = np.zeros((6, 6, 4), bool)
        order = rng.permuted(np.broadcast_to(np.arange(4), (6, 6, 4)), axis=-1)
        np.put_along_axis(kept, order[..., :2], True, -1)
        mask = kept.reshape(6, 24)
        dense[layer] = np.where(mask, matrix.astype(np.float32), 0)
        tensors |= {
            f"{layer}.compressed": matrix[mask].reshape(6, 12),
            f"{layer}.bitmask": np.packbits(mask, axis=-1, bitorder="little"),
            f"{layer}.shape": np.array([[6], [24]]),
        }
    write_tensors(path, {**tensors, "norm.weight": np.ones(24, np.float16)}, {"format": "pt"})
    for layer, expected in dense.items():
        back = read_compressed(path, "bitmask", layer).compressed
        assert back.stored.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(expand(back, "ordered").astype(np.float32), expected)
    with pytest.raises(FileError, match=r"holds 2 matrices with an array named 'compressed': 'a.k_proj.weight', 'a.q_"):
        read_compressed(path, "bitmask")
    with pytest.raises(FileError, match=r"has no tensor 'a.v_proj.weight.compressed'; it has 'a\.[qk]_proj"):
        read_compressed(path, "bitmask", "a.v_proj.weight")
    with pytest.raises(FileError, match="holds 0 matrices with an array named 'values'"):
        read_compressed(path, "cutlass2")


def test_files_without_text(tmp_path: Path, rng: np.random.Generator) -> None:
    """If a file has no text metadata, the element size determines the granularity; 4:8 must be given by the caller."""
    for granularity, dtype in (("1:2", np.float32), ("2:4", np.float16), ("4:8", np.uint8)):
        compressed = sparsify(rng.integers(0, 16, (64, 512)).astype(dtype), granularity, prune=True)
        arrays = SOFTWARE_FORMATS["cutlass2"].pack(compressed, PackingOptions())
        path = tmp_path / "x.npz"
        np.savez(path, **arrays)
        back = read_compressed(path, "cutlass2", granularity=(GRANULARITIES["4:8"] if granularity == "4:8" else None))
        np.testing.assert_array_equal(expand(back.compressed), expand(compressed))


def test_text_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    compressed = sparsify(np.ones((32, 64)), "2:4", prune=True)
    checkpoint = Checkpoint.of(compressed, quantise(compressed.stored, "e4m3", recipe="mx"))
    write_compressed(path, "", checkpoint, "tilelang", PackingOptions())
    file = open_tensors(path)
    tensors = {name: file.get(name) for name in file.names}
    assert file.metadata["element_format"] in FORMATS
    for change, message in (
        ({"software_format": "cutlass2"}, "states the format cutlass2, not tilelang"),
        ({"granularity": "3:4"}, "the text metadata is invalid"),
        ({"dtype": "nothing"}, "'nothing' is not an element type"),
        ({"dtype": "float32"}, "elements of type float32 cannot be stored as float8_e4m3fn"),
        ({"element_format": "e9m9"}, "the text metadata is invalid"),
        ({"block": "many"}, "the text metadata is invalid"),
        ({"block": "0"}, "the text metadata is invalid"),
        ({"tensor_scale": "x"}, "the text metadata is invalid"),
        ({"selector": "x"}, "the text metadata is invalid"),
        ({"block": "16"}, r"scales must have the shape \(32, 2\), not \(32, 1\)"),
        ({"instruction": "mma"}, "x.npz: "),
        ({"scale_layout": "64x8"}, "the text metadata is invalid"),
        ({"scale_layout": "128x4"}, r"32 x 1 scales in blocks of 128 x 4 take 512 bytes, not 32 uint8"),
        ({"scale_format": "f16"}, "scales of f16 cannot be stored as uint8"),
    ):
        write_tensors(path, tensors, {**file.metadata, **change})
        with pytest.raises(FileError, match=message):
            read_compressed(path, "tilelang")


def test_arrays_of_any_shape(tmp_path: Path, rng: np.random.Generator) -> None:
    path, refused = tmp_path / "x.npz", []
    for name, fmt in SOFTWARE_FORMATS.items():
        for _ in range(16):
            arrays = {}
            for key in fmt.tensors:
                shape = tuple(rng.integers(0, 5, rng.integers(0, 5)) * rng.choice([1, 4, 16]))
                arrays[key] = rng.integers(0, 9, shape).astype(rng.choice(["u1", "i4", "f2", "u4", "f8"]))
            np.savez(path, **arrays)
            try:
                expand(read_compressed(path, name).compressed)
            except Error as error:
                refused.append(str(error))
    assert len(refused) > 12 * len(SOFTWARE_FORMATS)
    assert not [message for message in refused if "\n" in message]


N, K = np.arange(128).reshape(-1, 1), np.arange(512).reshape(1, -1)
#: First 16 digits of the SHA-256 of weight_packed and meta that compressed-tensors 0.10.2 packs for `integers(bits)`.
DIGESTS = {4: ("f41d773e81b671b0", "aaeb360eae6991fa"), 8: ("6c4857ed1e3a7ee2", "759e0780cf73639f")}


def integers(bits: int) -> NDArray[np.int8]:
    half = 1 << bits - 1
    values = (N * 37 + K * 11 + N * K // 5) % (2 * half) - half
    return np.where((K % 4 == N % 3) | (K % 4 == 3), values, 0).astype(np.int8)


def digest(array: NDArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("bits", [4, 8])
def test_values_and_metadata_of_compressed_tensors(bits: int) -> None:
    compressed = sparsify(integers(bits), "2:4")
    codes = compressed.stored.view(np.uint8) & np.uint8((1 << bits) - 1)
    packed, meta = pack_marlin(codes, compressed.nibbles, bits)
    assert (packed.dtype, packed.shape, meta.dtype, meta.shape) == ("int32", (16, 64 * bits), "int16", (16, 256))
    assert (digest(packed), digest(meta)) == DIGESTS[bits]
    for array, expected in zip(unpack_marlin(packed, meta), (codes, compressed.nibbles), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_scales_of_compressed_tensors() -> None:
    scales = ((N + np.arange(4) * 131) % 1000 + 1).astype(np.float16)
    for groups, expected in ((4, "a1e59f9a48da5b0e"), (1, "b1d6b6c8fb03d997")):
        codes = np.ascontiguousarray(scales[:, :groups]).view(np.uint16)
        packed = to_marlin_scales(codes)
        assert (packed.dtype, packed.shape, digest(packed)) == ("float16", (groups, 128), expected)
        np.testing.assert_array_equal(from_marlin_scales(packed, 128, groups), codes)


@pytest.mark.parametrize("recipe", ["group", "channel"])
@pytest.mark.parametrize("fmt", ["s4", "s8"])
def test_files_of_vllm_have_no_text(fmt: str, recipe: str, tmp_path: Path, rng: np.random.Generator) -> None:
    compressed = sparsify(rng.normal(size=(64, 384)), "2:4", prune=True)
    checkpoint = Checkpoint.of(compressed, quantise(compressed.stored, fmt, recipe=recipe)).recompressed("pytorch")
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    write_compressed(ours, "model.layers.0.mlp.up_proj", checkpoint, "marlin_24", PackingOptions())
    file = open_tensors(ours)
    assert {name.rpartition(".")[2] for name in file.names} == {"weight_packed", "meta", "scale_packed"}
    write_tensors(theirs, {name: file.get(name) for name in file.names}, {"format": "pt"})
    back = read_compressed(theirs, "marlin_24")
    assert back.quantised
    assert checkpoint.quantised
    assert back.quantised.format.name == fmt
    np.testing.assert_array_equal(back.quantised.codes, checkpoint.quantised.codes)
    np.testing.assert_array_equal(expand(back.values()), expand(checkpoint.values()))


def test_values_that_become_zero_count_as_zero() -> None:
    """`recompressed` gives a chunk whose values are quantised to zero the metadata of an empty chunk."""
    dense = np.zeros((64, 128))
    dense[:, 0], dense[:, 4:6] = 100, 1e-3
    compressed = sparsify(dense, "2:4")
    quantised = quantise(compressed.stored, "s4", recipe="channel")
    assert Checkpoint.of(compressed, quantised).compressed.nibbles[0, :2].tolist() == [0b1000, 0b0100]
    again = Checkpoint.of(compressed, quantised).recompressed("pytorch")
    assert again.compressed.nibbles[0, :2].tolist() == [0b1000, 0b1110]
    np.testing.assert_array_equal(expand(again.values()), expand(Checkpoint.of(compressed, quantised).values()))


def test_matrices_that_marlin_24_does_not_support(tmp_path: Path) -> None:
    arrays = {
        "weight_packed": np.zeros((4, 128), np.int32),
        "meta": np.full((4, 128), 0x4444, np.int16),
        "scale_packed": np.ones((1, 64), np.float16),
    }
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)
    assert read_compressed(path, "marlin_24").compressed.shape == (64, 128)
    for name, wrong, message in (
        ("weight_packed", np.zeros((4, 100), np.int32), r"int32 \(4, 100\) and meta int16 \(4, 128\) do not fit"),
        ("weight_packed", np.zeros((4, 128), np.int64), "do not fit marlin_24"),
        ("meta", np.zeros((4, 130), np.int16), "do not fit marlin_24"),
        ("scale_packed", np.ones((1, 32), np.float16), r"must be of 16 bits and shape \(1, 64\), not float"),
        ("scale_packed", np.ones((5, 64), np.float16), r"must be float16 of shape \(groups, N\), not float"),
        ("scale_packed", np.ones((1, 64), np.float32), r"must be float16 of shape \(groups, N\), not float"),
    ):  # fmt: skip
        np.savez(path, **{**arrays, name: wrong})
        with pytest.raises(FileError, match=message):
            read_compressed(path, "marlin_24")
    for rows, columns, fmt, recipe, message in (
        (32, 128, "s4", "channel", "multiples of 64 and columns in multiples of 32, not 32 x 128"),
        (64, 48, "s8", "group", "multiples of 64 and columns in multiples of 32, not 64 x 48"),
        (64, 128, "s8", "plain", r"with f16 scales \(recipe channel or group\), not s8 with no scales"),
        (64, 128, "e2m1", "nvfp4", "not e2m1 with ue4m3"),
    ):
        compressed = sparsify(np.ones((rows, columns)), "2:4", prune=True)
        checkpoint = Checkpoint.of(compressed, quantise(compressed.stored, fmt, recipe=recipe))
        with pytest.raises(OperandError, match=message):
            write_compressed(Path("x.npz"), "", checkpoint, "marlin_24", PackingOptions())
    with pytest.raises(Error, match="not unquantised numbers"):
        write_compressed(Path("x.npz"), "", Checkpoint(compressed), "marlin_24", PackingOptions())
