"""What a model may answer: a JSON schema for each task, and the check of what came back.

The schema closes what code can close: pairs, enum values, scopes, and for open forms the spans of the note. A
server may still ignore it, so the same is checked on the answer; what fails is malformed and never repaired.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from operators.claims import ANY_SCOPE, Note, Relation, StateClaim
from operators.evidence import Evidence
from operators.models.text import JsonSchema
from operators.outcome import Outcome, OutcomeKind, empty, valid
from operators.prompts import sanitised
from operators.quotes import allowed_values, clauses
from operators.rules.extract import evidence_of
from operators.rules.mentions import named_scopes
from operators.schema import Cardinality, Entity, Slot, SlotSchema

MAX_CLAIMS = 12
"""Claims in one answer; no gold note of the trajectories has more than seven."""

MAX_VALUES = 4
"""Values of one pair in one note."""


@dataclass(frozen=True, slots=True)
class FillSpace:
    """Everything that an answer about one pair of one note may hold."""

    quotes: tuple[str, ...]
    values: tuple[str, ...]
    many: bool
    scopes: dict[str, tuple[str, ...]]

    @staticmethod
    def of(note: Note, schema: SlotSchema, slot: Slot) -> FillSpace:
        text = sanitised(note.text)
        return FillSpace(
            quotes=tuple(clauses(text)),
            values=allowed_values(text, slot),
            many=slot.cardinality is Cardinality.MANY,
            scopes=named_scopes(note.text, schema),
        )

    def schema(self) -> JsonSchema:
        """An object with the claims: quote first, then value, retired member, scopes."""
        values = _value_fields(self.values, many=self.many)
        fields = {"quote": {"enum": list(self.quotes)}, **values, **_scope_fields(self.scopes)}
        return _claims_schema(_entry(fields), least=1, most=MAX_VALUES)

    def holds(self, answer: dict[str, object]) -> bool:
        """Whether one claim of an answer keeps to this space."""
        scopes_fit = all(answer.get(kind) in (*names, ANY_SCOPE) for kind, names in self.scopes.items())
        value, retired = answer.get("value"), answer.get("retires")
        value_fits = value is None or value in self.values
        retires_fits = retired is None or (self.many and value is None and retired in self.values)
        return answer.get("quote") in self.quotes and value_fits and retires_fits and scopes_fit


def direct_schema(note: Note, schema: SlotSchema) -> JsonSchema:
    """The schema of a direct answer: each pair may have the values that its slot can take from this note."""
    scopes, text = _scope_fields(named_scopes(note.text, schema)), sanitised(note.text)
    alike: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for entity, slot in schema.pairs():
        space = (allowed_values(text, slot), slot.cardinality is Cardinality.MANY)
        alike.setdefault(space, []).append(f"{entity.entity}.{slot.slot}")
    entries = [
        _entry({"pair": {"enum": pairs}, **_value_fields(values, many=many), **scopes})
        for (values, many), pairs in alike.items()
    ]
    return _claims_schema({"anyOf": entries}, least=0, most=MAX_CLAIMS)


RELATION_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {"relation": {"enum": [relation.value for relation in Relation]}},
    "required": ["relation"],
    "additionalProperties": False,
}


def claim_of(note: Note, entity: Entity, slot: Slot, answer: dict[str, object], *, quote: str) -> StateClaim:
    """The claim that a checked answer makes; its evidence is the note's, or stale if the quote says so."""
    value, retired = answer.get("value"), answer.get("retires")
    evidence: Evidence = evidence_of(note, quote)
    return StateClaim(
        entity=entity.entity, slot=slot.slot, value=None if value is None else str(value),
        retires=None if retired is None else str(retired),
        branch=str(answer.get("branch", ANY_SCOPE)), env=str(answer.get("env", ANY_SCOPE)),
        evidence=evidence, timestamp=note.observed_at,
    )  # fmt: skip


def read_claims(text: str) -> list[dict[str, object]] | None:
    """The entries of `{"claims": [...]}`; None for anything else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    entries = data.get("claims") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    return entries


def malformed(detail: str) -> Outcome[list[StateClaim]]:
    return Outcome(OutcomeKind.MALFORMED, None, detail)


def extracted(claims: Sequence[StateClaim]) -> Outcome[list[StateClaim]]:
    """Each claim once, in order."""
    distinct = list({claim.claim_id: claim for claim in claims}.values())
    return valid(distinct) if distinct else empty([], "the model states nothing")


def value_fits(value: object, text: str, slot: Slot) -> bool:
    """Whether a direct answer's value is one the slot can have: listed, on/off, or a span of the note."""
    return value is None or value in allowed_values(text, slot)


def _scope_fields(scopes: dict[str, tuple[str, ...]]) -> dict[str, object]:
    return {kind: {"enum": [*names, ANY_SCOPE]} for kind, names in scopes.items()}


def _value_fields(values: tuple[str, ...], *, many: bool) -> dict[str, object]:
    """The value or null, and for a slot of many the member that is retired (an enum may not be empty)."""
    fields: dict[str, object] = {"value": {"enum": [*values, None]}}
    if many and values:
        fields["retires"] = {"enum": list(values)}
    return fields


def _entry(fields: dict[str, object]) -> JsonSchema:
    """One claim; only `retires` may be left out."""
    required = [name for name in fields if name != "retires"]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _claims_schema(entry: JsonSchema, *, least: int, most: int) -> JsonSchema:
    claims = {"type": "array", "items": entry, "minItems": least, "maxItems": most}
    return {
        "type": "object",
        "properties": {"claims": claims},
        "required": ["claims"],
        "additionalProperties": False,
    }
