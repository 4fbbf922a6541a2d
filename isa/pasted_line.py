"""Parse a line of PTX with operands, as in dumps, assembler messages and inline assembly, and assign operand roles.

Source: PTX ISA, syntax of ``mma``, ``mma.sp``, ``wgmma.mma_async`` and ``tcgen05.mma`` with their variants; compared
with the CUDA 13.5 assembler.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InstructionError, shown
from .fragments import a_fragment, accumulator_fragment, b_fragment
from .instructions import Instruction
from .tcgen05 import Opcode, parse_shaped

__all__ = ["OperandRole", "PastedLine", "completed", "constant", "operand_roles", "paste"]

#: Maximum length of a line in characters. A line of wgmma with 128 long register names has about 3,000 characters.
_LONGEST_TEXT = 20_000
_OPCODE = re.compile(r"(?<![\w.])@?(?:wgmma\.mma_async|tcgen05\.mma|mma)(?:\s*\.[A-Za-z_][\w:]*)+")
_SHAPE_AND_TYPES = re.compile(r"\s*\((m\d+n\d+k\d+[\w.]*)\)")
_PREDICATE = re.compile(r"@\s*(!?)\s*([%$\w]+)\s*$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
#: Pattern of quotes and escapes in a C string or a log file.
_QUOTING = re.compile(r"\\[ntr]|\\|\"|'|`")
_OPENING, _CLOSING = "{[(", "}])"
_ELLIPSIS = re.compile(r"\.\.\.|…|[\w>]\s*(?:-|\.\.)\s*[%$\w<]")


@dataclass(frozen=True)
class OperandRole:
    """One operand in a PTX line, with the role that it has in the instruction."""

    role: str  #: Name of the operand in PTX, for example ``d``, ``a-desc`` or ``sp-sel``
    text: str  #: Text of the operand, as written in the line
    meaning: str  #: Role of the operand, described in words
    value: int | None = None  #: Value of a constant operand, or None for a register


@dataclass(frozen=True)
class PastedLine:
    """Instruction and operands of a PTX line."""

    opcode: str  #: Opcode of the instruction with all qualifiers
    shape_and_types: str  #: Shape and types in brackets after a ``tcgen05`` opcode, or empty if absent
    operands: tuple[str, ...]  #: Texts of the operands as written, including outer brackets
    predicate: str = ""  #: Predicate register as written, with a leading ``!`` if negated, or empty if absent
    added: str = ""  #: Qualifiers that the text lacks and the parser adds

    @property
    def name(self) -> str:
        """Instruction name: the opcode, with shape and types in brackets if the text has them."""
        return f"{self.opcode} ({self.shape_and_types})" if self.shape_and_types else self.opcode


def paste(text: str) -> PastedLine | None:
    """Split a PTX line into opcode and operands. Return None if the text has no instruction with operands.

    Comments, quotes, escapes of C strings, outer braces, and text around the instruction are ignored. Raise an
    `InstructionError` if the text is too long, has two such instructions, or has a bracket without a counterpart.
    """
    if len(text) > _LONGEST_TEXT:
        raise InstructionError(f"a PTX line has at most {_LONGEST_TEXT} characters, not {len(text)}")
    plain = _QUOTING.sub(" ", _COMMENT.sub(" ", text)).replace("%%", "%")
    opcode_match = _OPCODE.search(plain)
    if not opcode_match:
        return None
    shape = _SHAPE_AND_TYPES.match(plain, opcode_match.end())
    rest = plain[shape.end() if shape else opcode_match.end() :]
    if "," not in rest.partition(";")[0]:
        return None
    operands, tail = _operands(rest)
    if other := _OPCODE.search(tail):
        raise InstructionError(f"one instruction is expected, not {opcode_match[0].strip()} and {other[0].strip()}")
    predicate = _PREDICATE.search(plain[: opcode_match.start()])
    opcode, added = completed("".join(opcode_match[0].split()))
    return PastedLine(
        opcode=opcode,
        shape_and_types=shape[1] if shape else "",
        operands=tuple(operands),
        predicate="".join(predicate.groups()) if predicate else "",
        added=added,
    )


def _operands(text: str) -> tuple[list[str], str]:
    """Return the operands at the start of a text, and the text that follows them."""
    operands, start, open_brackets, end = [], 0, "", len(text)
    for place, letter in enumerate(text):
        if letter in _OPENING:
            open_brackets += letter
        elif letter in _CLOSING:
            if not open_brackets:  # The brace closes a block of PTX code around the instruction.
                end = place
                break
            if _CLOSING.index(letter) != _OPENING.index(open_brackets[-1]):
                raise InstructionError(
                    f"{letter!r} does not match {open_brackets[-1]!r} in {shown(text[: place + 1].strip())}"
                )
            open_brackets = open_brackets[:-1]
        elif letter == ";" or (
            letter == ":" and not open_brackets
        ):  # A colon starts the operand constraints of C++ inline assembly.
            end = place
            break
        elif letter == "," and not open_brackets:
            operands.append(text[start:place])
            start = place + 1
    if open_brackets:
        raise InstructionError(f"{open_brackets[-1]!r} is not closed in {shown(text[:end].strip())}")
    operands.append(text[start:end])
    operands = [" ".join(operand.split()) for operand in operands]
    if "" in operands:
        raise InstructionError(f"operand {operands.index('') + 1} of {len(operands)} is empty")
    return operands, text[end:]


def completed(opcode: str) -> tuple[str, str]:
    """Complete an opcode with the qualifiers that all modelled instructions of its family have.

    A ``tcgen05`` opcode with its shape in brackets gets the first ``.cta_group`` that has the shape. Return the opcode,
    and the added qualifiers, such as ``.sync.aligned``, or an empty string if no qualifier was missing.
    """
    words = opcode.split(".")
    if words[0] == "tcgen05":
        return _with_cta_group(opcode)
    required = ["sync", "aligned"]
    if words[0] == "mma" and not {"row", "col"} & {*words}:
        required += ["row", "col"]
    missing = [word for word in required if word not in words]
    shape = next((place for place, word in enumerate(words) if re.fullmatch(r"m\d+n\d+k\d+", word)), len(words))
    before = [word for word in missing if word in ("sync", "aligned")]
    behind = [word for word in missing if word not in before]
    whole = [*words[:shape], *before, *words[shape : shape + 1], *behind, *words[shape + 1 :]]
    return ".".join(whole), "".join(f".{word}" for word in missing)


def _with_cta_group(text: str) -> tuple[str, str]:
    """Add ``.cta_group::1`` to an opcode, or ``.cta_group::2`` if only a CTA pair supports the shape in brackets."""
    if "(" not in text or ".cta_group" in text:
        return text, ""
    for added in (".cta_group::1", ".cta_group::2"):
        name = text.replace(".kind", f"{added}.kind", 1)
        try:
            parse_shaped(name)
        except InstructionError:
            continue
        return name, added
    return text, ""


def constant(text: str) -> int | None:
    """Return the value of a PTX constant, or None for any other operand."""
    match = re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?", text.strip())
    if not match:
        return None
    digits = match[2].lower()
    base = 16 if digits.startswith("0x") else 2 if digits.startswith("0b") else 8 if re.match(r"0\d", digits) else 10
    try:
        return int(f"{match[1]}{digits.removeprefix('0x') if base == 16 else digits.removeprefix('0b')}", base)
    except ValueError:
        return None


def _check_registers(text: str, role: str, expected: int, name: str) -> None:
    """Raise an error if an operand in braces has a wrong number of registers. An ellipsis stands for any number."""
    inner = text.removeprefix("{").removesuffix("}").strip()
    if text[:1] != "{" or _ELLIPSIS.search(inner):
        return
    count = len([part for part in inner.split(",") if part.strip()])
    if count != expected:
        raise InstructionError(
            f"operand {role} of {name} must have {expected} register{'s' * (expected > 1)}, not {count}"
        )


@dataclass(frozen=True)
class _Expected:
    """Operand of an instruction, and the conditions on its text in a PTX line."""

    role: str
    meaning: str
    registers: int = 0  # number of registers in braces, or 0 if the operand is no list of registers
    accepted: tuple[int, ...] | None = None  # accepted values of a constant, or None if every value is accepted
    id_threads: int = 0  # number of valid thread ids if the operand is {byte id, thread id} of block scales, else 0
    is_optional: bool = False

    @property
    def listed(self) -> str:
        """Name of the operand in a list of all operands, in braces if it is an optional list of registers."""
        role = f"{{{self.role}}}" if self.is_optional and self.registers else self.role
        return f"optionally {role}" if self.is_optional else role


def operand_roles(line: PastedLine, i: Instruction, opcode: Opcode | None = None) -> tuple[OperandRole, ...]:
    """Return the role of each operand of a PTX line. A ``tcgen05.mma`` also needs its opcode.

    Raise an `InstructionError` if an operand is missing or superfluous, has a wrong number of registers, or is a
    constant that is out of range.
    """
    name = str(opcode or i)
    roles: list[OperandRole] = []
    if opcode:
        expected = [*_tcgen05_operands(line, opcode)]
    else:
        expected = [*(_mma_operands(i) if i.family == "mma" else _wgmma_operands(line, i))]
    order = ", ".join(one.listed for one in expected)
    for one in expected:
        text = line.operands[len(roles)] if len(roles) < len(line.operands) else None
        if one.is_optional and (text is None or (one.registers and not text.startswith("{"))):
            continue
        if text is None:
            raise InstructionError(f"operand {one.role} of {name} is missing; the operands are {order}")
        value = constant(text)
        if one.registers:
            _check_registers(text, one.role, one.registers, name)
        if one.accepted is not None and value is not None and value not in one.accepted:
            numbers = ", ".join(map(str, one.accepted))
            raise InstructionError(f"operand {one.role} of {name} must be {numbers}, not {text}")
        if one.id_threads:
            _check_ids(text, one, i)
        if opcode and text.startswith("[") != one.role.startswith("["):
            form = "an address of tensor memory in square brackets" if text[:1] != "[" else "no address in brackets"
            raise InstructionError(f"operand {one.role} of {name} must be {form}, not {text}")
        roles.append(OperandRole(one.role, text, one.meaning, value))
    if others := line.operands[len(roles) :]:
        raise InstructionError(f"{shown(', '.join(others))} is superfluous: the operands of {name} are {order}")
    return tuple(roles)


def _in_registers(role: str, what: str, count: int = 1) -> _Expected:
    return _Expected(role, f"{what}: {count} register{'s' * (count > 1)} of each thread", count)


def _matrix_a(i: Instruction) -> str:
    return f"A, {i.m} x {i.k} of {i.a.name}" + (f", {i.m} x {i.stored_k} stored" if i.sparse else "")


def _metadata(i: Instruction, role: str, selector: str) -> Iterator[_Expected]:
    """Yield the operands for metadata and sparsity selector of a sparse instruction."""
    if i.sparse:
        yield _in_registers(role, f"metadata, {i.chunks} nibbles for each row of A")
        use = "selects the threads that hold the metadata" if i.sparsity_selectors > 1 else "can only be 0"
        yield _Expected(selector, f"sparsity selector f, which {use}", accepted=tuple(range(i.sparsity_selectors)))


def _mma_operands(i: Instruction) -> Iterator[_Expected]:
    accumulators = accumulator_fragment(i).registers
    yield _in_registers("d", f"D, {i.m} x {i.n} of {i.d.name}", accumulators)
    yield _in_registers("a", _matrix_a(i), a_fragment(i).registers)
    yield _in_registers("b", f"B, {i.k} x {i.n} of {i.b.name}", b_fragment(i).registers)
    yield _in_registers("c", f"addend C, {i.m} x {i.n} of {i.c.name}", accumulators * i.c.bits // i.d.bits)
    yield from _metadata(i, "e", "f")
    if i.scale_format:
        for operand, lines, threads in (("a", "row of A", 2), ("b", "column of B", 4)):
            scales = f"block scales of {operand.upper()}, {i.scale_size} of {i.scale_format.name} for each {lines}"
            yield _in_registers(f"scale-{operand}-data", scales)
            words = f"byte of the register, and threads of a quad, that hold the scales of {operand.upper()}"
            yield _Expected(f"{{byte-id-{operand}, thread-id-{operand}}}", words, id_threads=threads)


def _check_ids(text: str, expected: _Expected, i: Instruction) -> None:
    """Raise an error if a byte id or thread id of block scales is missing or out of range."""
    parts = text.strip("{}").split(",")
    if not text.startswith("{") or len(parts) != 2:
        raise InstructionError(f"operand {expected.role} of {i} must be two numbers in braces, not {text}")
    accepted = range(0, 4, i.scale_size or 1), range(expected.id_threads)
    for word, part, numbers in zip(("byte id", "thread id"), parts, accepted, strict=True):
        value = constant(part)
        if value is not None and value not in numbers:
            raise InstructionError(
                f"the {word} in {expected.role} of {i} must be {', '.join(map(str, numbers))}, not {part.strip()}"
            )


def _wgmma_operands(line: PastedLine, i: Instruction) -> Iterator[_Expected]:
    in_registers = len(line.operands) > 1 and line.operands[1].startswith("{")
    descriptor = "64-bit matrix descriptor of shared memory"
    yield _in_registers("d", f"C and D, {i.m} x {i.n} of {i.d.name}", accumulator_fragment(i).registers)
    if in_registers:
        yield _in_registers("a", _matrix_a(i), a_fragment(i).registers)
    else:
        yield _Expected("a-desc", f"{_matrix_a(i)}: {descriptor}")
    yield _Expected("b-desc", f"B, {i.k} x {i.n} of {i.b.name}: {descriptor}")
    yield from _metadata(i, "sp-meta", "sp-sel")
    yield _Expected("scale-d", "predicate or constant: if false, D = A*B without the old D", accepted=(0, 1))
    for matrix in "" if i.a.is_integer else "ab":
        yield _Expected(f"imm-scale-{matrix}", f"1, or -1 to negate {matrix.upper()}", accepted=(1, -1))
    for matrix in "" if i.a.bits != 16 else "b" if in_registers else "ab":
        meaning = f"1 if {matrix.upper()} is MN-major in shared memory, 0 if K-major"
        yield _Expected(f"imm-trans-{matrix}", meaning, accepted=(0, 1))


def _tcgen05_operands(line: PastedLine, opcode: Opcode) -> Iterator[_Expected]:
    in_tensor_memory = len(line.operands) > 1 and line.operands[1].startswith("[")
    stored = "stored " * opcode.sparse
    yield _Expected("[d-tmem]", "C and D in tensor memory: address")
    if in_tensor_memory:
        yield _Expected("[a-tmem]", f"{stored}A in tensor memory: address")
    else:
        yield _Expected("a-desc", f"{stored}A: 64-bit matrix descriptor of shared memory")
    yield _Expected("b-desc", "B: 64-bit matrix descriptor of shared memory")
    if opcode.sparse:
        yield _Expected("[sp-meta-tmem]", "metadata in tensor memory: address")
    yield _Expected("idesc", "32-bit instruction descriptor: shape, types, selector and options")
    for matrix in "AB" if opcode.scale_size else "":
        yield _Expected(f"[scale-{matrix}-tmem]", f"block scales of {matrix} in tensor memory: address")
    if not opcode.weight_stationary and not opcode.scale_size:
        lanes, meaning = 4 * opcode.cta_group, "registers: a bit of 1 keeps the old D in one lane"
        yield _Expected("disable-output-lane", f"{lanes} {meaning}", lanes, is_optional=True)
    yield _Expected("enable-input-d", "predicate: if false, D = A*B without the old D", accepted=(0, 1))
    if opcode.weight_stationary:
        meaning = "64-bit mask descriptor: shift of the columns of B, and columns set to zero"
        yield _Expected("zero-column-mask-desc", meaning, is_optional=True)
    elif opcode.scales_input_d:
        meaning = "s: the old D is multiplied by 2**-s before it is added"
        yield _Expected("scale-input-d", meaning, accepted=tuple(range(16)), is_optional=True)
