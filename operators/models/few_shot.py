"""A model with solved examples before each request: what a base can do without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from operators.models.text import ChoiceRequest, TextModel, TextRequest
from operators.outcome import Outcome
from operators.prompts import Message


@dataclass(frozen=True, slots=True)
class FewShot:
    """Puts solved examples (user and assistant messages in turn) between the system message and the question.

    `choosing` goes before requests for a choice, `completing` before those for a text.
    """

    model: TextModel
    choosing: tuple[Message, ...] = ()
    completing: tuple[Message, ...] = ()

    @property
    def identity(self) -> str:
        return f"{self.model.identity}+{len(self.choosing) // 2}/{len(self.completing) // 2}-shot"

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """As the model's, with the solved examples in each prompt."""
        return self.model.complete(
            [replace(request, messages=_with(request.messages, self.completing)) for request in requests]
        )

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """As the model's, with the solved examples in each prompt."""
        return self.model.choose(
            [replace(request, messages=_with(request.messages, self.choosing)) for request in requests]
        )


def _with(messages: tuple[Message, ...], shots: tuple[Message, ...]) -> tuple[Message, ...]:
    return (messages[0], *shots, *messages[1:])
