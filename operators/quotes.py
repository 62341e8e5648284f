"""What an answer about a note may hold: its clauses as quotes, and as values the spans a slot can take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from operators.claims import StateClaim
from operators.normal import Form, normal_value
from operators.schema import Slot, SlotSchema

MAX_SPAN_WORDS = 10
_BREAK = re.compile(r"(?<=[.;!?])\s+|,\s+|\n+")
_WORD = re.compile(r"\S+")
_EDGES = "\"'`“”‘’()[]{}<>*_,.;:!?"


def clauses(text: str) -> list[str]:
    """The text's clauses in order, each as it stands there; none for a blank text."""
    parts = (part.strip().rstrip(".;,") for part in _BREAK.split(text))
    return list(dict.fromkeys(part for part in parts if part))


def spans(text: str, form: Form) -> list[str]:
    """What a value of an open form may be: runs of up to MAX_SPAN_WORDS words of a line, edge marks off.

    A number or version is a run of at most three words that holds a digit.
    """
    numeric = form in (Form.NUMBER, Form.VERSION)
    found = (
        span
        for line in text.splitlines()
        for span in _runs(line, 3 if numeric else MAX_SPAN_WORDS)
        if not numeric or any(letter.isdigit() for letter in span)
    )
    return list(dict.fromkeys(found))


def allowed_values(text: str, slot: Slot) -> tuple[str, ...]:
    """The values a slot may take from a note: an enum's names, on and off, or spans of the text."""
    if slot.form is Form.ENUM:
        return tuple(slot.values)
    if slot.form is Form.FLAG:
        return ("on", "off")
    return tuple(spans(text, slot.form))


def as_allowed(text: str, value: str, slot: Slot) -> str:
    """The allowed value that means the same: as it stands if it is one, else the first of equal normal form.

    A value that equals none (its note does not say it) is returned unchanged.
    """
    allowed = allowed_values(text, slot)
    if value in allowed:
        return value
    normal = normal_value(value, slot.form, slot.values)
    return next((v for v in allowed if normal_value(v, slot.form, slot.values) == normal), value)


def quote_for(text: str, claim: StateClaim, schema: SlotSchema) -> str:
    """The first clause that holds the claim's value, else the one with most words of the pair's names.

    Raises: ValueError for a text without a word.
    """
    found = clauses(text)
    if not found:
        raise ValueError("a blank note backs no claim")
    said = claim.value or claim.retires
    if said:
        holding = [clause for clause in found if said.lower() in clause.lower()]
        if holding:
            return holding[0]
    entity, slot = next(
        pair for pair in schema.pairs() if (pair[0].entity, pair[1].slot) == (claim.entity, claim.slot)
    )
    values = (said, *slot.values.get(said, ())) if said else ()
    wanted = _words(" ".join((*entity.names, *slot.names, slot.about, *values)))
    return max(found, key=lambda clause: len(wanted & _words(clause)))


def _runs(line: str, longest: int) -> Iterator[str]:
    places = [(match.start(), match.end()) for match in _WORD.finditer(line)]
    for first in range(len(places)):
        for last in range(first, min(first + longest, len(places))):
            raw = line[places[first][0] : places[last][1]]
            bare = raw.lstrip(_EDGES.replace(".", "")).rstrip(_EDGES)
            if bare:
                yield bare


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))
