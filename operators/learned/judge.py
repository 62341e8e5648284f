"""compare-claims and update-memory by a model: meaning from the model, strength and time from code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from operators.claims import Action, Comparison, Decision, Policy, Relation, StateClaim, Winner
from operators.items import LiveItems
from operators.learned.answers import RELATION_SCHEMA
from operators.models.text import JsonSchema, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import compare_messages, item_names, update_messages
from operators.rules.compare import winner_of
from operators.schema import SlotSchema

JUDGE_TOKENS = 40


@dataclass(frozen=True, slots=True)
class _Judge:
    """A model, or one of its adapters, that is asked about the claims of a schema."""

    schema: SlotSchema
    model: TextModel
    adapter: str | None = None

    @property
    def identity(self) -> str:
        return f"learned:{self.adapter or self.model.identity}"

    @property
    def pure(self) -> bool:
        return False


class LearnedCompare(_Judge):
    """The model says how two values relate; who wins follows from evidence and time in code."""

    __slots__ = ()

    def compare(self, incumbent: StateClaim, incoming: StateClaim) -> Outcome[Comparison]:
        """Raises: SchemaError for a pair that the schema lacks."""
        return self.compare_batch([(incumbent, incoming)])[0]

    def compare_batch(self, pairs: Sequence[tuple[StateClaim, StateClaim]]) -> list[Outcome[Comparison]]:
        """The outcomes of many pairs, in order."""
        requests = [
            TextRequest(
                tuple(compare_messages(*pair, self.schema)), RELATION_SCHEMA, JUDGE_TOKENS, self.adapter
            )
            for pair in pairs
        ]
        answers = self.model.complete(requests)
        return [_comparison(pair, answer) for pair, answer in zip(pairs, answers, strict=True)]


class LearnedUpdate(_Judge):
    """The model chooses the action and the item among those of the key."""

    __slots__ = ()

    def update(self, items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        """Raises: SchemaError for a pair that the schema lacks."""
        return self.update_batch([(items, incoming)])[0]

    def update_batch(self, cases: Sequence[tuple[LiveItems, StateClaim]]) -> list[Outcome[Decision]]:
        """The outcomes of many claims, in order."""
        requests = [
            TextRequest(
                tuple(update_messages(items, incoming, self.schema)),
                _update_schema(items), JUDGE_TOKENS, self.adapter,
            )
            for items, incoming in cases
        ]  # fmt: skip
        answers = self.model.complete(requests)
        return [
            _decision(items, incoming, answer, self.identity)
            for (items, incoming), answer in zip(cases, answers, strict=True)
        ]


def _comparison(pair: tuple[StateClaim, StateClaim], answer: Outcome[str]) -> Outcome[Comparison]:
    if answer.value is None:
        return Outcome(answer.kind, None, answer.detail)
    relation = _read(answer.value).get("relation")
    if relation not in {known.value for known in Relation}:
        return Outcome(OutcomeKind.MALFORMED, None, f"no relation {relation!r}")
    found = Relation(relation)
    return valid(Comparison(found, winner_of(found, *pair)))


def _update_schema(items: LiveItems) -> JsonSchema:
    names: list[str | None] = [name for name, _ in item_names(items)]
    return {
        "type": "object",
        "properties": {
            "action": {"enum": [action.value for action in Action]},
            "target": {"enum": [*names, None]},
        },
        "required": ["action", "target"],
        "additionalProperties": False,
    }


def _decision(
    items: LiveItems, incoming: StateClaim, answer: Outcome[str], identity: str
) -> Outcome[Decision]:
    """An `add` meets no item, every other action meets one that is there: anything else is malformed."""
    if answer.value is None:
        return Outcome(answer.kind, None, answer.detail)
    data = _read(answer.value)
    named = dict(item_names(items))
    action, target = data.get("action"), data.get("target")
    if action not in {known.value for known in Action}:
        return Outcome(OutcomeKind.MALFORMED, None, f"no action {action!r}")
    chosen = Action(action)
    item = named.get(target) if isinstance(target, str) else None
    if (item is None) != (chosen is Action.ADD) or (target is not None and item is None):
        return Outcome(OutcomeKind.MALFORMED, None, f"{chosen.value} does not go with target {target!r}")
    if item is None:
        winner = Winner.INCOMING
    elif chosen is Action.MERGE:
        winner = Winner.BOTH
    elif chosen is Action.SUPERSEDE:
        winner = Winner.INCOMING
    else:
        tied = item.claim.rank == incoming.rank
        winner = Winner.UNDECIDED if tied else Winner.INCUMBENT
    policy = Policy.ACCUMULATION if chosen is Action.MERGE else Policy.SLOT_FIRST
    reason = f"{chosen.value} by {identity}"
    return valid(Decision(chosen, item.item_id if item else None, winner, policy, identity, reason))


def _read(text: str) -> dict[str, object]:
    """The answer's object; an empty one for anything else, which no check then accepts."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
