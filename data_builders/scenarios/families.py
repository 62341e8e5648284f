"""The three families' scripts, and the play: sessions in order, each claim true when it is made."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import ceil

from data_builders.scenarios.cast import Cast, draw_cast
from data_builders.scenarios.noise import Noise, schedule
from data_builders.scenarios.phrasing import Saying, Scribe
from data_builders.scenarios.queries import ask
from data_builders.scenarios.vocabulary import Vocabulary
from data_builders.scenarios.world import Place, World, overlap
from data_builders.trajectory import Change, Session, Trajectory, Trap
from operators.claims import Key
from operators.errors import ConfigError
from operators.evidence import EvidenceType
from operators.normal import Form
from operators.schema import Cardinality

START = datetime(2023, 1, 9, 8, tzinfo=UTC)
QUIET_SHARE = 0.1
CONTENDED_SHARE = 0.5  # about half the keys, so that neither trusting nor distrusting the last word pays
OPENED_BY = 0.55  # the part of a scenario by whose end every key has appeared
DISRUPTIVE = (Change.REPLACES, Change.REVERTS, Change.REMOVES)
MEMBER_MOVES = {Change.INTRODUCES: 3, Change.REVERTS: 4, Change.REMOVES: 3, Change.RESTATES: 1}
FILES = ("config.yaml", "deploy.toml", "src/settings.py", "values.json", "Makefile", "README.md")


class Family(StrEnum):
    """The scenario families (paper, appendix A.4)."""

    AUTHORITY_OVERWRITE = "authority-overwrite"
    SCOPE_DIVERGENCE = "scope-divergence"
    INCIDENT_TIMELINE = "incident-timeline"


@dataclass(frozen=True, slots=True)
class Script:
    """What tends to happen in a family.

    `moves` weighs what a claim does to a key that holds something; `returns` is added to `reverts`
    after a disruption; `hotfixes` is the chance that a return is an incident's; `scoped_share` is the
    part of pairs in several scopes.
    """

    moves: Mapping[Change, int]
    returns: int
    hotfixes: float
    scoped_share: float
    traps: Mapping[Trap, int]


SCRIPTS: dict[Family, Script] = {
    Family.AUTHORITY_OVERWRITE: Script(
        moves={
            Change.REPLACES: 12, Change.REFINES: 6, Change.REVERTS: 1, Change.RESTATES: 2, Change.REMOVES: 1,
        },
        returns=1, hotfixes=0.1, scoped_share=0.1,
        traps={Trap.STALE: 5, Trap.DOCUMENTATION: 4, Trap.BRANCH: 1, Trap.HEDGED: 2},
    ),
    Family.SCOPE_DIVERGENCE: Script(
        moves={
            Change.REPLACES: 10, Change.REFINES: 6, Change.REVERTS: 2, Change.RESTATES: 2, Change.REMOVES: 1,
        },
        returns=1, hotfixes=0.2, scoped_share=0.7,
        traps={Trap.STALE: 5, Trap.DOCUMENTATION: 2, Trap.BRANCH: 3, Trap.HEDGED: 2},
    ),
    Family.INCIDENT_TIMELINE: Script(
        moves={
            Change.REPLACES: 8, Change.REFINES: 6, Change.REVERTS: 2, Change.RESTATES: 1, Change.REMOVES: 3,
        },
        returns=12, hotfixes=0.7, scoped_share=0.1,
        traps={Trap.STALE: 6, Trap.DOCUMENTATION: 2, Trap.BRANCH: 1, Trap.HEDGED: 2},
    ),
}  # fmt: skip


def generate(
    family: Family, *, seed: int, length: int = 12, long_noise: bool = False, vocabulary: Vocabulary
) -> Trajectory:
    """A scenario of `length` sessions that are no distractors; equal arguments give an equal scenario.

    Raises: ConfigError for a length below 1.
    """
    if length < 1:
        raise ConfigError(f"a scenario of {length} sessions", hint="give a length of at least 1")
    rng = random.Random(f"{family}/{seed}/{length}/{long_noise}")
    script = SCRIPTS[family]
    cast = draw_cast(rng, vocabulary, length=length, scoped_share=script.scoped_share)
    many = frozenset(r.slot for r in vocabulary.slots if r.cardinality is Cardinality.MANY)
    play = _Play(rng, script, cast, World(many), Scribe(rng, vocabulary, cast.schema), vocabulary)
    sessions = tuple(play.sessions(length, long_noise=long_noise))
    mode = "long" if long_noise else "short"
    return Trajectory(
        name=f"{family}-{seed}-{length}-{mode}", repository=f"synthetic/{family}", licence="Apache-2.0",
        about=f"A made-up history of the family {family} (seed {seed}).",
        schema=cast.schema, sessions=sessions,
        queries=ask(rng, vocabulary, play.world, play.scribe, per_kind=max(1, min(8, length // 4))),
    )  # fmt: skip


@dataclass(slots=True)
class _Play:
    """One run of a script: draws each session's claims from what the world allows."""

    rng: random.Random
    script: Script
    cast: Cast
    world: World
    scribe: Scribe
    vocabulary: Vocabulary

    def sessions(self, length: int, *, long_noise: bool) -> Iterator[Session]:
        """All sessions in order, distractors among them; the world has recorded what was yielded."""
        contended = self.rng.sample(self.cast.keys, ceil(CONTENDED_SHARE * len(self.cast.keys)))
        noise = Noise(
            self.rng, self.vocabulary, self.cast, self.world, self.scribe,
            traps=self.script.traps, contended=frozenset(contended),
        )  # fmt: skip
        date = START + timedelta(days=self.rng.randrange(1000))
        distractors = 0
        for number, following in enumerate(schedule(self.rng, length, long_noise=long_noise)):
            date += timedelta(minutes=self.rng.randint(300, 6000))
            session = self._session(number, date, length)
            self.world.record(session)
            yield session
            for _ in range(following):
                distractors += 1
                date += timedelta(minutes=self.rng.randint(40, 2000))
                session = noise.session(f"d{distractors:02d}", date)
                self.world.record(session)
                yield session

    def _session(self, number: int, date: datetime, length: int) -> Session:
        sayings: list[Saying] = []
        if number == 0 or self.rng.random() >= QUIET_SHARE:
            sayings = self._sayings((number + 1) / length)
        claims = tuple(saying.gold for saying in sayings)
        touched = dict.fromkeys(claim.entity for claim in claims)
        return Session(
            id=f"s{number + 1:02d}", commit=f"{self.rng.getrandbits(160):040x}", date=date,
            files=tuple(f"{entity}/{self.rng.choice(FILES)}" for entity in touched),
            evidence=self._evidence(sayings), note=self.scribe.note(sayings), claims=claims,
        )  # fmt: skip

    def _sayings(self, progress: float) -> list[Saying]:
        """One to three claims on different keys: keys that are due to appear first, then moves."""
        opened = {place.key for place in self.world.places}
        unopened = [key for key in self.cast.keys if key not in opened]
        count = self.rng.choice((1, 1, 1, 2, 2, 3))
        due = ceil(len(self.cast.keys) * min(1.0, progress / OPENED_BY))
        fresh = unopened[: min(3, max(due - (len(self.cast.keys) - len(unopened)), 0 if opened else 1))]
        alive = [key for key in self.cast.keys if key in opened]
        moved = self.rng.sample(alive, min(len(alive), max(0, count - len(fresh))))
        sayings: list[Saying] = []
        for key in (*fresh, *moved):
            saying = self._member_move(key) if self._is_many(key) else self._move(key)
            taken = [s.gold.value for s in sayings if s.gold.key[:2] == key[:2]]
            if saying.gold.value is None or saying.gold.value not in taken:
                sayings.append(saying)
        return sayings

    def _move(self, key: Key) -> Saying:
        """A first value, or a move that the script's weights favour among those possible."""
        place, now = Place(key), self.world.value(Place(key))
        recipe = self.vocabulary.recipes[key.slot]
        siblings = self.world.siblings(key)
        facts = self.world.facts(place)
        earlier = {fact.value for fact in facts}
        free = [
            value
            for value in dict.fromkeys((*self.cast.pools[key.slot], *self.world.overtaken(place)))
            if not any(overlap(value, other) for other in (*siblings, *((now,) if now else ())))
        ]
        if not facts:
            return Saying(self.world.claim(place, self.rng.choice(free)))
        details = recipe.details if now in self.cast.pools[key.slot] else ()
        options: dict[Change, Sequence[str | None]] = {
            Change.REPLACES: [value for value in free if value not in earlier],
            Change.REVERTS: [value for value in free if value in earlier],
            Change.REFINES: [f"{now} {detail}" for detail in details],
            Change.REMOVES: [None] if now and recipe.form is not Form.FLAG else [],
            Change.RESTATES: [now] if now else [],
        }
        returns = self.script.returns if facts[-1].change in DISRUPTIVE else 0
        moves = {**self.script.moves, Change.REVERTS: self.script.moves[Change.REVERTS] + returns}
        change = self._choose(options, moves)
        gold = self.world.claim(place, self.rng.choice(options[change]), refines=change is Change.REFINES)
        return Saying(gold, old=now if change in DISRUPTIVE else None)

    def _member_move(self, key: Key) -> Saying:
        """A member joins, leaves, comes back or is named again."""
        present = self.world.members(key)
        known = [p.member for p in self.world.places if p.key == key and p.member is not None]
        gone = [member for member in known if member not in present]
        options: dict[Change, Sequence[str | None]] = {
            Change.INTRODUCES: [value for value in self.cast.pools[key.slot] if value not in known],
            Change.REVERTS: gone,
            Change.REMOVES: list(present) if len(present) > 1 else [],
            Change.RESTATES: list(present),
        }
        change = self._choose(options, MEMBER_MOVES)
        member = self.rng.choice(options[change])
        return Saying(self.world.claim(Place(key, member), None if change is Change.REMOVES else member))

    def _choose(
        self, options: Mapping[Change, Sequence[str | None]], weights: Mapping[Change, int]
    ) -> Change:
        possible = [change for change, values in options.items() if values]
        return self.rng.choices(possible, [weights[change] for change in possible])[0]

    def _is_many(self, key: Key) -> bool:
        return self.vocabulary.recipes[key.slot].cardinality is Cardinality.MANY

    def _evidence(self, sayings: list[Saying]) -> EvidenceType:
        """A hotfix may bring a value back; what only observes the config overrules nothing."""
        changes = {saying.gold.change for saying in sayings}
        if Change.REVERTS in changes and self.rng.random() < self.script.hotfixes:
            return EvidenceType.INCIDENT_HOTFIX
        if changes <= {Change.INTRODUCES, Change.RESTATES} and self.rng.random() < 0.3:
            return EvidenceType.CONFIG_OBSERVATION
        return EvidenceType.CODE_CHANGE
