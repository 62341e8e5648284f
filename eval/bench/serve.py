"""What the HTTP layer costs, and whether it keeps many clients' answers apart."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from data_builders.gold import gold_cases
from data_builders.trajectory import Trajectory
from operators.adapters import AdapterCard, BaseCard
from operators.errors import EndpointError
from operators.models.endpoint import is_loopback
from operators.models.scripted import ScriptedModel
from operators.models.text import ChoiceRequest, TextRequest
from operators.prompts import prompt_version
from serving.app import build_app
from serving.local_engine import LocalEngine
from serving.openai_route import local_route
from serving.registry import Registry, ServedAdapter
from serving.run import free_port, listening_socket, run_app
from serving.service import OPERATORS, Service
from serving.wire import CompareBody, ExtractBody, UpdateBody

Call = tuple[str, dict[str, Any]]
"""An operator and the body of a request to it."""


@dataclass(frozen=True, slots=True)
class ServeBench:
    """Milliseconds; `overhead` is the median over requests of (HTTP - direct), one client at a time.

    `wrong` counts answers under load that are not what the same request gets alone, `lost` requests without
    an answer. Without a direct side (a server elsewhere) `direct` and `overhead` are None.
    """

    clients: int
    requests: int
    distinct: int
    alone: float
    direct: float | None
    overhead: float | None
    p50: float
    p95: float
    per_second: float
    wrong: int
    lost: int


def serve_calls(trajectory: Trajectory, count: int) -> list[Call]:
    """So many distinct requests of a trajectory's gold cases, the operators in turn."""
    cases = gold_cases(trajectory)
    slots = cases.schema.model_dump(mode="json")
    by_operator: list[list[Call]] = [
        [("extract-state", _body(ExtractBody, slots, note=case.note)) for case in cases.extract],
        [
            ("compare-claims", _body(CompareBody, slots, incumbent=case.incumbent, incoming=case.incoming))
            for case in cases.compare
        ],
        [
            (
                "update-memory",
                _body(
                    UpdateBody,
                    slots,
                    incoming=case.incoming,
                    items=[
                        {"item_id": i.item_id, "claim": i.claim, "status": i.status, "support": i.support}
                        for i in case.items
                    ],
                ),
            )
            for case in cases.update
        ],
    ]
    longest = max(map(len, by_operator))
    mixed = [calls[n] for n in range(longest) for calls in by_operator if n < len(calls)]
    return mixed[:count]


def _body(model: type[Any], slots: dict[str, Any], **fields: object) -> dict[str, Any]:
    found: dict[str, Any] = model.model_validate({"schema": slots, **fields}).model_dump(
        mode="json", by_alias=True
    )
    return found


def run_serve_bench(
    url: str,
    calls: Sequence[Call],
    *,
    requests: int,
    clients: int,
    token: str | None = None,
    direct: Callable[[Call], object] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ServeBench:
    """Every call alone first (that is its right answer), then so many requests from many clients at once.

    Raises: EndpointError where one alone gets no answer.
    """
    settings: dict[str, Any] = {
        "base_url": url, "timeout": 600.0, "trust_env": not is_loopback(urlsplit(url).hostname or ""),
        "headers": {"Authorization": f"Bearer {token}"} if token else {},
    }  # fmt: skip
    progress("one client")
    alone: list[float] = []
    expected: list[object] = []
    with httpx2.Client(**settings) as client:
        for operator, body in calls:
            began = time.perf_counter()
            try:
                reply = client.post(f"/v1/operators/{operator}", json=body).raise_for_status()
            except httpx2.HTTPError as fault:
                raise EndpointError(f"{url}: {operator} is not answered ({fault})") from fault
            alone.append(1000 * (time.perf_counter() - began))
            expected.append(reply.json())
    directly = [_timed(direct, call) for call in calls] if direct else None
    gaps = [a - b for a, b in zip(alone, directly, strict=True)] if directly else None
    progress(f"{clients} clients, {requests:,} requests")
    began = time.perf_counter()
    done = asyncio.run(_load(settings, calls, requests, clients))
    seconds = time.perf_counter() - began
    answered = [(number, took, answer) for number, took, answer in done if answer is not None]
    took = sorted(took for _, took, _ in answered) or [float("nan")]
    return ServeBench(
        clients=clients, requests=requests, distinct=len(calls), alone=statistics.median(alone),
        direct=statistics.median(directly) if directly else None,
        overhead=statistics.median(gaps) if gaps else None,
        p50=statistics.median(took), p95=took[int(0.95 * (len(took) - 1))], per_second=len(done) / seconds,
        wrong=sum(answer != expected[number] for number, _, answer in answered),
        lost=requests - len(answered),
    )  # fmt: skip


async def _load(
    settings: dict[str, Any], calls: Sequence[Call], requests: int, clients: int
) -> list[tuple[int, float, object | None]]:
    """(call, milliseconds, answer) of every request; a client takes the next one when it has its answer."""
    waiting = iter(range(requests))
    done: list[tuple[int, float, object | None]] = []

    async def client() -> None:
        async with httpx2.AsyncClient(**settings) as own:
            for number in waiting:
                operator, body = calls[number % len(calls)]
                began = time.perf_counter()
                try:
                    reply = await own.post(f"/v1/operators/{operator}", json=body)
                    answer = reply.json() if reply.status_code == 200 else None
                except httpx2.HTTPError:
                    answer = None
                done.append((number % len(calls), 1000 * (time.perf_counter() - began), answer))

    await asyncio.gather(*(client() for _ in range(clients)))
    return done


def _timed(work: Callable[[Call], object], call: Call) -> float:
    began = time.perf_counter()
    work(call)
    return 1000 * (time.perf_counter() - began)


def scripted_service() -> Service:
    """The service over a model that answers at once, each request in its own way."""
    base = BaseCard(id="scripted", revision="-", config_hash="-", tokenizer_hash="-")
    adapters = [
        ServedAdapter(
            Path(),
            AdapterCard(
                operator=operator, tasks=(task,), holdout="none", stage="single", parent=None, base=base,
                prompt_version=prompt_version(operator),
                data_hash="-", recipe_hash="-", weights_hash="-", dtype="-",
                config={}, training={}, environment={},
            ),
            {},
        )
        for operator, task in zip(OPERATORS, ("direct", "compare", "update"), strict=True)
    ]  # fmt: skip
    model = ScriptedModel(texts=_scripted, choices=lambda _: "yes", asked=_Nothing())
    return Service(LocalEngine(model, batch_size=32, timeout_s=60.0), Registry(tuple(adapters)))


class _Nothing(list[TextRequest | ChoiceRequest]):
    """Keeps no request: a benchmark asks too many."""

    def __iadd__(self, _: object) -> _Nothing:  # type: ignore[misc,override]
        return self


def _scripted(request: TextRequest) -> str:
    """A legal answer that follows from the prompt's text: what another request gets is another answer."""
    seen = sum(map(ord, request.messages[-1]["content"]))
    schema: Any = request.schema
    fields = schema["properties"]
    if "relation" in fields:
        kinds = fields["relation"]["enum"]
        return json.dumps({"relation": kinds[seen % len(kinds)]})
    if "action" in fields:
        targets = [target for target in fields["target"]["enum"] if target is not None]
        if not targets:
            return json.dumps({"action": "add", "target": None})
        action = ("merge", "supersede", "contest")[seen % 3]
        return json.dumps({"action": action, "target": targets[seen % len(targets)]})
    kinds = fields["claims"]["items"]["anyOf"]
    entry = kinds[seen % len(kinds)]["properties"]
    pairs = entry["pair"]["enum"]
    scopes = {kind: "*" for kind in ("branch", "env") if kind in entry}
    return json.dumps({"claims": [{"pair": pairs[seen % len(pairs)], "value": None, **scopes}]})


def _serve_scripted(port: int) -> None:
    service = scripted_service()
    app = build_app(service, openai=local_route(service.engine.model, service.registry, "scripted"))
    run_app(app, listening_socket("127.0.0.1", port), grace_s=5.0)


@contextmanager
def scripted_server() -> Iterator[str]:
    """The scripted service in a process of its own; gives its address."""
    port = free_port()
    child = multiprocessing.get_context("spawn").Process(target=_serve_scripted, args=(port,), daemon=True)
    child.start()
    url = f"http://127.0.0.1:{port}"
    try:
        while child.is_alive():
            try:
                httpx2.get(f"{url}/healthz", timeout=5.0)
                break
            except httpx2.HTTPError:
                time.sleep(0.1)
        yield url
    finally:
        child.terminate()
        child.join()


def direct_calls() -> Callable[[Call], object]:
    """The same operators in this process, on the model itself: no HTTP, no queue."""
    service = scripted_service()

    def ask(call: Call) -> object:
        operator, body = call
        if operator == "extract-state":
            return service.extract([ExtractBody.model_validate(body)])
        if operator == "compare-claims":
            return service.compare([CompareBody.model_validate(body)])
        return service.update([UpdateBody.model_validate(body)])

    return ask
