"""The engine's own OpenAI-compatible route, passed through: one address and one token for everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx2
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.background import BackgroundTask

PASSED = ("/v1/models", "/v1/chat/completions", "/v1/completions", "/tokenize")
_OWN = frozenset(("host", "content-length", "connection", "transfer-encoding"))


def proxy_route(
    url: str, *, timeout_s: float, token: str | None, ready: Callable[[], bool] = lambda: True
) -> APIRouter:
    """Routes that go to the engine at `url` as they come, and stream back what it says; 503 when it is away.

    `ready` says whether it has passed its checks: a server that has not is kept from everyone else.
    Whoever gets here has shown the token already; the engine, which has the same, is shown it again.
    """
    router = APIRouter(tags=["openai"])
    client = httpx2.AsyncClient(base_url=url, timeout=timeout_s, trust_env=False)  # it is on this machine

    async def forward(request: Request) -> Response:
        if not ready():
            return JSONResponse({"error": "the engine is not ready", "hint": "see /healthz"}, 503)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
        headers.setdefault("accept-encoding", "identity")  # what comes is passed on as it is
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        asked = client.build_request(
            request.method,
            request.url.path,
            params=request.query_params,
            headers=headers,
            content=await request.body(),
        )
        try:
            answer = await client.send(asked, stream=True)
        except httpx2.HTTPError as fault:
            error = f"the engine does not answer ({type(fault).__name__})"
            return JSONResponse({"error": error, "hint": "see /healthz"}, 503)
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
        return StreamingResponse(
            _bytes(answer), answer.status_code, kept, background=BackgroundTask(answer.aclose)
        )

    for path in PASSED:
        method = "GET" if path == "/v1/models" else "POST"
        router.add_api_route(path, forward, methods=[method], include_in_schema=False)
    return router


async def _bytes(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """What the engine sends; an engine that goes away midway ends the stream there."""
    async for part in answer.aiter_raw():
        yield part
