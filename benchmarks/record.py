"""Run speed benchmarks, and record the results with machine and date: ``python benchmarks/record.py [NAME...]``.

``benchmarks/results.json`` contains the last recorded results of each benchmark, which the documentation shows. Run
this script on an idle machine.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from tqdm import tqdm

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
#: Names of the benchmarks that need neither a GPU nor external programs.
NAMES = ("golden", "simulation", "native", "gemm", "systemverilog")


def machine() -> str:
    """Return a description of the machine: processor, number of cores, system and Python version."""
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        models = [line for line in information.read_text("utf-8").splitlines() if line.startswith("model name")]
        processor = models[0].partition(": ")[2] if models else processor
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def recorded(name: str) -> dict[str, Any]:
    """Run a benchmark, and return the printed rows with title, date and machine."""
    script = FOLDER / f"{name}.py"
    done = subprocess.run([sys.executable, script, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return {
        "what": script.read_text("utf-8").splitlines()[0].strip('"'),
        "date": date.today().isoformat(),
        "machine": machine(),
        "rows": json.loads(done.stdout),
    }


def main() -> None:
    """Run the chosen benchmarks, and write the results of each benchmark when it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run, any of {', '.join(NAMES)} (default: all)"
    )
    names = parser.parse_args().names or NAMES
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"there is no benchmark {unknown[0]}; the benchmarks are {', '.join(NAMES)}")
    for name in tqdm(names, unit="benchmark", disable=None):
        results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        results[name] = recorded(name)
        ordered = {name: results[name] for name in NAMES if name in results}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
