"""From mined commits to gold: extract cases from messages, compare and update cases from chains."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pydantic import Field

from data_builders.gold import CompareCase, ExtractCase, GoldCases, UpdateCase
from data_builders.mining.align import Aligned, Alignment
from data_builders.mining.history import MinedCommit, Transition
from data_builders.mining.miners import MINERS
from operators.claims import Action, Comparison, MemoryItem, Note, Relation, StateClaim, UtcDatetime, Winner
from operators.evidence import Evidence, EvidenceType
from operators.items import LiveItems
from operators.schema import Cardinality, Entity, FrozenModel, Slot, SlotSchema
from operators.status import Status

PAIRS_SHOWN = 16
"""Pairs in a mined note's schema: those it states, then others of its commit and of its repository."""

MAX_NOTE = 2_000
"""Characters of a scrubbed message that are searched and shown."""

CHAIN_KINDS = ("change", "change", "stale", "restated")
"""What a chain case is made of, in turn: two real changes, then a made-up late note of each kind."""

_SLOT_WORDS = {slot: words for miner in MINERS for slot, words in miner.slots.items()}


class MinedClaim(FrozenModel):
    """A stated transition: `value` is the span that gives it, None for a removal."""

    entity: str
    slot: str
    value: str | None
    retires: str | None = None
    miner: str
    family: str


class MinedNote(FrozenModel):
    """A scrubbed commit message with the pairs offered and the claims that the diff proves it to make."""

    id: str
    repository: str
    sha: str
    time: UtcDatetime
    by_bot: bool
    text: str = Field(min_length=1)
    slot_schema: SlotSchema = Field(alias="schema")
    claims: tuple[MinedClaim, ...]

    def case(self) -> ExtractCase:
        """The note as the evaluation runs it."""
        note = Note(
            source_id=f"{self.repository}/{self.sha[:12]}", text=self.text, observed_at=self.time,
            evidence_type=EvidenceType.CODE_CHANGE, git_commit=self.sha,
        )  # fmt: skip
        gold = tuple(
            StateClaim(c.entity, c.slot, c.value, note.evidence, self.time, retires=c.retires)
            for c in self.claims
        )
        return ExtractCase(self.id, note, self.slot_schema, gold)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One change of one key on the mainline: what held before (and since which commit), what came."""

    transition: Transition
    commit: MinedCommit
    before_commit: MinedCommit


def mined_note(
    repository: str, commit: MinedCommit, text: str, aligned: Sequence[Aligned], pool: Sequence[Transition]
) -> MinedNote:
    """The commit's note with its stated claims. `pool` gives the pairs that fill the schema up."""
    stated = [a for a in aligned if a.alignment is Alignment.STATED]
    rng = random.Random(commit.sha)
    own = [a.transition for a in aligned if a.alignment is not Alignment.STATED]
    others = [
        *rng.sample(own, min(len(own), PAIRS_SHOWN // 2)),
        *rng.sample(pool, min(len(pool), PAIRS_SHOWN)),
    ]
    shown = [a.transition for a in stated]
    shown += others[: max(0, PAIRS_SHOWN - len(stated))]
    rng.shuffle(shown)
    return MinedNote(
        id=f"{repository}/{commit.sha[:12]}/extract",
        repository=repository,
        sha=commit.sha,
        time=commit.time,
        by_bot=commit.by_bot,
        text=text,
        schema=schema_of(shown),
        claims=tuple(_claim(a) for a in stated),
    )


def schema_of(transitions: Sequence[Transition]) -> SlotSchema:
    """A schema with every pair of the transitions, each under the names that texts may use.

    For no transition, a schema with one pair that nothing speaks of.
    """
    if not transitions:
        return SlotSchema(entities=(Entity(entity="#nothing", slots=(Slot(slot="nothing"),)),))
    slots: dict[str, dict[str, Slot]] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for t in transitions:
        aliases[t.entity] = (t.thing, *t.aliases)
        slots.setdefault(t.entity, {})[t.slot] = Slot(
            slot=t.slot,
            aliases=_SLOT_WORDS.get(t.slot, ()),
            form=t.form,
            cardinality=Cardinality.MANY if t.many else Cardinality.ONE,
        )
    return SlotSchema(
        entities=tuple(
            Entity(entity=entity, aliases=aliases[entity], slots=tuple(found.values()))
            for entity, found in slots.items()
        )
    )


def chains(commits: Sequence[MinedCommit]) -> Iterator[ChainLink]:
    """Every change of a value that held before, along the mainline, oldest first."""
    setter: dict[tuple[str, str], MinedCommit] = {}
    for commit in commits:
        if not commit.mainline:
            continue
        for t in commit.transitions:
            if t.many or t.moved:
                continue
            key = (t.entity, t.slot)
            if t.before is not None and key in setter:
                yield ChainLink(t, commit, setter[key])
            setter[key] = commit


def chain_cases(repository: str, links: Sequence[ChainLink]) -> GoldCases:
    """Compare and update cases from chain links; the diff says what really replaced what.

    Of four links, two give the change itself, one a late note that still says the old value (history proves
    it wrong) and one a late note that repeats the current value.
    """
    compare: list[CompareCase] = []
    update: list[UpdateCase] = []
    for number, link in enumerate(links):
        kind = CHAIN_KINDS[number % len(CHAIN_KINDS)]
        name = f"{repository}/{link.commit.sha[:12]}/{link.transition.entity}.{link.transition.slot}"
        incumbent, incoming = _pair(repository, link, kind)
        relation, winner, action = _GOLD[kind]
        item = _item(incumbent, incumbent.value)
        items = LiveItems()
        items.put(item, holds=True)
        compare.append(CompareCase(f"{name}/compare", incumbent, incoming, Comparison(relation, winner)))
        update.append(UpdateCase(f"{name}/update", items, incoming, action, item.item_id))
    schema = schema_of([link.transition for link in links])
    return GoldCases(schema, (), tuple(compare), tuple(update))


_GOLD = {
    "change": (Relation.CONTRADICTS, Winner.INCOMING, Action.SUPERSEDE),
    "stale": (Relation.CONTRADICTS, Winner.INCUMBENT, Action.CONTEST),
    "restated": (Relation.SAME, Winner.BOTH, Action.MERGE),
}


def _pair(repository: str, link: ChainLink, kind: str) -> tuple[StateClaim, StateClaim]:
    """The incumbent and the incoming claim of a chain case."""
    t, before, now = link.transition, link.before_commit, link.commit

    def said(value: str | None, commit: MinedCommit) -> StateClaim:
        evidence = Evidence(EvidenceType.CODE_CHANGE, f"{repository}/{commit.sha[:12]}", commit.sha)
        return StateClaim(t.entity, t.slot, value, evidence, commit.time)

    if kind == "change":
        return said(t.before, before), said(t.after, now)
    late = Evidence(EvidenceType.HUMAN_NOTE, f"{repository}/note-after-{now.sha[:12]}")
    value = t.before if kind == "stale" else t.after
    return said(t.after, now), StateClaim(t.entity, t.slot, value, late, now.time + timedelta(days=3))


def _item(claim: StateClaim, normal: str | None) -> MemoryItem:
    return MemoryItem(f"item-{claim.claim_id}", claim, normal, Status.CONFIRMED, 1, claim.timestamp, "")


def _claim(aligned: Aligned) -> MinedClaim:
    t = aligned.transition
    removed = t.after is None
    return MinedClaim(
        entity=t.entity,
        slot=t.slot,
        value=None if removed else aligned.value,
        retires=t.before if removed and t.many else None,
        miner=t.miner,
        family=t.family.value,
    )
