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

#: Values of each port, with one row for each vector.
Values = dict[str, NDArray]


@dataclass(frozen=True)
class ComponentBench:
    """Bench of one component."""

    component: wiring.Component
    stimulus: Callable[[np.random.Generator, int], Values]  #: Function that draws a given number of input vectors
    model: Callable[[Values], Values]  #: Function that returns the expected values of every output
    #: Input ports that carry the code of an element of the configuration, and never another code
    codes: tuple[str, ...] = ()
