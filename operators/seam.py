"""The one seam: three calls that rules and models both answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True, slots=True)
class OperatorSet:
    """The three operators that one update loop runs with."""

    extract: ExtractOperator
    compare: CompareOperator
    update: UpdateOperator
