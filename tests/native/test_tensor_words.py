"""Every word of tensor memory that ``tcgen05.mma`` reads reaches D in the library, in every layout; and limits."""

from typing import Any

import numpy as np
import pytest
from sptc.isa.tcgen05 import Opcode, every_opcode, instructions_of, parse_opcode
from sptc.isa.tensor_memory import TensorMap, a_map, layout_for, metadata_map, scale_map

from ..api.tcgen05_case import DENSE_WS, WS, Case, case
from .held import RefusedError, run_tensor

Random = np.random.Generator

#: One opcode of every layout of operands: of wide and narrow elements, and each number of block scales.
PLACED = [
    (opcode, m)
    for opcode in every_opcode()
    if opcode.kind in ("f16", "tf32", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
    for m in opcode.rows
]


def operand_maps(one: Case, opcode: Opcode, selector: int, ids: dict[str, int]) -> dict[str, TensorMap]:
    """Return where operands other than D lie in tensor memory, as `isa` says."""
    i, at = one.instruction, one.arguments
    layout = layout_for(opcode, i.m)
    maps = {"a": a_map(layout, i, at["a"])} if at["a"] < 1 << 32 else {}
    if i.sparse:
        maps["e"] = metadata_map(layout, i, selector, at["e"])
    if i.scale_size:
        for name, lines, parts in (("a", layout.rows, 1), ("b", i.n, layout.column_parts)):
            maps[f"scale_{name}"] = scale_map(
                name, lines, i.scale_size, ids[f"scale_id_{name}"], at[f"scale_{name}"], parts
            )
    return maps


def columns_changed(where: TensorMap, tmem: np.ndarray, rng: Random) -> np.ndarray:
    """Return images in each of which one column of an operand has other bits, the same in all copies and CTAs."""
    columns = np.unique(where.columns)
    images = np.stack([tmem.reshape(-1, 128, 512)] * len(columns))
    low, high = int(where.low_bits.min()), int(where.low_bits.max()) + where.element_bits
    mask = np.uint32((1 << high) - (1 << low))
    for image, column in zip(images, columns, strict=True):
        lanes = np.unique(where.lanes[where.columns == column])
        changed = rng.integers(0, 1 << 32, len(lanes), dtype=np.uint32) & mask
        for copy in where.copies:
            image[:, lanes + copy, column] ^= changed
    return images


@pytest.mark.parametrize(("opcode", "m"), PLACED, ids=str)
def test_every_column_of_an_operand(opcode: Opcode, m: int, rng: Random) -> None:
    """Changed alone, in all its lanes, it changes D as it does in the golden model."""
    i = next(i for i in instructions_of(opcode) if i.m == m)
    n = 128 if i.scale_size or m == 32 else 64
    in_tensor = layout_for(opcode, m).rows == 128 or (opcode.kind == "f16" and m != 32)
    for selector in range(i.sparsity_selectors):
        ids = {f"scale_id_{x}": int(rng.choice(range(0, 4, i.scale_size))) if i.scale_size else 0 for x in "ab"}
        one = case(
            str(opcode), rng, m=m, n=n, a_in="tensor" if in_tensor else "shared",
            options={"sparsity_selector": selector, **ids},
        )  # fmt: skip
        maps = operand_maps(one, opcode, selector, ids)
        for name, where in maps.items():
            images = columns_changed(where, one.arguments["tmem"], rng)
            tmem = np.moveaxis(images, 1, 0) if one.ctas == 2 else images[:, 0]
            smem = np.stack([one.arguments["smem"]] * len(images), axis=one.ctas - 1)
            arguments: dict[str, Any] = {**one.arguments, "tmem": tmem, "smem": smem, "metadata": "silicon"}
            expected = one.run(tmem=tmem, smem=smem, metadata="silicon")
            np.testing.assert_array_equal(
                run_tensor(str(opcode), **arguments), expected, f"{name} of {one.instruction}"
            )
            d = np.moveaxis(expected, 1, 0) if one.ctas == 2 else expected
            results = {image[..., one.d.lanes, one.d.columns].tobytes() for image in d}
            assert len(results) == len(images), f"{name} of {one.instruction}: a column does not reach D"


@pytest.mark.parametrize("text", [f"{WS}.kind::f16", f"{DENSE_WS}.kind::i8"])
def test_shifts_of_columns(text: str, rng: Random) -> None:
    """Up to what the instruction descriptor allows, of 32 rows at most 16 columns, of others 32."""
    for m in parse_opcode(text).rows:
        most = 16 if m == 32 else 32
        for allowed in (0, 8, 16, 32):
            one = case(text, rng, m=m, n=64, options={"max_shift": allowed})
            for shift in {0, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63}:
                arguments = {**one.arguments, "zero_column_mask": shift << 56}
                if shift <= min(allowed, most):
                    expected = one.run(zero_column_mask=shift << 56)
                    np.testing.assert_array_equal(run_tensor(text, **arguments), expected, f"m = {m}, shift {shift}")
                    continue
                with pytest.raises(RefusedError, match=f"shifts by {shift} columns, but"):
                    run_tensor(text, **arguments)
