"""Build steps that pyproject.toml cannot express: omit the recordings, and add a compiled C++ library.

With ``SPTC_LIBRARY=1``, the wheel contains a compiled libsptc and is for one platform. With ``SPTC_RECORDINGS=apart``,
the wheel omits the recorded register files, which the separate distribution of ``recordings/`` contains, but keeps the
files that :mod:`sptc.isa.evidence` reads.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

WRITE_SOURCES = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sptc.native.vendor import write_files
write_files(Path(sys.argv[2]))
"""
WITH_LIBRARY = os.environ.get("SPTC_LIBRARY") == "1"
RECORDINGS_APART = os.environ.get("SPTC_RECORDINGS") == "apart"


class Package(Distribution):
    """Distribution that setuptools treats as compiled code if the wheel includes the C++ library."""

    def has_ext_modules(self) -> bool:
        """Return whether the wheel is specific to one platform, because it contains compiled files."""
        return WITH_LIBRARY


class BuildPython(build_py):
    """Build step that adds the compiled C++ library, and omits recordings that are distributed separately."""

    def run(self) -> None:
        """Copy modules and data files, and add the compiled library."""
        super().run()
        package = Path(self.build_lib) / "sptc"
        if RECORDINGS_APART:
            for path in (package / "recordings").rglob("*.npz"):
                if path.parent.name != "elsewhere":
                    path.unlink()
        if WITH_LIBRARY:
            folder = package / "native" / "lib"
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory() as scratch:
                # A copy of the Python package writes the C++ sources, because Python code generates one C++ header.
                words = [sys.executable, "-c", WRITE_SOURCES, str(package.parent.resolve()), scratch]
                subprocess.run(words, cwd=scratch, check=True)
                subprocess.run(["make", "--silent", "-j2", "build/libsptc.so"], cwd=scratch, check=True)
                shutil.copy(Path(scratch) / "build" / "libsptc.so", folder)


class BuildWheel(bdist_wheel):
    """Wheel for any version of Python, since the C++ library does not use Python's C API."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the wheel: Python version, ABI and platform."""
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if WITH_LIBRARY else tag


setup(
    distclass=Package,
    cmdclass={"build_py": BuildPython, "bdist_wheel": BuildWheel},
    setup_requires=["numpy"] if WITH_LIBRARY else [],  # the program that writes the C++ sources needs numpy
)
