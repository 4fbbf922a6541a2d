"""Back end ``native``: runs the C++ model libsptc in the Python process."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..isa.instructions import Instruction
from ..isa.numerics import Alignment, Numerics
from ..isa.operands import MatrixOperands, Product
from .library import ABI, Input, Matrices, Output, library

__all__ = ["NativeBackend", "multiply", "opened"]


@contextmanager
def opened(
    instruction: Instruction, arch: str, kernels: str = "", numerics: Numerics | None = None
) -> Iterator[ctypes.c_void_p]:
    """Open a libsptc handle of an instruction, and close it when the context ends. Parameters: see :func:`multiply`."""
    handle, called = ctypes.c_void_p(), library()
    try:
        _check(called, handle, called.sptc_open(ABI, str(instruction).encode(), arch.encode(), ctypes.byref(handle)))
        _check(called, handle, called.sptc_choose_kernels(handle, kernels.encode()))
        if numerics is not None:
            if numerics.alignment is not Alignment.TOWARD_ZERO:
                raise BackendError("back end native can only truncate terms toward zero; use back end golden")
            numbers = numerics.step, numerics.alignment_bits, numerics.zero_exponent, numerics.group
            _check(called, handle, called.sptc_set_numerics(handle, *numbers, numerics.rounding.value.encode()))
        yield handle
    finally:
        called.sptc_close(handle)


def _check(called: ctypes.CDLL, handle: ctypes.c_void_p, status: int) -> None:
    """Raise a `BackendError` with libsptc's error message if a status code is not zero."""
    if status:
        message = called.sptc_last_error(handle).decode() or f"status {status}"
        raise BackendError(f"back end native cannot compute the instruction: {message}")


def _buffer(kind: Any, array: NDArray | None) -> Any:
    return kind() if array is None else kind(array.ctypes.data, array.nbytes)


def multiply(
    instruction: Instruction,
    arch: str,
    operands: MatrixOperands,
    *,
    kernels: str = "",
    threads: int = 1,
    numerics: Numerics | None = None,
) -> NDArray:
    """Compute D = A B + C with libsptc. If K is longer than one instruction's, successive instructions accumulate.

    Return an array of the type and shape of `operands.c`. The first three parameters are as for
    :func:`sptc.golden.matrix.multiply`. `kernels` is ``"portable"``, ``"avx2"`` or ``"avx512"``, by default the fastest
    of this processor; `threads` threads share the work; `numerics` replace those of `arch`. Raise a `BackendError` if
    there is no compiler, or the processor lacks instructions that the kernels need.
    """
    c, k = operands.c, operands.b.shape[1]
    optional = (operands.nibbles, operands.scale_a, operands.scale_b)
    arrays = [
        None if array is None else np.ascontiguousarray(array) for array in (operands.a, operands.b, c, *optional)
    ]
    d = np.empty(c.shape, c.dtype)
    matrices = Matrices(*c.shape, k, *(_buffer(Input, array) for array in arrays), _buffer(Output, d))
    with opened(instruction, arch, kernels, numerics) as handle:
        called = library()
        _check(called, handle, called.sptc_multiply(handle, ctypes.byref(matrices), threads))
    return d


class NativeBackend:
    """Back end ``native``, with the numerics of the architecture, or with `numerics` instead.

    The back end uses a single thread, since the commands already run one process per core.
    """

    def __init__(self, numerics: Numerics | None = None) -> None:
        self._numerics = numerics

    def with_numerics(self, numerics: Numerics) -> "NativeBackend":
        """Return a back end that computes with `numerics` instead of the numerics of the architecture."""
        return NativeBackend(numerics)

    def make_ready(self, arch: str) -> None:
        """Compile libsptc, which serves all architectures, on first use; raise a `BackendError` if this fails."""
        library()

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute D as :func:`multiply` does. The result does not state which nibbles are undefined."""
        return Product(multiply(instruction, arch, operands, numerics=self._numerics))
