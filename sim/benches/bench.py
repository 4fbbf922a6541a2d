"""The bench of a combinational component: its input vectors, and the outputs that the golden model expects.

It is independent of any simulator: cocotb benches and fault injection drive the same vectors. Outputs without meaning
are masked (:mod:`numpy.ma`), and only vectors that occur in a datapath are driven.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from amaranth.lib import wiring
from numpy.typing import NDArray

__all__ = ["ComponentBench", "Values"]

#: Values of each port, one row for each vector.
Values = dict[str, NDArray]


@dataclass(frozen=True)
class ComponentBench:
    """Bench of one component."""

    component: wiring.Component
    stimulus: Callable[[np.random.Generator, int], Values]  #: Draws a given number of input vectors
    model: Callable[[Values], Values]  #: Returns the expected values of every output
    #: Input ports with an element code of the configuration; they never carry another code.
    codes: tuple[str, ...] = ()
