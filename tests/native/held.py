"""Calls of the C interface for register files, and for the arguments of `sptc.tcgen05_mma`."""

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.native.library import ABI, Input, MmaOperands, Output, Tcgen05Operands, WgmmaOperands, library
from sptc.verify.register_file import RegisterFile

POLICIES = {"strict": 0, "software": 1, "silicon": 2}


class RefusedError(Exception):
    """A call of the C interface has failed. The error has the message and the nonzero status of the call."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@contextmanager
def opened(text: str, arch: str = "sm_90", abi: int = ABI) -> Iterator[Any]:
    """Open an instruction. Yield its handle, its text, and a function `call` that raises an error if a call fails."""
    handle = ctypes.c_void_p()

    def call(name: str, *arguments: object) -> None:
        checked(getattr(library(), f"sptc_{name}")(handle, *arguments))

    def checked(status: int) -> None:
        result = library().sptc_last_error(handle).decode()
        assert bool(result) == bool(status)
        if status:
            raise RefusedError(status, result)

    try:
        checked(library().sptc_open(abi, text.encode(), arch.encode(), ctypes.byref(handle)))
        yield SimpleNamespace(call=call, handle=handle, text=library().sptc_text(handle).decode())
    finally:
        library().sptc_close(handle)


def given(array: NDArray | None, kind: type[Input] = Input) -> Input:
    return kind() if array is None else kind(array.ctypes.data, array.nbytes)


@contextmanager
def refuses(sentence: str, status: int | None = None) -> Iterator[None]:
    """Expect that the enclosed call fails with these words in its message and, if `status` is given, this status."""
    with pytest.raises(RefusedError, match=re.escape(sentence)) as caught:
        yield
    assert status in (None, caught.value.status), sentence


def run_file(file: RegisterFile, threads: int = 1, kernels: str = "") -> NDArray[np.uint32]:
    """Return D of a register file. All cases must have the same descriptors."""
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
            (b_descriptor,) = set(np.ravel(file.b_descriptor).tolist())
            (a_descriptor,) = {0} if file.a_descriptor is None else set(np.ravel(file.a_descriptor).tolist())
            operands = WgmmaOperands(
                len(c), given(c), given(a), a_descriptor, b_descriptor, given(e), file.sparsity_selector, policy,
                given(b), b[0].nbytes, file.scale_d, *file.imm_scale, *file.imm_trans, given(d, Output),
            )  # fmt: skip
        instruction.call(file.instruction.family, ctypes.byref(operands), threads)
        return d


def tensor_operands(
    result: NDArray, tmem: NDArray, smem: NDArray, *, metadata: str = "strict", **others: Any
) -> Tcgen05Operands:
    """Return arguments of `sptc.tcgen05_mma` in the layout of the C interface: axis of images first, then of CTAs."""
    return Tcgen05Operands(
        images=len(tmem), tmem=given(tmem), smem=given(smem), smem_stride=smem[0].nbytes, result=given(result, Output),
        metadata=POLICIES[metadata], **{"disable_output_lane": (0, 0, 0, 0), "enable_input_d": True, **others},
    )  # fmt: skip


def run_tensor(text: str, threads: int = 1, kernels: str = "", **arguments: Any) -> NDArray[np.uint32]:
    """Execute an instruction with the arguments of `sptc.tcgen05_mma`. Return the new contents of tensor memory."""
    pair = "cta_group::2" in text
    images = {}
    for name, behind in (("tmem", 2), ("smem", 1)):
        image = arguments.pop(name)
        image = np.moveaxis(image, 0, -behind - 1) if pair else np.expand_dims(image, -behind - 1)
        batch = image.shape[: -behind - 1]
        images[name] = np.ascontiguousarray(image).reshape(-1, *image.shape[len(batch) :])
    result = np.full_like(images["tmem"], 0x5A5A5A5A)
    with opened(text, "sm_100") as instruction:
        instruction.call("choose_kernels", kernels.encode())
        operands = tensor_operands(result, **images, **arguments)
        try:
            instruction.call("tcgen05", ctypes.byref(operands), threads)
        except RefusedError:
            assert (result == 0x5A5A5A5A).all()
            raise
    result = result.reshape(*batch, *result.shape[1:])
    return np.moveaxis(result, -3, 0) if pair else result[..., 0, :, :]
