"""The OpenAI-compatible route of the local engine: as much of it as the endpoint backend and clients ask."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from operators.errors import EndpointError, InputError
from operators.models.text import ChoiceRequest, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind
from operators.prompts import Message
from serving.registry import Registry
from serving.wire import Fault, unicode_only

T = TypeVar("T")
DEFAULT_TOKENS = 512
SMALLEST = 1e-30
"""Stands for a probability of 0, which has no logarithm."""


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "user", "assistant"]
    content: str


class ChatBody(BaseModel):
    """What is read of a chat request; sampling other than the exact one is refused, the rest is ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1, le=8192)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=8192)
    temperature: float | None = Field(default=0.0, ge=0, le=0, description="This engine is exact: 0 only.")
    n: int | None = Field(default=1, ge=1, le=1)
    stream: Literal[False] | None = False
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    logprobs: bool | None = False

    _unicode = model_validator(mode="before")(unicode_only)


def local_route(model: TextModel, registry: Registry, base_name: str) -> APIRouter:
    """`/v1/models` and `/v1/chat/completions` over a model of this process."""
    router = APIRouter(prefix="/v1", tags=["openai"])

    @router.get("/models")
    def models() -> dict[str, Any]:
        """The base and every adapter, each under the name it answers to."""
        base = {"id": base_name, "object": "model", "created": 0, "owned_by": "latticemind", "parent": None}
        adapters = [base | {"id": adapter.name, "parent": base_name} for adapter in registry.adapters]
        return {"object": "list", "data": [base, *adapters]}

    @router.post(
        "/chat/completions", responses={404: {"model": Fault}, 422: {"model": Fault}, 503: {"model": Fault}}
    )
    def chat(body: ChatBody) -> dict[str, Any]:
        """One exact answer, under a JSON schema or among choices if the request gives them."""
        adapter = None if body.model == base_name else registry.named(body.model).name
        messages: tuple[Message, ...] = tuple({"role": m.role, "content": m.content} for m in body.messages)
        choices = _choices(body)
        if choices:
            (scored,) = model.choose([ChoiceRequest(messages, choices, adapter)])
            return _chosen(body, choices, _answered(scored))
        limit = body.max_tokens or body.max_completion_tokens or DEFAULT_TOKENS
        (answer,) = model.complete([TextRequest(messages, _schema(body), limit, adapter)])
        if answer.kind is OutcomeKind.TRUNCATED:
            return _reply(body, "", "length")
        return _reply(body, _answered(answer), "stop")

    return router


def _choices(body: ChatBody) -> tuple[str, ...]:
    found = (body.structured_outputs or {}).get("choice") or ()
    if not isinstance(found, list | tuple) or not all(isinstance(choice, str) for choice in found):
        raise InputError("structured_outputs.choice is a list of texts", field="structured_outputs.choice")
    return tuple(found)


def _schema(body: ChatBody) -> dict[str, Any] | None:
    """The schema of `response_format` or of vLLM's `structured_outputs`. Raises: InputError for neither."""
    if body.structured_outputs and "json" in body.structured_outputs:
        schema = body.structured_outputs["json"]
    elif body.response_format is None or body.response_format.get("type") == "text":
        return None
    else:
        form = body.response_format.get("json_schema")
        schema = form.get("schema") if isinstance(form, dict) else None
    if not isinstance(schema, dict):
        hint = "give response_format {type: json_schema, json_schema: {name, schema}}"
        raise InputError("the response format holds no JSON schema", field="response_format", hint=hint)
    return schema


def _answered(outcome: Outcome[T]) -> T:
    """Raises: EndpointError where there is no answer; the caller may ask again."""
    if outcome.value is None:
        raise EndpointError(f"{outcome.kind.value}: {outcome.detail}")
    return outcome.value


def _chosen(body: ChatBody, choices: Sequence[str], weights: tuple[float, ...]) -> dict[str, Any]:
    """The likeliest choice, with the log-probability of each as if it were one token."""
    ranked = sorted(zip(choices, weights, strict=True), key=lambda pair: -pair[1])
    top = [{"token": c, "logprob": math.log(max(w, SMALLEST)), "bytes": None} for c, w in ranked]
    reply = _reply(body, ranked[0][0], "stop")
    if body.logprobs:
        reply["choices"][0]["logprobs"] = {"content": [top[0] | {"top_logprobs": top}], "refusal": None}
    return reply


def _reply(body: ChatBody, text: str, ended: Literal["stop", "length"]) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion", "created": int(time.time()),
        "model": body.model,
        "choices": [{"index": 0, "message": message, "finish_reason": ended, "logprobs": None}],
    }  # fmt: skip
