"""The typed endpoints: every outcome has its place, every fault its name, and nobody gets another's answer."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from serving.registry import Registry
from tests.serving.support import (
    ASKED,
    BODIES,
    COMPARE,
    COMPARE_TWO,
    EXTRACT,
    FAULTY,
    LACKING,
    ONE,
    OPERATORS,
    PAIRS,
    REGISTRY,
    SCHEMA,
    SHOP,
    TWO_STAGE,
    UPDATE,
    VALUES,
    Json,
    Silent,
    Starting,
    Tokenizing,
    body,
    client,
    extract_body,
    listening,
    posted,
    scripted,
    service,
)

TOKEN = "tok-6a0c91e2"


@pytest.fixture
def asking() -> Iterator[TestClient]:
    with client() as found:
        yield found


@pytest.mark.parametrize(("operator", "sent", "kind"), ASKED)
def test_every_outcome_says_its_kind_and_who_answered(
    asking: TestClient, operator: str, sent: Json, kind: str
) -> None:
    reply = asking.post(ONE + operator, json=sent)
    answer = reply.json()
    assert reply.status_code == (503 if kind == "unavailable" else 200)
    assert (answer["outcome"], answer["adapter"]) == (kind, OPERATORS[operator].name)
    assert (answer[VALUES[operator]] is not None) == (kind in ("valid", "empty"))
    assert bool(answer["detail"]) == (kind != "valid")


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_batch_answers_in_order_and_one_that_fails_costs_the_others_nothing(
    asking: TestClient, operator: str
) -> None:
    mine = [(sent, kind) for asked, sent, kind in ASKED if asked == operator]
    reply = asking.post(f"{ONE}{operator}/batch", json={"items": [sent for sent, _ in mine]})
    singly = [asking.post(ONE + operator, json=sent).json() for sent, _ in mine]
    assert (reply.status_code, reply.json()) == (200, {"answers": singly})
    assert [answer["outcome"] for answer in reply.json()["answers"]] == [kind for _, kind in mine]


def test_answers_are_those_of_the_operators(asking: TestClient) -> None:
    extracted, compared, updated = (
        asking.post(ONE + operator, json=sent).json() for operator, sent in BODIES.items()
    )
    [found] = extracted["claims"]
    assert (found["entity"], found["slot"], found["value"]) == ("api", "port", "8080")
    assert (compared["relation"], compared["winner"]) == ("contradicts", "incoming")
    decision = updated["decision"]
    assert (decision["action"], decision["target"], decision["winner"]) == ("supersede", "i1", "incoming")
    assert UPDATE.name in decision["operator"]


def test_a_claim_can_be_sent_back_as_it_came(asking: TestClient) -> None:
    [found] = asking.post(ONE + "extract-state", json=BODIES["extract-state"]).json()["claims"]
    assert len(found["claim_id"]) == 16
    held = {"item_id": "i1", "claim": found, "status": "Confirmed"}
    for operator, sent in (
        ("compare-claims", body(incumbent=found, incoming=found)),
        ("update-memory", body(incoming=found, items=[held])),
    ):
        assert asking.post(ONE + operator, json=sent).json()["outcome"] == "valid"


def test_a_batch_may_mix_adapters_and_schemas() -> None:
    model = scripted()
    sent, expected = [], []
    for number in range(24):
        schema, slot, value = (SCHEMA, "port", str(8000 + number)) if number % 3 else (SHOP, "db", "pg")
        who = TWO_STAGE if number % 2 else EXTRACT
        sent.append(extract_body(f"It has {slot} {value}.", schema, adapter=who.name))
        expected.append((who.name, PAIRS[slot], value))
    with client(model) as asking:
        answers = asking.post(f"{ONE}extract-state/batch", json={"items": sent}).json()["answers"]
    found = [
        (answer["adapter"], f"{one['entity']}.{one['slot']}", one["value"])
        for answer in answers
        for one in answer["claims"]
    ]
    assert found == expected
    assert {request.adapter for request in model.asked} == {EXTRACT.name, TWO_STAGE.name}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("batch", [False, True])
def test_an_adapter_that_cannot_answer_is_not_found(
    asking: TestClient, operator: str, *, batch: bool
) -> None:
    other = UPDATE if operator == "extract-state" else EXTRACT
    path = f"{ONE}{operator}{'/batch' if batch else ''}"
    for name, says in ("nobody", "no adapter 'nobody'"), (other.name, "trained for"):
        sent = BODIES[operator] | {"adapter": name}
        reply = asking.post(path, json={"items": [BODIES[operator], sent]} if batch else sent)
        assert reply.status_code == 404
        assert says in reply.json()["error"]
    unknown = asking.post(ONE + operator, json=BODIES[operator] | {"adapter": "nobody"}).json()
    assert EXTRACT.name in unknown["hint"]


def test_where_several_could_answer_the_request_or_the_holdout_says_who() -> None:
    with client(registry=replace(REGISTRY, holdout=None)) as asking:
        reply = asking.post(ONE + "compare-claims", json=BODIES["compare-claims"])
        assert reply.status_code == 404
        assert all(one.name in str(reply.json()) for one in (COMPARE, COMPARE_TWO))
        named = BODIES["compare-claims"] | {"adapter": COMPARE_TWO.name}
        assert asking.post(ONE + "compare-claims", json=named).json()["adapter"] == COMPARE_TWO.name
    with client(registry=Registry(REGISTRY.adapters, "two")) as asking:
        reply = asking.post(ONE + "compare-claims", json=BODIES["compare-claims"])
        assert reply.json()["adapter"] == COMPARE_TWO.name
    with client(registry=Registry((EXTRACT,))) as asking:
        reply = asking.post(ONE + "compare-claims", json=BODIES["compare-claims"])
        assert (reply.status_code, "no adapter for" in reply.text) == (404, True)


@pytest.mark.parametrize(("operator", "sent", "says"), FAULTY)
def test_claims_and_items_that_do_not_fit_are_named(
    asking: TestClient, operator: str, sent: Json, says: str
) -> None:
    alone = asking.post(ONE + operator, json=sent)
    beside = asking.post(f"{ONE}{operator}/batch", json={"items": [BODIES[operator], sent]})
    assert (alone.status_code, beside.status_code) == (422, 422)
    assert says in alone.json()["error"]
    assert says in beside.json()["error"]


SECRET = "what-was-sent"


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_unknown_field_is_named_and_what_was_sent_is_not_repeated(
    asking: TestClient, operator: str
) -> None:
    sent = BODIES[operator] | {"extra": SECRET}
    for path, content in (operator, sent), (f"{operator}/batch", {"items": [BODIES[operator], sent]}):
        reply = asking.post(ONE + path, json=content)
        assert (reply.status_code, set(reply.json())) == (422, {"error", "hint"})
        assert "extra" in reply.json()["error"]
        assert SECRET not in reply.text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"note": None}, "note"),
        ({"note": SECRET}, "note"),
        ({"note": {"text": SECRET}}, "note.source_id"),
        ({"schema": {"entities": []}}, "schema.entities"),
        ({"schema": SECRET}, "schema"),
        ({"adapter": [SECRET]}, "adapter"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(asking: TestClient, changes: Json, field: str) -> None:
    reply = asking.post(ONE + "extract-state", json=BODIES["extract-state"] | changes)
    assert reply.status_code == 422
    assert reply.json()["error"].startswith(f"{field}: ")
    assert SECRET not in reply.text


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded", ""])
def test_what_is_no_json_is_refused_with_a_fault(asking: TestClient, kind: str) -> None:
    content = b'{"schema": ' if kind == "application/json" else json.dumps(BODIES["extract-state"]).encode()
    reply = asking.post(ONE + "extract-state", content=content, headers={"content-type": kind})
    assert (reply.status_code, set(reply.json())) == (422, {"error", "hint"})


@pytest.mark.parametrize("items", [[], [BODIES["extract-state"]] * 257])
def test_a_batch_has_one_to_256_items(asking: TestClient, items: Sequence[Json]) -> None:
    reply = asking.post(f"{ONE}extract-state/batch", json={"items": list(items)})
    assert (reply.status_code, "items" in reply.json()["error"]) == (422, True)


def test_a_body_over_the_limit_is_refused_whether_its_length_is_announced_or_not() -> None:
    content = json.dumps(extract_body("port 8080 " * 200)).encode()
    parts = [content[start : start + 500] for start in range(0, len(content), 500)]
    for limit, expected in (len(content) - 1, 413), (len(content), 200):
        with service(max_bytes=limit) as running, listening(running.app) as port:
            for sent, headers in (content, {}), (iter(parts), {"Transfer-Encoding": "chunked"}):
                assert posted(port, sent, headers)[0] == expected


PATHS = [
    ("GET", "/v1/operators"), ("GET", "/metrics"), ("GET", "/docs"), ("GET", "/openapi.json"),
    ("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/nothing"),
    *(("POST", ONE + operator + more) for operator in OPERATORS for more in ("", "/batch")),
]  # fmt: skip


def test_everything_but_health_is_behind_the_token() -> None:
    with client(token=TOKEN) as asking:
        for given in None, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, "Basic x", "Bearer schlüssel":
            headers = {b"authorization": given.encode()} if given else {}
            for method, path in PATHS:
                reply = asking.request(method, path, headers=headers, json=BODIES["extract-state"])
                assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert asking.get("/healthz").status_code == 200
        right = {"authorization": f"Bearer {TOKEN}"}
        statuses = {
            asking.request(method, path, headers=right, json={}).status_code for method, path in PATHS
        }
        assert statuses == {200, 404, 422}


def test_the_token_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = ""
    with client(token=TOKEN) as asking:
        for headers in {}, {"authorization": f"Bearer {TOKEN}"}, {"authorization": f"Bearer {TOKEN}x"}:
            for method, path in PATHS:
                reply = asking.request(method, path, headers=headers, json=BODIES["extract-state"])
                told += f"{reply.headers}{reply.text}"
    with service(token=TOKEN) as running, listening(running.app) as port:
        content = json.dumps(BODIES["extract-state"]).encode()
        assert posted(port, content, {"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert "uvicorn.access" in {record.name for record in caplog.records}
    assert "latticemind_requests" in told
    assert TOKEN not in told + caplog.text


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_model_that_never_answers_makes_503_in_time(operator: str) -> None:
    model = Silent()
    with client(model, timeout_s=0.5) as asking:
        for path, sent in (operator, BODIES[operator]), (f"{operator}/batch", {"items": [BODIES[operator]]}):
            start = time.monotonic()
            reply = asking.post(ONE + path, json=sent)
            assert (reply.status_code, "within 0.5 s" in reply.json()["error"]) == (503, True)
            assert time.monotonic() - start < 10
        figures = _figures(asking)
        model.let_go.set()
        assert asking.post(ONE + operator, json=BODIES[operator]).status_code == 200
    assert figures[f'requests_total{{operator="{operator}",status="503"}}'] == 2
    assert figures[f'in_flight{{operator="{operator}"}}'] == 0


def test_health_is_200_exactly_while_the_engine_is_ready() -> None:
    with client(engine=Starting(scripted(), batch_size=1, timeout_s=1)) as asking:
        reply = asking.get("/healthz")
        assert (reply.status_code, reply.json()["detail"]) == (503, "reading weights")
    with service() as running, TestClient(running.app) as asking:
        assert (asking.get("/healthz").status_code, asking.get("/healthz").json()["status"]) == (200, "ready")
        running.engine.close()
        reply = asking.get("/healthz")
        assert (reply.status_code, reply.json()["status"]) == (503, "unavailable")
        assert reply.json()["detail"]
        answer = asking.post(ONE + "extract-state", json=BODIES["extract-state"])
        assert (answer.status_code, answer.json()["outcome"]) == (503, "unavailable")


def _figures(asking: TestClient) -> dict[str, float]:
    text = asking.get("/metrics").text
    return {
        name: float(value) for name, value in re.findall(r"^latticemind_(\S+) (\S+)$", text, re.MULTILINE)
    }


def test_metrics_count_requests_outcomes_and_latency_and_nothing_stays_under_way(asking: TestClient) -> None:
    for operator, sent, kind in ASKED:
        if (operator, kind) != ("compare-claims", "unavailable"):
            asking.post(ONE + operator, json=sent)
    notes = [one for operator, one, _ in ASKED if operator == "extract-state"]
    asking.post(f"{ONE}extract-state/batch", json={"items": notes})
    asking.post(f"{ONE}extract-state", json=BODIES["extract-state"] | {"adapter": "nobody"})
    asking.post(f"{ONE}update-memory", json=body(incoming=LACKING))
    figures = _figures(asking)
    counts = {("extract-state", "404"): 1, ("compare-claims", "200"): 3, ("update-memory", "422"): 1}
    for (operator, status), count in counts.items():
        assert figures[f'requests_total{{operator="{operator}",status="{status}"}}'] == count
    for kind, count in {"valid": 2, "empty": 4, "malformed": 2, "truncated": 2, "unavailable": 2}.items():
        assert figures[f'outcomes_total{{kind="{kind}",operator="extract-state"}}'] == count
    assert figures['latency_seconds_count{operator="extract-state"}'] == 8
    assert {value for name, value in figures.items() if name.startswith("in_flight")} == {0}
    assert figures["queue"] == 0


def test_a_single_request_that_nobody_answered_counts_as_503(asking: TestClient) -> None:
    asking.post(ONE + "extract-state", json=extract_body("unavailable"))
    assert _figures(asking)['requests_total{operator="extract-state",status="503"}'] == 1


def test_operators_are_listed_with_their_adapters(asking: TestClient) -> None:
    listed = {one["operator"]: one for one in asking.get("/v1/operators").json()}
    assert {operator: one["default"] for operator, one in listed.items()} == {
        operator: one.name for operator, one in OPERATORS.items()
    }
    direct, two_stage = listed["extract-state"]["adapters"]
    assert (direct["holdout"], direct["threshold"], direct["scores"]) == ("one", None, {})
    assert (two_stage["holdout"], two_stage["threshold"]) == ("two", 0.6)
    assert two_stage["scores"] == {"threshold": 0.6, "f1": 0.9}
    card = TWO_STAGE.card
    assert [two_stage[field] for field in ("base", "revision", "prompt_version")] == [
        card.base.id, card.base.revision, card.prompt_version,
    ]  # fmt: skip
    with client(registry=replace(REGISTRY, holdout=None)) as undecided:
        defaults = {one["operator"]: one["default"] for one in undecided.get("/v1/operators").json()}
    assert defaults == {"extract-state": None, "compare-claims": None, "update-memory": UPDATE.name}


@pytest.mark.parametrize("operator", OPERATORS)
def test_text_that_is_no_unicode_costs_only_the_one_who_sent_it(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    sent = json.dumps(BODIES[operator]).replace("8080", "8080\\ud800")
    with client(Tokenizing()) as asking:
        headers = {"content-type": "application/json"}
        assert asking.post(ONE + operator, content=sent.encode(), headers=headers).status_code < 500
        assert asking.get("/healthz").status_code == 200
        assert asking.post(ONE + operator, json=BODIES[operator]).json()["outcome"] == "valid"
