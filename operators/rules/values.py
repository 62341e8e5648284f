"""Reading a slot's value off a sentence that speaks of the slot."""

from __future__ import annotations

import re
from dataclasses import dataclass

from operators.normal import Form
from operators.rules.mentions import Mention, Target
from operators.rules.wording import (
    MAX_SPAN_WORDS,
    NEGATION,
    OFF,
    ON,
    ON_AS_STATE,
    REMOVAL,
    WINDOW,
    is_negated,
    is_old_value,
    new_value_spans,
)
from operators.schema import Cardinality

_VERSION = re.compile(r"\bv?\d+(?:\.\d+)+(?:[-+.]?[a-z0-9]+)*\b|\b(?-i:v)\d+\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w.#])(?<!\d[-+])(?:(?<!\w)[-+])?\d[\d,_]*(?:\.\d+)?"
    r"(?:\s?(?:[mµn]?s|secs?|mins?|hrs?|[kmg]i?b|[kmg]?hz|rpm|px|%|°?[cfk]|seconds?|minutes?|hours?|days?|weeks?"
    r"|bytes?))?(?!\w)",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"`([^`\n]{1,80})`|\"([^\"\n]{1,60})\""
    r"|(?<![\w`#])((?:[\w$~.-]*\w*[_/.:-][\w/.:<>{}$*-]*\w|[A-Z]\w*[A-Z]\w*|\w*\d\w*))(?![\w`])"
)
NEAR = 40
"""Characters between a name and a value that no wording marks as the new one."""
_SHAPES = {Form.VERSION: _VERSION, Form.NUMBER: _NUMBER, Form.NAME: _IDENTIFIER}
_ON_AS_STATE_AFTER = re.compile(r"\s+(?:by\s+default|again|everywhere|unless)|\s*[.,;]?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sentence says of a slot: a value, or a removal (of one member, where it names one)."""

    value: str | None
    retires: str | None = None


def read_value(text: str, target: Target, names: list[Mention]) -> Reading | None:
    """The reading, or None when the sentence gives the slot no value.

    `names` are the places where the entity or slot is named: a value does not lie inside them.
    """
    form = target.slot.form
    value = _value(text, target, names)
    if not _says_removed(text, names):
        return Reading(value) if value is not None else None
    if target.slot.cardinality is Cardinality.MANY:
        return _member_removal(text, form, names, value)
    if value is None or form in (Form.TEXT, Form.FLAG) or next(new_value_spans(text), None) is None:
        return Reading(None)
    return Reading(value)


def _value(text: str, target: Target, names: list[Mention]) -> str | None:
    form = target.slot.form
    if form is Form.FLAG:
        return _flag(text)
    if form is Form.ENUM:
        return _enum(text, target, names)
    if form is Form.TEXT:
        return _free(text, names, limit=MAX_SPAN_WORDS)
    value = _shaped(text, _SHAPES[form], names)
    return value or _free(text, names, limit=3) if form is Form.NAME else value


def _says_removed(text: str, names: list[Mention]) -> bool:
    """Whether a removal verb stands right beside a name: at most four words of one clause between them."""
    for verb in REMOVAL.finditer(text):
        for name in names:
            between = (
                text[verb.end() : name.start] if name.start >= verb.end() else text[name.end : verb.start()]
            )
            apart = name.start >= verb.end() or name.end <= verb.start()
            if apart and len(between.split()) <= 4 and not re.search(r"[,;:()]", between):
                return True
    return False


def _member_removal(text: str, form: Form, names: list[Mention], value: str | None) -> Reading | None:
    """The one member a sentence takes away, or all where it says so; None where it names neither."""
    if value is None and form in _SHAPES:
        matches = [m for m in _SHAPES[form].finditer(text) if not _inside(Mention(m.start(), m.end()), names)]
        value = _group(matches[0]) if matches else None
    if value is not None:
        return Reading(None, retires=value)
    return Reading(None) if re.search(r"\b(?:all|every|each|entirely)\b", text, re.IGNORECASE) else None


def _flag(text: str) -> str | None:
    """on or off: the last such word that is not the old state, turned round by a negation before it."""
    found: str | None = None
    for match in re.finditer(rf"{ON.pattern}|{OFF.pattern}", text, re.IGNORECASE):
        before = text[max(0, match.start() - WINDOW) : match.start()]
        if match[0].lower() == "on" and not (
            ON_AS_STATE.search(before) or _ON_AS_STATE_AFTER.match(text[match.end() :])
        ):
            continue
        if re.search(r"\bfrom\s+$", before, re.IGNORECASE):
            continue
        state = "on" if ON.fullmatch(match[0]) else "off"
        window = before[-25:]
        if NEGATION.search(window):
            state = "off" if state == "on" else "on"
        found = state
    return found


def _enum(text: str, target: Target, names: list[Mention]) -> str | None:
    """The value named right after a change word, else the last one named that is not the old value."""
    places = sorted(
        (mention.start, -mention.end, name)
        for name, matcher in target.values.items()
        for mention in matcher.find(text)
        if not _inside(mention, names)
        and not is_old_value(text, mention.start)
        and not is_negated(text, mention.start)
    )
    if not places:
        return None
    for span in new_value_spans(text):
        for name, matcher in target.values.items():
            first = matcher.find(span)
            if first and first[0].start <= 12 and name in {place[2] for place in places}:
                return name
    return places[-1][2]


def _shaped(text: str, shape: re.Pattern[str], names: list[Mention]) -> str | None:
    """The first value of that shape in the surest new-value stretch, else the only one in the sentence."""
    for span in new_value_spans(text):
        match = shape.search(span)
        if match and _is_denied(text, span, match.start()):
            continue
        if match and match.start() <= 12 and not _names_cover(text, match[0], names) and not _is_hash(match):
            return _group(match)
    rest = [
        _group(m)
        for m in shape.finditer(text)
        if not _inside(Mention(m.start(), m.end()), names)
        and not _is_hash(m)
        and not is_old_value(text, m.start())
        and not is_negated(text, m.start())
        and any(abs(m.start() - name.end) <= NEAR or abs(name.start - m.end()) <= NEAR for name in names)
    ]
    return rest[0] if len(set(rest)) == 1 else None


def _free(text: str, names: list[Mention], *, limit: int) -> str | None:
    """A stretch of words after a change word, short enough for the form."""
    for span in new_value_spans(text):
        if _is_denied(text, span, 0):
            continue
        words = span.strip("`'\"").split()
        if len(words) <= limit and not _names_cover(text, span, names) and re.search(r"\w", span):
            return span.strip("`'\" ")
    return None


def _is_denied(text: str, span: str, start: int) -> bool:
    """Whether what stands at `start` of the span is an old or a denied value, in the span or before it."""
    place = text.find(span)
    return is_old_value(span, start) or is_negated(span, start) or (place >= 0 and is_negated(text, place))


def _group(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group), match[0]).strip(".,:")


def _is_hash(match: re.Match[str]) -> bool:
    """Whether the match is a commit hash: it says who, not what."""
    return re.fullmatch(r"(?=.*[a-f])(?=.*\d)[0-9a-f]{7,40}", _group(match)) is not None


def _inside(mention: Mention, names: list[Mention]) -> bool:
    return any(n.start <= mention.start and mention.end <= n.end for n in names)


def _names_cover(text: str, span: str, names: list[Mention]) -> bool:
    start = text.find(span)
    return start >= 0 and _inside(Mention(start, start + len(span)), names)
