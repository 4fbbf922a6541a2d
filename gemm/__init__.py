"""Matrix products computed instruction by instruction and block by block, on one or several back ends.

Users call ``sptc.gemm`` as the function :func:`sptc.gemm.multiply.gemm`. Importing a module of this package binds the
name ``sptc.gemm`` to the package and would replace a function of that name. Therefore the package itself is callable.
"""

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import Any

__all__: list[str] = []


def _function() -> Any:
    from .multiply import gemm  # Function gemm() is imported at its first call, so that `import sptc` stays fast.

    return gemm


class _Callable(ModuleType):
    def __call__(self, *operands: Any, **options: Any) -> Any:
        return _function()(*operands, **options)

    @property
    def __signature__(self) -> Signature:
        return signature(_function())

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """Documentation and signature of ``sptc.gemm``, since `help` prints no signature for a package."""
        first, rest = str(_function().__doc__).split("\n", 1)
        named = [str(parameter) for parameter in self.__signature__.parameters.values()]
        named.insert(3, "*")  # the parameters after a, b and c are keyword-only
        lines = "".join(f"        {one},\n" for one in named)
        return f"{first}\n\n    gemm(\n{lines}    )\n{rest}"


sys.modules[__name__].__class__ = _Callable
