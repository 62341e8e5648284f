"""A small schema, short makers of claims and notes, and scripted operators for the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from operators.assembly import OperatorChoice, build_operators
from operators.claims import ANY_SCOPE, Comparison, Decision, Key, Note, StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.items import LiveItems
from operators.outcome import Outcome
from operators.rules.update import RuleUpdate
from operators.schema import SlotSchema
from operators.seam import CompareOperator, ExtractOperator, UpdateOperator
from operators.status import Status
from pipeline.decide import Decider, FailurePolicy
from pipeline.log import Failure, InMemoryLog, MemoryLog
from pipeline.loop import UpdateLoop
from pipeline.memory import Memory
from pipeline.render import render

SCHEMA = SlotSchema.model_validate(
    {
        "branches": {"main": ["trunk"], "feature-x": ["feature x"]},
        "envs": {"prod": ["production"], "staging": ["stage"], "ci": []},
        "entities": [
            {
                "entity": "shop",
                "slots": [
                    {
                        "slot": "db",
                        "aliases": ["database"],
                        "form": "enum",
                        "values": {"postgres": ["PostgreSQL", "Postgres 16"], "mysql": [], "sqlite": []},
                    }
                ],
            },
            {
                "entity": "api",
                "slots": [
                    {"slot": "port", "form": "number"},
                    {"slot": "version", "form": "version"},
                    {"slot": "orm", "form": "name"},
                    {"slot": "quota", "form": "number"},
                ],
            },
            {
                "entity": "app",
                "slots": [
                    {"slot": "theme", "form": "name"},
                    {"slot": "darkmode", "aliases": ["dark mode"], "form": "flag"},
                    {"slot": "policy", "form": "text"},
                    {"slot": "plugins", "aliases": ["plugin"], "form": "name", "cardinality": "many"},
                ],
            },
            {"entity": "auth", "slots": [{"slot": "scheme", "form": "name"}]},
            {"entity": "queue", "slots": [{"slot": "broker", "form": "name"}]},
            {"entity": "svc", "slots": [{"slot": "name", "form": "name"}]},
            {"entity": "cfg", "slots": [{"slot": "url", "form": "name"}]},
            {"entity": "kim", "slots": [{"slot": "project", "form": "name"}]},
            {
                "entity": "ann",
                "slots": [
                    {"slot": "title", "form": "name"},
                    {"slot": "admin_of", "form": "name"},
                    {"slot": "team", "form": "name"},
                ],
            },
            {"entity": "qx", "aliases": ["QX"], "slots": [{"slot": "engine", "form": "name"}]},
            {
                "entity": "package_manager",
                "aliases": ["package manager"],
                "slots": [
                    {
                        "slot": "tool",
                        "form": "enum",
                        "values": {"yarn": [], "pnpm": [], "npm": [], "bun": []},
                    }
                ],
            },
            {
                "entity": "pipeline",
                "slots": [
                    {
                        "slot": "provider",
                        "form": "enum",
                        "values": {
                            "travis": ["Travis CI"],
                            "github-actions": ["GitHub Actions"],
                            "circleci": [],
                        },
                    }
                ],
            },
        ],
    }
)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    """The event time of day `number`; day 1 is the first of January 2026."""
    return EPOCH + timedelta(days=number - 1)


def key(entity: str, slot: str, branch: str = ANY_SCOPE, env: str = ANY_SCOPE) -> Key:
    return Key(entity, slot, branch, env)


def claim(
    where: Key,
    value: str | None,
    *,
    at: float = 1,
    kind: EvidenceType = EvidenceType.HUMAN_NOTE,
    commit: str | None = None,
    source: str | None = None,
    retires: str | None = None,
) -> StateClaim:
    """A claim of day `at`; its source is named after the day unless one is given."""
    return StateClaim(
        entity=where.entity, slot=where.slot, value=value, retires=retires,
        branch=where.branch, env=where.env,
        evidence=Evidence(type=kind, source=source or f"note-of-day-{at:g}", commit=commit),
        timestamp=day(at),
    )  # fmt: skip


def note(
    text: str,
    *,
    at: float = 1,
    kind: EvidenceType = EvidenceType.HUMAN_NOTE,
    commit: str | None = None,
    source: str | None = None,
) -> Note:
    """A note of day `at`; its source is named after the day unless one is given."""
    return Note(
        source_id=source or f"note-of-day-{at:g}", text=text, observed_at=day(at),
        evidence_type=kind, git_commit=commit,
    )  # fmt: skip


KINDS = list(EvidenceType)
PLACES = [
    pytest.param(key("shop", "db", "main", "prod"), ("postgres", "mysql", "sqlite"), id="enum"),
    pytest.param(key("api", "port"), ("8080", "8081", "9090"), id="number"),
    pytest.param(key("api", "version", "feature-x"), ("1.2.3", "1.2.4", "2.0"), id="version"),
    pytest.param(key("svc", "name"), ("alpha-1", "alpha-2", "beta"), id="name"),
    pytest.param(key("app", "policy", env="staging"), ("ask first", "never ask", "ask once"), id="text"),
]
"""A key of each form with three values of it that contradict one another."""


@dataclass
class ScriptedExtract:
    """Answers every note with the next of its outcomes, the last one for ever; keeps what it was shown."""

    outcomes: Sequence[Outcome[list[StateClaim]]]
    seen: list[Note] = field(default_factory=list)
    identity: str = "scripted-extract/1"
    pure: bool = False

    def extract(self, note: Note, schema: SlotSchema) -> Outcome[list[StateClaim]]:  # noqa: ARG002
        self.seen.append(note)
        return self.outcomes[min(len(self.seen), len(self.outcomes)) - 1]


@dataclass
class ScriptedCompare:
    """Answers every pair the same, and counts how often it was asked."""

    outcome: Outcome[Comparison]
    asked: int = 0
    identity: str = "scripted-compare/1"
    pure: bool = False

    def compare(self, incumbent: StateClaim, incoming: StateClaim) -> Outcome[Comparison]:  # noqa: ARG002
        self.asked += 1
        return self.outcome


@dataclass
class ScriptedUpdate:
    """Answers by a function of what an update operator sees, and counts how often it was asked."""

    answer: Callable[[LiveItems, StateClaim], Outcome[Decision]]
    asked: int = 0
    identity: str = "scripted-update/1"
    pure: bool = False

    def update(self, items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        self.asked += 1
        return self.answer(items, incoming)


def open_loop(
    *,
    extract: ExtractOperator | None = None,
    compare: CompareOperator | None = None,
    update: UpdateOperator | None = None,
    policy: FailurePolicy = FailurePolicy.RAISE,
    log: MemoryLog | None = None,
    schema: SlotSchema = SCHEMA,
) -> UpdateLoop:
    """A loop of rules in which the given operators replace theirs, on a new log or the one given."""
    rules = build_operators(OperatorChoice(), schema)
    chosen = update or (RuleUpdate(schema, compare) if compare else rules.update)
    memory = Memory(
        schema,
        Decider(schema, chosen, rules.update, policy),
        log=log if log is not None else InMemoryLog(),
        clock=lambda: EPOCH,
    )
    return UpdateLoop(memory, extract or rules.extract, rules.extract, policy)


def values_of(memory: Memory, where: Key) -> list[str | None]:
    """The normal values of the key's current items."""
    return [item.normal for item in memory.current(where)]


def failures_of(memory: Memory) -> list[Failure]:
    """The failures that the memory's log records."""
    return [record.entry for record in memory.log if isinstance(record.entry, Failure)]


def statuses(loop: UpdateLoop, where: Key) -> dict[str | None, Status]:
    """The status of each value the key ever had (of its newest item, if it returned)."""
    return {version.item.normal: version.item.status for version in loop.memory.versions(where)}


def current_section(loop: UpdateLoop, *, budget: int | None = None) -> str:
    """What the rendered memory says of the present."""
    return render(loop.memory, budget=budget).partition("## Current state")[2].partition("\n## ")[0]
