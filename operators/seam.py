"""The one seam: three calls that rules and models both answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from operators.claims import Comparison, Decision, Note, StateClaim
from operators.items import LiveItems
from operators.outcome import Outcome
from operators.schema import SlotSchema


class Operator(Protocol):
    """What every operator says of itself: written into decisions and reports."""

    @property
    def identity(self) -> str:
        """Name and revision, such as `rules/1` or an adapter's name and content hash."""

    @property
    def pure(self) -> bool:
        """Whether equal input gives equal output at no cost; what others say is logged and reused."""


class ExtractOperator(Operator, Protocol):
    def extract(self, note: Note, schema: SlotSchema) -> Outcome[list[StateClaim]]:
        """The claims that the note's text makes, under the schema's names. Empty when it makes none."""


class CompareOperator(Operator, Protocol):
    def compare(self, incumbent: StateClaim, incoming: StateClaim) -> Outcome[Comparison]:
        """How the incoming claim stands to the incumbent and which of the two holds."""


class UpdateOperator(Operator, Protocol):
    def update(self, items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        """What to do with the claim, given its key's live items (Confirmed and Contested).

        `target` is the id of one of `items`, or None for `add`.
        """


@runtime_checkable
class BatchExtract(Protocol):
    """An extract operator that answers many notes at once for less."""

    def extract_batch(self, cases: Sequence[tuple[Note, SlotSchema]]) -> list[Outcome[list[StateClaim]]]:
        """The outcomes in order, each equal to that of `extract`."""


@runtime_checkable
class BatchCompare(Protocol):
    """A compare operator that answers many pairs at once for less."""

    def compare_batch(self, pairs: Sequence[tuple[StateClaim, StateClaim]]) -> list[Outcome[Comparison]]:
        """The outcomes of (incumbent, incoming) pairs in order, each equal to that of `compare`."""


@runtime_checkable
class BatchUpdate(Protocol):
    """An update operator that answers many claims at once for less."""

    def update_batch(self, cases: Sequence[tuple[LiveItems, StateClaim]]) -> list[Outcome[Decision]]:
        """The outcomes in order, each equal to that of `update`."""


def extract_all(
    operator: ExtractOperator, cases: Sequence[tuple[Note, SlotSchema]]
) -> list[Outcome[list[StateClaim]]]:
    """Every note's outcome, in order; in one batch where the operator can."""
    if isinstance(operator, BatchExtract):
        return operator.extract_batch(cases)
    return [operator.extract(note, schema) for note, schema in cases]


def compare_all(
    operator: CompareOperator, pairs: Sequence[tuple[StateClaim, StateClaim]]
) -> list[Outcome[Comparison]]:
    """Every pair's outcome, in order; in one batch where the operator can."""
    if isinstance(operator, BatchCompare):
        return operator.compare_batch(pairs)
    return [operator.compare(incumbent, incoming) for incumbent, incoming in pairs]


def update_all(
    operator: UpdateOperator, cases: Sequence[tuple[LiveItems, StateClaim]]
) -> list[Outcome[Decision]]:
    """Every claim's outcome, in order; in one batch where the operator can."""
    if isinstance(operator, BatchUpdate):
        return operator.update_batch(cases)
    return [operator.update(items, incoming) for items, incoming in cases]


@dataclass(frozen=True, slots=True)
class OperatorSet:
    """The three operators that one update loop runs with."""

    extract: ExtractOperator
    compare: CompareOperator
    update: UpdateOperator
