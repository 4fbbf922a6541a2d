"""The pip command that installs missing dependencies of this package."""

import shutil
import sys
from pathlib import Path
from shlex import quote

__all__ = ["install_line"]

_ROOT = Path(__file__).resolve().parents[1]


def install_line(extra: str = "") -> str:
    """Return the pip command that installs the package with an extra into the environment of this Python.

    Parameters
    ----------
    extra : str
        Name of the extra; empty for the required dependencies only.

    Returns
    -------
    str
        For a checkout, an editable install of its path; for a wheel, an install by name.
    """
    what = f"[{extra}]" if extra else ""
    found = shutil.which("pip")
    ours = found is not None and Path(found).parent == Path(sys.executable).parent
    pip = "pip" if ours else f"{quote(sys.executable)} -m pip"
    checkout = (_ROOT / "pyproject.toml").is_file()
    return f"{pip} install {f'-e {quote(str(_ROOT) + what)}' if checkout else quote(f'sptc{what}')}"
