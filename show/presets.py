"""Tables of the datapath presets, and of the figures that are derived from a configuration."""

from ..rtl.config import PRESETS, WARP_COLUMNS, WARP_ROWS, WARP_SEGMENT_BYTES, CoreConfig
from ..rtl.widths import Widths

__all__ = ["figures_table", "presets_table"]


def presets_table() -> str:
    """Return a table of datapath presets: array size, bytes of A per cycle, F, multiplexers, latency and formats."""
    lines = [f"{'preset':13}  {'units':>5}  {'step':>5}  {'F':>8}  mux   {'latency':>7}  formats"]
    for name, config in PRESETS.items():
        alignments = [config.alignment_bits]
        if config.fp8_alignment_bits != config.alignment_bits:
            alignments.append(config.fp8_alignment_bits)
        if any(element.packed_float for element in config.elements):
            alignments.append(config.block_alignment_bits)
        lines.append(
            f"{name:13}  {f'{config.rows}x{config.columns}':>5}  {f'{config.step_bytes} B':>5}  "
            f"{'/'.join(map(str, alignments)):>8}  {config.mux}  {config.latency:>7}  {' '.join(config.formats)}"
            f"{' with ' + ' '.join(config.scales) if config.scales else ''}"
        )
    return "\n".join(lines)


def figures_table(config: CoreConfig) -> str:
    """Return the fields of a configuration, and derived widths, latencies and products per cycle."""
    widths = Widths(config)
    fields = config.used_fields.items()
    rows = [(name, (" ".join(value) or "none") if isinstance(value, tuple) else value) for name, value in fields]
    rows += [(f"products of {element} a cycle", config.slots_of(element)) for element in config.elements]
    rows += [
        ("metadata nibbles a cycle", config.chunks if config.sparse else 0),
        ("latency of a unit, cycles", config.latency),
        ("bits of a product's significands", max(slot.significand_bits for slot in widths.slots)),
        ("bits of an aligned product", widths.term_bits),
        ("bits of the sum", widths.total_bits),
        ("results", ", ".join(sorted(code.name for code in widths.results))),
    ]
    if config.serves_warp:
        steps = 2 * WARP_SEGMENT_BYTES // config.step_bytes
        outputs = f"{WARP_ROWS} x {WARP_COLUMNS} outputs, {2 * WARP_SEGMENT_BYTES} bytes of A per row"
        rows += [
            (f"cycles of {outputs}", config.warp_interval(steps)),
            ("latency of the outputs in a warp, cycles", config.warp_latency(steps)),
        ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)
