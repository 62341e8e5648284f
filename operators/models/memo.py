"""A model that remembers: at temperature 0 a request needs asking once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from operators.claims import content_hash
from operators.models.text import ChoiceRequest, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind

R = TypeVar("R", TextRequest, ChoiceRequest)
T = TypeVar("T")


class Memo:
    """Keeps answers in memory by request; what was unavailable is asked again."""

    def __init__(self, model: TextModel) -> None:
        self.model = model
        self._texts: dict[str, Outcome[str]] = {}
        self._choices: dict[str, Outcome[tuple[float, ...]]] = {}

    @property
    def identity(self) -> str:
        return self.model.identity

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """As the model's."""
        keys = [
            content_hash(
                list(r.messages), dict(r.schema) if r.schema is not None else None, r.max_tokens, r.adapter
            )
            for r in requests
        ]
        return _remembered(keys, requests, self._texts, self.model.complete)

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """As the model's."""
        keys = [content_hash(list(r.messages), list(r.choices), r.adapter) for r in requests]
        return _remembered(keys, requests, self._choices, self.model.choose)


def _remembered(
    keys: Sequence[str],
    requests: Sequence[R],
    known: dict[str, Outcome[T]],
    ask: Callable[[Sequence[R]], list[Outcome[T]]],
) -> list[Outcome[T]]:
    todo = {key: request for key, request in zip(keys, requests, strict=True) if key not in known}
    fresh = dict(zip(todo, ask(list(todo.values())), strict=True)) if todo else {}
    known |= {key: outcome for key, outcome in fresh.items() if outcome.kind is not OutcomeKind.UNAVAILABLE}
    return [fresh[key] if key in fresh else known[key] for key in keys]
