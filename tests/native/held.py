"""Register files through the C interface: what threads and shared memory hold goes in as it is."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sptc.native.library import ABI, Input, MmaOperands, Output, Shape, WgmmaOperands, library
from sptc.verify.register_file import RegisterFile

POLICIES = {"strict": 0, "software": 1, "silicon": 2}


class RefusedError(Exception):
    """A status that is not zero, with its sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@contextmanager
def opened(text: str, arch: str = "sm_90", abi: int = ABI) -> Iterator[Any]:
    """Open an instruction; what is yielded calls functions of the library and raises for a status."""
    handle = ctypes.c_void_p()

    def call(name: str, *arguments: object) -> None:
        checked(getattr(library(), f"sptc_{name}")(handle, *arguments))

    def checked(status: int) -> None:
        said = library().sptc_last_error(handle).decode()
        assert bool(said) == bool(status)
        if status:
            raise RefusedError(status, said)

    try:
        checked(library().sptc_open(abi, text.encode(), arch.encode(), ctypes.byref(handle)))
        yield SimpleNamespace(call=call, handle=handle, text=library().sptc_text(handle).decode())
    finally:
        library().sptc_close(handle)


def given(array: NDArray | None, kind: type[Input] = Input) -> Input:
    return kind() if array is None else kind(array.ctypes.data, array.nbytes)


def shape_of(instruction: Any) -> Shape:
    shape = Shape()
    instruction.call("get_shape", ctypes.byref(shape))
    return shape


def run_file(file: RegisterFile, threads: int = 1, kernels: str = "") -> NDArray[np.uint32]:
    """Return D of a register file, whose descriptors, if it has any, are the same in all cases."""
    with opened(str(file.instruction), file.arch) as instruction:
        instruction.call("choose_kernels", kernels.encode())
        c = np.ascontiguousarray(file.c)
        d = np.empty_like(c)
        a, b, e = (None if part is None else np.ascontiguousarray(part) for part in (file.a, file.b, file.e))
        policy = POLICIES[file.metadata]
        if file.instruction.family == "mma":
            scales = [None if part is None else np.ascontiguousarray(part) for part in (file.scale_a, file.scale_b)]
            operands: Any = MmaOperands(
                len(c), given(a), given(b), given(c), given(e), file.sparsity_selector, policy,
                *map(given, scales), *file.scale_ids, given(d, Output),
            )  # fmt: skip
        else:
            assert b is not None
            (b_descriptor,) = set(np.ravel(file.b_descriptor).tolist())
            (a_descriptor,) = {0} if file.a_descriptor is None else set(np.ravel(file.a_descriptor).tolist())
            operands = WgmmaOperands(
                len(c), given(c), given(a), a_descriptor, b_descriptor, given(e), file.sparsity_selector, policy,
                given(b), b[0].nbytes, file.scale_d, *file.imm_scale, *file.imm_trans, given(d, Output),
            )  # fmt: skip
        instruction.call(file.instruction.family, ctypes.byref(operands), threads)
        return d
