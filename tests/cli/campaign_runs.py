"""Campaigns as tests run them: in this process or as a command, and what they leave in a state folder."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from sptc.cli import main
from sptc.verify.shards import Plan

PLAN = Plan(seed=11, architectures=("sm_90",), tiles=2)
SMALL = ("--arch", "sm_90", "--tiles", "2", "--seed", "11")


def run(*words: object) -> int:
    return main(["campaign", *map(str, words)])


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "sptc", "campaign", *map(str, words)]


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the shards that are done, by shard, also while the campaign runs."""
    try:
        with closing(sqlite3.connect(f"file:{folder / 'campaign.db'}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT number, content FROM entries ORDER BY number").fetchall()
    except sqlite3.OperationalError:  # it has not begun
        return []
    return [{"shard": number, **json.loads(content)} for number, content in rows]
