"""Generator of a SystemVerilog package that describes a datapath to a bench: bit fields, byte orders, instructions."""

from collections.abc import Mapping, Sequence

from amaranth.lib import data

from ...isa.formats import Format, Specials
from ...isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ...isa.instructions import Instruction, every_instruction
from ...rtl.config import CoreConfig
from ...rtl.step import row_result_layout, row_step_layout
from ...rtl.warp import warp_operands_layout, warp_result_layout
from ..engine.row_interface import row_interface
from ..engine.steps import control_word, executes
from .items import warp_instructions

__all__ = ["row_package", "single_steps", "warp_package"]

#: Codes in the SystemVerilog tables for formats without special values, with Inf and NaN, and with NaN only.
_SPECIALS = {Specials.NONE: 0, Specials.IEEE: 1, Specials.NAN: 2}


def single_steps(config: CoreConfig, arch: str) -> list[Instruction]:
    """Return one instruction of one cycle, without block scales, for each supported pair of control word and K."""
    by_use: dict[tuple[int, int], Instruction] = {}
    for i in every_instruction():
        is_one_step = i.stored_k * i.container_bits == 8 * config.step_bytes and not i.scale_format
        if arch in i.architectures and is_one_step and executes(config, i, arch):
            by_use.setdefault((control_word(config, i, True), i.k), i)
    return list(by_use.values())


def row_package(config: CoreConfig, arch: str) -> str:
    """Return the SystemVerilog package `datapath` for the bench of a dot-product unit with metadata decoder."""
    interface = row_interface(config)
    orders = [[-1 if byte is None else byte for byte in order] for pair in interface.byte_order for order in pair]
    return _package(
        config,
        single_steps(config, arch),
        arch,
        {"STEP": row_step_layout(config), "RESULT": row_result_layout(config)},
        # `orders` has one byte order for each pair of `wide` (elements have 16 bits or more) and `sparse`;
        # `nibble_order` has one nibble order for each value of `wide`.
        {"BYTES_OF_B": orders, "NIBBLES_OF_ROW": interface.nibble_order},
    )


def warp_package(config: CoreConfig, arch: str) -> str:
    """Return the SystemVerilog package `datapath` for the bench of a warp."""
    instructions = warp_instructions(config, arch)
    registers = [
        [fragment(i).registers for fragment in (a_fragment, b_fragment, accumulator_fragment)] for i in instructions
    ]
    return _package(
        config,
        instructions,
        arch,
        {"OPERANDS": warp_operands_layout(), "RESULT": warp_result_layout()},
        {"REGISTERS": registers, "SELECTORS": [[i.sparsity_selectors] for i in instructions]},
    )


def _package(
    config: CoreConfig,
    instructions: list[Instruction],
    arch: str,
    layouts: Mapping[str, data.StructLayout],
    tables: Mapping[str, Sequence[Sequence[int]]],
) -> str:
    lines = [f"localparam int LATENCY = {config.latency};"]
    for prefix, layout in layouts.items():
        lines.append(f"localparam int {prefix}_BITS = {layout.size};")
        for name, field in layout:
            place = f"{prefix}_{str(name).upper()}"
            lines.append(f"localparam int {place} = {field.offset}, {place}_BITS = {field.width};")
    texts = ", ".join(f'"{i}"' for i in instructions)
    lines += [
        f'localparam string ARCHITECTURE = "{arch}";',
        f"localparam int INSTRUCTIONS = {len(instructions)};",
        f"localparam string TEXTS [{len(instructions)}] = '{{{texts}}};",
        _enumeration("fact_t", "CONTROL SPARSE WIDE DEFINED INTEGER SATURATES"),
        _enumeration("operand_t", "OF_A OF_B OF_C"),
        _enumeration("format_t", "ELEMENT LOW CODE_BITS EXPONENT_BITS FRACTION_BITS BIAS LARGEST_EXPONENT SPECIALS"),
    ]
    formats = [[_format(i, fmt) for fmt in (i.a, i.b)] + [_format(i, i.c, i.c.bits)] for i in instructions]
    every = {"FACTS": [_facts(config, i) for i in instructions], **tables}
    lines += [
        f"localparam int {name} [{len(rows)}][{len(rows[0])}] = {_literal(rows)};" for name, rows in every.items()
    ]
    lines.append(f"localparam int FORMATS [{len(formats)}][3][{len(formats[0][0])}] = {_literal(formats)};")
    package = "\n  ".join(["package datapath;", *lines]) + "\nendpackage\n"
    return f"`ifndef DATAPATH_SVH\n`define DATAPATH_SVH\n{package}`endif\n"


def _facts(config: CoreConfig, i: Instruction) -> list[int]:
    defined = sum(1 << nibble for nibble in i.rule.legal) if i.rule else 0
    return [
        control_word(config, i, True), int(bool(i.sparse)), int(i.wide), defined, int(i.d.is_integer), int(i.satfinite),
    ]  # fmt: skip


def _format(i: Instruction, fmt: Format, element: int = 0) -> list[int]:
    """Return the SystemVerilog constants of a format. `element`: bits that store one element (0: as in A and B)."""
    low = 0 if element else i.low_bit(fmt)
    largest = 0 if fmt.is_integer else fmt.maximum_exponent + fmt.bias
    return [
        element or i.container_bits, low, fmt.bits, fmt.exponent_bits, fmt.fraction_bits, fmt.bias, largest,
        _SPECIALS[fmt.specials],
    ]  # fmt: skip


def _enumeration(name: str, values: str) -> str:
    return f"typedef enum int {{ {', '.join(values.split())} }} {name};"


def _literal(values: object) -> str:
    return "'{" + ", ".join(map(_literal, values)) + "}" if isinstance(values, Sequence) else str(values)
