"""What pyproject.toml cannot say: with SPTC_LIBRARY=1, a wheel brings libsptc and is for one platform."""

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


class Package(Distribution):
    """Has compiled parts where it brings the library."""

    def has_ext_modules(self) -> bool:
        """Tell whether the wheel is for one platform."""
        return WITH_LIBRARY


class BuildPython(build_py):
    """Compiles the library into the package, as its makefile does."""

    def run(self) -> None:
        """Copy modules and data, and put the library beside them."""
        super().run()
        if WITH_LIBRARY:
            folder = Path(self.build_lib) / "sptc" / "native" / "lib"
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
