"""Compare the golden model with ``mmasim``, a public model of dense instructions, on the same matrix products.

A sparse instruction is compared with the dense instruction whose K equals the stored K. The method ``dpa`` of mmasim
takes the operand vectors of each output. To form these vectors, this module gathers the selected elements of B with a
formula that is independent of the golden model.
"""

from typing import Any

import numpy as np
import torch
from mmasim.arithmetic.helper import decode_uint8_to_fp6_fp4
from mmasim.nv_ptx import MMA, WGMMA, MMABlockScale, TCGen05MMA, TCGen05MMABlockScale
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.operands.registers import CONTAINERS, random_nibbles
from sptc.sim.benches.random_operands import random_codes, random_matrices

__all__ = ["NAMES", "compare", "expected_of", "name_of", "oracle_of"]

torch.set_num_threads(1)  # The tensors are small: on a busy machine, threads of torch would mostly wait.

#: Name of each architecture in the public model mmasim. sm_86 has the numerics of sm_80.
NAMES = {
    "sm_80": "Ampere",
    "sm_86": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_90": "Hopper",
    "sm_100": "Blackwell",
    "sm_120": "RTX Blackwell",
}
TORCH_TYPES = {
    "f32": torch.float32,
    "tf32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "ue4m3": torch.float8_e4m3fn,
    "ue8m0": torch.float8_e8m0fnu,
}


def name_of(i: Instruction) -> str:
    """Return an instruction's name in the public model mmasim: shape, kind and types (type of C only for ``mma``)."""
    of_mma = i.family == "mma"
    words = [f"m{i.m}n{i.n}k{i.stored_k}", f"kind::{i.kind}" if i.kind else ""]
    words += [f"block{i.stored_k // i.scale_size}"] if i.scale_format and i.scale_size else []
    words += [i.d.name, i.a.name, i.b.name, i.c.name if of_mma else "", i.scale_format.name if i.scale_format else ""]
    return ".".join(filter(None, words))


def oracle_of(i: Instruction, arch: str) -> Any:
    """Return the public model mmasim of an instruction. Raise an `AssertionError` if mmasim has no model."""
    if i.family == "wgmma":
        return WGMMA(NAMES[arch], name_of(i))
    plain, scaled = (MMA, MMABlockScale) if i.family == "mma" else (TCGen05MMA, TCGen05MMABlockScale)
    return (scaled if i.scale_format else plain)(NAMES[arch], name_of(i))


def _tensor(codes: NDArray, name: str) -> torch.Tensor:
    size = TORCH_TYPES[name].itemsize
    unsigned = codes.astype(f"u{size}", copy=False)
    return torch.from_numpy(unsigned.view(f"i{size}") if size > 1 else unsigned).view(TORCH_TYPES[name])


def _result_codes(d: torch.Tensor) -> NDArray[np.uint32]:
    """Return f16 or f32 results as codes, with the NaN code of the hardware."""
    half = d.dtype == torch.float16
    codes = d.view(torch.int16 if half else torch.int32).numpy().view(np.uint16 if half else np.uint32)
    return np.where(d.isnan().numpy(), np.uint32(0x7FFF if half else 0x7FFFFFFF), codes)


def _units_of(i: Instruction, fmt: Format, containers: NDArray) -> NDArray:
    """Split operand vectors into units that an index selects: half a tf32, a 16- or 8-bit element, or a 4-bit pair.

    The decoder of mmasim converts 6-bit elements, and 4-bit elements in 8-bit containers, to f16 codes.
    """
    if i.container_bits == 32:
        return np.ascontiguousarray(containers.astype("<u4", copy=False)).view("<u2")
    if i.container_bits == 4:
        return (containers[..., ::2] | containers[..., 1::2] << containers.dtype.type(4)).astype(np.uint8)
    units = containers.astype(f"u{i.container_bits // 8}")
    if fmt.name in TORCH_TYPES:
        return units
    decoded = decode_uint8_to_fp6_fp4(torch.arange(256, dtype=torch.uint8), fmt.name)
    return decoded.view(torch.int16).numpy().view(np.uint16).take(units)


def _vectors(i: Instruction, fmt: Format, units: NDArray) -> torch.Tensor:
    """Convert operands, split into tf32 halves, elements or 4-bit pairs, to a tensor for the public model mmasim."""
    if i.container_bits == 4:  # The model mmasim has the first of two 4-bit elements in the high half of a byte.
        return torch.from_numpy(units >> 4 | units << 4)
    if i.container_bits == 32:
        return _tensor(np.ascontiguousarray(units).view("<u4"), fmt.name)
    return _tensor(units, fmt.name if fmt.name in TORCH_TYPES else "f16")


def _selected_units(i: Instruction, arch: str, units: NDArray, nibbles: NDArray | None) -> NDArray:
    """Return the elements (or parts of them) of B that metadata selects, shape (tiles, m or 1, n, selected along K).

    `units` contains the units of B by columns, shape (tiles, n, units along K).
    """
    if nibbles is None:
        return units[:, None]
    pairs = np.stack([nibbles & 3, nibbles >> 2], -1) + 4 * np.arange(i.chunks)[:, None]
    picked = pairs.reshape(len(nibbles), i.m, 1, -1).astype(np.intp)
    selected = np.take_along_axis(units[:, None], picked, axis=3)
    if arch in ("sm_100", "sm_120"):
        # The first 3:1 multiplexer of a chunk cannot select unit 3, and the second cannot select unit 0. With unordered
        # metadata (mma.sp), the two stored elements are exchanged if both are selectable after the exchange.
        plain = (i.family, i.sparse) == ("mma", "sp") and i.a.name != "tf32"
        lost = [nibbles == 15, nibbles == 0] if plain else [nibbles & 3 == 3, nibbles >> 2 == 0]
        selected[np.broadcast_to(np.stack(lost, -1).reshape(picked.shape), selected.shape)] = 0
    return selected


def compare(
    i: Instruction,
    arch: str,
    oracle: Any,
    distribution: str,
    rng: np.random.Generator,
    *,
    tiles: int = 1,
    any_nibble: bool = False,
) -> int:
    """Compare golden model and public model mmasim on random operands. Return the number of compared outputs."""
    widths = (i.container_bits, i.container_bits, i.c.bits)
    a, b, c = (
        part.astype(CONTAINERS[width])
        for part, width in zip(random_matrices(i, distribution, tiles, rng), widths, strict=True)
    )
    nibbles = random_nibbles(i, tiles, rng, any_nibble=any_nibble) if i.rule else None
    scales = []
    if i.scale_format and i.scale_size:
        for shape in (
            (tiles, n, i.scale_size) for n in (i.m, i.n)
        ):  # Few scales are NaN or Inf, because NaN and Inf hide errors of other values.
            common, rare = (random_codes(i.scale_format, kind, shape, rng) for kind in ("mid", distribution))
            scales.append(np.where(rng.random(shape) < 0.9, common, rare).astype(np.uint8))
    operands = MatrixOperands(a, b, c, nibbles, *scales)
    computed, expected = multiply(i, arch, operands), expected_of(i, arch, oracle, operands)
    wrong = computed != expected
    assert not wrong.any(), (
        f"{distribution}: {wrong.sum()} of {computed.size} outputs differ, first at (tile, row, column) = "
        f"{np.argwhere(wrong)[0]}: got {computed[wrong][0]:#x}, expected {expected[wrong][0]:#x}"
    )
    return computed.size


def expected_of(i: Instruction, arch: str, oracle: Any, operands: MatrixOperands) -> NDArray:
    """Return the results of the public model mmasim for a batch of operand matrices."""
    scales = [part for part in (operands.scale_a, operands.scale_b) if part is not None]
    columns = np.ascontiguousarray(operands.b.swapaxes(1, 2))
    d = oracle.dpa(
        _vectors(i, i.a, _units_of(i, i.a, operands.a)[:, :, None]),
        _vectors(i, i.b, _selected_units(i, arch, _units_of(i, i.b, columns), operands.nibbles)),
        _tensor(operands.c, i.c.name),
        *(_tensor(np.expand_dims(part, 2 - place), i.scale_format.name) for place, part in enumerate(scales)),
    )
    return _result_codes(d)
