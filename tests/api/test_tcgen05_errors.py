"""``tcgen05.mma`` accepts only the metadata that the policy permits, and rejects wrong operands with a message."""

import contextlib
import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.api.tcgen05 import placement_of
from sptc.isa.instruction_descriptor import InstructionDescriptor
from sptc.isa.memory import encode_descriptor
from sptc.isa.tcgen05 import parse_opcode
from sptc.isa.tensor_memory import LAYOUTS, a_map, layout_for, metadata_map
from sptc.operands.tensor_memory import Placement
from sptc.tests.isa.test_formats import LEGAL

from .tcgen05_case import AT, DENSE, DENSE2, F16, F16_2, MXF8, NVF4, SP, SP2, WS, case, fill_tensor, instruction_for

Random = np.random.Generator


@pytest.mark.parametrize(("head", "kind"), [*product((SP, SP2), ("tf32", "f16", "i8", "mxf4.block_scale"))])
def test_strict_takes_the_defined_nibbles_alone(head: str, kind: str, rng: Random) -> None:
    given = case(f"{head}.kind::{kind}", rng, n=32)
    i, opcode = given.instruction, parse_opcode(given.text)
    selector = given.arguments["idesc"] & 1 if i.sparsity_selectors > 1 else 0
    where, rows = metadata_map(layout_for(opcode, i.m), i, selector, AT.e), i.m // opcode.cta_group
    assert i.rule
    for chunk in (0, int(rng.integers(1, i.chunks - 1)), i.chunks - 1):
        cta, row = (int(rng.integers(size)) for size in (opcode.cta_group, rows))
        lane, column, low = (int(part[row, chunk]) for part in (where.lanes, where.columns, where.low_bits))
        taken = set()
        for nibble in range(16):
            tmem = given.arguments["tmem"].copy()
            word = tmem.reshape(-1, 128, 512)[cta, lane : lane + 1, column]
            word[:] = word & ~np.uint32(15 << low) | np.uint32(nibble << low)
            with contextlib.suppress(sptc.MetadataError):
                given.run(tmem=tmem)
                taken.add(nibble)
        assert taken == LEGAL[i.rule.name], (row, chunk)


@pytest.mark.parametrize(("text", "row", "chunk"), [(F16, 41, 6), (F16_2, 233, 6), (f"{SP}.kind::i8", 77, 11)])
def test_undefined_metadata(text: str, row: int, chunk: int, rng: Random) -> None:
    given = case(text, rng, n=32, options={"sparsity_selector": 0})
    i = given.instruction
    cta, local = divmod(row, 128)
    where = metadata_map(layout_for(parse_opcode(text), i.m), i, 0, AT.e)
    lane, column, low = (int(part[local, chunk]) for part in (where.lanes, where.columns, where.low_bits))
    tmem = np.stack([given.arguments["tmem"]] * 2)
    words = tmem.reshape(2, -1, 128, 512)[1, cta]
    words[lane, column] = words[lane, column] & ~np.uint32(15 << low) | np.uint32(0b0101 << low)
    with pytest.raises(sptc.MetadataError) as caught:
        given.run(tmem=tmem)
    error = caught.value
    assert (error.batch, error.row, error.chunk) == ((1,), row, chunk)
    assert (error.lane, error.column, error.low_bit, error.nibble, error.rule) == (lane, column, low, 5, "tcgen05")
    assert f"batch 1, row {row}, chunk {chunk} (lane {lane}, column {column}, bits {low + 3}:{low}): " in str(error)
    given.nibbles[row, chunk] = 0b0101
    given.arguments["tmem"] = tmem[1]
    np.testing.assert_array_equal(given.run(metadata="silicon"), given.expected())


def test_software_takes_empty_chunks(rng: Random) -> None:
    given = case(F16, rng, n=8, a_in="tensor", options={"sparsity_selector": 0})
    where = metadata_map(LAYOUTS["D"], given.instruction, 0, AT.e)
    fill_tensor(given.arguments["tmem"][None], replace(where, copies=(0,)), np.zeros((1, 128, 8), np.uint32))
    given.nibbles[:] = 0
    given.a[:] = 0x8000
    fill_tensor(given.arguments["tmem"][None], a_map(LAYOUTS["D"], given.instruction, AT.a), given.a[None])
    with pytest.raises(sptc.MetadataError, match="row 0, chunk 0 "):
        given.run()
    np.testing.assert_array_equal(given.run(metadata="software"), given.expected())
    given.arguments["tmem"][19, AT.a] ^= 1
    with pytest.raises(sptc.MetadataError, match="row 19, chunk 0 "):
        given.run(metadata="software")


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (F16, {"arch": "sm_90"}, r"^sm_90 does not have tcgen05\.mma\.sp"),
    (F16, {"backend": "cuda"}, r"^back end 'cuda' executes mma and wgmma, not tcgen05\.mma$"),
    (F16, {"instruction": f"{F16}.ashift"}, r"^a of .* must be in tensor memory, where '\.ashift' shifts it, not in"),
    (F16, {"e": None}, r"is sparse and requires the metadata operand e$"),
    (f"{DENSE}.kind::f16", {"e": AT.e}, r"is dense and takes no metadata operand e$"),
    (F16, {"zero_column_mask": 0}, r"takes no zero_column_mask, which only '\.ws' has$"),
    (f"{WS}.kind::f16", {"zero_column_mask": 1 << 56}, r"by 1 columns, but the instruction descriptor allows 0$"),
    (F16, {"b": 1 << 46 | 1 << 52}, r"has an absolute leading address, which is not modelled; bit 52 must be 0$"),
    (F16, {"idesc": 4.5}, r"^idesc of .* must be an int, not float$"),
    (F16, {"a": 1 << 40}, r"^a must be a 32-bit address of tensor memory, not 1099511627776$"),
    (F16, {"scale_a": 5}, r"has no block scales and takes no scale_a$"),
    (NVF4, {"scale_b": None}, r"is block-scaled and requires scale_b$"),
    (F16, {"enable_input_d": 1}, r"^enable_input_d of .* must be True or False, not 1$"),
    (F16, {"scale_input_d": 16}, r"^scale_input_d of .* must be 0 to 15, not 16$"),
    (NVF4, {"scale_input_d": 1}, r"^scale_input_d of .* must be 0, not 1; only kinds f16 and tf32 have other values$"),
    (F16, {"disable_output_lane": [0] * 8}, r"^disable_output_lane of .* must be 4 numbers of 32 bits"),
    (F16_2, {"disable_output_lane": [0] * 8}, r"must be left out: no public source states which of its eight"),
    (NVF4, {"disable_output_lane": [0] * 4}, r"takes no disable_output_lane$"),
    (F16, {"tmem": np.zeros((128, 511), np.uint32)}, r"\(\.\.\., 128, 512\), not uint32 of shape \(128, 511\)$"),
    (F16_2, {"smem": np.zeros(1 << 17, np.uint8)}, r"^smem of .* of shape \(2, \.\.\., bytes\), not uint8"),
    (F16, {"smem": np.zeros(64, np.uint8)}, r"^descriptor a of .* reaches byte 64, but smem has 64 bytes$"),
]  # fmt: skip


def test_refused(rng: Random) -> None:
    for text, changes, message in REFUSED:
        given = case(text, rng, n=64 if "ws" in text else 16)
        with pytest.raises(sptc.Error) as caught:
            given.run(**changes)
        assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("text", "m", "n"),
    [
        *((F16, 128, 16), (F16, 64, 16), (f"{SP2}.kind::i8", 256, 32), (NVF4, 128, 64), (MXF8, 128, 16)),
        *((f"{DENSE2}.kind::mxf4.block_scale", 128, 64), (f"{WS}.kind::f16", 64, 64)),
    ],
)
def test_operands_lie_beside_d_on_either_side(text: str, m: int, n: int) -> None:
    """Each operand may end just before D or begin just after D. An overlap of one column is rejected."""
    opcode = parse_opcode(text)
    i = instruction_for(opcode, {"m": m, "n": n})
    descriptor = InstructionDescriptor(instruction=i, sparsity_selector=i.sparsity_selectors - 1)
    b = encode_descriptor(0, 1024, 128, family="tcgen05")
    apart = {"d": 0, "b": b, "a": 300, **({"e": 400} if i.sparse else {})}
    scales = {"scale_a": 440 if i.scale_size else None, "scale_b": 460 if i.scale_size else None}

    def placed(**changes: int) -> Placement:
        at = apart | scales | changes
        operands, of_scales = ({name: at[name] for name in names} for names in (apart, scales))
        return placement_of(opcode, descriptor, operands, of_scales, None)

    width = int(np.ptp(placed().d.columns)) + 1
    names = [name for name in ("a", "e", "scale_a", "scale_b") if {**apart, **scales}.get(name)]
    assert len(names) == 1 + bool(i.sparse) + 2 * bool(i.scale_size)
    for name in names:
        columns = getattr(placed(**{name: 200}), name).columns
        first, last = int(columns.min()), int(columns.max())
        for d in (last + 1, first - width):
            placed(**{name: 200, "d": d})
        for d in (last, first, first - width + 1):
            with pytest.raises(sptc.OperandError, match=f"^{name} of .* must not overlap d in tensor memory$"):
                placed(**{name: 200, "d": d})


def test_lanes_and_copies(rng: Random) -> None:
    """Operands that use half of the lanes must start at the same lane, and the copies of an operand must be equal."""
    given = case(F16, rng, n=16)
    idesc = given.arguments["idesc"] ^ 12 << 24
    for changes, lanes in (
        ({"d": 16 << 16 | AT.d}, "d at 16, e at 0"),
        ({"d": 16 << 16 | AT.d, "e": 16 << 16 | AT.e, "a": AT.a}, "d at 16, e at 16, a at 0"),
    ):
        with pytest.raises(sptc.OperandError, match=f"must start at the same lane, not {lanes}$"):
            given.run(idesc=idesc, **changes)
    scaled = case(NVF4, rng, n=16)
    stationary = case(f"{WS}.kind::f16", rng, m=64, n=64, options={"sparsity_selector": 0})
    halves = case(f"{DENSE2}.kind::f16", rng, m=128, n=64, a_in="tensor")
    for given, lane, column, message in (
        (scaled, 35, AT.scale_a, r"^scale_a of .* in its 4 copies .* lanes 3 and 35, column 60, differ$"),
        (scaled, 105, AT.scale_b, r"^scale_b of .* lanes 9 and 105, column 90, differ$"),
        (stationary, 64, AT.e, r"^e of .* in its 2 copies .* lanes 0 and 64, column 40, differ$"),
        (halves, 81, AT.a, r"a of .* the same in its 2 copies .* lanes 17 and 81, column 3"),
    ):
        tmem = given.arguments["tmem"].copy()
        tmem.reshape(-1, 128, 512)[-1, lane, column] ^= 1
        with pytest.raises(sptc.OperandError, match=message):
            given.run(tmem=tmem)


def test_swizzles_that_do_not_fit(rng: Random) -> None:
    tf32 = f"{SP}.kind::tf32"
    atoms, plain = (encode_descriptor(0, 128, 256, name, family="tcgen05") for name in ("128B with 32B atoms", "128B"))
    for text, options, changes, message in (
        (F16, {}, {"b": atoms}, r"descriptor b of .* must not use .* for K-major \.f16$"),
        (F16, {"transpose_b": True}, {"b": atoms}, r"descriptor b of .* must not use .* for transposed \.f16$"),
        (tf32, {}, {"a": atoms}, r"descriptor a of .* must not use .* for K-major \.tf32$"),
        (tf32, {"transpose_b": True}, {"b": plain}, r"descriptor b of .* must use .* for transposed \.tf32$"),
    ):
        atom = "128B with 32B atoms" if text == tf32 and options else "none"
        given = case(text, rng, n=16, options=options, swizzles=("none", atom), d="f32")
        with pytest.raises(sptc.OperandError, match=message):
            given.run(**changes)
    given = case(F16, rng, n=16, options={"transpose_a": True})
    with pytest.raises(sptc.OperandError, match=r"a of .* must be in shared memory to be transposed"):
        given.run(a=AT.a)
