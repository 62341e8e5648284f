"""The grammar of an answer: every gold answer is one it lets a model write, in the very bytes of the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import xgrammar
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from data_builders.gold import GoldCases, gold_cases
from data_builders.trajectory import load_trajectories
from operators.claims import Note, StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.learned.answers import RELATION_SCHEMA, FillSpace, direct_schema
from operators.learned.judge import _update_schema
from operators.models.local.model import LocalModel
from operators.models.text import JsonSchema, TextRequest
from operators.prompts import (
    Message,
    compare_completion,
    direct_completion,
    fill_completion,
    update_completion,
)
from operators.schema import Cardinality, Entity, Slot, SlotSchema
from tests.support_models import tiny_base

TRAJECTORIES = Path(__file__).parents[2] / "configs" / "trajectories"
SEEDS = (0, 1, 2)
PROMPT: tuple[Message, ...] = (
    {"role": "system", "content": "Answer."},
    {"role": "user", "content": "Which?"},
)
Answer = tuple[JsonSchema, str]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[LocalModel]:
    """Random models that know nothing and differ in what they would like to say."""
    folder = tmp_path_factory.mktemp("random")
    return [
        LocalModel.load(tiny_base(folder / str(seed), seed=seed), identity=str(seed), dtype="float32")
        for seed in SEEDS
    ]


@pytest.fixture(scope="module")
def model(models: list[LocalModel]) -> LocalModel:
    return models[0]


def thing(required: list[str], **fields: object) -> JsonSchema:
    """An object of these fields."""
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def listed(items: object, least: int, most: int) -> JsonSchema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


SCHEMAS: dict[str, JsonSchema] = {
    "quotes": {"enum": ['say "no"', '"', "''"]},
    "backslashes": {"enum": ["C:\\new\\table", "\\", '\\"']},
    "slashes": {"enum": ["/etc/hosts", "a/b//c", "</s>"]},
    "unicode": {"enum": ["Zürich – 東京", "é", "\U0001f600", "\u2028"]},
    "controls": {"enum": ["tab\tin", "line\nbreak", "\x01"]},
    "one begins another": {"enum": ["a", "ab", "abc", ""]},
    "null": thing(["value"], value={"enum": ["on", None]}),
    "null or text": thing(["value"], value={"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]}),
    "optional last": thing(["value"], value={"enum": ["on"]}, retires={"enum": ["off"]}),
    "optional between": thing(["a", "c"], a={"enum": [1]}, b={"enum": [2]}, c={"enum": [3]}),
    "optional first": thing(["b"], a={"enum": [1]}, b={"enum": [2]}),
    "no entry": listed({"enum": ["x"]}, 0, 0),
    "nested arrays": listed(listed({"enum": ["x", 'y"']}, 1, 2), 0, 2),
    "objects of several kinds": listed(
        {
            "anyOf": [
                thing(["p"], p={"enum": ["a", "ab"]}),
                thing(["p", "q"], p={"enum": ["b"]}, q={"enum": [1]}),
            ]
        },
        1,
        3,
    ),
    "objects in arrays": thing(
        ["all"], all=listed(thing(["p"], p={"enum": ["a.b"]}, q={"enum": ["c"]}), 1, 3)
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_a_model_knows_its_answer_fits_the_schema_and_is_written_as_the_rows_are(
    models: list[LocalModel], name: str
) -> None:
    schema = SCHEMAS[name]
    for model in models:
        (outcome,) = model.complete([TextRequest(PROMPT, schema, 300)])
        assert outcome.value is not None, outcome
        value = json.loads(outcome.value)
        assert list(Draft202012Validator(schema).iter_errors(value)) == []
        if name != "null or text":  # in free text a model may write é as an escape
            assert outcome.value == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=20))
def test_the_one_text_of_an_enum_is_written_raw(model: LocalModel, text: str) -> None:
    (outcome,) = model.complete([TextRequest(PROMPT, {"enum": [text]}, 200)])
    assert outcome.value == json.dumps(text, ensure_ascii=False, separators=(",", ":"))


def refused_after(model: LocalModel, schema: JsonSchema, text: str) -> str | None:
    """What of a text the grammar accepts before it forbids the next token; None when it may stand whole."""
    grammar = model._grammar(schema)
    assert grammar is not None
    matcher = xgrammar.GrammarMatcher(grammar)
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    for number, token in enumerate([*ids, model.tokenizer.eos_token_id]):
        assert isinstance(token, int)
        if not matcher.accept_token(token):
            accepted = model.tokenizer.decode(ids[:number])
            assert isinstance(accepted, str)
            return accepted
    return None


def direct(cases: GoldCases) -> Iterator[Answer]:
    for case in cases.extract:
        yield direct_schema(case.note, case.schema), direct_completion(case.note, case.schema, case.gold)


def fill(cases: GoldCases) -> Iterator[Answer]:
    for case in cases.extract:
        for _, slot in case.schema.pairs():
            claims = [claim for claim in case.gold if claim.slot == slot.slot]
            for entity in sorted({claim.entity for claim in claims}):
                own = [claim for claim in claims if claim.entity == entity]
                space = FillSpace.of(case.note, case.schema, case.schema.slot(entity, slot.slot))
                yield space.schema(), fill_completion(case.note, case.schema, own)


def compare(cases: GoldCases) -> Iterator[Answer]:
    for case in cases.compare:
        yield RELATION_SCHEMA, compare_completion(case.gold.relation)


def update(cases: GoldCases) -> Iterator[Answer]:
    for case in cases.update:
        yield _update_schema(case.items), update_completion(case.action, case.target, case.items)


TASKS = (direct, fill, compare, update)


@pytest.fixture(scope="module", params=load_trajectories(TRAJECTORIES), ids=lambda found: found.name)
def cases(request: pytest.FixtureRequest) -> GoldCases:
    return gold_cases(request.param)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_every_gold_answer_of_a_trajectory_may_be_written(
    model: LocalModel, cases: GoldCases, task: Callable[[GoldCases], Iterator[Answer]]
) -> None:
    answers = {json.dumps(answer, separators=(",", ":")) for answer in task(cases)}
    assert len(answers) >= 3
    for schema, text in map(json.loads, answers):
        assert refused_after(model, schema, text) is None, text


MEMORY = SlotSchema(
    entities=(
        Entity(
            entity="app",
            slots=(
                Slot(slot="greeting", form="text"),
                Slot(slot="themes", form="name", cardinality=Cardinality.MANY),
            ),
        ),
    ),
    envs={"prod": ("production",)},
)
SOURCE = Evidence(type=EvidenceType.HUMAN_NOTE, source="n")
DAY = datetime(2026, 3, 1, tzinfo=UTC)


def memory_note(value: str) -> Note:
    text = f"In production the greeting is {value}"
    return Note(source_id="n", text=text, observed_at=DAY, evidence_type=EvidenceType.HUMAN_NOTE)


def memory_claims(value: str) -> tuple[StateClaim, StateClaim]:
    """A value that is stated, and the same as a member that goes."""
    return (
        StateClaim("app", "greeting", value, SOURCE, DAY, env="prod"),
        StateClaim("app", "themes", None, SOURCE, DAY, retires=value),
    )


@pytest.mark.parametrize("value", ["Grüß Gott", "東京 – 🎉", "naïve", "a/b", 'say "hi"', "C:\\tmp"])
def test_a_filled_value_in_any_script_is_trained_and_answered_in_the_same_bytes(
    model: LocalModel, value: str
) -> None:
    note = memory_note(value)
    for claim in memory_claims(value):
        space = FillSpace.of(note, MEMORY, MEMORY.slot("app", claim.slot))
        text = fill_completion(note, MEMORY, [claim])
        assert "\\u" not in text
        assert refused_after(model, space.schema(), text) is None, text


@pytest.mark.parametrize(
    ("value", "foreign"),
    [("Grüß Gott", "Gruß"), ("東京 – 🎉", "東京都"), ('say "hi" now', 'say "ho"'), ("C:\\tmp", "D:")],
)
def test_a_direct_value_is_one_that_its_own_pair_can_have(
    model: LocalModel, value: str, foreign: str
) -> None:
    note = memory_note(value)
    schema = direct_schema(note, MEMORY)
    assert refused_after(model, schema, direct_completion(note, MEMORY, memory_claims(value))) is None
    assert refused_after(model, schema, direct_completion(note, MEMORY, memory_claims(foreign))) is not None


CLAIM = thing(["quote", "value"], quote={"enum": ["é – now 9"]}, value={"enum": ["9", None]})
WRITTEN = '{"quote":"é – now 9","value":null}'


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (WRITTEN, None),
        (WRITTEN.replace(":", ": "), '{"quote":'),
        (WRITTEN.replace(",", ", "), '{"quote":"é – now 9",'),
        (WRITTEN.replace("é", "\\u00e9"), '{"quote":"'),
        (WRITTEN.replace("null", '"8"'), '{"quote":"é – now 9","value":"'),
        ('{"value":null,"quote":"é – now 9"}', '{"'),
        ("{\n" + WRITTEN[1:], "{"),
        (WRITTEN + "\n", WRITTEN),
        (WRITTEN[:-1], WRITTEN[:-1]),
    ],
    ids=["as written", "colon", "comma", "escape", "foreign value", "order", "newline", "tail", "cut"],
)
def test_any_other_way_to_write_it_is_forbidden_where_it_departs(
    model: LocalModel, text: str, accepted: str | None
) -> None:
    assert refused_after(model, CLAIM, text) == accepted
