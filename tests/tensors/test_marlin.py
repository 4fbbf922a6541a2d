"""marlin_24: arrays equal those of compressed-tensors for the same integers; files with and without text metadata."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import Error, FileError, OperandError
from sptc.tensors.checkpoints import Checkpoint, read_compressed, write_compressed
from sptc.tensors.files import open_tensors, write_tensors
from sptc.tensors.marlin import from_marlin_scales, pack_marlin, to_marlin_scales, unpack_marlin
from sptc.tensors.quantise import quantise
from sptc.tensors.software_formats import PackingOptions
from sptc.tensors.sparsify import expand, sparsify

N, K = np.arange(128).reshape(-1, 1), np.arange(512).reshape(1, -1)
#: First 16 digits of the SHA-256 of weight_packed and meta, as compressed-tensors 0.10.2 packs the result of
#: `integers`.
DIGESTS = {4: ("f41d773e81b671b0", "aaeb360eae6991fa"), 8: ("6c4857ed1e3a7ee2", "759e0780cf73639f")}


def integers(bits: int) -> NDArray[np.int8]:
    """Return a 2:4 matrix of signed integers."""
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
    """Software quantises before it compresses, so a chunk whose values become zero has the metadata of an empty
    chunk.
    """
    dense = np.zeros((64, 128))
    dense[:, 0], dense[:, 4:6] = 100, 1e-3
    compressed = sparsify(dense, "2:4")
    quantised = quantise(compressed.stored, "s4", recipe="channel")
    assert Checkpoint.of(compressed, quantised).compressed.nibbles[0, :2].tolist() == [0b1000, 0b0100]
    again = Checkpoint.of(compressed, quantised).recompressed("pytorch")
    assert again.compressed.nibbles[0, :2].tolist() == [0b1000, 0b1110]
    np.testing.assert_array_equal(expand(again.values()), expand(Checkpoint.of(compressed, quantised).values()))


def test_arrays_that_are_not_of_the_format(tmp_path: Path) -> None:
    arrays = {
        "weight_packed": np.zeros((4, 128), np.int32),
        "meta": np.full((4, 128), 0x4444, np.int16),
        "scale_packed": np.ones((1, 64), np.float16),
    }
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)
    assert read_compressed(path, "marlin_24").compressed.shape == (64, 128)
    for name, wrong, message in (
        ("weight_packed", np.zeros((4, 100), np.int32), r"int32 \(4, 100\) and meta int16 \(4, 128\) are not"),
        ("weight_packed", np.zeros((4, 128), np.int64), "are not those of marlin_24"),
        ("meta", np.zeros((4, 130), np.int16), "are not those of marlin_24"),
        ("scale_packed", np.ones((1, 32), np.float16), r"must be of 16 bits and shape \(1, 64\), not float"),
        ("scale_packed", np.ones((5, 64), np.float16), r"must be float16 of shape \(groups, N\), not float"),
        ("scale_packed", np.ones((1, 64), np.float32), r"must be float16 of shape \(groups, N\), not float"),
    ):  # fmt: skip
        np.savez(path, **{**arrays, name: wrong})
        with pytest.raises(FileError, match=message):
            read_compressed(path, "marlin_24")


def test_what_the_kernels_cannot_read() -> None:
    for rows, columns, fmt, recipe, message in (
        (32, 128, "s4", "channel", "multiples of 64 and columns in multiples of 32, not 32 x 128"),
        (64, 48, "s8", "group", "multiples of 64 and columns in multiples of 32, not 64 x 48"),
        (64, 128, "s8", "plain", "with f16 scales, by recipe channel or group, not s8 with no scales"),
        (64, 128, "e2m1", "nvfp4", "not e2m1 with ue4m3"),
    ):
        compressed = sparsify(np.ones((rows, columns)), "2:4", prune=True)
        checkpoint = Checkpoint.of(compressed, quantise(compressed.stored, fmt, recipe=recipe))
        with pytest.raises(OperandError, match=message):
            write_compressed(Path("x.npz"), "", checkpoint, "marlin_24", PackingOptions())
    with pytest.raises(Error, match="not numbers"):
        write_compressed(Path("x.npz"), "", Checkpoint(compressed), "marlin_24", PackingOptions())
