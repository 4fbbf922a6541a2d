"""``mma`` and ``mma.sp`` as a Python function, which checks all operands before a back end computes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InstructionError, MetadataError, OperandError, shown
from ..isa.architectures import require_target
from ..isa.evidence import evidence as evidence_of
from ..isa.evidence import weakest
from ..isa.fragments import WARP_LANES, a_fragment, accumulator_fragment, b_fragment, metadata_map
from ..isa.instructions import Instruction
from ..isa.names import forms_named, resolve
from ..isa.numerics import Numerics
from ..isa.numerics import numerics as numerics_of
from ..isa.operands import HeldOperands, Immediates
from ..operands.registers import from_registers, gather_warp, to_registers, unpack_nibbles
from .backends import MODELS, Backend, with_numerics
from .backends import backend as backend_named
from .operands import (
    METADATA_POLICIES,
    Registers,
    check_choice,
    check_metadata,
    check_presence,
    check_scales,
    checked_ids,
    checked_selector,
    describe,
    in_blocks,
    registers,
)

__all__ = ["evidence", "mma", "mma_tiles", "numerics"]

#: Maximum number of accumulator tiles that a back end in :data:`~sptc.api.backends.MODELS` computes at once.
_BLOCK_TILES = 1024
#: Type of a block-scale operand: scale data, byte id and thread id.
ScaleOperand = tuple[Registers, int, int]


def evidence(instruction: str, arch: str, *, a_from: str | None = None) -> str:
    """Return the evidence that the model of an instruction is exact: recorded or measured results, or publications.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers, a line of PTX with operands, or words that name one instruction, such as
        ``m16n8k32 f16 f32``. For ``tcgen05``, shape and types may follow in brackets, where ``nN`` stands for every N;
        without them, the level is the weakest of all types.
    arch : str
        For example ``"sm_90"``, or a target such as ``"sm_90a"``. sm_87, sm_88, sm_103, sm_110 and sm_121 only share
        the numerics of another chip, and family targets such as sm_100f stand for several chips; for these targets
        every instruction is modelled.
    a_from : str, optional
        Where a ``wgmma`` reads A: from ``"registers"``, or from ``"shared"`` memory through a descriptor. By default
        the form with the weaker evidence counts.

    Returns
    -------
    str
        ``"recorded"``: the package ships register contents of this form, recorded on that GPU; ``"measured"``: the
        package ships the record of a campaign that compared the model with that GPU; ``"recorded elsewhere"``: the
        package ships dense dot products of the instruction, recorded outside this project; ``"spot-checked
        elsewhere"``: the package ships one to eight result words, recorded outside this project; ``"modelled"``: the
        model follows published models of the dense instruction. In all cases but the last the model reproduces every
        recorded or compared bit.

    Raises
    ------
    InstructionError
        The text does not parse, the architecture does not have the instruction, or the instruction has no such form.
    """
    first, *others = forms_named(instruction, arch)
    require_target(first.instruction, arch, first.opcode)
    return weakest(evidence_of(one.instruction, arch, a_from, one.opcode) for one in (first, *others)).value


def numerics(arch: str, instruction: str) -> Numerics:
    """Return the numerics of an instruction on an architecture: products per rounded sum, alignment bits, and rounding.

    Parameters
    ----------
    arch, instruction : str
        As for :func:`evidence`. For ``tcgen05``, shape and types follow in brackets if the numerics depend on the
        types.

    Returns
    -------
    Numerics
        Immutable record. Its method ``replace`` returns a changed copy, which :func:`sptc.mma`, :func:`sptc.gemm` and
        :func:`sptc.identify` accept as argument ``numerics``.

    Raises
    ------
    InstructionError
        The text does not parse, the architecture does not have the instruction, or the numerics depend on types that
        the text does not name.
    """
    forms = forms_named(instruction, arch)
    base = require_target(forms[0].instruction, arch, forms[0].opcode)
    first, *others = (numerics_of(form.instruction, base) for form in forms)
    if any(other != first for other in others):
        raise InstructionError(
            f"the numerics of {shown(instruction)} depend on its types: add the shape and types in brackets, such as "
            f"({forms[0].instruction.shape_and_types})"
        )
    return first


def mma(
    instruction: str,
    a: Registers,
    b: Registers,
    c: Registers,
    e: Registers | None = None,
    selector: int = 0,
    *,
    scale_a: ScaleOperand | None = None,
    scale_b: ScaleOperand | None = None,
    arch: str = "sm_90",
    backend: str | Backend = "golden",
    metadata: str = "strict",
    numerics: Numerics | None = None,
) -> Registers:
    """Compute ``mma`` or ``mma.sp`` exactly as the tensor core of an architecture does.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers; or words that name it, as for :func:`evidence`.
    a, b, c : ndarray of uint32, shape (..., 32, registers)
        Registers of the 32 threads. Leading axes are a batch and broadcast against each other.
    e : ndarray of uint32, shape (..., 32), optional
        Metadata; required by ``mma.sp``, not accepted by dense ``mma``.
    selector : int
        Sparsity selector: which lanes of each quad contribute metadata.
    scale_a, scale_b : (ndarray of uint32, shape (..., 32), int, int), optional
        Scale data, byte id and thread id, for the block-scaled kinds.
    arch : str
        ``"sm_80"``, ``"sm_86"``, ``"sm_89"``, ``"sm_90"``, ``"sm_100"`` or ``"sm_120"``.
    backend : str or Backend
        ``"golden"``: the numpy model; ``"rtl"``: the datapath of the hardware, compiled by Verilator; ``"pysim"``: the
        same datapath in Amaranth's simulator, which is slow and needs no compiler; ``"warp"``: the whole hardware that
        executes ``mma`` with m = 16, from registers to registers; ``"warpgroup"``: the hardware of sm_90 that executes
        ``wgmma`` and ``mma``; ``"native"``: the model in C++; ``"cuda"``: the instruction on an NVIDIA GPU of that
        architecture, with the numerics of that GPU. Or an object that implements :class:`sptc.api.backends.Backend`.
    metadata : str
        ``"strict"`` raises for a nibble that the instruction declares undefined; ``"software"`` also accepts nibble 0x0
        if every stored value of the chunk is zero; ``"silicon"`` computes with any nibble as the multiplexers do.
    numerics : Numerics, optional
        Numerics to use in place of those of `arch`, see :func:`sptc.numerics`; only for back ends ``"golden"`` and
        ``"native"``.

    Returns
    -------
    ndarray of uint32, shape (..., 32, registers)
        Registers of D. No operand is modified.

    Raises
    ------
    InstructionError
        The text does not parse, or `arch` does not have the instruction.
    OperandError
        An operand is missing, superfluous, or of the wrong shape, type or range.
    MetadataError
        A metadata nibble is undefined.
    BackendError
        The back end is unknown or does not execute the instruction, or a tool that it needs is missing.
    """
    parsed, arch, model = _chosen(instruction, arch, backend)
    computes = with_numerics(model, numerics, parsed, arch)
    check_choice("metadata", metadata, METADATA_POLICIES, OperandError)
    accumulators = accumulator_fragment(parsed)
    operands = {
        "a": registers("a", a, (32, a_fragment(parsed).registers), parsed),
        "b": registers("b", b, (32, b_fragment(parsed).registers), parsed),
        "c": registers("c", c, (32, accumulators.registers), parsed),
    }
    check_presence(parsed, parsed.sparse, e=e)
    if parsed.sparse:
        operands["e"] = registers("e", e, (32,), parsed)
    selector = checked_selector(selector, parsed)
    ids = {"scale_a": (0, 0), "scale_b": (0, 0)}
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if checked := _scale(name, scale, parsed):
            operands[name], ids[name] = checked[0], checked[1:]
    immediates = Immediates(selector, (*ids["scale_a"], *ids["scale_b"]))

    def compute(block: dict[str, Registers]) -> Registers:
        matrices = gather_warp(parsed, HeldOperands(block, immediates))
        if matrices.nibbles is not None:
            check_metadata(parsed, matrices.nibbles, lambda: matrices.a, metadata_map(parsed, selector), metadata)
        return to_registers(computes.multiply(parsed, arch, matrices).d, accumulators)

    return in_blocks(operands, accumulators.rows.shape[:2], compute)


def mma_tiles(
    instruction: str,
    operands: Mapping[str, Registers],
    immediates: Immediates,
    *,
    arch: str = "sm_90",
    backend: str | Backend = "golden",
    metadata: str = "strict",
) -> Registers:
    """Compute each tile of a product by consecutive ``mma`` along K. The result equals repeated calls of :func:`mma`.

    Back ends that model every architecture compute all tiles of a warp as one product; other back ends execute one
    instruction after the other. Shapes of the operands are not checked. The errors are those of :func:`mma`; the batch
    index of a :class:`~sptc.errors.MetadataError` is that of the warp.

    Parameters
    ----------
    instruction, arch, backend, metadata
        As for :func:`mma`.
    operands : mapping of str to ndarray of uint32
        Registers of A for each row of tiles and each step along K, ``a`` of shape (batch, rows, steps, 32, registers);
        of B for each column and step, ``b`` (batch, columns, steps, 32, registers); accumulators of each tile, ``c``
        (batch, rows, columns, 32, registers). A sparse instruction also needs metadata, ``e`` (batch, rows, steps, 32),
        and a block-scaled instruction ``scale_a`` (batch, rows, steps, 32) and ``scale_b`` (batch, columns, steps, 32).
    immediates : Immediates
        Sparsity selector, and ids of the block scales.
    """
    (_, rows, columns), steps = operands["c"].shape[:3], operands["a"].shape[2]
    if backend not in MODELS:
        c, ids = operands["c"], immediates.scale_ids
        for step in range(steps):
            part: dict[str, Any] = {
                name: np.expand_dims(values[:, :, step], 1 if "b" in name else 2)
                for name, values in operands.items()
                if name != "c"
            }
            for name, pair in (("scale_a", ids[:2]), ("scale_b", ids[2:])):
                if name in part:
                    part[name] = (part[name], *pair)
            part |= {"c": c, "selector": immediates.sparsity_selector, "arch": arch, "metadata": metadata}
            c = mma(instruction, backend=backend, **part)
        return c
    parsed, arch, computes = _chosen(instruction, arch, backend)
    places = metadata_map(parsed, immediates.sparsity_selector) if parsed.sparse else None

    def compute(block: dict[str, Registers]) -> Registers:
        if places:
            words = block["e"].reshape(-1, WARP_LANES)
            nibbles = unpack_nibbles(words, parsed, immediates.sparsity_selector)
            fragments = block["a"].reshape(len(words), WARP_LANES, -1)
            try:
                check_metadata(parsed, nibbles, lambda: from_registers(fragments, a_fragment(parsed)), places, metadata)
            except MetadataError as error:
                raise error.at((error.batch[0] // (rows * steps),)) from None
        matrices = gather_warp(parsed, HeldOperands(block, immediates), (rows, columns, steps))
        d = to_registers(computes.multiply(parsed, arch, matrices).d, accumulator_fragment(parsed), (rows, columns))
        return d.reshape(block["c"].shape)

    tails = {name: value.ndim - 1 for name, value in operands.items()}
    return in_blocks(
        dict(operands),
        operands["c"].shape[1:],
        compute,
        tails=tails,
        block_tiles=max(1, _BLOCK_TILES // (rows * columns)),
    )


def _chosen(text: str, arch: str, backend: str | Backend) -> tuple[Instruction, str, Backend]:
    """Return the parsed instruction, the architecture that determines its numerics, and the back end."""
    parsed = resolve(text, arch, family="mma").instruction
    if parsed.family != "mma":
        raise InstructionError(f"{parsed} is not an mma instruction; use sptc.wgmma")
    return parsed, require_target(parsed, arch), backend_named(backend)


def _scale(name: str, value: ScaleOperand | None, instruction: Instruction) -> tuple[Registers, int, int] | None:
    """Check one block-scale operand of an ``mma``. Return its data, byte id and thread id."""
    if not check_scales(instruction, instruction.scale_size, name, value):
        return None
    if not isinstance(value, tuple) or len(value) != 3:
        raise OperandError(f"{name} of {instruction} must be a tuple (data, byte id, thread id), not {describe(value)}")
    data, byte_id, thread_id = value
    byte_id, thread_id = checked_ids(name, byte_id, thread_id, instruction)
    return registers(name, data, (32,), instruction), byte_id, thread_id
