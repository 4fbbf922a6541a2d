"""Test program of a CTA pair in a file: commands, initial memories and expected results."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rtl.tcgen05 import tcgen05_layout
from .tcgen05_commands import CtaCommand

__all__ = ["CtaProgram"]


@dataclass(frozen=True, eq=False)
class CtaProgram:
    """Commands that both CTAs of a pair execute in order, with their memories and expected results."""

    commands: list[CtaCommand]
    tmem: NDArray[np.uint32]  #: Initial tensor memory, shape (2, 128, 512)
    smem: NDArray[np.uint8]  #: Shared memory, shape (2, bytes)
    expected: NDArray[np.uint32]  #: Tensor memory after the last command, shape (2, 128, 512)
    #: Flags of undefined nibbles of every panel of D that is written, in order; shape (2, panels, 128, 16).
    flags: NDArray[np.bool_]

    def write(self, path: Path) -> None:
        """Write the program to a file of numpy arrays (npz)."""
        layout = tcgen05_layout()
        size = 4 * -(-layout.size // 32)
        payloads = [int(layout.const(command.fields).as_value().value) for command in self.commands]
        words = np.frombuffer(b"".join(payload.to_bytes(size, "little") for payload in payloads), np.uint8)
        with path.open("wb") as file:
            np.savez(
                file,
                payloads=words.reshape(len(payloads), size),
                columns=[command.n for command in self.commands],
                tmem=self.tmem,
                smem=self.smem,
                expected=self.expected,
                flags=self.flags,
            )

    @classmethod
    def read(cls, path: Path) -> "CtaProgram":
        """Read a program that :meth:`write` wrote."""
        layout = tcgen05_layout()
        with np.load(path) as arrays:
            commands = []
            for payload, n in zip(arrays["payloads"], arrays["columns"].tolist(), strict=True):
                view = layout.from_bits(int.from_bytes(payload.tobytes(), "little"))
                commands.append(CtaCommand({str(name): view[name] for name, _ in layout if name != "odd"}, n))
            return cls(commands, *(arrays[name] for name in ("tmem", "smem", "expected", "flags")))
