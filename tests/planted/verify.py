"""Faults of what compares."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from . import Change, fault


@fault("verify.replay.first", "verify.replay")
def _(replay: Any, change: Change) -> None:
    """The last difference is reported as the first."""
    right = replay._compare

    def compare(found: Any, references: Any) -> tuple[int, Any]:
        references = list(references)
        count, first = right(found, references)
        if first is None:
            return count, first
        expected = dict(references)[first.reference]
        position = tuple(int(index) for index in replay.np.argwhere(found != expected)[-1])
        case, *cta, row, column = position
        codes = (int(found[position]), int(expected[position]))
        return count, replay.Mismatch(case, row, column, *codes, first.reference, *cta)

    change(replay, "_compare", compare)


@fault("verify.shards.coverage", "verify.shards")
def _(shards: Any, change: Change) -> None:
    """Mismatches are forgotten where coverage is sampled."""
    right = shards.run_shard

    def run_shard(shard: Any, sample: bool) -> Any:
        result = right(shard, sample)
        return replace(result, mismatches=0) if sample else result

    change(shards, "run_shard", run_shard)


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
