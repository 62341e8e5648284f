"""Gold for the three operators and for the state, read off a trajectory's `change` and `against`.

Nothing here asks an operator or weighs evidence: what replaced what is history, as written down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from data_builders.trajectory import Change, GoldClaim, Session, Trajectory
from operators.claims import Action, Comparison, Key, MemoryItem, Note, Relation, StateClaim, Winner
from operators.items import LiveItems
from operators.schema import Cardinality, SlotSchema
from operators.status import Status

COMPARISONS: dict[Change, Comparison] = {
    Change.RESTATES: Comparison(Relation.SAME, Winner.BOTH),
    Change.REFINES: Comparison(Relation.REFINES, Winner.INCOMING),
    Change.REPLACES: Comparison(Relation.CONTRADICTS, Winner.INCOMING),
    Change.REVERTS: Comparison(Relation.CONTRADICTS, Winner.INCOMING),
    Change.REMOVES: Comparison(Relation.CONTRADICTS, Winner.INCOMING),
    Change.DISPUTES: Comparison(Relation.CONTRADICTS, Winner.INCUMBENT),
}
"""What history says of a claim that met a holder. `introduces` met nobody."""

UNRELATED_EVERY = 3
"""One compare case of two different keys for each so many claims."""

Place = tuple[Key, str]
"""A key and, in a slot of cardinality many, the member's normal value (empty otherwise)."""


@dataclass(frozen=True, slots=True)
class ExtractCase:
    """A note with the pairs it may speak of and the claims it makes."""

    case_id: str
    note: Note
    schema: SlotSchema
    gold: tuple[StateClaim, ...]


@dataclass(frozen=True, slots=True)
class CompareCase:
    case_id: str
    incumbent: StateClaim
    incoming: StateClaim
    gold: Comparison


@dataclass(frozen=True, slots=True)
class UpdateCase:
    """`target` is the id of the item that the action meets, None for `add`."""

    case_id: str
    items: LiveItems
    incoming: StateClaim
    action: Action
    target: str | None


@dataclass(frozen=True, slots=True)
class GoldCases:
    """Every example of one holdout, in order; `schema` is that of the compare and update cases."""

    schema: SlotSchema
    extract: tuple[ExtractCase, ...]
    compare: tuple[CompareCase, ...]
    update: tuple[UpdateCase, ...]


@dataclass(frozen=True, slots=True)
class GoldState:
    """What is true after a session: each place's normal value, None where the thing was removed."""

    session_id: str
    values: dict[Place, str | None]


@dataclass(slots=True)
class _Line:
    """One place's history so far: who holds it and what disputes it."""

    holder: StateClaim | None = None
    support: int = 0
    disputes: dict[str | None, StateClaim] = field(default_factory=dict)


class _History:
    """Walks a trajectory's claims and keeps, by its annotations alone, what holds where."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.lines: dict[Place, _Line] = {}

    def place(self, gold: GoldClaim) -> Place:
        schema = self.trajectory.slot_schema
        if schema.slot(gold.entity, gold.slot).cardinality is Cardinality.ONE:
            return (gold.key, "")
        member = gold.retires or gold.value or ""
        return (gold.key, schema.normal_of(gold.entity, gold.slot, member))

    def normal(self, claim: StateClaim) -> str | None:
        return self.trajectory.slot_schema.normal(claim)

    def advance(self, gold: GoldClaim, claim: StateClaim) -> None:
        line = self.lines.setdefault(self.place(gold), _Line())
        if gold.change is Change.DISPUTES:
            line.disputes.setdefault(self.normal(claim), claim)
        elif gold.change is Change.RESTATES:
            line.support += 1
        else:
            line.holder, line.support = claim, 1
            line.disputes.clear()  # they disputed what no longer holds


def gold_cases(trajectory: Trajectory) -> GoldCases:
    """All extract, compare and update cases of a trajectory (none for one without claims)."""
    history = _History(trajectory)
    extract: list[ExtractCase] = []
    compare: list[CompareCase] = []
    update: list[UpdateCase] = []
    latest: dict[str, StateClaim] = {}
    for session, claims in _walk(trajectory):
        case_id = f"{trajectory.name}/{session.id}"
        note = session.as_note(trajectory.name)
        gold_claims = tuple(claim for _, claim in claims)
        extract.append(ExtractCase(f"{case_id}/extract", note, trajectory.slot_schema, gold_claims))
        for number, (gold, claim) in enumerate(claims):
            where = f"{case_id}/{number}"
            line = history.lines.get(history.place(gold), _Line())
            if line.holder is not None:
                compare.append(CompareCase(f"{where}/compare", line.holder, claim, COMPARISONS[gold.change]))
            neighbour = latest.get(gold.entity)
            if len(update) % UNRELATED_EVERY == 0 and neighbour is not None and neighbour.key != claim.key:
                both = Comparison(Relation.UNRELATED, Winner.BOTH)
                compare.append(CompareCase(f"{where}/unrelated", neighbour, claim, both))
            update.append(_update_case(f"{where}/update", line, gold, claim, history))
            latest[gold.entity] = claim
        for gold, claim in claims:
            history.advance(gold, claim)
    return GoldCases(trajectory.slot_schema, tuple(extract), tuple(compare), tuple(update))


def gold_states(trajectory: Trajectory) -> list[GoldState]:
    """The true state after each session, in order."""
    history = _History(trajectory)
    states = []
    for session, claims in _walk(trajectory):
        for gold, claim in claims:
            history.advance(gold, claim)
        values = {
            place: history.normal(line.holder)
            for place, line in history.lines.items()
            if line.holder is not None
        }
        states.append(GoldState(session.id, values))
    return states


def _walk(trajectory: Trajectory) -> Iterator[tuple[Session, list[tuple[GoldClaim, StateClaim]]]]:
    for session in trajectory.sessions:
        yield (
            session,
            [(gold, session.state_claim(gold, trajectory.name)) for gold in session.claims],
        )


def _update_case(
    case_id: str, line: _Line, gold: GoldClaim, claim: StateClaim, history: _History
) -> UpdateCase:
    """Add where nothing holds; merge what was said before, dispute or not; otherwise as history did."""
    items = LiveItems()
    holder: MemoryItem | None = None
    if line.holder is not None:
        holder = _item(line.holder, history.normal(line.holder), Status.CONFIRMED, line.support)
        items.put(holder, holds=True)
    for normal, dispute in line.disputes.items():
        if holder is None or normal != holder.normal:
            items.put(_item(dispute, normal, Status.CONTESTED, 1), holds=False)
    disputed = items.with_value(history.normal(claim)) if gold.change is Change.DISPUTES else None
    if holder is None:
        return UpdateCase(case_id, items, claim, Action.ADD, None)
    if disputed is not None:
        return UpdateCase(case_id, items, claim, Action.MERGE, disputed.item_id)
    action = {Change.RESTATES: Action.MERGE, Change.DISPUTES: Action.CONTEST}.get(
        gold.change, Action.SUPERSEDE
    )
    return UpdateCase(case_id, items, claim, action, holder.item_id)


def _item(claim: StateClaim, normal: str | None, status: Status, support: int) -> MemoryItem:
    return MemoryItem(f"item-{claim.claim_id}", claim, normal, status, support, claim.timestamp, "")
