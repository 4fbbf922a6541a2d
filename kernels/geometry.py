"""Geometry of a launch, and the special registers with the indices of each thread."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clusters", "Launch", "cta_numbers", "positions", "special_registers"]

_AXES = "xyz"


@dataclass(frozen=True)
class Launch:
    """Geometry of a launch (grid, CTA and cluster sizes), and options of the launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    #: Bytes of dynamic shared memory.
    shared: int = 0
    arch: str = "sm_90"
    #: Back end that executes tensor-core instructions, or the name of the back end.
    backend: Any = "native"
    #: Whether approximate functions, whose results are not bit-exact, are allowed.
    approximate: bool = False

    @property
    def threads(self) -> int:
        """Number of threads per CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def lanes(self) -> int:
        """Number of lanes of the warps of a CTA. Without whole warps, the last lanes have no thread."""
        return -(-self.threads // 32) * 32

    @property
    def cluster_size(self) -> int:
        """Number of CTAs per cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]


@dataclass
class Clusters:
    """The clusters of a grid, which start in the order of their numbers unless a kernel cancels them."""

    count: int
    #: Number of clusters that have started or were cancelled.
    taken: int = 0

    def take(self, most: int) -> range:
        """Return the numbers of the next clusters, no more than `most`, and count these clusters as taken."""
        first, self.taken = self.taken, min(self.taken + most, self.count)
        return range(first, self.taken)


def positions(numbers: NDArray[np.int64], sides: tuple[int, int, int]) -> list[NDArray[np.int64]]:
    """Return the indices along x, y and z of items with linear numbers, in a block with the given sides."""
    width, height, _ = sides
    return [numbers % width, numbers // width % height, numbers // (width * height)]


def cta_numbers(launch: Launch, clusters: range) -> NDArray[np.int64]:
    """Return the linear numbers, in the grid, of the CTAs of some clusters, cluster by cluster."""
    size = launch.cluster_size
    cluster, rank = np.divmod(np.arange(clusters.start * size, clusters.stop * size, dtype=np.int64), size)
    numbers, scale = np.zeros_like(rank), 1
    for side, part in zip(launch.grid, launch.cluster, strict=True):
        cluster, place = np.divmod(cluster, side // part)
        rank, inside = np.divmod(rank, part)
        numbers += (place * part + inside) * scale
        scale *= side
    return numbers


def special_registers(
    launch: Launch, ctas: NDArray[np.int64]
) -> tuple[dict[str, NDArray[np.uint32]], NDArray[np.int64]]:
    """Return the special registers of all lanes of some CTAs, and the rank of each lane's CTA in its cluster.

    `ctas` are the linear numbers of the CTAs in the grid.
    """
    numbers = np.arange(len(ctas) * launch.lanes)
    thread = numbers % launch.lanes
    cta = ctas[numbers // launch.lanes]
    values: dict[str, Any] = {"%laneid": thread % 32, "%warpid": thread // 32, "%smid": np.array([0])}
    values |= {"%nwarpid": np.array([-(-launch.threads // 32)]), "%clusterid.x": cta // launch.cluster_size}
    rank, scale = np.zeros_like(cta), 1
    values |= {f"%tid.{axis}": index for axis, index in zip(_AXES, positions(thread, launch.block), strict=True)}
    indices = positions(cta, launch.grid)
    for axis, position, block, grid, cluster in zip(
        _AXES, indices, launch.block, launch.grid, launch.cluster, strict=True
    ):
        values[f"%ctaid.{axis}"] = position
        values[f"%ntid.{axis}"], values[f"%nctaid.{axis}"] = np.array([block]), np.array([grid])
        values[f"%cluster_ctaid.{axis}"] = position % cluster
        values[f"%cluster_nctaid.{axis}"] = np.array([cluster])
        values[f"%clusterid.{axis}"] = position // cluster
        values[f"%nclusterid.{axis}"] = np.array([grid // cluster])
        rank = rank + position % cluster * scale
        scale *= cluster
    values["%cluster_ctarank"], values["%cluster_nctarank"] = rank, np.array([scale])
    values["%is_explicit_cluster"] = np.array([scale > 1])
    lane = thread % 32
    for name, masks in (("eq", 1 << lane), ("lt", (1 << lane) - 1), ("le", (2 << lane) - 1)):
        values[f"%lanemask_{name}"] = masks
    values["%lanemask_gt"] = ~values["%lanemask_le"]
    values["%lanemask_ge"] = ~values["%lanemask_lt"]
    return {name: (value & 0xFFFFFFFF).astype(np.uint32) for name, value in values.items()}, rank
