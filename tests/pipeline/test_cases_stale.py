"""Failures known from other memories, second part: values that return, stale values that are still served."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from pydantic import TypeAdapter, ValidationError

from eval.reader import MemoryReader
from operators.claims import Key, Note, StateClaim
from operators.evidence import EvidenceType
from operators.status import Status
from pipeline.log import InMemoryLog
from pipeline.render import render
from tests.support import (
    KINDS,
    PLACES,
    claim,
    current_section,
    day,
    key,
    note,
    open_loop,
    statuses,
    values_of,
)

ORDERS = list(permutations(range(3)))


def ask(where: Key) -> str:
    return f"What is the {where.entity} {where.slot}?"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_value_that_returns_is_a_new_item_and_current(
    where: Key, values: Sequence[str], kind: EvidenceType, order: Sequence[int]
) -> None:
    """M15"""
    there, back = values[:2]
    told = [claim(where, value, at=at, kind=kind) for at, value in enumerate([there, back, there], 1)]
    loop = open_loop()
    for position in order:
        loop.ingest_claims([told[position]])
    first, second, third = loop.memory.versions(where)
    assert [v.item.normal for v in (first, second, third)] == [there, back, there]
    assert [v.item.status for v in (first, second, third)] == [
        Status.SUPERSEDED, Status.SUPERSEDED, Status.CONFIRMED,
    ]  # fmt: skip
    assert (first.successor, second.successor) == (second.item.item_id, third.item.item_id)
    assert third.item.first_seen == day(3)


def test_an_update_is_applied_every_time() -> None:
    """M16"""
    where, applied = key("app", "theme"), []
    for run in range(20):
        loop = open_loop()
        loop.ingest(note("The app theme is blue.", at=1, source=f"a{run}"))
        loop.ingest(note("The app theme is red.", at=2, source=f"b{run}"))
        applied += values_of(loop.memory, where)
    assert applied == ["red"] * 20


@pytest.mark.parametrize(("where", "values"), PLACES)
def test_each_of_twenty_updates_of_one_key_is_seen_at_once(where: Key, values: Sequence[str]) -> None:
    """M16"""
    loop = open_loop()
    for turn in range(20):
        value = values[turn % len(values)]
        loop.ingest_claims([claim(where, value, at=turn + 1)])
        assert values_of(loop.memory, where) == [value]
    assert len(loop.memory.versions(where)) == 20


@pytest.mark.parametrize("days", [1 / 1440, 1, 90, 4000])
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_of_an_old_and_a_new_value_only_the_new_one_is_current(
    where: Key, values: Sequence[str], days: float
) -> None:
    """M17"""
    loop = open_loop()
    loop.ingest_claims([claim(where, values[0], at=1), claim(where, values[1], at=1 + days)])
    assert values_of(loop.memory, where) == [values[1]]


@pytest.mark.parametrize("old_and_new", [("yarn", "pnpm"), ("npm", "bun"), ("pnpm", "npm")])
@pytest.mark.parametrize(
    "wording",
    [
        "We dropped {old} as package manager and moved to {new}.",
        "The package manager is no longer {old}, now {new}.",
        "The package manager moved from {old} to {new}.",
        "Instead of {old} the package manager is {new} now.",
        "We replaced {old} with {new} as package manager.",
        "The package manager is {new}, not {old}.",
    ],
)
def test_no_longer_this_but_that_supersedes_this(wording: str, old_and_new: tuple[str, str]) -> None:
    """M18"""
    old, new = old_and_new
    loop = open_loop()
    loop.ingest(note(f"The package manager is {old}.", at=1))
    loop.ingest(note(wording.format(old=old, new=new), at=2))
    assert statuses(loop, key("package_manager", "tool")) == {old: Status.SUPERSEDED, new: Status.CONFIRMED}


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        (key("svc", "name"), "alpha-1", "alpha-2"),
        (key("cfg", "url"), "http://a.example/x", "http://a.example/y"),
        (key("api", "port"), "8080", "8081"),
        (key("api", "version"), "1.10", "1.1"),
        (key("app", "policy"), "retry three times", "retry four times"),
        (key("app", "darkmode"), "on", "off"),
    ],
)
def test_values_that_look_alike_are_still_two_values(where: Key, old: str, new: str) -> None:
    """M19"""
    loop = open_loop()
    loop.ingest_claims([claim(where, old, at=1)])
    loop.ingest_claims([claim(where, new, at=2)])
    assert statuses(loop, where) == {old: Status.SUPERSEDED, new: Status.CONFIRMED}


@pytest.mark.parametrize(
    ("place", "branch", "env"),
    [
        ("", "*", "*"),
        (" in prod", "*", "prod"),
        (" in staging on the trunk", "main", "staging"),
    ],
)
@pytest.mark.parametrize(
    "wording",
    [
        "The dark mode of the app is off{}.",
        "Dark mode was disabled{}.",
        "The app's dark mode was turned off{}.",
        "Dark mode is no longer enabled{}.",
        "Dark mode is not active{}.",
    ],
)
def test_that_something_stopped_closes_that_it_runs(wording: str, place: str, branch: str, env: str) -> None:
    """M21"""
    where = key("app", "darkmode", branch, env)
    loop = open_loop()
    loop.ingest_claims([claim(where, "on", at=1)])
    loop.ingest(note(wording.format(place), at=2))
    assert loop.memory.known_keys() == [where]
    assert statuses(loop, where) == {"on": Status.SUPERSEDED, "off": Status.CONFIRMED}


@pytest.mark.parametrize("new", ["Borealis", "Cumulus", "Zephyr-2"])
@pytest.mark.parametrize(
    "wording", ["Kim moved to {}.", "The project of Kim is {}.", "Kim's project is now {}."]
)
def test_a_single_valued_slot_has_one_value_after_a_change(wording: str, new: str) -> None:
    """M22"""
    loop = open_loop()
    loop.ingest_claims([claim(key("kim", "project"), "atlas", at=1)])
    loop.ingest(note(wording.format(new), at=2))
    assert statuses(loop, key("kim", "project")) == {
        "atlas": Status.SUPERSEDED,
        new.lower(): Status.CONFIRMED,
    }


@pytest.mark.parametrize("commit", [None, "abcdef0"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_values_of_equal_strength_and_date_are_contested_until_one_is_said_again(
    where: Key, values: Sequence[str], order: Sequence[int], kind: EvidenceType, commit: str | None
) -> None:
    """M23"""
    loop = open_loop()
    for count, position in enumerate(order, 1):
        loop.ingest_claims([claim(where, values[position], at=5, kind=kind, commit=commit)])
        assert len(loop.memory.current(where)) == (1 if count == 1 else 0)
    assert statuses(loop, where) == dict.fromkeys(values, Status.CONTESTED)
    loop.ingest_claims([claim(where, values[1], at=6, kind=kind, commit=commit)])
    assert values_of(loop.memory, where) == [values[1]]


@pytest.mark.parametrize("moment", [None, "", "2026-01-01", "2026-01-01T00:00:00"])
def test_a_claim_or_note_without_a_date_and_zone_is_refused(moment: str | None) -> None:
    """M23"""
    told = {"entity": "api", "slot": "port", "value": "8080", "timestamp": moment}
    evidence = {"type": "human-note", "source": "n"}
    with pytest.raises(ValidationError, match="timestamp"):
        TypeAdapter(StateClaim).validate_python(told | {"evidence": evidence})
    with pytest.raises(ValidationError, match="observed_at"):
        Note.model_validate(note("x").model_dump() | {"observed_at": moment})


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_superseded_values_are_hidden_unless_asked_for(
    where: Key, values: Sequence[str], order: Sequence[int]
) -> None:
    """M24"""
    loop = open_loop()
    told = [claim(where, value, at=at) for at, value in enumerate(values, 1)]
    loop.ingest_claims([told[position] for position in order])
    assert values_of(loop.memory, where) == [values[-1]]
    assert loop.memory.contested(where) == []
    assert [v.item.normal for v in loop.memory.versions(where)] == list(values)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_what_was_retracted_does_not_come_back_on_reindexing(
    where: Key, values: Sequence[str], order: Sequence[int]
) -> None:
    """M26"""
    log = InMemoryLog()
    told = [claim(where, values[0], at=1), claim(where, None, at=2)]
    loop = open_loop(log=log)
    for position in order:
        loop.ingest_claims([told[position]])
    rebuilt = open_loop(log=log)
    rebuilt.ingest_claims([told[0]])
    rebuilt.ingest_claims([claim(where, values[0], at=1.5, source="older copy")])
    assert rebuilt.memory.current(where) == []
    assert [item.normal for item in rebuilt.memory.confirmed(where)] == [None]
    assert values[0] not in MemoryReader(rebuilt.memory).answer(ask(where))
    assert told[1] in [record.entry for record in log]


@pytest.mark.parametrize("gone", ["lint", "format", "docs"])
def test_one_retracted_member_leaves_the_others(gone: str) -> None:
    """M26"""
    where, members = key("app", "plugins"), ["docs", "format", "lint"]
    log = InMemoryLog()
    loop = open_loop(log=log)
    loop.ingest_claims([claim(where, member, at=1) for member in members])
    loop.ingest_claims([claim(where, None, retires=gone, at=2)])
    rebuilt = open_loop(log=log)
    rebuilt.ingest_claims([claim(where, gone, at=1)])
    assert sorted(str(value) for value in values_of(rebuilt.memory, where)) == sorted({*members} - {gone})


@pytest.mark.parametrize("budget", [None, 2000, 300, 180, 120])
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_a_superseded_value_is_absent_on_every_path_to_the_present(
    where: Key, values: Sequence[str], budget: int | None
) -> None:
    """M27"""
    old, new = values[:2]
    loop = open_loop()
    loop.ingest_claims([claim(where, old, at=1)])
    loop.ingest_claims([claim(where, new, at=2)])
    answer, document = MemoryReader(loop.memory).answer(ask(where)), current_section(loop, budget=budget)
    assert values_of(loop.memory, where) == [new]
    assert new in answer
    assert old not in answer
    assert old not in document
    assert new in document or (budget or 2000) < 180


@pytest.mark.parametrize("copies", [2, 3, 10])
@pytest.mark.parametrize(("where", "values"), PLACES)
def test_duplicates_are_one_result(where: Key, values: Sequence[str], copies: int) -> None:
    """M28"""
    loop = open_loop()
    for number in range(copies):
        loop.ingest_claims([claim(where, values[0].title(), at=1 + number)])
    assert len(loop.memory.current(where)) == 1
    assert current_section(loop).count("\n- ") == 1
    assert len(MemoryReader(loop.memory).answer(ask(where)).splitlines()) == 1


@pytest.mark.parametrize("change", [2, 6, 300])
@pytest.mark.parametrize("old_and_new", [("sqlalchemy", "tortoise"), ("peewee", "sqlmodel")])
def test_after_a_migration_the_new_value_answers_and_the_old_one_is_history(
    old_and_new: tuple[str, str], change: int
) -> None:
    """M30"""
    old, new = old_and_new
    where = key("api", "orm")
    loop = open_loop()
    loop.ingest_claims([claim(where, old, at=1)])
    loop.ingest_claims([claim(where, new, at=change)])
    assert values_of(loop.memory, where) == [new]
    assert values_of(loop.memory.as_of(valid=day(change - 0.1)), where) == [old]
    assert values_of(loop.memory.as_of(valid=day(change)), where) == [new]
    assert f"- api.orm: {old} -> {new} (human-note, {day(change):%Y-%m-%d})" in render(loop.memory)
