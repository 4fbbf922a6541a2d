"""The 32-bit instruction descriptor of ``tcgen05.mma``: shape, types and options."""

from dataclasses import dataclass

from ..errors import OperandError, shown
from .instructions import Instruction, one_of
from .tcgen05 import KINDS, Opcode, build_instruction

__all__ = [
    "MAX_SHIFTS",
    "InstructionDescriptor",
    "decode_instruction_descriptor",
    "descriptor_fields",
    "encode_instruction_descriptor",
    "m_unit",
]

#: Lowest bit and width in bits of each field of an instruction descriptor (PTX ISA, instruction descriptor), in three
#: formats: for kinds without block scales, for mxf8f6f4, and for the kinds with packed 4-bit elements.
_PLAIN = {"sparsity_selector": (0, 2), "sparse": (2, 1), "saturate": (3, 1), "d": (4, 2), "a": (7, 3), "b": (10, 3),
          "negate_a": (13, 1), "negate_b": (14, 1), "transpose_a": (15, 1), "transpose_b": (16, 1),
          "n": (17, 6), "m": (24, 5), "max_shift": (30, 2)}  # fmt: skip
_SCALED = {"sparse": (2, 1), "scale_id_b": (4, 2), "a": (7, 3), "b": (10, 3),
           "negate_a": (13, 1), "negate_b": (14, 1), "transpose_a": (15, 1), "transpose_b": (16, 1),
           "n": (17, 6), "scale_type": (23, 1), "m": (27, 2), "scale_id_a": (29, 2)}  # fmt: skip
_PACKED = {**_SCALED, "b": (10, 2), "k": (31, 1)}


@dataclass(frozen=True, kw_only=True)
class InstructionDescriptor:
    """A decoded instruction descriptor of ``tcgen05.mma``."""

    #: Instruction with the shape, types and saturation of the descriptor, and the kind and scale size of the opcode.
    instruction: Instruction
    sparsity_selector: int = 0
    #: Whether the elements of A and of B are negated.
    negate_a: bool = False
    negate_b: bool = False
    #: Whether A and B are MN-major in shared memory.
    transpose_a: bool = False
    transpose_b: bool = False
    #: Byte (0 to 3) of the tensor-memory word that holds the first block scale of A and of B.
    scale_id_a: int = 0
    scale_id_b: int = 0
    max_shift: int = 0  #: Maximum shift of B in columns when ``.ws`` reuses B: 0, 8, 16 or 32


#: Maximum shift of B in columns, indexed by the code in the instruction descriptor.
MAX_SHIFTS = (0, 8, 16, 32)


def decode_instruction_descriptor(opcode: Opcode, idesc: int) -> InstructionDescriptor:
    """Decode an instruction descriptor of 32 bits. The opcode determines the format of the descriptor.

    Raise an `OperandError` if the descriptor sets a reserved bit, has a sparsity bit that contradicts the opcode, or
    holds a shape, type or option that the instruction does not have.

    Source: PTX ISA, instruction descriptor; matrix shapes; transpose and negate; sparsity selector.
    """
    if isinstance(idesc, bool) or not isinstance(idesc, int) or not 0 <= idesc < 1 << 32:
        raise OperandError(f"the instruction descriptor of {opcode} must be a 32-bit number, not {shown(idesc)}")
    kind, layout = KINDS[opcode.kind], descriptor_fields(opcode)
    where = f"instruction descriptor {idesc:#010x} of {opcode}"
    used = sum(((1 << width) - 1) << low for low, width in layout.values())
    if set_bits := idesc & ~used:
        raise OperandError(f"{where} sets the reserved bits {set_bits:#x}, which must be 0")
    fields = {name: idesc >> low & (1 << width) - 1 for name, (low, width) in layout.items()}
    _check_form(opcode, fields, where)
    scale_types = kind.scale_types.get(opcode.scale_size or 0, {})
    instruction = build_instruction(
        opcode,
        fields["m"] * m_unit(opcode),
        fields["n"] * 8,
        _name(kind.accumulators, fields["d"], "D", where) if "d" in fields else "f32",
        _name(kind.types, fields["a"], "A", where),
        _name(kind.types, fields["b"], "B", where),
        bool(fields.get("saturate")),
        _name(scale_types, fields["scale_type"], "the block scales", where) if scale_types else None,
    )
    descriptor = InstructionDescriptor(
        instruction=instruction,
        sparsity_selector=fields.get("sparsity_selector", 0),
        **{name: bool(fields[name]) for name in ("negate_a", "negate_b", "transpose_a", "transpose_b")},
        scale_id_a=fields.get("scale_id_a", 0),
        scale_id_b=fields.get("scale_id_b", 0),
        max_shift=MAX_SHIFTS[fields.get("max_shift", 0)],
    )
    _check(opcode, descriptor, where)
    return descriptor


def _check_form(opcode: Opcode, fields: dict[str, int], where: str) -> None:
    """Raise an error if the sparsity, K or saturation field of an instruction descriptor contradicts the opcode."""
    if opcode.sparse and not fields["sparse"]:
        raise OperandError(f"{where} describes a dense instruction; bit 2 must be 1 for '.sp'")
    if fields["sparse"] and not opcode.sparse:
        raise OperandError(f"{where} describes a sparse instruction; bit 2 must be 0 without '.sp'")
    if fields.get("k"):
        reason = "which only dense instructions have" if opcode.sparse else "which is not modelled"
        raise OperandError(f"{where} sets K = 96, {reason}; bit 31 must be 0")
    if fields.get("saturate") and opcode.kind != "i8":
        raise OperandError(f"{where} enables saturation, which only '.kind::i8' has; bit 3 must be 0")


def encode_instruction_descriptor(opcode: Opcode, descriptor: InstructionDescriptor) -> int:
    """Encode an instruction descriptor of 32 bits, the inverse of :func:`decode_instruction_descriptor`.

    Raise an `OperandError` if the instruction does not have the shape, types or options of `descriptor`.
    """
    where = f"an instruction descriptor of {opcode}"
    _check_fields(opcode, descriptor, where)
    _check(opcode, descriptor, where)
    kind, instruction = KINDS[opcode.kind], descriptor.instruction
    scale = instruction.scale_format
    values = vars(descriptor) | {
        "sparse": opcode.sparse,
        "saturate": instruction.satfinite,
        "d": kind.accumulators[instruction.d.name],
        "a": kind.types[instruction.a.name],
        "b": kind.types[instruction.b.name],
        "n": instruction.n // 8,
        "m": instruction.m // m_unit(opcode),
        "max_shift": MAX_SHIFTS.index(descriptor.max_shift),
        "scale_type": kind.scale_types[opcode.scale_size or 0][scale.name] if scale else 0,
        "k": 0,
    }
    return sum(int(values[name]) << low for name, (low, _) in descriptor_fields(opcode).items())


def descriptor_fields(opcode: Opcode) -> dict[str, tuple[int, int]]:
    """Return lowest bit and width in bits of each field of an opcode's instruction descriptor."""
    kind = KINDS[opcode.kind]
    return _PLAIN if not kind.scales else _SCALED if kind.transposes else _PACKED


def m_unit(opcode: Opcode) -> int:
    """Return the unit of the M field in an instruction descriptor: 128 rows of D with block scales, else 16 rows."""
    return 128 if KINDS[opcode.kind].scales else 16


def _check_fields(opcode: Opcode, descriptor: InstructionDescriptor, where: str) -> None:
    """Raise an error for a shape, type or shift that an instruction descriptor cannot encode."""
    kind, instruction = KINDS[opcode.kind], descriptor.instruction
    a, b, d = instruction.a.name, instruction.b.name, instruction.d.name
    for role, name, table in (("A", a, kind.types), ("B", b, kind.types), ("D", d, kind.accumulators)):
        if name not in table:
            names = one_of([f".{known}" for known in table])
            raise OperandError(f"the type of {role} in {where} must be {names}, not .{name}")
    if descriptor.max_shift not in MAX_SHIFTS:
        raise OperandError(
            f"the maximum shift in {where} must be {_numbers(MAX_SHIFTS)}, not {shown(descriptor.max_shift)}"
        )
    scale = instruction.scale_format
    scale_types = kind.scale_types.get(opcode.scale_size or 0, {})
    scale_type = scale.name if scale else None
    same = build_instruction(opcode, instruction.m, instruction.n, d, a, b, instruction.satfinite, scale_type)
    scale_fits = scale.name in scale_types if scale else not scale_types
    if instruction != same or not scale_fits or (instruction.satfinite and opcode.kind != "i8"):
        raise OperandError(f"{where} cannot encode {instruction}: the opcode has another K, saturation or block scales")


def _check(opcode: Opcode, descriptor: InstructionDescriptor, where: str) -> None:
    """Raise an error for a shape, type or option that fits into a descriptor, but that the instruction lacks."""
    kind, instruction = KINDS[opcode.kind], descriptor.instruction
    a, b, n = instruction.a, instruction.b, instruction.n
    for name, value, accepted in (("M", instruction.m, opcode.rows), ("N", n, opcode.columns)):
        if value not in accepted:
            raise OperandError(f"{name} in {where} must be {_numbers(accepted)}, not {shown(value)}")
    if not kind.mixes and a != b:
        raise OperandError(f"A and B in {where} must have the same type, not .{a.name} and .{b.name}")
    if instruction.d.name == "f16" and a.name == "bf16":
        raise OperandError(f"the type of D in {where} must be .f32 if A is .bf16, not .f16")
    for name, fmt, negated, transposed in (
        ("A", a, descriptor.negate_a, descriptor.transpose_a),
        ("B", b, descriptor.negate_b, descriptor.transpose_b),
    ):
        if negated and not kind.negates:
            raise OperandError(f"{where} negates {name}, which '.kind::{opcode.kind}' does not support")
        if transposed and not kind.transposes:
            raise OperandError(f"{where} transposes {name}, which kind {opcode.kind} does not support for .{fmt.name}")
    if descriptor.transpose_b and instruction.container_bits == 8 and n % (16 * opcode.cta_group):
        step = 16 * opcode.cta_group
        raise OperandError(f"N in {where} must be a multiple of {step} for transposed B with 8-bit elements, not {n}")
    scale_ids = tuple(range(0, 4, opcode.scale_size)) if opcode.scale_size else (0,)
    for name, value, accepted in (
        ("selector", descriptor.sparsity_selector, tuple(range(opcode.selectors))),
        ("scale factor A ID", descriptor.scale_id_a, scale_ids),
        ("scale factor B ID", descriptor.scale_id_b, scale_ids),
    ):
        if value not in accepted:
            raise OperandError(f"the {name} in {where} must be {_numbers(accepted)}, not {shown(value)}")
    if descriptor.max_shift and not opcode.weight_stationary:
        raise OperandError(f"the maximum shift in {where} must be 0 without '.ws', not {descriptor.max_shift}")


def _numbers(choices: tuple[int, ...]) -> str:
    """Return accepted numbers as text for a message: all numbers, or a range if six or more have equal distances."""
    step = choices[-1] - choices[-2] if len(choices) > 1 else 0
    if len(choices) > 5 and choices == tuple(range(choices[0], choices[-1] + 1, step)):
        return f"{choices[0]} to {choices[-1]} in steps of {step}"
    return one_of([str(choice) for choice in choices])


def _name(table: dict[str, int], code: int, role: str, where: str) -> str:
    for name, known in table.items():
        if known == code:
            return name
    accepted = one_of([f"{known} (.{name})" for name, known in table.items()])
    raise OperandError(f"the type of {role} in {where} must be {accepted}, not {code}")
