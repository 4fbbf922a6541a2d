"""Dependencies of this package: installed versions, and the pip command that installs missing packages."""

import importlib.metadata
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ..errors import BackendError

__all__ = ["Requirement", "install_line", "requirements"]

_ROOT = Path(__file__).resolve().parents[1]


def install_line(extra: str = "") -> str:
    """Return the pip command that installs this package and an optional extra for the Python that runs now.

    The command installs a checkout in editable mode by its path, and an installed wheel by its name.
    """
    what = f"[{extra}]" if extra else ""
    path = shutil.which("pip")
    ours = path is not None and Path(path).parent == Path(sys.executable).parent
    pip = "pip" if ours else f"{quote(sys.executable)} -m pip"
    checkout = (_ROOT / "pyproject.toml").is_file()
    return f"{pip} install {f'-e {quote(str(_ROOT) + what)}' if checkout else quote(f'sptc{what}')}"


@dataclass(frozen=True)
class Requirement:
    """Dependency of this package: name, supported versions and installed version."""

    name: str
    condition: str  #: Condition on the version of the dependency, such as ``<0.6,>=0.5.10``
    installed: str | None  #: Installed version, or None if the dependency is not installed

    @property
    def fits(self) -> bool:
        """Whether a supported version of the dependency is installed."""
        return self.installed is not None and all(
            _compares(self.installed, one) for one in self.condition.split(",") if one
        )


def requirements(extra: str = "") -> list[Requirement]:
    """Return the dependencies of an extra and of the extras that it includes; by default, the required dependencies.

    Raise a `BackendError` if this package is not installed, because its dependencies are then unknown.
    """
    try:
        lines = importlib.metadata.requires("sptc") or []
    except importlib.metadata.PackageNotFoundError:
        raise BackendError(f"the package sptc is not installed: install it with `{install_line()}`") from None
    by_name: dict[str, Requirement] = {}
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)(?:\[(.*)\])?([^;]*)(?:;(.*))?", line.strip())
        if not match:
            continue
        name, extras, condition, marker = match.groups()
        marked = re.search(r"extra == ['\"]([\w-]+)['\"]", marker or "")
        if (marked.group(1) if marked else "") != extra:
            continue
        if name == "sptc":
            by_name |= {one.name: one for other in extras.split(",") for one in requirements(other)}
        else:
            by_name[name] = Requirement(name, condition.replace(" ", ""), _version(name))
    return list(by_name.values())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _compares(version: str, condition: str) -> bool:
    """Return whether a version satisfies a condition with ==, >=, <= or <. Other conditions count as satisfied."""
    match = re.fullmatch(r"(==|>=|<=|<)(.+)", condition)
    if not match:
        return True
    sign, bound = match.groups()
    version = version.partition("+")[0]
    if sign == "==":
        return version == bound
    one, other = _release(version), _release(bound)
    return {">=": one >= other, "<=": one <= other, "<": one < other}[sign]


def _release(version: str) -> list[int]:
    """Return the leading numeric parts of a version, for example 0, 5, 10 for ``0.5.10rc1``."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in leading.group().split(".")] if leading else []
