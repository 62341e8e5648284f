"""A trajectory through the update loop: the state after every session, and the answers at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from data_builders.gold import GoldState, Place, gold_states
from data_builders.trajectory import Trajectory
from eval.metrics import answers
from eval.reader import MemoryReader
from operators.assembly import ModelSource, OperatorChoice
from operators.schema import Cardinality
from pipeline.decide import FailurePolicy
from pipeline.loop import open_loop
from pipeline.memory import Memory

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""The known time of everything in an evaluation: results must not depend on the clock."""


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How much of the true state the memory has after one session: right places of all places."""

    session_id: str
    right: int
    places: int


@dataclass(frozen=True, slots=True)
class QueryResult:
    query_id: str
    kind: str
    hops: int
    answer: str
    right: bool


@dataclass(frozen=True, slots=True)
class ReplayResult:
    sessions: tuple[SessionResult, ...]
    queries: tuple[QueryResult, ...]
    outcomes: Counter[str]


def replay(
    trajectory: Trajectory,
    choice: OperatorChoice,
    *,
    gold_claims: bool = False,
    source: ModelSource | None = None,
) -> ReplayResult:
    """Feed every session and score the memory against history.

    With `gold_claims` the gold claims go in unextracted: what the update rules alone are worth.
    """
    loop = open_loop(
        trajectory.slot_schema, choice, policy=FailurePolicy.PROPOSE, clock=lambda: EPOCH, source=source
    )
    results = []
    for session, gold in zip(trajectory.sessions, gold_states(trajectory), strict=True):
        if gold_claims:
            loop.ingest_claims([session.state_claim(claim, trajectory.name) for claim in session.claims])
        else:
            loop.ingest(session.as_note(trajectory.name))
        results.append(_score_state(loop.memory, gold))
    reader = MemoryReader(loop.memory)
    queries = []
    for query in trajectory.queries:
        answer = reader.answer(query.question)
        queries.append(QueryResult(query.id, query.kind.value, query.hops, answer, answers(answer, query)))
    outcomes = Counter({f"extract-state {kind}": n for kind, n in loop.extract_outcomes.items()})
    outcomes += Counter({f"update-memory {kind}": n for kind, n in loop.memory.decider.outcomes.items()})
    return ReplayResult(tuple(results), tuple(queries), outcomes)


def current_places(memory: Memory) -> dict[Place, str | None]:
    """Each place's current normal value, in the terms of gold states; ties and removals are None."""
    places: dict[Place, str | None] = {}
    for key in memory.known_keys():
        many = memory.schema.slot(key.entity, key.slot).cardinality is Cardinality.MANY
        for item in memory.current(key):
            places[key, (item.normal or "") if many else ""] = item.normal
    return places


def _score_state(memory: Memory, gold: GoldState) -> SessionResult:
    """Every place that history or the memory speaks of counts once; a removed thing should be absent."""
    held = current_places(memory)
    places = set(held) | set(gold.values)
    right = sum(held.get(place) == gold.values.get(place) for place in places)
    return SessionResult(gold.session_id, right, len(places))
