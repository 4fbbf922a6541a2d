"""Table of back ends by name. Software models, simulated hardware and the GPU are back ends that compute instructions.

Each back end takes one frozen record of operands and returns one frozen record of results. Other modules of the package
distinguish back ends only by :data:`MODELS` and :data:`TOP_LEVEL`.
"""

from functools import lru_cache
from importlib import import_module
from typing import Protocol, runtime_checkable

from ..errors import BackendError, OperandError, shown
from ..isa.instructions import Instruction
from ..isa.metadata import MUX_OF_ARCHITECTURE
from ..isa.numerics import Numerics
from ..isa.numerics import numerics as numerics_of
from ..isa.operands import MatrixOperands, Product
from ..isa.text import is_word_of

__all__ = ["BACKENDS", "MODELS", "TOP_LEVEL", "Backend", "backend", "with_numerics"]


@runtime_checkable
class Backend(Protocol):
    """Protocol: methods that every back end must implement."""

    def make_ready(self, arch: str) -> None:
        """Prepare the back end for an architecture. The first call may be slow, for example to compile the hardware.

        Raises
        ------
        BackendError
            A tool that the back end needs is missing on this machine.
        """

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Return D = A B + C, computed by instructions that accumulate one after another along K.

        Parameters
        ----------
        instruction : Instruction
            Instruction whose k divides K. The matrices may have any m and n.
        arch : str
            Architecture whose numerics apply.
        operands : MatrixOperands
            The matrices. Undefined metadata nibbles do not raise an error: they select elements as in hardware.

        Returns
        -------
        Product
            D, with the type and shape of `operands.c`; also flags of undefined metadata and the number of cycles, if
            the back end reports these.

        Raises
        ------
        BackendError
            A tool that the back end needs is missing on this machine, or it does not execute the instruction.
        """


class _Golden:
    def __init__(self, numerics: Numerics | None = None) -> None:
        self._numerics = numerics

    def make_ready(self, arch: str) -> None:
        pass

    def with_numerics(self, numerics: Numerics) -> "_Golden":
        """Return a back end that computes with the given numerics on any architecture."""
        return _Golden(numerics)

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        from ..golden.matrix import multiply, multiply_by

        if self._numerics is None:
            return Product(multiply(instruction, arch, operands))
        return Product(multiply_by(instruction, self._numerics, MUX_OF_ARCHITECTURE[arch], operands))


#: Module, class and constructor arguments of each back end. Modules are imported on first use.
_CLASSES = {
    "golden": ("api.backends", "_Golden"),
    "rtl": ("sim.engine.engine", "HardwareBackend", "verilator"),
    "pysim": ("sim.engine.engine", "HardwareBackend", "amaranth"),
    "native": ("native.backend", "NativeBackend"),
    "warp": ("api.tops", "RegisterBackend", "warp"),
    "warpgroup": ("api.tops", "RegisterBackend", "warpgroup"),
    "tcgen05": ("api.tops", "Tcgen05Backend"),
    "cuda": ("api.cuda", "CudaBackend"),
}
#: Names of all back ends; names of those that model every architecture; and names of those that simulate a top-level
#: module of the hardware. Such a module executes only some instructions.
BACKENDS = tuple(_CLASSES)
MODELS = ("golden", "rtl", "pysim", "native")
TOP_LEVEL = ("warp", "warpgroup", "tcgen05")


@lru_cache(maxsize=len(_CLASSES))
def _made(name: str) -> Backend:
    module, class_name, *arguments = _CLASSES[name]
    created: Backend = getattr(import_module(f"...{module}", __name__), class_name)(*arguments)
    return created


def backend(name: str | Backend) -> Backend:
    """Return the back end that has the given name.

    Parameters
    ----------
    name : str or Backend
        One of :data:`BACKENDS`, or an object with the methods of a back end, which is returned as it is.

    Raises
    ------
    BackendError
        No back end has this name.
    """
    if isinstance(name, Backend):
        return name
    if not is_word_of(name, _CLASSES):
        raise BackendError(f"backend must be {' or '.join(map(repr, BACKENDS))}, not {shown(name)}")
    return _made(name)


def with_numerics(computes: Backend, numerics: Numerics | None, instruction: Instruction | None, arch: str) -> Backend:
    """Return a back end that uses the given numerics for an instruction, or the same back end if `numerics` is None.

    Raise an `OperandError` if `numerics` is not a `Numerics` record, or belongs to another kind of instruction, or
    `instruction` is None; and a `BackendError` if the back end cannot change its numerics.
    """
    if numerics is None:
        return computes
    if not isinstance(numerics, Numerics):
        raise OperandError(f"numerics must be a record that sptc.numerics returned, not {shown(numerics)}")
    if instruction is None:
        raise OperandError("the argument 'numerics' applies to one instruction, so 'instruction' must also be given")
    own, half = numerics_of(instruction, arch), instruction.d.name == "f16"
    is_longer = instruction.span is not None and numerics.step > own.step
    if own.method is not numerics.method or numerics.rounds_to_half != half or is_longer:
        raise OperandError(f"the given numerics do not fit {instruction}: method, step length or result type differs")
    if (change := getattr(computes, "with_numerics", None)) is None:
        raise BackendError("the chosen back end cannot change its numerics: use back end golden or native")
    changed: Backend = change(numerics)
    return changed
