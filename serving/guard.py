"""What every request passes before it is read: the token, and the size of its body."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = frozenset(("/healthz",))
"""Answered without the token: whoever looks after the process asks here."""


@dataclass(frozen=True, slots=True)
class Guard:
    """ASGI middleware. `token` None lets everyone in; `max_bytes` bounds a body, announced or not."""

    app: ASGIApp
    token: str | None
    max_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if not self._lets_in(scope["path"], headers.get(b"authorization", b"")):
            challenge = (b"www-authenticate", b"Bearer")
            await _refuse(send, 401, "a bearer token is needed", "Authorization: Bearer TOKEN", challenge)
            return
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self.max_bytes:
            await self._too_large(send)
            return
        body, whole = await self._read(receive)
        if not whole:
            await self._too_large(send)
            return
        await self.app(scope, _once(body, receive), send)

    def _lets_in(self, path: str, authorization: bytes) -> bool:
        if self.token is None or path in OPEN:
            return True
        return secrets.compare_digest(authorization, b"Bearer " + self.token.encode())

    async def _too_large(self, send: Send) -> None:
        await _refuse(send, 413, f"a body has at most {self.max_bytes:,} bytes", "send smaller batches")

    async def _read(self, receive: Receive) -> tuple[bytes, bool]:
        """The body, and whether it is whole: reading stops at the first byte too many."""
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.max_bytes:
                return b"", False
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return body, True


def _once(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then whatever the client still has to say (that it is gone)."""
    given = False

    async def read() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read


async def _refuse(send: Send, status: int, error: str, hint: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": error, "hint": hint}).encode()
    kind = (b"content-type", b"application/json")
    size = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [kind, size, *headers]})
    await send({"type": "http.response.body", "body": body})
