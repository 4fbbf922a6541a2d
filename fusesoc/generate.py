"""FuseSoC generator: writes a datapath as Verilog, and the core file that describes it to FuseSoC.

FuseSoC calls the generator in an empty folder with a YAML file. The ``parameters`` of this file are ``preset`` and,
optionally, ``top`` (default ``core``).
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

_PARAMETERS = ("preset", "top")


def main() -> int:
    """Generate the core that is requested in the YAML file named on the command line.

    Returns
    -------
    int
        Exit status: 0, or the exit status of ``sptc verilog``, which prints its own error message.
    """
    for module in ("sptc", "yaml"):
        if find_spec(module) is None:
            _fail(f"{sys.executable} cannot import {module}: install sptc with the extra `fusesoc` for this Python")
    if len(sys.argv) != 2:
        _fail("expected one argument: the YAML file that FuseSoC writes")
    vlnv, parameters = _read(Path(sys.argv[1]))
    preset, top = _names(parameters)
    return _write(vlnv, preset, top)


def _fail(message: str) -> NoReturn:
    sys.exit(f"sptc generator: {message}")


def _read(path: Path) -> tuple[str, object]:
    """Return the name (VLNV) of the requested core, and its parameters."""
    import yaml

    try:
        request = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        _fail(f"{path} cannot be read as YAML ({' '.join(str(error).split())})")
    if not isinstance(request, dict) or not isinstance(request.get("vlnv"), str):
        _fail(f"{path} must contain a string `vlnv`, the name of the requested core")
    return request["vlnv"], request.get("parameters") or {}


def _names(parameters: object) -> tuple[str, str]:
    """Return the requested names of preset and top-level module. ``sptc verilog`` checks that these names exist."""
    if not isinstance(parameters, dict):
        _fail(f"parameters must be a mapping of names to values, not {parameters!r}")
    from sptc.infra.escapes import NAME

    unknown = [str(name) for name in parameters if name not in _PARAMETERS]
    if unknown:
        _fail(f"unknown parameter {' or '.join(unknown)}; the parameters are {' and '.join(_PARAMETERS)}")
    if "preset" not in parameters:
        _fail("the parameter preset is missing; `sptc presets` lists all presets")
    preset, top = parameters["preset"], parameters.get("top", "core")
    for name, value in (("preset", preset), ("top", top)):
        if not isinstance(value, str):
            _fail(f"the parameter {name} must be a name, not {value!r}")
        if not NAME.fullmatch(value):
            _fail(f"the parameter {name} must consist of letters, digits, underscores and hyphens, not {value!r}")
    return preset, top


def _write(vlnv: str, preset: str, top: str) -> int:
    import yaml

    module = f"sptc_{preset.replace('-', '_')}_{top}"
    command = [sys.executable, "-m", "sptc", "verilog", f"--preset={preset}", f"--top={top}", f"--output={module}.v"]
    status = subprocess.run(command, check=False).returncode
    if status:
        return status
    core: dict[str, Any] = {
        "name": vlnv,
        "filesets": {"rtl": {"files": [f"{module}.v"], "file_type": "verilogSource"}},
        "targets": {"default": {"filesets": ["rtl"], "toplevel": module}},
    }
    Path(f"{module}.core").write_text("CAPI=2:\n" + yaml.safe_dump(core, sort_keys=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
