"""How this package was installed, and so how what it lacks is."""

import shutil
import sys
from pathlib import Path
from shlex import quote

__all__ = ["install_line"]

_ROOT = Path(__file__).resolve().parents[1]


def install_line(extra: str = "") -> str:
    """Return the command that installs an extra, or what every use needs, into the environment of this Python.

    Parameters
    ----------
    extra : str
        Its name.

    Returns
    -------
    str
        Of a checkout, which stays the place that the package is imported from, by its path; of a wheel by its name.
    """
    what = f"[{extra}]" if extra else ""
    found = shutil.which("pip")
    ours = found is not None and Path(found).parent == Path(sys.executable).parent
    pip = "pip" if ours else f"{quote(sys.executable)} -m pip"
    checkout = (_ROOT / "pyproject.toml").is_file()
    return f"{pip} install {f'-e {quote(str(_ROOT) + what)}' if checkout else quote(f'sptc{what}')}"
