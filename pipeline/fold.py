"""The fold: one key's claims, in the order (event time, content hash), become its items.

`KeyState.apply` is one step of it. Whoever calls it in that order gets the state that is a pure function
of the key's set of claims and the recorded verdicts; `pipeline.memory` sees to the order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from operators.claims import Action, Decision, MemoryItem, StateClaim, Winner, content_hash
from operators.items import LiveItems
from operators.schema import Cardinality, SlotSchema
from operators.status import Status, move

Decide = Callable[[LiveItems, StateClaim], Decision | None]
"""Asks the update operator; None means: no answer, leave the claim Proposed."""


@dataclass(slots=True)
class Entry:
    """An item with everything that stands behind it and, once superseded, what replaced it.

    `held` says whether it ever was the key's current value, rather than only contesting one.
    """

    item: MemoryItem
    claims: list[StateClaim]
    successor: str | None = None
    held: bool = False


@dataclass(slots=True)
class MemberState:
    """One value line: the whole key in a slot of cardinality one, a single member otherwise."""

    name: str | None
    live: LiveItems = field(default_factory=LiveItems)
    entries: dict[str, Entry] = field(default_factory=dict)

    def apply(self, claim: StateClaim, normal: str | None, decide: Decide) -> Decision | None:
        """Take one claim in. Raises: IllegalTransition for a decision outside the status table."""
        decision = decide(self.live, claim)
        if decision is None:
            self._keep(self._new_item(claim, normal, Status.PROPOSED, "no operator answered"))
        elif decision.action is Action.MERGE:
            target = self.entries[decision.target or ""].item
            self._merge(target, claim, target.status, target.reason, holds=self.live.is_holder(target))
        elif decision.action is Action.CONTEST:
            self._contest(claim, normal, decision)
        else:
            self._install(claim, normal, decision)
        return decision

    def _install(self, claim: StateClaim, normal: str | None, decision: Decision) -> None:
        """The claim's value becomes current; every other live value is superseded.

        What contested the old value goes with it: the claim is newer than all of it, and at least as strong
        as the holder that it was too weak to replace.
        """
        known = self.live.with_value(normal)
        retired = [item for item in self.live if item is not known]
        if known is not None:
            now = self._merge(known, claim, Status.CONFIRMED, decision.reason, holds=True)
        else:
            now = self._new_item(claim, normal, Status.CONFIRMED, decision.reason)
        for item in retired:
            self.live.retire(item)
            entry = self.entries[item.item_id]
            entry.item = replace(item, status=move(item.status, Status.SUPERSEDED), reason=decision.reason)
            entry.successor = now.item_id
        if known is None:
            self._keep(now)
            self.live.put(now, holds=True)
        self.entries[now.item_id].held = True

    def _contest(self, claim: StateClaim, normal: str | None, decision: Decision) -> None:
        """The value is kept as contested; undecided, it stands beside the holders and contests them too."""
        tied = decision.winner is Winner.UNDECIDED
        if tied:
            for item in list(self.live.holders):
                contested = replace(item, status=move(item.status, Status.CONTESTED), reason=decision.reason)
                self.entries[item.item_id].item = contested
                self.live.put(contested, holds=True)
        known = self.live.with_value(normal)
        if known is not None:
            self._merge(known, claim, Status.CONTESTED, decision.reason, holds=tied)
            return
        item = self._new_item(claim, normal, Status.CONTESTED, decision.reason)
        self._keep(item)
        self.live.put(item, holds=tied)

    def _merge(
        self, item: MemoryItem, claim: StateClaim, status: Status, reason: str, *, holds: bool
    ) -> MemoryItem:
        entry = self.entries[item.item_id]
        entry.claims.append(claim)
        entry.item = MemoryItem(
            item_id=item.item_id,
            claim=claim if claim.rank > item.claim.rank else item.claim,
            normal=item.normal,
            status=move(item.status, status),
            support=item.support + 1,
            first_seen=item.first_seen,
            reason=reason,
        )
        self.live.put(entry.item, holds=holds)
        return entry.item

    def _keep(self, item: MemoryItem) -> None:
        self.entries[item.item_id] = Entry(item, [item.claim])

    def _new_item(self, claim: StateClaim, normal: str | None, status: Status, reason: str) -> MemoryItem:
        return MemoryItem(
            item_id=content_hash("item", claim.claim_id, self.name),
            claim=claim,
            normal=normal,
            status=move(Status.PROPOSED, status),
            support=1,
            first_seen=claim.timestamp,
            reason=reason,
        )


class KeyState:
    """All members of one key. A slot of cardinality one has the single member None."""

    __slots__ = ("blankets", "members", "schema")

    def __init__(self, schema: SlotSchema) -> None:
        self.schema = schema
        self.members: dict[str | None, MemberState] = {}
        self.blankets: list[StateClaim] = []

    def apply(self, claim: StateClaim, decide: Decide) -> list[Decision | None]:
        """One step of the fold: the decisions taken, one for each member the claim touches.

        In a slot of cardinality many, a removal that names no member touches every member there is, and
        later ones meet it when they first appear.
        """
        slot = self.schema.slot(claim.entity, claim.slot)
        normal = self.schema.normal(claim)
        if slot.cardinality is Cardinality.ONE:
            return [self._member(None, decide).apply(claim, normal, decide)]
        if normal is None and claim.retires is None:
            self.blankets.append(claim)
            return [member.apply(claim, None, decide) for member in self.members.values()]
        name = normal
        if claim.retires is not None:
            name = self.schema.normal_of(claim.entity, claim.slot, claim.retires)
        return [self._member(name, decide).apply(claim, normal, decide)]

    def _member(self, name: str | None, decide: Decide) -> MemberState:
        found = self.members.get(name)
        if found is None:
            found = self.members[name] = MemberState(name)
            for blanket in self.blankets:
                found.apply(blanket, None, decide)
        return found
