"""The memory as a document: current state by scope, contested claims, transitions with commits.

Readers and agents see only this. Every state line has one grammar, so that a rendered memory that comes back
as a note is recognised and gives no new evidence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from rapidfuzz import process

from operators.claims import ANY_SCOPE, Finding, Key, MemoryItem, StateClaim
from operators.errors import InputError
from operators.evidence import EvidenceType
from operators.status import Status
from pipeline.memory import Memory, Version
from pipeline.reconciler import FindingBoard, RuleReconciler, settle

HEADER = "# LatticeMind memory"
SECTIONS = ("Current state", "Contested", "Transitions", "Findings")
_CREDIT = rf"\((?:{'|'.join([*EvidenceType, *Status])}), \d{{4}}-\d\d-\d\d.*\)"
_OURS = re.compile(
    rf"^[\s>]*(?:# LatticeMind memory|## (?:{'|'.join(SECTIONS)})|### (?:everywhere|(?:branch|env) .*)"
    rf"|(?:(?:everywhere|(?:branch|env) [^:]*): )?- \S+: .*{_CREDIT}"
    r"|Nothing is known .*|\.\.\. \d+ more lines?)\s*$"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the document and where it belongs; `count` is how many it stands for."""

    section: str
    scope: str
    text: str
    when: datetime
    count: int = 1


def render(memory: Memory, *, budget: int | None = None, only: str | None = None) -> str:
    """The memory as Markdown of at most `budget` characters (None: no limit).

    `only` keeps the lines that hold this text.

    Over budget, the lines of one entity are joined, then transitions go, oldest first, then contested
    claims, then findings, and the current state last; what was left out is counted. An empty memory is a
    document that says so.
    """
    lines = [line for line in memory_lines(memory) if only is None or only in line.text]
    if not lines:
        return f"{HEADER}\nNothing is known{f' of {only!r}' if only else ' yet'}.\n"
    text = _document(lines, 0)
    if budget is None or len(text) <= budget:
        return text
    lines = _joined(lines, budget // 4)
    return _document(*_fitting(lines, budget))[:budget]


def _fitting(lines: list[Line], budget: int) -> tuple[list[Line], int]:
    """The lines that fit, the most needed first, in document order; and how many others there are."""
    left = budget - len(HEADER) - len("\n... 999999 more lines\n")
    headed: set[str] = set()
    kept: set[int] = set()
    order = sorted(
        range(len(lines)), key=lambda i: (_PRIORITY[lines[i].section], -lines[i].when.timestamp(), i)
    )
    for i in order:
        line = lines[i]
        headings = {f"## {line.section}"}
        headings |= {f"### {line.scope}"} if line.section == "Current state" else set()
        cost = len(line.text) + 1 + sum(len(heading) + 1 for heading in headings - headed)
        if cost <= left:
            left -= cost
            headed |= headings
            kept.add(i)
    return [lines[i] for i in sorted(kept)], sum(line.count for i, line in enumerate(lines) if i not in kept)


_PRIORITY = {"Current state": 0, "Findings": 1, "Contested": 2, "Transitions": 3}


def memory_lines(memory: Memory) -> list[Line]:
    """Every line of the document: sections in order, scopes and keys sorted, transitions by time."""
    current: list[Line] = []
    contested: list[Line] = []
    transitions: list[Line] = []
    for key in memory.known_keys():
        versions = memory.versions(key)
        for version in versions:
            item = version.item
            if item.status is Status.CONFIRMED:
                text = f"{item_value(item)} ({_credit(_became_current(version))})"
                current.append(_line("Current state", key, text, item))
            elif item.status is Status.CONTESTED:
                text = f"{item_value(item)} ({_credit(item.claim)}; {item.reason})"
                contested.append(_line("Contested", key, text, item))
        transitions += _transitions(key, versions)
    transitions.sort(key=lambda line: (line.when, line.text))
    current.sort(key=lambda line: (line.scope != "everywhere", line.scope))
    return current + contested + transitions + _finding_lines(memory)


def explain(memory: Memory, key: Key) -> str:
    """Why a key is what it is: every value it had or was said to have, with its evidence and reason.

    Raises: InputError for a key of which the memory knows nothing.
    """
    versions = memory.versions(key)
    if not versions:
        near = process.extract(str(key), [str(known) for known in memory.known_keys()], limit=3)
        hint = f"near it: {', '.join(name for name, _, _ in near)}" if near else "the memory is empty"
        raise InputError(f"nothing is known of {key}", hint=hint)
    lines = [f"{key}"]
    for version in sorted(versions, key=lambda v: (v.item.first_seen, v.item.item_id)):
        item = version.item
        lines.append(f"- {item_value(item)}: {item.status.value} ({item.reason})")
        lines += [f"    {_credit(claim)} from {claim.evidence.source}" for claim in version.claims]
    return "\n".join(lines) + "\n"


def parse_key(text: str) -> Key:
    """`entity.slot` or `entity.slot@branch/env`. Raises: InputError."""
    match = re.fullmatch(r"(\S+)\.([\w-]+)(?:@(\S+)/(\S+))?", text)
    if match is None:
        raise InputError(f"{text!r} is no key", hint="write entity.slot or entity.slot@branch/env")
    return Key(match[1], match[2], match[3] or ANY_SCOPE, match[4] or ANY_SCOPE)


def is_rendered(line: str) -> bool:
    """Whether a line of a note is a line of a rendered memory."""
    return _OURS.match(line) is not None


def item_value(item: MemoryItem) -> str:
    """The value as people read it; a removal is `(removed)`."""
    if item.claim.value is not None:
        return _one_line(item.claim.value)
    return f"{_one_line(item.claim.retires)} (removed)" if item.claim.retires else "(removed)"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def scope_name(key: Key) -> str:
    """`everywhere`, or which branch and environment."""
    parts = [f"branch {key.branch}"] if key.branch != ANY_SCOPE else []
    parts += [f"env {key.env}"] if key.env != ANY_SCOPE else []
    return ", ".join(parts) or "everywhere"


def day(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


def _credit(claim: StateClaim) -> str:
    """Kind of evidence, date and commit: `code-change, 2026-01-27, 0adcd8aa8613`."""
    parts = [claim.evidence.type.value, day(claim.timestamp)]
    return ", ".join([*parts, claim.evidence.commit[:12]] if claim.evidence.commit else parts)


def _line(section: str, key: Key, text: str, item: MemoryItem) -> Line:
    name = f"{key.entity}.{key.slot}"
    shown = name if section == "Current state" else str(key)
    return Line(section, scope_name(key), f"- {shown}: {text}", item.claim.timestamp)


def _transitions(key: Key, versions: list[Version]) -> list[Line]:
    """One line for each value that ever was current, from what it took over."""
    held = [version for version in versions if version.held]
    before = {v.successor: item_value(v.item) for v in held if v.successor}
    found = []
    for version in held:
        start, item = _became_current(version), version.item
        old = before.get(item.item_id)
        if old is None and item.normal is None:
            continue  # what was never there cannot go
        came = f"{old} -> {item_value(item)}" if old is not None else f"first {item_value(item)}"
        text = f"- {key}: {came} ({_credit(start)})"
        found.append(Line("Transitions", scope_name(key), text, start.timestamp))
    return found


def _became_current(version: Version) -> StateClaim:
    """The claim that made the item what it is: the first of the strongest kind."""
    best = max(claim.evidence.score for claim in version.claims)
    return next(claim for claim in version.claims if claim.evidence.score == best)


def _finding_lines(memory: Memory) -> list[Line]:
    board = settle(memory.findings.values(), RuleReconciler())
    ordered = sorted(memory.findings.values(), key=lambda f: (f.timestamp, f.finding_id))
    return [
        Line("Findings", "", _finding_text(finding, board), finding.timestamp)
        for finding in ordered
        if board.statuses[finding.finding_id] is not Status.SUPERSEDED
    ]


def _finding_text(finding: Finding, board: FindingBoard) -> str:
    signals = [
        f"{r.policy.value}: {r.violation.kind.value} on {r.violation.subject}"
        for r in board.resolutions
        if finding.finding_id in r.violation.finding_ids
    ]
    credit = ", ".join((board.statuses[finding.finding_id].value, day(finding.timestamp)))
    signal = f"; {'; '.join(signals)}" if signals else ""
    return f"- {finding.type.value.lower()}: {_one_line(finding.text)} ({credit}{signal})"


def _document(lines: list[Line], left_out: int) -> str:
    parts = [HEADER]
    for section in SECTIONS:
        inside = [line for line in lines if line.section == section]
        if not inside:
            continue
        parts.append(f"## {section}")
        if section == "Current state":
            for scope, scoped in groupby(inside, key=lambda line: line.scope):
                parts += [f"### {scope}", *(line.text for line in scoped)]
        else:
            parts += [line.text for line in inside]
    if left_out:
        parts.append(f"... {left_out} more line{'s' if left_out > 1 else ''}")
    return "\n".join(parts) + "\n"


def _joined(lines: list[Line], longest: int) -> list[Line]:
    """Current lines of one entity in one scope, put together up to so many characters a line."""
    joined: list[Line] = []
    entities: list[str] = []
    for line in (line for line in lines if line.section == "Current state"):
        entity = line.text[2:].split(": ", 1)[0].rsplit(".", 1)[0]
        short = line.text[2:].removeprefix(f"{entity}.")
        last = joined[-1] if joined else None
        if last and entities[-1] == entity and last.scope == line.scope and len(last.text + short) < longest:
            text, when = f"{last.text}; {short}", max(last.when, line.when)
            joined[-1] = Line("Current state", line.scope, text, when, last.count + 1)
        else:
            joined.append(Line("Current state", line.scope, f"- {entity}: {short}", line.when))
            entities.append(entity)
    return joined + [line for line in lines if line.section != "Current state"]
