"""The laws of the fold (DESIGN.md): what holds for every set of claims, whatever the order they come in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.assembly import OperatorChoice
from operators.claims import Key, StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.normal import Form
from operators.schema import Cardinality, Entity, Slot, SlotSchema
from operators.status import LEGAL_MOVES, Status
from pipeline.decide import FailurePolicy
from pipeline.loop import UpdateLoop, open_loop
from pipeline.memory import Memory

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = SlotSchema(
    entities=(
        Entity(
            entity="svc",
            slots=(
                Slot(slot="mode", form=Form.NAME),
                Slot(slot="about", form=Form.TEXT),
                Slot(slot="ports", form=Form.NUMBER, cardinality=Cardinality.MANY),
            ),
        ),
    )
)
WORDS = ["alpha", "beta", "the alpha", "fast path", "the fast path is used", "8080", "9090"]


@st.composite
def claims(draw: st.DrawFn) -> StateClaim:
    """A claim on one of three slots in one of three scopes; days and values collide often."""
    slot = draw(st.sampled_from(["mode", "about", "ports"]))
    value = draw(st.one_of(st.none(), st.sampled_from(WORDS)))
    retires = (
        draw(st.one_of(st.none(), st.sampled_from(WORDS))) if slot == "ports" and value is None else None
    )
    branch, env = draw(st.sampled_from([("*", "*"), ("main", "prod"), ("dev", "*")]))
    return StateClaim(
        entity="svc",
        slot=slot,
        value=value,
        retires=retires,
        branch=branch,
        env=env,
        evidence=Evidence(
            type=draw(st.sampled_from(EvidenceType)),
            source=draw(st.sampled_from(["n1", "n2", "n3"])),
            commit=draw(st.one_of(st.none(), st.just("abcdef0"))),
        ),
        timestamp=START + timedelta(days=draw(st.integers(0, 3))),
    )


CLAIM_LISTS = st.lists(claims(), max_size=14)


def opened() -> UpdateLoop:
    return open_loop(SCHEMA, OperatorChoice(), policy=FailurePolicy.RAISE)


def fed(found: list[StateClaim]) -> Memory:
    loop = opened()
    for claim in found:
        loop.ingest_claims([claim])
    return loop.memory


@given(st.data(), CLAIM_LISTS)
def test_order_of_arrival_does_not_matter(data: st.DataObject, found: list[StateClaim]) -> None:
    shuffled = data.draw(st.permutations(found))
    assert fed(found).state() == fed(shuffled).state()


@given(CLAIM_LISTS)
def test_repetition_does_not_matter(found: list[StateClaim]) -> None:
    assert fed(found).state() == fed(found + found).state()


@given(CLAIM_LISTS, st.integers(1, 5))
def test_a_batch_equals_one_by_one(found: list[StateClaim], size: int) -> None:
    loop = opened()
    for start in range(0, len(found), size):
        loop.ingest_claims(found[start : start + size])
    assert loop.memory.state() == fed(found).state()


@given(CLAIM_LISTS, CLAIM_LISTS)
def test_two_memories_that_exchange_logs_agree(left: list[StateClaim], right: list[StateClaim]) -> None:
    one, two = fed(left), fed(right)
    records = list(one.log)
    one.absorb(two.log)
    two.absorb(records)
    assert one.state_hash() == two.state_hash() == fed(left + right).state_hash()


@given(CLAIM_LISTS)
def test_the_projection_rebuilt_from_the_log_equals_the_one_kept(found: list[StateClaim]) -> None:
    memory = fed(found)
    assert Memory(SCHEMA, memory.decider, log=memory.log).state() == memory.state()


@given(CLAIM_LISTS)
def test_nothing_is_ever_deleted(found: list[StateClaim]) -> None:
    memory = fed(found)
    kept = {c.claim_id for key in memory.known_keys() for v in memory.versions(key) for c in v.claims}
    blanket = {c.claim_id for c in found if c.slot == "ports" and c.value is None and c.retires is None}
    assert {c.claim_id for c in found} - blanket <= kept
    logged = {record.entry.claim_id for record in memory.log if isinstance(record.entry, StateClaim)}
    assert logged == {c.claim_id for c in found}


@given(CLAIM_LISTS)
def test_at_most_one_item_of_a_key_or_member_is_confirmed(found: list[StateClaim]) -> None:
    memory = fed(found)
    for key in memory.known_keys():
        confirmed = memory.confirmed(key)
        if key.slot != "ports":
            assert len(confirmed) <= 1
        values = [item.normal for item in confirmed if item.normal is not None]
        assert len(values) == len(set(values))


@given(CLAIM_LISTS, claims())
def test_claims_of_other_keys_never_touch_a_key(found: list[StateClaim], late: StateClaim) -> None:
    before, after = fed(found).state(), fed([*found, late]).state()
    assert {k: v for k, v in before.items() if k != str(late.key)} == {
        k: v for k, v in after.items() if k != str(late.key)
    }


@given(CLAIM_LISTS, claims())
def test_a_late_backfill_cannot_beat_a_newer_fact_of_equal_strength(
    found: list[StateClaim], late: StateClaim
) -> None:
    memory = fed(found)
    current = {item.claim.claim_id: item for item in memory.current(late.key)}
    older = replace(late, timestamp=START - timedelta(days=9))
    again = fed([*found, older])
    for item in current.values():
        if late.slot != "ports" and older.evidence.score <= item.claim.evidence.score:
            kept = again.current(late.key)
            assert [k.normal for k in kept] == [item.normal]


@given(CLAIM_LISTS)
def test_what_is_current_is_as_strong_as_anything_later(found: list[StateClaim]) -> None:
    """No claim that is both stronger and at least as new as the current one loses to it."""
    memory = fed(found)
    for key in memory.known_keys():
        if key.slot == "ports":
            continue
        for item in memory.confirmed(key):
            rivals = [c for c in found if c.key == key and SCHEMA.normal(c) != item.normal]
            assert not [c for c in rivals if c.evidence.score > item.claim.evidence.score and c.rank > item.claim.rank
                        and c.timestamp >= item.claim.timestamp]  # fmt: skip


@given(CLAIM_LISTS)
def test_every_superseded_item_names_a_successor_of_its_key(found: list[StateClaim]) -> None:
    memory = fed(found)
    for key in memory.known_keys():
        versions = memory.versions(key)
        ids = {v.item.item_id for v in versions}
        for version in versions:
            assert (version.item.status is Status.SUPERSEDED) == (version.successor in ids)
            assert version.item.support == len(version.claims) >= 1


@given(CLAIM_LISTS, st.integers(-1, 4))
def test_as_of_a_day_equals_a_memory_that_stopped_then(found: list[StateClaim], day: int) -> None:
    moment = START + timedelta(days=day)
    stopped = fed([claim for claim in found if claim.timestamp <= moment])
    assert fed(found).as_of(valid=moment).state() == stopped.state()


@settings(max_examples=30)
@given(CLAIM_LISTS)
def test_known_time_is_a_second_clock(found: list[StateClaim]) -> None:
    ticks = iter(range(10_000))
    loop = opened()
    memory = Memory(SCHEMA, loop.memory.decider, clock=lambda: START + timedelta(hours=next(ticks)))
    for claim in found:
        memory.write([claim])
    middle = len(found) // 2
    then = memory.as_of(known=START + timedelta(hours=middle - 1)).state() if middle else {}
    assert then == fed(found[:middle]).state()


def test_superseded_is_terminal() -> None:
    assert LEGAL_MOVES[Status.SUPERSEDED] == frozenset()


def test_a_tie_is_contested_until_something_breaks_it() -> None:
    key = Key("svc", "mode")

    def said(value: str, source: str, day: int) -> StateClaim:
        evidence = Evidence(type=EvidenceType.HUMAN_NOTE, source=source)
        return StateClaim(
            entity="svc", slot="mode", value=value, evidence=evidence, timestamp=START + timedelta(days=day)
        )

    tie = [said("alpha", "n1", 0), said("beta", "n2", 0)]
    assert fed(tie).current(key) == []
    assert {item.normal for item in fed(tie).contested(key)} == {"alpha", "beta"}
    broken = fed([*tie, said("beta", "n3", 1)])
    assert [item.normal for item in broken.current(key)] == ["beta"]
    assert [v.item.status for v in broken.versions(key)].count(Status.SUPERSEDED) == 1


def test_an_emptied_slot_is_empty_for_members_seen_later_too() -> None:
    """Whether a member was known when the slot was emptied makes no difference to a weaker voice after it."""

    def port(value: str | None, day: int, kind: str, commit: str | None = None) -> StateClaim:
        evidence = Evidence(EvidenceType(kind), f"n{day}", commit)
        return StateClaim("svc", "ports", value, evidence, START + timedelta(days=day))

    emptied = port(None, 2, "code-change", "abcdef0")
    later = port("8080", 3, "human-note")
    for before in ([], [port("8080", 1, "human-note")]):
        memory = fed([*before, emptied, later])
        assert memory.current(Key("svc", "ports")) == []
        assert [item.claim.value for item in memory.contested(Key("svc", "ports"))] == ["8080"]
