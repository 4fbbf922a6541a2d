"""Random operands as matrices, and as register files: operands in registers and, for ``wgmma``, in shared memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..operands.images import Layout, image, random_image
from ..operands.registers import CONTAINERS, pack_nibbles, pack_scales, random_nibbles, to_registers
from ..sim.benches.random_operands import distributions, random_codes, random_matrices, random_metadata, random_operands
from .register_file import RegisterFile

__all__ = [
    "NIBBLES",
    "Given",
    "draw_tiles",
    "drawn_distributions",
    "further_file",
    "joined",
    "matrices_file",
    "random_register_file",
    "scaled_matrices",
]


@dataclass(frozen=True, eq=False)
class Given:
    """Operands of a batch of tiles, as matrices."""

    matrices: MatrixOperands  #: Operands as matrices of codes
    #: Metadata nibbles that the instruction would read with the next sparsity selector. They are in other bits of the
    #: same registers or of tensor memory. None if the instruction has only one selector or no metadata.
    elsewhere: NDArray[np.uint8] | None = None

    @property
    def cases(self) -> int:
        """Number of tiles of the batch."""
        return len(self.matrices.c)

    def take(self, cases: NDArray[np.intp]) -> "Given":
        """Return the operands of the selected tiles."""
        return Given(self.matrices.take(cases), None if self.elsewhere is None else self.elsewhere[cases])

    def repeated(self, m: int) -> "Given":
        """Return tiles of `m` rows, made by repeating the rows of each tile."""

        def rows(array: NDArray | None) -> Any:
            return None if array is None else np.tile(array, (1, m // array.shape[1], 1))

        matrices = self.matrices
        changed = {name: rows(getattr(matrices, name)) for name in ("a", "c", "nibbles", "scale_a")}
        return Given(replace(matrices, **changed), rows(self.elsewhere))

    def widened(self, n: int) -> "Given":
        """Return tiles of `n` columns, made by appending the columns of the following tiles to each tile."""
        width = self.matrices.c.shape[2]
        turns = [self.take((np.arange(self.cases) + turn) % self.cases).matrices for turn in range(-(-n // width))]
        b, c = (np.concatenate([getattr(turn, name) for turn in turns], axis=2)[..., :n] for name in ("b", "c"))
        scale_b = self.matrices.scale_b
        if scale_b is not None:
            scale_b = np.concatenate([turn.scale_b for turn in turns if turn.scale_b is not None], axis=1)[:, :n]
        return replace(self, matrices=replace(self.matrices, b=b, c=c, scale_b=scale_b))


def joined(parts: Sequence[Given]) -> Given:
    """Concatenate operands of several batches of tiles into one batch."""

    def concatenated(arrays: list[Any]) -> NDArray | None:
        return None if arrays[0] is None else np.concatenate(arrays)

    names = ("a", "b", "c", "nibbles", "scale_a", "scale_b")
    matrices: dict[str, Any] = {name: concatenated([getattr(part.matrices, name) for part in parts]) for name in names}
    return Given(MatrixOperands(**matrices), concatenated([part.elsewhere for part in parts]))


def random_register_file(
    instruction: Instruction,
    arch: str,
    distribution: str,
    cases: int,
    rng: np.random.Generator,
    *,
    sparsity_selector: int = 0,
    any_nibble: bool = False,
    spread: bool = False,
) -> RegisterFile:
    """Return random tiles of an ``mma`` or ``wgmma`` as a register file (``.npz``) that permits every metadata nibble.

    Parameters are those of :func:`~sptc.sim.benches.random_operands.random_operands`; `spread` is that of
    :func:`~sptc.operands.images.random_image`, which places the operands of ``wgmma``.
    """
    if instruction.family == "mma":
        held = random_operands(
            instruction, distribution, cases, rng, sparsity_selector=sparsity_selector, any_nibble=any_nibble
        )
        fields = held.arrays | {"scale_ids": held.immediates.scale_ids}
        return _mma_file(instruction, arch, sparsity_selector, fields)
    matrices = MatrixOperands(*random_matrices(instruction, distribution, cases, rng))
    e = random_metadata(instruction, sparsity_selector, any_nibble, cases, rng)
    return _wgmma_file(instruction, matrices, e, sparsity_selector, rng, spread)


def matrices_file(
    instruction: Instruction,
    arch: str,
    matrices: MatrixOperands,
    rng: np.random.Generator,
    *,
    sparsity_selector: int = 0,
) -> RegisterFile:
    """Return the matrices of an ``mma`` or ``wgmma`` as a register file (``.npz``) that permits every metadata nibble.

    `rng` draws the unused bits of metadata and scale registers, byte and thread ids, and for ``wgmma`` the location of
    A, the placement in shared memory, imm-scale and scale-d.
    """
    e = _packed_metadata(instruction, matrices, sparsity_selector, rng)
    if instruction.family == "wgmma":
        return _wgmma_file(instruction, matrices, e, sparsity_selector, rng)
    fields = _mma_registers(instruction, matrices) | {"e": e} | _packed_scales(instruction, matrices, rng)
    return _mma_file(instruction, arch, sparsity_selector, fields)


def further_file(file: RegisterFile, matrices: MatrixOperands, rng: np.random.Generator) -> RegisterFile:
    """Return a register file (``.npz``) with the given matrices, placed as in `file`, which :func:`matrices_file` made.

    The new file has the selector, ids, descriptors and immediates of `file`, and no D. `rng` draws all bits outside the
    matrices.
    """
    i = file.instruction
    e = _packed_metadata(i, matrices, file.sparsity_selector, rng)
    if i.family == "mma":
        scales = _packed_scales(i, matrices, rng, file.scale_ids)
        return replace(file, e=e, d=None, **_mma_registers(i, matrices), **scales)
    a = None if file.a is None else to_registers(matrices.a, a_fragment(i))
    file = replace(file, a=a, c=to_registers(matrices.c, accumulator_fragment(i)), e=e, d=None)
    case_descriptors = {"a": file.a_descriptor, "b": file.b_descriptor}
    descriptors = {name: int(array[0]) for name, array in case_descriptors.items() if array is not None}
    transposed = {name: bool(value) for name, value in zip("ab", file.imm_trans, strict=True)}
    operands = {"a": matrices.a, "b": matrices.b.swapaxes(1, 2)}
    layout = Layout(descriptors, transposed, 4 * file.b.shape[1])
    b = image(i, {name: operands[name] for name in descriptors}, layout, rng)
    return replace(file, b=b, **_case_descriptors(descriptors, len(matrices.a)))


def _case_descriptors(descriptors: dict[str, int], cases: int) -> dict[str, Any]:
    """Return the descriptors of A and B for every tile; keys are names of fields of :class:`RegisterFile`."""
    return {f"{name}_descriptor": np.full(cases, value, np.uint64) for name, value in descriptors.items()}


def _packed_metadata(
    instruction: Instruction, matrices: MatrixOperands, sparsity_selector: int, rng: np.random.Generator
) -> NDArray[np.uint32] | None:
    if matrices.nibbles is None:
        return None
    unread = rng.integers(0, 1 << 32, (len(matrices.a), instruction.threads), dtype=np.uint32)
    return pack_nibbles(matrices.nibbles, instruction, sparsity_selector, unread)


def _mma_registers(instruction: Instruction, matrices: MatrixOperands) -> dict[str, Any]:
    return {
        "a": to_registers(matrices.a, a_fragment(instruction)),
        "b": to_registers(matrices.b, b_fragment(instruction)),
        "c": to_registers(matrices.c, accumulator_fragment(instruction)),
    }


def _packed_scales(
    instruction: Instruction, matrices: MatrixOperands, rng: np.random.Generator, ids: tuple[int, ...] | None = None
) -> dict[str, Any]:
    """Return block scales as fields of :class:`RegisterFile`; byte and thread ids are random unless `ids` is given."""
    if instruction.scale_size is None:
        return {}
    fields: dict[str, Any] = {"scale_ids": ()}
    for number, (operand, threads) in enumerate((("a", 2), ("b", 4))):
        if ids:
            byte_id, thread_id = ids[2 * number : 2 * number + 2]
        else:
            byte_id = instruction.scale_size * int(rng.integers(0, 4 // instruction.scale_size))
            thread_id = int(rng.integers(0, threads))
        scales = getattr(matrices, f"scale_{operand}")
        unread = rng.integers(0, 256, (len(scales), 32, 4), dtype=np.uint8)
        fields[f"scale_{operand}"] = pack_scales(scales, instruction, operand, (byte_id, thread_id), unread)
        fields["scale_ids"] += (byte_id, thread_id)
    return fields


def _mma_file(instruction: Instruction, arch: str, sparsity_selector: int, fields: dict[str, Any]) -> RegisterFile:
    return RegisterFile(
        instruction=instruction, arch=arch, sparsity_selector=sparsity_selector, metadata="silicon", **fields
    )


def _wgmma_file(
    instruction: Instruction,
    matrices: MatrixOperands,
    e: NDArray[np.uint32] | None,
    sparsity_selector: int,
    rng: np.random.Generator,
    spread: bool = False,
) -> RegisterFile:
    """Return a register file (``.npz``) for ``wgmma``; `rng` chooses location of A, placement, imm-scale, scale-d."""
    in_registers = bool(rng.integers(2))
    operands = ({} if in_registers else {"a": matrices.a}) | {"b": matrices.b.swapaxes(1, 2)}
    b, layout = random_image(instruction, operands, rng, spread=spread)

    signs = (1,) if instruction.a.is_integer else (1, 1, -1)
    return RegisterFile(
        instruction=instruction,
        sparsity_selector=sparsity_selector,
        a=to_registers(matrices.a, a_fragment(instruction)) if in_registers else None,
        b=b,
        c=to_registers(matrices.c, accumulator_fragment(instruction)),
        e=e,
        arch="sm_90",
        metadata="silicon",
        **_case_descriptors(layout.descriptors, len(matrices.b)),
        scale_d=bool(rng.random() < 0.9),
        imm_scale=(int(rng.choice(signs)), int(rng.choice(signs))),
        imm_trans=(int(layout.transposed.get("a", False)), int(layout.transposed["b"])),
    )


#: Sets of metadata nibbles to draw from, each with the metadata policy that accepts all nibbles of the set.
NIBBLES = {"legal": "strict", "software": "software", "all": "silicon"}
#: Share of chunks without nonzero elements. These chunks have stored zeros and nibble 0x0, as libraries write them.
_EMPTY_CHUNKS = 0.25
#: Distributions that also apply to block scales. With other distributions, scales are never NaN: NaN would hide the
#: products.
_SCALE_DISTRIBUTIONS = ("wide", "bits")


def drawn_distributions(instruction: Instruction, distribution: str | None) -> tuple[str, ...]:
    """Return the operand distributions to use in turn: the given one or, for None, all that fit the instruction.

    Raise an `OperandError` if the distribution does not fit the instruction.
    """
    fitting = distributions(instruction)
    if distribution is None:
        return fitting
    if distribution not in fitting:
        raise OperandError(f"distribution must be one of {', '.join(fitting)} for {instruction}, not {distribution!r}")
    return (distribution,)


def draw_tiles(
    instruction: Instruction, names: tuple[str, ...], nibbles: str, tiles: int, rng: np.random.Generator, first: int = 0
) -> Given:
    """Return random tiles, numbered from `first`. A tile has the distribution ``names[number % len(names)]``.

    `names` is a result of :func:`drawn_distributions`, `nibbles` a key of :data:`NIBBLES`.
    """
    turns = np.arange(first, first + tiles) % len(names)
    counts = np.bincount(turns, minlength=len(names)).tolist()
    parts = [Given(scaled_matrices(instruction, *pair, rng)) for pair in zip(names, counts, strict=True) if pair[1]]
    matrices = joined(parts).matrices.take(np.argsort(np.argsort(turns, kind="stable")))
    return _with_metadata(instruction, matrices, nibbles, rng)


def scaled_matrices(i: Instruction, distribution: str, cases: int, rng: np.random.Generator) -> MatrixOperands:
    """Return random operands of tiles, including block scales, but without metadata."""
    container = CONTAINERS[i.container_bits]
    a, b, c = random_matrices(i, distribution, cases, rng)
    matrices = MatrixOperands(a.astype(container), b.astype(container), c.astype(CONTAINERS[i.c.bits]))
    if i.scale_format is None or i.scale_size is None:
        return matrices
    scale_kind = distribution if distribution in _SCALE_DISTRIBUTIONS else "mid"
    scale_a, scale_b = (
        random_codes(i.scale_format, scale_kind, (cases, rows, i.scale_size), rng).astype(np.uint8)
        for rows in (i.m, i.n)
    )
    return replace(matrices, scale_a=scale_a, scale_b=scale_b)


def _with_metadata(i: Instruction, matrices: MatrixOperands, nibbles: str, rng: np.random.Generator) -> Given:
    if i.rule is None:
        return Given(matrices)
    drawn, elsewhere = (random_nibbles(i, len(matrices.a), rng, any_nibble=nibbles == "all") for _ in range(2))
    if nibbles == "software":
        assert i.granularity
        empty = rng.random(drawn.shape) < _EMPTY_CHUNKS
        drawn[empty] = 0
        # Set only the magnitude to zero: keep the sign bit and the unused bits of the byte or word.
        magnitude = (1 << i.a.bits - (0 if i.a.is_integer else 1)) - 1
        zeros = matrices.a & ~matrices.a.dtype.type(magnitude << i.low_bit(i.a))
        is_zero = empty.repeat(i.granularity.stored, axis=-1)
        matrices = replace(matrices, a=np.where(is_zero, zeros, matrices.a))
    # For mma and wgmma, metadata registers of all other sparsity selectors have random bits.
    has_other_selectors = i.family == "tcgen05" and i.sparsity_selectors > 1
    return Given(replace(matrices, nibbles=drawn), elsewhere if has_other_selectors else None)
