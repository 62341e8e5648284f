"""Canaries: requests whose answers tell an adapter at work from one without effect, and from its base.

An adapter that a server loads under the wrong names or on another base is listed and answers all the same: as
the base does (T33 to T36). So what it answers right after training is recorded beside what the base answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from pydantic import Field

from operators.claims import MemoryItem, Note, StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.items import LiveItems
from operators.learned.extract import DirectExtract, TwoStageExtract
from operators.learned.judge import LearnedCompare, LearnedUpdate
from operators.models.scripted import ScriptedModel
from operators.models.text import TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind
from operators.prompts import Message
from operators.schema import FrozenModel, SlotSchema
from operators.status import Status

WANTED = 3
"""Canaries of an adapter: enough that one close call of two number formats decides nothing."""

TRIED = 12
MAX_TOKENS = 96


class Canary(FrozenModel):
    """One request, what the adapter answered to it, and what the base did (None: nothing valid).

    `prompt_hash` is a hash of the prompt's token ids.
    """

    messages: tuple[Message, ...]
    answer_schema: Mapping[str, object]
    max_tokens: int = Field(gt=0)
    prompt_hash: str
    answer: str
    base_answer: str | None

    def request(self, adapter: str | None) -> TextRequest:
        """The request, to an adapter or (None) to the base."""
        return TextRequest(self.messages, self.answer_schema, self.max_tokens, adapter)


class CanaryModel(TextModel, Protocol):
    def prompt_hash(self, messages: Sequence[Message]) -> str:
        """A hash of the prompt's token ids."""

    def gold_logprobs(self, messages: Sequence[Message], answer: str, adapter: str | None) -> list[float]:
        """The log-probability of each token of the answer, its end of turn included."""


def record_canaries(model: CanaryModel, adapter: str, tasks: Sequence[str]) -> tuple[Canary, ...]:
    """Up to WANTED requests to which this adapter and its base answer differently, the surest answers first.

    An answer is as sure as its least probable token: there another number format would first fall the other
    way. Fewer, or none, where the two agree: an adapter that changes no answer cannot be told from its base.
    """
    found: list[tuple[float, Canary]] = []
    for request in canary_requests(tasks)[:TRIED]:
        by_adapter, by_base = model.complete([replace(request, adapter=adapter), request])
        if by_adapter.value is not None and by_adapter.value != by_base.value:
            canary = Canary(
                messages=request.messages, answer_schema=request.schema or {},
                max_tokens=request.max_tokens, prompt_hash=model.prompt_hash(request.messages),
                answer=by_adapter.value, base_answer=by_base.value,
            )  # fmt: skip
            found.append((min(model.gold_logprobs(request.messages, canary.answer, adapter)), canary))
    found.sort(key=lambda scored: -scored[0])
    return tuple(canary for _, canary in found[:WANTED])


def canary_requests(tasks: Sequence[str]) -> list[TextRequest]:
    """What the operators themselves ask about a small made-up world, the given tasks in turn."""
    asking: dict[str, Callable[[TextModel], object]] = {
        "direct": lambda model: DirectExtract(model).extract_batch([(note, WORLD) for note in NOTES]),
        "fill": lambda model: TwoStageExtract(model).extract_batch([(note, WORLD) for note in NOTES]),
        "compare": lambda model: LearnedCompare(WORLD, model).compare_batch(_pairs()),
        "update": lambda model: LearnedUpdate(WORLD, model).update_batch(
            [(_items(incumbent), incoming) for incumbent, incoming in _pairs()]
        ),
    }
    by_task: list[list[TextRequest]] = []
    for task in tasks:
        if task in asking:
            listener = ScriptedModel(
                texts=lambda _: Outcome(OutcomeKind.UNAVAILABLE), choices=lambda _: "yes"
            )
            asking[task](listener)
            asked = [request for request in listener.asked if isinstance(request, TextRequest)]
            by_task.append([replace(r, max_tokens=min(r.max_tokens, MAX_TOKENS)) for r in asked])
    longest = max(map(len, by_task), default=0)
    return [requests[n] for n in range(longest) for requests in by_task if n < len(requests)]


WORLD = SlotSchema.model_validate(
    {
        "entities": [
            {
                "entity": "billing-api",
                "slots": [
                    {"slot": "region", "about": "where it runs"},
                    {"slot": "runtime", "form": "version"},
                    {
                        "slot": "rollout",
                        "form": "enum",
                        "values": {"off": [], "canary": [], "full": ["everyone"]},
                    },
                ],
            },
            {"entity": "search-index", "slots": [{"slot": "enabled", "form": "flag"}]},
        ]
    }
)
_DAY = datetime(2026, 1, 5, 9, tzinfo=UTC)


def _note(number: int, text: str) -> Note:
    return Note(
        source_id=f"canary-{number}",
        text=text,
        observed_at=_DAY.replace(hour=9 + number),
        evidence_type=EvidenceType.CODE_CHANGE,
    )


NOTES = tuple(
    _note(number, text)
    for number, text in enumerate(
        (
            "billing-api moved to eu-west-3 last night; the rollout is at canary.",
            "The search-index is switched off until the rebuild. billing-api runs on 4.2.1 now.",
            "billing-api: rollout full. Thanks to everyone who helped with the migration!",
        )
    )
)


def _claim(slot: str, value: str, hour: int, kind: EvidenceType) -> StateClaim:
    return StateClaim(
        entity="billing-api", slot=slot, value=value, evidence=Evidence(type=kind, source=f"canary-{hour}"),
        timestamp=_DAY.replace(hour=hour),
    )  # fmt: skip


def _pairs() -> list[tuple[StateClaim, StateClaim]]:
    """Incumbent and incoming: equal, rewritten, contradicting from both sides, more exact."""
    code, human = EvidenceType.CODE_CHANGE, EvidenceType.HUMAN_NOTE
    return [
        (_claim("region", "eu-west-3", 9, code), _claim("region", "us-east-1", 12, code)),
        (_claim("region", "eu-west-3", 9, code), _claim("region", "`eu-west-3`", 12, human)),
        (_claim("runtime", "4.2", 9, code), _claim("runtime", "4.2.1", 12, code)),
        (_claim("runtime", "4.2.1", 9, code), _claim("runtime", "3.9.0", 12, human)),
        (_claim("rollout", "canary", 9, human), _claim("rollout", "everyone", 12, code)),
        (_claim("rollout", "full", 12, code), _claim("rollout", "off", 9, code)),
    ]


def _items(claim: StateClaim) -> LiveItems:
    items = LiveItems()
    item = MemoryItem(
        "i1", claim, WORLD.normal(claim), Status.CONFIRMED, 1, claim.timestamp, "first of its key"
    )
    items.put(item, holds=True)
    return items
