"""Number formats of the sparse tensor-core instructions, with one object for each format."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["FORMATS", "Format", "Specials", "low_bit"]


class Specials(Enum):
    """Encoding of Inf and NaN in the highest codes of a number format."""

    IEEE = "ieee"  #: largest exponent field: fraction 0 is Inf, any other fraction is NaN
    NAN = "nan"  #: The code with all exponent and fraction bits set is NaN. There is no Inf.
    NONE = "none"  #: Every code is a finite number. There is neither Inf nor NaN.


@dataclass(frozen=True, kw_only=True)
class Format:
    """Number format of operands, accumulators or block scales.

    Source: PTX ISA, alternate floating-point data formats; OCP MX v1.0; measured on an H200 for tf32 (a NaN whose
    fraction is non-zero only in the 13 dropped bits becomes Inf).
    """

    name: str  #: Name of the number format as a PTX type, without the dot
    signed: bool  #: Whether the format is signed: floats have a sign bit, integers are in two's complement
    #: Widths of exponent and fraction in bits. An integer has no exponent. All bits of its magnitude count as fraction
    #: bits.
    exponent_bits: int = 0
    fraction_bits: int
    bias: int = 0  #: Bias of the exponent field, or 0 for integers
    specials: Specials = Specials.NONE  #: Encoding of Inf and NaN in the format's codes
    #: Whether exponent field 0 encodes zero and subnormals. False for ue8m0, in which code 0 is 2**-127.
    subnormals: bool = True
    #: Number of low bits of an element in a register that the hardware drops: 13 for tf32, otherwise 0.
    ignored_low_bits: int = 0

    @property
    def is_integer(self) -> bool:
        """Whether the number format is an integer format."""
        return self.exponent_bits == 0

    @property
    def bits(self) -> int:
        """Width of a code in bits: sign, exponent and fraction."""
        return int(self.signed) + self.exponent_bits + self.fraction_bits

    @property
    def container_bits(self) -> int:
        """Bits that an element occupies in a register: its code and the ignored low bits (32 for tf32)."""
        return self.bits + self.ignored_low_bits

    @property
    def minimum_exponent(self) -> int:
        """Exponent of the smallest normal number, shared by the subnormals."""
        return int(self.subnormals) - self.bias

    @property
    def maximum_exponent(self) -> int:
        """Exponent of the largest finite number of the format."""
        top = (1 << self.exponent_bits) - 1
        if self.specials is Specials.IEEE or (self.specials is Specials.NAN and self.fraction_bits == 0):
            top -= 1
        return top - self.bias

    @property
    def maximum(self) -> float:
        """Largest finite value of the number format."""
        if self.is_integer:
            return float((1 << self.fraction_bits) - 1)
        fraction = (1 << self.fraction_bits) - 1
        if self.specials is Specials.NAN and self.fraction_bits:
            fraction -= 1
        return (1 + fraction / (1 << self.fraction_bits)) * 2.0**self.maximum_exponent


def _float(name: str, exponent_bits: int, fraction_bits: int, specials: Specials, **others: Any) -> Format:
    return Format(
        name=name,
        exponent_bits=exponent_bits,
        fraction_bits=fraction_bits,
        bias=(1 << (exponent_bits - 1)) - 1,
        specials=specials,
        **{"signed": True, **others},
    )


#: Number formats by PTX type name.
FORMATS: dict[str, Format] = {
    record.name: record
    for record in (
        _float("f32", 8, 23, Specials.IEEE),
        _float("f16", 5, 10, Specials.IEEE),
        _float("bf16", 8, 7, Specials.IEEE),
        _float("tf32", 8, 10, Specials.IEEE, ignored_low_bits=13),
        _float("e4m3", 4, 3, Specials.NAN),
        _float("e5m2", 5, 2, Specials.IEEE),
        _float("e3m2", 3, 2, Specials.NONE),
        _float("e2m3", 2, 3, Specials.NONE),
        _float("e2m1", 2, 1, Specials.NONE),
        _float("ue8m0", 8, 0, Specials.NAN, signed=False, subnormals=False),
        _float("ue4m3", 4, 3, Specials.NAN, signed=False),
        Format(name="s32", signed=True, fraction_bits=31),
        Format(name="s8", signed=True, fraction_bits=7),
        Format(name="u8", signed=False, fraction_bits=8),
        Format(name="s4", signed=True, fraction_bits=3),
        Format(name="u4", signed=False, fraction_bits=4),
    )
}


def low_bit(fmt: Format, container_bits: int) -> int:
    """Return the position of the lowest bit of an element of A or B among the `container_bits` bits that store it.

    Source: PTX ISA 9.7.14.6.3. An unpacked e2m1 is in bits 5:2 of a byte, six-bit types are in bits 5:0, tf32 is in
    bits 31:13 of a word.
    """
    return 2 if container_bits == 8 and fmt.bits == 4 else fmt.ignored_low_bits
