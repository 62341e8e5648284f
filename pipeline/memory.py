"""The memory: a log, and the projection that folds it key by key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from operators.claims import Decision, Finding, Key, MemoryItem, Note, StateClaim, content_hash
from operators.schema import SlotSchema
from operators.status import Status
from pipeline.decide import Decider
from pipeline.fold import Entry, KeyState
from pipeline.log import Failure, InMemoryLog, MemoryLog, Record, Ruling

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Version:
    """An item with all its evidence and, once superseded, the id of its successor.

    `held` says whether it ever was the key's current value.
    """

    item: MemoryItem
    claims: tuple[StateClaim, ...]
    successor: str | None
    held: bool


class Memory:
    """Claims in, items out. Only `write` changes it, and a write that fails changes nothing.

    `clock` gives the known time of what is written. A log that already holds records is folded on opening.
    """

    def __init__(
        self,
        schema: SlotSchema,
        decider: Decider,
        *,
        log: MemoryLog | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.schema = schema
        self.decider = decider
        self.log: MemoryLog = log if log is not None else InMemoryLog()
        self._clock = clock
        self._claims: dict[Key, list[StateClaim]] = {}
        self._states: dict[Key, KeyState] = {}
        self._known: set[str] = set()
        self.findings: dict[str, Finding] = {}
        self.notes: dict[str, Note] = {}  # by content, so that an edited note is a second one
        self._revision = 0
        self._load(self.log)

    def write(
        self,
        claims: Sequence[StateClaim] = (),
        *,
        note: Note | None = None,
        findings: Sequence[Finding] = (),
        failures: Sequence[Failure] = (),
        verdicts: Sequence[Ruling] = (),
    ) -> list[tuple[StateClaim, Decision | None]]:
        """Log and fold one note's worth of entries, all or nothing; what is known already is passed over.

        Returns each new claim with the decision on it (None: it stays Proposed). A claim that arrives out of
        order refolds its key.
        Raises: SchemaError, OperatorFailure, IllegalTransition, RevisionConflict; the memory is as before.
        """
        fresh = self._fresh(claims)
        book = self.decider.verdicts() if verdicts else None
        written = False
        try:
            if self.decider.learn(verdicts):
                self._refold_all()
            results = [(claim, self._project(claim)) for claim in fresh]
            entries: list[Note | StateClaim | Finding | Failure | Ruling] = []
            if note is not None and note.note_id not in self.notes:
                entries.append(note)
            entries += [finding for finding in findings if finding.finding_id not in self.findings]
            entries += [*fresh, *verdicts, *failures, *self.decider.pending]
            now = self._clock()
            self.log.append([Record(entry, now) for entry in entries], expected_revision=self._revision)
            written = True
        finally:  # whatever went wrong, an operator's own exception included: the write did not happen
            if not written:
                self.decider.discard()
                self._withdraw(fresh)
                if book is not None:
                    self.decider.restore(book)
                    self._refold_all()
        self.decider.drain()
        self._revision += len(entries)
        if note is not None:
            self.notes.setdefault(note.note_id, note)
        for finding in findings:
            self.findings.setdefault(finding.finding_id, finding)
        return results

    def absorb(self, records: Iterable[Record]) -> None:
        """Take over another memory's log; what is known already is passed over. Raises: as `write`."""
        entries = [record.entry for record in records]
        rulings = [entry for entry in entries if isinstance(entry, Ruling)]
        for note in (entry for entry in entries if isinstance(entry, Note)):
            self.write(note=note)
        self.write(
            [entry for entry in entries if isinstance(entry, StateClaim)],
            findings=[entry for entry in entries if isinstance(entry, Finding)],
            verdicts=[ruling for ruling in rulings if ruling.seen],
        )

    def as_of(self, *, valid: datetime | None = None, known: datetime | None = None) -> Memory:
        """What held at event time `valid`, as far as it was known at `known`; None means now."""
        log = InMemoryLog()
        kept = [
            record
            for record in self.log
            if (known is None or record.recorded_at <= known)
            and (valid is None or (_event_time(record) or valid) <= valid)
        ]
        log.append(kept, expected_revision=0)
        return Memory(self.schema, self.decider.fork(), log=log, clock=self._clock)

    def known_keys(self) -> list[Key]:
        """Every key that has a claim, sorted."""
        return sorted(self._states)

    def current(self, key: Key) -> list[MemoryItem]:
        """The Confirmed items of a key that say something is there, oldest first.

        At most one in a slot of cardinality one. Empty for an unknown key, a removed thing and a tie.
        """
        return [item for item in self.confirmed(key) if item.normal is not None]

    def confirmed(self, key: Key) -> list[MemoryItem]:
        """The Confirmed items of a key, a removal included, oldest first."""
        items = [v.item for v in self.versions(key) if v.item.status is Status.CONFIRMED]
        return sorted(items, key=lambda item: (item.first_seen, item.item_id))

    def contested(self, key: Key) -> list[MemoryItem]:
        """The Contested items of a key, strongest first."""
        items = [v.item for v in self.versions(key) if v.item.status is Status.CONTESTED]
        return sorted(items, key=lambda item: (item.claim.rank, item.item_id), reverse=True)

    def versions(self, key: Key) -> list[Version]:
        """Every item the key ever had, in fold order, with evidence and successor."""
        return [Version(e.item, tuple(e.claims), e.successor, e.held) for e in self._entries(key)]

    def state(self) -> dict[str, list[list[object]]]:
        """The whole projection as plain data: equal states are equal data."""
        return {
            str(key): [
                [v.item.item_id, v.item.claim.value, v.item.status.value, v.successor,
                 v.item.first_seen.isoformat(), sorted(claim.claim_id for claim in v.claims)]
                for v in self.versions(key)
            ]
            for key in self.known_keys()
        }  # fmt: skip

    def state_hash(self) -> str:
        """One hash over `state` and the findings."""
        return content_hash(self.state(), sorted(self.findings))

    def _entries(self, key: Key) -> Iterator[Entry]:
        state = self._states.get(key)
        for _, member in sorted(state.members.items(), key=lambda kv: kv[0] or "") if state else ():
            yield from member.entries.values()

    def _fresh(self, claims: Iterable[StateClaim]) -> list[StateClaim]:
        """The claims not known yet, under the schema's names, each once. Raises: SchemaError."""
        fresh: dict[str, StateClaim] = {}
        for claim in claims:
            named = self.schema.canonical(claim)
            if named.claim_id not in self._known:
                fresh.setdefault(named.claim_id, named)
        return list(fresh.values())

    def _project(self, claim: StateClaim) -> Decision | None:
        """Fold one new claim in: a step when it is the newest of its key, a refold otherwise."""
        key = claim.key
        claims = self._claims.setdefault(key, [])
        self._known.add(claim.claim_id)
        in_order = not claims or claim.order > claims[-1].order
        if in_order:
            claims.append(claim)
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = KeyState(self.schema)
            return _told(state.apply(claim, self.decider))
        claims.insert(bisect_left(claims, claim.order, key=lambda other: other.order), claim)
        return self._refold(key, claim)

    def _refold(self, key: Key, watched: StateClaim | None = None) -> Decision | None:
        state = KeyState(self.schema)
        told: Decision | None = None
        for claim in self._claims[key]:
            decisions = state.apply(claim, self.decider)
            if claim is watched:
                told = _told(decisions)
        self._states[key] = state
        return told

    def _refold_all(self) -> None:
        for key in self._claims:
            self._refold(key)

    def _withdraw(self, claims: Iterable[StateClaim]) -> None:
        """Take claims of a failed write out again."""
        gone = {claim.claim_id for claim in claims} & self._known
        self._known -= gone
        for key in {claim.key for claim in claims}:
            kept = [claim for claim in self._claims.get(key, ()) if claim.claim_id not in gone]
            self._claims[key] = kept
            if kept:
                self._refold(key)
            else:
                self._claims.pop(key)
                self._states.pop(key, None)
        self.decider.discard()

    def _load(self, log: MemoryLog) -> None:
        entries = [record.entry for record in log]
        self.decider.learn(entry for entry in entries if isinstance(entry, Ruling))
        for entry in entries:
            if isinstance(entry, Note):
                self.notes[entry.note_id] = entry
            elif isinstance(entry, Finding):
                self.findings[entry.finding_id] = entry
        for claim in self._fresh(entry for entry in entries if isinstance(entry, StateClaim)):
            self._known.add(claim.claim_id)
            self._claims.setdefault(claim.key, []).append(claim)
        for key, claims in self._claims.items():
            claims.sort(key=lambda claim: claim.order)
            self._refold(key)
        self.decider.discard()
        self._revision = log.revision


def _told(decisions: list[Decision | None]) -> Decision | None:
    """The decision to report: the first, where a removal touched several members."""
    return decisions[0] if decisions else None


def _event_time(record: Record) -> datetime | None:
    entry = record.entry
    if isinstance(entry, Note):
        return entry.observed_at
    if isinstance(entry, StateClaim | Finding):
        return entry.timestamp
    return None
