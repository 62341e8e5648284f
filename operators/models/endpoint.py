"""A model behind an OpenAI-compatible server: vLLM, `latticemind serve`, or another."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

import openai
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from operators.errors import ConfigError, EndpointError, InputError
from operators.models.text import ChoiceRequest, TextRequest, checked
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import Message

R = TypeVar("R", TextRequest, ChoiceRequest)
T = TypeVar("T")

TOKEN_VARIABLE = "LATTICEMIND_TOKEN"
"""Environment variable with the bearer token, of clients and of `serve`."""

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
        self.url, self.base, self.identity = openai_url(url), base, identity or base
        self.timeout_s = timeout_s
        self._client = openai.AsyncOpenAI(
            base_url=self.url, api_key=token or "none", timeout=timeout_s, max_retries=retries
        )
        self._turns = asyncio.Semaphore(concurrency)
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
        """End the connections; no request may be under way."""
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """One outcome a request, in order.

        Raises: ConfigError for a refused token or an unknown model, InputError for a request that the server
        refuses (a prompt over its context), EndpointError when another model answers.
        """
        return self._run(self._all(requests, self._complete))

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """For each request, in order, the probability of each of its choices among them.

        Read off the first token of the answer: of two choices that open with one token none can be told, and
        that is malformed. Raises: as `complete`.
        """
        return self._run(self._all(requests, self._choose))

    def models(self) -> list[dict[str, Any]]:
        """What the server says it serves: entries with `id`, and from vLLM `root` and `parent`.

        Raises: EndpointError when it does not answer, ConfigError for a refused token.
        """
        try:
            entries = self._run(self._models())
        except openai.AuthenticationError as fault:
            raise _refused_token(self.url) from fault
        except openai.OpenAIError as fault:
            raise EndpointError(f"{self.url} does not answer ({_line(fault)})", hint="is it up?") from fault
        return entries

    async def _models(self) -> list[dict[str, Any]]:
        return [entry.model_dump() async for entry in self._client.models.list()]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _all(
        self, requests: Sequence[R], ask: Callable[[R], Awaitable[Outcome[T]]]
    ) -> list[Outcome[T]]:
        """Every outcome in order; the first error stops the others."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._in_turn(request, ask)) for request in requests]
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        return [task.result() for task in tasks]

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
        return _probabilities(request.choices, answer.value)

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
                answer: object = await self._client.chat.completions.create(
                    model=wanted, messages=list(messages),  # type: ignore[arg-type]
                    max_tokens=max_tokens, extra_body=body, **EXACT_SAMPLING, **also,
                )  # fmt: skip
        except TimeoutError:
            return _unavailable(f"no answer within {self.timeout_s:g} s")
        except openai.APIStatusError as fault:
            return self._failed(fault, wanted)
        except (openai.OpenAIError, ValueError) as fault:  # no connection, half a body, no JSON
            return _unavailable(_line(fault))
        if not isinstance(answer, ChatCompletion) or not answer.choices:
            return _unavailable("the reply is no chat completion")
        if answer.model != wanted:
            raise EndpointError(
                f"{self.url}: {wanted} was asked for and {answer.model} answered (T43)",
                hint="see /v1/models: serve each adapter under its own name, the base under one",
            )
        return valid(answer.choices[0])

    def _failed(self, fault: openai.APIStatusError, wanted: str) -> Outcome[Choice]:
        """Unavailable for what may pass; Raises: for what stays wrong however often it is asked."""
        if fault.status_code in (401, 403):
            raise _refused_token(self.url) from fault
        if fault.status_code == 404:
            raise ConfigError(
                f"{self.url} has no model {wanted!r} ({_line(fault)})", hint="see its /v1/models"
            ) from fault
        if fault.status_code in (400, 413, 422):
            raise InputError(
                f"the server refuses the request: {_line(fault)}", hint="shorten the note or its schema"
            ) from fault
        return _unavailable(f"status {fault.status_code}: {_line(fault)}")


def openai_url(url: str) -> str:
    """The OpenAI route of a server given by its root or by that route."""
    plain = url.rstrip("/")
    return plain if plain.endswith("/v1") else f"{plain}/v1"


def _under(request: TextRequest) -> dict[str, Any]:
    """The schema as every OpenAI-compatible server takes it (not `guided_json`, T45)."""
    if request.schema is None:
        return {}
    named = {"name": "answer", "strict": True, "schema": dict(request.schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _probabilities(choices: Sequence[str], answer: Choice) -> Outcome[tuple[float, ...]]:
    """The weight of each choice's first token, scaled to sum to 1."""
    tokens = answer.logprobs.content if answer.logprobs else None
    if not tokens:
        return Outcome(OutcomeKind.MALFORMED, None, "the server gave no log-probabilities")
    likely = {candidate.token: math.exp(candidate.logprob) for candidate in tokens[0].top_logprobs}
    weights = [_weight(choice, choices, likely) for choice in choices]
    if not sum(weights) > 0:
        return Outcome(OutcomeKind.MALFORMED, None, f"no likely token tells {', '.join(choices)} apart")
    return valid(tuple(weight / sum(weights) for weight in weights))


def _weight(choice: str, choices: Sequence[str], likely: Mapping[str, float]) -> float:
    """The choice as one token; failing that, what its first letters weigh, if no other choice opens so.

    Under a grammar a server gives weight to such beginnings too ("y", "ye"); a tokenizer never writes them.
    """
    if choice in likely:
        return likely[choice]
    beginnings = (token for token in likely if token and choice.startswith(token))
    return sum(likely[t] for t in beginnings if sum(other.startswith(t) for other in choices) == 1)


def _refused_token(url: str) -> ConfigError:
    return ConfigError(f"{url} refuses the token", hint="set LATTICEMIND_TOKEN to the server's")


def _unavailable(detail: str) -> Outcome[Choice]:
    return Outcome(OutcomeKind.UNAVAILABLE, None, detail)


def _line(fault: Exception) -> str:
    """What went wrong in one short line."""
    return (" ".join(str(fault).split()) or type(fault).__name__)[:200]
