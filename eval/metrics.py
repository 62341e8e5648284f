"""Scores of one example: claim F1 under schema-only normalisation, its weaker kin, and token checks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from data_builders.trajectory import Query, contains
from operators.claims import StateClaim
from operators.errors import UnscoredError
from operators.schema import SlotSchema

RELAXED = 0.6
"""Token F1 from which a value counts as right in `relaxed_f1`."""


@dataclass(frozen=True, slots=True)
class ExtractScore:
    """All in [0, 1]. `claim_f1` wants key, value and removal right; `relaxed_f1` the pair right and at least
    RELAXED of the value's words; `pair_f1` entity and slot only; `value_token_f1` is the overlap of value
    words over the pairs."""

    claim_f1: float
    relaxed_f1: float
    pair_f1: float
    value_token_f1: float


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. Raises: UnscoredError on nothing: an empty mean is no zero."""
    if not values:
        raise UnscoredError("a mean over nothing", hint="check that the run has examples of this kind")
    return sum(values) / len(values)


def f1(predicted: Iterable[object], gold: Iterable[object]) -> float:
    """Multiset F1; 1 when both are empty, 0 when one is."""
    got, want = Counter(predicted), Counter(gold)
    if not got and not want:
        return 1.0
    hits = sum((got & want).values())
    return 2 * hits / (sum(got.values()) + sum(want.values()))


def extract_score(
    predicted: Sequence[StateClaim], gold: Sequence[StateClaim], schema: SlotSchema
) -> ExtractScore:
    """Compare the claims of one note with its gold. A note without claims wants none (score 1)."""
    return ExtractScore(
        claim_f1=f1((_full(c, schema) for c in predicted), (_full(c, schema) for c in gold)),
        relaxed_f1=_relaxed_f1(predicted, gold, schema),
        pair_f1=f1(((c.entity, c.slot) for c in predicted), ((c.entity, c.slot) for c in gold)),
        value_token_f1=f1(_value_tokens(predicted, schema), _value_tokens(gold, schema)),
    )


def answers(text: str, query: Query) -> bool:
    """Whether an answer holds every required token, one of any_of (if any), and no forbidden one."""
    return (
        all(contains(text, token) for token in query.required)
        and (not query.any_of or any(contains(text, token) for token in query.any_of))
        and not any(contains(text, token) for token in query.forbidden)
    )


def _full(claim: StateClaim, schema: SlotSchema) -> tuple[object, ...]:
    retired = claim.retires and schema.normal_of(claim.entity, claim.slot, claim.retires)
    return (*claim.key, schema.normal(claim), retired)


def _relaxed_f1(predicted: Sequence[StateClaim], gold: Sequence[StateClaim], schema: SlotSchema) -> float:
    """Each gold claim meets the nearest unmet prediction of its pair, scopes aside."""
    if not predicted and not gold:
        return 1.0
    unmet, hits = list(predicted), 0
    for wanted in gold:
        words = _value_tokens([wanted], schema)
        rivals = [c for c in unmet if (c.entity, c.slot) == (wanted.entity, wanted.slot)]
        best = max(rivals, key=lambda c: f1(_value_tokens([c], schema), words), default=None)
        if best is not None and f1(_value_tokens([best], schema), words) >= RELAXED:
            unmet.remove(best)
            hits += 1
    return 2 * hits / (len(predicted) + len(gold))


def _value_tokens(claims: Iterable[StateClaim], schema: SlotSchema) -> list[tuple[str, str, str]]:
    return [
        (claim.entity, claim.slot, word)
        for claim in claims
        for word in re.findall(r"\w+", schema.normal(claim) or claim.retires or "removed")
    ]
