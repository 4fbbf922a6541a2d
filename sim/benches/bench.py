"""What a combinational component is driven with, and what it must answer by the golden model.

Free of any simulator: the cocotb benches and the fault injection drive the same vectors. An answer that means nothing
is masked (:mod:`numpy.ma`), and only what a datapath can present is driven.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from amaranth.lib import wiring
from numpy.typing import NDArray

__all__ = ["ComponentBench", "Values"]

#: Integers by port, one row a vector.
Values = dict[str, NDArray]


@dataclass(frozen=True)
class ComponentBench:
    """One component under test.

    Attributes
    ----------
    component : wiring.Component
        The component.
    stimulus : callable (Generator, int) -> Values
        Draws so many input vectors.
    model : callable (Values) -> Values
        Answers of the golden model for every output.
    codes : tuple of str
        Ports that name an element of the configuration, never by a code that it does not have.
    """

    component: wiring.Component
    stimulus: Callable[[np.random.Generator, int], Values]
    model: Callable[[Values], Values]
    codes: tuple[str, ...] = ()
