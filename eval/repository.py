"""Replay of any git repository: its commit messages as notes through the update loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from data_builders.git_replay import GitHistory
from operators.assembly import OperatorChoice
from operators.schema import SlotSchema
from pipeline.decide import FailurePolicy
from pipeline.loop import open_loop
from pipeline.memory import Memory


@dataclass(frozen=True, slots=True)
class RepositoryReplay:
    """The memory after a replay, with what went in and what came out of it."""

    memory: Memory
    commits: int
    speaking_commits: int
    claims: int


def replay_repository(
    history: GitHistory,
    schema: SlotSchema,
    choice: OperatorChoice,
    *,
    since: datetime | None = None,
    limit: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> RepositoryReplay:
    """Feed every commit message, oldest first; `progress` is called once a commit.

    An empty repository gives an empty memory. Raises: RepositoryError for history that breaks off.
    """
    loop = open_loop(schema, choice, policy=FailurePolicy.PROPOSE)
    commits = speaking = claims = 0
    for facts in history.commits(since=since, limit=limit):
        report = loop.ingest(facts.as_note())
        commits += 1
        speaking += bool(report.extracted)
        claims += len(report.extracted)
        progress()
    return RepositoryReplay(loop.memory, commits, speaking, claims)
