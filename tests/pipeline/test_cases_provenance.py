"""Failures known from other memories, fourth part: duplicates, polluted input, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

import pytest

from data_builders.trajectory import Trajectory
from eval.loo import run_holdout
from operators.assembly import OperatorChoice
from operators.claims import Key, Note, StateClaim
from operators.evidence import EvidenceType
from operators.outcome import Outcome, OutcomeKind
from operators.schema import SlotSchema
from pipeline.memory import Memory
from pipeline.render import render
from tests.support import (
    KINDS,
    PLACES,
    SCHEMA,
    claim,
    day,
    key,
    note,
    open_loop,
    values_of,
)

ORDERS = list(permutations(range(3)))


def evidence_lists(memory: Memory) -> dict[str, list[list[StateClaim]]]:
    """The claims behind every item, in order."""
    return {str(k): [list(v.claims) for v in memory.versions(k)] for k in memory.known_keys()}


@pytest.mark.parametrize(
    "texts",
    list(
        permutations(
            [
                "QX engine is fast-1.",
                "The engine of QX is fast-1.",
                "The qx engine: fast-1.",
                "Qx uses fast-1.",
            ]
        )
    ),
)
def test_one_short_name_is_one_entity_in_every_note(texts: tuple[str, ...]) -> None:
    """M43"""
    loop = open_loop()
    for at, text in enumerate(texts, 1):
        loop.ingest(note(text, at=at))
    assert loop.memory.known_keys() == [key("qx", "engine")]
    (item,) = loop.memory.current(key("qx", "engine"))
    assert item.support == 4


@pytest.mark.parametrize("spelling", ["QX", "qx", "Qx", "the QX", "`QX`"])
def test_a_claim_under_an_alias_is_a_claim_on_the_entity(spelling: str) -> None:
    """M43"""
    loop = open_loop()
    loop.ingest_claims([claim(key("qx", "engine"), "fast-1", at=1)])
    loop.ingest_claims([claim(key(spelling, "engine"), "fast-2", at=2)])
    assert loop.memory.known_keys() == [key("qx", "engine")]
    assert values_of(loop.memory, key("qx", "engine")) == ["fast-2"]


SESSION = [
    note("The api port is 8080 in prod.", at=1, kind=EvidenceType.CODE_CHANGE, commit="abcdef0"),
    note("The app theme is blue. The shop uses mysql.", at=2),
    note("The api port is now 9090 in prod.", at=3, kind=EvidenceType.INCIDENT_HOTFIX, commit="abcdef1"),
    note("The old wiki says the theme is now red.", at=3.5),
    note("", at=4),
]


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("session", [SESSION, SESSION[:2], SESSION[::-1]])
def test_a_session_ingested_again_changes_nothing(session: list[Note], times: int) -> None:
    """M44"""
    loop, once = open_loop(), open_loop()
    for said in session:
        once.ingest(said)
    for said in session * times:
        loop.ingest(said)
    assert once.memory.known_keys()
    assert loop.memory.state_hash() == once.memory.state_hash()
    assert [r.entry for r in loop.memory.log] == [r.entry for r in once.memory.log]


@pytest.mark.parametrize("cuts", [(0,), (1,), (2,), (3,), (1, 2), (2, 3), (1, 2, 3)])
@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_batch_and_single_writes_come_to_the_same(
    where: Key, values: Sequence[str], order: Sequence[int], cuts: Sequence[int]
) -> None:
    """M45"""
    told = [
        claim(where, values[0], at=1, source="a"),
        claim(where, values[0], at=1, source="b"),
        claim(where, values[1], at=2, source="b"),
        claim(where, values[0], at=2, source="c"),
    ]
    one_by_one, batched = open_loop(), open_loop()
    for one in told:
        one_by_one.ingest_claims([one])
    arrivals = [told[position] for position in order]
    for start, stop in zip((0, *cuts), (*cuts, len(arrivals)), strict=True):
        batched.ingest_claims(arrivals[start:stop])
    assert batched.memory.state() == one_by_one.memory.state()
    assert evidence_lists(batched.memory) == evidence_lists(one_by_one.memory)


@pytest.mark.parametrize("budget", [None, 2000, 250])
@pytest.mark.parametrize("frame", ["{}", "\n\n{}\n", "  {}  "])
@pytest.mark.parametrize("kind", KINDS)
def test_its_own_document_is_no_evidence(kind: EvidenceType, frame: str, budget: int | None) -> None:
    """M49"""
    loop = open_loop()
    loop.ingest(note("The api port is 8080. The shop uses mysql.", at=1))
    loop.ingest(note("The api port is now 9090. The app theme is now blue.", at=2))
    before = loop.memory.state_hash()
    document = frame.format(render(loop.memory, budget=budget))
    report = loop.ingest(note(document, at=9, kind=kind, commit="abcdef0"))
    assert report.extracted == ()
    assert "own output" in report.reason
    assert loop.memory.state_hash() == before


def test_what_people_write_around_a_quoted_memory_is_still_read() -> None:
    """M49"""
    loop = open_loop()
    loop.ingest(note("The api port is 8080.", at=1))
    report = loop.ingest(note(f"{render(loop.memory)}\nThe app theme is now red.\n", at=2))
    assert [c.key for c in report.extracted] == [key("app", "theme")]


@dataclass
class Untouchable:
    """An extractor that must not be asked."""

    identity: str = "untouchable/1"
    pure: bool = False
    seen: list[Note] = field(default_factory=list)

    def extract(self, note: Note, schema: SlotSchema) -> Outcome[list[StateClaim]]:
        raise AssertionError(f"asked about {note.text!r} with {len(schema.entities)} entities")


@pytest.mark.parametrize("text", ["", " ", "\n", "\t \r\n\n", "\u00a0"])
def test_an_empty_note_gives_nothing_and_no_operator_sees_it(text: str) -> None:
    """M50"""
    for loop in (open_loop(), open_loop(extract=Untouchable())):
        said = note(text)
        report = loop.ingest(said)
        assert (report.outcome, report.extracted, report.reason) == (
            OutcomeKind.EMPTY,
            (),
            "the note is empty",
        )
        assert [record.entry for record in loop.memory.log] == [said]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stronger", KINDS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_more_evidence_never_moves_when_a_value_was_first_seen(
    where: Key, values: Sequence[str], stronger: EvidenceType, order: Sequence[int]
) -> None:
    """M51"""
    told = [
        claim(where, values[0], at=1, kind=EvidenceType.STALE_OBSERVATION),
        claim(where, values[0], at=5, kind=stronger, commit="abcdef0"),
        claim(where, values[0], at=9, kind=EvidenceType.STALE_OBSERVATION),
    ]
    loop = open_loop()
    for position in order:
        loop.ingest_claims([told[position]])
    (item,) = loop.memory.current(where)
    assert (item.first_seen, item.claim) == (day(1), told[1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_each_version_names_the_commit_that_made_it(
    where: Key, values: Sequence[str], order: Sequence[int]
) -> None:
    """M52"""
    commits = ["aaaaaaaaaaaa1111", "bbbbbbbbbbbb2222", "cccccccccccc3333"]
    told = [
        claim(where, value, at=at, kind=EvidenceType.CODE_CHANGE, commit=commit)
        for at, (value, commit) in enumerate(zip(values, commits, strict=True), 1)
    ]
    loop = open_loop()
    for position in order:
        loop.ingest_claims([told[position]])
    assert [v.item.claim.evidence.commit for v in loop.memory.versions(where)] == commits
    document = render(loop.memory)
    assert f"first {values[0]} (code-change, 2026-01-01, {commits[0][:12]})" in document
    assert f"{values[0]} -> {values[1]} (code-change, 2026-01-02, {commits[1][:12]})" in document
    assert f"{values[1]} -> {values[2]} (code-change, 2026-01-03, {commits[2][:12]})" in document


def _duplicates(pairs: Sequence[tuple[str, str, str, str]]) -> Trajectory:
    """A trajectory in which every place is introduced and then said again in other words."""
    sessions = []
    for number, (entity, slot, first, again) in enumerate(pairs):
        for offset, (value, change) in enumerate([(first, "introduces"), (again, "restates")]):
            at = 2 * number + offset
            told = {"entity": entity, "slot": slot, "value": value, "branch": f"b{number}", "change": change}
            if offset:
                told["against"] = f"s{at - 1}"
            sessions.append(
                {"id": f"s{at}", "commit": f"{at:012x}", "date": day(at + 1), "evidence": "code-change",
                 "note": f"The {entity} {slot} is {value}.", "claims": [told]}
            )  # fmt: skip
    return Trajectory.model_validate(
        {
            "name": "duplicates", "repository": "none/none", "licence": "Apache-2.0", "about": "duplicates",
            "schema": SCHEMA.model_dump(), "sessions": sessions,
        }
    )  # fmt: skip


FOUND = [
    ("shop", "db", "postgres", "PostgreSQL"),
    ("api", "version", "v1.2", "1.2"),
    ("api", "quota", "1,000", "1000"),
    ("app", "darkmode", "on", "enabled"),
]
MISSED = ("svc", "name", "alpha", "the first letter")


@pytest.mark.parametrize("missed", [0, 1, 5, 20])
def test_the_recall_on_duplicates_is_reported_for_each_operator(missed: int) -> None:
    """M53"""
    pairs = [MISSED] * missed + (FOUND * 5)[missed:]
    rows = run_holdout(_duplicates(pairs), OperatorChoice())
    compare = [row for row in rows if row.step == "compare" and row.detail["gold"] == ["same", "both"]]
    update = [row for row in rows if row.step == "update" and row.detail["gold"][0] == "merge"]  # type: ignore[index]
    for found in (compare, update):
        assert [row.outcome for row in found] == ["valid"] * 20
        assert sum(row.score for row in found) == 20 - missed


def test_an_edited_note_is_kept_beside_the_first() -> None:
    """M08, the kind: a source that speaks again under its old name loses nothing."""
    loop = open_loop()
    loop.ingest(note("The api port is 8080.", source="wiki"))
    loop.ingest(note("The api port is 9090.", source="wiki", at=2))
    assert [kept.text for kept in loop.memory.notes.values()] == [
        "The api port is 8080.",
        "The api port is 9090.",
    ]
    assert values_of(loop.memory, key("api", "port")) == ["9090"]


def test_the_current_line_names_the_commit_that_set_the_value_not_the_last_that_repeated_it() -> None:
    """M52"""
    loop = open_loop()
    for at, commit in ((1, "aaaaaaa"), (2, "bbbbbbb")):
        where = key("api", "quota")
        loop.ingest_claims([claim(where, "1", at=at, kind=EvidenceType.CODE_CHANGE, commit=commit)])
    current = render(loop.memory).split("## Transitions")[0]
    assert "aaaaaaa" in current
    assert "bbbbbbb" not in current
