"""Test bench of one combinational component: random input vectors, and the outputs that the golden model expects.

The module does not depend on a simulator: cocotb benches and fault injection drive the same vectors. Outputs that the
hardware leaves undefined are masked (:mod:`numpy.ma`), and only vectors that occur in a datapath are driven.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from amaranth.lib import wiring
from numpy.typing import NDArray

__all__ = ["ComponentBench", "Values"]

#: Values of the ports of a component: for each port name, an array with one row per input vector.
Values = dict[str, NDArray]


@dataclass(frozen=True)
class ComponentBench:
    """Test bench of one combinational component: random stimulus and a reference model."""

    component: wiring.Component
    stimulus: Callable[[np.random.Generator, int], Values]  #: Function that draws a number of random input vectors
    model: Callable[[Values], Values]  #: Reference model: function from input values to the expected output values
    #: Input ports that carry the code of an element format; benches drive only codes of the configuration's formats
    codes: tuple[str, ...] = ()
