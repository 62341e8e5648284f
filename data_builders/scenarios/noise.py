"""Distractors: notes that are overtaken, true on a branch only, out of an old document, or mere guesses."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from data_builders.scenarios.cast import Cast
from data_builders.scenarios.phrasing import Saying, Scribe
from data_builders.scenarios.vocabulary import Role, Vocabulary
from data_builders.scenarios.world import Place, World, overlap
from data_builders.trajectory import Change, GoldClaim, Session, Trap
from operators.claims import ANY_SCOPE, Key
from operators.evidence import EvidenceType
from operators.schema import Cardinality

ROLES = {Trap.STALE: Role.STALE, Trap.DOCUMENTATION: Role.DOCUMENTATION, Trap.HEDGED: Role.BELIEF}
EVIDENCE: dict[Trap, tuple[EvidenceType, ...]] = {
    Trap.STALE: (
        EvidenceType.STALE_OBSERVATION, EvidenceType.STALE_OBSERVATION,
        EvidenceType.HUMAN_NOTE, EvidenceType.RUNTIME_OBSERVATION,
    ),
    Trap.DOCUMENTATION: (EvidenceType.HUMAN_NOTE, EvidenceType.HUMAN_NOTE, EvidenceType.STALE_OBSERVATION),
    Trap.BRANCH: (EvidenceType.BRANCH_EXPERIMENT,),
    Trap.HEDGED: (EvidenceType.HUMAN_NOTE,),
}  # fmt: skip
ASSERTING_HEDGES = 0.2
RUMOUR_RETURNS = 0.8


def schedule(rng: random.Random, length: int, *, long_noise: bool) -> list[int]:
    """How many distractors follow each of the sessions: 1 for 3 in all, or 3 for 2 with a long tail."""
    counts = [0] * length
    for _ in range(round(1.5 * length) if long_noise else round(length / 3)):
        tail = rng.random() < (0.4 if long_noise else 0.2)
        counts[length - 1 if tail else rng.randrange(length)] += 1
    return counts


@dataclass(slots=True)
class Noise:
    """Makes distractors that contradict what the world holds at the time.

    `contended` are the keys about which most of the rumours go; a rumour tends to be told again.
    """

    rng: random.Random
    vocabulary: Vocabulary
    cast: Cast
    world: World
    scribe: Scribe
    traps: Mapping[Trap, int]
    contended: frozenset[Key]
    _rumours: dict[Place, tuple[str, int]] = field(default_factory=dict)

    def session(self, name: str, date: datetime) -> Session:
        """The next distractor. Where its trap finds nothing to mislead about, it is a hedged one."""
        trap = self.rng.choices(list(self.traps), list(self.traps.values()))[0]
        sayings: list[Saying] = []
        if trap is Trap.BRANCH:
            sayings = self._branch()
        elif trap is not Trap.HEDGED or self.rng.random() < ASSERTING_HEDGES:
            sayings = self._disputes(ROLES[trap])
        claims = tuple(saying.gold for saying in sayings)
        if not sayings:
            trap, sayings = Trap.HEDGED, self._guess()
        return Session(
            id=name, date=date, evidence=self.rng.choice(EVIDENCE[trap]), trap=trap,
            note=self.scribe.note(sayings), claims=claims,
        )  # fmt: skip

    def _disputes(self, role: Role) -> list[Saying]:
        """One or two wrong claims about different places."""
        open_to = {place: wrong for place in self.world.places if (wrong := self._wrong(place))}
        sayings: list[Saying] = []
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            if open_to:
                places = list(open_to)
                place = self.rng.choices(places, [self._pull(p) for p in places])[0]
                value = self._rumour(place, open_to.pop(place))
                sayings.append(Saying(self.world.dispute(place, value), role=role))
        return sayings

    def _pull(self, place: Place) -> float:
        """How much a place draws rumours: contended ones do, most of all right after a change."""
        if place.key not in self.contended:
            return 0.1
        told = self._rumours.get(place, ("", 0))[1]
        return 3.0 if told == len(self.world.facts(place)) else 9.0

    def _rumour(self, place: Place, wrong: tuple[str, ...]) -> str:
        value = self._rumours.get(place, ("", 0))[0]
        if value not in wrong or self.rng.random() > RUMOUR_RETURNS:
            value = self.rng.choice(wrong)
        self._rumours[place] = (value, len(self.world.facts(place)))
        return value

    def _wrong(self, place: Place) -> tuple[str, ...]:
        """Values to claim against what commits say: overtaken ones, or failing those, any others."""
        now = self.world.value(place)
        if not self.world.backed(place):
            return ()
        if place.member is not None:
            return () if now else (place.member,)
        others = (v for v in self.cast.pools[place.key.slot] if now is None or not overlap(v, now))
        return self.world.overtaken(place) or tuple(others)

    def _branch(self) -> list[Saying]:
        """Something that is so on a spike branch only."""
        recipes = self.vocabulary.recipes
        keys = [
            key
            for key in self.cast.keys
            if key.branch == key.env == ANY_SCOPE
            and recipes[key.slot].cardinality is Cardinality.ONE
            and self.world.backed(Place(key))
        ]
        if not keys:
            return []
        key = self.rng.choice(keys)
        main = self.world.value(Place(key))
        values = [v for v in self.cast.pools[key.slot] if main is None or not overlap(v, main)]
        place = Place(key._replace(branch=self.rng.choice(self.cast.spikes)))
        old = self.world.value(place)
        gold = self.world.claim(place, self.rng.choice(values))
        return [Saying(gold, old=old if gold.change in (Change.REPLACES, Change.REVERTS) else None)]

    def _guess(self) -> list[Saying]:
        """A plan or a question about some value: it claims nothing."""
        key = self.rng.choice(self.cast.keys)
        value = self.rng.choice(self.cast.pools[key.slot])
        gold = GoldClaim(**key._asdict(), value=value, change=Change.DISPUTES)
        return [Saying(gold, role=Role.HEDGED)]
