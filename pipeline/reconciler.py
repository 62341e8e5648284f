"""What becomes of a violation: credibility (one side loses) or coordination (all stay, plan again)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from operators.claims import Finding, Policy
from operators.evidence import EvidenceType
from operators.status import Status, move
from pipeline.checker import CheckReport, Violation, check


@dataclass(frozen=True, slots=True)
class Resolution:
    """How one violation is settled, by the policy of credibility or of coordination (then nobody loses)."""

    violation: Violation
    policy: Policy
    losers: tuple[str, ...]
    reason: str


class Reconciler(Protocol):
    """Classifies and settles one violation among the findings that take part in it."""

    def reconcile(self, violation: Violation, findings: Sequence[Finding]) -> Resolution: ...


class RuleReconciler:
    """Stale observations lose to anything better; everything else is coordination.

    Proposals that collide over a resource or in a cycle are locally valid, so no weight of evidence makes one
    of them false (paper 3.2); only a finding that calls itself stale is a matter of credibility.
    """

    def reconcile(self, violation: Violation, findings: Sequence[Finding]) -> Resolution:
        """Coordination when no finding is stale, or when all are."""
        stale = [f.finding_id for f in findings if f.evidence.type is EvidenceType.STALE_OBSERVATION]
        if stale and len(stale) < len(findings):
            return Resolution(
                violation, Policy.CREDIBILITY, tuple(sorted(stale)), "a stale observation loses"
            )
        return Resolution(violation, Policy.COORDINATION, (), "all are kept; plan again")


@dataclass(frozen=True, slots=True)
class FindingBoard:
    """The findings with their statuses, what was wrong and how it was settled."""

    statuses: dict[str, Status]
    resolutions: tuple[Resolution, ...]
    report: CheckReport

    @property
    def needs_replanning(self) -> bool:
        """Whether a coordination conflict is open."""
        return any(r.policy is Policy.COORDINATION for r in self.resolutions)


def settle(findings: Iterable[Finding], reconciler: Reconciler) -> FindingBoard:
    """Check, settle credibility conflicts and check again, until only coordination conflicts are left.

    The board is a function of the set of findings: their order does not matter.
    """
    by_id = {finding.finding_id: finding for finding in sorted(findings, key=lambda f: f.finding_id)}
    statuses = dict.fromkeys(by_id, Status.PROPOSED)
    settled: list[Resolution] = []
    first: CheckReport | None = None
    while True:
        active = [f for i, f in by_id.items() if statuses[i] is not Status.SUPERSEDED]
        report = check(active)
        first = first or report
        resolutions = [
            reconciler.reconcile(violation, [by_id[i] for i in violation.finding_ids])
            for violation in report.violations
        ]
        losing = [r for r in resolutions if r.losers]
        if not losing:
            break
        settled += losing
        for loser in {loser for r in losing for loser in r.losers}:
            statuses[loser] = move(statuses[loser], Status.SUPERSEDED)
    blocked = {i for r in resolutions for i in r.violation.finding_ids}
    for i, status in statuses.items():
        if status is Status.PROPOSED:
            statuses[i] = move(status, Status.CONTESTED if i in blocked else Status.CONFIRMED)
    return FindingBoard(statuses, (*settled, *resolutions), first)
