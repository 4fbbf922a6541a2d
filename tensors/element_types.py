"""Types of elements by their names, and the packages that bring them or read them."""

from typing import Any

import numpy as np

from ..errors import FileError
from ..infra.installation import install_line

__all__ = ["named_dtype", "needed"]


def named_dtype(name: str) -> np.dtype:
    """Return a type of numpy or ``ml_dtypes`` by its name.

    Raises
    ------
    FileError
        There is none of that name, or ``ml_dtypes`` is missing.
    """
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        return np.dtype(getattr(needed("ml_dtypes"), name))
    except (AttributeError, TypeError):
        raise FileError(f"{name!r} is no type of elements") from None


def needed(name: str, extra: str = "tensors") -> Any:
    """Return a package that is imported when a file asks for it.

    Parameters
    ----------
    name : str
        Its name.
    extra : str
        The extra of this package that brings it.

    Raises
    ------
    FileError
        It is missing.
    """
    try:
        return __import__(name, fromlist=["numpy"])
    except ImportError:
        raise FileError(f"this file needs the package {name}: install it with `{install_line(extra)}`") from None
