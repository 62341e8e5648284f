"""Failures known from other memories, third part: the wrong thing superseded, or everything flagged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from operators.claims import Action, Decision, Finding, FindingType, Key, Policy, StateClaim, Winner
from operators.evidence import Evidence, EvidenceType
from operators.items import LiveItems
from operators.outcome import Outcome, OutcomeKind, valid
from operators.status import Status
from pipeline.checker import ViolationKind
from pipeline.decide import FailurePolicy
from pipeline.render import render
from tests.support import (
    KINDS,
    PLACES,
    ScriptedUpdate,
    claim,
    current_section,
    day,
    failures_of,
    key,
    note,
    open_loop,
    statuses,
    values_of,
)

ORDERS = list(permutations(range(3)))
SCOPES = [
    ("*", "*"),
    ("main", "prod"),
    ("main", "staging"),
    ("feature-x", "staging"),
    ("*", "prod"),
    ("main", "*"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_another_fact_on_the_same_entity_retires_nothing(order: Sequence[int], kind: EvidenceType) -> None:
    """M32"""
    facts = [("title", "manager"), ("admin_of", "repo-host"), ("team", "infra")]
    loop = open_loop()
    for at, position in enumerate(order, 1):
        slot, value = facts[position]
        ((_, decision),) = loop.ingest_claims([claim(key("ann", slot), value, at=at, kind=kind)])
        assert decision is not None
        assert decision.action is Action.ADD
    for slot, value in facts:
        assert values_of(loop.memory, key("ann", slot)) == [value]


@pytest.mark.parametrize("action", [Action.MERGE, Action.SUPERSEDE, Action.CONTEST])
@pytest.mark.parametrize(
    "other", [key("ann", "title"), key("ann", "admin_of", "main"), key("kim", "project")]
)
def test_an_operator_cannot_reach_an_item_of_another_key(other: Key, action: Action) -> None:
    """M32"""
    where, reached = key("ann", "admin_of"), ""

    def answer(items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        act = action if incoming.key == where else Action.ADD
        target = reached if incoming.key == where else None
        assert len(items) == 0
        return valid(
            Decision(act, target, Winner.INCOMING, Policy.CREDIBILITY, "scripted-update/1", "so told")
        )

    loop = open_loop(update=ScriptedUpdate(answer), policy=FailurePolicy.RULES)
    loop.ingest_claims([claim(other, "manager", at=1)])
    reached = loop.memory.current(other)[0].item_id
    loop.ingest_claims([claim(where, "repo-host", at=2)])
    assert (values_of(loop.memory, other), values_of(loop.memory, where)) == (["manager"], ["repo-host"])
    assert [failure.kind for failure in failures_of(loop.memory)] == [OutcomeKind.MALFORMED]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_backfill_of_the_past_does_not_beat_the_present(
    where: Key, values: Sequence[str], order: Sequence[int], kind: EvidenceType
) -> None:
    """M34"""
    told = [claim(where, value, at=at, kind=kind) for value, at in zip(values, (30, 1, 15), strict=True)]
    loop = open_loop()
    for position in order:
        loop.ingest_claims([told[position]])
    assert values_of(loop.memory, where) == [values[0]]
    assert [v.item.normal for v in loop.memory.versions(where)] == [values[1], values[2], values[0]]


@pytest.mark.parametrize("days", [(30, 1), (1, 30), (7, 7)])
@pytest.mark.parametrize("second", SCOPES)
@pytest.mark.parametrize("first", SCOPES)
def test_no_claim_reaches_across_scopes(
    first: tuple[str, str], second: tuple[str, str], days: tuple[int, int]
) -> None:
    """M35"""
    here, there = key("cfg", "url", *first), key("cfg", "url", *second)
    loop = open_loop()
    loop.ingest_claims([claim(here, "http://private", at=days[0], kind=EvidenceType.BRANCH_EXPERIMENT)])
    alone = loop.memory.versions(here)
    loop.ingest_claims([claim(there, "http://shared", at=days[1], kind=EvidenceType.CODE_CHANGE)])
    assert values_of(loop.memory, there) == ["http://shared"]
    assert (loop.memory.versions(here) == alone) is (here != there)


@pytest.mark.parametrize(
    ("where", "spellings"),
    [
        (key("shop", "db"), ("Postgres 16", "PostgreSQL", "the `postgres`")),
        (key("api", "version"), ("v3.11", "3.11", "version 3.11")),
        (key("api", "quota"), ("1,000 ms", "1000ms", "1_000.0 ms")),
        (key("app", "darkmode"), ("on", "enabled", "Yes")),
        (key("svc", "name"), ("alpha-1", "Alpha-1.", '"alpha-1"')),
        (key("app", "policy"), ("ask before writes", "It asks before the write", "asks before the writes")),
    ],
)
@pytest.mark.parametrize("order", ORDERS)
def test_two_spellings_of_one_value_are_a_duplicate_and_no_conflict(
    where: Key, spellings: Sequence[str], order: Sequence[int]
) -> None:
    """M37"""
    loop = open_loop()
    for at, position in enumerate(order, 1):
        loop.ingest_claims([claim(where, spellings[position], at=at)])
    (version,) = loop.memory.versions(where)
    assert (version.item.status, version.item.support) == (Status.CONFIRMED, 3)


@pytest.mark.parametrize(
    "texts", list(permutations(["The shop uses Postgres 16.", "The shop database is PostgreSQL."]))
)
def test_a_paraphrase_in_a_note_is_a_duplicate(texts: tuple[str, str]) -> None:
    """M37"""
    loop = open_loop()
    for at, text in enumerate(texts, 1):
        loop.ingest(note(text, at=at))
    (item,) = loop.memory.current(key("shop", "db"))
    assert (item.normal, item.support, loop.memory.contested(item.key)) == ("postgres", 2, [])


@pytest.mark.parametrize(
    ("type_", "texts", "kind", "looked_at"),
    [
        (FindingType.DEPENDENCY, ["a -> b", "b -> a"], ViolationKind.CYCLE, (2, 0)),
        (FindingType.DEPENDENCY, ["a -> a"], ViolationKind.CYCLE, (1, 0)),
        (FindingType.DEPENDENCY, ["x -> y", "y -> z", "z -> x"], ViolationKind.CYCLE, (3, 0)),
        (
            FindingType.CONSTRAINT,
            ["resource:x time:0-4", "resource:x time:3-9"],
            ViolationKind.OVERLAP,
            (0, 2),
        ),
        (
            FindingType.CONSTRAINT,
            ["resource:x time:0-9", "resource:x time:2-3"],
            ViolationKind.OVERLAP,
            (0, 2),
        ),
    ],
)
def test_the_checker_finds_a_known_conflict_and_says_how_much_it_saw(
    type_: FindingType, texts: list[str], kind: ViolationKind, looked_at: tuple[int, int]
) -> None:
    """M40"""
    evidence = Evidence(type=EvidenceType.HUMAN_NOTE, source="n")
    findings = [
        Finding(finding_id=f"f{n}", type=type_, text=text, evidence=evidence, timestamp=day(n))
        for n, text in enumerate(texts)
    ]
    loop = open_loop()
    assert loop.ingest_findings([]).report.edges == 0
    report = loop.ingest_findings(findings).report
    assert (report.edges, report.intervals) == looked_at
    (violation,) = report.violations
    assert (violation.kind, set(violation.finding_ids)) == (kind, {f.finding_id for f in findings})


@pytest.mark.parametrize(("where", "values"), PLACES)
def test_every_write_is_counted_as_a_decision(where: Key, values: Sequence[str]) -> None:
    """M40"""
    loop = open_loop()
    loop.ingest_claims([claim(where, value, at=at) for at, value in enumerate(values, 1)])
    assert loop.memory.decider.outcomes == {OutcomeKind.VALID: len(values)}


@pytest.mark.parametrize(
    ("before", "after", "where", "old", "new"),
    [
        ("The api port is 8080.", "The api port is now 9090.", key("api", "port"), "8080", "9090"),
        ("The app theme is blue.", "The app theme is now red.", key("app", "theme"), "blue", "red"),
        ("The shop uses mysql.", "The shop database is now sqlite.", key("shop", "db"), "mysql", "sqlite"),
        ("Dark mode is on.", "Dark mode is now off.", key("app", "darkmode"), "on", "off"),
    ],
)
def test_a_contradiction_shows_from_note_to_document(
    before: str, after: str, where: Key, old: str, new: str
) -> None:
    """M41"""
    loop = open_loop()
    loop.ingest(note(before, at=1))
    assert statuses(loop, where) == {old: Status.CONFIRMED}
    assert f": {old} (" in current_section(loop)
    ((_, decision),) = loop.ingest(note(after, at=2)).decisions
    assert decision is not None
    assert decision.action is Action.SUPERSEDE
    assert statuses(loop, where) == {old: Status.SUPERSEDED, new: Status.CONFIRMED}
    assert f": {new} (" in current_section(loop)
    assert f": {old} -> {new} (" in render(loop.memory)


@pytest.mark.parametrize("weaker", KINDS[1:])
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_weaker_contradiction_shows_as_contested(
    where: Key, values: Sequence[str], weaker: EvidenceType
) -> None:
    """M41"""
    loop = open_loop()
    loop.ingest_claims([claim(where, values[0], at=1, kind=EvidenceType.CODE_CHANGE, commit="abcdef0")])
    loop.ingest_claims([claim(where, values[1], at=2, kind=weaker)])
    assert statuses(loop, where) == {values[0]: Status.CONFIRMED, values[1]: Status.CONTESTED}
    assert values[1] in render(loop.memory).partition("## Contested")[2].partition("\n## ")[0]
