"""The HTTP service: typed endpoints of the three operators, health, metrics, the engine's OpenAI route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from operators.errors import ConfigError, EndpointError, LatticeMindError, UserError
from operators.outcome import OutcomeKind
from serving.guard import Guard
from serving.meter import Meter
from serving.service import Service
from serving.wire import (
    Answer,
    Answers,
    Batch,
    CompareAnswer,
    CompareBody,
    ExtractAnswer,
    ExtractBody,
    Fault,
    Health,
    OperatorInfo,
    UpdateAnswer,
    UpdateBody,
)

B = TypeVar("B")
A = TypeVar("A", bound=Answer)
THREADS = 256
"""Requests that are answered at once; others wait."""

MAX_BYTES = 4 * 2**20
FAULTS: dict[int | str, dict[str, object]] = {
    401: {"model": Fault}, 404: {"model": Fault}, 413: {"model": Fault}, 422: {"model": Fault},
}  # fmt: skip


def build_app(
    service: Service,
    *,
    openai: APIRouter,
    token: str | None = None,
    timeout_s: float = 120.0,
    max_bytes: int = MAX_BYTES,
) -> FastAPI:
    """The service as an ASGI app. `timeout_s` bounds a request from its last byte to its answer."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield

    app = FastAPI(
        title="LatticeMind operators", version="1", lifespan=lifespan, docs_url="/docs", redoc_url=None,
        description=__doc__,
    )  # fmt: skip
    meter = Meter(service.engine.waiting)
    app.include_router(_operators(service, _Asking(meter, timeout_s)))
    app.include_router(_looking(service, meter))
    app.include_router(openai)
    app.add_middleware(Guard, token=token, max_bytes=max_bytes)
    app.add_exception_handler(LatticeMindError, _fault)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unread)
    return app


class _Asking:
    """Runs an operator in a thread, within the time there is, and counts what came of it."""

    def __init__(self, meter: Meter, timeout_s: float) -> None:
        self.meter, self.timeout_s = meter, timeout_s

    async def many(
        self,
        operator: str,
        work: Callable[[Sequence[B]], list[A]],
        bodies: Sequence[B],
        *,
        single: bool = False,
    ) -> list[A]:
        """The answers in order; a `single` one that the engine did not give counts as 503.

        Raises: what the operator raises, EndpointError after the time.
        """
        status = 500
        found: list[A] = []
        try:
            with self.meter.watch(operator), anyio.fail_after(self.timeout_s):
                found = await anyio.to_thread.run_sync(partial(work, bodies), abandon_on_cancel=True)
            status = 503 if single and found[0].outcome is OutcomeKind.UNAVAILABLE else 200
        except TimeoutError:
            status = 503
            raise EndpointError(f"no answer within {self.timeout_s:g} s", hint="send less, or wait") from None
        except LatticeMindError as fault:
            status = _status(fault)
            raise
        finally:
            self.meter.count(operator, status, found)
        return found

    async def one(
        self, operator: str, work: Callable[[Sequence[B]], list[A]], body: B, response: Response
    ) -> A:
        """The answer; 503 beside it when the engine gave none."""
        (answer,) = await self.many(operator, work, [body], single=True)
        if answer.outcome is OutcomeKind.UNAVAILABLE:
            response.status_code = 503
        return answer


def _operators(service: Service, asking: _Asking) -> APIRouter:
    """Single and batch of each operator: 200 whatever the outcome is, 503 when the engine is away."""
    router = APIRouter(prefix="/v1/operators", tags=["operators"], responses={**FAULTS, 503: {}})

    @router.get("")
    def operators() -> list[OperatorInfo]:
        """Which adapter answers for which operator: base, prompt version, holdout, scores."""
        return service.operators()

    @router.post("/extract-state", responses={503: {"model": ExtractAnswer}})
    async def extract(body: ExtractBody, response: Response) -> ExtractAnswer:
        """The claims that a note makes, under the schema's names."""
        return await asking.one("extract-state", service.extract, body, response)

    @router.post("/extract-state/batch")
    async def extract_batch(body: Batch[ExtractBody]) -> Answers[ExtractAnswer]:
        """Many notes, answered side by side."""
        return Answers(answers=await asking.many("extract-state", service.extract, body.items))

    @router.post("/compare-claims", responses={503: {"model": CompareAnswer}})
    async def compare(body: CompareBody, response: Response) -> CompareAnswer:
        """How the incoming claim stands to the incumbent, and which of them holds."""
        return await asking.one("compare-claims", service.compare, body, response)

    @router.post("/compare-claims/batch")
    async def compare_batch(body: Batch[CompareBody]) -> Answers[CompareAnswer]:
        """Many pairs, answered side by side."""
        return Answers(answers=await asking.many("compare-claims", service.compare, body.items))

    @router.post("/update-memory", responses={503: {"model": UpdateAnswer}})
    async def update(body: UpdateBody, response: Response) -> UpdateAnswer:
        """What to do with a claim, given its key's live items."""
        return await asking.one("update-memory", service.update, body, response)

    @router.post("/update-memory/batch")
    async def update_batch(body: Batch[UpdateBody]) -> Answers[UpdateAnswer]:
        """Many claims, each with its own key's items."""
        return Answers(answers=await asking.many("update-memory", service.update, body.items))

    return router


def _looking(service: Service, meter: Meter) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz", responses={503: {"model": Health}})
    def healthz(response: Response) -> Health:
        """200 exactly when the engine can answer now; needs no token."""
        found = service.engine.health()
        if found.status != "ready":
            response.status_code = 503
        return found

    @router.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """Prometheus' text form."""
        return Response(meter.text(), media_type="text/plain; version=0.0.4")

    return router


def _status(fault: LatticeMindError) -> int:
    if isinstance(fault, EndpointError):
        return 503
    if isinstance(fault, ConfigError):
        return 404
    return 422 if isinstance(fault, UserError) else 500


def _fault(_: Request, fault: Exception) -> JSONResponse:
    assert isinstance(fault, LatticeMindError)
    return JSONResponse({"error": str(fault), "hint": fault.hint}, _status(fault))


def _invalid(_: Request, fault: Exception) -> JSONResponse:
    """Which field is wrong, and how; what was sent is not repeated."""
    assert isinstance(fault, RequestValidationError)
    first = fault.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part != "body")
    error = f"{field}: {first['msg']}" if field else str(first["msg"])
    return JSONResponse({"error": error, "hint": "see /docs"}, 422)


def _unread(_: Request, fault: Exception) -> JSONResponse:
    """What FastAPI itself refuses: JSON that it cannot parse, an unknown path, another method."""
    assert isinstance(fault, HTTPException)
    return JSONResponse({"error": str(fault.detail), "hint": "see /docs"}, fault.status_code, fault.headers)
