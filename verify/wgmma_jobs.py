"""Register files of ``wgmma`` as jobs for the bench of a warpgroup."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import every_instruction
from ..isa.operands import Immediates
from ..operands.registers import unpack_nibbles
from ..rtl.config import CoreConfig
from ..rtl.fetch import ADDRESS_BITS, PANEL_ROWS, descriptor_layout
from ..rtl.life_cycle import Operation
from ..rtl.panel_operands import fragment_layout
from ..rtl.warp import COLUMNS, LANES, REGISTERS, ROWS, warp_result_layout
from ..rtl.warpgroup import warpgroup_layout
from ..sim.benches.items import Item
from ..sim.benches.jobs import Job
from ..sim.benches.random_operands import distributions
from ..sim.engine.warpgroup_commands import wgmma_fields
from .register_file import RegisterFile
from .stimulus import random_register_file

__all__ = ["random_warpgroup_jobs", "warpgroup_jobs_of"]

_UNIT_BYTES = 16
#: Size of shared memory, and of the longest swizzle pattern, in units of 16 bytes.
_UNITS, _PATTERN_UNITS = 1 << ADDRESS_BITS, 64
_WARPS = 4
#: One in this number of random instructions has more than four panels of B.
_LONG_ONE_IN = 12
#: One in this number of random instructions has operands spread over much of shared memory.
_SPREAD_ONE_IN = 6


@dataclass(frozen=True, eq=False)
class _Share:
    """Part of a case that belongs to one warp.

    Attributes
    ----------
    registers : dict of str to list
        A and metadata of the warp.
    accumulators, results : list of int
        Payload bits of each panel.
    """

    registers: dict[str, Any]
    accumulators: list[int]
    results: list[int]


def warpgroup_jobs_of(file: RegisterFile, config: CoreConfig, rng: np.random.Generator, base: int = 0) -> Iterator[Job]:
    """Yield every case of a register file as a job of a warpgroup.

    Parameters
    ----------
    file : RegisterFile
        Register file of a ``wgmma``. The expected results are its D or, without D, those of the golden model.
    config : CoreConfig
        Datapath that computes it.
    rng : Generator
        Draws registers that are not read.
    base : int
        Unit of shared memory to which the image is moved: a multiple of 64, the length of a swizzle pattern.
    """
    reads = _reads(file, _WARPS * ROWS)
    for case, (fields, shares) in enumerate(_cases(file, config, rng, base)):
        registers = {name: [share.registers[name] for share in shares] for name in ("a", "e")}
        instruction = warpgroup_layout().const(fields | {"operation": Operation.MULTIPLY} | registers)
        accumulators = _side_by_side([share.accumulators for share in shares], fragment_layout().size)
        results = _side_by_side([share.results for share in shares], warp_result_layout().size)
        panels = _items(file, config, f"case {case}", accumulators, results)
        yield Job(int(instruction.as_value().value), _units(file.b[case]), base, reads, panels)


def _side_by_side(shares: Iterable[list[int]], width: int) -> list[int]:
    """Join the payloads of all warps, each of `width` bits, panel by panel."""
    panels = zip(*shares, strict=True)
    return [sum(part << width * warp for warp, part in enumerate(parts)) for parts in panels]


def _items(file: RegisterFile, config: CoreConfig, of: str, accumulators: list[int], results: list[int]) -> list[Item]:
    i = file.instruction
    element = config.element_code(i.a, i.container_bits)
    return [
        Item(f"{i}, {of}, columns {COLUMNS * panel} to {COLUMNS * panel + 7}", given, wanted, element)
        for panel, (given, wanted) in enumerate(zip(accumulators, results, strict=True))
    ]


def _cases(
    file: RegisterFile, config: CoreConfig, rng: np.random.Generator, base: int
) -> Iterator[tuple[dict[str, Any], list[_Share]]]:
    """Yield, for each case, the fields that its four warps share, and the share of each warp."""
    i = file.instruction
    assert file.b_descriptor is not None
    d = file.run() if file.d is None else file.d
    e = rng.integers(0, 1 << 32, file.c.shape[:2], dtype=np.uint32) if file.e is None else file.e
    illegal = np.zeros((file.cases, i.m, 0), np.bool_)
    if i.rule:
        illegal = ~np.isin(unpack_nibbles(e, i, file.sparsity_selector), list(i.rule.legal))
    fields = wgmma_fields(config, i, _immediates(file))
    for case in range(file.cases):
        a_descriptor = rng.integers(1 << 63) if file.a_descriptor is None else file.a_descriptor[case]
        shares = []
        for warp in range(_WARPS):
            lanes, rows = (slice(size * warp, size * (warp + 1)) for size in (LANES, ROWS))
            a = rng.integers(0, 1 << 32, (LANES, REGISTERS)) if file.a is None else file.a[case, lanes]
            flags = sum(1 << 16 * int(row) + int(chunk) for row, chunk in np.argwhere(illegal[case, rows]))
            flags <<= warp_result_layout()["illegal"].offset
            given, wanted = _panels(file.c[case, lanes], i.n, rng), _panels(d[case, lanes], i.n, None)
            accumulators = [int(fragment_layout().const(c.tolist()).as_value().value) for c in given]
            registers = {"a": a.tolist(), "e": e[case, lanes].tolist()}
            shares.append(_Share(registers, accumulators, [_integer(of_panel) | flags for of_panel in wanted]))
        descriptors = {
            "a_descriptor": _moved(int(a_descriptor), base),
            "b_descriptor": _moved(int(file.b_descriptor[case]), base),
        }
        yield fields | descriptors, shares


def _immediates(file: RegisterFile) -> Immediates:
    return Immediates(
        sparsity_selector=file.sparsity_selector,
        a_in_registers=file.a is not None,
        scale_d=file.scale_d,
        imm_scale=file.imm_scale,
        imm_trans=file.imm_trans,
    )


def random_warpgroup_jobs(config: CoreConfig, rng: np.random.Generator) -> Iterator[Job]:
    """Yield random jobs of a warpgroup without end, alternating between the halves of shared memory.

    Two instructions may be in flight; the half of an address tells which of them reads it.
    """
    half, number = _UNITS // 2, 0
    for file in _random_files(config, rng):
        room = half - file.b.shape[1] * file.b.itemsize // _UNIT_BYTES
        if room >= 0:
            base = half * (number % 2) + _PATTERN_UNITS * int(rng.integers(room // _PATTERN_UNITS + 1))
            yield from warpgroup_jobs_of(file, config, rng, base)
            number += 1


def _random_files(config: CoreConfig, rng: np.random.Generator) -> Iterator[RegisterFile]:
    """Yield random register files of one case: every instruction of the datapath, any nibble; most have n <= 32."""
    held = [i for i in every_instruction("wgmma") if config.holds(i)]
    short, long = ([i for i in held if (i.n > 4 * PANEL_ROWS) == is_long] for is_long in (False, True))
    while True:
        for place in rng.permutation(len(short)):
            i = short[place] if rng.integers(_LONG_ONE_IN) else long[rng.integers(len(long))]
            sparsity_selector = int(rng.integers(i.sparsity_selectors))
            yield random_register_file(
                i,
                "sm_90",
                str(rng.choice(distributions(i))),
                1,
                rng,
                sparsity_selector=sparsity_selector,
                any_nibble=bool(rng.integers(2)),
                spread=not rng.integers(_SPREAD_ONE_IN),
            )


def _moved(descriptor: int, base: int) -> Any:
    """Return a descriptor with its start address moved by `base` units."""
    fields = descriptor_layout().from_bits(descriptor)
    start = (fields.start + base) % _UNITS
    return descriptor_layout().const({name: fields[name] for name, _ in descriptor_layout()} | {"start": start})


def _reads(file: RegisterFile, rows: int) -> int:
    """Return the number of core-matrix reads: those of B once and, unless A is in registers, of `rows` rows of A."""
    i = file.instruction
    of_a, of_b = rows * i.stored_k, i.n * i.k
    elements = of_b if file.a is not None else of_a + of_b
    return elements * i.container_bits // 8 // (_UNIT_BYTES * PANEL_ROWS)


def _units(words: NDArray[np.uint32]) -> list[int]:
    octets = words.tobytes()
    return [int.from_bytes(octets[at : at + _UNIT_BYTES], "little") for at in range(0, len(octets), _UNIT_BYTES)]


def _panels(registers: NDArray[np.uint32], n: int, rng: np.random.Generator | None) -> list[NDArray[np.uint32]]:
    """Cut a warp's accumulator into panels of 32 lanes x 4 registers; unused ones hold noise, or zero without `rng`."""
    panels = registers.reshape(LANES, n // COLUMNS, -1)
    used = panels.shape[2]
    result = []
    for panel in range(panels.shape[1]):
        whole = np.zeros((LANES, REGISTERS), np.uint32)
        if rng is not None:
            whole = rng.integers(0, 1 << 32, whole.shape, dtype=np.uint32)
        whole[:, :used] = panels[:, panel]
        result.append(whole)
    return result


def _integer(registers: NDArray[np.uint32]) -> int:
    return int.from_bytes(np.ascontiguousarray(registers).tobytes(), "little")
