"""Configurations of datapaths, which are immutable and validated, and preset configurations for GPU architectures."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ..errors import Error
from ..isa.formats import FORMATS, Format, low_bit
from ..isa.instructions import Instruction
from ..isa.metadata import MUX_OF_ARCHITECTURE, is_wide
from ..isa.numerics import BLOCK_ALIGNMENT_BITS, BLOCK_GROUP, DATAPATHS, PART_OF_GROUP

__all__ = [
    "BLOCK_SCALES",
    "CUTS",
    "MUXES",
    "PRESETS",
    "PRESET_OF_ARCHITECTURE",
    "STAGE_CUTS",
    "WARP_COLUMNS",
    "WARP_ROWS",
    "WARP_SEGMENT_BYTES",
    "ConfigError",
    "CoreConfig",
    "Element",
    "with_alignment",
]

#: Possible positions of pipeline registers (cuts), in the order of the data flow. A register follows a stage, or is
#: inside a stage: after the products, the adder tree, the count of leading digits or the normalising shift.
CUTS = ("select", "product", "multiply", "align", "tree", "reduce", "count", "normalise", "round")
#: Positions of pipeline registers (cuts) that have the name of a stage. They are the default cuts of a configuration.
STAGE_CUTS = ("select", "multiply", "align", "reduce", "round")
#: Types of the multiplexers that select elements of B by metadata. Each chunk (four units of B along K) has two 4:1
#: multiplexers (``mux4``) or two 3:1 multiplexers (``mux3``).
MUXES = ("mux4", "mux3")
#: Names of the formats of block scales.
BLOCK_SCALES = ("ue8m0", "ue4m3")
#: Number of rows and number of columns of the result D of an ``mma`` instruction of shape m16n8.
WARP_ROWS, WARP_COLUMNS = 16, 8
#: Number of bytes in one segment of a row of A. A segment occupies one 32-bit register in each of the four lanes of a
#: quad. A row of A has one or two segments.
WARP_SEGMENT_BYTES = 16


class ConfigError(Error):
    """Error for an invalid datapath configuration. The message names the invalid field."""


@dataclass(frozen=True)
class Element:
    """An element format and the width of the container that stores the element in an operand."""

    format: Format
    #: Width in bits of the container that stores one element. For e2m1, the width is 8 or 4, depending on the kind of
    #: the instruction. Every other format has only one container width.
    container_bits: int

    @classmethod
    def parse(cls, word: str) -> "Element":
        """Parse the name of an element format: ``f16``, or ``e2m1/4`` for e2m1 in 4 bits (two elements per byte)."""
        name, _, width = word.partition("/")
        fmt = FORMATS.get(name)
        if fmt is None or fmt.name in ("f32", "s32", *BLOCK_SCALES):
            raise ConfigError(f"formats: {word!r} is not the name of an element format")
        natural = max(8, fmt.container_bits) if not fmt.is_integer else fmt.container_bits
        containers = (8, 4) if fmt.name == "e2m1" else (natural,)
        if width and width not in map(str, containers):
            raise ConfigError(f"formats: the container width in {word!r} is invalid for {name}")
        return cls(fmt, int(width) if width else natural)

    @property
    def packed_float(self) -> bool:
        """Whether the element is packed e2m1, two elements per byte. Products of packed e2m1 form groups of 16."""
        return self.container_bits == 4 and not self.format.is_integer

    @property
    def fixed_point(self) -> bool:
        """Whether the significand is an integer: in integer formats, and in packed e2m1, where it counts halves."""
        return self.format.is_integer or self.packed_float

    @property
    def significand_bits(self) -> int:
        """Width in bits of the unsigned significand: hidden bit and fraction of a float, or magnitude of an integer."""
        if self.packed_float:
            return 4
        if self.format.is_integer:
            return self.format.bits
        return self.format.fraction_bits + 1

    @property
    def low_bit(self) -> int:
        """Position of the element's lowest bit in the container that stores the element."""
        return low_bit(self.format, self.container_bits)

    @property
    def wide(self) -> bool:
        """Whether metadata selects elements of this format in units of 16 bits (:func:`sptc.isa.metadata.is_wide`)."""
        return is_wide(self.container_bits)

    def __str__(self) -> str:
        return f"{self.format.name}/{self.container_bits}" if self.packed_float else self.format.name


#: Fields of a configuration that affect only float formats.
_FLOAT_FIELDS = ("alignment_bits", "fp8_alignment_bits", "block_alignment_bits", "exponent_floor", "group")
#: Maximum value of each of the configuration fields `rows`, `columns` and `step_bytes`. Known hardware has far smaller
#: values.
_MOST = 256


@dataclass(frozen=True, kw_only=True)
class CoreConfig:
    """Configuration of one datapath: formats, widths, array size and pipeline registers."""

    name: str  #: Name of the configuration in file headers and messages
    #: Names of the datapath's element formats, in the syntax of :meth:`Element.parse`.
    formats: tuple[str, ...]
    scales: tuple[str, ...] = ()  #: Names of the datapath's block scale formats: ``ue8m0``, ``ue4m3``
    #: Bytes of stored A that a dot-product unit takes each cycle: 16 or 32 on known architectures, at most 256.
    step_bytes: int = 32
    alignment_bits: int = 25  #: F: number of bits below ``2**e_max`` that alignment keeps (e_max: largest exponent)
    fp8_alignment_bits: int = 25  #: F (number of bits kept by alignment) of 8-bit floats, at most `alignment_bits`
    block_alignment_bits: int = BLOCK_ALIGNMENT_BITS  #: F (number of bits kept by alignment) of packed e2m1
    #: Whether the alignment exponent e_max is never below e_zero, the alignment exponent for a step of zeros. No
    #: recorded result shows whether Blackwell GPUs have this rule (:data:`~sptc.isa.numerics.OPEN_RULES`).
    exponent_floor: bool = True
    #: Number of products of packed e2m1 whose sum is truncated as one term: 16 or 4. The value 4 applies to steps with
    #: ue4m3 scales, as :attr:`sptc.isa.numerics.Numerics.group` describes. No recorded result of a GPU shows which
    #: value is right.
    group: int = BLOCK_GROUP
    mux: str = "mux4"  #: Type of the operand multiplexers, ``mux4`` or ``mux3`` (see :data:`MUXES`)
    #: Number of rows and of columns of dot-product units in the array, at most 256 each.
    rows: int = 4
    columns: int = 4
    #: Positions of pipeline registers: a subset of :data:`CUTS` in the same order. The number of these positions is the
    #: latency in cycles.
    cuts: tuple[str, ...] = STAGE_CUTS
    #: Whether metadata selects elements of B. Without this selection, the ports are the same, and A is multiplied by
    #: the low half of B.
    sparse: bool = True

    def __post_init__(self) -> None:
        def need(condition: bool, field: str, expected: str) -> None:
            if not condition:
                raise ConfigError(f"{field} must be {expected}, not {getattr(self, field)!r}")

        need(isinstance(self.formats, tuple) and len(self.formats) > 0, "formats", "a tuple of at least one format")
        need(all(isinstance(word, str) for word in self.formats), "formats", "a tuple of words such as 'f16'")
        elements = tuple(Element.parse(word) for word in self.formats)
        need(len(set(elements)) == len(elements), "formats", "a tuple without repetitions")
        need(isinstance(self.scales, tuple), "scales", "a tuple")
        need(all(scale in BLOCK_SCALES for scale in self.scales), "scales", f"among {', '.join(BLOCK_SCALES)}")
        need(len(set(self.scales)) == len(self.scales), "scales", "a tuple without repetitions")
        for field in ("step_bytes", "rows", "columns"):
            value = getattr(self, field)
            need(isinstance(value, int) and 0 < value <= _MOST, field, f"an integer from 1 to {_MOST}")
        need(self.step_bytes % 4 == 0, "step_bytes", "a multiple of 4")
        need(self.mux in MUXES, "mux", " or ".join(map(repr, MUXES)))
        in_order = isinstance(self.cuts, tuple) and tuple(cut for cut in CUTS if cut in self.cuts) == self.cuts
        need(in_order, "cuts", f"a subset of {CUTS} in that order")
        packed = any(element.packed_float for element in elements)
        need(not packed or bool(self.scales), "scales", "given for packed e2m1, which has no unscaled instruction")
        narrow = any(element.container_bits == 4 for element in elements)
        need(
            not narrow or self.step_bytes % 8 == 0,
            "step_bytes",
            "a multiple of 8 with 4-bit elements, which are summed in groups of 16",
        )
        small = self.group == PART_OF_GROUP and "ue4m3" in self.scales
        need(self.group == BLOCK_GROUP or small, "group", f"{BLOCK_GROUP}, or {PART_OF_GROUP} with ue4m3 scales")
        at_most = "at most 32, since a step has block scales for only four groups"
        need(not packed or self.step_bytes <= 32, "step_bytes", at_most)
        floats8 = any(element.container_bits == 8 and not element.format.is_integer for element in elements)
        without = "empty without a format that is block-scaled (fp8 or e2m1/4)"
        need(not self.scales or packed or floats8, "scales", without)
        need("ue4m3" not in self.scales or packed, "scales", "without 'ue4m3' unless formats include e2m1/4")
        for field in ("alignment_bits", "fp8_alignment_bits", "block_alignment_bits"):
            value = getattr(self, field)
            need(isinstance(value, int) and 8 <= value <= 40, field, "an integer from 8 to 40")
        bits = self.alignment_bits
        fits = not packed or self.block_alignment_bits >= bits
        need(fits, "block_alignment_bits", f"at least alignment_bits ({bits})")
        widest = max(element.significand_bits for element in elements)
        has_float = any(not element.fixed_point for element in elements)
        at_least = f"at least {2 * (widest - 1)}, the fraction bits of a product of these formats"
        need(not has_float or bits >= 2 * (widest - 1), "alignment_bits", at_least)
        need(self.fp8_alignment_bits <= bits, "fp8_alignment_bits", f"at most alignment_bits ({bits})")
        for field in ("sparse", "exponent_floor"):
            need(isinstance(getattr(self, field), bool), field, "True or False")

    @property
    def used_fields(self) -> dict[str, Any]:
        """Configuration fields that affect the hardware, by name, without fields for floats if no format is a float."""
        unused = () if any(not element.format.is_integer for element in self.elements) else _FLOAT_FIELDS
        return {name: value for name, value in asdict(self).items() if name not in unused}

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        """Element formats of the datapath. The index of a format is the code of the format in the control word."""
        return tuple(Element.parse(word) for word in self.formats)

    def element_code(self, fmt: Format, container_bits: int) -> int:
        """Return the code of an element format in the control word.

        Raises
        ------
        ConfigError
            This datapath does not have the element format.
        """
        element = Element(fmt, container_bits)
        if element not in self.elements:
            raise ConfigError(f"formats of {self.name} ({', '.join(self.formats)}) do not include {element}")
        return self.elements.index(element)

    def slots_of(self, element: Element) -> int:
        """Return the number of products that a dot-product unit computes per cycle, for an element format."""
        return self.step_bytes * 8 // element.container_bits

    @property
    def chunks(self) -> int:
        """Number of metadata nibbles per cycle for 8-bit elements. Each nibble serves two bytes of stored A."""
        return self.step_bytes // 2

    @property
    def always_wide(self) -> bool:
        """Whether metadata selects 16-bit parts of B for all element formats."""
        return all(element.wide for element in self.elements)

    @property
    def warp_blocks(self) -> int:
        """Number of blocks (each the rows x columns outputs of one cycle) into which 16 x 8 outputs are divided."""
        return (WARP_ROWS // self.rows) * (WARP_COLUMNS // self.columns)

    @property
    def warp_items(self) -> int:
        """Maximum number of ``mma`` instructions in progress in a warp. The proof ``warp.order`` reaches this maximum.

        One instruction issues its blocks of outputs, and another instruction waits at the output of the warp with its
        results. Between these two, the pipeline stages hold as many instructions as can have all their blocks in the
        pipeline.
        """
        return 2 + self.latency // self.warp_blocks

    @property
    def interleaved(self) -> bool:
        """Whether bytes of two groups of four bytes of B alternate, so that multiplexers select 8 or 16 bits."""
        return self.sparse and len({element.wide for element in self.elements}) > 1

    @property
    def latency(self) -> int:
        """Latency of a dot-product unit in cycles: the number of cuts (positions of pipeline registers)."""
        return len(self.cuts)

    def elements_of_slot(self, slot: int) -> tuple[Element, ...]:
        """Return the element formats that a product slot of the dot-product unit serves."""
        return tuple(element for element in self.elements if slot < self.slots_of(element))

    @property
    def slots(self) -> int:
        """Number of product slots (multipliers) per dot-product unit."""
        return max(self.slots_of(element) for element in self.elements)

    @property
    def term_slots(self) -> int:
        """Number of product slots that serve elements stored in containers of 8 bits or more."""
        return max((self.slots_of(element) for element in self.elements if element.container_bits > 4), default=0)

    def require_warp(self) -> None:
        """Raise an error if the array of dot-product units cannot execute ``mma`` instructions of a warp.

        Raises
        ------
        ConfigError
            `rows` does not divide 16, `columns` does not divide 8, `step_bytes` is neither 16 nor 32, or `step_bytes`
            is 16 in a datapath with packed e2m1.
        """
        if WARP_ROWS % self.rows or WARP_COLUMNS % self.columns:
            raise ConfigError(
                f"rows must divide {WARP_ROWS} and columns must divide {WARP_COLUMNS} in the array of a warp, "
                f"not {self.rows} and {self.columns}"
            )
        if self.step_bytes not in (WARP_SEGMENT_BYTES, 2 * WARP_SEGMENT_BYTES):
            raise ConfigError(f"step_bytes must be 16 or 32 in the array of a warp, not {self.step_bytes}")
        # A warp passes the same block scales to both steps of an instruction, so an instruction of packed e2m1 must fit
        # in one step.
        if self.step_bytes == WARP_SEGMENT_BYTES and any(element.packed_float for element in self.elements):
            raise ConfigError(f"step_bytes must be 32 in the array of a warp with e2m1/4, not {self.step_bytes}")

    @property
    def serves_warp(self) -> bool:
        """Whether the array of dot-product units can execute ``mma`` of a warp, as :meth:`require_warp` checks."""
        try:
            self.require_warp()
        except ConfigError:
            return False
        return True

    def warp_interval(self, steps: int) -> int:
        """Return the interval in cycles between ``mma`` of 16 x 8 outputs whose K is computed in `steps` parts.

        A step takes one cycle for each block of rows x columns outputs. If the number of blocks does not exceed the
        latency in cycles, each step waits for the results of the previous step.
        """
        blocks = self.warp_blocks
        return steps * blocks + (steps - 1) * max(0, self.latency + 1 - blocks)

    def warp_latency(self, steps: int) -> int:
        """Return the latency in cycles of an ``mma`` of 16 x 8 outputs whose K is computed in `steps` parts."""
        return self.warp_interval(steps) + self.latency + 1

    def holds(self, instruction: Instruction) -> bool:
        """Return whether the datapath has the formats of an instruction and, if it is sparse, selection by metadata."""
        if instruction.sparse and not self.sparse:
            return False
        elements = [Element(fmt, instruction.container_bits) for fmt in (instruction.a, instruction.b)]
        scale = instruction.scale_format
        return all(element in self.elements for element in elements) and (scale is None or scale.name in self.scales)


def with_alignment(base: CoreConfig | type[CoreConfig], bits: int) -> dict[str, Any]:
    """Return the alignment widths of all formats after field `alignment_bits` of a configuration is set to `bits`.

    The keys are names of fields. 8-bit floats also get the width `bits`, unless `base` keeps fewer bits of 8-bit floats
    than of other floats. The width of packed e2m1 only increases. `base` may be the class `CoreConfig`, for the default
    widths.
    """
    own = base.fp8_alignment_bits < base.alignment_bits
    return {
        "alignment_bits": bits,
        "fp8_alignment_bits": min(base.fp8_alignment_bits, bits) if own else bits,
        "block_alignment_bits": max(base.block_alignment_bits, bits),
    }


_FP8_AND_SMALLER = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_BLACKWELL = ("f16", "bf16", "tf32", "s8", "u8", *_FP8_AND_SMALLER, "e2m1/4")


def _preset(name: str, arch: str, formats: tuple[str, ...], **others: Any) -> CoreConfig:
    """Return a datapath with the bytes per cycle, the alignment bits and the multiplexers of an architecture."""
    return CoreConfig(name=name, formats=formats, **asdict(DATAPATHS[arch]), mux=MUX_OF_ARCHITECTURE[arch], **others)


#: Preset datapaths; the keys are the names of the presets. Preset `hopper` has the throughput measured on an H200: one
#: sparse f16 instruction m16n8k32 every eight cycles.
PRESETS: dict[str, CoreConfig] = {
    config.name: config
    for config in (
        _preset("ampere", "sm_80", ("f16", "bf16", "tf32", "s8", "u8", "s4", "u4")),
        _preset("ada", "sm_89", ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "s4", "u4")),
        _preset("hopper", "sm_90", ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")),
        _preset("blackwell", "sm_100", _BLACKWELL, scales=BLOCK_SCALES),
        _preset("rtx-blackwell", "sm_120", _BLACKWELL, scales=BLOCK_SCALES),
        _preset("tiny", "sm_80", ("f16", "s8"), rows=1, columns=2, cuts=("multiply", "reduce")),
    )
}

#: Key: architecture. Value: name of the preset datapath that executes the instructions of this architecture.
PRESET_OF_ARCHITECTURE = {
    "sm_80": "ampere",
    "sm_86": "ampere",
    "sm_89": "ada",
    "sm_90": "hopper",
    "sm_100": "blackwell",
    "sm_120": "rtx-blackwell",
}
