"""``sptc.diagnose``: name the fault that explains a wrong product, or confirm that the product is correct."""

from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from .diagnosis import Diagnosis
from .identify import identify
from .matrices import as_array

__all__ = ["diagnose"]


def diagnose(a: Any, b: Any, y: Any, **options: Any) -> Diagnosis:
    """Search for the way of summation that gives every bit of a result, or else for the fault that gives every bit.

    Parameters
    ----------
    a, b, y : array or tensor
        Factors and result, as for :func:`sptc.identify`.
    **options
        Keyword arguments of :func:`sptc.identify`, of which `result` is required: for example `format`, `arch`,
        `instruction`, `dense`, and the epilogue.

    Returns
    -------
    Diagnosis
        Whether every bit is explained, the explanation, the outputs that differ from the correct product, and how many
        of them remain unexplained.

    Raises
    ------
    Error
        The input is invalid.

    Notes
    -----
    A fault explains a result only if it gives every bit, and only if the outputs that differ hold far more bits than
    the fault has free parameters: a single wrong output is never explained.
    """
    identification = identify(a, b, y, **options)
    shape = as_array("y", y).shape
    if identification.exact:
        text = f"correct: all {int(np.prod(shape))} outputs equal those of the correct product by one way of summation"
        return Diagnosis(True, "correct", text, np.zeros(shape, bool), 0, identification.way, None)
    diagnosis = identification.diagnosis
    assert diagnosis
    return replace(diagnosis, differing=np.reshape(diagnosis.differing, shape), nearest=identification.nearest)


# Signature for help(), which lists the keyword arguments one by one.
diagnose.__signature__ = signature(identify).replace(return_annotation=Diagnosis)  # type: ignore[attr-defined]
