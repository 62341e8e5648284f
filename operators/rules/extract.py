"""extract-state by rules: the schema's aliases say what is meant, a sentence's structure gives the value."""

from __future__ import annotations

from operators.claims import Note, StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.outcome import Outcome, empty, valid
from operators.rules.mentions import Mention, SchemaIndex, Target
from operators.rules.values import Reading, read_value
from operators.rules.wording import HEDGE, STALE, sentences
from operators.schema import SlotSchema


class RuleExtract:
    """Sentence by sentence: which pair is named, hedged or not, old or not, which value, in which scope."""

    identity = "rules/1"
    pure = True

    def __init__(self) -> None:
        self._index: SchemaIndex | None = None

    def extract(self, note: Note, schema: SlotSchema) -> Outcome[list[StateClaim]]:
        """One claim a pair and scope, the last said; hedged sentences claim nothing.

        A sentence that calls its own source old is evidence of type stale-observation.
        """
        if self._index is None or self._index.schema is not schema:
            self._index = SchemaIndex(schema)
        claims: dict[tuple[str, ...], StateClaim] = {}
        topic: str | None = None
        for text in sentences(note.text):
            spoken = _entities(self._index, text)
            if HEDGE.search(text) is None:
                for target, reading in _readings(self._index, text, spoken or ({topic} if topic else set())):
                    claim = self._claim(note, text, target, reading)
                    member = (claim.value or claim.retires or "") if target.slot.cardinality == "many" else ""
                    claims[(*claim.key, member)] = claim
            if len(spoken) == 1:
                topic = next(iter(spoken))
        if not claims:
            return empty([], "no sentence gives a slot of the schema a value")
        return valid(list(claims.values()))

    def _claim(self, note: Note, text: str, target: Target, reading: Reading) -> StateClaim:
        assert self._index is not None
        return StateClaim(
            entity=target.entity.entity, slot=target.slot.slot, value=reading.value, retires=reading.retires,
            branch=self._index.branch(text), env=self._index.env(text),
            evidence=evidence_of(note, text), timestamp=note.observed_at,
        )  # fmt: skip


def evidence_of(note: Note, text: str) -> Evidence:
    """The note's evidence; stale-observation where no commit backs it and the text calls itself old."""
    if STALE.search(text) and note.git_commit is None:
        return Evidence(type=EvidenceType.STALE_OBSERVATION, source=note.source_id)
    return note.evidence


def _entities(index: SchemaIndex, text: str) -> set[str]:
    return {target.entity.entity for target in index.targets if target.entity_names.find(text)}


def _readings(index: SchemaIndex, text: str, topics: set[str]) -> list[tuple[Target, Reading]]:
    """Every pair the sentence gives a value.

    A pair is meant when its slot is named beside its entity (in this sentence or, by carry-over, the one
    before), when its slot's name is unique in the schema, or when its entity is named and has no other slot.
    """
    meant: list[tuple[Target, list[Mention]]] = []
    for target in index.targets:
        slots = target.slot_names.find(text)
        about = target.entity.entity in topics
        if not (slots and (about or target.unique_slot)) and not (about and target.only_slot):
            continue
        meant.append((target, slots + target.entity_names.find(text)))
    found = []
    for target, names in meant:
        reading = read_value(text, target, names)
        if reading is not None:
            found.append((target, reading))
    return found
