"""Files of matrices are read back, are memory-mapped where possible, and each error in them is one sentence."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from sptc.errors import FileError
from sptc.tensors.files import SUFFIXES, check_output, open_tensors, read_matrix, write_tensors

TYPES = [
    *(np.float64, np.float32, np.float16, np.int32, np.int8, np.uint8, np.uint16),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip(suffix: str, dtype: type, tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / f"weights{suffix}"
    matrix = rng.integers(0, 256, (5, 16 * np.dtype(dtype).itemsize), dtype=np.uint8).view(dtype)
    write_tensors(path, {"first.weight": matrix, "vector": matrix[0].copy(), "none": matrix[:0]}, {"by": "a test"})
    file = open_tensors(path)
    assert set(file.names) == {"first.weight", "vector", "none"}
    assert file.metadata == {"by": "a test"}
    back = read_matrix(path, "first.weight")
    assert back.dtype == matrix.dtype
    assert back.tobytes() == matrix.tobytes()
    assert isinstance(back, np.memmap) == (suffix == ".safetensors")
    assert read_matrix(path, "none").shape == (0, 16)
    with pytest.raises(FileError, match=r"'vector' must have two axes, not shape \(16,\)"):
        read_matrix(path, "vector")
    with pytest.raises(FileError, match=r"has no tensor 'first.wight'; it has 'first.weight' and 2 more"):
        read_matrix(path, "first.wight")
    with pytest.raises(FileError, match=r"holds .* a name must select one of them"):
        read_matrix(path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_files_that_are_cut_short_or_noise(tmp_path: Path, rng: np.random.Generator) -> None:
    whole, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    write_tensors(whole, {"x": rng.normal(size=(8, 8))}, {})
    data = whole.read_bytes()
    for length in {0, 1, 7, 8, 40, len(data) // 2, len(data) - 1, *rng.integers(0, len(data), 10).tolist()}:
        part.write_bytes(data[:length])
        with pytest.raises(FileError, match=r"part\.safetensors is not a complete .safetensors file \(.+\)$") as caught:
            read_matrix(part)
        assert "\n" not in str(caught.value)
    for _ in range(20):
        part.write_bytes(rng.bytes(200))
        with pytest.raises(FileError, match="is not a complete"):
            read_matrix(part)


def test_types_of_elements(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(6.0).reshape(2, 3))
    assert isinstance(read_matrix(path), np.memmap)
    np.save(path, np.asfortranarray(np.arange(6.0).reshape(2, 3)).astype(">f4"))
    assert read_matrix(path).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read_matrix(path).dtype == np.float32
    for array, message in (
        (np.ones((2, 2), complex), "must hold floats or integers, not complex128"),
        (np.ones((2, 2), bool), "must hold floats or integers, not bool"),
        (np.ones((2, 2, 2)), r"must have two axes, not shape \(2, 2, 2\)"),
        (np.ones((2, 2), ml_dtypes.bfloat16), "does not state the type of its elements of 2 bytes"),
        (np.array([[{}]], object), "is not a complete .npy file"),
    ):
        np.save(path, array, allow_pickle=True)
        with pytest.raises(FileError, match=message):
            read_matrix(path)
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"x": np.ones((2, 2), bool)}, {})
    with pytest.raises(FileError, match="elements of 'x' are BOOL, not one of F64, F32"):
        read_matrix(path)
    with pytest.raises(FileError, match=r"x\.safetensors cannot be written \(.*float4_e2m1fn"):
        write_tensors(path, {"x": np.ones((2, 2), ml_dtypes.float4_e2m1fn)}, {})
    assert open_tensors(path).names == ("x",)


def test_a_missing_package_and_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=r"x\.npy must end in \.safetensors or \.npz"):
        check_output(tmp_path / "x.npy")
    with pytest.raises(FileError, match=r"x\.npz cannot be written \(No such file or directory\)"):
        write_tensors(tmp_path / "none" / "x.npz", {}, {})
    (tmp_path / "x.npz").mkdir()
    with pytest.raises(FileError, match="cannot be written"):
        write_tensors(tmp_path / "x.npz", {"x": np.ones(2)}, {})
    with pytest.raises(FileError, match=r"cannot hold a tensor named '__metadata__'"):
        check_output(tmp_path / "y.npz", ["__metadata__"])
    assert [one.name for one in tmp_path.iterdir()] == ["x.npz"]
    monkeypatch.setitem(sys.modules, "safetensors", None)
    (tmp_path / "x.safetensors").touch()
    for attempt in (read_matrix, check_output):
        with pytest.raises(FileError, match=r"needs the package safetensors: install it with `.*\[tensors\]'?`"):
            attempt(tmp_path / "x.safetensors")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones((2, 2)), __metadata__=np.array("[1]"))
    with pytest.raises(FileError, match="__metadata__ does not hold a JSON object"):
        open_tensors(path)
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    (tmp_path / "x.npy").rename(path)
    with pytest.raises(FileError, match=r"x\.npz is not a complete \.npz file"):
        read_matrix(path)
    for name, message in (
        ("missing.npy", r"missing\.npy cannot be read \(No such file"),
        ("missing.npz", r"missing\.npz cannot be read \(No such file"),
        ("missing.safetensors", r"missing\.safetensors cannot be read \("),
        ("missing.pt", r"missing\.pt cannot be read \(No such file"),
        ("x.txt", r"x\.txt must end in one of \.npy, \.npz, \.safetensors, \.pt$"),
    ):
        with pytest.raises(FileError, match=message):
            read_matrix(tmp_path / name)
