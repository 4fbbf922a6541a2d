"""Draw the pictures of README and web site again: ``python docs/draw.py`` runs one sptc command for each picture.

A test compares the block diagrams with the output of these commands. matplotlib draws the other pictures, which no test
compares, because different versions of matplotlib draw differently.
"""

import shlex
import sys
from pathlib import Path

from sptc.cli import main

__all__ = ["BLOCK_DIAGRAMS", "PICTURES", "draw"]

FOLDER = Path(__file__).parent / "pictures"
_F16 = "mma.sp.sync.aligned.m16n8k{}.row.col.f32.f16.f16.f32"
#: Command that draws each picture, without the name of the output file.
BLOCK_DIAGRAMS = {
    "unit": "draw --preset hopper -o",
    "core": "draw --preset hopper --rows 8 --top core -o",
    "warpgroup": "draw --preset hopper --rows 8 --top warpgroup -o",
    "step": f"trace {_F16.format(16)} --distribution wide --seed 3 --golden-only --datapath",
}
PICTURES = BLOCK_DIAGRAMS | {
    "trace": f"trace {_F16.format(32)} --seed 7 --svg",
    "layout": "explain m16n8k32 f16 ordered_metadata f32 --svg",
}


def draw(name: str, path: Path) -> int:
    """Draw the named picture into a file. Return the exit status of the drawing command."""
    return main([*shlex.split(PICTURES[name]), str(path)])


if __name__ == "__main__":
    sys.exit(max(draw(name, FOLDER / f"{name}.svg") for name in sys.argv[1:] or PICTURES))
