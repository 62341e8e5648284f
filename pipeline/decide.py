"""Asking the update operator: recorded verdicts first, its answer checked, failures by policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from operators.claims import Action, Decision, MemoryItem, StateClaim, content_hash
from operators.errors import OperatorFailure
from operators.items import LiveItems
from operators.normal import Form
from operators.outcome import Outcome, OutcomeKind
from operators.schema import SlotSchema
from operators.seam import UpdateOperator
from pipeline.log import Failure, Ruling


class FailurePolicy(StrEnum):
    """What to do with a call that gave no answer."""

    RAISE = "raise"
    RULES = "rules"
    PROPOSE = "propose"


class Decider:
    """One update operator with its verdict book.

    `drain` hands over the rulings and failures since the last call, for the log. `outcomes` counts answers
    and failures by kind over the decider's life.
    """

    def __init__(
        self, schema: SlotSchema, operator: UpdateOperator, rules: UpdateOperator, policy: FailurePolicy
    ) -> None:
        self._schema, self._operator, self._rules, self._policy = schema, operator, rules, policy
        self._verdicts: dict[tuple[str, str], Decision | None] = {}
        self._pending: list[Ruling | Failure] = []
        self.outcomes: Counter[OutcomeKind] = Counter()

    def fork(self) -> Decider:
        """The same operator and verdicts with books of its own: for looking at the past."""
        other = Decider(self._schema, self._operator, self._rules, self._policy)
        other._verdicts = dict(self._verdicts)
        return other

    def __call__(self, items: LiveItems, claim: StateClaim) -> Decision | None:
        """The decision, or None when no operator answered and the policy is `propose`.

        Raises: OperatorFailure when the policy is `raise`.
        """
        asked = self._operator.identity
        seen = "" if self._operator.pure else what_is_seen(items, claim)
        if seen and (asked, seen) in self._verdicts:
            return self._verdicts[asked, seen]
        outcome = self._operator.update(items, claim)
        fault = self._fault(items, claim, outcome)
        kind = OutcomeKind.MALFORMED if fault and outcome.value is not None else outcome.kind
        self.outcomes[kind] += 1
        decision = self._instead(items, claim, kind, fault) if fault else outcome.value
        self._pending.append(Ruling(claim.claim_id, asked, seen, decision))
        if seen:
            self._verdicts[asked, seen] = decision
        return decision

    def learn(self, rulings: Iterable[Ruling]) -> bool:
        """Take over verdicts from a log; whether any sight is judged otherwise now.

        Of two verdicts on the same sight, the one of the smaller hash holds.
        """
        changed = False
        for ruling in rulings:
            place = (ruling.asked, ruling.seen)
            known = self._verdicts.get(place)
            if ruling.seen and (place not in self._verdicts or _hash(ruling.decision) < _hash(known)):
                self._verdicts[place] = ruling.decision
                changed = True
        return changed

    def verdicts(self) -> dict[tuple[str, str], Decision | None]:
        """A copy of the verdict book."""
        return dict(self._verdicts)

    def restore(self, verdicts: dict[tuple[str, str], Decision | None]) -> None:
        """Go back to an earlier verdict book."""
        self._verdicts = verdicts

    @property
    def pending(self) -> list[Ruling | Failure]:
        """The rulings and failures that no log holds yet."""
        return list(self._pending)

    def drain(self) -> list[Ruling | Failure]:
        """The pending ones, which are no longer pending then."""
        pending, self._pending = self._pending, []
        return pending

    def discard(self) -> None:
        """Forget the rulings and failures since the last drain: their write did not happen."""
        for entry in self.drain():
            if isinstance(entry, Ruling) and entry.seen:
                self._verdicts.pop((entry.asked, entry.seen), None)

    def _instead(self, items: LiveItems, claim: StateClaim, kind: OutcomeKind, fault: str) -> Decision | None:
        name = f"update-memory {self._operator.identity}"
        if self._policy is FailurePolicy.RAISE:
            raise OperatorFailure(
                f"{name} gave no usable answer on {claim.key} ({kind}): {fault}",
                hint="set the failure policy to `rules` or `propose` to go on without it",
            )
        self._pending.append(Failure(name, claim.claim_id, kind, fault, self._policy.value))
        if self._policy is FailurePolicy.PROPOSE:
            return None
        return self._rules.update(items, claim).value

    def _fault(self, items: LiveItems, claim: StateClaim, outcome: Outcome[Decision]) -> str:
        """Why the outcome is no usable decision; empty when it is one."""
        decision = outcome.value
        if decision is None:
            return outcome.detail or outcome.kind.value
        if decision.action is Action.ADD:
            return f"`add`, though {len(items.holders)} item(s) hold the key" if items.holders else ""
        target = next((item for item in items if item.item_id == decision.target), None)
        if target is None:
            return f"target {decision.target!r} is not among the candidates"
        if decision.action is Action.MERGE:
            return "" if self._may_be_one(target, claim) else "`merge` of two different values"
        return "" if items.is_holder(target) else f"`{decision.action}` of an item that holds nothing"

    def _may_be_one(self, item: MemoryItem, claim: StateClaim) -> bool:
        """Whether the values are equal or, as free text, could be two wordings of one."""
        normal = self._schema.normal(claim)
        if item.normal == normal:
            return True
        free = self._schema.slot(claim.entity, claim.slot).form is Form.TEXT
        return free and item.normal is not None and normal is not None


def what_is_seen(items: LiveItems, claim: StateClaim) -> str:
    """The hash of what an update operator sees: the live items and the incoming claim."""
    seen = [[item.item_id, item.claim.claim_id, item.status.value, item.support] for item in items]
    return content_hash(sorted(seen), claim.claim_id)


def _hash(decision: Decision | None) -> str:
    if decision is None:
        return ""
    return content_hash(decision.action, decision.target, decision.winner, decision.policy, decision.reason)
