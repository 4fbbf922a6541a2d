"""Write matrices of codes to shared memory and read them back, with the address maps of ``isa.memory``."""

import numpy as np
from numpy.typing import NDArray

from ..isa.memory import SharedMap
from .registers import CONTAINERS

__all__ = ["gather_shared", "scatter_shared"]


def gather_shared(smem: NDArray[np.uint8], where: SharedMap) -> NDArray:
    """Gather a matrix from shared-memory images, shape (batch, bytes).

    The result has the shape (batch, *where.addresses.shape), with one container of 8, 16 or 32 bits per element; 4-bit
    and 6-bit elements are in the low bits of a byte.
    """
    size = -(-where.element_bits // 8)
    if where.element_bits % 8 == 0:
        return smem.take(where.addresses[..., None] + np.arange(size), axis=1).view(CONTAINERS[8 * size])[..., 0]
    low = smem.take(where.addresses, axis=1).astype(np.uint16)
    straddles = where.low_bits + where.element_bits > 8
    high = smem.take(where.addresses + straddles, axis=1).astype(np.uint16)
    return ((low | high << 8) >> where.low_bits & (1 << where.element_bits) - 1).astype(np.uint8)


def scatter_shared(smem: NDArray[np.uint8], where: SharedMap, codes: NDArray) -> None:
    """Write a matrix into shared-memory images in place, the inverse of :func:`gather_shared`.

    The bits that are written must be zero before the call.
    """
    bits = (codes.astype(np.uint64) & np.uint64((1 << where.element_bits) - 1)) << where.low_bits.astype(np.uint64)
    for place in range(-(-(int(where.low_bits.max()) + where.element_bits) // 8)):
        octets = (bits >> np.uint64(8 * place)).astype(np.uint8)
        np.bitwise_or.at(smem.T, (where.addresses + place).ravel(), octets.reshape(len(smem), -1).T)
