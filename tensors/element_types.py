"""Element types by name, and imports of optional packages that provide element types or read files."""

from typing import Any

import numpy as np

from ..errors import FileError, shown
from ..infra.installation import install_line

__all__ = ["TYPE_OF", "is_extension", "named_dtype", "needed"]

#: Name of the numpy or ``ml_dtypes`` type for each element format.
TYPE_OF = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "e3m2": "float6_e3m2fn", "e2m3": "float6_e2m3fn", "e2m1": "float4_e2m1fn", "s32": "int32",
    "s8": "int8", "u8": "uint8", "s4": "int4", "u4": "uint4",
}  # fmt: skip


def is_extension(dtype: np.dtype) -> bool:
    """Return whether a type is one of ``ml_dtypes``. Types of ``ml_dtypes`` may have kind V, as structures have."""
    return dtype.type.__module__ == "ml_dtypes"


def named_dtype(name: str) -> np.dtype:
    """Return a numpy or ``ml_dtypes`` type by its name.

    Raise a `FileError` if there is no such type, or ``ml_dtypes`` is not installed.
    """
    try:
        return np.dtype(name)
    except (TypeError, ValueError, SyntaxError):  # numpy raises SyntaxError for a name such as "(2,3f4"
        pass
    try:
        return np.dtype(getattr(needed("ml_dtypes"), name))
    except (AttributeError, TypeError):
        raise FileError(f"{shown(name)} is not an element type of numpy or ml_dtypes") from None


def needed(name: str, extra: str = "tensors") -> Any:
    """Import an optional package that a file format needs, and that an extra of ``sptc`` (package group) installs.

    Raise a `FileError` if the package is not installed; the message names the extra.
    """
    try:
        return __import__(name, fromlist=["numpy"])
    except ImportError:
        raise FileError(f"the file format needs the package {name}: install it with `{install_line(extra)}`") from None
