"""Failures known from other memories, first part: facts that get lost or deleted.

The case ids are those of the project's list of failures seen in the field; `test_cases_stale.py`,
`test_cases_scope.py` and `test_cases_provenance.py` go on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from eval.reader import MemoryReader
from operators.assembly import OperatorChoice, build_operators
from operators.claims import (
    Action,
    Comparison,
    Decision,
    Finding,
    FindingType,
    Key,
    Policy,
    Relation,
    StateClaim,
    Winner,
)
from operators.errors import OperatorFailure, RevisionConflict
from operators.evidence import Evidence, EvidenceType
from operators.items import LiveItems
from operators.outcome import Outcome, OutcomeKind, empty, valid
from operators.status import Status
from pipeline.checker import Violation
from pipeline.decide import FailurePolicy
from pipeline.log import InMemoryLog
from pipeline.loop import UpdateLoop
from pipeline.reconciler import Resolution
from tests.support import (
    KINDS,
    PLACES,
    SCHEMA,
    ScriptedCompare,
    ScriptedExtract,
    ScriptedUpdate,
    claim,
    day,
    failures_of,
    key,
    note,
    open_loop,
    statuses,
    values_of,
)

NO_ANSWERS = [OutcomeKind.MALFORMED, OutcomeKind.TRUNCATED, OutcomeKind.UNAVAILABLE]


def decides(action: Action, target: str | None) -> ScriptedUpdate:
    """An update operator that adds to an empty key and otherwise gives this one answer."""

    def answer(items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:  # noqa: ARG001
        act, meets = (action, target) if len(items) else (Action.ADD, None)
        return valid(
            Decision(act, meets, Winner.INCOMING, Policy.CREDIBILITY, "scripted-update/1", "so told")
        )

    return ScriptedUpdate(answer)


def fails(kind: OutcomeKind, *, on: str) -> ScriptedUpdate:
    """An update operator that adds, but gives no answer on claims of the value `on`."""

    def answer(items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        if incoming.value == on or len(items):
            return Outcome(kind, None, "the reply lacks `action`")
        return valid(
            Decision(Action.ADD, None, Winner.INCOMING, Policy.SLOT_FIRST, "scripted-update/1", "first")
        )

    return ScriptedUpdate(answer)


@pytest.mark.parametrize("later", KINDS)
@pytest.mark.parametrize("earlier", KINDS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_contradiction_keeps_both_values_and_one_of_them_current(
    where: Key, values: Sequence[str], earlier: EvidenceType, later: EvidenceType
) -> None:
    """M01"""
    loop = open_loop()
    loop.ingest_claims([claim(where, values[0], at=1, kind=earlier)])
    loop.ingest_claims([claim(where, values[1], at=2, kind=later)])
    strength = [Evidence(type=kind, source="n").score for kind in (earlier, later)]
    assert values_of(loop.memory, where) == [values[0] if strength[0] > strength[1] else values[1]]
    assert [version.item.normal for version in loop.memory.versions(where)] == list(values[:2])


@pytest.mark.parametrize(("where", "values"), PLACES)
def test_saying_a_value_again_never_removes_it(where: Key, values: Sequence[str]) -> None:
    """M02"""
    loop = open_loop()
    said = claim(where, values[0], at=1, source="n1")
    loop.ingest_claims([said])
    loop.ingest_claims([said])
    loop.ingest_claims([said, said])
    (once,) = loop.memory.versions(where)
    assert (once.item.status, once.claims) == (Status.CONFIRMED, (said,))
    loop.ingest_claims([claim(where, values[0], at=1, source="n2")])
    (twice,) = loop.memory.versions(where)
    assert twice.item.support == 2
    assert {c.evidence.source for c in twice.claims} == {"n1", "n2"}


@pytest.mark.parametrize("text", ["The api port is 8080.", "Auth uses JWT.", "The shop database is mysql."])
def test_an_identical_text_from_a_second_source_is_more_evidence(text: str) -> None:
    """M02"""
    loop = open_loop()
    for source in ("n1", "n2"):
        loop.ingest(note(text, source=source))
    (where,) = loop.memory.known_keys()
    (item,) = loop.memory.current(where)
    assert item.support == 2


@pytest.mark.parametrize(
    "texts",
    list(
        permutations(["auth uses JWT", "queue is RabbitMQ", "the api port is 8080", "theme is now blue"], 3)
    ),
)
def test_unrelated_notes_leave_each_other_alone(texts: tuple[str, ...]) -> None:
    """M03"""
    loop = open_loop()
    for number, text in enumerate(texts, 1):
        report = loop.ingest(note(text, at=number))
        assert [decision.action for _, decision in report.decisions if decision] == [Action.ADD]
    assert [len(loop.memory.current(where)) for where in loop.memory.known_keys()] == [1, 1, 1]


@pytest.mark.parametrize("action", [Action.MERGE, Action.SUPERSEDE, Action.CONTEST])
@pytest.mark.parametrize("target", ["7", "", None])
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_target_outside_the_candidates_goes_to_the_rules_and_leaves_a_trace(
    where: Key, values: Sequence[str], target: str | None, action: Action
) -> None:
    """M04"""
    wild = open_loop(update=decides(action, target), policy=FailurePolicy.RULES)
    rules = open_loop()
    for loop in (wild, rules):
        loop.ingest_claims([claim(where, values[0], at=1)])
        loop.ingest_claims([claim(where, values[1], at=2)])
    assert wild.memory.state() == rules.memory.state()
    assert values_of(wild.memory, where) == [values[1]]
    (failure,) = failures_of(wild.memory)
    assert (failure.operator, failure.kind, failure.handled) == (
        "update-memory scripted-update/1", OutcomeKind.MALFORMED, "rules",
    )  # fmt: skip
    assert failure.subject == claim(where, values[1], at=2).claim_id


@pytest.mark.parametrize("action", [Action.MERGE, Action.SUPERSEDE, Action.CONTEST])
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_superseded_item_is_no_candidate(where: Key, values: Sequence[str], action: Action) -> None:
    """M04"""

    def answer(items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        if incoming.value != values[2]:
            return rules.update(items, incoming)
        return valid(
            Decision(action, old, Winner.INCOMING, Policy.CREDIBILITY, "scripted-update/1", "so told")
        )

    rules = build_operators(OperatorChoice(), SCHEMA).update
    told = [claim(where, value, at=at) for at, value in enumerate(values, 1)]
    loop = open_loop(update=ScriptedUpdate(answer), policy=FailurePolicy.RULES)
    loop.ingest_claims(told[:2])
    old = loop.memory.versions(where)[0].item.item_id
    loop.ingest_claims(told[2:])
    assert list(statuses(loop, where).values()) == [Status.SUPERSEDED, Status.SUPERSEDED, Status.CONFIRMED]
    (failure,) = failures_of(loop.memory)
    assert "not among the candidates" in failure.detail


@pytest.mark.parametrize("kind", NO_ANSWERS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_claim_no_operator_could_place_stays_proposed(
    where: Key, values: Sequence[str], kind: OutcomeKind
) -> None:
    """M05"""
    loop = open_loop(update=fails(kind, on=values[1]), policy=FailurePolicy.PROPOSE)
    loop.ingest_claims([claim(where, values[0], at=1)])
    ((_, decision),) = loop.ingest_claims([claim(where, values[1], at=2)])
    assert decision is None
    assert statuses(loop, where) == {values[0]: Status.CONFIRMED, values[1]: Status.PROPOSED}
    assert [failure.kind for failure in failures_of(loop.memory)] == [kind]


@pytest.mark.parametrize("kind", NO_ANSWERS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_without_a_fallback_a_missing_answer_is_a_typed_error_and_nothing_changes(
    where: Key, values: Sequence[str], kind: OutcomeKind
) -> None:
    """M05"""
    loop = open_loop(update=fails(kind, on=values[1]), policy=FailurePolicy.RAISE)
    loop.ingest_claims([claim(where, values[0], at=1)])
    state, revision = loop.memory.state(), loop.memory.log.revision
    with pytest.raises(OperatorFailure, match=kind.value):
        loop.ingest_claims([claim(where, values[1], at=2)])
    assert (loop.memory.state(), loop.memory.log.revision) == (state, revision)


@pytest.mark.parametrize("kind", NO_ANSWERS)
@pytest.mark.parametrize("policy", [FailurePolicy.RULES, FailurePolicy.PROPOSE])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_bad_reply_does_not_take_the_rest_of_the_write_with_it(
    bad: int, policy: FailurePolicy, kind: OutcomeKind
) -> None:
    """M06"""
    claims = [claim(key("api", "port"), "1"), claim(key("svc", "name"), "2"), claim(key("cfg", "url"), "3")]
    loop = open_loop(update=fails(kind, on=str(bad + 1)), policy=policy)
    results = loop.ingest_claims(claims)
    assert [placed for placed, _ in results] == claims
    settled = {c.value for c in claims if loop.memory.current(c.key)}
    expected = {"1", "2", "3"} if policy is FailurePolicy.RULES else {"1", "2", "3"} - {str(bad + 1)}
    assert settled == expected
    assert [f.subject for f in failures_of(loop.memory)] == [claims[bad].claim_id]


@pytest.mark.parametrize("kind", NO_ANSWERS)
@pytest.mark.parametrize("policy", [FailurePolicy.RULES, FailurePolicy.PROPOSE])
def test_a_note_survives_an_extractor_that_fails(policy: FailurePolicy, kind: OutcomeKind) -> None:
    """M06"""
    extract = ScriptedExtract([Outcome(kind, None, "the reply lacks `claims`")])
    loop = open_loop(extract=extract, policy=policy)
    report = loop.ingest(note("The api port is 8080."))
    assert values_of(loop.memory, key("api", "port")) == (["8080"] if policy is FailurePolicy.RULES else [])
    assert bool(report.reason) is (policy is FailurePolicy.PROPOSE)
    assert [kept.source_id for kept in loop.memory.notes.values()] == ["note-of-day-1"]
    assert [(f.operator, f.kind) for f in failures_of(loop.memory)] == [
        ("extract-state scripted-extract/1", kind)
    ]


@pytest.mark.parametrize("text", ["The api port is 8080.", "The app theme is blue.", "Auth uses JWT."])
@pytest.mark.parametrize("outcome", [empty([], "no pair chosen"), empty([], ""), valid([])])
def test_a_note_without_claims_is_kept_and_says_why(text: str, outcome: Outcome[list[StateClaim]]) -> None:
    """M08"""
    loop = open_loop(extract=ScriptedExtract([outcome]))
    said = note(text)
    report = loop.ingest(said)
    assert report.extracted == ()
    assert report.reason
    assert [record.entry for record in loop.memory.log] == [said]
    assert list(loop.memory.notes.values()) == [said]


@pytest.mark.parametrize(("where", "values"), PLACES)
def test_an_update_is_there_after_reopening(where: Key, values: Sequence[str]) -> None:
    """M09"""
    log = InMemoryLog()
    loop = open_loop(log=log)
    for at, value in enumerate(values, 1):
        loop.ingest_claims([claim(where, value, at=at)])
    again = open_loop(log=log)
    assert values_of(again.memory, where) == [values[-1]]
    assert again.memory.state() == loop.memory.state()


@pytest.mark.parametrize("scope", ["", " in prod", " in staging", " on trunk"])
@pytest.mark.parametrize(
    "wording",
    ["Correction: the api port is 9090{}.", "The api port changed from 8080 to 9090{}.",
     "The api port is now 9090{}."],
)  # fmt: skip
def test_a_correction_can_be_retrieved(wording: str, scope: str) -> None:
    """M10"""
    loop = open_loop()
    loop.ingest(note(f"The api port is 8080{scope}.", at=1))
    loop.ingest(note(wording.format(scope), at=2))
    (where,) = loop.memory.known_keys()
    assert values_of(loop.memory, where) == ["9090"]
    assert "9090" in MemoryReader(loop.memory).answer("What is the api port?")
    assert "8080" not in MemoryReader(loop.memory).answer("What is the api port?")


@pytest.mark.parametrize("relation", [Relation.CONTRADICTS, Relation.REFINES])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_contradiction_no_judge_settles_stays_contested_on_both_sides(
    where: Key, values: Sequence[str], kind: EvidenceType, relation: Relation
) -> None:
    """M11"""
    judge = ScriptedCompare(valid(Comparison(relation, Winner.UNDECIDED)))
    loop = open_loop(compare=judge)
    for at, value in enumerate(values, 1):
        loop.ingest_claims([claim(where, value, at=at, kind=kind)])
    assert judge.asked == 2
    assert statuses(loop, where) == dict.fromkeys(values, Status.CONTESTED)
    assert loop.memory.current(where) == []


class NoReconciler:
    """Settles nothing."""

    def reconcile(self, violation: Violation, findings: Sequence[Finding]) -> Resolution:  # noqa: ARG002
        return Resolution(violation, Policy.COORDINATION, (), "no")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("type_", "texts"),
    [
        (FindingType.DEPENDENCY, ["a -> b", "b -> a"]),
        (FindingType.DEPENDENCY, ["a -> b", "b -> c", "c -> a"]),
        (FindingType.CONSTRAINT, ["resource:gpu time:1-5", "resource:gpu time:2-3"]),
    ],
)
def test_findings_that_a_reconciler_leaves_open_are_all_kept(
    type_: FindingType, texts: list[str], kind: EvidenceType
) -> None:
    """M11"""
    loop = open_loop()
    loop.reconciler = NoReconciler()
    findings = [
        Finding(
            finding_id=f"f{n}", type=type_, text=text, timestamp=day(n),
            evidence=Evidence(type=kind if n else EvidenceType.CODE_CHANGE, source=f"n{n}"),
        )
        for n, text in enumerate(texts)
    ]  # fmt: skip
    board = loop.ingest_findings(findings)
    assert board.statuses == {f.finding_id: Status.CONTESTED for f in findings}
    assert board.needs_replanning
    assert set(loop.memory.findings) == set(board.statuses)


def _write(loop: UpdateLoop, how: str) -> None:
    if how == "note":
        loop.ingest(note("The api port is 1234.", at=9))
    elif how == "claim":
        loop.ingest_claims([claim(key("api", "port"), "1234", at=9)])
    else:
        evidence = Evidence(type=EvidenceType.HUMAN_NOTE, source="n")
        loop.ingest_findings(
            [Finding(finding_id="f", type=FindingType.FACT, text="x", evidence=evidence, timestamp=day(9))]
        )


@pytest.mark.parametrize("how", ["note", "claim", "finding"])
@pytest.mark.parametrize("moved", ["note", "claim", "finding"])
def test_a_writer_with_a_stale_view_is_refused_and_changes_nothing(moved: str, how: str) -> None:
    """M12"""
    log = InMemoryLog()
    stale, fresh = open_loop(log=log), open_loop(log=log)
    _write(fresh, moved)
    records, before = list(log), stale.memory.state_hash()
    with pytest.raises(RevisionConflict):
        _write(stale, how)
    assert list(log) == records
    assert stale.memory.state_hash() == before
    assert stale.memory.notes == {}
    again = open_loop(log=log)
    assert again.memory.state_hash() == fresh.memory.state_hash()
    _write(again, how)
