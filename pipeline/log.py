"""The append-only log: notes, claims, decisions, findings and failures are the truth of a memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from operators.claims import Decision, Finding, Note, StateClaim
from operators.errors import RevisionConflict
from operators.outcome import OutcomeKind


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision as it was taken: on which claim, by asking whom, and the hash of what was seen.

    The ruling of an operator that is not pure has `seen` and is a verdict: a refold that sees the same takes
    it from here and asks nobody. `decision` None means that no operator answered and the claim is Proposed.
    """

    claim_id: str
    asked: str
    seen: str
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that gave no answer: which operator, on what, how it failed, and what was done instead."""

    operator: str
    subject: str
    kind: OutcomeKind
    detail: str
    handled: str


Entry = Note | StateClaim | Ruling | Finding | Failure


@dataclass(frozen=True, slots=True)
class Record:
    """A log entry with its known time."""

    entry: Entry
    recorded_at: datetime


class MemoryLog(Protocol):
    """What a store must do. `revision` counts the records."""

    @property
    def revision(self) -> int: ...

    def append(self, records: Sequence[Record], *, expected_revision: int) -> None:
        """Write all records or none. Raises: RevisionConflict when the log has moved on."""

    def __iter__(self) -> Iterator[Record]: ...


class InMemoryLog:
    """The log as two lists; gone with the process."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._times: list[datetime] = []

    @property
    def revision(self) -> int:
        return len(self._entries)

    def append(self, records: Sequence[Record], *, expected_revision: int) -> None:
        """Write all records or none. Raises: RevisionConflict when the log has moved on."""
        if expected_revision != self.revision:
            raise RevisionConflict(
                f"the log is at revision {self.revision}, the writer at {expected_revision}",
                hint="open the memory again and repeat the write",
            )
        self._entries += [record.entry for record in records]
        self._times += [record.recorded_at for record in records]

    def __iter__(self) -> Iterator[Record]:
        return map(Record, self._entries, self._times)
