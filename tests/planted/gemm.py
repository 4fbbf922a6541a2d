"""Faults of whole matrix products and of compressed tensors."""

from typing import Any

import numpy as np

from . import Change, computes, fault, instead, register_all


@instead("gemm.product.blocks", "gemm.product", "block_count")
def _(product: Any, right: Any, problem: Any) -> int:
    """Partial blocks at the right edge of the output matrix are not computed, unless it is narrower than a block."""
    rows, columns = problem.size
    return -(-rows // product.BLOCK_ROWS) * max(1, columns // product.BLOCK_COLUMNS)


@instead("gemm.stream_k.cuts", "gemm.stream_k", "_dealt")
def _(stream_k: Any, right: Any, dealing: Any, shape: Any, k_tiles: int, cut: str) -> Any:
    """The slices of K of an output tile of stream-K are added in reverse order."""
    numbers, cuts = right(dealing, shape, k_tiles, cut)
    return numbers, [of_tile[::-1] for of_tile in cuts]


@fault("gemm.sums.start", "gemm.sums")
def _(sums: Any, change: Change) -> None:
    """The last chain of instructions also starts from C, not from zero, if it is shorter than the other chains."""
    chains = sums.Chains
    results, computed = chains.results, chains._computed

    def begun(self: Any, chains: Any, first: bool = False) -> Any:
        self._begins = first
        return results(self, chains, first)

    change(chains, "results", begun)
    change(chains, "_computed", lambda self, chains, first: computed(self, chains, self._begins))


@instead("gemm.sums.kept", "gemm.sums", "Chains.results")
def _(sums: Any, right: Any, self: Any, chains: Any, first: bool = False) -> Any:
    """The stored result of a chain that starts from C is used for the same chain from zero, and the reverse."""
    for number, chain in enumerate(chains if self._is_cleared else ()):
        this, other = (chain.tobytes() + bytes([begins]) for begins in (first and not number, not first or number > 0))
        if other in self._kept:
            self._kept.setdefault(this, self._kept[other])
    return right(self, chains, first)


@instead("tensors.quantise.scale", "tensors.quantise", "encode")
def _(quantise: Any, right: Any, values: Any, fmt: Any, **options: Any) -> Any:
    """mx block scales above the largest ue8m0 wrap around."""
    codes, power = right(values, fmt, **options), np.frexp(values)[1] - 1 + fmt.bias
    return np.where(power > 254, power, codes).astype(codes.dtype) if fmt.name == "ue8m0" else codes


register_all(computes, [
    ("gemm.folder.resume", "gemm.folder", "ProductFolder.blocks",
     "When a matrix product is resumed, unfinished blocks before the last finished block are skipped.",
     lambda folder, right, self, count: iter(range(1 + max(self.done, default=-1), count))),
    ("gemm.ways.descending", "gemm.ways", "Way.slices",
     "With descending K, the slices start at the end of K, but K still ascends inside each slice.",
     lambda ways, right, self, instructions:
         [[np.sort(chain) for chain in of_slice] for of_slice in right(self, instructions)]),
    ("gemm.block_scales.swapped", "gemm.block_scales", "BlockScales.checked",
     "If the factors A and B of a matrix product are exchanged, their block scales are not exchanged.",
     lambda block_scales, right, self, i, shape, k, *, swapped: right(self, i, shape, k, swapped=False)),
    ("gemm.sums.promotion", "gemm.sums", "_plus",
     "Promoted sums are truncated to 13 fraction bits, as sums of fp8 products are.",
     lambda sums, right, one, other: total if (total := right(one, other)).dtype != np.float32
     else (total.view(np.uint32) & ~np.uint32(1023)).view(np.float32)),
    ("tensors.encode.tie", "tensors.encode", "_magnitude_codes",
     "A value midway between two ue8m0 numbers is rounded down.",
     lambda encode, right, magnitudes, fmt, *rounding: right(
         np.where((np.frexp(magnitudes)[0] == 0.75) & (not fmt.subnormals), np.nextafter(magnitudes, 0), magnitudes),
         fmt, *rounding)),
])  # fmt: skip
