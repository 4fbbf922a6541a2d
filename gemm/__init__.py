"""Whole matrix products through one instruction after the other, by blocks, on one back end or several.

``sptc.gemm`` is also the function :func:`sptc.gemm.multiply.gemm`: a package of that name is here anyway, and importing
one of its modules would take the function's place in ``sptc``. So the package can be called.
"""

import sys
from types import ModuleType
from typing import Any

__all__: list[str] = []


class _Callable(ModuleType):
    """A package that is called as the function of its name."""

    def __call__(self, *operands: Any, **options: Any) -> Any:
        from .multiply import gemm

        return gemm(*operands, **options)


sys.modules[__name__].__class__ = _Callable
