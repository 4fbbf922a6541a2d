"""The GitHub action has valid declarations, and its commands run as on a GitHub runner, except the installation."""

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from packaging.requirements import Requirement
from sptc.infra.cache import cache_folder

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guides" / "development.md").read_text(encoding="utf-8")
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")


def expressions(value: object) -> set[str]:
    """Return every expression that a GitHub runner would substitute in a value or in its nested values."""
    return set(EXPRESSION.findall(yaml.safe_dump(value, width=10_000)))


def test_declarations() -> None:
    """Scripts of the action contain no expressions, which could inject commands. The guide's workflow is valid."""
    known = {f"inputs.{name}" for name in ACTION["inputs"]} | {"runner.temp", "runner.os"}
    known |= {"!github.event.pull_request.head.repo.fork"}
    known |= {f"steps.begin.outputs.{name}" for name in re.findall(r"echo \"(\w+)=", STEPS["Begin"]["run"])}
    assert STEPS["Begin"]["id"] == "begin"
    assert expressions(ACTION) <= known
    assert {f"inputs.{name}" for name in ACTION["inputs"]} <= expressions(ACTION)
    for step in STEPS.values():
        assert ("uses" in step) != ("run" in step)
        if "run" in step:
            assert step["shell"] == "bash"
            assert not expressions(step["run"])
    cache = STEPS["Compiled models"]["with"]
    assert cache["path"] == STEPS["Campaign"]["env"]["SPTC_CACHE"]
    for name in (*(f"steps.begin.outputs.{name}" for name in ("version", "sources", "processor")), "runner.os"):
        assert name in cache["key"]
        assert name in cache["restore-keys"]
    for name in ("Report", "Upload"):
        assert STEPS[name]["if"].startswith("always()")
    assert [*STEPS][-2:] == ["Report", "Upload"]
    assert STEPS["Upload"]["with"]["path"] == STEPS["Report"]["env"]["REPORTS"]
    (text,) = re.findall(r"```yaml\n(on: .*?)```", GUIDE, re.DOTALL)
    ((job,),) = (yaml.safe_load(text)["jobs"].values(),)
    (step,) = job["steps"]
    assert step["uses"].startswith("OWNER/sptc@")
    assert step["with"].keys() <= ACTION["inputs"].keys()


def test_dependencies_and_actions_are_pinned() -> None:
    """Dependencies of the package and of its build are pinned by hashes, and foreign actions by commits."""
    assert "--require-hashes" in STEPS["Install"]["run"]
    assert "--no-deps --no-build-isolation" in STEPS["Install"]["run"]
    pinned = (ROOT / ".github" / "action-requirements.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", pinned, re.MULTILINE))
    needed = [Requirement(line) for line in requires("sptc") or ()]
    for requirement in (*(need for need in needed if not need.marker), Requirement("setuptools>=77")):
        assert requirement.specifier.contains(versions[requirement.name]), requirement
    for path in (ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")):
        for line in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", line), (path.name, line)
    assert "fork" in STEPS["Compiled models"]["if"]


def test_inputs_that_would_be_options(tmp_path: Path) -> None:
    for name in ("arch", "preset", "instruction", "seconds", "seed"):
        runner = Runner(tmp_path / name, **{name: "--state=/"})
        runner.values |= {"steps.begin.outputs.reports": str(tmp_path / "reports")}
        done = runner.run("Campaign")
        message = "::error::an input of the action begins with a hyphen, which only options do\n"
        assert (done.returncode, done.stdout) == (2, message)


class Runner:
    """Stand-in for a GitHub runner. It runs steps of the action; given inputs replace the default inputs."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.folder, self.temp = folder, folder / "temp"
        self.values = {f"inputs.{name}": str(about["default"]) for name, about in ACTION["inputs"].items()}
        self.values |= {f"inputs.{name}": value for name, value in inputs.items()}
        self.values |= {"runner.temp": str(self.temp), "runner.os": "Linux"}
        tools = self.temp / "sptc" / "bin"
        tools.mkdir(parents=True)
        (tools / "sptc").write_text(f'#!/bin/sh\nexec {sys.executable} -m sptc "$@"\n')
        (tools / "sptc").chmod(0o755)
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.temp / "sptc-cache").symlink_to(cache_folder())

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a step as GitHub does, and record its outputs."""
        step, output = STEPS[name], self.folder / "output"
        output.write_text("")
        own = {key: self._filled(value) for key, value in step.get("env", {}).items()}
        own |= {"RUNNER_TEMP": str(self.temp), "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_OUTPUT": str(output)}
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
        options: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": 1800}
        done = subprocess.run(command, cwd=self.folder, env=os.environ | own, **options)
        for line in output.read_text().splitlines():
            key, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return done

    def _filled(self, value: object) -> str:
        return EXPRESSION.sub(lambda found: self.values[found.group(1)], str(value))

    @property
    def reports(self) -> Path:
        return Path(self.values["steps.begin.outputs.reports"])


@pytest.mark.regression
def test_a_campaign_on_a_runner(tmp_path: Path) -> None:
    other = F16.replace("f16", "bf16")
    runner = Runner(tmp_path, seconds="1", seed="7", arch="sm_90", instruction=f"{F16}\n\n{other}\n")
    for name in ("Begin", "Campaign", "Report"):
        done = runner.run(name)
        assert done.returncode == 0, done.stdout + done.stderr
        if name == "Campaign":
            assert re.search(r"^::notice title=sptc campaign::\d+ right, 0 wrong$", done.stderr, re.MULTILINE)
    assert runner.values["steps.begin.outputs.version"].startswith("sptc-")
    assert re.fullmatch("[0-9a-f]{12}", runner.values["steps.begin.outputs.processor"])
    root = ElementTree.parse(runner.reports / "campaign.xml").getroot()
    assert [element.get("value") for element in root.iter("property")] == ["7"]
    assert {str(case.get("name")) for case in root.iter("testcase")} == {"f16 x f16 to f32", "bf16 x bf16 to f32"}
    assert (runner.reports / "campaign" / "coverage.json").is_file()
    page = (runner.reports / "report.html").read_text(encoding="utf-8")
    assert "none failed" in page
    assert "hopper: operations" in page


@pytest.mark.regression
def test_bad_inputs(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    assert runner.run("Begin").returncode == 0
    right = dict(runner.values)
    for name, value, said in (
        ("preset", "hopper volta", "invalid choice: 'volta'"),
        ("instruction", "mma.sp $(touch injected)", "no instruction has the word '$'"),
    ):
        runner.values = right | {f"inputs.{name}": value}
        done = runner.run("Campaign")
        assert done.returncode == 2, name
        assert said in done.stderr, name
        assert not (tmp_path / "injected").exists()
