"""What is true in a scenario: for each key (or member of a key) the facts in order, and who disputes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from data_builders.trajectory import Change, GoldClaim, Session
from operators.claims import Key


class Place(NamedTuple):
    """Where one value at a time holds: a key or, in a slot of cardinality many, one member of it."""

    key: Key
    member: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """A session that changed a place. `commit` is None for a branch note that no commit backs."""

    session: str
    commit: str | None
    date: datetime
    value: str | None
    change: Change


def overlap(one: str, other: str) -> bool:
    """Whether two values are the same or one only says more than the other."""
    return one in other or other in one


class World:
    """The generator's own books. Only `record` writes to them."""

    def __init__(self, many: frozenset[str]) -> None:
        """`many` names the slots of cardinality many."""
        self._many = many
        self._facts: dict[Place, list[Fact]] = {}
        self._disputed: dict[Place, list[str]] = {}

    @property
    def places(self) -> tuple[Place, ...]:
        """Every place that ever held something, in order of appearance."""
        return tuple(self._facts)

    def facts(self, place: Place) -> tuple[Fact, ...]:
        """Everything that moved the place, oldest first; restatements do not."""
        return tuple(self._facts.get(place, ()))

    def value(self, place: Place) -> str | None:
        """What holds now; None if it was removed or never set."""
        facts = self._facts.get(place)
        return facts[-1].value if facts else None

    def backed(self, place: Place) -> bool:
        """Whether a commit stands behind the holder."""
        facts = self._facts.get(place)
        return facts is not None and facts[-1].commit is not None

    def overtaken(self, place: Place) -> tuple[str, ...]:
        """Earlier values that contradict what holds now, oldest first."""
        now = self.value(place)
        earlier = dict.fromkeys(fact.value for fact in self._facts.get(place, ()))
        return tuple(v for v in earlier if v is not None and (now is None or not overlap(v, now)))

    def disputes(self, place: Place) -> tuple[str, ...]:
        """The wrong values that distractors claimed, in order, with repetitions."""
        return tuple(self._disputed.get(place, ()))

    def members(self, key: Key) -> tuple[str, ...]:
        """What a slot of cardinality many holds now."""
        places = (p for p in self._facts if p.key == key and p.member is not None)
        return tuple(value for place in places if (value := self.value(place)) is not None)

    def siblings(self, key: Key) -> tuple[str, ...]:
        """The values that the same entity and slot hold, by commits, in other scopes."""
        others = (p for p in self._facts if p.key[:2] == key[:2] and p.key != key and self.backed(p))
        return tuple(value for place in others if (value := self.value(place)) is not None)

    def claim(self, place: Place, value: str | None, *, refines: bool = False) -> GoldClaim:
        """The claim that `place` has `value` from now on: what it changes, and whom it meets."""
        facts = self.facts(place)
        if not facts:
            return _gold(place, value, Change.INTRODUCES, None)
        holder = facts[-1]
        if value == holder.value:
            change = Change.RESTATES
        elif value is None:
            change = Change.REMOVES
        elif refines:
            change = Change.REFINES
        else:
            known = value in {fact.value for fact in facts}
            change = Change.REVERTS if known else Change.REPLACES
        return _gold(place, value, change, holder.session)

    def dispute(self, place: Place, value: str) -> GoldClaim:
        """The claim, by a distractor, that `place` has a value which it has not."""
        return _gold(place, value, Change.DISPUTES, self._facts[place][-1].session)

    def record(self, session: Session) -> None:
        """Enter the claims of a session into the books."""
        for gold in session.claims:
            place = self._place(gold)
            if gold.change is Change.DISPUTES:
                self._disputed.setdefault(place, []).append(gold.value or "")
            elif gold.change is not Change.RESTATES:
                fact = Fact(session.id, session.commit, session.date, gold.value, gold.change)
                self._facts.setdefault(place, []).append(fact)

    def _place(self, gold: GoldClaim) -> Place:
        return Place(gold.key, (gold.retires or gold.value) if gold.slot in self._many else None)


def _gold(place: Place, value: str | None, change: Change, against: str | None) -> GoldClaim:
    key = place.key
    return GoldClaim(
        entity=key.entity, slot=key.slot, branch=key.branch, env=key.env, value=value, change=change,
        against=against, retires=place.member if value is None else None,
    )  # fmt: skip
