"""Faults of the tables that both models are made from: only what is written down elsewhere can tell."""

from dataclasses import replace
from typing import Any

from . import Change, fault


@fault("isa.fragments.selector", "isa.fragments")
def _(fragments: Any, change: Change) -> None:
    """Sparsity selectors of wide elements count lanes, not the lanes that an instruction takes."""
    right = fragments.metadata_map

    def metadata_map(instruction: Any, sparsity_selector: int) -> Any:
        found = right(instruction, sparsity_selector)
        per_selector = instruction.chunks // 4 if instruction.wide else 1
        lanes = found.lanes - sparsity_selector * (per_selector - 1)
        lanes.flags.writeable = False
        return replace(found, lanes=lanes)

    change(fragments, "metadata_map", metadata_map)


@fault("isa.metadata.ordered", "isa.metadata")
def _(metadata: Any, change: Change) -> None:
    """Equal indices count as ordered."""
    ordered = replace(metadata.RULES["ordered"], legal=metadata._where(lambda i0, i1: i0 <= i1))
    change(metadata, "RULES", metadata.RULES | {"ordered": ordered})


@fault("isa.numerics.zero_exponent", "isa.numerics")
def _(numerics: Any, change: Change) -> None:
    """The e_zero of fp8 follows its own, shorter alignment."""
    right = numerics.numerics

    def row(instruction: Any, arch: str) -> Any:
        found = right(instruction, arch)
        if found.alignment_bits == numerics.DATAPATHS[arch].alignment_bits or not found.alignment_bits:
            return found
        half, grouped = instruction.d.name == "f16", found.method is numerics.Method.GROUPED
        floor = numerics.zero_exponent_for(found.alignment_bits, half_result=half, grouped=grouped)
        return replace(found, zero_exponent=floor)

    change(numerics, "numerics", row)


@fault("isa.numerics.floor", "isa.numerics")
def _(numerics: Any, change: Change) -> None:
    """Terms are aligned to an exponent one too large where nothing larger takes part."""
    right = numerics.zero_exponent_for
    change(numerics, "zero_exponent_for", lambda *given, **more: right(*given, **more) + 1)


@fault("isa.formats.place", "isa.formats")
def _(formats: Any, change: Change) -> None:
    """A lone e2m1 stands in the lowest bits of its byte."""
    change(formats, "low_bit", lambda fmt, container_bits: fmt.ignored_low_bits)


@fault("isa.memory.base_offset", "isa.memory")
def _(memory: Any, change: Change) -> None:
    """The base offset of a swizzle is not looked at."""
    right = memory.Swizzle.apply
    change(memory.Swizzle, "apply", lambda self, address, base_offset=0: right(self, address))


@fault("isa.tcgen05_timing.pair", "isa.tcgen05_timing")
def _(tcgen05_timing: Any, change: Change) -> None:
    """Each CTA of a pair reads all of B."""
    right = tcgen05_timing.tcgen05_resource_cycles

    def alone(opcode: Any, i: Any, a_from: str) -> Any:
        needed, shared = right(opcode, i, a_from), tcgen05_timing.Resource.SHARED_MEMORY
        twice = right(opcode, replace(i, n=2 * i.n), a_from)
        return needed | {shared: twice[shared] if opcode.cta_group == 2 else needed[shared]}

    change(tcgen05_timing, "tcgen05_resource_cycles", alone)
