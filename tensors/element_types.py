"""Element types by name, and imports of optional packages that provide element types or read files."""

from typing import Any

import numpy as np

from ..errors import FileError, shown
from ..infra.installation import install_line

__all__ = ["named_dtype", "needed"]


def named_dtype(name: str) -> np.dtype:
    """Return a numpy or ``ml_dtypes`` type by its name.

    Raises
    ------
    FileError
        There is no such type, or ``ml_dtypes`` is not installed.
    """
    try:
        return np.dtype(name)
    except (TypeError, ValueError, SyntaxError):  # SyntaxError: numpy parses shapes in names such as (2,3)f4
        pass
    try:
        return np.dtype(getattr(needed("ml_dtypes"), name))
    except (AttributeError, TypeError):
        raise FileError(f"{shown(name)} is not an element type of numpy or ml_dtypes") from None


def needed(name: str, extra: str = "tensors") -> Any:
    """Import an optional package that is needed for a file.

    Parameters
    ----------
    name : str
        Name of the package.
    extra : str
        Extra of ``sptc`` that installs it.

    Raises
    ------
    FileError
        The package is not installed.
    """
    try:
        return __import__(name, fromlist=["numpy"])
    except ImportError:
        raise FileError(f"this file needs the package {name}: install it with `{install_line(extra)}`") from None
