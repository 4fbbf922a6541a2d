"""Numerics of each instruction and architecture: number of products per rounded sum, alignment and rounding.

Numerics are the parameters of a *truncated fused dot-product-add* (T-FDPA): it aligns the products of a step and the
accumulator to the largest exponent, truncates each of these terms `alignment_bits` below that exponent, sums them
exactly and rounds once.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from ..errors import OperandError, shown
from .formats import FORMATS
from .instructions import Instruction, require_architecture

__all__ = [
    "BLOCK_ALIGNMENT_BITS",
    "BLOCK_GROUP",
    "DATAPATHS",
    "NO_FLOOR",
    "OPEN_RULES",
    "PART_OF_GROUP",
    "Alignment",
    "Datapath",
    "Method",
    "Numerics",
    "OpenRule",
    "Rounding",
    "numerics",
    "zero_exponent_for",
]

#: Number of products per group in kinds mxf4 and mxf4nvf4. The products of a group are summed exactly before the block
#: scales are applied.
BLOCK_GROUP = 16
#: Some published models truncate sums of this number of products, instead of sums of 16 (:data:`OPEN_RULES`).
PART_OF_GROUP = 4
#: Value of the exponent floor e_zero that has no effect: -28 - 254, the exponent of the smallest product of e5m2
#: elements with ue8m0 scales. No nonzero term has a smaller exponent.
NO_FLOOR = -282


class Method(Enum):
    """Method by which an instruction computes a result from its products and its accumulator."""

    FUSED = "fused"  #: each T-FDPA (truncated fused dot-product-add) sums `step` products and the accumulator
    GROUPED = "grouped"  #: truncated fused dot-product-add of groups of 16 products, each with its own scales
    #: T-FDPA (truncated fused dot-product-add) sums the products of the even pairs of stored elements (bytes 0 and 1
    #: of each register). A second T-FDPA adds the odd pairs (bytes 2 and 3). An IEEE addition then adds C.
    EMULATED = "emulated"
    INTEGER = "integer"  #: The products and C are summed exactly. The sum is then clamped or wrapped once.


class Alignment(Enum):
    """Rounding of an aligned term to the last bit that alignment keeps, ``2**(e_max - F)``."""

    TOWARD_ZERO = "toward zero"  #: Round toward zero: bits below the last bit kept are dropped from the magnitude.
    # No architecture uses `DOWN` and `NEAREST`: they define test models that are wrong in one parameter.
    DOWN = "down"  #: Round toward minus infinity: bits below the last bit kept are dropped from the two's complement.
    NEAREST = "to the nearest"  #: round to nearest even


class Rounding(Enum):
    """Rounding of the exact sum of the aligned products and the accumulator to the format of the result."""

    RZ_F32 = "RZ-f32"  #: truncation of the exact sum to f32. Overflow gives Inf.
    RZ_E8M13 = "RZ-E8M13"  #: truncation to 13 fraction bits, stored in an f32
    RNE_F16 = "RNE-f16"  #: round the exact sum to nearest even in f16
    EXACT = "exact"  #: no rounding: sums of integers are exact
    # No architecture uses `RNE_F32`, `RNE_E8M13` and `RZ_F16`: they define test models that are wrong in one parameter.
    RNE_F32 = "RNE-f32"  #: round the exact sum to nearest even in f32
    RNE_E8M13 = "RNE-E8M13"  #: round to nearest even with 13 fraction bits, stored in an f32
    RZ_F16 = "RZ-f16"  #: truncation to f16. 2**16 and beyond gives Inf.


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """Numerics of one instruction on one architecture."""

    method: Method
    step: int  #: Number of products (L) per rounded sum. An instruction computes its sums one after another along K.
    alignment_bits: int = 0  #: F: each product and the accumulator keep F bits below e_max, their largest exponent
    zero_exponent: int = 0  #: e_zero: lower limit of the largest exponent of the addends, and exponent of zero addends
    rounding: Rounding  #: Rounding of the exact sum of aligned products and accumulator in each step
    alignment: Alignment = Alignment.TOWARD_ZERO  #: Rounding of each term to the last bit that alignment keeps
    #: Number of products that method ``GROUPED`` sums exactly before truncation: 16 or 4. The value 4 applies only to
    #: outputs in which a scaled product has a larger exponent than the accumulator; e_max, the largest exponent, then
    #: does not include the exponent of the accumulator. All other outputs are computed as with 16.
    group: int = BLOCK_GROUP
    source: str

    @property
    def rounds_to_half(self) -> bool:
        """Whether each sum of products and accumulator is rounded to f16."""
        return self.rounding in _HALF

    def replace(self, *, products: int | None = None, **changes: Any) -> "Numerics":
        """Return the numerics with changed fields, to compute the results of a datapath with other parameters.

        Parameters
        ----------
        products : int, optional
            Kept products per step, another name of `step`: a power of two up to 64, and at least 16 for method
            ``GROUPED``. Only one of the two names may be given.
        **changes
            Other fields: `alignment_bits` (F, from 1 to one more than any architecture has); `rounding`, as a member or
            its value: ``"RZ-f32"``, ``"RZ-E8M13"``, ``"RNE-f32"`` or ``"RNE-E8M13"``, for an f16 accumulator
            ``"RNE-f16"`` or ``"RZ-f16"``; `alignment`, likewise: ``"toward zero"``, ``"down"`` or ``"to the nearest"``;
            for method ``GROUPED`` also `group`, 16 or 4. Back end ``native`` computes neither the last two values of
            `alignment` nor ``"RNE-E8M13"`` and ``"RZ-f16"``. The floor of the largest exponent changes with F, as in
            the hardware, unless `zero_exponent` is the old floor or :data:`NO_FLOOR`.

        Raises
        ------
        OperandError
            The sums are integers, a field does not exist or cannot be changed, or a value is not accepted.
        """
        if self.method is Method.INTEGER:
            raise OperandError("integer instructions sum exactly: their numerics have no parameters to change")
        if products is not None:
            if "step" in changes:
                raise OperandError("products and step are two names of one number: give only one of them")
            changes["step"] = products
        grouped, half = self.method is Method.GROUPED, self.rounds_to_half
        most = 1 + (BLOCK_ALIGNMENT_BITS if grouped else max(one.alignment_bits for one in DATAPATHS.values()))
        accepted: dict[str, dict[Any, Any]] = {
            "step": {size: size for size in (1, 2, 4, 8, 16, 32, 64) if not grouped or size >= BLOCK_GROUP},
            "alignment_bits": {bits: bits for bits in range(1, most + 1)},
            "rounding": {one.value: one for one in Rounding if one is not Rounding.EXACT and (one in _HALF) == half},
            "alignment": {one.value: one for one in Alignment},
            "zero_exponent": {floor: floor for floor in (self.zero_exponent, NO_FLOOR)},
            **({"group": {size: size for size in (BLOCK_GROUP, PART_OF_GROUP)}} if grouped else {}),
        }
        # If this record's exponent floor e_zero was derived from F (alignment bits), derive it again from the new F.
        # Native fp8 keeps its e_zero, which was derived from the larger F of the datapath's other formats.
        floor = self.zero_exponent + self.alignment_bits
        derived = floor == zero_exponent_for(0, half_result=half, grouped=grouped)
        for name in sorted(changes, key=lambda name: name == "zero_exponent"):  # F adds an accepted value
            value = changes[name]
            if name not in accepted:
                raise OperandError(f"field {shown(name)} of numerics cannot be changed, only {', '.join(accepted)}")
            word = value.value if isinstance(value, Enum) else value.item() if isinstance(value, np.generic) else value
            if type(word) not in (int, str) or word not in accepted[name]:
                words = ", ".join(map(str, accepted[name]))
                raise OperandError(f"{name} must be one of {words}, not {shown(value)}")
            changes[name] = accepted[name][word]
            if name == "alignment_bits" and derived:
                new = floor - changes[name]
                accepted["zero_exponent"][new] = new
                changes.setdefault("zero_exponent", new)
        return replace(self, **changes, source=f"changed from: {self.source}")


#: Rounding modes whose result is an f16.
_HALF = (Rounding.RNE_F16, Rounding.RZ_F16)


@dataclass(frozen=True, kw_only=True)
class OpenRule:
    """Numerics parameter that differs between public models of sm_100 and sm_120. No public result determines it."""

    name: str  #: Description of the numerics parameter with its alternative value
    field: str  #: Name of the field of :class:`Numerics` that holds the parameter
    alternative: int  #: Value of the :class:`Numerics` field in the alternative model
    evidence: str  #: Published evidence for the value of the parameter in use and for its alternative value

    def applies(self, instruction: Instruction, parameters: Numerics) -> bool:
        """Return whether the value of this parameter affects an instruction with these numerics."""
        if self.field == "group":
            return instruction.scale_format is not None and instruction.scale_format.name == "ue4m3"
        return parameters.method is Method.FUSED

    def change(self, instruction: Instruction, parameters: Numerics) -> Numerics:
        """Return the numerics with the parameter's alternative value, or unchanged if the value has no effect."""
        if not self.applies(instruction, parameters):
            return parameters
        return replace(parameters, **{self.field: self.alternative})  # type: ignore[arg-type]


#: Numerics parameters whose values only a recording of a Blackwell GPU can determine. The model uses the alternative
#: value of a parameter only if argument `alternatives` of :func:`numerics` contains the key of the parameter in this
#: table.
OPEN_RULES = {
    "floor": OpenRule(
        name="no floor of the largest exponent",
        field="zero_exponent",
        alternative=NO_FLOOR,
        evidence="value in use, e_zero: recorded on an H200, and MMA-Sim 2.1.1 for Blackwell; alternative, no floor: "
        "the model of sf-tensor/tcgen05 (commit 8fce64d), which its authors compared with a B200. For kinds mxf4 and "
        "mxf4nvf4 with ue8m0 scales, both models have the floor 2**-174, which is e_zero less F",
    ),
    "group": OpenRule(
        name="sums of four products truncated under ue4m3 scales",
        field="group",
        alternative=PART_OF_GROUP,
        evidence="value in use, 16: MMA-Sim 2.1.1; alternative, 4: the model of sf-tensor/tcgen05 (commit 8fce64d), "
        "which its authors compared with a B200",
    ),
}


_MEASURED = "recorded on an NVIDIA H200 (sm_90a, driver 580.159, CUDA 13.0) on 2026-11-20"
_DENSE_MODEL = "published models of the dense instruction (MMA-Sim 2.1.1; Khattak and Mikaitis) behind a multiplexer"
_EMULATION = "machine code of the CUDA 13.0 assembler: fp8 unpacked to f16, two f16 steps and an f32 addition"


@dataclass(frozen=True)
class Datapath:
    """Numerics parameters that all instructions of an architecture share."""

    step_bytes: int  #: Bytes of a row of stored A whose products form one rounded sum, for every element type
    alignment_bits: int  #: F: number of bits of each addend kept below the largest exponent of the addends
    fp8_alignment_bits: int  #: F (bits kept below the largest exponent of the addends) with native fp8


#: Datapath parameters of each architecture. Without native fp8, `fp8_alignment_bits` equals `alignment_bits`.
DATAPATHS = {
    "sm_80": Datapath(16, 24, 24),
    "sm_86": Datapath(16, 24, 24),
    "sm_89": Datapath(16, 24, 13),
    "sm_90": Datapath(32, 25, 13),
    "sm_100": Datapath(32, 25, 25),
    "sm_120": Datapath(32, 25, 25),
}
#: F, the number of bits of each addend kept below the largest exponent, for kinds mxf4 and mxf4nvf4.
BLOCK_ALIGNMENT_BITS = 35


def zero_exponent_for(
    alignment_bits: int, *, half_result: bool = False, grouped: bool = False, floor: bool = True
) -> int:
    """Return e_zero, the lower limit of the largest exponent, for F = `alignment_bits` and the kind of instruction.

    Without `floor`, return an exponent that no nonzero term falls below. Scaled groups keep their floor, which all
    public models have.
    """
    if not floor and not grouped:
        return 2 * FORMATS["f16"].minimum_exponent if half_result else NO_FLOOR
    return (4 if half_result else -104 if grouped else -108) - alignment_bits


def numerics(instruction: Instruction, arch: str, alternatives: Collection[str] = ()) -> Numerics:
    """Return the numerics of an instruction on an architecture.

    `alternatives` are the keys of :data:`OPEN_RULES` whose alternative value applies instead of the value in use. Raise
    an `InstructionError` if the architecture does not have the instruction.
    """
    require_architecture(instruction, arch)
    parameters = _built(instruction, arch)
    for key in alternatives:
        parameters = OPEN_RULES[key].change(instruction, parameters)
    return parameters


def _built(instruction: Instruction, arch: str) -> Numerics:
    measured = arch == "sm_90"
    source = _MEASURED if measured else _DENSE_MODEL
    datapath = DATAPATHS[arch]
    step = datapath.step_bytes * 8 // instruction.container_bits
    if instruction.a.is_integer:
        return Numerics(method=Method.INTEGER, step=step, rounding=Rounding.EXACT, source=source)
    if instruction.kind in ("mxf4", "mxf4nvf4"):
        return Numerics(
            method=Method.GROUPED,
            step=step,
            alignment_bits=BLOCK_ALIGNMENT_BITS,
            zero_exponent=zero_exponent_for(BLOCK_ALIGNMENT_BITS, grouped=True),
            rounding=Rounding.RZ_F32,
            source=source,
        )
    half_result = instruction.d.name == "f16"
    rounding = Rounding.RNE_F16 if half_result else Rounding.RZ_F32
    method = Method.FUSED
    alignment_bits = datapath.alignment_bits
    # The exponent floor e_zero depends on the datapath's alignment bits (F), not on the smaller F of native fp8.
    zero_exponent = zero_exponent_for(alignment_bits, half_result=half_result)
    if instruction.container_bits == 8:
        # On sm_90 and sm_100 only `wgmma` and `tcgen05.mma` compute fp8 in hardware. The assembler emulates fp8 `mma`.
        if instruction.family == "mma" and arch in ("sm_90", "sm_100"):
            method = Method.EMULATED
            step = datapath.step_bytes * 8 // 16
            source = source if measured else _EMULATION
        elif datapath.fp8_alignment_bits < alignment_bits:
            alignment_bits = datapath.fp8_alignment_bits
            rounding = rounding if half_result else Rounding.RZ_E8M13
    return Numerics(
        method=method,
        step=step,
        alignment_bits=alignment_bits,
        zero_exponent=zero_exponent,
        rounding=rounding,
        source=source,
    )
