"""Every operand of ``mma`` out of its own registers: element by element, with each selector and each pair of ids."""

from itertools import product

import numpy as np
from numpy.typing import NDArray
from sptc.golden.registers import gather_warp
from sptc.isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import HeldOperands, Immediates

Words = NDArray[np.uint32]
#: First bytes of scales by their number.
BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}


def _layouts() -> list[Instruction]:
    """Return one instruction of each shape, container, width of results and number of scales."""
    found: dict[tuple[object, ...], Instruction] = {}
    for i in every_instruction("mma"):
        found.setdefault((i.shape, bool(i.sparse), i.container_bits, i.d.bits, i.scale_size), i)
    return [*found.values()]


def _matrix(registers: Words, fragment: Fragment) -> Words:
    bits = fragment.element_bits
    elements = registers[..., None] >> np.arange(0, 32, bits, dtype=np.uint32) & np.uint32((1 << bits) - 1)
    matrix = np.empty((len(registers), *fragment.shape), np.uint32)
    matrix[:, fragment.rows, fragment.columns] = elements
    return matrix


def _ids(scale_size: int) -> list[tuple[int, int, int, int]]:
    """Return byte and thread ids of A and of B, which differ wherever there is a choice."""
    bytes_of = [(a, b) for a, b in product(BYTE_IDS[scale_size], repeat=2) if a != b or scale_size == 4]
    threads = [(a, b) for a, b in product(range(2), range(4)) if a != b]
    return [(byte_a, a, byte_b, b) for (byte_a, byte_b), (a, b) in product(bytes_of, threads)]


def test_each_operand_is_read_from_its_own_registers(rng: np.random.Generator) -> None:
    for i in _layouts():
        fragments = {"a": a_fragment(i), "b": b_fragment(i), "c": accumulator_fragment(i)}
        arrays = {
            name: rng.integers(0, 1 << 32, (3, *where.rows.shape[:2]), dtype=np.uint32)
            for name, where in fragments.items()
        }
        arrays |= {name: rng.integers(0, 1 << 32, (3, 32), dtype=np.uint32) for name in ("e", "scale_a", "scale_b")}
        for selector in range(i.sparsity_selectors):
            found = gather_warp(i, HeldOperands(arrays, Immediates(selector)))
            for name, where in fragments.items():
                np.testing.assert_array_equal(getattr(found, name), _matrix(arrays[name], where), f"{name} of {i}")
            if i.sparse:
                places = metadata_map(i, selector)
                nibbles = arrays["e"][:, places.lanes] >> places.low_bits.astype(np.uint32) & 15
                np.testing.assert_array_equal(found.nibbles, nibbles, f"selector {selector} of {i}")


def test_scales_of_a_and_b_have_ids_of_their_own(rng: np.random.Generator) -> None:
    """A pair of lanes of each four holds rows g and g + 8 of A, one lane column g of B."""
    scaled = [i for i in _layouts() if i.scale_size]
    assert {i.scale_size for i in scaled} == set(BYTE_IDS)
    for i in scaled:
        assert i.scale_size
        shapes = {name: (1, *make(i).rows.shape[:2]) for name, make in
                  (("a", a_fragment), ("b", b_fragment), ("c", accumulator_fragment))}  # fmt: skip
        arrays = {name: np.zeros(shape, np.uint32) for name, shape in shapes.items()}
        arrays |= {name: rng.integers(0, 1 << 32, (1, 32), dtype=np.uint32) for name in ("e", "scale_a", "scale_b")}
        octets = {name: arrays[f"scale_{name}"].view(np.uint8).reshape(8, 4, 4) for name in "ab"}  # g, lane, byte
        for byte_a, thread_a, byte_b, thread_b in _ids(i.scale_size):
            ids = (byte_a, thread_a, byte_b, thread_b)
            found = gather_warp(i, HeldOperands(arrays, Immediates(scale_ids=ids)))
            of_pair = octets["a"][:, 2 * thread_a : 2 * thread_a + 2, byte_a : byte_a + i.scale_size]
            expected_a = of_pair.swapaxes(0, 1).reshape(1, 16, -1)
            np.testing.assert_array_equal(found.scale_a, expected_a, f"A, ids {ids} of {i}")
            expected_b = octets["b"][None, :, thread_b, byte_b : byte_b + i.scale_size]
            np.testing.assert_array_equal(found.scale_b, expected_b, f"B, ids {ids} of {i}")
