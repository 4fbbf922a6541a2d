"""Histogram of the errors of a matrix product."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..infra.figures import picture
from .product import DECADES, Errors

__all__ = ["plot_errors"]

_NAMES = {
    "arithmetic": "operands as computed with",
    "whole": "A and B as given",
    "dense": "A and B as given, A dense",
}


def plot_errors(errors: Mapping[str, Errors], path: Path) -> None:
    """Draw a histogram of relative errors: the share of outputs per decade.

    Parameters
    ----------
    errors : mapping of str to Errors
        Errors by reference, with the names of :class:`~sptc.gemm.product.Block`.
    path : Path
        SVG file to write.

    Raises
    ------
    BackendError
        matplotlib is not installed.
    FileError
        The file cannot be written.
    """
    places = np.arange(len(DECADES) + 2)
    labels = ["exact", "less", *map(str, DECADES)]
    width = 0.8 / len(errors)
    with picture(path, 9, 4) as axes:
        for number, (name, reference) in enumerate(errors.items()):
            shares = 100 * np.array(reference.counts) / max(1, sum(reference.counts))
            axes.bar(places + (number - (len(errors) - 1) / 2) * width, shares, width, label=_NAMES[name])
        axes.set_xticks(places, labels)
        axes.set_xlabel("relative error, at least 10 to the power of")
        axes.set_ylabel("outputs [%]")
        axes.legend(title="against float64, of", frameon=False)
