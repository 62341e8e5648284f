"""A model behind an OpenAI-compatible server: vLLM, `latticemind serve`, or another."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from threading import Lock, Thread
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai

from operators.errors import ConfigError, EndpointError, InputError
from operators.models.replies import ChatReply, Choice, ModelList, ServedModel, probabilities
from operators.models.text import ChoiceRequest, TextRequest, checked
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import Message

R = TypeVar("R", TextRequest, ChoiceRequest)
T = TypeVar("T")

TOKEN_VARIABLE = "LATTICEMIND_TOKEN"
"""Environment variable with the bearer token, of clients and of `serve`."""

CLOSED: Outcome[Any] = Outcome(OutcomeKind.UNAVAILABLE, None, "closed before the answer came")
CLOSING_S = 5.0
"""For calls to come to an end once they have been told to."""

TOP_LOGPROBS = 20
"""What vLLM and OpenAI give at most: a choice that is not among them counts as impossible."""

EXACT_SAMPLING: dict[str, Any] = {
    "temperature": 0.0, "top_p": 1.0, "seed": 0, "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip
"""Said in every request: a server takes what is left out from the base's generation_config (T44)."""


class EndpointModel:
    """Asks a server, so many requests at a time, and trusts none of its answers unchecked.

    `url` is the server's root, or its OpenAI route (with /v1). `base` is the name under which the server has
    the base. `timeout_s` bounds a request with all its retries; what is retried (no connection, 408, 409,
    429, 5xx) and how long it waits is the openai client's affair. Usable from several threads; `close` ends
    its connections.
    """

    def __init__(
        self,
        url: str,
        *,
        base: str,
        identity: str | None = None,
        token: str | None = None,
        timeout_s: float = 120.0,
        concurrency: int = 32,
        retries: int = 2,
    ) -> None:
        """Raises: ConfigError for an address or a token that no request can have, or no time or turns."""
        if timeout_s <= 0 or concurrency < 1 or retries < 0:
            raise ConfigError("a request needs time and a turn", hint="timeout and concurrency over 0")
        self.url, self.base, self.identity = openai_url(url), base, identity or base
        self.timeout_s = timeout_s
        self._token = checked_token(token)
        # A proxy of the surroundings is for servers elsewhere.
        here = is_loopback(urlsplit(self.url).hostname or "")
        self._client = openai.AsyncOpenAI(
            base_url=self.url, api_key=self._token or "none", timeout=timeout_s, max_retries=retries,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if here else None,
        )  # fmt: skip
        self._turns = asyncio.Semaphore(concurrency)
        self._asking: set[asyncio.Task[Any]] = set()
        self._closed, self._closing = False, Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def __enter__(self) -> EndpointModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections; whoever still waits gets `unavailable`. Closing again does nothing."""
        with self._closing:  # what was submitted before this is ended below, nothing is after it
            if self._closed:
                return
            self._closed = True
            ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """One outcome a request, in order.

        Raises: ConfigError for a refused token or an unknown model, InputError for a request that the server
        refuses (a prompt over its context), EndpointError when another model answers.
        """
        return self._ask_all(requests, self._complete)

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """For each request, in order, the probability of each of its choices among them.

        Read off the first token of the answer; malformed where it does not tell the choices apart. Raises: as
        `complete`.
        """
        return self._ask_all(requests, self._choose)

    def models(self) -> tuple[ServedModel, ...]:
        """What the server says it serves.

        Raises: EndpointError when it does not answer or this is closed, ConfigError for a refused token.
        """
        asked = self._submitted(self._models())
        if asked is None:
            raise EndpointError(f"{self.url}: {CLOSED.detail}")
        try:
            return asked.result()
        except CancelledError:
            raise EndpointError(f"{self.url}: {CLOSED.detail}") from None
        except (openai.AuthenticationError, openai.PermissionDeniedError) as fault:
            raise self._refused_token() from fault
        except (openai.OpenAIError, TimeoutError, ValueError) as fault:
            what = f"{self.url} lists no models ({self._line(fault)})"
            raise EndpointError(what, hint="is a server up there?") from fault

    async def _models(self) -> tuple[ServedModel, ...]:
        async with asyncio.timeout(self.timeout_s):
            raw = await self._client.models.with_raw_response.list()
        return ModelList.model_validate_json(raw.content).data

    def _submitted(self, work: Coroutine[Any, Any, T]) -> Future[T] | None:
        """The work on this model's own loop; None once it is closed."""
        with self._closing:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        return None

    async def _end(self) -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()} - self._asking
        for task in self._asking:
            task.cancel()
        if calls:
            _, late = await asyncio.wait(calls, timeout=CLOSING_S)
            for task in late:  # a list of models, and nothing else
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.close()

    def _ask_all(self, requests: Sequence[R], ask: Callable[[R], Awaitable[Outcome[T]]]) -> list[Outcome[T]]:
        asked = self._submitted(self._all(requests, ask))
        return asked.result() if asked is not None else [CLOSED for _ in requests]

    async def _all(
        self, requests: Sequence[R], ask: Callable[[R], Awaitable[Outcome[T]]]
    ) -> list[Outcome[T]]:
        """Every outcome in order; the first error stops the others, `close` makes them unavailable."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._in_turn(request, ask)) for request in requests]
                self._asking.update(tasks)
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        finally:
            self._asking.difference_update(tasks)
        return [CLOSED if task.cancelled() else task.result() for task in tasks]

    async def _in_turn(self, request: R, ask: Callable[[R], Awaitable[Outcome[T]]]) -> Outcome[T]:
        async with self._turns:
            return await ask(request)

    async def _complete(self, request: TextRequest) -> Outcome[str]:
        answer = await self._ask(
            request.messages, request.adapter, max_tokens=request.max_tokens, extra=_under(request)
        )
        if answer.value is None:
            return Outcome(answer.kind, None, answer.detail)
        if answer.value.finish_reason == "length":
            return Outcome(OutcomeKind.TRUNCATED, None, f"no end within {request.max_tokens} tokens")
        text = answer.value.message.content
        if answer.value.finish_reason != "stop" or text is None:
            return Outcome(OutcomeKind.MALFORMED, None, f"ended by {answer.value.finish_reason!r}")
        return checked(request, text)

    async def _choose(self, request: ChoiceRequest) -> Outcome[tuple[float, ...]]:
        answer = await self._ask(
            request.messages,
            request.adapter,
            max_tokens=1,
            extra={"structured_outputs": {"choice": list(request.choices)}},
            logprobs=True,
            top_logprobs=TOP_LOGPROBS,
        )
        if answer.value is None:
            return Outcome(answer.kind, None, answer.detail)
        return probabilities(request.choices, answer.value)

    async def _ask(
        self,
        messages: Sequence[Message],
        adapter: str | None,
        *,
        max_tokens: int,
        extra: dict[str, Any],
        **also: Any,
    ) -> Outcome[Choice]:
        """One completion by the model that was asked for, or why there is none."""
        wanted = adapter or self.base
        body = {"repetition_penalty": 1.0, **extra}
        try:
            async with asyncio.timeout(self.timeout_s):
                raw = await self._client.chat.completions.with_raw_response.create(
                    model=wanted, messages=list(messages),  # type: ignore[arg-type]
                    max_tokens=max_tokens, extra_body=body, **EXACT_SAMPLING, **also,
                )  # fmt: skip
            reply = ChatReply.model_validate_json(raw.content)
        except TimeoutError:
            return _unavailable(f"no answer within {self.timeout_s:g} s")
        except openai.APIStatusError as fault:
            return self._failed(fault, wanted)
        except openai.OpenAIError as fault:  # no connection, half a body
            return _unavailable(self._line(fault))
        except ValueError:
            return _unavailable("the reply is no chat completion")
        if reply.model != wanted:
            raise EndpointError(
                f"{self.url}: {wanted} was asked for and {self._hidden(reply.model)[:100]} answered (T43)",
                hint="see /v1/models: serve each adapter under its own name, the base under one",
            )
        return valid(reply.choices[0])

    def _failed(self, fault: openai.APIStatusError, wanted: str) -> Outcome[Choice]:
        """Unavailable for what may pass. Raises: for what stays wrong however often it is asked."""
        said = self._line(fault)
        if fault.status_code in (401, 403):
            raise self._refused_token() from None
        if fault.status_code == 404:
            hint = "see its /v1/models"
            raise ConfigError(f"{self.url} has no model {wanted!r} ({said})", hint=hint) from None
        if fault.status_code in (400, 413, 422):
            hint = "shorten the note or its schema"
            raise InputError(f"the server refuses the request: {said}", hint=hint) from None
        return _unavailable(f"status {fault.status_code}: {said}")

    def _refused_token(self) -> ConfigError:
        return ConfigError(f"{self.url} refuses the token", hint=f"set ${TOKEN_VARIABLE} to the server's")

    def _line(self, fault: Exception) -> str:
        """What went wrong in one short line, without the token."""
        return self._hidden(" ".join(str(fault).split()) or type(fault).__name__)[:200]

    def _hidden(self, text: str) -> str:
        return text.replace(self._token, "***") if self._token else text


def openai_url(url: str) -> str:
    """The OpenAI route of a server given by its root or by that route. Raises: ConfigError."""
    plain = url.rstrip("/")
    try:
        parts = urlsplit(plain)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number up to 65535
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is no server's address", hint="write for example http://127.0.0.1:8000")
    return plain if plain.endswith("/v1") else f"{plain}/v1"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_token(token: str | None) -> str | None:
    """The token as a header can carry it. Raises: ConfigError for one that it cannot."""
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(
            "the token is no word of printable ASCII", hint="it may have a line break at its end"
        )
    return token


def _under(request: TextRequest) -> dict[str, Any]:
    """The schema as every OpenAI-compatible server takes it (not `guided_json`, T45)."""
    if request.schema is None:
        return {}
    named = {"name": "answer", "strict": True, "schema": dict(request.schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _unavailable(detail: str) -> Outcome[Choice]:
    return Outcome(OutcomeKind.UNAVAILABLE, None, detail)
