"""Operands, epilogue and result conversion of a product, which simulated faults of kernels change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..golden.select import kept_rows
from ..isa.metadata import Granularity
from .epilogue import Epilogue
from .factors import Factors, Sparse
from .group_scales import GroupScales
from .matrices import FILLING, converted, factors
from .sums import Chains, Finish, Place, product, stored, sums
from .ways import Way

__all__ = ["Fault", "Grid", "Setting"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """Operands and epilogue of a product, oriented as the product is computed."""

    a: NDArray  #: Codes of A, shape (M, stored K)
    nibbles: NDArray[np.uint8] | None  #: Metadata, shape (M, chunks); None for a dense A
    k: int  #: Number of logical columns of A
    granularity: Granularity | None = None  #: Sparsity pattern of A; None for a dense A
    b: NDArray  #: Codes of B, shape (K, N)
    scales: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None  #: Block scales, shapes (M, blocks) and (N, blocks)
    groups: GroupScales | None = None  #: Group scales
    epilogue: Epilogue
    computes: Backend  #: Back end that computes the sums of the product
    finish: Finish | None = None  #: Function that stores results (default: rounding by the way of summation)
    start: NDArray | None = None  #: Codes of the initial accumulator, shape (M, N) (default: zero)
    swapped: bool = False  #: The left operand is B of the caller. Epilogue and group scales keep the caller's names.
    is_cleared: bool = True  #: Whether the accumulator is cleared after each promotion of a partial sum

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the product, (M, N)."""
        return len(self.a), self.b.shape[1]

    @property
    def chunk(self) -> int:
        """Logical columns of A for each nibble; 1 for a dense A."""
        return 1 if self.nibbles is None else self.k // self.nibbles.shape[1]

    @property
    def has_scales_along_k(self) -> bool:
        """Whether the operands have block scales or group scales."""
        return self.scales is not None or self.groups is not None

    def factors(self, way: Way) -> Factors:
        """Return the operands for a way of summation. For a dense instruction, A is expanded with zeros."""
        i, a, nibbles = way.parsed, self.a, self.nibbles
        if nibbles is not None and i.granularity is None:
            a, nibbles = self.with_zeros(a), None
        convert_left, convert_right = (way.convert_b, way.convert_a) if way.swapped else (way.convert_a, way.convert_b)
        left, right = converted(a, i.a, convert_left), converted(self.b, i.b, convert_right)
        both = factors(Sparse(left, nibbles, self.k), right, i, self.scales, self.groups)
        return both.interleaved(way)

    def with_zeros(self, stored: NDArray) -> NDArray:
        """Return a sparse matrix with its zeros, expanded from its stored elements by the metadata."""
        if self.nibbles is None or self.granularity is None:
            return stored
        a = np.zeros((len(stored), self.k), stored.dtype)
        np.put_along_axis(a, kept_rows(self.nibbles, self.granularity), stored, 1)
        return a

    def take(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> "Setting":
        """Return the setting for some rows and columns of the product, with all of K."""
        return replace(
            self,
            a=self.a[rows],
            nibbles=None if self.nibbles is None else self.nibbles[rows],
            b=self.b[:, columns],
            scales=self.scales and (self.scales[0][rows], self.scales[1][columns]),
            groups=self.groups and self.groups.take(rows, columns),
            epilogue=self.epilogue.take(self.shape, rows, columns),
            start=None if self.start is None else self.start[rows][:, columns],
        )

    def codes(self, way: Way) -> NDArray:
        """Return the codes of the whole product by a way of summation."""
        return product(
            way, self.factors(way), self.computes, self.epilogue, self.start, None, self.is_cleared, self.finish
        )

    def part(self, name: str) -> Any:
        """Return a field, or an array inside it; the names are for example ``a``, ``scales.0`` and ``epilogue.c``."""
        field, _, inside = name.partition(".")
        value = getattr(self, field)
        return value[int(inside)] if field == "scales" and inside else getattr(value, inside) if inside else value

    def with_parts(self, parts: Mapping[str, Any]) -> "Setting":
        """Return the setting with some parts replaced; the names are as for :meth:`part`."""
        setting = self
        for name, value in parts.items():
            field, _, inside = name.partition(".")
            if field == "scales" and inside:
                value = tuple(
                    value if str(axis) == inside else codes for axis, codes in enumerate(setting.scales or ())
                )
            elif inside:
                value = replace(getattr(setting, field), **{inside: value})
            setting = replace(setting, **{field: value})
        return setting

    def in_blocks(self, unit: int) -> "Setting":
        """Return the setting with K padded with zeros to a multiple of `unit`."""
        missing = -self.k % unit
        if not missing:
            return self
        per_column = self.a.shape[1] / self.k
        nibbles = self.nibbles
        if nibbles is not None:
            nibbles = np.pad(nibbles, ((0, 0), (0, missing // self.chunk)), constant_values=FILLING)
        return replace(
            self,
            a=np.pad(self.a, ((0, 0), (0, int(missing * per_column)))),
            nibbles=nibbles,
            k=self.k + missing,
            b=np.pad(self.b, ((0, missing), (0, 0))),
        )

    def with_blocks(self, unit: int, index: Mapping[str, NDArray[np.intp]]) -> "Setting":
        """Return the operands of a kernel that reads other blocks of `unit` columns along K than intended.

        `unit` is a multiple of a chunk. `index` holds for ``a`` (stored elements), ``nibbles``, ``b``, ``scales`` and
        ``groups`` the block that each place gets; -1 for a block of zeros. Other operands stay as they are.
        """
        whole = self.in_blocks(unit)
        changed: dict[str, object] = {}
        for name, where in index.items():
            if name == "scales":
                if whole.scales:
                    changed[name] = tuple(_blocks(part, whole.k, unit, where) for part in whole.scales)
            elif name == "groups":
                changed[name] = whole.groups and whole.groups.with_blocks(unit, where)
            elif name == "b":
                changed[name] = np.ascontiguousarray(_blocks(whole.b.T, whole.k, unit, where).T)
            elif (array := getattr(whole, name)) is not None:
                changed[name] = _blocks(array, whole.k, unit, where)
        count = {len(where) for where in index.values()}
        k = count.pop() * unit if {"a", "b"} <= index.keys() else whole.k
        return replace(whole, k=k, **changed)  # type: ignore[arg-type]


def _blocks(array: NDArray, k: int, unit: int, index: NDArray[np.intp]) -> NDArray:
    """Return an array with the blocks of each row reordered; `k` columns of A correspond to one row of the array."""
    count, width = k // unit, array.shape[1] * unit // k
    if not width or width * count != array.shape[1]:
        return array
    cut = array.reshape(len(array), count, width)
    taken = cut[:, index] * (index >= 0).astype(array.dtype)[:, None]
    return np.ascontiguousarray(taken.reshape(len(array), -1))


class Grid:
    """Some rows and columns of a product as a sample of its outputs, computed by any way of summation."""

    def __init__(self, setting: Setting, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
        self._place = Place(rows, columns, setting.shape)
        self.setting = setting.take(rows, columns)
        self._chains: dict[tuple[str, str, str, int], Chains] = {}

    def _sums(self, way: Way) -> NDArray:
        name, setting = way.operands, self.setting
        if name not in self._chains:
            factors = setting.factors(way)
            self._chains[name] = Chains(
                factors, way.arch, setting.computes, setting.start, self._place, setting.is_cleared
            )
        return sums(way, self._chains[name])

    def values(self, way: Way) -> NDArray:
        """Return the float32 or int32 results of the sample before they are converted and stored."""
        return self.setting.epilogue.apply(self._sums(way), way.scale_order)

    def codes(self, way: Way) -> NDArray:
        """Return the result codes of the sample of outputs."""
        return stored(way, self.setting.epilogue, self._sums(way), self.setting.finish)


@dataclass(frozen=True, eq=False)
class Fault:
    """A fault that a kernel may have, with the product that such a kernel computes."""

    kind: str  #: Kind of fault, one of :data:`sptc.gemm.fault_probe.KINDS`
    text: str  #: Text that names the fault and completes "explained by: "
    setting: Setting  #: Operands, epilogue and result conversion with the fault
    change_way: Callable[[Way], Way] | None = None  #: Function that changes the way of summation for another type
    bits: float = 0.0  #: Information content in bits of the parameters fitted to the result
