"""The three operators behind one model: who answers, through which operator, and how it is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from operators.assembly import LEARNED_EXTRACTORS, ModelSource
from operators.learned.judge import LearnedCompare, LearnedUpdate
from operators.models.text import TextModel
from operators.seam import ExtractOperator, extract_all
from serving.registry import Registry, ServedAdapter
from serving.wire import (
    AdapterInfo,
    CompareAnswer,
    CompareBody,
    ExtractAnswer,
    ExtractBody,
    Health,
    OperatorInfo,
    UpdateAnswer,
    UpdateBody,
)

K = TypeVar("K")
OPERATORS = ("extract-state", "compare-claims", "update-memory")


class Engine(Protocol):
    """What runs the model: in this process, or a server that it looks after."""

    @property
    def model(self) -> TextModel:
        """Whom the operators ask; usable from several threads."""

    def health(self) -> Health:
        """`ready` exactly when a request can be answered now."""

    def waiting(self) -> int:
        """Requests that have not had their turn, as far as the engine knows."""

    def close(self) -> None:
        """Let go of the model and of every process."""


@dataclass(frozen=True, slots=True)
class Service:
    """Operators of a registry's adapters on an engine.

    `threshold` is that of two-stage extraction; None: what `eval loo` found for each adapter, else 0.5.
    """

    engine: Engine
    registry: Registry
    threshold: float | None = None

    def extract(self, bodies: Sequence[ExtractBody]) -> list[ExtractAnswer]:
        """One answer a body, in order. Raises: ConfigError for an adapter that cannot answer."""
        chosen = [self.registry.answering("extract-state", body.adapter) for body in bodies]
        answers: dict[int, ExtractAnswer] = {}
        for adapter, numbers in _groups(chosen):
            cases = [(bodies[number].note, bodies[number].slots) for number in numbers]
            for number, outcome in zip(numbers, extract_all(self._extractor(adapter), cases), strict=True):
                claims = None if outcome.value is None else tuple(outcome.value)
                answers[number] = ExtractAnswer(
                    outcome=outcome.kind, detail=outcome.detail, adapter=adapter.name, claims=claims
                )
        return [answers[number] for number in range(len(bodies))]

    def compare(self, bodies: Sequence[CompareBody]) -> list[CompareAnswer]:
        """One answer a body, in order. Raises: ConfigError as above, SchemaError for a pair it lacks."""
        asked = [(self.registry.answering("compare-claims", body.adapter), body.slots) for body in bodies]
        answers: dict[int, CompareAnswer] = {}
        for (adapter, slots), numbers in _groups(asked):
            operator = LearnedCompare(slots, self.engine.model, adapter.name)
            pairs = [bodies[number].pair() for number in numbers]
            for number, outcome in zip(numbers, operator.compare_batch(pairs), strict=True):
                found = outcome.value
                answers[number] = CompareAnswer(
                    outcome=outcome.kind, detail=outcome.detail, adapter=adapter.name,
                    relation=found.relation if found else None, winner=found.winner if found else None,
                )  # fmt: skip
        return [answers[number] for number in range(len(bodies))]

    def update(self, bodies: Sequence[UpdateBody]) -> list[UpdateAnswer]:
        """One answer a body, in order. Raises: as `compare`, and InputError for items of no one key."""
        asked = [(self.registry.answering("update-memory", body.adapter), body.slots) for body in bodies]
        answers: dict[int, UpdateAnswer] = {}
        for (adapter, slots), numbers in _groups(asked):
            operator = LearnedUpdate(slots, self.engine.model, adapter.name)
            cases = [(bodies[number].live_items(), bodies[number].incoming) for number in numbers]
            for number, outcome in zip(numbers, operator.update_batch(cases), strict=True):
                answers[number] = UpdateAnswer(
                    outcome=outcome.kind, detail=outcome.detail, adapter=adapter.name, decision=outcome.value
                )
        return [answers[number] for number in range(len(bodies))]

    def _extractor(self, adapter: ServedAdapter) -> ExtractOperator:
        kind = "two-stage" if "fill" in adapter.card.tasks else "direct"
        source = ModelSource(self.engine.model, {"extract-state": adapter.name}, self._threshold(adapter))
        return LEARNED_EXTRACTORS[kind](source)

    def _threshold(self, adapter: ServedAdapter) -> float:
        return self.threshold if self.threshold is not None else adapter.threshold

    def operators(self) -> list[OperatorInfo]:
        """Every operator with its adapters."""
        found = []
        for operator in OPERATORS:
            able = [adapter for adapter in self.registry.adapters if adapter.answers(operator)]
            name = self.registry.default_name(operator)
            found.append(OperatorInfo(operator=operator, default=name, adapters=tuple(map(self._info, able))))
        return found

    def _info(self, adapter: ServedAdapter) -> AdapterInfo:
        card = adapter.card
        return AdapterInfo(
            name=card.name, operator=card.operator, tasks=card.tasks, base=card.base.id,
            revision=card.base.revision, prompt_version=card.prompt_version, holdout=card.holdout,
            stage=card.stage, threshold=self._threshold(adapter) if "fill" in card.tasks else None,
            scores=adapter.scores,
        )  # fmt: skip


def _groups(keys: Sequence[K]) -> list[tuple[K, list[int]]]:
    """Equal keys with the places where they stand, in order of their first."""
    groups: list[tuple[K, list[int]]] = []
    for number, key in enumerate(keys):
        for known, numbers in groups:
            if known == key:
                numbers.append(number)
                break
        else:
            groups.append((key, [number]))
    return groups
