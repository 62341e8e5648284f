"""A served model: each misbehaviour of a server becomes a named failure, never an answer and never a hang."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from operators.claims import Action, Relation
from operators.errors import ConfigError, EndpointError, InputError
from operators.items import LiveItems
from operators.learned.extract import DirectExtract, TwoStageExtract
from operators.learned.judge import LearnedCompare, LearnedUpdate
from operators.models.endpoint import EndpointModel
from operators.models.text import JsonSchema, TextModel
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import compare_completion, direct_completion, fill_completion, update_completion
from operators.schema import Entity, Slot, SlotSchema
from tests import support
from tests.support_server import (
    FAULTS,
    ILL_SHAPED,
    NOWHERE,
    Asked,
    Failure,
    Reply,
    choice,
    echo,
    failure_of,
    refusal,
    served,
    spoilt,
    text,
    told_by,
    well,
)

PORT: JsonSchema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
ANSWER = '{"port": 8080}'
TOKEN = "tok-3b1f77aa"
MALFORMED, TRUNCATED, UNAVAILABLE = OutcomeKind.MALFORMED, OutcomeKind.TRUNCATED, OutcomeKind.UNAVAILABLE

SAID: dict[str, Failure] = {
    "prose": MALFORMED, "brackets": MALFORMED, "null content": MALFORMED, "content filter": MALFORMED,
    "truncated": TRUNCATED, "whitespace": TRUNCATED, "the base answers": EndpointError,
    "another model answers": EndpointError,
    "400": InputError, "401": ConfigError, "403": ConfigError, "404": ConfigError,
}  # fmt: skip
"""What a fault means for a text; one that is not here makes the server unavailable."""
CHOSEN = SAID | {"whitespace": MALFORMED, "no log-probabilities": MALFORMED}
HARMLESS = [("schema", "no log-probabilities"), ("choice", "truncated")]  # a choice is one token long


ASKS: dict[str, Callable[[EndpointModel], Sequence[Outcome[Any]]]] = {
    "text": lambda model: model.complete([text(adapter="port")]),
    "schema": lambda model: model.complete([text(schema=PORT, adapter="port")]),
    "choice": lambda model: model.choose([choice(adapter="port")]),
}


def test_a_good_server_answers_under_a_schema_without_one_and_by_probability() -> None:
    with served(well) as (_, model):
        assert model.complete([text(schema=PORT), text()]) == [valid(ANSWER), valid(ANSWER)]
        assert model.choose([choice()])[0].value == pytest.approx((0.9, 0.1))
        assert (model.complete([]), model.choose([])) == ([], [])


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_bad_server_says_is_a_failure_of_the_right_kind(fault: str) -> None:
    with spoilt(fault) as (_, model):
        for ask, expected in ("schema", SAID), ("choice", CHOSEN):
            if (ask, fault) not in HARMLESS:
                assert failure_of(ASKS[ask], model) == expected.get(fault, UNAVAILABLE)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with EndpointModel(NOWHERE, base="base", retries=0) as model:
        assert [failure_of(ask, model) for ask in ASKS.values()] == [UNAVAILABLE] * 3
        assert failure_of(model.models) is EndpointError


@pytest.mark.parametrize(
    ("likely", "choices", "expected"),
    [
        ({"no": 0.6, "yes": 0.2, "maybe": 0.2}, ("yes", "no"), (0.25, 0.75)),
        ({"y": 0.6, "n": 0.2, "maybe": 0.2}, ("yes", "no"), (0.75, 0.25)),
        ({"y": 0.5, "no": 0.4, "yes": 0.1}, ("yes", "no"), (0.2, 0.8)),  # a whole choice is one token
        ({"maybe": 0.9, "yes": 0.1}, ("yes", "no"), (1.0, 0.0)),  # the other one counts as impossible
        ({"maybe": 0.9, "": 0.1}, ("yes", "no"), None),
        ({"sta": 0.9, "no": 0.1}, ("stated", "stale"), None),
        ({"sta": 0.9, "no": 0.1}, ("stated", "stale", "no"), None),
        ({"no": 0.9, "yes": 0.1}, ("no", "none"), None),
    ],
)
def test_a_choice_has_the_probability_of_the_tokens_that_open_it_alone(
    likely: dict[str, float], choices: tuple[str, ...], expected: tuple[float, ...] | None
) -> None:
    with served(lambda asked: well(asked, likely=likely)) as (_, model):
        [outcome] = model.choose([choice(*choices)])
    assert outcome.value == (pytest.approx(expected) if expected else None)
    assert outcome.kind is (OutcomeKind.VALID if expected else MALFORMED)


def test_nothing_takes_longer_than_its_timeout_however_often_it_is_tried_again() -> None:
    def seconds(fault: str) -> float:
        with spoilt(fault, timeout_s=1.0, retries=9) as (_, model):
            start = time.monotonic()
            assert failure_of(model.complete, [text()]) is UNAVAILABLE
            return time.monotonic() - start

    faults = ["slow", "drips", "half a body", "429", "429 for a minute", "500", "503"]
    with ThreadPoolExecutor(len(faults)) as pool:
        assert max(pool.map(seconds, faults)) < 5


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_what_may_pass_is_asked_again_in_the_same_words(status: int) -> None:
    with served(lambda asked: well(asked) if asked.number else refusal(status), retries=2) as (server, model):
        assert model.complete([text(schema=PORT)]) == [valid(ANSWER)]
        first, second = server.asked
    assert first.body == second.body


@pytest.mark.parametrize(
    ("fault", "requests"),
    [("400", 1), ("401", 1), ("404", 1), ("prose", 1), ("truncated", 1), ("500", 2), ("half a body", 2)],
)
def test_what_stays_wrong_is_asked_once_and_the_rest_as_often_as_was_said(fault: str, requests: int) -> None:
    with spoilt(fault, retries=1) as (server, model):
        failure_of(model.complete, [text(schema=PORT)])
        assert len(server.asked) == requests


def test_answers_keep_the_order_of_their_requests_and_never_too_many_are_under_way() -> None:
    prompts = [f"prompt {number}" for number in range(64)]
    delays = dict(zip(prompts, random.Random(0).choices([0, 0.02, 0.05], k=64), strict=True))
    with served(lambda asked: echo(asked, delay_s=delays[asked.prompt]), concurrency=5) as (server, model):
        assert model.complete([text(prompt) for prompt in prompts]) == [valid(prompt) for prompt in prompts]
    assert 1 < server.most_in_flight <= 5


def test_eight_threads_at_once_get_their_own_answers_within_one_bound() -> None:
    def ask(thread: int) -> bool:
        prompts = [f"{thread}/{number}" for number in range(8)]
        return model.complete([text(prompt) for prompt in prompts]) == [valid(prompt) for prompt in prompts]

    busy = served(lambda asked: echo(asked, delay_s=0.01), concurrency=4)
    with busy as (server, model), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert 1 < server.most_in_flight <= 4


def test_one_refused_request_raises_and_stops_the_others_and_the_model_goes_on() -> None:
    def refuse_one(asked: Asked) -> Reply:
        return refusal(400, "too long") if asked.prompt == "5" else echo(asked, delay_s=0.05)

    with served(refuse_one, concurrency=4) as (server, model):
        with pytest.raises(InputError, match="too long"):
            model.complete([text(str(number)) for number in range(64)])
        before = len(server.asked)
        time.sleep(0.2)
        assert len(server.asked) == before < 16
        assert model.complete([text("again")]) == [valid("again")]


@pytest.mark.parametrize("adapter", [None, "port"])
def test_a_request_says_everything_and_nothing_that_is_ignored(adapter: str | None) -> None:
    with served(well) as (server, model):
        model.complete([text(schema=PORT, adapter=adapter), text(adapter=adapter)])
        model.choose([choice(adapter=adapter)])
    bodies = [asked.body for asked in server.asked]
    exact = {"temperature": 0, "top_p": 1, "seed": 0, "repetition_penalty": 1.0, "model": adapter or "base"}
    assert all(exact.items() <= body.items() for body in bodies)
    assert not [name for body in bodies for name in body if name.startswith("guided_")]
    assert [body["messages"] for body in bodies] == [[{"role": "user", "content": "q"}]] * 3
    assert [body["max_tokens"] for body in bodies] == [9, 9, 1]
    [form] = [body["response_format"] for body in bodies[:2] if "response_format" in body]
    assert (form["type"], form["json_schema"]["schema"]) == ("json_schema", PORT)
    assert (bodies[2]["logprobs"], bodies[2]["top_logprobs"]) == (True, 20)


def test_the_token_goes_to_the_server_and_nowhere_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
    for logger in (None, "openai", "httpx2", "httpcore2", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=logger)
    told = ""
    for fault in ("401", "404", "400", "500", "no JSON", "half a body", "the base answers"):
        with spoilt(fault, token=TOKEN) as (server, model):
            told += told_by(model)
            assert {asked.authorization for asked in server.asked} == {f"Bearer {TOKEN}"}
    assert TOKEN not in told + caplog.text + repr(model)
    assert {"openai", "httpx2"} <= {record.name.partition(".")[0] for record in caplog.records}
    with served(well) as (server, model):
        model.complete([text()])
    assert server.asked[0].authorization == "Bearer none"


def test_models_are_listed_with_what_the_server_says_of_them_or_are_an_error() -> None:
    entries = [{"id": "base", "parent": None}, {"id": "port", "parent": "base"}]
    with served(lambda _: Reply({"object": "list", "data": entries})) as (server, model):
        assert [{"id": entry.id, "parent": entry.parent} for entry in model.models()] == entries
    assert server.asked[0].path == "/v1/models"
    with served(lambda asked: refusal(500 if asked.number else 401)) as (_, model):
        assert [failure_of(model.models), failure_of(model.models)] == [ConfigError, EndpointError]


@pytest.mark.parametrize("fault", ["slow", "half a body", "400"])
def test_close_ends_the_thread_whatever_the_server_did(fault: str) -> None:
    before = set(threading.enumerate())
    with spoilt(fault) as (_, model):
        failure_of(model.complete, [text()])
        assert "endpoint" in {thread.name for thread in set(threading.enumerate()) - before}
    assert "endpoint" not in {thread.name for thread in set(threading.enumerate()) - before}


SCHEMA = SlotSchema(entities=(Entity(entity="api", slots=(Slot(slot="port", form="number"),)),))
NOTE = support.note("The api listens on 8080.")
PORT_OF_API = support.key("api", "port")
OLD, NEW = support.claim(PORT_OF_API, "8080", at=1), support.claim(PORT_OF_API, "9090", at=2)
RIGHT = {
    "Pairs:": direct_completion(NOTE, SCHEMA, [OLD]), "Pair:": fill_completion(NOTE, SCHEMA, [OLD]),
    "Incumbent:": compare_completion(Relation.CONTRADICTS),
    "Items:": update_completion(Action.ADD, None, LiveItems()),
}  # fmt: skip
OPERATORS: dict[str, Callable[[TextModel], Sequence[Outcome[Any]]]] = {
    "direct": lambda model: DirectExtract(model, "port").extract_batch([(NOTE, SCHEMA)]),
    "two-stage": lambda model: TwoStageExtract(model, "port").extract_batch([(NOTE, SCHEMA)]),
    "compare": lambda model: LearnedCompare(SCHEMA, model, "port").compare_batch([(OLD, NEW)]),
    "update": lambda model: LearnedUpdate(SCHEMA, model, "port").update_batch([(LiveItems(), NEW)]),
}


def right(asked: Asked) -> Reply:
    """What a good model says to each operator's prompt."""
    return well(asked, next(RIGHT[part] for part in RIGHT if part in asked.prompt))


def test_operators_over_a_good_server_have_answers() -> None:
    with served(right) as (_, model):
        assert [operate(model)[0].kind for operate in OPERATORS.values()] == [OutcomeKind.VALID] * 4


@pytest.mark.parametrize("fault", FAULTS)
def test_no_operator_over_a_bad_server_has_an_answer(fault: str) -> None:
    with spoilt(fault, right) as (_, model):
        for name, operate in OPERATORS.items():
            if fault != "no log-probabilities" or name == "two-stage":
                failure_of(operate, model)


@pytest.mark.parametrize("shape", ILL_SHAPED)
def test_a_reply_with_parts_of_another_type_is_no_answer(shape: str) -> None:
    with spoilt(shape) as (_, model):
        for ask in ASKS.values():
            assert failure_of(ask, model) in (MALFORMED, UNAVAILABLE)


@pytest.mark.parametrize("content", [b"oops", [1], None, {"data": None}, {"data": ["base"]}, "slowly " * 30])
def test_a_list_of_models_of_another_shape_or_in_drips_is_an_error_in_time(content: object) -> None:
    start, pause_s = time.monotonic(), 0.02 if isinstance(content, str) else 0.0
    with served(lambda _: Reply(content, pause_s=pause_s), timeout_s=1.0) as (_, model):
        assert failure_of(model.models) is EndpointError
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_a_token_that_the_server_says_back_is_not_passed_on(status: int) -> None:
    with served(lambda asked: refusal(status, asked.authorization), token=TOKEN) as (_, model):
        assert TOKEN not in told_by(model)


def test_closing_twice_is_closing() -> None:
    model = EndpointModel(NOWHERE, base="base")
    model.close()
    model.close()
    with pytest.raises(EndpointError, match="closed"):
        model.models()
    assert [outcome.kind for outcome in model.complete([text("late")] * 2)] == [OutcomeKind.UNAVAILABLE] * 2


def test_whoever_still_waits_at_the_end_is_told_so_at_once() -> None:
    with served(lambda _: Reply({}, delay_s=20), concurrency=2) as (_, model), ThreadPoolExecutor(2) as pool:
        one = pool.submit(model.complete, [text("slow")] * 3)  # the third waits for its turn
        other = pool.submit(model.choose, [choice()])
        time.sleep(0.3)
        began = time.monotonic()
        model.close()
        kinds = [o.kind for o in one.result()] + [o.kind for o in other.result()]
        assert time.monotonic() - began < 5
        assert kinds == [OutcomeKind.UNAVAILABLE] * 4


def test_an_impossible_port_or_bound_is_refused() -> None:
    for url in "http://127.0.0.1:99999/v1", "ftp://host", "127.0.0.1:8000", "http://":
        with pytest.raises(ConfigError):
            EndpointModel(url, base="base")
    for token in "two words", "", "line\n", "Schlüssel":
        with pytest.raises(ConfigError):
            EndpointModel(NOWHERE, base="base", token=token)
    with pytest.raises(ConfigError):  # every call would hang for ever
        EndpointModel(NOWHERE, base="base", concurrency=0).close()
