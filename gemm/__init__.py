"""Matrix products computed instruction by instruction and block by block, on one back end or several.

``sptc.gemm`` is also the function :func:`sptc.gemm.multiply.gemm`. An import of a module of this package would replace
a function of the same name in ``sptc``. Therefore the package itself is callable.
"""

import sys
from types import ModuleType
from typing import Any

__all__: list[str] = []


class _Callable(ModuleType):
    """Package that can be called as the function ``gemm``."""

    def __call__(self, *operands: Any, **options: Any) -> Any:
        from .multiply import gemm

        return gemm(*operands, **options)


sys.modules[__name__].__class__ = _Callable
