"""extract-state by a model: in one answer (direct), or pairs first and then their values (two-stage)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from operators.claims import Note, StateClaim
from operators.learned.answers import (
    FillSpace,
    claim_of,
    direct_schema,
    extracted,
    malformed,
    read_claims,
    value_fits,
)
from operators.models.text import ChoiceRequest, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind, empty
from operators.prompts import SELECT_CHOICES, direct_messages, fill_messages, sanitised, select_messages
from operators.schema import Entity, Slot, SlotSchema

DIRECT_TOKENS = 400
FILL_TOKENS = 160
Extracted = Outcome[list[StateClaim]]
Case = tuple[Note, SlotSchema]
Pair = tuple[Entity, Slot]


@dataclass(frozen=True, slots=True)
class DirectExtract:
    """One constrained answer lists every claim of the note."""

    model: TextModel
    adapter: str | None = None

    @property
    def identity(self) -> str:
        return f"direct:{self.adapter or self.model.identity}"

    @property
    def pure(self) -> bool:
        return False

    def extract(self, note: Note, schema: SlotSchema) -> Extracted:
        """Empty for a blank note, unasked; malformed for an unknown pair or a value the note lacks."""
        return self.extract_batch([(note, schema)])[0]

    def extract_batch(self, cases: Sequence[Case]) -> list[Extracted]:
        """The outcomes of many notes, in order."""
        asked = [number for number, (note, _) in enumerate(cases) if note.text.strip()]
        requests = [
            TextRequest(
                tuple(direct_messages(*cases[number])),
                direct_schema(*cases[number]),
                DIRECT_TOKENS,
                self.adapter,
            )
            for number in asked
        ]
        answers = dict(zip(asked, self.model.complete(requests), strict=True))
        return [
            self._read(*case, answers[number]) if number in answers else empty([], "a blank note")
            for number, case in enumerate(cases)
        ]

    @staticmethod
    def _read(note: Note, schema: SlotSchema, answer: Outcome[str]) -> Extracted:
        if answer.value is None:
            return Outcome(answer.kind, None, answer.detail)
        entries = read_claims(answer.value)
        if entries is None:
            return malformed("the answer is no list of claims")
        pairs = {f"{entity.entity}.{slot.slot}": (entity, slot) for entity, slot in schema.pairs()}
        text = sanitised(note.text)
        claims = []
        for entry in entries:
            pair = pairs.get(str(entry.get("pair")))
            if pair is None:
                return malformed(f"no pair {entry.get('pair')!r}")
            value, retired = entry.get("value"), entry.get("retires")
            if not value_fits(value, text, pair[1]) or not value_fits(retired, text, pair[1]):
                return malformed(f"{value or retired!r} is no value of {entry['pair']} in this note")
            if value is not None and retired is not None:
                return malformed(f"{entry['pair']} is both stated and retired")
            claims.append(claim_of(note, *pair, entry, quote=note.text))
        return extracted(claims)


@dataclass(frozen=True, slots=True)
class TwoStageExtract:
    """Every pair is scored on its own, those over the threshold are filled with a quote and a value.

    `threshold` (0 to 1) is the probability of yes from which a pair counts as stated; it is calibrated on
    validation folds and stands in the adapter's card. A right pair under it is lost: stage-1 recall is
    reported by itself.
    """

    model: TextModel
    adapter: str | None = None
    threshold: float = 0.5

    @property
    def identity(self) -> str:
        return f"two-stage:{self.adapter or self.model.identity}@{self.threshold:g}"

    @property
    def pure(self) -> bool:
        return False

    def extract(self, note: Note, schema: SlotSchema) -> Extracted:
        """Empty for a blank note, unasked, and for a note of which no pair passes the threshold."""
        return self.extract_batch([(note, schema)])[0]

    def extract_batch(self, cases: Sequence[Case]) -> list[Extracted]:
        """The outcomes of many notes, in order; a failed call of either stage fails its note."""
        chosen = self.select(cases)
        todo = [(number, pair) for number, outcome in enumerate(chosen) for pair in outcome.value or ()]
        spaces = [FillSpace.of(*cases[number], pair[1]) for number, pair in todo]
        answers = self.model.complete(
            [
                TextRequest(
                    tuple(fill_messages(*cases[number], *pair)), space.schema(), FILL_TOKENS, self.adapter
                )
                for (number, pair), space in zip(todo, spaces, strict=True)
            ]
        )
        filled: dict[int, list[Extracted]] = {number: [] for number in range(len(cases))}
        for (number, pair), space, answer in zip(todo, spaces, answers, strict=True):
            filled[number].append(_read_fill(cases[number][0], pair, space, answer))
        return [
            Outcome(outcome.kind, None, outcome.detail) if outcome.value is None else _joined(filled[number])
            for number, outcome in enumerate(chosen)
        ]

    def select(self, cases: Sequence[Case]) -> list[Outcome[list[Pair]]]:
        """Stage 1 alone: the pairs each note states, in the schema's order; none for a blank note."""
        return [
            self._over(schema, scores) for (_, schema), scores in zip(cases, self.score(cases), strict=True)
        ]

    def _over(self, schema: SlotSchema, scores: Outcome[list[float]]) -> Outcome[list[Pair]]:
        if scores.value is None:
            return Outcome(scores.kind, None, scores.detail)
        scored = zip(schema.pairs(), scores.value, strict=False)  # a blank note has no scores
        return Outcome(OutcomeKind.VALID, [pair for pair, score in scored if score >= self.threshold])

    def score(self, cases: Sequence[Case]) -> list[Outcome[list[float]]]:
        """How probably the note states each pair, in the schema's order; [] for a blank note."""
        asked = [
            (number, pair)
            for number, (note, schema) in enumerate(cases)
            if note.text.strip()
            for pair in schema.pairs()
        ]
        answers = self.model.choose(
            [
                ChoiceRequest(tuple(select_messages(cases[number][0], *pair)), SELECT_CHOICES, self.adapter)
                for number, pair in asked
            ]
        )
        scores: list[Outcome[list[float]]] = [Outcome(OutcomeKind.VALID, []) for _ in cases]
        for (number, _), answer in zip(asked, answers, strict=True):
            found = scores[number].value
            if answer.value is None:
                scores[number] = Outcome(answer.kind, None, answer.detail)
            elif found is not None:
                found.append(answer.value[SELECT_CHOICES.index("yes")])
        return scores


def _read_fill(note: Note, pair: Pair, space: FillSpace, answer: Outcome[str]) -> Extracted:
    if answer.value is None:
        return Outcome(answer.kind, None, answer.detail)
    entries = read_claims(answer.value)
    name = f"{pair[0].entity}.{pair[1].slot}"
    if not entries:
        return malformed(f"{name}: the answer is no list of claims")
    if not all(space.holds(entry) for entry in entries):
        return malformed(f"{name}: a quote, value or scope that the note does not hold")
    return extracted([claim_of(note, *pair, entry, quote=str(entry["quote"])) for entry in entries])


def _joined(outcomes: Sequence[Extracted]) -> Extracted:
    """All claims of a note, or the first failure."""
    claims: list[StateClaim] = []
    for outcome in outcomes:
        if outcome.value is None:
            return outcome
        claims += outcome.value
    return extracted(claims)
