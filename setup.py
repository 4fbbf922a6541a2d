"""What pyproject.toml cannot say: parts of a wheel that a release puts elsewhere, or brings along.

With ``SPTC_LIBRARY=1`` a wheel brings libsptc and is for one platform. With ``SPTC_RECORDINGS=apart`` it lacks the
recorded registers, which ``recordings/`` is a distribution of, and keeps what :mod:`sptc.isa.evidence` reads.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path(__file__).parent / "native"
WITH_LIBRARY = os.environ.get("SPTC_LIBRARY") == "1"
RECORDINGS_APART = os.environ.get("SPTC_RECORDINGS") == "apart"


class Package(Distribution):
    """Has compiled parts where it brings the library."""

    def has_ext_modules(self) -> bool:
        """Tell whether the wheel is for one platform."""
        return WITH_LIBRARY


class BuildPython(build_py):
    """Compiles the library into the package, as its makefile does, and leaves recordings out."""

    def run(self) -> None:
        """Copy modules and data, and put the library beside them."""
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
                words = ["make", "--silent", "-j2", f"BUILD={scratch}", f"{scratch}/libsptc.so"]
                subprocess.run(words, cwd=NATIVE, check=True)
                shutil.copy(Path(scratch) / "libsptc.so", folder)


class BuildWheel(bdist_wheel):
    """Names no version of Python: the library knows nothing of it."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return versions of Python and of its interface, and the platform."""
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if WITH_LIBRARY else tag


setup(distclass=Package, cmdclass={"build_py": BuildPython, "bdist_wheel": BuildWheel})
