"""Compressed matrices in files: files that the package wrote, and files of other software in the same format."""

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from sptc.errors import Error, FileError
from sptc.isa.formats import FORMATS
from sptc.isa.metadata import GRANULARITIES
from sptc.tensors.checkpoints import Checkpoint, read_compressed, write_compressed
from sptc.tensors.files import SUFFIXES, open_tensors, write_tensors
from sptc.tensors.quantise import quantise
from sptc.tensors.software_formats import SOFTWARE_FORMATS, PackingOptions
from sptc.tensors.sparsify import expand, sparsify

# Granularity, format and recipe of quantised matrices, one of each element width.
QUANTISED = [
    *(("1:2", "tf32", "plain"), ("2:4", "f16", "plain"), ("2:4", "bf16", "plain"), ("2:4", "e4m3", "plain")),
    *(("2:4", "e4m3", "mx"), ("2:4", "e3m2", "mx"), ("2:4", "e2m1", "mx"), ("2:4", "s8", "plain")),
    *(("4:8", "e2m1", "nvfp4"), ("4:8", "e2m1", "mx"), ("4:8", "s4", "plain"), ("4:8", "u4", "plain")),
]
#: Granularities that a software format does not support.
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
        dense = rng.integers(-6, 7, (32, 256)).astype(np.float32).astype(dtype)
        compressed = sparsify(dense, granularity, prune=True)
        path = tmp_path / "x.npz"
        write_compressed(path, "", Checkpoint(compressed), name, PackingOptions())
        back = read_compressed(path, name).compressed
        assert back.stored.dtype == compressed.stored.dtype
        for found, expected in ((back.stored, compressed.stored), (expand(back), expand(compressed))):
            np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32), str(dtype))


def test_a_checkpoint_of_others(tmp_path: Path, rng: np.random.Generator) -> None:
    """A sparse-24-bitmask checkpoint with two layers, written by this test in the layout of compressed-tensors."""
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
    with pytest.raises(FileError, match=r"holds 2 matrices with a tensor 'compressed', of 'a.k_proj.weight', 'a.q_"):
        read_compressed(path, "bitmask")
    with pytest.raises(FileError, match=r"has no tensor 'a.v_proj.weight.compressed'; it has 'a\.[qk]_proj"):
        read_compressed(path, "bitmask", "a.v_proj.weight")
    with pytest.raises(FileError, match="holds 0 matrices with a tensor 'values'"):
        read_compressed(path, "cutlass2")


def test_files_without_text(tmp_path: Path, rng: np.random.Generator) -> None:
    """Without text metadata, the granularity follows from the element size, except 4:8, which must be given."""
    for granularity, dtype in (("1:2", np.float32), ("2:4", np.float16), ("4:8", np.uint8)):
        dense = rng.integers(0, 16, (64, 512)).astype(dtype)
        compressed = sparsify(dense, granularity, prune=True)
        arrays = SOFTWARE_FORMATS["cutlass2"].pack(compressed, PackingOptions())
        path = tmp_path / "x.npz"
        np.savez(path, **arrays)
        told = GRANULARITIES["4:8"] if granularity == "4:8" else None
        back = read_compressed(path, "cutlass2", granularity=told)
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
        ({"granularity": "3:4"}, "the text metadata is not understood"),
        ({"dtype": "nothing"}, "'nothing' is not an element type"),
        ({"dtype": "float32"}, "elements of type float32 cannot be stored as float8_e4m3fn"),
        ({"element_format": "e9m9"}, "the text metadata is not understood"),
        ({"block": "many"}, "the text metadata is not understood"),
        ({"block": "16"}, r"scales must have the shape \(32, 2\), not \(32, 1\)"),
        ({"instruction": "mma"}, "x.npz: "),
        ({"scale_layout": "64x8"}, "the text metadata is not understood"),
        ({"scale_layout": "128x4"}, r"32 x 1 scales in blocks of 128 x 4 take 512 bytes, not 32 uint8"),
        ({"scale_format": "f16"}, "scales of f16 cannot be stored as uint8"),
    ):
        write_tensors(path, tensors, {**file.metadata, **change})
        with pytest.raises(FileError, match=message):
            read_compressed(path, "tilelang")


def test_whatever_the_text_says(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "x.npz"
    values = ["", "0", "-1", "7", "x", "1e999", "nan", "1:2", "2:4", "4:8"]
    values += ["float32", "int8", "V0", "f16", "s4", "ue8m0"]
    refused = []
    for fmt, name in (("e4m3", "ptx"), ("e2m1", "cutlass3-sm90"), ("e4m3", "natural")):
        compressed = sparsify(rng.normal(size=(32, 128)), "2:4", prune=True)
        checkpoint = Checkpoint.of(compressed, quantise(compressed.stored, fmt, recipe="mx"))
        write_compressed(path, "", checkpoint, name, PackingOptions())
        file = open_tensors(path)
        tensors = {key: file.get(key) for key in file.names}
        for key in file.metadata:
            for value in values:
                write_tensors(path, tensors, {**file.metadata, key: value})
                try:
                    expand(read_compressed(path, name).values())
                except Error as error:
                    refused.append(str(error))
    assert len(refused) > 100
    assert not [message for message in refused if "\n" in message]


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
