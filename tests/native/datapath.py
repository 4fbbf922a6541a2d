"""What a SystemVerilog bench must know of a row: where the fields of a step are, in which order, and control words."""

from sptc.golden.registers import CONTAINERS
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.numerics import Method, numerics
from sptc.rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, CoreConfig
from sptc.rtl.order import byte_order, nibble_order
from sptc.rtl.step import row_result_layout, row_step_layout
from sptc.sim.engine.steps import control_word

__all__ = ["package", "single_steps"]


def single_steps(arch: str) -> list[Instruction]:
    """Return one instruction of each way to use a row that one step computes."""
    config = PRESETS[PRESET_OF_ARCHITECTURE[arch]]
    found = {}
    for i in every_instruction():
        if arch not in i.architectures or not config.holds(i) or i.stored_k * i.container_bits != 8 * config.step_bytes:
            continue
        if numerics(i, arch).method is not Method.EMULATED:
            found.setdefault((control_word(config, i, True), i.k), i)
    return list(found.values())


def _array(name: str, rows: list[list[int]]) -> str:
    inner = ", ".join("'{" + ", ".join(map(str, row)) + "}" for row in rows)
    return f"  localparam int {name} [{len(rows)}][{len(rows[0])}] = '{{{inner}}};\n"


def package(config: CoreConfig, instructions: list[Instruction], arch: str) -> str:
    """Return the text of package `datapath`."""
    fields = {name: (field.offset, field.width) for name, field in row_step_layout(config)}
    results = {name: (field.offset, field.width) for name, field in row_result_layout(config)}
    lines = ["package datapath;\n", f"  localparam int LATENCY = {config.latency};\n"]
    lines.append(f"  localparam int STEP_BITS = {row_step_layout(config).size};\n")
    lines.append(f"  localparam int RESULT_BITS = {row_result_layout(config).size};\n")
    for prefix, named in (("STEP", fields), ("RESULT", results)):
        for name, (offset, width) in named.items():
            lines.append(
                f"  localparam int {prefix}_{name.upper()} = {offset}, {prefix}_{name.upper()}_BITS = {width};\n"
            )
    lines.append(
        f'  localparam string ARCHITECTURE = "{arch}";\n  localparam int INSTRUCTIONS = {len(instructions)};\n'
    )
    texts = ", ".join(f'"{i}"' for i in instructions)
    lines.append(f"  localparam string TEXTS [{len(instructions)}] = '{{{texts}}};\n")
    facts = [
        [
            control_word(config, i, True),
            int(bool(i.sparse)),
            int(i.wide),
            i.chunks,
            8 * CONTAINERS[i.container_bits].itemsize,
            i.low_bit(i.a) + i.a.fraction_bits,
            i.a.exponent_bits,
            i.a.bias,
            i.low_bit(i.b) + i.b.fraction_bits,
            i.b.exponent_bits,
            i.b.bias,
            i.d.bits,
        ]
        for i in instructions
    ]
    names = (
        "CONTROL SPARSE WIDE CHUNKS ELEMENT A_EXPONENT A_EXPONENT_BITS A_BIAS B_EXPONENT B_EXPONENT_BITS B_BIAS RESULT"
    )
    lines.append("  typedef enum int { " + ", ".join(names.split()) + " } fact_t;\n")
    lines.append(_array("FACTS", facts))
    orders = [
        [-1 if byte is None else byte for byte in byte_order(config, wide=wide, sparse=sparse)]
        for wide in (False, True)
        for sparse in (False, True)
    ]
    lines.append(_array("BYTES_OF_B", orders))  # by wide and sparse
    lines.append(_array("NIBBLES_OF_ROW", [nibble_order(config, wide=wide) for wide in (False, True)]))
    return "".join([*lines, "endpackage\n"])
