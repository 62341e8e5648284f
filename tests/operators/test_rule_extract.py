"""The rule extractor reads sentence structure; it knows no repository. Every schema here is made up."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from operators.claims import Note, StateClaim
from operators.evidence import EvidenceType
from operators.normal import Form
from operators.outcome import OutcomeKind
from operators.rules.extract import RuleExtract
from operators.schema import Cardinality, Entity, Slot, SlotSchema

SCHEMA = SlotSchema(
    entities=(
        Entity(
            entity="billing",
            aliases=("billing service", "invoicer"),
            slots=(
                Slot(slot="port", form=Form.NUMBER),
                Slot(
                    slot="database",
                    aliases=("db", "store"),
                    form=Form.ENUM,
                    values={
                        "postgres": ("PostgreSQL", "Postgres"),
                        "mysql": ("MySQL",),
                        "sqlite": ("SQLite",),
                    },
                ),
                Slot(slot="retries", aliases=("retry", "retrying"), form=Form.FLAG),
            ),
        ),
        Entity(entity="parser", slots=(Slot(slot="version", form=Form.VERSION),)),
        Entity(
            entity="gateway",
            aliases=("edge proxy",),
            slots=(
                Slot(slot="plugins", aliases=("plugin",), form=Form.NAME, cardinality=Cardinality.MANY),
                Slot(slot="auth_mode", aliases=("auth", "authentication"), form=Form.TEXT),
            ),
        ),
    ),
    envs={"prod": ("production",), "staging": ()},
)


def note(text: str, evidence: EvidenceType = EvidenceType.HUMAN_NOTE, commit: str | None = None) -> Note:
    return Note(
        source_id="n1",
        text=text,
        observed_at=datetime(2026, 1, 1, tzinfo=UTC),
        evidence_type=evidence,
        git_commit=commit,
    )


def claims(text: str) -> list[StateClaim]:
    return RuleExtract().extract(note(text), SCHEMA).value or []


def read(text: str) -> list[tuple[str, str | None]]:
    return [(f"{c.entity}.{c.slot}", SCHEMA.normal(c)) for c in claims(text)]


@pytest.mark.parametrize(
    ("text", "slot", "value"),
    [
        ("The billing port moved from 8080 to 9090.", "billing.port", "9090"),
        ("billing: port is now 7001", "billing.port", "7001"),
        ("We bumped the parser version from 1.4.2 to v2.0.0 yesterday.", "parser.version", "2.0.0"),
        ("billing: port is now -5", "billing.port", "-5"),
        ("The billing port is 220 C, no kidding", "billing.port", "220 c"),
        ("The billing port is 30min", "billing.port", "30 min"),
        ("Billing no longer writes to MySQL, its database is now SQLite", "billing.database", "sqlite"),
        ("Parser now requires 3.1", "parser.version", "3.1"),
        ("The invoicer now uses PostgreSQL instead of MySQL as its database.", "billing.database", "postgres"),
        ("Billing store: MySQL replaced by SQLite", "billing.database", "sqlite"),
        ("Retries in the billing service are off by default.", "billing.retries", "off"),
        ("Retrying is no longer enabled for billing.", "billing.retries", "off"),
        ("Turned billing retries on again after the incident.", "billing.retries", "on"),
        ("Reverts the experiment; billing goes back to MySQL for its database.", "billing.database", "mysql"),
        ("The edge proxy's auth mode is now mutual TLS with short certificates.", "gateway.auth_mode",
         "mutual tls with short certificates"),
    ],
)  # fmt: skip
def test_a_stated_value_is_read(text: str, slot: str, value: str) -> None:
    assert (slot, value) in read(text)


@pytest.mark.parametrize(
    "text",
    [
        "Should the billing port be 9090?",
        "Maybe the billing database could become SQLite.",
        "I think billing retries might be enabled.",
        "We plan to move the parser version to 4.0.",
        "The billing port is no longer 8080.",
        "Don't use SQLite as the billing database.",
        "We decided against moving the billing database to MySQL.",
        "The migration of the billing database to MySQL was cancelled.",
        "Billing failed to switch its database to MySQL.",
        "We will switch the billing database to MySQL next quarter.",
        'Revert "Switch the billing database to MySQL"',
        "Standup ran long; the coffee machine is broken again.",
        "The billing team met about the port.",
    ],
)
def test_guesses_questions_plans_and_chatter_claim_nothing(text: str) -> None:
    outcome = RuleExtract().extract(note(text), SCHEMA)
    assert outcome.kind is OutcomeKind.EMPTY
    assert outcome.value == []
    assert outcome.detail


def test_a_removal_is_a_claim_of_null() -> None:
    assert read("The billing database was ripped out.") == [("billing.database", None)]


def test_in_a_slot_of_many_the_removed_member_is_named() -> None:
    found = claims("Dropped the `rate-limit` plugin from the gateway.")
    assert [(c.value, c.retires) for c in found] == [(None, "rate-limit")]


def test_a_scope_is_taken_only_when_the_sentence_names_it() -> None:
    (scoped,) = claims("In staging the billing port is now 7002.")
    (plain,) = claims("The billing port is now 7002.")
    (branch,) = claims("On the `exp/fast` branch the billing port is now 7003.")
    assert (scoped.branch, scoped.env) == ("*", "staging")
    assert (plain.branch, plain.env) == ("*", "*")
    assert (branch.branch, branch.env) == ("exp/fast", "*")


def test_the_topic_carries_over_to_the_next_sentence() -> None:
    assert read("Work on the billing service today. The port is now 8181.") == [("billing.port", "8181")]


def test_wording_that_calls_its_source_old_lowers_the_evidence() -> None:
    (old,) = claims("According to the wiki the billing port is 8080.")
    (fresh,) = claims("The billing port is 8080.")
    assert old.evidence.type is EvidenceType.STALE_OBSERVATION
    assert fresh.evidence.type is EvidenceType.HUMAN_NOTE


def test_a_commit_is_never_called_stale() -> None:
    text = "The billing port is now 9090; the old docs still say 8080."
    commit = note(text, EvidenceType.CODE_CHANGE, "abcdef0123456")
    found = RuleExtract().extract(commit, SCHEMA).value or []
    assert {c.evidence.type for c in found} == {EvidenceType.CODE_CHANGE}


def test_aliases_are_found_with_spaces_hyphens_and_underscores() -> None:
    for name in ("edge proxy", "edge-proxy", "edge_proxy", "Edge Proxy"):
        assert read(f"The {name} authentication is now basic tokens.") == [
            ("gateway.auth_mode", "basic tokens")
        ]


def test_one_note_may_state_several_things() -> None:
    found = read("- billing port: 9000\n- parser version bumped to 2.2.0\n- lunch is at noon")
    assert found == [("billing.port", "9000"), ("parser.version", "2.2.0")]
