"""Malicious files of PyTorch create no objects, and semi-structured tensors of PyTorch are read right."""

import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sptc.errors import Error, FileError, OperandError
from sptc.tensors.checkpoints import read_compressed
from sptc.tensors.compressed import Compressed
from sptc.tensors.files import open_tensors, read_matrix
from sptc.tensors.pytorch import array_of, compressed_of, is_semi_structured, is_tensor
from sptc.tensors.sparsify import sparsify
from sptc.tests.hostile.mutation import Trap

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor")
Random = np.random.Generator
torch = pytest.importorskip("torch", reason="PyTorch, which is optional, is not installed")
BF16 = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def test_types(tmp_path: Path, rng: Random) -> None:
    for name in ("float64", "float32", "float16", *BF16, "int8", "uint8", "int32"):
        matrix = rng.integers(0, 8, (6, 10)).astype(BF16.get(name, name))
        tensor = torch.from_numpy(matrix.astype(np.float64)).to(getattr(torch, name))
        torch.save(tensor, tmp_path / "x.pt")
        torch.save(tensor.T, tmp_path / "turned.pt")
        file = open_tensors(tmp_path / "x.pt")
        assert file.names == ("",)
        result = file.get("")
        assert result.dtype == matrix.dtype
        np.testing.assert_array_equal(result, matrix, name)
        np.testing.assert_array_equal(read_matrix(tmp_path / "turned.pt"), matrix.T, name)
    codes = np.arange(256, dtype=np.uint8)
    exponents = array_of("scales", torch.from_numpy(codes).view(torch.float8_e8m0fnu))
    assert exponents.dtype == ml_dtypes.float8_e8m0fnu
    np.testing.assert_array_equal(exponents.view(np.uint8), codes)


def test_dictionaries(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    inner: dict[str, Any] = {"weight": torch.nn.Parameter(torch._neg_view(-weight)), "bias": torch.ones(2)}
    inner["itself"] = inner
    torch.save({"epoch": 3, "model": inner, "x": weight[:, 1:]}, tmp_path / "state.pt")
    assert set(open_tensors(tmp_path / "state.pt").names) == {"model.weight", "model.bias", "x"}
    np.testing.assert_array_equal(read_matrix(tmp_path / "state.pt", "model.weight"), weight)
    np.testing.assert_array_equal(read_matrix(tmp_path / "state.pt", "x"), weight[:, 1:])
    torch.save(torch.nn.Linear(3, 4).state_dict(), tmp_path / "layer.pt")
    assert open_tensors(tmp_path / "layer.pt").names == ("weight", "bias")


def test_files_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    for content, message in (
        ([1, 2], r"x\.pt holds no tensor, but list$"),
        ({}, r"x\.pt holds no tensor, but dict$"),
        (torch.nn.Linear(3, 4), r"x\.pt holds an object that is not a tensor, torch\.nn\.modules\.linear\."),
        ({"w": torch.ones(2), "t": Trap(tmp_path / "sprung")}, r"x\.pt holds an object that is not a tensor, posix\."),
        ({"a.b": torch.ones(2), "a": {"b": torch.zeros(2)}}, r"x\.pt holds two tensors named 'a\.b'$"),
        (bytearray(9), r"x\.pt holds an object that is not a tensor, __builtin__\.bytearray: "),
        (torch.ones(1).expand(1 << 20, 1 << 20), r"not a complete \.pt file \(the stored data do not have the size of"),
        (torch.ones(3, 3).to_sparse(), r"x\.pt holds an object that is not a tensor, torch\._utils\._rebuild_sp"),
    ):
        torch.save(content, path)
        with pytest.raises(FileError, match=message):
            open_tensors(path)
    assert not (tmp_path / "sprung").exists()


def forged(path: Path, program: Callable[[bytes], bytes], data: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    """Write an archive of PyTorch with a tensor, but with a changed pickle and with `data` as the tensor's bytes."""
    torch.save(torch.zeros(4, 8), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            content = program(content) if name.endswith("data.pkl") else content
            archive.writestr(name, data if name.endswith("/data/0") else content)


def told(count: int, offset: int, shape: tuple[int, int], strides: tuple[int, int]) -> Callable[[bytes], bytes]:
    """Return a function that replaces the count, offset, shape and strides that a pickle declares for its tensor."""

    def number(value: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", value)

    def change(program: bytes) -> bytes:
        before = b"K tq\x05QK\x00K\x04K\x08\x86q\x06K\x08K\x01\x86q\x07"
        assert program.count(before) == 1
        sizes = number(shape[0]) + number(shape[1]) + b"\x86q\x06" + number(strides[0]) + number(strides[1])
        return program.replace(before, number(count) + b"tq\x05Q" + number(offset) + sizes + b"\x86q\x07")

    return change


def test_archives_that_declare_wrong_sizes(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    forged(path, told(32, 0, (4, 8), (8, 1)), bytes(128))
    assert read_matrix(path).shape == (4, 8)
    for elements, size in (
        ((10**10, 0, (4, 8), (8, 1)), 128), ((10**10, 10**9, (4, 8), (8, 1)), 128),
        ((32, 10**9, (4, 8), (8, 1)), 128), ((32, 0, (4, 8), (10**9, 1)), 128), ((32, 0, (4, 8), (-8, 1)), 128),
        ((32, 0, (-4, 8), (8, 1)), 128), ((32, 0, (1 << 62, 8), (0, 1)), 128), ((32, 0, (1 << 20, 8), (0, 1)), 128),
        ((1 << 62, 0, (4, 8), (1 << 60, 1)), 128), ((32, 0, (4, 8), (8, 1)), 100),
    ):  # fmt: skip
        forged(path, told(*elements), bytes(size))
        with pytest.raises(FileError, match=r"x\.pt is not a complete \.pt file \("):
            pytest.fail(f"{elements} of {size} bytes are taken: {open_tensors(path)}")


def test_forged_archives(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path, trap = tmp_path / "x.pt", Trap(tmp_path / "sprung")
    for program, compression, message in (
        (lambda program: program, zipfile.ZIP_DEFLATED, "the members of the zip archive must be uncompressed"),
        (lambda _: pickle.dumps(trap, 4), zipfile.ZIP_STORED,
         "the pickle has the opcode STACK_GLOBAL, which is not accepted"),
    ):  # fmt: skip
        forged(path, program, bytes(128), compression)
        with pytest.raises(FileError, match=rf"x\.pt is not a complete \.pt file \({message}\)$"):
            open_tensors(path)
    torch.save(torch.ones(3), path, _use_new_zipfile_serialization=False)
    with pytest.raises(FileError, match=r"\(the file is not a zip archive, as PyTorch writes since version 1\.6\)$"):
        open_tensors(path)
    monkeypatch.setitem(torch.__dict__, "_dynamo", SimpleNamespace(allow_in_graph=id))
    sparse = {"w": semi_structured(np.zeros((32, 64), np.float32), "float16"), "c": of_cusparselt()}
    chance = random.Random(seed)
    for content in ({"x": torch.ones(4, 4), "y": torch.zeros(3)}, sparse):
        torch.save(content, path)
        whole = path.read_bytes()
        for _ in range(150):
            spoiled = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
            path.write_bytes(spoiled[: chance.choice([len(spoiled), chance.randrange(len(spoiled))])])
            with suppress(Error):  # no other errors may occur
                file = open_tensors(path)
                for name in file.names:
                    with suppress(Error):
                        file.get(name)
    assert not (tmp_path / "sprung").exists()


def semi_structured(matrix: np.ndarray, name: str) -> Any:
    """Return a semi-structured tensor in the layout of CUTLASS. PyTorch's own function for this needs a GPU."""
    from torch.sparse import SparseSemiStructuredTensorCUTLASS
    from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

    dense = torch.from_numpy(matrix).to(getattr(torch, name))
    values, metadata = sparse_semi_structured_from_dense_cutlass(dense)
    return SparseSemiStructuredTensorCUTLASS(dense.shape, values, metadata, None, None, None)


def of_cusparselt() -> Any:
    """Return a semi-structured tensor in the layout of cuSPARSELt: one buffer with values and metadata."""
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT

    buffer = torch.zeros(64 * 128 * 9 // 16, dtype=torch.float16)
    return SparseSemiStructuredTensorCUSPARSELT(torch.Size((64, 128)), buffer, None, None, None, None)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "float32"])
def test_semi_structured_tensors(name: str, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch.__dict__, "_dynamo", SimpleNamespace(allow_in_graph=id))  # torch._dynamo loads slowly
    matrix = random_sparse(rng)
    tensor, expected = semi_structured(matrix, name), sparsify(matrix, "1:2" if name == "float32" else "2:4")
    assert is_tensor(tensor)
    assert is_semi_structured(tensor)
    assert not is_semi_structured(torch.ones(2))
    assert not is_tensor(matrix)
    for found in (compressed_of("w", tensor), compressed_of("w", tensor.t(), transposed=True)):
        assert isinstance(found, Compressed)
        assert found.granularity is expected.granularity
        np.testing.assert_array_equal(found.stored.astype(np.float32), expected.stored)
        np.testing.assert_array_equal(found.nibbles, expected.nibbles)
    for given, transposed, places in ((tensor.t(), False, ("columns", "rows")), (tensor, True, ("rows", "columns"))):
        message = "^w is compressed along its {}, but the product is summed along the {}$".format(*places)
        with pytest.raises(OperandError, match=message):
            compressed_of("w", given, transposed=transposed)


def random_sparse(rng: Random) -> np.ndarray:
    """Return a 2:4 matrix that includes chunks with one nonzero element and empty chunks."""
    matrix = rng.integers(-5, 6, (64, 128)).astype(np.float32)
    matrix[:, rng.integers(0, 2, 64) + np.arange(0, 128, 2)] = 0
    return matrix


def test_saved_semi_structured_tensors(tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch.__dict__, "_dynamo", SimpleNamespace(allow_in_graph=id))
    path, dense = tmp_path / "state.pt", random_sparse(rng)
    weight = semi_structured(dense, "bfloat16")
    turned = type(weight)(torch.Size((128, 64)), None, None, weight.packed, weight.meta, None)
    torch.save({"a": {"weight": weight, "bias": torch.ones(3)}, "b": turned}, path)
    file, expected = open_tensors(path), sparsify(dense, "2:4")
    assert set(file.names) == {"a.weight", "a.bias", "b"}
    np.testing.assert_array_equal(file.get("a.weight").astype(np.float32), dense)
    np.testing.assert_array_equal(file.get("b").astype(np.float32), dense.T)
    result = read_compressed(path, "cutlass2", "a.weight").compressed
    np.testing.assert_array_equal(result.stored.astype(np.float32), expected.stored)
    np.testing.assert_array_equal(result.nibbles, expected.nibbles)
    with pytest.raises(FileError, match=r"holds the semi-structured tensors 'a\.weight', 'b': name one of them$"):
        read_compressed(path, "cutlass2")
    with pytest.raises(OperandError, match="'b' is compressed along its columns, but the product is"):
        read_compressed(path, "cutlass2", "b")
    weight.meta = weight.meta[:32]
    torch.save(weight, path)
    with pytest.raises(OperandError, match=r"64 rows of 32 nibbles do not fit metadata of shape \(32, 8\)$"):
        read_matrix(path)
    weight.meta = "metadata"
    torch.save(weight, path)
    with pytest.raises(FileError, match=r"\(the file holds a semi-structured tensor without values\)$"):
        open_tensors(path)


def test_tensors_of_cusparselt_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch.__dict__, "_dynamo", SimpleNamespace(allow_in_graph=id))
    path, tensor = tmp_path / "x.pt", of_cusparselt()
    torch.save({"w": tensor}, path)
    file = open_tensors(path)
    assert file.names == ("w",)
    for read in (
        lambda: compressed_of("w", tensor), lambda: compressed_of("w", tensor, transposed=True),
        lambda: array_of("w", tensor), lambda: file.get("w"), lambda: read_compressed(path, "cutlass2"),
    ):  # fmt: skip
        with pytest.raises(OperandError, match=r"w'? is compressed by cuSPARSELt: values and metadata lie in one buf"):
            read()
