"""The rendered memory: what is current where, what is contested, what changed when, within a budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_builders.trajectory import load_trajectories
from operators.assembly import OperatorChoice
from operators.claims import StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.normal import Form
from operators.schema import Entity, Slot, SlotSchema
from pipeline.decide import FailurePolicy
from pipeline.loop import UpdateLoop, open_loop
from pipeline.memory import Memory
from pipeline.render import is_rendered, render

FOLDER = Path(__file__).parents[2] / "configs" / "trajectories"
DAY = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = SlotSchema(
    entities=(
        Entity(
            entity="api", slots=(Slot(slot="limit", form=Form.NUMBER), Slot(slot="store", form=Form.NAME))
        ),
    )
)


def opened() -> UpdateLoop:
    return open_loop(SCHEMA, OperatorChoice(), policy=FailurePolicy.RAISE)


def said(slot: str, value: str | None, day: int, commit: str | None = None, env: str = "*") -> StateClaim:
    kind = EvidenceType.CODE_CHANGE if commit else EvidenceType.HUMAN_NOTE
    return StateClaim(
        "api", slot, value, Evidence(kind, f"n{day}", commit), DAY + timedelta(days=day), env=env
    )


@pytest.fixture(scope="module")
def full() -> Memory:
    trajectory = load_trajectories(FOLDER)[0]
    loop = open_loop(trajectory.slot_schema, OperatorChoice(), policy=FailurePolicy.RAISE)
    for session in trajectory.sessions:
        loop.ingest_claims([session.state_claim(gold, trajectory.name) for gold in session.claims])
    return loop.memory


def test_current_contested_and_transitions_with_commits() -> None:
    loop = opened()
    loop.ingest_claims(
        [
            said("limit", "5", 0, "aaaaaaaaaaaaaaaa"),
            said("limit", "8", 1, "bbbbbbbbbbbbbbbb"),
            said("limit", "5", 2),
            said("limit", "6", 3, env="prod"),
        ]
    )
    assert render(loop.memory) == (
        "# LatticeMind memory\n"
        "## Current state\n"
        "### everywhere\n"
        "- api.limit: 8 (code-change, 2026-01-02, bbbbbbbbbbbb)\n"
        "### env prod\n"
        "- api.limit: 6 (human-note, 2026-01-04)\n"
        "## Contested\n"
        "- api.limit: 5 (human-note, 2026-01-03; weaker evidence (12 against 100))\n"
        "## Transitions\n"
        "- api.limit: first 5 (code-change, 2026-01-01, aaaaaaaaaaaa)\n"
        "- api.limit: 5 -> 8 (code-change, 2026-01-02, bbbbbbbbbbbb)\n"
        "- api.limit@*/prod: first 6 (human-note, 2026-01-04)\n"
    )


def test_a_removed_thing_is_shown_as_removed_with_its_commit() -> None:
    loop = opened()
    loop.ingest_claims(
        [said("store", "redis", 0, "aaaaaaaaaaaaaaaa"), said("store", None, 1, "bbbbbbbbbbbbbbbb")]
    )
    assert "- api.store: (removed) (code-change, 2026-01-02, bbbbbbbbbbbb)" in render(loop.memory)
    assert "redis -> (removed)" in render(loop.memory)


def test_an_empty_memory_says_so() -> None:
    assert "Nothing is known yet" in render(opened().memory)


@settings(max_examples=25, deadline=None)
@given(budget=st.integers(60, 6000))
def test_a_budget_is_kept_and_what_is_left_out_is_counted(full: Memory, budget: int) -> None:
    whole, text = render(full), render(full, budget=budget)
    assert len(text) <= budget
    if budget < len(whole) and len(text) > 40:
        assert "more line" in text or "; " in text


def test_an_entity_with_many_slots_is_not_hidden_for_its_size() -> None:
    slots = tuple(Slot(slot=f"slot_{n}", form=Form.NAME) for n in range(60))
    loop = open_loop(SlotSchema(entities=(Entity(entity="big", slots=slots),)), OperatorChoice())
    for n in range(60):
        evidence = Evidence(EvidenceType.HUMAN_NOTE, f"n{n}")
        loop.ingest_claims([StateClaim("big", f"slot_{n}", "a-value-of-some-length", evidence, DAY)])
    text = render(loop.memory, budget=3000)
    assert 2000 < len(text) <= 3000
    shown = text.split("## Transitions")[0].count("a-value-of-some-length")
    assert shown >= 30
    assert f"... {120 - text.count('a-value-of-some-length')} more lines" in text


def test_under_pressure_the_current_state_stays_and_transitions_go_first(full: Memory) -> None:
    text = render(full, budget=2500)
    assert "## Current state" in text
    whole = render(full)
    assert text.count(" -> ") < whole.count(" -> ")


def test_a_rendered_memory_fed_back_as_a_note_adds_no_evidence() -> None:
    loop = opened()
    loop.ingest_claims([said("limit", "5", 0, "aaaaaaaaaaaaaaaa"), said("limit", "9", 1)])
    before = loop.memory.state()
    document = render(loop.memory)
    assert all(is_rendered(line) for line in document.splitlines())
    from operators.claims import Note

    note = Note(
        source_id="echo", text=document, observed_at=DAY + timedelta(days=5),
        evidence_type=EvidenceType.CODE_CHANGE, git_commit="c" * 40,
    )  # fmt: skip
    report = loop.ingest(note)
    assert loop.memory.state() == before
    assert report.reason == "the note is this memory's own output"


def test_a_rendered_line_is_recognised_scoped_quoted_and_with_line_breaks_in_its_value() -> None:
    loop = opened()
    odd = said("store", "redis\nthe api limit is now 77", 1, env="prod")
    loop.ingest_claims([odd, said("limit", "9", 1, env="prod")])
    document = render(loop.memory)
    assert all(is_rendered(line) for line in document.splitlines())
    assert all(is_rendered(f"> {line}") for line in document.splitlines())


def test_ordinary_notes_are_not_taken_for_rendered_lines() -> None:
    for line in (
        "- api.limit: it is now 9 (hotfix, see the ticket)",
        "### The limit is 5",
        "- the api limit is now 5",
        "* api: limit is 5",
        "## Notes",
        "We moved (finally) to redis.",
    ):
        assert not is_rendered(line)
