"""A served model: each misbehaviour of a server becomes a named failure, never an answer and never a hang."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from operators.claims import Action, Relation
from operators.errors import ConfigError, EndpointError, InputError, LatticeMindError
from operators.items import LiveItems
from operators.learned.extract import DirectExtract, TwoStageExtract
from operators.learned.judge import LearnedCompare, LearnedUpdate
from operators.models.endpoint import EndpointModel
from operators.models.text import ChoiceRequest, JsonSchema, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import compare_completion, direct_completion, fill_completion, update_completion
from operators.schema import Entity, Slot, SlotSchema
from tests import support
from tests.support_server import (
    FAULTS, HANGING, Asked, Behaviour, MisbehavingServer, Reply, among, but, closed_port, echo, refusal,
    right_answer, said, well, with_fault,
)  # fmt: skip

PORT: JsonSchema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
ANSWER = '{"port": 8080}'
TOKEN = "tok-3b1f77aa"
VALID, MALFORMED = OutcomeKind.VALID, OutcomeKind.MALFORMED
TRUNCATED, UNAVAILABLE = OutcomeKind.TRUNCATED, OutcomeKind.UNAVAILABLE
Failure = OutcomeKind | type[LatticeMindError]

BOTH: dict[str, Failure] = {
    "prose": MALFORMED, "null content": MALFORMED, "the base answers": EndpointError,
    "another model answers": EndpointError, "no model is named": EndpointError, "no choices": UNAVAILABLE,
    "another shape": UNAVAILABLE, "a list": UNAVAILABLE, "a number": UNAVAILABLE, "null": UNAVAILABLE,
    "no JSON": UNAVAILABLE, "no text": UNAVAILABLE, "nothing": UNAVAILABLE, "a web page": UNAVAILABLE,
    "half a body": UNAVAILABLE, "slow": UNAVAILABLE, "drips": UNAVAILABLE, "a loop of redirects": UNAVAILABLE,
    "400": InputError, "401": ConfigError, "403": ConfigError, "404": ConfigError, "429": UNAVAILABLE,
    "429 for a minute": UNAVAILABLE, "500": UNAVAILABLE, "503": UNAVAILABLE,
}  # fmt: skip
COMPLETING = BOTH | {"truncated": TRUNCATED, "whitespace": TRUNCATED, "content filter": MALFORMED}
CHOOSING = BOTH | {"whitespace": MALFORMED, "no log-probabilities": MALFORMED}


def text(prompt: str = "q", *, schema: JsonSchema | None = None, adapter: str | None = None) -> TextRequest:
    return TextRequest(({"role": "user", "content": prompt},), schema, 9, adapter)


def choice(*choices: str, adapter: str | None = None) -> ChoiceRequest:
    return ChoiceRequest(({"role": "user", "content": "q"},), choices or ("yes", "no"), adapter)


@contextmanager
def served(behave: Behaviour, **settings: Any) -> Iterator[tuple[MisbehavingServer, EndpointModel]]:
    """A server and a model that asks it once, with a timeout that a busy machine does not reach."""
    known = {"base": "base", "timeout_s": 20.0, "retries": 0, **settings}
    with MisbehavingServer(behave) as server, EndpointModel(server.url, **known) as model:
        yield server, model


def patience(fault: str) -> float:
    return 0.3 if fault in HANGING else 20.0


def failure_of(ask: Callable[[], Sequence[Any]]) -> Failure:
    """What became of the one request: an error with a hint, or an outcome with a reason and no value."""
    try:
        [outcome] = ask()
    except LatticeMindError as fault:
        assert str(fault)
        assert fault.hint
        return type(fault)
    assert isinstance(outcome, Outcome)
    assert (outcome.value, bool(outcome.detail)) == (None, True)
    assert outcome.kind not in (VALID, OutcomeKind.EMPTY)
    return outcome.kind


def test_a_good_server_answers_under_a_schema_without_one_and_by_probability() -> None:
    with served(well) as (_, model):
        assert model.complete([text(schema=PORT), text()]) == [valid(ANSWER), valid(ANSWER)]
        assert model.choose([choice()])[0].value == pytest.approx((0.9, 0.1))
        assert (model.complete([]), model.choose([])) == ([], [])


def test_every_fault_of_a_server_has_its_expected_failure() -> None:
    assert COMPLETING.keys() | CHOOSING.keys() == FAULTS.keys()


@pytest.mark.parametrize(("fault", "expected"), COMPLETING.items())
def test_a_text_from_a_bad_server_is_a_failure_of_the_right_kind(fault: str, expected: Failure) -> None:
    with served(with_fault(fault), timeout_s=patience(fault)) as (_, model):
        assert failure_of(lambda: model.complete([text(schema=PORT, adapter="port")])) == expected


@pytest.mark.parametrize(("fault", "expected"), CHOOSING.items())
def test_a_choice_from_a_bad_server_is_a_failure_of_the_right_kind(fault: str, expected: Failure) -> None:
    with served(with_fault(fault), timeout_s=patience(fault)) as (_, model):
        assert failure_of(lambda: model.choose([choice(adapter="port")])) == expected


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with EndpointModel(closed_port(), base="base", retries=0) as model:
        assert failure_of(lambda: model.complete([text()])) is UNAVAILABLE
        assert failure_of(lambda: model.choose([choice()])) is UNAVAILABLE
        assert failure_of(model.models) is EndpointError


@pytest.mark.parametrize(
    ("likely", "choices", "expected"),
    [
        ({"no": 0.6, "yes": 0.2, "maybe": 0.2}, ("yes", "no"), (0.25, 0.75)),
        ({"y": 0.5, "n": 0.25, "yes": 0.25}, ("yes", "no"), (0.75, 0.25)),
        ({"maybe": 0.9, "yes": 0.1}, ("yes", "no"), (1.0, 0.0)),  # the other one counts as impossible
        ({"maybe": 0.9, "": 0.1}, ("yes", "no"), None),
        ({"sta": 0.9, "no": 0.1}, ("stated", "stale"), None),
        ({"no": 0.9, "yes": 0.1}, ("no", "none"), None),
    ],
)
def test_a_choice_has_the_probability_of_the_tokens_that_open_it_alone(
    likely: dict[str, float], choices: tuple[str, ...], expected: tuple[float, ...] | None
) -> None:
    with served(lambda asked: Reply(right_answer(asked, "", likely))) as (_, model):
        [outcome] = model.choose([choice(*choices)])
    assert outcome.value == (pytest.approx(expected) if expected else None)
    assert outcome.kind is (VALID if expected else MALFORMED)


def test_nothing_takes_longer_than_its_timeout_however_often_it_is_tried_again() -> None:
    def seconds(fault: str) -> float:
        with served(with_fault(fault), timeout_s=1.0, retries=9) as (_, model):
            start = time.monotonic()
            assert failure_of(lambda: model.complete([text()])) is UNAVAILABLE
            return time.monotonic() - start

    faults = [*HANGING, "half a body", "429", "429 for a minute", "500", "503"]
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
    with served(with_fault(fault), retries=1) as (server, model):
        failure_of(lambda: model.complete([text(schema=PORT)]))
        assert len(server.asked) == requests


def test_answers_keep_the_order_of_their_requests_and_never_too_many_are_under_way() -> None:
    prompts = [f"prompt {number}" for number in range(64)]
    delays = dict(zip(prompts, random.Random(0).choices([0, 0.02, 0.05], k=64), strict=True))
    with served(lambda asked: echo(asked, delay_s=delays[asked.prompt]), concurrency=5) as (server, model):
        assert model.complete([text(prompt) for prompt in prompts]) == [valid(prompt) for prompt in prompts]
    assert server.most_in_flight == 5


def test_eight_threads_at_once_get_their_own_answers_within_one_bound() -> None:
    def ask(thread: int) -> bool:
        prompts = [f"{thread}/{number}" for number in range(8)]
        return model.complete([text(prompt) for prompt in prompts]) == [valid(prompt) for prompt in prompts]

    with served(lambda asked: echo(asked, delay_s=0.01), concurrency=4) as (server, model):
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(8)))
    assert server.most_in_flight == 4


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
    told = []
    for fault in ("401", "404", "400", "500", "no JSON", "half a body", "the base answers"):
        with served(with_fault(fault), token=TOKEN) as (server, model):
            try:
                told += [outcome.detail for outcome in model.complete([text(adapter="port")])]
            except LatticeMindError as error:
                told += [str(error), error.hint, repr(error.__cause__)]
            assert {asked.authorization for asked in server.asked} == {f"Bearer {TOKEN}"}
    assert TOKEN not in "\n".join([*told, caplog.text, repr(model)])
    assert {"openai", "httpx2"} <= {record.name.partition(".")[0] for record in caplog.records}
    with served(well) as (server, model):
        model.complete([text()])
    assert server.asked[0].authorization == "Bearer none"


def test_models_are_listed_with_what_the_server_says_of_them() -> None:
    entries = [{"id": "base", "parent": None}, {"id": "port", "parent": "base"}]
    with served(lambda _: Reply({"object": "list", "data": entries})) as (server, model):
        assert [{"id": entry["id"], "parent": entry["parent"]} for entry in model.models()] == entries
    assert server.asked[0].path == "/v1/models"


@pytest.mark.parametrize(
    ("status", "expected"), [(401, ConfigError), (404, EndpointError), (500, EndpointError)]
)
def test_models_of_a_server_that_refuses_are_an_error(status: int, expected: Failure) -> None:
    with served(lambda _: refusal(status)) as (_, model):
        assert failure_of(model.models) is expected


@pytest.mark.parametrize("fault", ["slow", "half a body", "400"])
def test_close_ends_the_thread_whatever_the_server_did(fault: str) -> None:
    before = set(threading.enumerate())
    with served(with_fault(fault), timeout_s=0.3) as (_, model):
        failure_of(lambda: model.complete([text()]))
        assert "endpoint" in {thread.name for thread in set(threading.enumerate()) - before}
    assert "endpoint" not in {thread.name for thread in set(threading.enumerate()) - before}


SCHEMA = SlotSchema(entities=(Entity(entity="api", slots=(Slot(slot="port", form="number"),)),))
NOTE = support.note("The api listens on 8080.")
OLD, NEW = (
    support.claim(support.key("api", "port"), value, at=at) for value, at in (("8080", 1), ("9090", 2))
)
RIGHT = {
    "Pairs:": direct_completion(NOTE, SCHEMA, [OLD]), "Pair:": fill_completion(NOTE, SCHEMA, [OLD]),
    "Incumbent:": compare_completion(Relation.CONTRADICTS),
    "Items:": update_completion(Action.ADD, None, LiveItems()),
}  # fmt: skip
OPERATORS: dict[str, Callable[[TextModel], Outcome[Any]]] = {
    "direct": lambda model: DirectExtract(model, "port").extract(NOTE, SCHEMA),
    "two-stage": lambda model: TwoStageExtract(model, "port").extract(NOTE, SCHEMA),
    "compare": lambda model: LearnedCompare(SCHEMA, model, "port").compare(OLD, NEW),
    "update": lambda model: LearnedUpdate(SCHEMA, model, "port").update(LiveItems(), NEW),
}


def right(asked: Asked) -> Reply:
    """What a good model says to each operator's prompt."""
    return Reply(right_answer(asked, next(said for part, said in RIGHT.items() if part in asked.prompt)))


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_over_a_good_server_has_an_answer(operator: str) -> None:
    with served(right) as (_, model):
        assert OPERATORS[operator](model).kind is VALID


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_no_operator_over_a_bad_server_has_an_answer_or_a_considered_nothing(
    operator: str, fault: str
) -> None:
    if fault == "no log-probabilities" and operator != "two-stage":
        return  # only a choice has them
    with served(with_fault(fault, right), timeout_s=patience(fault)) as (_, model):
        failure_of(lambda: [OPERATORS[operator](model)])
