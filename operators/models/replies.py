"""What an OpenAI-compatible server says, read strictly: a reply of another shape is no answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from operators.outcome import Outcome, OutcomeKind, valid

CERTAIN = 1e-3
"""A log-probability is at most 0; servers round."""

UNTOLD = 0.01
"""Share of the likely tokens' weight that may open several choices before they count as not told apart."""


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Likely(_Read):
    """A token and its log-probability (natural logarithm)."""

    token: str
    logprob: Annotated[FiniteFloat, Field(le=CERTAIN)]


class Place(_Read):
    """One place of an answer: the likeliest tokens there."""

    top_logprobs: tuple[Likely, ...]


class Logprobs(_Read):
    content: tuple[Place, ...] | None = None


class Said(_Read):
    content: str | None = None


class Choice(_Read):
    """One answer. `finish_reason` is `stop` for one that ended by itself, `length` for one that was cut."""

    message: Said
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class ChatReply(_Read):
    """A chat completion, by the model that answered."""

    model: str
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)]


class ServedModel(_Read):
    """One entry of /v1/models. vLLM gives an adapter's base as `parent` and its folder as `root`."""

    id: str
    parent: str | None = None
    root: str | None = None


class ModelList(_Read):
    data: tuple[ServedModel, ...]


def probabilities(choices: Sequence[str], answer: Choice) -> Outcome[tuple[float, ...]]:
    """The weight of each choice by the first token of the answer, scaled to sum to 1.

    Malformed without log-probabilities, where no likely token opens a choice, and where tokens that open
    several choices have weight: they tell none of them.
    """
    if answer.finish_reason not in ("stop", "length"):
        return _malformed(f"ended by {answer.finish_reason!r}")
    places = answer.logprobs.content if answer.logprobs else None
    if not places:
        return _malformed("the server gave no log-probabilities")
    likely = {candidate.token: math.exp(candidate.logprob) for candidate in places[0].top_logprobs}
    weights = [_weight(choice, choices, likely) for choice in choices]
    shared = sum(weight for token, weight in likely.items() if token and _opens(token, choices) > 1)
    if shared > UNTOLD * (shared + sum(weights)) or not sum(weights) > 0:
        return _malformed(f"the likely tokens do not tell {', '.join(choices)} apart")
    return valid(tuple(weight / sum(weights) for weight in weights))


def _weight(choice: str, choices: Sequence[str], likely: Mapping[str, float]) -> float:
    """The choice as one token; failing that, what its beginnings weigh that no other choice has.

    Under a grammar a server gives weight to beginnings too ("y", "ye"); a tokenizer never writes them.
    """
    if choice in likely:
        return likely[choice]
    return sum(
        weight
        for token, weight in likely.items()
        if token and choice.startswith(token) and _opens(token, choices) == 1
    )


def _opens(token: str, choices: Sequence[str]) -> int:
    return sum(choice.startswith(token) for choice in choices)


def _malformed(detail: str) -> Outcome[tuple[float, ...]]:
    return Outcome(OutcomeKind.MALFORMED, None, detail)
