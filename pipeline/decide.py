"""Asking the update operator: recorded verdicts first, its answer checked, failures by policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from operators.claims import Action, Decision, StateClaim, content_hash
from operators.errors import OperatorFailure
from operators.items import LiveItems
from operators.outcome import Outcome, OutcomeKind
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

    def __init__(self, operator: UpdateOperator, rules: UpdateOperator, policy: FailurePolicy) -> None:
        self._operator, self._rules, self._policy = operator, rules, policy
        self._verdicts: dict[tuple[str, str], Decision] = {}
        self._pending: list[Ruling | Failure] = []
        self.outcomes: Counter[OutcomeKind] = Counter()

    def __call__(self, items: LiveItems, claim: StateClaim) -> Decision | None:
        """The decision, or None when no operator answered and the policy is `propose`.

        Raises: OperatorFailure when the policy is `raise`.
        """
        seen = "" if self._operator.pure else what_is_seen(items, claim)
        verdict = self._verdicts.get((self._operator.identity, seen)) if seen else None
        if verdict is not None:
            return verdict
        outcome = self._operator.update(items, claim)
        fault = _fault(items, outcome)
        kind = OutcomeKind.MALFORMED if fault and outcome.value is not None else outcome.kind
        self.outcomes[kind] += 1
        decision = self._instead(items, claim, kind, fault) if fault else outcome.value
        if decision is not None:
            self._pending.append(Ruling(claim.claim_id, seen if not fault else "", decision))
            if seen and not fault:
                self._verdicts[self._operator.identity, seen] = decision
        return decision

    def learn(self, rulings: Iterable[Ruling]) -> None:
        """Take over verdicts from a log. Of two on the same sight, the one of the smaller hash holds."""
        for ruling in rulings:
            if not ruling.seen:
                continue
            place = (ruling.decision.operator, ruling.seen)
            known = self._verdicts.get(place)
            if known is None or _hash(ruling.decision) < _hash(known):
                self._verdicts[place] = ruling.decision

    def drain(self) -> list[Ruling | Failure]:
        """The rulings and failures since the last call."""
        pending, self._pending = self._pending, []
        return pending

    def discard(self) -> None:
        """Forget the rulings and failures since the last drain: their write did not happen."""
        for entry in self.drain():
            if isinstance(entry, Ruling) and entry.seen:
                self._verdicts.pop((entry.decision.operator, entry.seen), None)

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


def what_is_seen(items: LiveItems, claim: StateClaim) -> str:
    """The hash of what an update operator sees: the live items and the incoming claim."""
    seen = [[item.item_id, item.claim.claim_id, item.status.value, item.support] for item in items]
    return content_hash(sorted(seen), claim.claim_id)


def _fault(items: LiveItems, outcome: Outcome[Decision]) -> str:
    """Why the outcome is no usable decision; empty when it is one."""
    decision = outcome.value
    if decision is None:
        return outcome.detail or outcome.kind.value
    if decision.action is Action.ADD:
        return f"`add`, though {len(items.holders)} item(s) hold the key" if items.holders else ""
    if any(item.item_id == decision.target for item in items.holders):
        return ""
    if all(item.item_id != decision.target for item in items):
        return f"target {decision.target!r} is not among the candidates"
    return "" if decision.action is Action.MERGE else f"`{decision.action}` of an item that holds nothing"


def _hash(decision: Decision) -> str:
    return content_hash(decision.action, decision.target, decision.winner, decision.policy, decision.reason)
