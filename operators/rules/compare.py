"""compare-claims by rules: normal forms say what is the same, evidence and time say who wins."""

from __future__ import annotations

import re
from dataclasses import dataclass

from operators.claims import Comparison, Relation, StateClaim, Winner
from operators.normal import Form, normal_text
from operators.outcome import Outcome, valid
from operators.schema import SlotSchema

_EMPTY_WORDS = frozenset(
    [
        "a",
        "an",
        "the",
        "is",
        "are",
        "was",
        "be",
        "to",
        "of",
        "in",
        "on",
        "at",
        "by",
        "for",
        "with",
        "and",
        "its",
        "it",
        "as",
        "that",
        "this",
        "now",
        "only",
        "just",
    ]
)
_NEGATIONS = frozenset(
    ["not", "no", "never", "without", "non", "cannot", "isn't", "doesn't", "don't", "unless", "except"]
)


def content_words(text: str) -> tuple[str, ...]:
    """The words of a value that carry meaning, in order, a plural's s dropped."""
    words = re.findall(r"[\w./'-]+", normal_text(text))
    return tuple(re.sub(r"(?<=[a-z]{3})s$", "", word) for word in words if word not in _EMPTY_WORDS)


def _contains_in_order(longer: tuple[str, ...], shorter: tuple[str, ...]) -> bool:
    rest = iter(longer)
    return all(word in rest for word in shorter)


def winner_of(relation: Relation, incumbent: StateClaim, incoming: StateClaim) -> Winner:
    """Who holds: both where nothing collides, else score, then event time; undecided at a tie (paper 3.2)."""
    if relation in (Relation.SAME, Relation.UNRELATED):
        return Winner.BOTH
    if incumbent.rank == incoming.rank:
        return Winner.UNDECIDED
    return Winner.INCOMING if incoming.rank > incumbent.rank else Winner.INCUMBENT


@dataclass(frozen=True, slots=True)
class RuleCompare:
    """Relation by normal form and word content; winner by score, then event time (paper 3.2)."""

    schema: SlotSchema
    identity: str = "rules/1"
    pure: bool = True

    def compare(self, incumbent: StateClaim, incoming: StateClaim) -> Outcome[Comparison]:
        """Two claims of different keys are unrelated and both hold. Raises: SchemaError."""
        if incumbent.key != incoming.key:
            return valid(Comparison(Relation.UNRELATED, Winner.BOTH))
        relation = self._relation(incumbent, incoming)
        return valid(Comparison(relation, winner_of(relation, incumbent, incoming)))

    def _relation(self, incumbent: StateClaim, incoming: StateClaim) -> Relation:
        old, new = self.schema.normal(incumbent), self.schema.normal(incoming)
        if old == new and incumbent.retires == incoming.retires:
            return Relation.SAME
        if old is None or new is None:
            return Relation.CONTRADICTS
        if self.schema.slot(incoming.entity, incoming.slot).form is not Form.TEXT:
            return Relation.CONTRADICTS
        old_words, new_words = content_words(old), content_words(new)
        if old_words == new_words:
            return Relation.SAME
        added = set(new_words) - set(old_words)
        if len(old_words) > 1 and _contains_in_order(new_words, old_words) and not added & _NEGATIONS:
            return Relation.REFINES
        return Relation.CONTRADICTS


@dataclass(frozen=True, slots=True)
class LatestCompare:
    """The baseline most memories ship: whatever was said last holds, whoever said it."""

    rules: RuleCompare
    identity: str = "latest/1"
    pure: bool = True

    def compare(self, incumbent: StateClaim, incoming: StateClaim) -> Outcome[Comparison]:
        """As RuleCompare, but time alone picks the winner. Raises: SchemaError."""
        outcome = self.rules.compare(incumbent, incoming)
        if outcome.value is None or outcome.value.winner is Winner.BOTH:
            return outcome
        newer = incoming.timestamp >= incumbent.timestamp
        return valid(Comparison(outcome.value.relation, Winner.INCOMING if newer else Winner.INCUMBENT))
