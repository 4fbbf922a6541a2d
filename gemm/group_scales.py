"""Group scales: f32 scales of groups of elements along K, applied to the partial sum of each group.

DeepGEMM, sglang and CUTLASS quantise fp8 in groups of 1 x 128 elements of A and of 128 x 128 elements of B. Chains are
promoted at least once per group (see :mod:`sptc.gemm.ways`). The result of a chain is multiplied by both scales of its
group in f32 and added to the f32 accumulator of the slice, which begins at +0:

    K        |      group 0      |      group 1      |
    chains   | chain 0 | chain 1 | chain 2 | chain 3 |
    slice      ((chain 0 s0 + chain 1 s0) + chain 2 s1) + chain 3 s1          s = scale of A x scale of B
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..tensors.fused import fused
from .epilogue import scaling_factors
from .ways import GROUP_SCALINGS, Way

__all__ = ["GroupScales", "check_groups", "grouped_way"]


@dataclass(frozen=True, eq=False)
class GroupScales:
    """Group scales of both factors of a matrix product."""

    #: Group scales of A and of B, in shapes that broadcast to (groups, M, N).
    a: NDArray[np.float32]
    b: NDArray[np.float32]
    length: int  #: Number of elements along K that share a group scale

    def take(self, rows: slice | NDArray, columns: slice | NDArray) -> "GroupScales":
        """Return the group scales of some rows and columns of the matrix product."""

        def of(array: NDArray[np.float32]) -> NDArray[np.float32]:
            array = array if array.shape[1] == 1 else array[:, rows]
            return array if array.shape[2] == 1 else array[:, :, columns]

        return replace(self, a=of(self.a), b=of(self.b))

    def turned(self) -> "GroupScales":
        """Return the group scales of the transposed product. Each array is transposed, but `a` remains that of A."""
        return replace(self, a=self.a.swapaxes(1, 2), b=self.b.swapaxes(1, 2))

    def with_blocks(self, unit: int, index: NDArray[np.intp]) -> "GroupScales | None":
        """Return the group scales of operands reordered along K: block p of `unit` elements is old block ``index[p]``.

        Index -1 means a block of zeros. None if a group would consist of blocks that have scales of several groups.
        """
        per_group = max(1, self.length // unit)
        places = np.pad(index, (0, -len(index) % per_group), constant_values=-1).reshape(-1, per_group)
        sources = np.where(places < 0, -1, places // per_group)
        sources = np.where(sources < 0, sources.max(1, keepdims=True), sources)
        if self.length % unit or (sources != sources[:, :1]).any():
            return None
        taken = np.maximum(sources[:, 0], 0)
        return replace(self, a=self.a[taken], b=self.b[taken])

    def group_of(self, chain: NDArray[np.intp], k: int) -> int:
        """Return the number of the scale group (range of K) that contains a chain of instructions with K = `k` each.

        Raise an `OperandError` if the chain is in several groups.
        """
        first, last = int(chain.min()) * k, (int(chain.max()) + 1) * k - 1
        if first // self.length != last // self.length:
            raise OperandError(
                f"a partial sum of elements {first} to {last} along K spans several groups of {self.length} "
                "elements: choose promote so that a partial sum ends at the end of each group"
            )
        return first // self.length

    def scaled_sum(self, results: NDArray, chains: list[NDArray[np.intp]], k: int, scaling: str) -> NDArray[np.float32]:
        """Return the sum of a slice of K: to +0, add each result of a chain of instructions times its group scales.

        `k` is the K of one instruction, and `scaling` one of :data:`~sptc.gemm.ways.GROUP_SCALINGS`.
        """
        order, _, addition = scaling.partition(", ")
        total = np.zeros(results.shape[1:], np.float32)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for chain, result in zip(chains, results, strict=True):
                group = self.group_of(chain, k)
                one, other = scaling_factors(result, self.a[group], self.b[group], order)
                total = fused(one, other, total).astype(np.float32) if addition == "fused" else total + one * other
        return total

    def product(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of two matrices with their group scales in float64, as the reference for errors."""
        total = np.zeros((len(a), b.shape[1]))
        for group, start in enumerate(range(0, len(b), self.length)):
            part = slice(start, start + self.length)
            if group < max(len(self.a), len(self.b)):  # The zeros that pad K to whole instructions have no group scale.
                total += (a[:, part] @ b[part]) * self.a[group].astype(np.float64) * self.b[group]
        return total


def grouped_way(way: Way, groups: GroupScales | None) -> Way:
    """Return a way of summation. If there are group scales, unset `promote` and `group_scaling` get default values."""
    if groups is None:
        return way
    promote = way.promote or max(1, groups.length // way.parsed.k)
    return replace(way, promote=promote, group_scaling=way.group_scaling or GROUP_SCALINGS[0])


def check_groups(way: Way, groups: GroupScales | None, instructions: int) -> None:
    """Check that a way of summation states how to apply group scales, and that no chain of instructions spans two.

    Raise an `OperandError` if group scales or their arithmetic are missing, the sums are integers, or a chain is in
    several groups.
    """
    if groups is None:
        if way.group_scaling:
            raise OperandError("a method of summation with group_scaling needs group_scale_a and group_scale_b")
        return
    if not way.group_scaling:
        raise OperandError("a method of summation without group_scaling cannot use group scales")
    if way.parsed.d.is_integer:
        raise OperandError(f"group scales need float sums, but {way.instruction} has integer sums")
    for slice_chains in way.slices(instructions):
        for chain in slice_chains:
            groups.group_of(chain, way.parsed.k)
