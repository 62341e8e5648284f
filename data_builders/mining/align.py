"""What a commit message says of a transition: states it, names the thing only, or nothing.

The label comes from the diff; the message is only searched for it. A transition is *stated* when one sentence
names the thing and gives the new value as whole words, *named* when the message names it, else *silent*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from data_builders.mining.history import Transition
from operators.normal import OFF_WORDS, ON_WORDS, Form


class Alignment(StrEnum):
    STATED = "stated"
    NAMED = "named"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Aligned:
    """A transition with what the message says of it; `value` is the span that gives the value (stated ones).

    None for a stated removal.
    """

    transition: Transition
    alignment: Alignment
    value: str | None


MIN_NAME = 3
_SPECIFIER = re.compile(r"^[\^~=<>!\sv]+(?=\d)")
_REMOVES = re.compile(
    r"\b(?:remov(?:e[sd]?|ing|al of)|delet(?:e[sd]?|ing)|drop(?:s|ped|ping)?|get(?:s|ting)? rid of"
    r"|strip(?:s|ped)?|no longer (?:depends? on|uses?|needs?|requires?))\b",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:\s+(?:the|an?|our|its|old|unused|now|deprecated|obsolete|legacy|redundant|unnecessary|unneeded|direct|dev"
    r"|dependency|dependencies|crate|package|module|flag|option|feature|setting|key|config|constant|file|command"
    r"|script|support|use|usage|on|of|for))*\s+",
    re.IGNORECASE,
)
"""What may stand between a removal verb and the name of what is removed."""
_STATE = (
    r"(?:(?:is|are|was|stays?|default(?:s|ed|ing)?(?: to)?|turn(?:s|ed|ing)?|switch(?:es|ed)?|set to|flag)\s+"
    r"|[=:-]\s*)"
)
_ON = re.compile(
    r"(?<![\w-])(?:true|enabl(?:e[sd]?|ing)|activat(?:e[sd]?|ing)|on by default)(?![\w-])"
    rf"|{_STATE}on(?![\w-])",
    re.IGNORECASE,
)
_OFF = re.compile(
    r"(?<![\w-])(?:false|disabl(?:e[sd]?|ing)(?:-by-default)?|deactivat(?:e[sd]?|ing)|off by default)"
    rf"(?![\w-])|{_STATE}off(?![\w-])",
    re.IGNORECASE,
)
"""On and off as states: a preposition, or a part of a longer name, says neither."""
_BACKWARDS = re.compile(
    r"\b(?:from|was|were|instead of|rather than|not|no longer|than)\s+\W?$", re.IGNORECASE
)
_WRAPPED = re.compile(r"(?m)^([^|\n]{50,})\n(?=[a-z`(](?![0-9a-f]{6,}\b))")
_GIVEN = re.compile(
    r"(?:\b(?:to|as|is|are|by|use[sd]?|now|set|add(?:s|ed|ing)?|containing|read|allow|in|into)\s+(?:an? )?\W?"
    r"|[=:>(]\s*\W?|[`'\"])$",
    re.IGNORECASE,
)
"""Right before a value that is a plain word: it is given, not just said."""
_REVERT = re.compile(r"^\s*(?:this reverts|revert\b|reapply\b|reland\b)", re.IGNORECASE)
_WORDS = frozenset(
    """the and for from with that this into use uses used new old add adds added fix fixes run runs test tests
    name names version versions type types file files path paths build default defaults value values key keys
    config option options id url title description author license include exclude source sources target
    targets main dev docs doc lint format check release update updates python node rust branch branches on
    push all none true false core common utils""".split()
)
"""Words that name nothing by themselves: such a thing counts as named only in quotes or backticks."""


def sentences(text: str) -> Iterator[str]:
    """The message's lines, cut at full stops that end a sentence.

    A long line that goes on in lower case is wrapped prose; other line breaks separate (lists, tables).
    """
    for line in _WRAPPED.sub(r"\1 ", text).splitlines():
        yield from (part for part in re.split(r"(?<=[.!?])\s+(?=[A-Z`])|;\s+", line) if part.strip())


def align(text: str, transitions: Sequence[Transition]) -> list[Aligned]:
    """Each transition with what the scrubbed message says of it, in order.

    A message that undoes another commit is quoted speech in reverse, so nothing in it is stated. A value that
    several things with the same name and different values could claim is stated for none of them.
    """
    parts = [] if _REVERT.match(text) else list(sentences(text))
    found = [_align(text, parts, transition) for transition in transitions]
    spoken: dict[str, set[str | None]] = {}
    for aligned in found:
        if aligned.alignment is Alignment.STATED and not aligned.transition.many:
            spoken.setdefault(aligned.transition.thing, set()).add(aligned.value)
    return [
        Aligned(a.transition, Alignment.NAMED, None)
        if a.alignment is Alignment.STATED and len(spoken.get(a.transition.thing, ())) > 1
        else a
        for a in found
    ]


def spans_of(name: str, text: str) -> list[tuple[int, int]]:
    """Where the name stands as whole words; a common word only where it is quoted."""
    quoted = rf"[`'\"]{re.escape(name)}[`'\"]"
    plain = rf"(?<![\w./@-]){re.escape(name)}(?![\w/-]|\.\w)"
    common = name.lower() in _WORDS or len(name) < MIN_NAME or name.isdigit()
    pattern = quoted if common else rf"{quoted}|{plain}"
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def _align(text: str, parts: Sequence[str], transition: Transition) -> Aligned:
    names = (transition.thing, *transition.aliases)
    if not any(spans_of(name, text) for name in names):
        return Aligned(transition, Alignment.SILENT, None)
    if transition.moved:
        return Aligned(transition, Alignment.NAMED, None)
    for part in parts:
        places = [span for name in names for span in spans_of(name, part)]
        if not places:
            continue
        if transition.after is None:
            if _is_removed(part, places, transition):
                return Aligned(transition, Alignment.STATED, None)
            continue
        value = _value_in(part, places, transition)
        if value is not None:
            return Aligned(transition, Alignment.STATED, value)
    return Aligned(transition, Alignment.NAMED, None)


def _is_removed(part: str, places: list[tuple[int, int]], transition: Transition) -> bool:
    """A removal verb before the name, fillers apart; of a member, the member must be named as well."""
    member = transition.before or ""
    if transition.many and not _standing(part, member):
        return False
    for verb in _REMOVES.finditer(part):
        for start, _ in places:
            if start >= verb.end() and _FILLER.fullmatch(part[verb.end() : start]):
                return True
    return False


def _value_in(part: str, places: list[tuple[int, int]], transition: Transition) -> str | None:
    """The span of the sentence that gives the new value, outside the name; None when it does not."""
    value = transition.after or ""
    if transition.form is Form.FLAG:
        return _flag_in(_without(part, places), value)
    bare = _SPECIFIER.sub("", value) if transition.form is Form.VERSION else value
    if _is_weak(bare, transition.form):
        return None
    for start, end in _standing(part, bare):
        inside_name = any(a <= start and end <= b for a, b in places)
        plain_word = re.fullmatch(r"[A-Za-z]+", bare) is not None
        if inside_name or _BACKWARDS.search(part[:start]) or (plain_word and not _GIVEN.search(part[:start])):
            continue
        return part[start:end]
    return None


def _without(part: str, places: list[tuple[int, int]]) -> str:
    """The sentence with the names blanked out."""
    for start, end in places:
        part = part[:start] + "\N{BULLET}" * (end - start) + part[end:]
    return part


def _flag_in(part: str, value: str) -> str | None:
    """The word that says on or off, if the sentence says just one of the two and it is the right one."""
    on, off = _ON.search(part), _OFF.search(part)
    if (on is None) == (off is None):
        return None
    if re.search(r"\b(?:not|never|no longer|don't|doesn't|without|stop)\b", part, re.IGNORECASE):
        return None
    if on is not None:
        return "on" if value == "on" and value in ON_WORDS else None
    return "off" if value == "off" and value in OFF_WORDS else None


def _is_weak(value: str, form: Form) -> bool:
    """Values so short or so common that finding them proves nothing."""
    if not value or value.lower() in _WORDS or value in {"*", ".", "latest"}:
        return True
    if form is Form.NUMBER:
        return len(re.sub(r"\D", "", value)) < 2
    if form is Form.VERSION:
        return not re.search(r"\d", value)
    return len(value) < MIN_NAME


def _standing(part: str, value: str) -> list[tuple[int, int]]:
    """Where the value stands as a whole token (a leading v apart)."""
    pattern = rf"(?<![\w./@-])v?({re.escape(value)})(?![\w/-]|\.\w)"
    return [match.span(1) for match in re.finditer(pattern, part, re.IGNORECASE)]
