"""Campaigns as tests run them: in this process or as a command, and what they leave in a state folder."""

import json
import sys
from pathlib import Path
from typing import Any

from sptc.cli import main
from sptc.verify.shards import Plan

PLAN = Plan(seed=11, architectures=("sm_80",), tiles=2)
SMALL = ("--arch", "sm_80", "--tiles", "2", "--seed", "11")


def run(*words: object) -> int:
    return main(["campaign", *map(str, words)])


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "sptc", "campaign", *map(str, words)]


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the whole lines of the shards that are done."""
    path = folder / "shards.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def by_shard(folder: Path) -> list[dict[str, Any]]:
    return sorted(records(folder), key=lambda record: record["shard"])
