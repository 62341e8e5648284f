"""update-memory by rules: what the comparison with the current item means for the memory."""

from __future__ import annotations

from dataclasses import dataclass

from operators.claims import Action, Comparison, Decision, MemoryItem, Policy, Relation, StateClaim, Winner
from operators.items import LiveItems
from operators.outcome import Outcome, valid
from operators.schema import SlotSchema
from operators.seam import CompareOperator


@dataclass(frozen=True, slots=True)
class RuleUpdate:
    """Paper 3.2: merge equal values, let strength then recency decide, keep the loser contested."""

    schema: SlotSchema
    comparer: CompareOperator
    identity: str = "rules/1"

    @property
    def pure(self) -> bool:
        return self.comparer.pure

    def update(self, items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        """`add` for a key without live items. Raises: SchemaError."""
        holder = items.holder
        if holder is None:
            return valid(self._decide(Action.ADD, None, Winner.INCOMING, "first value"))
        known = items.with_value(self.schema.normal(incoming))
        if known is not None and (
            known.claim.rank >= incoming.rank or (known is holder and len(items.holders) == 1)
        ):
            return valid(self._merge(known, "same value"))
        if known is holder:
            reason = "a tied value is said again, later or with stronger evidence"
            return valid(self._decide(Action.SUPERSEDE, holder, Winner.INCOMING, reason))
        outcome = self.comparer.compare(holder.claim, incoming)
        if outcome.value is None:
            return Outcome(outcome.kind, None, f"compare-claims: {outcome.detail}")
        return valid(self._settle(holder, incoming, outcome.value, known))

    def _settle(
        self, holder: MemoryItem, incoming: StateClaim, comparison: Comparison, known: MemoryItem | None
    ) -> Decision:
        """Turn a comparison with the holder into an action; `known` is a contested item of the same value."""
        if comparison.relation is Relation.SAME and known is None:
            return self._merge(holder, "same value in other words")
        if comparison.winner is Winner.INCUMBENT and known is not None:
            return self._merge(known, "same contested value")
        new, old = incoming.evidence.score, holder.claim.evidence.score
        if comparison.winner in (Winner.INCOMING, Winner.BOTH):
            why = "stronger evidence" if new > old else "equal evidence, more recent"
            if comparison.relation is Relation.REFINES:
                why = "more precise"
            reason = f"{why} ({new} against {old})"
            return self._decide(Action.SUPERSEDE, holder, Winner.INCOMING, reason)
        why = "weaker evidence" if new < old else "older"
        if comparison.winner is Winner.UNDECIDED:
            why = "equal evidence and time"
        reason = f"{why} ({new} against {old})"
        return self._decide(Action.CONTEST, holder, comparison.winner, reason)

    def _merge(self, item: MemoryItem, reason: str) -> Decision:
        return self._decide(Action.MERGE, item, Winner.BOTH, reason)

    def _decide(self, action: Action, target: MemoryItem | None, winner: Winner, reason: str) -> Decision:
        policy = Policy.ACCUMULATION if action is Action.MERGE else Policy.SLOT_FIRST
        return Decision(action, target.item_id if target else None, winner, policy, self.identity, reason)
