"""Conformance packs (test cases of one instruction), and comparison of results with packs, as text and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..infra.counts import counted
from ..isa.fragments import accumulator_fragment
from ..verify.conformance import Judgement, Pack
from ..verify.register_file import RegisterFile
from ..verify.replay import as_number
from ..verify.trace import as_code

__all__ = ["judgement_as_dict", "packs_text", "packs_total"]


def packs_total(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return totals over conformance packs (files of tests): numbers of packs, of test cases and of wrong models.

    Each row describes one pack, with the keys ``file``, ``instruction``, ``arch``, ``cases``, ``candidates``,
    ``told_apart``, ``missed``, ``same`` and ``alike``.
    """
    counts = {key: sum(len(row[key]) for row in rows) for key in ("told_apart", "missed", "same")}
    return {"packs": len(rows), "cases": sum(row["cases"] for row in rows), **counts}


def packs_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a text about conformance packs (sets of test cases), wrong models that they do not reveal, and totals."""
    lines = []
    for row in rows:
        lines.append(
            f"{row['file']}: {row['instruction']} on {row['arch']}, {counted(row['cases'], 'case')} of "
            f"{counted(row['candidates'], 'candidate')}, distinguishes {counted(len(row['told_apart']), 'neighbour')}"
        )
        if len(rows) == 1:
            lines += [f"  {name}: cannot give other results, since {reason}" for name, reason in row["same"].items()]
        lines += [f"  {name}: {sentence}" for name, sentence in row["missed"].items()]
        lines += [f"  neighbours with equal results: {'; '.join(names)}" for names in row["alike"]]
    total = packs_total(rows)
    pairs = total["told_apart"] + total["missed"]
    lines.append(
        f"total: {counted(total['packs'], 'pack')}, {counted(total['cases'], 'case')}; {total['told_apart']} of "
        f"{pairs} pairs of instruction and neighbour distinguished; {total['same']} pairs cannot differ"
    )
    return "\n".join(lines)


def judgement_as_dict(pack: Pack, judgement: Judgement) -> dict[str, object]:
    """Return the comparison of results with a conformance pack as JSON values."""
    fmt, first = pack.file.instruction.d, judgement.first
    place = None
    if first:
        codes = {"wanted": first.expected, "got": first.computed}
        place = {
            "case": first.case,
            "row": first.row,
            "column": first.column,
            **_register(pack, first.row, first.column),
            **{name: as_code(code, fmt.bits) for name, code in codes.items()},
            **{f"{name}_number": repr(as_number(code, fmt)) for name, code in codes.items()},
        }
    return {
        "instruction": pack.file.name,
        "arch": pack.file.arch,
        "neighbours": list(pack.told_apart),
        **vars(judgement),
        "first": place,
        "explained_by": list(judgement.explained_by),
        "nearest": judgement.nearest or None,
        "verdict": _verdict(pack, judgement, place),
    }


def _register(pack: Pack, row: int, column: int) -> dict[str, int]:
    """Return the thread and the register that contain an element of D; empty if D is in tensor memory."""
    if not isinstance(pack.file, RegisterFile):
        return {}
    fragment = accumulator_fragment(pack.file.instruction)
    place = int(fragment.positions[row, column]) // fragment.rows.shape[2]
    return {"thread": place // fragment.registers, "register": place % fragment.registers}


def _verdict(pack: Pack, judgement: Judgement, place: Mapping[str, object] | None) -> str:
    """Return as text whether results agree with the test cases in `pack`; `place` locates the first wrong output."""
    title, outputs = f"{pack.file.name} on {pack.file.arch}", judgement.outputs
    if judgement.right:
        return f"all {outputs} outputs of {title} are right; the pack rules out {len(pack.told_apart)} neighbours"
    lines = [f"{judgement.differing} of {outputs} outputs of {title} differ"]
    if judgement.beside:
        lines.append(f"{judgement.beside} words of tensor memory outside D differ")
    if place:
        register = f", in register {place['register']} of thread {place['thread']}" if "thread" in place else ""
        lines.append(
            f"first: case {place['case']}, row {place['row']}, column {place['column']}: wanted {place['wanted']} "
            f"({place['wanted_number']}), got {place['got']} ({place['got_number']}){register}"
        )
        if judgement.explained_by:
            lines.append(f"the results are those of a model with {', or with '.join(judgement.explained_by)}")
        else:
            nearest = judgement.nearest or "the right model"
            lines.append(f"nearest model: {nearest}, which gives {judgement.explained} of {outputs} outputs")
    return "\n".join(lines)
