"""Example commands, printed below each command's help and shown on the documentation site. A test runs each example."""

import argparse
from collections.abc import Iterator, Mapping

__all__ = ["EXAMPLES", "add_examples", "commands"]

_SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
#: Key: command. Value: examples of the command. Earlier examples write the files that later examples read.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "run": ("sptc run --backend golden --limit 1 --junit results.xml",),
    "campaign": ("sptc campaign --preset ampere --shards 12 --tiles 4 --seed 1 --coverage --state campaign",),
    "coverage": ("sptc coverage campaign/coverage.json --missing 5",),
    "report": ("sptc report . -o report.html",),
    "instructions": ("sptc instructions m16n8k32 --arch sm_90 --sparse",),
    "explain": (f"sptc explain {_SPARSE} --lane 5", "sptc explain --nibble 0b0110"),
    "presets": ("sptc presets",),
    "config": ("sptc config --formats f16,e4m3 --products 8",),
    "ports": ("sptc ports --preset hopper --top unit",),
    "verilog": ("sptc verilog --preset tiny --top unit -o unit.v --sv-package unit_ports.sv",),
    "draw": (
        "sptc draw --preset hopper -o unit.svg",
        "sptc draw --preset hopper --rows 8 --top warpgroup --theme dark -o warpgroup.svg",
    ),
    "fusesoc-path": ("sptc fusesoc-path",),
    "prove": ("sptc prove metadata.legal rounding.integers --preset tiny",),
    "area": ("sptc area --formats s8 --products 4 --unit-only",),
    "energy": (
        "sptc energy mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 --formats s8 --liberty cells.lib --cycles 1000",
    ),
    "sweep": ("sptc sweep --formats s8 --step-bytes 4 --cuts none multiply",),
    "gemm": (
        "sptc gemm --random 64 32 128 --format f16 --seed 1",
        "sptc gemm --a weights.npy --b x.npy --format f16 --split-k 2 --result f16 --output y.npy",
    ),
    "compress": ("sptc compress weights.npy --prune --format e4m3 --output packed.npz",),
    "compare": ("sptc compare weights.npy weights.npy",),
    "scales": ("sptc scales scales.npy --to 128x4 --output blocks.npz",),
    "identify": ("sptc identify --a weights.npy --b x.npy --y y.npy --format f16 --result f16",),
    "diagnose": ("sptc diagnose --a weights.npy --b x.npy --y y.npy --format f16 --result f16",),
    "kernel": ("sptc kernel run matmul.ptx --launch launch.json -o results.npz",),
    "kernel run": ("sptc kernel run matmul.ptx --launch launch.json -o results.npz",),
    "kernel show": ("sptc kernel show matmul.ptx",),
    "timing": ("sptc timing wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16",),
    "vectors": (f"sptc vectors {_SPARSE} --tiles 4 --seed 1 --format hex -o vectors",),
    "pack": (f"sptc pack {_SPARSE} --arch sm_90 -o pack.npz",),
    "judge": ("sptc judge pack.npz pack.npz",),
    "trace": ("sptc trace pack.npz --case 1 --row 3 --column 2 --datapath step.svg",),
    "doctor": ("sptc doctor",),
    "completion": ("sptc completion bash",),
    "native": ("sptc native --prefix libsptc",),
    "gpu": ("sptc gpu verify --tiles 4",),
    "gpu info": ("sptc gpu info",),
    "gpu verify": ("sptc gpu verify --rtl --seed 2026 --tiles 64",),
    "gpu record": ("sptc gpu record recordings --seed 1",),
    "gpu pack": ("sptc gpu pack --arch sm_100 -o record.py",),
    "gpu judge": ("sptc gpu judge results.json",),
    "gpu cycles": ("sptc gpu cycles -o cycles.csv",),
    "gpu energy": ("sptc gpu energy -o energy.csv",),
}


class _Formatter(argparse.HelpFormatter):
    """Help formatter that does not wrap the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = text.split("\n\n")
        return "\n\n".join(part if part.startswith("example") else fill(part, width, indent) for part in parts)


def add_examples(parser: argparse.ArgumentParser) -> None:
    """Add the examples of every command to its help text."""
    for name, command in commands(parser):
        examples = EXAMPLES[name]
        lines = "\n  ".join([f"example{'s' * (len(examples) > 1)}:", *examples])
        command.epilog = f"{command.epilog}\n\n{lines}" if command.epilog else lines
        command.formatter_class = _Formatter


def commands(parser: argparse.ArgumentParser, before: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of every command and subcommand of a parser."""
    for action in parser._actions:
        for word, command in action.choices.items() if isinstance(action, argparse._SubParsersAction) else ():
            yield f"{before}{word}", command
            yield from commands(command, f"{before}{word} ")
