"""Register files (files on disk) of ``tcgen05.mma``: they hold images of tensor and shared memory, not registers.

Keys: ``instruction`` (0-d string); ``idesc``, ``d``, ``a``, ``b`` (0-d integers: instruction descriptor, addresses in
tensor memory, shared-memory descriptors); ``e`` for a sparse instruction; ``scale_a`` and ``scale_b`` for a
block-scaled kind (addresses); ``tmem`` (uint32 [case, 128, 512]) and ``smem`` (uint8 [case, byte]), each with a leading
axis of 2 for ``.cta_group::2``; ``D``, the tensor memory after the instruction, if it is known; optionally
``enable_input_d`` (0 or 1), ``scale_input_d``, ``disable_output_lane`` (four integers), ``zero_column_mask``, ``arch``
and ``metadata``.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.tcgen05 import placement_of, tcgen05_mma
from ..isa.architectures import same_numerics
from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.instructions import Instruction
from ..isa.tcgen05 import Opcode, parse_opcode
from ..isa.tensor_memory import COLUMNS, LANES, Layout, TensorMap, a_map, accumulator_map, layout_for
from ..operands.tensor_memory import Placement, gather_tensor, shift_rows
from .archive import Archive, Replayable

__all__ = ["TensorMemoryFile", "interpret"]

_DEFAULT_ARCH = "sm_100"
_ADDRESSES = ("d", "a", "b")
_SCALES = ("scale_a", "scale_b")
_MASKS = "disable_output_lane"
_COLUMN_MASK = "zero_column_mask"
#: Memory images in an archive. Key: key of the image in the archive. Value: attribute of :class:`TensorMemoryFile` that
#: holds the image, element type, and sizes of the axes without the first axes, case and CTA (None: any size).
_IMAGES = {"tmem": ("tmem", np.uint32, (LANES, COLUMNS)), "smem": ("smem", np.uint8, (None,)),
           "D": ("d", np.uint32, (LANES, COLUMNS))}  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorMemoryFile(Replayable):
    """Contents of a register file (file on disk) of ``tcgen05.mma``: descriptors, addresses and memory images."""

    case_fields = ("tmem", "smem", "d")

    opcode: Opcode
    idesc: int  #: Instruction descriptor
    #: Addresses of ``d``, ``a``, ``b`` and, if present, ``e``, ``scale_a`` and ``scale_b``: tensor memory addresses or
    #: matrix descriptors, as in :func:`sptc.tcgen05_mma`.
    addresses: dict[str, int]
    tmem: NDArray[np.uint32]  #: Tensor memory before the instruction, shape (cases, 128, 512) or (cases, 2, 128, 512)
    smem: NDArray[np.uint8]  #: Shared memory, shape (cases, bytes) or (cases, 2, bytes)
    d: NDArray[np.uint32] | None = None  #: Tensor memory after the instruction, in the shape of `tmem`; None if unknown
    enable_input_d: bool = True  #: Whether the instruction adds the previous D
    scale_input_d: int = 0  #: Exponent e of the factor 2**-e that scales the previous D
    #: Mask of the tensor memory lanes that keep their content instead of D, as in :func:`sptc.tcgen05_mma`.
    disable_output_lane: tuple[int, ...] | None = None
    #: Zero-column mask descriptor as in :func:`sptc.tcgen05_mma`: columns of B that are taken as zero, and shift of the
    #: columns.
    zero_column_mask: int | None = None
    arch: str = _DEFAULT_ARCH
    target: str = ""
    metadata: str = "strict"  #: Policy for undefined metadata nibbles, as in :func:`sptc.tcgen05_mma`

    @cached_property
    def instruction(self) -> Instruction:  # type: ignore[override]  # computed once; nobody assigns it
        """Instruction with the shape and types in the instruction descriptor."""
        return decode_instruction_descriptor(self.opcode, self.idesc).instruction

    @cached_property
    def placement(self) -> Placement:
        """Position of each operand element in tensor memory or shared memory."""
        operands = {name: address for name, address in self.addresses.items() if name not in _SCALES}
        scales = {name: self.addresses.get(name) for name in _SCALES}
        descriptor = decode_instruction_descriptor(self.opcode, self.idesc)
        return placement_of(self.opcode, descriptor, operands, scales, self.zero_column_mask)

    @property
    def before(self) -> NDArray[np.uint32]:
        """Tensor memory before the instruction, but with A shifted for an instruction with ``.ashift``."""
        if not self.opcode.shifts_a:
            return self.tmem
        shifted = self.tmem.copy()
        shift_rows(shifted, a_map(self._layout, self.instruction, self.addresses["a"]))
        return shifted

    def run(self, backend: str | Backend = "golden") -> NDArray[np.uint32]:
        """Compute the tensor memory after the instruction on a back end."""
        # In the memory arrays that tcgen05_mma() takes, the axis of CTAs comes before the axis of test cases.
        axis = self.opcode.cta_group - 1
        result = tcgen05_mma(
            str(self.opcode),
            np.moveaxis(self.tmem, 0, axis),
            self.addresses["d"],
            self.addresses["a"],
            self.addresses["b"],
            self.idesc,
            e=self.addresses.get("e"),
            smem=np.moveaxis(self.smem, 0, axis),
            scale_a=self.addresses.get("scale_a"),
            scale_b=self.addresses.get("scale_b"),
            enable_input_d=self.enable_input_d,
            scale_input_d=self.scale_input_d,
            disable_output_lane=self.disable_output_lane,
            zero_column_mask=self.zero_column_mask,
            arch=self.arch,
            backend=backend,
            metadata=self.metadata,
        )
        return np.moveaxis(result, axis, 0)

    def matrix(self, result: NDArray[np.uint32]) -> NDArray:
        """Return the codes of D from tensor memory, shape (cases, m, n)."""
        i = self.instruction
        return gather_tensor(result.reshape(-1, LANES, COLUMNS), self._place_of_d).reshape(len(result), i.m, i.n)

    def writes(self, row: int, column: int) -> bool:
        """Return whether the instruction writes this element of D. It does not write lanes in `disable_output_lane`."""
        if self.disable_output_lane is None:
            return True
        lane = int(self._place_of_d.lanes[row, column])
        return not self.disable_output_lane[lane // 32] >> lane % 32 & 1

    def beside(self, result: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return tensor memory with all bits of D set to zero, shape (batch, CTAs, 128, 512)."""
        place = self._place_of_d
        mask = np.full((LANES, COLUMNS), 0xFFFFFFFF, np.uint32)
        mask[place.lanes, place.columns] ^= np.uint32((1 << place.element_bits) - 1)
        return result.reshape(len(result), self.opcode.cta_group, LANES, COLUMNS) & mask

    @property
    def _layout(self) -> Layout:
        return layout_for(self.opcode, self.instruction.m)

    @property
    def _place_of_d(self) -> TensorMap:
        return accumulator_map(self._layout, self.instruction.n, self.instruction.d.bits, self.addresses["d"])

    def contents(self) -> dict[str, Any]:
        """Return all arrays, by key, to store this file of operands and results as an ``.npz`` archive."""
        images = {key: getattr(self, attribute) for key, (attribute, _, _) in _IMAGES.items()}
        axis = self.opcode.cta_group - 1
        masks = {_MASKS: self.disable_output_lane, _COLUMN_MASK: self.zero_column_mask}
        return {
            "instruction": str(self.opcode),
            "idesc": self.idesc,
            **self.addresses,
            **{key: np.moveaxis(image, axis, 0) for key, image in images.items() if image is not None},
            "enable_input_d": self.enable_input_d,
            "scale_input_d": self.scale_input_d,
            **{key: mask for key, mask in masks.items() if mask is not None},
            "arch": self.target or self.arch,
            "metadata": self.metadata,
        }


def interpret(archive: Archive) -> TensorMemoryFile:
    """Return the ``tcgen05.mma`` of an ``.npz`` archive, with operands and results. Check the archive."""
    opcode = parse_opcode(archive.string("instruction", ""))
    addresses = [*_ADDRESSES, *(("e",) if opcode.sparse else ()), *(_SCALES if opcode.scale_size else ())]
    archive.require(["idesc", "smem", "tmem", *addresses])
    images: dict[str, Any] = {}
    for key, (attribute, dtype, tail) in _IMAGES.items():
        if key in archive.arrays:
            value = archive.arrays[key]
            ctas = () if opcode.cta_group == 1 else (2,)
            expected = (*ctas, None, *tail)
            fits = len(expected) == value.ndim and all(
                size in (None, length) for size, length in zip(expected, value.shape, strict=True)
            )
            if value.dtype != dtype or not fits:
                axes = ", ".join(map(str, (*ctas, "case", *(size or "byte" for size in tail))))
                raise archive.refuse(key, f"a {np.dtype(dtype)} array of shape [{axes}]")
            images[attribute] = np.moveaxis(value, len(ctas), 0)
    target = archive.string("arch", _DEFAULT_ARCH)
    archive.count_cases({key: len(images[name]) for key, (name, _, _) in _IMAGES.items() if name in images})
    file = TensorMemoryFile(
        opcode=opcode,
        idesc=archive.integer("idesc"),
        addresses={key: archive.integer(key) for key in (*_ADDRESSES, "e", *_SCALES) if key in archive.arrays},
        enable_input_d=archive.flag("enable_input_d", True),
        scale_input_d=archive.integer("scale_input_d", 0),
        disable_output_lane=archive.integers(_MASKS, (0,) * 4) if _MASKS in archive.arrays else None,
        zero_column_mask=archive.integer(_COLUMN_MASK) if _COLUMN_MASK in archive.arrays else None,
        arch=same_numerics(target),
        metadata=archive.policy(),
        **images,
    )
    return file if target == file.arch else file.assuming(target, None)
