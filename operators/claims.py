"""The words of the project as frozen types: notes, claims, keys, findings, items, decisions."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from operators.evidence import Evidence, EvidenceType, as_utc
from operators.status import Status

ANY_SCOPE = "*"


def _no_bare_number(value: object) -> object:
    """`2026` is a slip of the pen, not seconds since 1970."""
    if isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(r"[\d.+-]*", value)):
        raise ValueError("a date has a day, a time and a zone, such as 2026-01-31T12:00:00+00:00")
    return value


UtcDatetime = Annotated[AwareDatetime, BeforeValidator(_no_bare_number), AfterValidator(as_utc)]


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def content_hash(*parts: object) -> str:
    """A 16-hex-digit hash of JSON-able parts: equal content, equal hash, on every machine."""
    return hashlib.sha256(_encode(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Key(NamedTuple):
    """k(z) = (entity, slot, branch, env) (paper, equation 1)."""

    entity: str
    slot: str
    branch: str = ANY_SCOPE
    env: str = ANY_SCOPE

    def __str__(self) -> str:
        scope = "" if self.branch == self.env == ANY_SCOPE else f"@{self.branch}/{self.env}"
        return f"{self.entity}.{self.slot}{scope}"


class Note(BaseModel):
    """Raw text about the world, as an agent or a commit wrote it. `text` may be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_id: str = Field(min_length=1)
    text: str
    observed_at: UtcDatetime
    evidence_type: EvidenceType
    git_commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{7,40}$")
    files: tuple[str, ...] = ()
    author: str | None = None

    @property
    def note_id(self) -> str:
        """Content hash of source, text and time."""
        return content_hash(self.source_id, self.text, self.observed_at.isoformat())

    @property
    def evidence(self) -> Evidence:
        return Evidence(type=self.evidence_type, source=self.source_id, commit=self.git_commit)


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class StateClaim:
    """z = (entity, slot, value, branch, env, evidence, timestamp).

    `value` None says the thing is gone. In a slot of cardinality many, `retires` names the one
    member that a removal takes away; without it the removal empties the slot. `claim_id` is a content hash
    over every field, the source included: the same claim twice is one claim.
    """

    entity: Annotated[str, Field(min_length=1)]
    slot: Annotated[str, Field(min_length=1)]
    value: str | None
    evidence: Evidence
    timestamp: UtcDatetime
    retires: str | None = None
    branch: Annotated[str, Field(min_length=1)] = ANY_SCOPE
    env: Annotated[str, Field(min_length=1)] = ANY_SCOPE
    claim_id: str = field(init=False, default="")

    def __post_init__(self) -> None:
        """Raises: ValueError for a claim that both states and retires."""
        if self.retires is not None and self.value is not None:
            raise ValueError("retires goes with value null only")
        e = self.evidence
        identity = content_hash(
            self.entity, self.slot, self.value, self.retires, self.branch, self.env,
            e.type.value, e.source, e.commit, self.timestamp.isoformat(),
        )  # fmt: skip
        object.__setattr__(self, "claim_id", identity)

    @property
    def key(self) -> Key:
        return Key(self.entity, self.slot, self.branch, self.env)

    @property
    def order(self) -> tuple[datetime, str]:
        """The position in its key's fold: event time, then content hash."""
        return (self.timestamp, self.claim_id)

    @property
    def rank(self) -> tuple[int, datetime]:
        """Strength first, then recency (paper 3.2)."""
        return (self.evidence.score, self.timestamp)


class FindingType(StrEnum):
    FACT = "FACT"
    CONSTRAINT = "CONSTRAINT"
    SUB_PLAN = "SUB_PLAN"
    DEPENDENCY = "DEPENDENCY"


class Finding(BaseModel):
    """An agent's general memory entry.

    A DEPENDENCY's text is `A -> B` (A needs B); a CONSTRAINT may hold `resource:R time:S-E`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    finding_id: str = Field(min_length=1)
    type: FindingType
    text: str
    evidence: Evidence
    timestamp: UtcDatetime

    @property
    def rank(self) -> tuple[int, datetime]:
        return (self.evidence.score, self.timestamp)


class Relation(StrEnum):
    SAME = "same"
    REFINES = "refines"
    CONTRADICTS = "contradicts"
    UNRELATED = "unrelated"


class Winner(StrEnum):
    INCOMING = "incoming"
    INCUMBENT = "incumbent"
    BOTH = "both"
    UNDECIDED = "undecided"


class Action(StrEnum):
    ADD = "add"
    MERGE = "merge"
    SUPERSEDE = "supersede"
    CONTEST = "contest"


class Policy(StrEnum):
    """The four update policies (paper 3.2): two for findings that collide, two for claims of one key."""

    CREDIBILITY = "credibility-reconciliation"
    COORDINATION = "coordination-handling"
    SLOT_FIRST = "slot-first-merge"
    ACCUMULATION = "evidence-accumulation"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an incoming claim stands to an incumbent, and which of them holds."""

    relation: Relation
    winner: Winner


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One value of one key as the memory holds it.

    `claim` is the strongest claim behind the item, `support` how many claims stand behind it,
    `first_seen` the event time of the first of them.
    """

    item_id: str
    claim: StateClaim
    normal: str | None
    status: Status
    support: int
    first_seen: datetime
    reason: str

    @property
    def key(self) -> Key:
        return self.claim.key


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with an incoming claim: the action, the item it meets, who decided, and why.

    `target` is the item merged into, superseded or contested; None for `add`. `winner` is
    UNDECIDED when neither side holds (both become Contested).
    """

    action: Action
    target: str | None
    winner: Winner
    policy: Policy
    operator: str
    reason: str
