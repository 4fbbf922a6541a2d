"""Find the bits of tensor-core operands, such as descriptors, that constants in the PTX text determine."""

from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.memory import decode_descriptor
from ..isa.tcgen05 import parse_opcode
from .program import Immediate, Instruction, Kernel, Operand, Register, Vector, size_of

__all__ = ["constant_bits", "constant_descriptors"]

#: Maximum number of instructions through which an operand is traced back to the constants that set its bits.
_MOST_STEPS = 16
#: Number of lowest bits of a shared-memory descriptor that contain only the start address.
_START_BITS = 16


def constant_descriptors(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    """Return a text about each descriptor that constants determine, with the lines of the instructions that use it.

    A shared-memory descriptor is listed if a constant sets its offsets and swizzle; the start address may vary. An
    instruction descriptor of ``tcgen05`` is listed if all of its bits are constant.
    """
    lines: dict[str, list[int]] = {}
    for ins in kernel.instructions:
        if ins.opcode.startswith(("wgmma.mma_async", "tcgen05.mma")):
            for text in _texts(ins, kernel):
                lines.setdefault(text, []).append(ins.line)
    return {text: tuple(places) for text, places in lines.items()}


def _texts(ins: Instruction, kernel: Kernel) -> list[str]:
    family, texts = ins.words[0], []
    try:
        for name, operand in zip("AB", ins.operands[1:3], strict=True):
            bits, _ = constant_bits(operand, kernel)
            if isinstance(operand, Register) and size_of(operand.type) == 8 and bits >> _START_BITS:
                where = decode_descriptor(bits, family)
                texts.append(f"{name} of {family}: leading offset {where.leading_offset}, stride offset "
                             f"{where.stride_offset}, swizzle {where.swizzle.name}")  # fmt: skip
        if family == "tcgen05":
            opcode = parse_opcode(ins.opcode)
            bits, whole = constant_bits(ins.operands[3 + opcode.sparse], kernel)
            if whole:
                texts.append(f"instruction: {decode_instruction_descriptor(opcode, bits).instruction}")
    except (ValueError, IndexError):  # the summary lists an invalid instruction as not modelled
        pass
    return texts


def constant_bits(operand: Operand, kernel: Kernel, steps: int = _MOST_STEPS) -> tuple[int, bool]:
    """Return the bits that constants set in an operand, and whether constants determine all its bits."""
    if isinstance(operand, Immediate):
        return operand.value & (1 << 64) - 1, True
    by = kernel.writers.get(operand.name, []) if isinstance(operand, Register) else []
    if len(by) != 1 or by[0].guard or not steps:
        return 0, False
    (ins,) = by
    sources = ins.operands[-1].items if isinstance(ins.operands[-1], Vector) else ins.operands[1:]
    parts = [constant_bits(source, kernel, steps - 1) for source in sources]
    if parts and ins.words[0] == "add":  # After an `add`, the start address of a descriptor is not constant.
        return parts[0][0], False
    if ins.words[0] not in ("mov", "or") or not parts:
        return 0, False
    width = 8 * size_of(ins.words[-1]) // len(parts) if ins.words[0] == "mov" else 0
    bits = 0
    for place, (part, _) in enumerate(parts):
        bits |= part << place * width
    return bits, all(whole for _, whole in parts)
