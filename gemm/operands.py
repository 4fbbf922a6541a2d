"""Operands of a matrix product: from matrices in files to the codes, metadata and scales of an instruction."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, OperandError
from ..golden.registers import CONTAINERS
from ..isa.formats import Format
from ..isa.instructions import Instruction, parse
from ..tensors.blocks import Progress
from ..tensors.quantise import quantise
from ..tensors.sparsify import sparsify
from .matrices import FILLING
from .product import Problem, Source

__all__ = ["Choices", "ProductRequest", "generate", "prepare"]

#: Recipe for each format of block scales.
_RECIPES = {"ue8m0": "mx", "ue4m3": "nvfp4"}


@dataclass(frozen=True)
class Choices:
    """How matrices become operands.

    Attributes
    ----------
    prune : bool
        Prune A to its largest magnitudes; otherwise it must be sparse.
    producer : str
        Whose metadata chunks with fewer non-zeros get.
    nan : str
        What a NaN becomes, one of :data:`sptc.tensors.quantise.NAN_POLICIES`.
    """

    prune: bool = False
    producer: str = "pytorch"
    nan: str = "error"


@dataclass(frozen=True)
class ProductRequest:
    """Two matrices, and how they are to be multiplied.

    Attributes
    ----------
    instruction, arch, a, b, backends, dense
        As in :class:`~sptc.gemm.product.Problem`.
    choices : Choices
        How the matrices become operands.
    rows : int or None
        Only the first rows of A.
    """

    instruction: str
    arch: str
    a: Source
    b: Source
    choices: Choices = field(default_factory=Choices)
    rows: int | None = None
    backends: tuple[str, ...] = ("golden",)
    dense: bool = False


def generate(folder: Path, shape: tuple[int, int, int], seed: int) -> tuple[Source, Source]:
    """Write two matrices of normally distributed numbers, and return where they are.

    Parameters
    ----------
    folder : Path
        An existing folder.
    shape : (int, int, int)
        Rows of A, columns of B, K.
    seed : int
        Decides them.
    """
    rows, columns, k = shape
    rng, sources = np.random.default_rng(seed), []
    for name, size in (("generated_a", (rows, k)), ("generated_b", (k, columns))):
        path = folder / f"{name}.npy"
        out = np.lib.format.open_memmap(path, "w+", np.float32, size)
        for start in range(0, size[0], 256):
            part = out[start : start + 256]
            part[...] = rng.standard_normal(part.shape, np.float32)
        out.flush()
        sources.append(Source(str(path)))
    return sources[0], sources[1]


def prepare(folder: Path, request: ProductRequest, progress: Progress | None = None) -> Problem:
    """Write the operands of a product into a folder.

    Parameters
    ----------
    folder : Path
        An existing folder.
    request : ProductRequest
        What is to be multiplied, and how.
    progress : Progress, optional
        Told about the rows of A and B.

    Raises
    ------
    OperandError, SparsityError
        The shapes do not fit, A is not sparse, or an element cannot be quantised.
    FileError
        A matrix cannot be read, or the operands cannot be written.
    """
    i, choices = parse(request.instruction), request.choices
    of_a, of_b = request.a.read()[: request.rows], request.b.read()
    if of_a.shape[1] != of_b.shape[0]:
        raise OperandError(f"A of shape {of_a.shape} and B of shape {of_b.shape} have no common K")
    assert i.granularity
    k = of_a.shape[1]
    steps = -(-k // i.k)
    compressed = sparsify(
        _filled(of_a, i.granularity.logical), i.granularity, prune=choices.prune, producer=choices.producer,
        progress=progress,
    )  # fmt: skip
    try:
        scale = _write(folder, "a", compressed.stored, i.a, i, choices, steps * i.stored_k, progress)
        nibbles = np.full((len(of_a), steps * i.chunks), FILLING, np.uint8)
        nibbles[:, : compressed.nibbles.shape[1]] = compressed.nibbles
        np.save(folder / "nibbles.npy", nibbles)
        of_columns = _write(folder, "b", of_b.T, i.b, i, choices, steps * i.k, progress)
        if request.dense:
            one = replace(i, sparse="", k=i.stored_k)
            of_dense = _write(folder, "dense_a", of_a, i.a, one, choices, steps * i.k, progress)
            of_dense *= _write(folder, "dense_b", of_b.T, i.b, one, choices, steps * i.k, progress)
            np.save(folder / "dense_scale.npy", np.float64(of_dense))
        size = (len(of_a), of_b.shape[1])
        np.lib.format.open_memmap(folder / "d.npy", "w+", _result_type(i.d), size).flush()
    except OSError as error:
        raise FileError(f"{folder} cannot hold the operands ({error.strerror})") from None
    return Problem(
        folder=str(folder),
        instruction=request.instruction,
        arch=request.arch,
        rows=size[0],
        columns=size[1],
        k=k,
        a=request.a,
        b=request.b,
        scale=scale * of_columns,
        backends=request.backends,
        dense=request.dense,
    )


def _filled(matrix: NDArray, multiple: int) -> NDArray:
    """Return a matrix with columns of zeros up to a multiple; itself where it has that many."""
    missing = -matrix.shape[1] % multiple
    return np.pad(matrix, ((0, 0), (0, missing))) if missing else matrix


def _write(
    folder: Path,
    name: str,
    values: NDArray,
    fmt: Format,
    i: Instruction,
    choices: Choices,
    width: int,
    progress: Progress | None,
) -> float:
    """Quantise the rows of a matrix, write codes and block scales, and return the scale of the matrix."""
    container: Any = CONTAINERS[max(8, i.container_bits)]
    padded = np.zeros((len(values), width), container)
    shift = i.low_bit(fmt) - fmt.ignored_low_bits
    if fmt.is_integer and values.dtype.kind in "iu":
        codes, scale = _integers(values, fmt), 1.0
    else:
        recipe = _RECIPES[i.scale_format.name] if i.scale_format else "plain"
        # Of A half of the elements under a scale are stored.
        block = i.span and i.span // (2 if name == "a" else 1)
        quantised = quantise(values, fmt, recipe=recipe, nan=choices.nan, block=block, progress=progress)
        codes, scale = quantised.codes, quantised.tensor_scale or 1.0
        if quantised.scales is not None:
            assert block
            scales = np.zeros((len(values), width // block), np.uint8)
            scales[:, : quantised.scales.shape[1]] = quantised.scales
            np.save(folder / f"{name}_scales.npy", scales)
    padded[:, : codes.shape[1]] = codes.astype(container) << shift
    np.save(folder / f"{name}.npy", padded)
    return scale


def _integers(values: NDArray, fmt: Format) -> NDArray:
    """Return integers as they are."""
    low = -(1 << fmt.bits - 1) if fmt.signed else 0
    high = (1 << fmt.bits - fmt.signed) - 1
    if values.min() < low or values.max() > high:
        raise OperandError(f"integers from {values.min()} to {values.max()} are beyond {fmt.name}, {low} to {high}")
    return np.asarray(values).astype(np.int64) & ((1 << fmt.bits) - 1)


def _result_type(fmt: Format) -> np.dtype:
    return np.dtype({"s32": np.int32, "f32": np.float32, "f16": np.float16}[fmt.name])
