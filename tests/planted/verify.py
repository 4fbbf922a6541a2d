"""Faults of what compares."""

from collections.abc import Iterator
from typing import Any

from . import Change, fault


@fault("verify.replay.first", "verify.replay")
def _(replay: Any, change: Change) -> None:
    """The last difference is reported as the first."""
    change(replay, "_first", lambda wrong: tuple(int(index) for index in replay.np.argwhere(wrong)[-1]))


@fault("verify.campaign.finished", "verify.campaign")
def _(campaign: Any, change: Change) -> None:
    """Outputs of finished shards do not count when a campaign is taken up again."""

    def unfinished(record: Any, *, shards: int | None = None, outputs: int | None = None) -> Iterator[Any]:
        counted = 0
        for shard in record.plan.shards():
            if shard.index == shards or (outputs is not None and counted >= outputs):
                return
            if shard.index not in record:
                counted += shard.outputs
                yield shard

    change(campaign, "unfinished", unfinished)
