"""English wording that carries state: hedges, staleness, removal, negation, change of value.

Everything here is about sentence structure; no word belongs to one repository or schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_SPAN_WORDS = 10
MAX_SENTENCE = 1_000
WINDOW = 60
"""Characters before a value in which wording is looked for."""


def _any_of(block: str) -> str:
    """A regex for any of the phrases, one a line or between slashes; a blank is any white space."""
    choices = (re.sub(r"\s+", r"\\s+", phrase.strip()) for phrase in re.split(r" / |\n", block))
    return f"(?:{'|'.join(choice for choice in choices if choice)})"


def _words(block: str) -> re.Pattern[str]:
    return re.compile(rf"\b{_any_of(block)}\b", re.IGNORECASE)


_GUESS = _words(
    """
    might / maybe / perhaps / possibly / probably / presumably / likely / supposedly / apparently
    could / would / should we / someone should / may want / may be / may become / may have / may go
    i think / i believe / i guess / i suspect / i suppose / i wonder / not sure / unsure / unclear
    no idea / we plan / we hope / we intend / we may / we want / planned / planning / plans to
    considering / proposal / proposed / proposes / rumou?rs? / hypothetical\\w* / wishlist / todo
    tbd / going to / next week / next month / next quarter / next sprint / next release
    will (?!now\\b)\\w+ / we'll \\w+ / decided against / cancell?ed / abandoned / postponed / put off
    failed to / refused to / called off / if we / what if / whether / seems? to / seems? like
    sounds like
    """
)
HEDGE = re.compile(rf"\?\s*$|^revert\s+[\"“']|{_GUESS.pattern}", re.IGNORECASE)
"""The sentence guesses, asks, plans, tells what failed, or quotes what it undoes: it states nothing."""

STALE = _words(
    """
    last i \\w+ / last time \\w+ / as far as i know / as far as i remember / from memory
    if i remember / iirc / afaik / i remember / i recall / back then / outdated / stale / historically
    in the old days / old docs? / old notes? / old wiki / old page / old readme / old runbook
    according to the \\w+ / docs? says? / docs still says? / wiki says? / readme says? / runbook says?
    page says? / handbook says? / still says / still lists / still claims / weeks ago / months ago
    days ago
    """
)
"""The sentence calls its own source old."""

REMOVAL = _words(
    """
    removed? / removes / removing / deletes? / deleted / deleting / dropped / drops? / dropping / gone
    retire[ds]? / ripped out / rips? out / stripped / goes away / went away / is dead / killed / kills
    no longer exists? / no longer supported / no longer available / no longer offered
    no longer there / eliminated / thrown out / takes? out / took out / taken out / discontinued
    withdrawn
    """
)

NEGATION = _words(
    """
    no longer / not / never / isn't / aren't / wasn't / doesn't / don't / didn't / won't / can't
    cannot / stopped / stops / without / neither
    """
)

_BEFORE_OLD = _any_of(
    """
    from / instead of / rather than / no longer / not / was / were / used to be / previously
    formerly / replac(?:es?|ed|ing) / in place of / old / as opposed to / former / prior / earlier
    dropp?(?:ed|s|ing) / unlike
    """
)
_OLD_VALUE = re.compile(
    rf"\b{_BEFORE_OLD}\s+(?:(?:the|a|an|using|just|its?|being|to)\s+)*$",
    re.IGNORECASE,
)
"""Right before a value: it is the value that no longer holds."""

ON = _words(
    """
    on / enabled? / enables / enabling / true / active / activated / activates / yes / opt-out
    stable
    """
)
OFF = _words(
    """
    off / disabled? / disables / disabling / false / inactive / deactivated / opt-in / inert
    """
)
_STATE_VERB = _any_of(
    """
    is / are / was / default(?:s|ed)? / now / turned / turns / switched / stays? / flipped / goes
    went / back / be / to / it / comes / flag / set
    """
)
ON_AS_STATE = re.compile(
    rf"(?:\b{_STATE_VERB}\s+|=\s*)$",
    re.IGNORECASE,
)
"""Right before `on`: it is a state and not the preposition."""

_VERB = _any_of(
    """
    changed? / changes / moved? / moves / switch(?:ed|es)? / bump(?:ed|s)? / migrat(?:ed?|es)
    went / goes? / renam(?:ed?|es) / rais(?:ed?|es) / lower(?:ed|s)? / reduc(?:ed?|es)
    upgrad(?:ed?|es) / downgrad(?:ed?|es) / flip(?:ped|s)? / sets? / pin(?:ned|s)?
    revert(?:ed|s)? / restor(?:ed?|es) / back / defaults? / fall(?:s|ing)? back
    transition(?:ed|s)? / swap(?:ped|s)? / resolv(?:ed?|es) / com(?:es?|ing) back
    return(?:ed|s)? / point(?:ed|s)? / shift(?:ed|s)? / updat(?:ed?|es) / rout(?:ed?|es)
    narrow(?:ed|s)? / widen(?:ed|s)? / grew / shrank / drops?
    """
)
_NOW_DOES = _any_of(
    """
    is / are / uses? / runs? on / runs? in / runs? through / runs? via / runs? as / lives? in
    goes? through / goes? via / goes? to / means? / defaults? to / called / requires? / comes? from
    sits? in / stored? in / saved? in / saved? to / saved? under / reads? / takes? / accepts? only
    accepts? / holds? / has / have
    """
)
_DOES = _any_of(
    """
    uses? / using / means? / requires? / needs? / runs? on / runs? in / runs? through / runs? via
    runs? as / lives? in / goes? through / goes? via / comes? from / saved? in / saved? to
    saved? under / stored? in / stored? under / written to / based on / works? through / works? via
    adopts? / prefers? / introduc(?:es|ed) / add(?:s|ed)? / accepts? / allows?
    """
)
_BEFORE_NEW_VALUE = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_VERB}\b[^.;]{{0,60}}?\bfrom\b[^.;]{{1,60}}?\b(?:in)?to\b\s+",
        r"(?:→|=>|->)\s*",
        rf"\b{_VERB}\b(?:\s+\S+){{0,4}}?\s+(?:back\s+)?(?:to|at|on)\b\s+",
        r"\breplaced\s+(?:by|with)\s+",
        r"\b(?:default|value|setting|answer|result|limit|choice|state|mode|level)\s+"
        r"(?:is|are|becomes?|stays?|remains?|=|:)\s+(?:(?:now|again|back)\s+)*",
        rf"\bnow\s+(?:{_NOW_DOES}\s+)?",
        r"\b(?:is|are|becomes?|became|stays?|remains?|was\s+made)\s+"
        r"(?:(?:now|again|once\s+again|once\s+more|back\s+(?:to|on|at)|back|set\s+to|called|named|still)\s+)*",
        rf"\b{_DOES}\s+",
        r"\s=\s|:\s+",
    )
)
"""What comes right before a new value, the surest wording first."""

_CLAUSE_WORD = _any_of(
    """
    instead of / rather than / because / since / so that / so / which / when / whenever / while / but
    unless / until / if / after / before / as of / from today / starting / thanks / again / for now
    in place of / whereas / where / by default / from now
    """
)
_SPAN_END = re.compile(
    rf"\s*(?:[,;()\[\]]|\.(?:\s|$)|:\s|\s[-–—]+\s|\b{_CLAUSE_WORD}\b)",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:the|a|an|now|always|just|only|plain|back\s+to|back\s+on|to|be|by|on|in|at|using|with)\s+",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"\s+(?:now|today|already|instead|too|as\s+well|from\s+today|from\s+now\s+on)$", re.IGNORECASE
)


def sentences(text: str) -> Iterator[str]:
    """The note in clauses: cut at bullets, full stops and semicolons; paths and versions stay whole."""
    joined = re.sub(r"\n(?!\s*(?:[-*•]|\d+[.)])\s|\s*\n)", " ", text)
    for line in joined.splitlines():
        bare = re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+", "", line)
        for part in re.split(r"(?<=[.!?])[\"'”)]?\s+(?=[\"'“`(]?[A-Za-z0-9`])|;\s+", bare):
            if part.strip():
                yield part.strip()[:MAX_SENTENCE]


def new_value_spans(text: str) -> Iterator[str]:
    """The stretches where a new value may stand, surest first, each at most ten words."""
    seen: set[int] = set()
    for pattern in _BEFORE_NEW_VALUE:
        for match in pattern.finditer(text):
            if match.end() in seen:
                continue
            seen.add(match.end())
            rest = text[match.end() : match.end() + 4 * WINDOW]
            end = _SPAN_END.search(rest)
            span = rest[: end.start()] if end else rest.rstrip(".!")
            while _LEAD.match(span):
                span = _LEAD.sub("", span, count=1)
            span = _TAIL.sub("", span)
            words = span.split()
            if words and len(words) <= MAX_SPAN_WORDS:
                yield " ".join(words)


def is_old_value(text: str, start: int) -> bool:
    """Whether the words right before `start` say that what follows no longer holds."""
    return _OLD_VALUE.search(text[max(0, start - WINDOW) : start]) is not None


def is_negated(text: str, start: int) -> bool:
    """Whether the clause denies what stands at `start`: a negation before it with no turn in between."""
    before = text[max(0, start - WINDOW) : start]
    negations = list(NEGATION.finditer(before))
    if not negations:
        return False
    return re.search(r"[,;:.]|\b(?:but|now|and|instead)\b", before[negations[-1].end() :]) is None
