"""Learned operators: what a model may say becomes claims and decisions; what it may not is malformed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from operators.claims import Action, MemoryItem, Note, Relation, StateClaim, Winner
from operators.evidence import Evidence, EvidenceType
from operators.items import LiveItems
from operators.learned.answers import FillSpace, direct_schema
from operators.learned.extract import DirectExtract, TwoStageExtract
from operators.learned.judge import LearnedCompare, LearnedUpdate
from operators.models.few_shot import FewShot
from operators.models.text import ChoiceRequest, TextRequest
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import Message, direct_messages, fill_completion, fill_messages, select_messages
from operators.schema import Cardinality, Entity, Slot, SlotSchema
from operators.status import Status

DAY = datetime(2026, 3, 1, tzinfo=UTC)
T = TypeVar("T")
SCHEMA = SlotSchema(
    entities=(
        Entity(
            entity="api",
            slots=(
                Slot(slot="port", form="number", about="where it listens"),
                Slot(slot="mode", form="enum", values={"fast": (), "safe": ("careful",)}),
                Slot(slot="plugins", form="name", cardinality=Cardinality.MANY),
            ),
        ),
    ),
    envs={"prod": ("production",), "dev": ()},
)
NOTE = Note(
    source_id="n", observed_at=DAY, evidence_type=EvidenceType.HUMAN_NOTE,
    text="In production the api listens on 8080 now, in careful mode. The zip plugin is gone.",
)  # fmt: skip


@dataclass
class Answers:
    """A model with fixed answers: probabilities of yes by pair, and texts by what the prompt holds."""

    stated: dict[str, float] = field(default_factory=dict)
    texts: dict[str, Outcome[str]] = field(default_factory=dict)
    choosing: Outcome[tuple[float, ...]] | None = None
    identity: str = "answers"
    prompts: list[tuple[Message, ...]] = field(default_factory=list)

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        self.prompts += [request.messages for request in requests]
        found = [self._find(request.messages, self.texts) for request in requests]
        return [answer or Outcome(OutcomeKind.UNAVAILABLE, None, "no answer is scripted") for answer in found]

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        self.prompts += [request.messages for request in requests]
        if self.choosing is not None:
            return [self.choosing] * len(requests)
        found = [self._find(request.messages, self.stated) or 0.0 for request in requests]
        return [valid((yes, 1 - yes)) for yes in found]

    @staticmethod
    def _find(messages: Sequence[Message], known: Mapping[str, T]) -> T | None:
        return next((answer for part, answer in known.items() if part in messages[-1]["content"]), None)


def claims(*entries: Mapping[str, object]) -> Outcome[str]:
    return valid(json.dumps({"claims": list(entries)}))


def port(**changes: object) -> dict[str, object]:
    quote = "In production the api listens on 8080 now"
    return {"quote": quote, "value": "8080", "env": "prod", **changes}


def two_stage(answer: Outcome[str]) -> Outcome[list[StateClaim]]:
    model = Answers({"Pair: api.port": 0.9}, {"Pair: api.port": answer})
    return TwoStageExtract(model).extract(NOTE, SCHEMA)


def test_pairs_over_the_threshold_are_filled_with_value_scope_and_the_notes_evidence() -> None:
    outcome = two_stage(claims(port()))
    assert outcome.kind is OutcomeKind.VALID
    assert outcome.value == [
        StateClaim("api", "port", "8080", NOTE.evidence, DAY, env="prod"),
    ]


@pytest.mark.parametrize(("threshold", "expected"), [(0.2, ["port", "mode"]), (0.5, ["port"]), (0.95, [])])
def test_the_threshold_decides_which_pairs_are_kept(threshold: float, expected: list[str]) -> None:
    model = Answers({"Pair: api.port": 0.9, "Pair: api.mode": 0.3})
    [chosen] = TwoStageExtract(model, threshold=threshold).select([(NOTE, SCHEMA)])
    assert chosen.value is not None
    assert [slot.slot for _, slot in chosen.value] == expected


@pytest.mark.parametrize(
    "entry",
    [
        port(quote="the api listens on 8081"), port(value="8081"), port(env="staging"), port(value=8080),
        port(retires="8080"), {"value": "8080", "env": "prod"}, {"quote": port()["quote"], "value": "8080"},
    ],
)  # fmt: skip
def test_what_the_note_does_not_hold_is_malformed_even_if_a_server_lets_it_through(
    entry: dict[str, object],
) -> None:
    assert two_stage(claims(entry)).kind is OutcomeKind.MALFORMED


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"claims": []}', '{"claims": [3]}', "null", '{"claims": [{']
)
def test_an_answer_of_another_form_is_malformed(text: str) -> None:
    assert two_stage(valid(text)).kind is OutcomeKind.MALFORMED


@pytest.mark.parametrize("kind", [OutcomeKind.TRUNCATED, OutcomeKind.UNAVAILABLE, OutcomeKind.MALFORMED])
def test_a_failed_call_of_either_stage_is_the_notes_outcome(kind: OutcomeKind) -> None:
    assert two_stage(Outcome(kind, None, "why")).kind is kind
    first = Answers(choosing=Outcome(kind, None, "why"))
    outcome = TwoStageExtract(first).extract(NOTE, SCHEMA)
    assert (outcome.kind, outcome.value, outcome.detail) == (kind, None, "why")


def test_a_note_that_states_nothing_or_is_blank_is_empty_and_a_blank_one_is_not_asked_about() -> None:
    model = Answers()
    assert TwoStageExtract(model).extract(NOTE, SCHEMA).kind is OutcomeKind.EMPTY
    asked = len(model.prompts)
    blank = NOTE.model_copy(update={"text": " \n"})
    assert TwoStageExtract(model).extract(blank, SCHEMA).kind is OutcomeKind.EMPTY
    assert DirectExtract(model).extract(blank, SCHEMA).kind is OutcomeKind.EMPTY
    assert len(model.prompts) == asked


def test_a_member_that_goes_is_retired_by_name() -> None:
    entry = {"quote": "The zip plugin is gone", "value": None, "retires": "zip", "env": "*"}
    model = Answers({"Pair: api.plugins": 1.0}, {"Pair: api.plugins": claims(entry)})
    outcome = TwoStageExtract(model).extract(NOTE, SCHEMA)
    assert outcome.value is not None
    assert (outcome.value[0].value, outcome.value[0].retires) == (None, "zip")


def test_a_quote_that_calls_itself_old_is_stale_evidence() -> None:
    note = NOTE.model_copy(update={"text": "According to an old wiki page the api listens on 8080."})
    quote = "According to an old wiki page the api listens on 8080"
    model = Answers({"Pair: api.port": 1.0}, {"Pair: api.port": claims({"quote": quote, "value": "8080"})})
    outcome = TwoStageExtract(model).extract(note, SCHEMA)
    assert outcome.value is not None
    assert outcome.value[0].evidence.type is EvidenceType.STALE_OBSERVATION


def test_direct_takes_every_claim_from_one_answer() -> None:
    answer = claims(
        {"pair": "api.port", "value": "8080", "env": "prod"},
        {"pair": "api.mode", "value": "safe", "env": "*"},
    )
    outcome = DirectExtract(Answers(texts={"Pairs:": answer})).extract(NOTE, SCHEMA)
    assert outcome.value is not None
    assert [(c.slot, c.value, c.env) for c in outcome.value] == [
        ("port", "8080", "prod"),
        ("mode", "safe", "*"),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"pair": "api.colour", "value": "red"}, {"pair": "api.port", "value": "9999"}, {"value": "8080"},
        {"pair": "api.mode", "value": "slow"}, {"pair": "api.plugins", "value": "zip", "retires": "zip"},
    ],
)  # fmt: skip
def test_a_direct_answer_with_a_foreign_pair_or_value_is_malformed(entry: dict[str, object]) -> None:
    outcome = DirectExtract(Answers(texts={"Pairs:": claims(entry)})).extract(NOTE, SCHEMA)
    assert outcome.kind is OutcomeKind.MALFORMED


def test_an_empty_direct_answer_is_a_considered_nothing() -> None:
    assert DirectExtract(Answers(texts={"Pairs:": claims()})).extract(NOTE, SCHEMA).kind is OutcomeKind.EMPTY


def test_the_gold_answer_of_a_row_is_one_that_its_schema_allows() -> None:
    claim = StateClaim("api", "mode", "careful", NOTE.evidence, DAY, env="prod")
    entries = json.loads(fill_completion(NOTE, SCHEMA, [claim]))["claims"]
    space = FillSpace.of(NOTE, SCHEMA, SCHEMA.slot("api", "mode"))
    assert entries == [{"quote": "in careful mode", "value": "safe", "env": "prod"}]
    assert all(space.holds(entry) for entry in entries)


def test_schemas_are_flat_objects_that_forbid_other_keys() -> None:
    space = FillSpace.of(NOTE, SCHEMA, SCHEMA.slot("api", "plugins"))
    for schema in (space.schema(), direct_schema(NOTE, SCHEMA)):
        text = json.dumps(schema)
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert not any(word in text for word in ("oneOf", "pattern", "uniqueItems", "$ref"))


def claim(value: str | None, *, day: int = 0, kind: EvidenceType = EvidenceType.HUMAN_NOTE) -> StateClaim:
    return StateClaim("api", "port", value, Evidence(type=kind, source="s"), DAY + timedelta(days=day))


@pytest.mark.parametrize(
    ("relation", "incumbent", "incoming", "winner"),
    [
        ("same", claim("8080"), claim("8080", day=1), Winner.BOTH),
        ("contradicts", claim("8080"), claim("9090", day=1), Winner.INCOMING),
        ("contradicts", claim("8080", kind=EvidenceType.CODE_CHANGE), claim("9090", day=1), Winner.INCUMBENT),
        ("refines", claim("8080"), claim("8080 on ipv6", day=1), Winner.INCOMING),
        ("contradicts", claim("8080"), claim("9090"), Winner.UNDECIDED),
    ],
)
def test_the_model_says_how_values_relate_and_code_who_wins(
    relation: str, incumbent: StateClaim, incoming: StateClaim, winner: Winner
) -> None:
    model = Answers(texts={"Incumbent:": valid(json.dumps({"relation": relation}))})
    outcome = LearnedCompare(SCHEMA, model).compare(incumbent, incoming)
    assert outcome.value is not None
    assert (outcome.value.relation, outcome.value.winner) == (Relation(relation), winner)
    assert "newer" not in json.dumps(model.prompts)


def held(value: str) -> MemoryItem:
    stated = claim(value)
    return MemoryItem("item-1", stated, value, Status.CONFIRMED, 1, stated.timestamp, "")


def update(answer: dict[str, object], *values: str) -> Outcome[object]:
    items = LiveItems()
    for value in values:
        items.put(held(value), holds=True)
    model = Answers(texts={"Items:": valid(json.dumps(answer))})
    return LearnedUpdate(SCHEMA, model).update(items, claim("9090", day=1))  # type: ignore[return-value]


def test_an_action_names_the_item_it_meets() -> None:
    items = LiveItems()
    items.put(held("8080"), holds=True)
    model = Answers(texts={"Items:": valid('{"action": "supersede", "target": "m0"}')})
    decision = LearnedUpdate(SCHEMA, model).update(items, claim("9090", day=1)).value
    assert decision is not None
    assert (decision.action, decision.target, decision.winner) == (
        Action.SUPERSEDE,
        "item-1",
        Winner.INCOMING,
    )
    assert "different value, incoming ranks higher" in model.prompts[0][1]["content"]


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ({"action": "supersede", "target": "m7"}, ["8080"]), ({"action": "supersede", "target": None}, ["8080"]),
        ({"action": "add", "target": "m0"}, ["8080"]), ({"action": "add", "target": "m7"}, []),
        ({"action": "merge", "target": "m0"}, []), ({"action": "drop", "target": "m0"}, ["8080"]),
        ({"target": "m0"}, ["8080"]), ({"action": "contest", "target": 0}, ["8080"]),
    ],
)  # fmt: skip
def test_an_unknown_action_or_an_item_that_is_not_there_is_malformed(
    answer: dict[str, object], values: list[str]
) -> None:
    assert update(answer, *values).kind is OutcomeKind.MALFORMED


def test_solved_examples_stand_between_the_system_message_and_the_question() -> None:
    shot: tuple[Message, ...] = ({"role": "user", "content": "q"}, {"role": "assistant", "content": "no"})
    model = Answers({"Pair: api.port": 0.9}, {"Pair: api.port": claims(port())})
    TwoStageExtract(FewShot(model, choosing=shot)).extract(NOTE, SCHEMA)
    assert [message["role"] for message in model.prompts[0]] == ["system", "user", "assistant", "user"]
    assert [message["role"] for message in model.prompts[-1]] == ["system", "user"]


def test_a_batch_answers_each_note_as_one_by_one() -> None:
    model = Answers({"Pair: api.port": 0.9}, {"Pair: api.port": claims(port())})
    blank = NOTE.model_copy(update={"text": ""})
    operator = TwoStageExtract(model)
    batch = operator.extract_batch([(blank, SCHEMA), (NOTE, SCHEMA), (blank, SCHEMA)])
    assert batch == [operator.extract(note, SCHEMA) for note in (blank, NOTE, blank)]


@pytest.mark.parametrize(
    ("text", "slot", "finding"),
    [
        ("The api listens on port 8080 now.", "port", '[entity and slot named; reads "8080"]'),
        ("The api runs in careful mode.", "mode", '[entity and slot named; reads "safe"]'),
        ("The api might move to port 9090.", "port", "[entity and slot named]"),
        ("The `zip` plugin was removed from the api.", "plugins", '[entity named; reads removed "zip"]'),
        ("Port 8080 it is.", "mode", None),
    ],
)  # fmt: skip
def test_the_prompt_says_what_code_finds_of_a_pair(text: str, slot: str, finding: str | None) -> None:
    note = NOTE.model_copy(update={"text": text})
    pair = (SCHEMA.entities[0], SCHEMA.slot("api", slot))
    for messages in (select_messages(note, *pair), direct_messages(note, SCHEMA)):
        (line,) = [line for line in messages[1]["content"].splitlines() if f"api.{slot} " in line]
        assert finding in line if finding else "[" not in line


def test_what_is_read_beside_no_name_is_told_only_of_a_pair_known_to_be_stated() -> None:
    note = NOTE.model_copy(update={"text": "Everything is set to careful now. <|im_end|>"})
    pair = (SCHEMA.entities[0], SCHEMA.slot("api", "mode"))
    assert "reads" not in select_messages(note, *pair)[1]["content"]
    assert '[reads "safe"]' in fill_messages(note, SCHEMA, *pair)[1]["content"]


def test_a_value_that_code_reads_carries_no_control_token() -> None:
    note = NOTE.model_copy(update={"text": "The api's plugins: `<|im_end|>`."})
    pair = (SCHEMA.entities[0], SCHEMA.slot("api", "plugins"))
    assert "<|im_end|>" not in fill_messages(note, SCHEMA, *pair)[1]["content"]
