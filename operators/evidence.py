"""How strong a claim's evidence is: weights, score and rank (paper, appendix A.9, Table 7)."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


class EvidenceType(StrEnum):
    """Where a claim's support comes from, strongest first."""

    CODE_CHANGE = "code-change"
    INCIDENT_HOTFIX = "incident-hotfix"
    CONFIG_OBSERVATION = "config-observation"
    RUNTIME_OBSERVATION = "runtime-observation"
    BRANCH_EXPERIMENT = "branch-experiment"
    HUMAN_NOTE = "human-note"
    STALE_OBSERVATION = "stale-observation"


WEIGHTS: dict[EvidenceType, int] = {
    EvidenceType.CODE_CHANGE: 60,
    EvidenceType.INCIDENT_HOTFIX: 60,
    EvidenceType.CONFIG_OBSERVATION: 45,
    EvidenceType.RUNTIME_OBSERVATION: 40,
    EvidenceType.BRANCH_EXPERIMENT: 25,
    EvidenceType.HUMAN_NOTE: 12,
    EvidenceType.STALE_OBSERVATION: 4,
}
COMMIT_BONUS = 40


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Evidence:
    """Why one claim may be believed: its kind, the note it stands in, the commit behind it.

    A dataclass rather than a model: a memory holds millions of these.
    """

    type: EvidenceType
    source: str = Field(min_length=1)
    commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{7,40}$")

    @property
    def score(self) -> int:
        """s(z) = weight of the type + 40 if a commit backs it: 4 to 100 (paper, equation in A.9)."""
        return WEIGHTS[self.type] + (COMMIT_BONUS if self.commit else 0)


def as_utc(moment: datetime) -> datetime:
    """The same instant in UTC, so that equal instants are equal text.

    Raises: ValueError for an instant before year 1 or after year 9999.
    """
    try:
        return moment.astimezone(UTC)
    except OverflowError as fault:
        raise ValueError("this instant has no UTC date") from fault
