"""What a model is asked and what comes back: one protocol for scripted, local and served models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jsonschema import Draft202012Validator

from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import Message

JsonSchema = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One answer wanted, under a JSON schema if one is given.

    `max_tokens` bounds the answer; `adapter` names who answers, None is the base.
    """

    messages: tuple[Message, ...]
    schema: JsonSchema | None
    max_tokens: int
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """One of a few short answers wanted, with the probability of each."""

    messages: tuple[Message, ...]
    choices: tuple[str, ...]
    adapter: str | None = None


class TextModel(Protocol):
    """A chat model at temperature 0: the same request, the same answer."""

    @property
    def identity(self) -> str:
        """The base's name and revision."""

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """One outcome a request, in order. A valid one is text that ended by itself and fits its schema."""

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """For each request, in order, the probability of each of its choices among them (they sum to 1).

        A choice counts with all its tokens and the end of the turn.
        """


def checked(request: TextRequest, text: str) -> Outcome[str]:
    """The text as an answer; malformed when the request has a schema that it does not fit."""
    if request.schema is None:
        return valid(text)
    try:
        fault = next(Draft202012Validator(request.schema).iter_errors(json.loads(text)), None)
    except (ValueError, RecursionError):
        return Outcome(OutcomeKind.MALFORMED, None, f"no JSON: {text[:80]!r}")
    if fault is not None:
        return Outcome(OutcomeKind.MALFORMED, None, f"off schema: {fault.message[:160]}")
    return valid(text)
