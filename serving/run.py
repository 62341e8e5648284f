"""Bringing a service up and down: the socket first, then the engine and its checks, then the requests."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import uvicorn
from fastapi import FastAPI

from operators.assembly import local_model
from operators.errors import ConfigError, EndpointError
from operators.models.bases import FoundBase
from operators.models.endpoint import TOKEN_VARIABLE, EndpointModel, checked_token, is_loopback
from serving.checks import check_answers, check_models, check_tokens
from serving.local_engine import LocalEngine
from serving.registry import Registry
from serving.vllm_command import VllmCommand
from serving.vllm_engine import VllmEngine

Progress = Callable[[str], None]


def read_token(file: Path | None) -> str | None:
    """The bearer token: what a file holds, else $LATTICEMIND_TOKEN. Raises: ConfigError for a bad file."""
    if file is None:
        return checked_token(os.environ.get(TOKEN_VARIABLE) or None)
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(
            f"{file} cannot be read ({fault})", hint="give a file that holds the token"
        ) from fault
    return checked_token(token)


def refuse_open_door(host: str, token: str | None) -> None:
    """Raises: ConfigError for a service that others reach and that asks nobody who he is."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no token",
            hint=f"set ${TOKEN_VARIABLE}, give --token-file, or listen on 127.0.0.1",
        )


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket, so that a taken port is known before a model is loaded. Raises: ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named asyncio turns Nagle's delay off: without it every answer waits 40 ms for an ACK.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as fault:
        bound.close()
        raise ConfigError(f"{host}:{port} cannot be used ({fault.strerror})", hint="choose --port") from fault
    return bound


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def local_engine(
    registry: Registry, base: FoundBase, *, batch_size: int, timeout_s: float, progress: Progress
) -> LocalEngine:
    """The base and all adapters in this process, checked. Raises: ConfigError, EndpointError."""
    progress("loading the model")
    identity = f"{base.card.id}@{base.card.revision}"
    folders = {adapter.name: adapter.folder for adapter in registry.adapters}
    model = local_model(base.path, identity=identity, adapters=folders, batch_size=batch_size)
    progress("checking every adapter")
    check_answers(model, registry)
    return LocalEngine(model, batch_size=batch_size, timeout_s=timeout_s)


def vllm_engine(
    registry: Registry,
    command: VllmCommand,
    *,
    url: str,
    log: Path,
    token: str | None,
    start_timeout_s: float,
    timeout_s: float,
    concurrency: int,
    progress: Progress,
) -> VllmEngine:
    """A vLLM server that has started and passed its checks. Raises: EndpointError."""

    def check(model: EndpointModel) -> None:
        check_models(model.models(), registry)
        check_prompts(url, registry, token=token)
        check_answers(model, registry)

    engine = VllmEngine(
        command, url=url, log=log, check=check, token=token, start_timeout_s=start_timeout_s,
        timeout_s=timeout_s, concurrency=concurrency,
    )  # fmt: skip
    engine.start(progress)
    return engine


def check_prompts(url: str, registry: Registry, *, token: str | None) -> None:
    """The server's tokenizer and template make of each adapter's first canary what training made of it.

    Raises: EndpointError.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for adapter in registry.adapters:
        for canary in adapter.card.canaries[:1]:
            asked = {"model": adapter.name, "messages": list(canary.messages), "add_generation_prompt": True}
            try:
                reply = httpx2.post(
                    f"{url}/tokenize", json=asked, headers=headers, timeout=60.0, trust_env=False
                )
                reply.raise_for_status()
                tokens = reply.json()["tokens"]
            except (httpx2.HTTPError, ValueError, KeyError) as fault:
                raise EndpointError(f"{url}/tokenize does not answer ({fault})"[:200]) from fault
            check_tokens(canary, tokens, registry.base)


def run_app(app: FastAPI, bound: socket.socket, *, grace_s: float) -> None:
    """Answer requests until SIGTERM or SIGINT; those under way then have `grace_s` to end."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=int(grace_s) or 1
    )
    uvicorn.Server(config).run(sockets=[bound])


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM leaves the block as an exit would, so that what is open is closed."""

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
