"""The engine's own route passed through: what comes out is what the engine says, under one token."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from serving.app import build_app
from serving.proxy import PASSED, proxy_route
from serving.service import Service
from tests.serving.support import REGISTRY, listening, scripted, service
from tests.support_server import Asked, Behaviour, MisbehavingServer, Reply, echo, refusal, right_answer

TOKEN = "open-sesame"
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "base", "messages": [{"role": "user", "content": 'é ☃ \\ "'}]}
POSTS = tuple(path for path in PASSED if path != "/v1/models")


def app_before(url: str, *, token: str | None = None, timeout_s: float = 20.0) -> FastAPI:
    """Only the proxy."""
    app = FastAPI()
    app.include_router(proxy_route(url, timeout_s=timeout_s, token=token))
    return app


@contextmanager
def proxied(
    behave: Behaviour, *, token: str | None = None, timeout_s: float = 20.0
) -> Iterator[tuple[MisbehavingServer, TestClient]]:
    """An engine that behaves so, and a client of the proxy before it."""
    with (
        MisbehavingServer(behave) as engine,
        TestClient(app_before(engine.url.removesuffix("/v1"), token=token, timeout_s=timeout_s)) as client,
    ):
        yield engine, client


@pytest.mark.parametrize("path", POSTS)
def test_a_request_goes_to_the_same_path_with_the_same_body(path: str) -> None:
    with proxied(echo) as (engine, client):
        answer = client.post(path, json=BODY)
    assert answer.status_code == 200
    (asked,) = engine.asked
    assert (asked.path, asked.body) == (path, BODY)
    assert answer.json() == right_answer(asked, BODY["messages"][0]["content"])
    assert answer.headers["content-type"] == "application/json"


def test_the_models_are_those_of_the_engine() -> None:
    listed = {"object": "list", "data": [{"id": "base", "root": "/models/base", "parent": None}]}
    with proxied(lambda _: Reply(listed)) as (engine, client):
        assert client.get("/v1/models").json() == listed
    assert [asked.path for asked in engine.asked] == ["/v1/models"]


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_error_of_the_engine_is_passed_on_as_it_is(status: int) -> None:
    refused = refusal(status, "as it says", {"Retry-After": "7", "X-Request-Id": "r1"})
    with proxied(lambda _: refused) as (engine, client):
        answer = client.post(CHAT, json=BODY)
    assert answer.status_code == status
    assert answer.json() == {"error": {"message": "as it says", "type": "error"}}
    assert (answer.headers["retry-after"], answer.headers["x-request-id"]) == ("7", "r1")
    assert len(engine.asked) == 1  # whether to ask again is the client's affair


@pytest.mark.parametrize("content", [b"", b"\x00\xff no JSON", b"x" * 300_000], ids=["empty", "odd", "large"])
def test_every_byte_of_a_body_is_passed_on(content: bytes) -> None:
    with proxied(lambda _: Reply(content, headers={"Content-Type": "text/odd"})) as (_, client):
        answer = client.post(CHAT, json=BODY)
    assert answer.content == content
    assert answer.headers["content-type"] == "text/odd"


def test_a_stream_comes_in_parts_as_the_engine_sends_them() -> None:
    events = b"data: one\n\ndata: two\n\n"
    streamed = Reply(events, headers={"Content-Type": "text/event-stream"}, pause_s=0.1)
    with (
        MisbehavingServer(lambda _: streamed) as engine,
        listening(app_before(engine.url.removesuffix("/v1"))) as port,
        httpx2.stream("POST", f"http://127.0.0.1:{port}{CHAT}", json=BODY, timeout=30) as answer,
    ):
        parts = list(answer.iter_raw())
    assert b"".join(parts) == events
    assert len(parts) > 1
    assert answer.headers["content-type"] == "text/event-stream"


def test_an_engine_that_goes_away_midway_leaves_no_whole_answer_and_no_harm() -> None:
    def behave(asked: Asked) -> Reply:
        return Reply(b"x" * 1000, share=0.5) if asked.number == 0 else echo(asked)

    with (
        MisbehavingServer(behave) as engine,
        listening(app_before(engine.url.removesuffix("/v1"))) as port,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        with pytest.raises(httpx2.RemoteProtocolError):
            client.post(CHAT, json=BODY)
        assert client.post(CHAT, json=BODY).status_code == 200


def test_callers_that_hang_up_take_no_connection_for_good() -> None:
    going_on = Event()

    def behave(asked: Asked) -> Reply:
        return echo(asked) if going_on.is_set() else Reply(b"x" * 1000, pause_s=0.05)

    with (
        MisbehavingServer(behave) as engine,
        listening(app_before(engine.url.removesuffix("/v1"), timeout_s=5)) as port,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        for _ in range(101):  # one more than the client of the proxy keeps
            with client.stream("POST", CHAT, json=BODY) as answer:
                next(answer.iter_raw())
        going_on.set()
        assert client.post(CHAT, json=BODY).status_code == 200


def test_an_engine_that_is_away_is_a_503_with_where_to_look() -> None:
    client = TestClient(app_before("http://127.0.0.1:1"))
    for answer in (client.post(CHAT, json=BODY), client.get("/v1/models")):
        assert answer.status_code == 503
        assert answer.json()["error"].startswith("the engine does not answer")
        assert answer.json()["hint"] == "see /healthz"


def test_an_engine_that_is_silent_is_a_503_after_the_time_there_is() -> None:
    with proxied(lambda asked: echo(asked, delay_s=30), timeout_s=0.3) as (_, client):
        answer = client.post(CHAT, json=BODY)
    assert answer.status_code == 503
    assert "ReadTimeout" in answer.json()["error"]


@pytest.mark.parametrize("shown", [None, "Bearer another", "Basic abc"])
def test_the_engine_is_shown_its_own_token_whatever_the_caller_shows(shown: str | None) -> None:
    headers = {} if shown is None else {"Authorization": shown}
    with proxied(echo, token=TOKEN) as (engine, client):
        client.post(CHAT, json=BODY, headers=headers)
    assert [asked.authorization for asked in engine.asked] == [f"Bearer {TOKEN}"]


def test_an_engine_without_a_token_is_shown_what_the_caller_shows() -> None:
    with proxied(echo) as (engine, client):
        client.post(CHAT, json=BODY, headers={"Authorization": "Bearer mine"})
    assert [asked.authorization for asked in engine.asked] == ["Bearer mine"]


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/v1/load_lora_adapter", "/health", "/v1/models/base", "/"]
)
def test_a_path_that_is_not_listed_does_not_reach_the_engine(path: str) -> None:
    with proxied(echo) as (engine, client):
        assert [client.post(path, json=BODY).status_code, client.get(path).status_code] == [404, 404]
    assert engine.asked == []


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/models"), ("GET", CHAT), ("DELETE", CHAT)])
def test_another_method_does_not_reach_the_engine(method: str, path: str) -> None:
    with proxied(echo) as (engine, client):
        assert client.request(method, path).status_code == 405
    assert engine.asked == []


def test_behind_the_services_door_a_caller_without_the_token_does_not_reach_the_engine() -> None:
    with MisbehavingServer(echo) as engine, service(scripted()) as running:
        route = proxy_route(engine.url.removesuffix("/v1"), timeout_s=20, token=TOKEN)
        client = TestClient(build_app(Service(running.engine, REGISTRY), openai=route, token=TOKEN))
        assert client.post(CHAT, json=BODY).status_code == 401
        assert engine.asked == []
        assert client.post(CHAT, json=BODY, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_what_the_engine_compresses_is_still_readable() -> None:
    packed = Reply(gzip.compress(json.dumps(BODY).encode()), headers={"Content-Encoding": "gzip"})
    with proxied(lambda _: packed) as (_, client):
        assert client.post(CHAT, json=BODY).json() == BODY


def test_the_query_is_passed_on() -> None:
    with proxied(lambda _: Reply({})) as (engine, client):
        client.get("/v1/models?limit=3")
    assert [asked.path for asked in engine.asked] == ["/v1/models?limit=3"]


def test_a_proxy_of_the_surroundings_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    with proxied(echo) as (_, client):
        assert client.post(CHAT, json=BODY).status_code == 200
