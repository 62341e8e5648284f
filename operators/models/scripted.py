"""A model that answers from a script: for tests, and for a look at the loop without any weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from operators.models.text import ChoiceRequest, TextRequest
from operators.outcome import Outcome, OutcomeKind, valid

Text = str | Outcome[str]
Scores = str | Sequence[float] | Outcome[tuple[float, ...]]
Request = TextRequest | ChoiceRequest
R = TypeVar("R", TextRequest, ChoiceRequest)
A = TypeVar("A")
Script = Callable[[R], A] | Mapping[str, A]


@dataclass
class ScriptedModel:
    """Answers by function, or by a mapping: the first key that the last message contains decides.

    A text is given as it stands, on or off its schema, as a server that ignores schemas would. Scores are
    weights in the order of the choices, or the name of the one choice that is certain. An Outcome gives any
    other kind; what the script lacks is unavailable. `asked` keeps every request, in order.
    """

    texts: Script[TextRequest, Text] = field(default_factory=dict)
    choices: Script[ChoiceRequest, Scores] = field(default_factory=dict)
    identity: str = "scripted"
    asked: list[Request] = field(default_factory=list)

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """The script's texts, in order."""
        self.asked += requests
        answers = [_find(self.texts, request) for request in requests]
        return [
            _missing(answer) if isinstance(answer, Outcome | None) else valid(answer) for answer in answers
        ]

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """The script's scores, in order, scaled to sum to 1.

        Raises: ValueError for weights that do not fit the choices, or a name that is none of them.
        """
        self.asked += requests
        return [_scores(_find(self.choices, request), request.choices) for request in requests]


def _find(script: Script[R, A], request: R) -> A | None:
    if callable(script):
        return script(request)
    last = request.messages[-1]["content"]
    return next((answer for part, answer in script.items() if part in last), None)


def _missing(answer: Outcome[A] | None) -> Outcome[A]:
    return answer or Outcome(OutcomeKind.UNAVAILABLE, None, "the script has no answer")


def _scores(found: Scores | None, choices: Sequence[str]) -> Outcome[tuple[float, ...]]:
    if isinstance(found, Outcome | None):
        return _missing(found)
    weights = [float(choice == found) for choice in choices] if isinstance(found, str) else list(found)
    if len(weights) != len(choices) or min(weights, default=-1) < 0 or sum(weights) <= 0:
        raise ValueError(f"{found!r} does not weigh the choices {', '.join(choices)}")
    return valid(tuple(weight / sum(weights) for weight in weights))
