"""A scripted model behind the whole service, the bodies it is asked with, and a real server where it matters."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from operators.adapters import AdapterCard, BaseCard
from operators.canaries import Canary
from operators.claims import Relation
from operators.models.scripted import Scores, ScriptedModel, Text
from operators.models.text import ChoiceRequest, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind
from operators.prompts import compare_completion, prompt_version
from operators.schema import SlotSchema
from serving.app import MAX_BYTES, build_app
from serving.local_engine import LocalEngine
from serving.openai_route import local_route
from serving.registry import Registry, ServedAdapter
from serving.run import listening_socket
from serving.service import Engine, Service
from serving.wire import Health
from tests.support_adapters import BASE

Json = dict[str, Any]
SCHEMA = SlotSchema.model_validate(
    {"entities": [{"entity": "api", "slots": [{"slot": "port", "form": "number"}]}]}
)
SHOP = SlotSchema.model_validate(
    {
        "entities": [
            {"entity": "shop", "slots": [{"slot": "db", "form": "enum", "values": {"mysql": [], "pg": []}}]}
        ]
    }
)
PAIRS = {"port": "api.port", "db": "shop.db"}
FAILURES = (OutcomeKind.MALFORMED, OutcomeKind.TRUNCATED, OutcomeKind.UNAVAILABLE)


def says(request: TextRequest) -> Text:
    """What the prompt names: an outcome's kind, or values such as `port 8080` and `db pg`."""
    last = request.messages[-1]["content"]
    for kind in FAILURES:
        if kind.value in last:
            return Outcome(kind, None, f"as scripted: {kind.value}")
    if last.startswith("Incumbent:"):
        return compare_completion(Relation.CONTRADICTS)
    if last.startswith("Incoming:"):
        alone = "(no items)" in last
        return json.dumps({"action": "add" if alone else "supersede", "target": None if alone else "m0"})
    named = re.findall(r"(port|db) (\w+)", last)
    if "\nPairs:" in last:
        return json.dumps({"claims": [{"pair": PAIRS[slot], "value": value} for slot, value in named]})
    quote = last.partition("> ")[2].partition("\n")[0].rstrip(".")
    return json.dumps({"claims": [{"quote": quote, "value": value} for _, value in named]})


def scores(request: ChoiceRequest) -> Scores:
    """Certain to two thirds that a pair with a value in the note is stated."""
    stated = re.search(r"(port|db) \w+", request.messages[-1]["content"])
    return (2, 1) if stated else (1, 2)


def scripted() -> ScriptedModel:
    return ScriptedModel(texts=says, choices=scores)


def adapter(
    operator: str,
    holdout: str = "one",
    *,
    tasks: Sequence[str] = ("direct",),
    canaries: Sequence[Canary] = (),
    base: BaseCard = BASE,
    **measured: object,
) -> ServedAdapter:
    """An adapter that is only a card; `measured` is what an evaluation wrote of it."""
    card = AdapterCard(
        operator=operator, tasks=tuple(tasks), holdout=holdout, stage="fold", parent=None, base=base,
        prompt_version=prompt_version(operator), data_hash="d", recipe_hash="r", weights_hash="w", dtype="float32",
        config={}, training={}, environment={}, canaries=tuple(canaries),
    )  # fmt: skip
    return ServedAdapter(Path("nowhere"), card, measured)


EXTRACT = adapter("extract-state")
TWO_STAGE = adapter("extract-state", "two", tasks=("select", "fill"), threshold=0.6, f1=0.9)
COMPARE = adapter("compare-claims", tasks=("compare",))
COMPARE_TWO = adapter("compare-claims", "two", tasks=("compare",))
UPDATE = adapter("update-memory", tasks=("update",))
REGISTRY = Registry((EXTRACT, TWO_STAGE, COMPARE, COMPARE_TWO, UPDATE), "one")


class Silent:
    """A model that answers nothing until it is let go."""

    identity = "silent"

    def __init__(self) -> None:
        self.let_go = Event()

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        assert self.let_go.wait(20)
        return scripted().complete(requests)

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        assert self.let_go.wait(20)
        return scripted().choose(requests)


class Tokenizing(ScriptedModel):
    """Takes no lone surrogate, as no tokenizer does."""

    def __init__(self) -> None:
        super().__init__(texts=says, choices=scores)

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        for request in requests:
            if "\ud800" in request.messages[-1]["content"]:
                raise TypeError("TextEncodeInput must be Union[TextInputSequence, ...]")
        return super().complete(requests)


class Starting(LocalEngine):
    def health(self) -> Health:
        return Health(status="starting", detail="reading weights")


@dataclass(frozen=True, slots=True)
class Running:
    """The service under test, and the engine behind it."""

    app: FastAPI
    engine: Engine


@contextmanager
def service(
    model: TextModel | None = None,
    *,
    engine: Engine | None = None,
    registry: Registry = REGISTRY,
    token: str | None = None,
    timeout_s: float = 30.0,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Running]:
    """The whole service over a model of this process; its thread ends with the block."""
    used: Engine = engine or LocalEngine(model or scripted(), batch_size=32, timeout_s=30.0)
    route = local_route(used.model, registry, registry.base.id)
    app = build_app(
        Service(used, registry), openai=route, token=token, timeout_s=timeout_s, max_bytes=max_bytes
    )
    try:
        yield Running(app, used)
    finally:
        used.close()


@contextmanager
def client(model: TextModel | None = None, **settings: Any) -> Iterator[TestClient]:
    """As `service`, asked without a wire; a fault of the server is a 500, as its clients see it."""
    with (
        service(model, **settings) as running,
        TestClient(running.app, raise_server_exceptions=False) as found,
    ):
        yield found


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """A real server on a port of its own, which it gives."""
    bound = listening_socket("127.0.0.1", 0)
    port: int = bound.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="debug", ws="none"))
    thread = Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
            assert thread.is_alive()
        yield port
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def note(text: str) -> Json:
    return {
        "source_id": "s1", "text": text, "observed_at": "2026-01-02T00:00:00Z",
        "evidence_type": "human-note",
    }  # fmt: skip


def claim(value: str | None, where: str = "api.port", *, day: int = 1, kind: str = "human-note") -> Json:
    entity, _, slot = where.partition(".")
    evidence = {"type": kind, "source": f"note-{day}"}
    timestamp = f"2026-01-{day:02}T00:00:00Z"
    return {"entity": entity, "slot": slot, "value": value, "evidence": evidence, "timestamp": timestamp}


def item(value: str, status: str = "Confirmed", *, name: str = "i1", where: str = "api.port") -> Json:
    return {"item_id": name, "claim": claim(value, where), "status": status}


def body(schema: SlotSchema = SCHEMA, **fields: Any) -> Json:
    return {"schema": schema.model_dump(mode="json"), **fields}


def extract_body(text: str, schema: SlotSchema = SCHEMA, **more: Any) -> Json:
    return body(schema, note=note(text), **more)


def compare_body(old: str, new: str, **more: Any) -> Json:
    return body(incumbent=claim(old), incoming=claim(new, day=2), **more)


def update_body(new: str, *items: Json, **more: Any) -> Json:
    return body(incoming=claim(new, day=2), items=list(items), **more)


def posted(port: int, content: Any, headers: dict[str, str]) -> tuple[int, Json]:
    """Over a connection of its own, for each length that a client may announce."""
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    kind = {"Content-Type": "application/json"}
    wire.request(
        "POST", ONE + "extract-state", content, kind | headers,
        encode_chunked="Transfer-Encoding" in headers,
    )  # fmt: skip
    reply = wire.getresponse()
    found = reply.status, json.loads(reply.read())
    wire.close()
    return found


ONE = "/v1/operators/"
OPERATORS = {"extract-state": EXTRACT, "compare-claims": COMPARE, "update-memory": UPDATE}
BODIES: dict[str, Json] = {
    "extract-state": extract_body("The api is on port 8080."),
    "compare-claims": compare_body("8080", "9090"),
    "update-memory": update_body("9090", item("8080")),
}
ASKED = [
    ("extract-state", extract_body("The api is on port 8080."), "valid"),
    ("extract-state", extract_body("Nobody knows."), "empty"),
    ("extract-state", extract_body(" "), "empty"),
    ("extract-state", extract_body("The port is malformed."), "malformed"),
    ("extract-state", extract_body("The port is truncated."), "truncated"),
    ("extract-state", extract_body("The port is unavailable."), "unavailable"),
    ("compare-claims", compare_body("8080", "9090"), "valid"),
    ("compare-claims", compare_body("8080", "malformed"), "malformed"),
    ("compare-claims", compare_body("8080", "truncated"), "truncated"),
    ("compare-claims", compare_body("8080", "unavailable"), "unavailable"),
    ("update-memory", update_body("8080"), "valid"),
    ("update-memory", update_body("9090", item("8080")), "valid"),
    ("update-memory", update_body("malformed", item("8080")), "malformed"),
    ("update-memory", update_body("truncated", item("8080")), "truncated"),
    ("update-memory", update_body("unavailable", item("8080")), "unavailable"),
]
VALUES = {"extract-state": "claims", "compare-claims": "relation", "update-memory": "decision"}
LACKING = claim("x", "api.host", day=2)
FAULTY = [
    ("compare-claims", body(incumbent=LACKING, incoming=LACKING), "no slot api.host"),
    ("update-memory", body(incoming=LACKING), "no slot api.host"),
    ("update-memory", update_body("1", item("2"), item("3", name="i2")), "at most one Confirmed"),
    ("update-memory", update_body("1", item("mysql", where="shop.db") | {"item_id": "odd"}), "no slot"),
    ("update-memory", update_body("1", item("8"), item("8.0", "Contested", name="twin")), "item twin has"),
    (
        "update-memory",
        body(SHOP, incoming=claim("8080"), items=[item("pg", where="shop.db", name="odd")]),
        "item odd is of shop.db, not api.port",
    ),
    ("compare-claims", body(incumbent=LACKING, incoming=claim("8080")), "no slot api.host"),
    ("update-memory", update_body("1", item("2", "Contested"), item("3", "Contested")), "i1"),
]
