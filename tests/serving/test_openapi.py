"""The route that OpenAI's clients speak to, and the document that says what the service takes and gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import one_of
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import response_schema_conformance
from starlette.testclient import TestClient

from operators.models.endpoint import EndpointModel
from operators.models.scripted import ScriptedModel
from operators.models.text import ChoiceRequest, JsonSchema, TextRequest
from operators.outcome import Outcome, OutcomeKind
from tests.serving.support import (
    EXTRACT,
    REGISTRY,
    SCHEMA,
    TWO_STAGE,
    Json,
    client,
    compare_body,
    extract_body,
    item,
    listening,
    scripted,
    service,
    update_body,
)
from tests.support_adapters import BASE

PORT: JsonSchema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
CHAT = "/v1/chat/completions"
WHO = [None, EXTRACT.name, TWO_STAGE.name]
TEXTS: dict[str, Outcome[str]] = {
    "a port": Outcome(OutcomeKind.VALID, '{"port":8080}'),
    "letters": Outcome(OutcomeKind.VALID, '{"port": 1, "name": "žluťoučký \\ud83d\\ude00 \\"x\\" </s>"}'),
    "too long": Outcome(OutcomeKind.TRUNCATED, None, "no end"),
    "nobody": Outcome(OutcomeKind.UNAVAILABLE, None, "out of memory"),
}
CHOICES: dict[str, Outcome[tuple[float, ...]]] = {
    "sure": Outcome(OutcomeKind.VALID, (1.0, 0.0)),
    "likely": Outcome(OutcomeKind.VALID, (0.123456789, 0.876543211)),
    "hardly": Outcome(OutcomeKind.VALID, (1e-9, 1 - 1e-9)),
    "nobody": Outcome(OutcomeKind.UNAVAILABLE, None, "out of memory"),
}


def model() -> ScriptedModel:
    """The base says what the prompt stands for, an adapter the same about another prompt."""

    def turned(prompts: list[str], request: TextRequest | ChoiceRequest) -> str:
        asked = prompts.index(request.messages[-1]["content"])
        return prompts[(asked + WHO.index(request.adapter)) % len(prompts)]

    return ScriptedModel(
        texts=lambda request: TEXTS[turned(list(TEXTS), request)],
        choices=lambda request: CHOICES[turned(list(CHOICES), request)],
    )


def test_an_endpoint_over_the_route_answers_as_the_model_itself() -> None:
    def says(prompt: str) -> tuple[dict[str, str], ...]:
        return ({"role": "system", "content": "s"}, {"role": "user", "content": prompt})

    texts = [TextRequest(says(prompt), PORT, 40, who) for prompt in TEXTS for who in WHO]  # type: ignore[arg-type]
    choices = [ChoiceRequest(says(prompt), ("yes", "no"), who) for prompt in CHOICES for who in WHO]  # type: ignore[arg-type]
    itself, behind = model(), model()
    with (
        service(behind) as running,
        listening(running.app) as port,
        EndpointModel(f"http://127.0.0.1:{port}", base=BASE.id, retries=0) as served,
    ):
        for mine, theirs in zip(itself.complete(texts), served.complete(texts), strict=True):
            assert (theirs.kind, theirs.value) == (mine.kind, mine.value)
        for asked, scored in zip(itself.choose(choices), served.choose(choices), strict=True):
            assert scored.kind is asked.kind
            assert scored.value == (asked.value and pytest.approx(asked.value, abs=1e-6))
        assert [entry.id for entry in served.models()] == [BASE.id, *(a.name for a in REGISTRY.adapters)]
        assert {entry.parent for entry in served.models()[1:]} == {BASE.id}
    requests = [request for request in behind.asked if isinstance(request, TextRequest)]
    assert all(request in requests for request in texts)
    assert all(request in behind.asked for request in choices)


def chat(**more: object) -> Json:
    return {"model": BASE.id, "messages": [{"role": "user", "content": "a port"}], **more}


@pytest.fixture
def asking() -> Iterator[TestClient]:
    with client(model()) as found:
        yield found


@pytest.mark.parametrize(
    "more",
    [
        {"stream": True}, {"temperature": 0.7}, {"n": 2}, {"messages": []}, {"max_tokens": 0},
        {"structured_outputs": {"choice": "yes"}}, {"structured_outputs": {"choice": {"yes": 1}}},
        {"structured_outputs": {"choice": ["yes", 1]}}, {"structured_outputs": {"choice": 7}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_route_cannot_do_is_refused(asking: TestClient, more: Json) -> None:
    reply = asking.post(CHAT, json=chat(**more))
    assert (reply.status_code, set(reply.json())) == (422, {"error", "hint"})
    assert next(iter(more)) in reply.json()["error"]


def test_a_model_that_is_not_served_is_not_found(asking: TestClient) -> None:
    reply = asking.post(CHAT, json=chat() | {"model": "nobody"})
    assert (reply.status_code, "nobody" in reply.json()["error"]) == (404, True)
    assert EXTRACT.name in reply.json()["hint"]


@pytest.mark.parametrize(
    "more",
    [
        {}, {"stream": False, "temperature": 0, "n": 1}, {"temperature": None, "n": None, "stream": None},
        {"structured_outputs": {"json": PORT}}, {"response_format": {"type": "text"}}, {"unknown": 1},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_route_can_do_is_answered_as_a_chat_completion(asking: TestClient, more: Json) -> None:
    reply = asking.post(CHAT, json=chat(**more)).json()
    [choice] = reply["choices"]
    assert (reply["object"], reply["model"], choice["finish_reason"]) == ("chat.completion", BASE.id, "stop")
    assert choice["message"] == {"role": "assistant", "content": '{"port":8080}'}


@pytest.mark.parametrize(
    "more",
    [
        {"structured_outputs": {"json": "text"}},
        *({"response_format": {"type": "json_schema", "json_schema": other}} for other in ([1], "x", 7)),
    ],
    ids=str,
)
def test_a_schema_of_another_shape_is_refused(asking: TestClient, more: Json) -> None:
    assert asking.post(CHAT, json=chat(**more)).status_code == 422


LONE = "\ud800"
TYPED: Mapping[str, Json] = {
    "extract-state": extract_body("The api is on port 8080."),
    "compare-claims": compare_body("8080", "9090"),
    "update-memory": update_body("9090", item("8080")),
}


def changed(data: object, new: object) -> Iterator[object]:
    """The data with each of its leaves exchanged, one at a time; then with an unknown name beside each."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from (data | {key: other} for other in changed(value, new))
        if isinstance(new, str):
            yield data | {new: 1}
    elif isinstance(data, list):
        for place, value in enumerate(data):
            yield from ([*data[:place], other, *data[place + 1 :]] for other in changed(value, new))
    else:
        yield new


@pytest.mark.parametrize("new", [LONE, f"port 1{LONE}", 10**40, -1, 1e308, None, [], True, "\0"], ids=ascii)
@pytest.mark.parametrize("operator", TYPED)
def test_no_leaf_of_a_body_can_fault_the_server(operator: str, new: object) -> None:
    assert faults(f"/v1/operators/{operator}", TYPED[operator], new) == []


@pytest.mark.parametrize("new", [LONE, 10**40, float("nan"), float("inf"), None, [], True, "\0"], ids=ascii)
def test_no_leaf_of_a_chat_request_can_fault_the_server(new: object) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    schema = chat(response_format=form, temperature=0, n=1, stream=False)
    choices = chat(structured_outputs={"choice": ["yes", "no"]}, logprobs=True, max_tokens=7)
    assert faults(CHAT, schema, new) + faults(CHAT, choices, new) == []


def faults(path: str, sent: Json, new: object) -> list[str]:
    """The bodies that the server did not answer as it says it does."""
    found = []
    with client() as asking:
        for one in changed(sent, new):
            content = json.dumps(one).encode()
            reply = asking.post(path, content=content, headers={"content-type": "application/json"})
            if reply.status_code not in (200, 404, 422) or not isinstance(reply.json(), dict):
                found.append(f"{reply.status_code} {content!r}")
    return found


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"schema": ' + b"9" * 5000 + b"}"], ids=["deep", "long"]
)
def test_json_that_no_parser_takes_is_refused_as_other_bodies_are(asking: TestClient, content: bytes) -> None:
    reply = asking.post(
        "/v1/operators/extract-state", content=content, headers={"content-type": "application/json"}
    )
    assert 400 <= reply.status_code < 500
    assert set(reply.json()) == {"error", "hint"}


@pytest.fixture(scope="module")
def document() -> Iterator[BaseSchema]:
    with service(scripted()) as running:
        yield schemathesis.openapi.from_asgi("/openapi.json", running.app)


def test_nothing_that_the_document_allows_or_forbids_faults_the_server(document: BaseSchema) -> None:
    tried = []
    for result in document.exclude(path_regex="/batch$").get_all_operations():  # made of the same bodies
        assert isinstance(result, Ok)
        operation = result.ok()
        right, wrong = map(operation.as_strategy, GenerationMode)

        @settings(max_examples=5, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
        @given(case=one_of(right, wrong))
        def answers(case: Case[Any]) -> None:
            case.call_and_validate(checks=[not_a_server_error, response_schema_conformance])

        answers()
        tried.append(operation.path)
    assert {f"/v1/operators/{name}" for name in TYPED} | {CHAT, "/healthz", "/metrics"} <= set(tried)


def test_the_document_names_every_operator(asking: TestClient) -> None:
    paths = asking.get("/openapi.json").json()["paths"]
    assert {f"/v1/operators/{name}{more}" for name in TYPED for more in ("", "/batch")} <= set(paths)
    assert {"/healthz", "/metrics", "/v1/operators", "/v1/models", CHAT} <= set(paths)
    assert SCHEMA.entities
