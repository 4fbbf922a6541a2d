"""Random matrix products with random methods of summation, and test cases for ``sptc.diagnose``."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sptc
from numpy.typing import NDArray
from sptc.gemm.choice import instructions_for
from sptc.gemm.epilogue import result_dtype

Random = np.random.Generator
Matrix = NDArray[Any]


@dataclass
class Case:
    """A test case for ``sptc.diagnose``: operands and result of a matrix product, and options for the diagnosis."""

    a: Matrix
    b: Matrix
    y: Matrix
    #: Kinds of kernel fault that a correct diagnosis may name: the planted kind, and kinds that give the same result
    #: bits.
    kinds: tuple[str, ...]
    words: dict[str, Any] = field(default_factory=dict)


@dataclass
class Product:
    """A random matrix product: operands as matrices, types, and method of summation."""

    rng: Random
    fmt: str
    result: str
    a: Matrix
    b: Matrix
    way: dict[str, Any]
    dense: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of the result matrix."""
        return len(self.a), self.b.shape[1]

    @property
    def words(self) -> dict[str, Any]:
        """Options of :func:`sptc.diagnose` for the types of the matrix product."""
        return {"format": self.fmt, "result": self.result, "dense": self.dense}

    def times(self, a: Matrix, b: Matrix, **words: Any) -> Matrix:
        """Return a product by the method of summation in `way`. With `dense`, use an instruction for dense A."""
        if self.dense:
            words = {"instruction": str(instructions_for(self.fmt, "sm_90", dense=True)[0]), **words}
        return sptc.gemm(a, b, **{"format": self.fmt, "result": self.result, "backend": "native", **self.way, **words})

    @property
    def y(self) -> Matrix:
        """Correct result matrix of the product."""
        return self.times(self.a, self.b)

    def case(self, y: Matrix, *kinds: str, **words: Any) -> Case:
        """Return a test case: the operands of this random product, and `y` as its result."""
        return Case(self.a, self.b, y, kinds, {**self.words, **words})


def dtype(fmt: str) -> np.dtype:
    """Return the numpy type of the elements of a format."""
    return result_dtype("f32" if fmt == "tf32" else fmt)


def drawn(rng: Random, largest: tuple[int, int, int], **given: Any) -> Product:
    """Draw a matrix product of random shape, types and method of summation."""
    fmt = given.get("fmt", str(rng.choice(["f16", "bf16", "e4m3", "e5m2", "s8", "tf32"])))
    results = {"s8": ["s32"], "tf32": ["f32"], "f16": ["f32", "f16"], "bf16": ["f32", "bf16"]}
    result = given.get("result", str(rng.choice(results.get(fmt, ["f32", "bf16", "f16"]))))
    rows = int(rng.choice([size for size in (64, 128, 192, 256) if size <= largest[0]]))
    columns = int(rng.choice([size for size in (32, 64, 128, 256) if size <= largest[1]]))
    k = int(rng.choice([size for size in (128, 256, 512, 768, 1024) if size <= largest[2]]))
    dense = given.get("dense", bool(rng.integers(0, 2)))
    if fmt == "s8":
        a, b = rng.integers(-128, 128, (rows, k)).astype(np.int8), rng.integers(-128, 128, (k, columns)).astype(np.int8)
        a[a == 0] = 1
    else:
        a, b = (rng.standard_normal(shape).astype(dtype(fmt)) for shape in ((rows, k), (k, columns)))
    if not dense:
        chunk, kept = (2, 1) if fmt == "tf32" else (4, 2)
        order = rng.permuted(np.broadcast_to(np.arange(chunk), (rows, k // chunk, chunk)), axis=2)
        a = np.where((order < kept).reshape(rows, k), a, a.dtype.type(0))
    ways: list[dict[str, Any]] = [{}, {}, {}, {"split_k": 2}, {"split_k": 4}, {"promote": 4}]
    ways = ways if k >= 256 else ways[:4]
    way = {} if fmt == "s8" else ways[int(rng.integers(0, len(ways)))]
    return Product(rng, fmt, result, a, b, given.get("way", way), dense)
