"""Explanation of a metadata nibble: legality, selected elements, multiplexers, and software that writes the nibble."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ..golden.select import WHOLE_ELEMENT_NIBBLES, kept_rows
from ..isa.instructions import Instruction, every_instruction
from ..isa.metadata import GRANULARITIES, MUX_OF_ARCHITECTURE, indices, nibble, reachable, swap_for_mux3
from ..isa.tcgen05 import every_opcode, instructions_of
from ..tensors.sparsify import PRODUCERS

__all__ = ["nibble_as_dict", "nibble_text"]

_PYTORCH = "PyTorch and vLLM (CUTLASS path)"
_CUTLASS = "CUTLASS compressor of sm_90, sm_100 and sm_120"
_CUTEDSL = "CuTeDSL sparse_utils"
_MUX = ("mux4", "mux3")
_EVERY = (_PYTORCH, _CUTLASS, _CUTEDSL)
#: Nibbles that CuTeDSL writes according to its source code: for a chunk without a nonzero, and for chunks whose only
#: nonzero is element 0, 1, 2 or 3.
_OF_CUTEDSL = (0b1110, (0b1100, 0b1101, 0b1110, 0b1110))
#: Nibbles that software writes for tf32 chunks without a nonzero, and for chunks with too many nonzeros: nibble,
#: content of the chunk, and name of the software.
_APART = (
    (0b0100, "no nonzero, tf32", _CUTLASS),
    (0b0000, "three or four nonzeros, which is illegal", f"{_CUTEDSL} on a GPU"),
)


def _lone() -> Iterator[tuple[int, str, str]]:
    """Yield (nibble, content, software) for each software and each chunk of four elements with at most one nonzero."""
    records = {_PYTORCH: PRODUCERS["pytorch"], _CUTLASS: PRODUCERS["cutlass3"]}
    tables = {name: (record.empty, record.single) for name, record in records.items()}
    for name, (empty, single) in (tables | {_CUTEDSL: _OF_CUTEDSL}).items():
        yield empty, "no nonzero" if empty else "no nonzero, both stored values 0; and padding of K", name
        for element, written in enumerate(single):
            slot = indices(written).index(element)
            behind = f", stored in slot {slot} behind a 0" if element == 3 and slot and 0 in indices(written) else ""
            yield written, f"only element {element}{behind}", name


@lru_cache(maxsize=1)
def _users() -> dict[tuple[str, str], list[Instruction]]:
    """Return the sparse instructions, grouped by the names of their metadata rule and granularity (e.g. 2:4)."""
    groups: dict[tuple[str, str], list[Instruction]] = {}
    of_tcgen05 = (next(instructions_of(opcode)) for opcode in every_opcode())
    for i in [*every_instruction(), *of_tcgen05]:
        if i.rule and i.granularity:
            groups.setdefault((i.rule.name, i.granularity.name), []).append(i)
    return groups


def _named(instructions: Iterable[Instruction]) -> str:
    """Return instructions as text: opcodes, each followed by its ``.kind`` qualifiers or, without them, types of A."""
    types: dict[str, dict[str, None]] = {}
    for i in instructions:
        opcode = {"mma": f"mma.{i.sparse}", "wgmma": "wgmma.sp", "tcgen05": "tcgen05.mma.sp"}[i.family]
        word = f".kind::{i.kind}" if i.kind else i.a.name
        types.setdefault(opcode, {})[word] = None
    return "; ".join(f"{opcode} {' '.join(words)}" for opcode, words in types.items())


def _selected(value: int, granularity: str) -> str:
    """Return as text the row k of B that each stored element of A selects; ``c`` is the index of the nibble."""
    if granularity == "1:2":
        if value in WHOLE_ELEMENT_NIBBLES:
            return f"stored 0 <- k 2c+{value >> 3}"
        parts = zip(("low", "high"), indices(value), strict=True)
        return "stored 0 <- " + ", ".join(
            f"{half} half from the {('low', 'high')[index & 1]} half of k 2c+{index >> 1}" for half, index in parts
        )
    size = GRANULARITIES[granularity]
    rows = kept_rows(np.array([[value]], np.uint8), size)[0].tolist()
    if size.stored == 2:
        return ", ".join(f"stored {slot} <- k {size.logical}c+{row}" for slot, row in enumerate(rows))
    return ", ".join(f"stored {slot},{slot + 1} <- k {size.logical}c+{rows[slot]},{rows[slot + 1]}" for slot in (0, 2))


def _multiplexers(value: int, rule: str, mux: str) -> str:
    """Return as text which of the four units of B each of the two multiplexers reads."""
    i0, i1 = indices(value)
    slots = [0, 1]
    swaps = mux == "mux3" and rule == "plain" and swap_for_mux3(value)
    if swaps:
        i0, i1, slots = i1, i0, [1, 0]
    delivered = reachable(value, rule, mux)
    words = []
    for number, (index, slot) in enumerate(zip((i0, i1), slots, strict=True)):
        verb = "reads" if delivered[slot] else f"gives slot {slot} zero, since it cannot read"
        words.append(f"mux {number} {verb} unit {index}" + (f" for slot {slot}" if delivered[slot] else ""))
    return f"{'slots swap; ' if swaps else ''}{'; '.join(words)}"


def _producers(value: int) -> list[tuple[str, str]]:
    """Return the patterns of nonzero elements for which software writes the nibble, and the names of the software."""
    cases = []
    i0, i1 = indices(value)
    if i0 < i1:
        cases.append((f"nonzeros at elements {i0} and {i1}", "; ".join(_EVERY)))
    who: dict[str, list[str]] = {}
    for code, content, name in (*_lone(), *_APART):
        if code == value:
            who.setdefault(content, []).append(name)
    return cases + [(content, "; ".join(names)) for content, names in who.items()]


def nibble_as_dict(value: int) -> dict[str, Any]:
    """Return as JSON data whether a nibble is legal, what it selects, and which software writes it.

    ``rules`` has one entry for each rule and granularity, with ``legal``, ``selects`` and ``multiplexers`` by kind of
    mux. ``swapped`` is the nibble that the assembler writes in place of one of rule plain for 3:1 multiplexers, or
    None. Rules and multiplexers are those of :mod:`sptc.isa.metadata`. The nibbles that software writes
    (:data:`sptc.tensors.sparsify.PRODUCERS`) are taken from the source code of the software.
    """
    rules = []
    for (rule, granularity), users in _users().items():
        first = users[0].rule
        assert first is not None
        builds = sorted({MUX_OF_ARCHITECTURE[arch] for i in users for arch in i.architectures}, reverse=True)
        rules.append(
            {
                "rule": rule,
                "granularity": granularity,
                "instructions": _named(users),
                "legal": value in first.legal,
                "selects": _selected(value, granularity),
                "multiplexers": {build: _multiplexers(value, rule, build) for build in builds},
            }
        )
    i0, i1 = indices(value)
    return {
        "nibble": value,
        "indices": [i0, i1],
        "rules": rules,
        "swapped": nibble(i1, i0) if swap_for_mux3(value) else None,
        "producers": [{"chunk": content, "software": who} for content, who in _producers(value)],
    }


def nibble_text(value: int) -> str:
    """Return the explanation of a nibble from :func:`nibble_as_dict` as text."""
    description = nibble_as_dict(value)
    i0, i1 = description["indices"]
    lines = [
        f"nibble {value:#06b} (0x{value:X}): i0 = {i0} (bits 1:0) is the unit of slot 0, i1 = {i1} (bits 3:2) is "
        "that of slot 1",
        "c: chunk index; unit: quarter of a chunk's B: element (2:4), pair (4:8, pair-wise) or half an element (1:2)",
        "",
        f"{'rule':8} {'A is':5} {'legal':6} selects",
    ]
    for entry in description["rules"]:
        legal = "yes" if entry["legal"] else "no"
        lines.append(f"{entry['rule']:8} {entry['granularity']:5} {legal:6} {entry['selects']}")
    lines += ["", "used by"]
    lines += [f"{entry['rule']:8} {entry['granularity']:5} {entry['instructions']}" for entry in description["rules"]]
    archs = {build: ", ".join(arch for arch, has in MUX_OF_ARCHITECTURE.items() if has == build) for build in _MUX}
    lines += [
        "",
        f"two 4:1 multiplexers ({archs['mux4']})",
        f"  any rule   {_multiplexers(value, '', 'mux4')}",
        f"two 3:1 multiplexers ({archs['mux3']}; mux 0 reads units 0 to 2, mux 1 units 1 to 3; inferred, not measured)",
        f"  plain      {_multiplexers(value, 'plain', 'mux3')}",
        f"  all others {_multiplexers(value, '', 'mux3')}",
    ]
    if description["swapped"] is not None:
        swapped = "" if description["swapped"] == value else f" by {description['swapped']:#06b}"
        replaces = "keeps" if not swapped else "replaces"
        lines.append(
            f"  the assembler {replaces} plain {value:#06b} of f16, bf16, s8 and u8{swapped} and swaps the elements"
        )
    lines += ["", "written by"]
    lines += [f"  {entry['chunk']}: {entry['software']}" for entry in description["producers"]]
    return "\n".join(lines if description["producers"] else [*lines, "  no known software"])
