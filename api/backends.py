"""The table of back ends: what computes instructions, by name.

Each takes one frozen record of operands and returns one frozen record of results; no other module of the package
distinguishes them by name.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol, runtime_checkable

from ..errors import BackendError, shown
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands, Product
from ..isa.text import is_word_of

__all__ = ["BACKENDS", "MODELS", "Backend", "backend"]


@runtime_checkable
class Backend(Protocol):
    """Something that computes instructions."""

    def make_ready(self, arch: str) -> None:
        """Do what is done once for an architecture and takes long, such as to compile it; the next call finds it done.

        Raises
        ------
        BackendError
            The back end lacks something on this machine.
        """

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Return D = A B + C as a chain of the instruction along K computes it.

        Parameters
        ----------
        instruction : Instruction
            Its k divides K; m and n of the matrices are free.
        arch : str
            Architecture whose numerics apply.
        operands : MatrixOperands
            The matrices; any nibble is taken.

        Returns
        -------
        Product
            D, of the type and shape of `operands.c`, and beside it what the back end has: flags of undefined metadata
            and cycles.

        Raises
        ------
        BackendError
            The back end lacks something on this machine, or does not execute the instruction.
        """


class _Golden:
    def make_ready(self, arch: str) -> None:
        pass

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        from ..golden.matrix import multiply

        return Product(multiply(instruction, arch, operands))


def _rtl() -> Backend:
    from ..sim.engine.engine import HardwareBackend

    return HardwareBackend("verilator")


def _pysim() -> Backend:
    from ..sim.engine.engine import HardwareBackend

    return HardwareBackend("amaranth")


def _native() -> Backend:
    from ..native.backend import NativeBackend

    return NativeBackend()


def _warp() -> Backend:
    from .tops import WarpBackend

    return WarpBackend()


def _warpgroup() -> Backend:
    from .tops import WarpgroupBackend

    return WarpgroupBackend()


def _tcgen05() -> Backend:
    from .tops import Tcgen05Backend

    return Tcgen05Backend()


def _cuda() -> Backend:
    from .cuda import CudaBackend

    return CudaBackend()


#: What makes each back end; what it needs is imported when it is first asked for.
_MAKERS: dict[str, Callable[[], Backend]] = {
    "golden": _Golden,
    "rtl": _rtl,
    "pysim": _pysim,
    "native": _native,
    "warp": _warp,
    "warpgroup": _warpgroup,
    "tcgen05": _tcgen05,
    "cuda": _cuda,
}
#: Names of the back ends, and of those that are models and so have every architecture.
BACKENDS = tuple(_MAKERS)
MODELS = ("golden", "rtl", "pysim", "native")


@lru_cache(maxsize=len(_MAKERS))
def _made(name: str) -> Backend:
    return _MAKERS[name]()


def backend(name: str | Backend) -> Backend:
    """Return a back end.

    Parameters
    ----------
    name : str or Backend
        One of :data:`BACKENDS`, or an object with the methods of a back end, which is returned.

    Raises
    ------
    BackendError
        There is none of that name.
    """
    if isinstance(name, Backend):
        return name
    if not is_word_of(name, _MAKERS):
        raise BackendError(f"backend must be {' or '.join(map(repr, BACKENDS))}, not {shown(name)}")
    return _made(name)
