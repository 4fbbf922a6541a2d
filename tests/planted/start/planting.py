"""Plant the fault that ``SPTC_PLANT`` names, in this process and in every process that it starts.

This file is imported before any module of the package: by ``sitecustomize`` in this folder if the folder is on
``PYTHONPATH``, and by ``tests/conftest.py``. A fault is planted as soon as its module has been imported, before other
modules can import the changed names. Processes that do not import the package lose no time.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["NAME", "ROOMS", "room_of"]

#: Name of the planted fault. Empty if no fault is planted.
NAME = os.environ.get("SPTC_PLANT", "")
#: Files with the faults of each subpackage.
ROOMS = {
    "rtl": ("proven", "proven_streams", "rtl"), "gemm": ("gemm",), "tensors": ("gemm",), "native": ("native",),
    "formal": ("formal",), "sim": ("sim",), "verify": ("sim",), "golden": ("models",), "isa": ("models",),
}  # fmt: skip
#: Subpackages from which models are compiled. The cache cannot tell faults apart, so each fault has its own cache.
_COMPILED = ("rtl", "isa")
_CHECKOUT = Path(__file__).resolve().parents[3]


def room_of(name: str) -> str:
    """Return the subpackage that a fault changes. Faults with the name of a proved property change `rtl`."""
    first = name.partition(".")[0]
    return first if first in ROOMS else "rtl"


class _Planter(MetaPathFinder):
    """Finder that loads modules as usual, and plants the fault after the faulty module was executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # This finder stays in front: if cocotb's finder were in front, it could load modules without the fault.
        if sys.meta_path[0] is not self:
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)
        if not fullname.startswith(f"sptc.{room_of(NAME)}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None or not spec.origin:
            return spec
        if not Path(spec.origin).resolve().is_relative_to(_CHECKOUT):  # an installed package has no `tests`
            return spec
        right = spec.loader.exec_module

        def execute(module: ModuleType) -> None:
            right(module)
            fault = import_module("sptc.tests.planted").faults(room_of(NAME))[NAME]
            if fault.module == module.__name__:
                fault.plant(module, setattr)

        spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec


def _start() -> None:
    here = str(Path(__file__).parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])
    if room_of(NAME) in _COMPILED and os.environ.get("SPTC_PLANT_CACHE") != NAME:
        folder = tempfile.mkdtemp(prefix=f"sptc-{NAME}-")
        os.environ |= {"SPTC_CACHE": folder, "SPTC_PLANT_CACHE": NAME}
        owner = os.getpid()
        atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    sys.meta_path.insert(0, _Planter())


if NAME:
    _start()
