"""Function ``sptc.unpack``: extract matrices from the registers and memory of an instruction."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.operands import check_image, check_presence, checked_ids, checked_selector, describe, is_integer, registers
from ..api.tcgen05 import placement_of, shared_image, tensor_image
from ..errors import InstructionError, OperandError
from ..isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment
from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.instructions import Instruction
from ..isa.memory import decode_descriptor, operand_map
from ..isa.names import resolve
from ..isa.tcgen05 import Opcode
from ..isa.tensor_memory import COLUMNS, LANES, accumulator_map, layout_for
from ..operands.packing import common_batch
from ..operands.registers import from_registers, unpack_nibbles, unpack_scales
from ..operands.shared_memory import gather_shared
from ..operands.tensor_memory import gather, gather_tensor
from ..tensors.compressed import Compressed
from ..tensors.sparsify import expand
from .matrices import out_of_containers, typed

__all__ = ["Matrices", "unpack"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Matrices:
    """Matrices of an instruction; None for a matrix whose registers were not given. Leading axes are a batch."""

    instruction: Instruction
    #: Stored elements of A in the numpy or ``ml_dtypes`` type of the format of A, shape (..., m, stored K).
    stored: NDArray | None = None
    nibbles: NDArray[np.uint8] | None = None  #: Metadata nibbles of A, shape (..., m, nibbles per row)
    b: NDArray | None = None  #: Elements of B, shape (..., K, n)
    #: Accumulator C and result D, shape (..., m, n).
    c: NDArray | None = None
    d: NDArray | None = None
    #: Codes of block scales, shapes (..., m, scales) and (..., n, scales).
    scale_a: NDArray[np.uint8] | None = None
    scale_b: NDArray[np.uint8] | None = None

    @cached_property
    def a(self) -> NDArray | None:
        """Matrix A, shape (..., m, K), with +0 for elements that are not stored; None without A or its metadata.

        Raise a `NibbleError` if a metadata nibble puts two elements of a chunk into the same column.
        """
        i = self.instruction
        if self.stored is None or i.granularity is None or i.rule is None:
            return self.stored
        if self.nibbles is None:
            return None
        lead = common_batch({"a": self.stored.shape[:-2], "e": self.nibbles.shape[:-2]})
        stored, nibbles = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (self.stored, self.nibbles))
        rows = prod(lead) * i.m
        flat = Compressed(stored.reshape(rows, i.stored_k), nibbles.reshape(rows, i.chunks), i.granularity)
        return expand(flat, i.rule.name, strict=True).reshape(*lead, i.m, i.k)


def unpack(
    instruction: str,
    *,
    a: NDArray | int | None = None,
    b: NDArray | int | None = None,
    c: NDArray | None = None,
    d: NDArray | int | None = None,
    e: NDArray | int | None = None,
    selector: int | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    smem: NDArray[np.uint8] | None = None,
    tmem: NDArray[np.uint32] | None = None,
    idesc: int | None = None,
) -> Matrices:
    """Return the matrices in registers and memory, the inverse of :func:`sptc.pack`.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers, or words that name it, as for :func:`sptc.pack`.
    a, b, c, d, e, selector, scale_a, scale_b, smem, tmem, idesc
        Operands as :func:`sptc.mma`, :func:`sptc.wgmma` and :func:`sptc.tcgen05_mma` take them, and as
        :func:`sptc.pack` returns them. For ``mma``, `d` is the result. Operands that are not given are None in the
        result. For ``tcgen05``, `d`, `tmem` and `idesc` are required, even if `instruction` has shape and types in
        brackets, and either all or none of the other operands are given. Operands in shared memory are K-major unless
        `idesc` says otherwise.

    Returns
    -------
    Matrices

    Raises
    ------
    InstructionError
        The text does not parse.
    OperandError
        An operand is superfluous, or of the wrong shape, type or range.
    FileError
        The format of an operand needs ``ml_dtypes``, which is not installed.
    """
    subject = resolve(instruction)
    if e is not None:
        check_presence(subject.opcode or subject.instruction, subject.instruction.sparse, e=e)
    if opcode := subject.opcode:
        _refuse(str(opcode), {"c": c, "selector": selector})
        operands = {"d": d, "a": a, "b": b, "e": e, "scale_a": scale_a, "scale_b": scale_b}
        return _of_tensor_memory(opcode, operands, tmem, smem, idesc)
    i = subject.instruction
    for name, value in (("a", a), ("b", b), ("c", c), ("d", d), ("e", e), ("smem", smem)):
        _check_filled(name, value, str(i))
    accumulators = accumulator_fragment(i)
    matrices: dict[str, Any] = {"instruction": i}
    if i.family == "mma":
        _refuse(str(i), {"smem": smem, "tmem": tmem, "idesc": idesc})
        scales = (("scale_a", scale_a), ("scale_b", scale_b))
        matrices |= {name: _scales(name, scale, i) for name, scale in scales if scale is not None}
    else:
        _refuse(str(i), {"c": c, "tmem": tmem, "idesc": idesc, "scale_a": scale_a, "scale_b": scale_b})
    for name, value in (("c", c), ("d", d)):
        if value is not None:
            matrices[name] = typed(_gathered(name, value, accumulators, i), i.d)
    if a is not None:
        matrices["stored"] = typed(_operand(i, "a", a, smem), i.a)
    if b is not None:
        matrices["b"] = typed(_operand(i, "b", b, smem), i.b)
    chosen = checked_selector(0 if selector is None else selector, i)
    if e is not None:
        words = registers("e", e, (i.threads,), i)
        flat = unpack_nibbles(words.reshape(prod(words.shape[:-1]), i.threads), i, chosen)
        matrices["nibbles"] = flat.reshape(*words.shape[:-1], i.m, i.chunks)
    return Matrices(**matrices)


def _refuse(instruction: str, operands: dict[str, Any]) -> None:
    """Raise an error if an operand is given that the instruction does not have."""
    for name, value in operands.items():
        if value is not None:
            raise OperandError(f"{instruction} has no operand {name}")


def _check_filled(name: str, value: Any, instruction: str) -> None:
    if isinstance(value, np.ndarray) and not value.size:
        raise OperandError(f"{name} of {instruction} is empty, of shape {value.shape}")


def _gathered(name: str, value: Any, fragment: Fragment, i: Instruction) -> NDArray:
    words = registers(name, value, fragment.rows.shape[:2], i)
    lead = words.shape[:-2]
    return from_registers(words.reshape(prod(lead), *words.shape[-2:]), fragment).reshape(*lead, *fragment.shape)


def _operand(i: Instruction, name: str, value: Any, smem: NDArray[np.uint8] | None) -> NDArray:
    """Return the codes of matrix A or B, gathered from registers or shared memory."""
    fmt = i.a if name == "a" else i.b
    if i.family == "mma" or isinstance(value, np.ndarray):
        if i.family != "mma" and name == "b":
            raise OperandError(f"b of {i} must be a descriptor (an int), not {describe(value)}")
        fragment = a_fragment(i) if name == "a" else b_fragment(i)
        return out_of_containers(_gathered(name, value, fragment, i), i, fmt)
    if not is_integer(value):
        expected = "an array of registers or a descriptor (an int)" if name == "a" else "a descriptor (an int)"
        raise OperandError(f"{name} of {i} must be {expected}, not {describe(value)}")
    where = operand_map(i, name, decode_descriptor(int(value)))
    image = check_image(smem, str(i), {name: where})
    codes = gather_shared(image.reshape(prod(image.shape[:-1]), image.shape[-1]), where)
    codes = codes.reshape(*image.shape[:-1], *codes.shape[1:])
    return out_of_containers(codes if name == "a" else codes.swapaxes(-1, -2), i, fmt)


def _scales(name: str, value: Any, i: Instruction) -> NDArray[np.uint8]:
    if i.scale_size is None:
        raise OperandError(f"{i} has no block scales and takes no {name}")
    if not isinstance(value, tuple) or len(value) != 3:
        raise OperandError(f"{name} of {i} must be a tuple (data, byte id, thread id), not {describe(value)}")
    words = registers(name, value[0], (32,), i)
    byte_id, thread_id = checked_ids(name, value[1], value[2], i)
    flat = unpack_scales(words.reshape(prod(words.shape[:-1]), 32), i, name.removeprefix("scale_"), byte_id, thread_id)
    return flat.reshape(*words.shape[:-1], *flat.shape[1:])


def _of_tensor_memory(
    opcode: Opcode,
    operands: dict[str, Any],
    tmem: NDArray[np.uint32] | None,
    smem: NDArray[np.uint8] | None,
    idesc: int | None,
) -> Matrices:
    for name, address in operands.items():
        if address is not None and not is_integer(address):
            raise OperandError(f"{name} of {opcode} must be an int, not {describe(address)}")
    if operands["d"] is None or not is_integer(idesc):
        missing = "d, the address of D in tmem," if operands["d"] is None else "idesc"
        raise InstructionError(
            f"unpack of {opcode} needs {missing} as sptc.pack returns it: shape and types are taken from the "
            "instruction descriptor idesc, not from brackets after the instruction"
        )
    descriptor = decode_instruction_descriptor(opcode, int(idesc))
    i, ctas = descriptor.instruction, opcode.cta_group
    memory = tensor_image(opcode, tmem)
    memory = memory if ctas == 2 else memory[..., None, :, :]
    for name, value in (("tmem", tmem), ("smem", smem)):
        _check_filled(name, value, str(opcode))
    layout = layout_for(opcode, i.m)
    if all(value is None for name, value in (operands | {"smem": smem}).items() if name != "d"):
        where = accumulator_map(layout, i.n, i.d.bits, operands["d"])
        lead = memory.shape[:-3]
        codes = gather_tensor(memory.reshape(prod(lead) * ctas, LANES, COLUMNS), where).reshape(*lead, i.m, i.n)
        return Matrices(instruction=i, d=typed(codes, i.d))
    scales = {name: operands.pop(name) for name in ("scale_a", "scale_b")}
    addresses = {name: address for name, address in operands.items() if address is not None}
    if absent := [name for name in ("a", "b", *("e" * opcode.sparse)) if name not in addresses]:
        raise OperandError(f"{opcode} requires operand {absent[0]} if any operand other than d is given")
    placement = placement_of(opcode, descriptor, addresses, scales, None)
    octets = shared_image(opcode, placement, smem)
    octets = octets if ctas == 2 else octets[..., None, :]
    lead = common_batch({"tmem": memory.shape[:-3], "smem": octets.shape[:-2]})
    memory = np.broadcast_to(memory, (*lead, ctas, LANES, COLUMNS)).reshape(-1, ctas, LANES, COLUMNS)
    octets = np.broadcast_to(octets, (*lead, *octets.shape[-2:])).reshape(len(memory), ctas, -1)
    # A and B are returned as stored, without the negation that the descriptor requests.
    plain = replace(descriptor, negate_a=False, negate_b=False)
    gathered = gather(plain, placement, memory, octets)

    def together(codes: NDArray | None, rows: int) -> Any:
        return None if codes is None else codes.reshape(*lead, rows, -1)

    return Matrices(
        instruction=i,
        stored=typed(out_of_containers(together(gathered.a, i.m), i, i.a), i.a),
        nibbles=together(gathered.nibbles, i.m),
        b=typed(out_of_containers(together(gathered.b[::ctas], i.k), i, i.b), i.b),
        d=typed(together(gathered.c, i.m), i.d),
        scale_a=together(gathered.scale_a, i.m),
        scale_b=None if gathered.scale_b is None else together(gathered.scale_b[::ctas], i.n),
    )
