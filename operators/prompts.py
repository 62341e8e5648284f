"""The one home of prompts: data builders, training and serving render with these functions.

A note stands in a prompt as quoted lines with model control tokens broken up, so that nothing inside it can
become an instruction boundary. What is arithmetic (scores, recency, scope, equality) is computed here and
handed over as facts, and so is what the rules find in a note; a model is asked what words mean.

The rows of one operator open with the same system message, and all extraction rows of one note with the note:
what they share is read once, by the trainer, by the local backend and by a server's prefix cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import TypedDict

from operators.claims import ANY_SCOPE, Action, MemoryItem, Note, Relation, StateClaim
from operators.items import LiveItems
from operators.quotes import as_allowed, quote_for
from operators.rules.facts import best_reading, named_parts
from operators.rules.mentions import named_scopes
from operators.schema import Cardinality, Entity, Slot, SlotSchema

PROMPT_VERSIONS = {"extract-state": "5", "compare-claims": "4", "update-memory": "4"}
"""Stamped on examples and adapters; change an operator's with any change of what is rendered for it below."""

SELECT_CHOICES = ("yes", "no")
_BARE_TOKENS = (
    "s|bos|eos|start_of_turn|end_of_turn|think|tool_call|repo_name|reponame|file_sep|filename|gh_stars"
    r"|issue_\w+|jupyter_\w+|empty_output"
)
"""Control tokens without bars, of the Llama, Gemma, Qwen and SmolLM2 families."""


class Message(TypedDict):
    role: str
    content: str


EXTRACT_SYSTEM = (
    "You read one note about a software project and say which facts it states. "
    "A guess, a question or a plan states nothing."
)
COMPARE_SYSTEM = (
    "Two claims about a software project: say how the incoming value relates to the incumbent's "
    "(same, refines, contradicts, unrelated)."
)
UPDATE_SYSTEM = (
    "A memory holds items for one key; say what a new claim does to it (add, merge, supersede, contest) "
    "and to which item."
)


def prompt_version(operator: str) -> str:
    """The version of one operator's prompts; for an adapter of all operators, those of all."""
    return PROMPT_VERSIONS.get(operator) or "+".join(PROMPT_VERSIONS.values())


def direct_messages(note: Note, schema: SlotSchema) -> list[Message]:
    """Every claim in one answer: the note, then all pairs it may speak of."""
    pairs = "\n".join(pair_line(*pair) + _facts(note, *pair) for pair in schema.pairs())
    tail = f"Pairs:\n{pairs}\nList what the note states, as JSON.{_scope_line(note, schema)}"
    return _extract(note, tail)


def direct_completion(note: Note, schema: SlotSchema, claims: Iterable[StateClaim]) -> str:
    """The answer that lists these claims, in their order."""
    scopes = named_scopes(note.text, schema)
    return _json(
        {
            "claims": [
                {"pair": f"{c.entity}.{c.slot}", **_value_fields(note, schema, c, scopes)} for c in claims
            ]
        }
    )


def select_messages(note: Note, entity: Entity, slot: Slot) -> list[Message]:
    """Whether the note states one pair; the answer is one of SELECT_CHOICES."""
    return _extract(note, f"Pair: {pair_line(entity, slot)}{_facts(note, entity, slot)}\nStated?")


def fill_messages(note: Note, schema: SlotSchema, entity: Entity, slot: Slot) -> list[Message]:
    """What the note says of one pair, each value with the quote that says it."""
    facts = _facts(note, entity, slot, stated=True)
    tail = f"Pair: {pair_line(entity, slot)}{facts}\nValue as JSON.{_scope_line(note, schema)}"
    return _extract(note, tail)


def fill_completion(note: Note, schema: SlotSchema, claims: Sequence[StateClaim]) -> str:
    """The answer for one pair's claims (at least one), in their order."""
    scopes, text = named_scopes(note.text, schema), sanitised(note.text)
    entries = [
        {"quote": quote_for(text, claim, schema), **_value_fields(note, schema, claim, scopes)}
        for claim in claims
    ]
    return _json({"claims": entries})


def compare_messages(incumbent: StateClaim, incoming: StateClaim, schema: SlotSchema) -> list[Message]:
    """System and user message for compare-claims; who is stronger or newer is not a model's to say."""
    same_key = incumbent.key == incoming.key
    form = ""
    if same_key:
        equal = schema.normal(incumbent) == schema.normal(incoming) and incumbent.retires == incoming.retires
        form = f", {'equal' if equal else 'different'} values"
    user = (
        f"Incumbent: {_claim(incumbent)}\nIncoming: {_claim(incoming)}\n"
        f"Facts: {'same key' if same_key else 'different keys'}{form}"
    )
    return [{"role": "system", "content": COMPARE_SYSTEM}, {"role": "user", "content": user}]


def compare_completion(relation: Relation) -> str:
    return _json({"relation": relation.value})


def update_messages(items: LiveItems, incoming: StateClaim, schema: SlotSchema) -> list[Message]:
    """System and user message for update-memory; items are named by `item_names`."""
    normal = schema.normal(incoming)
    lines = []
    for name, item in item_names(items):
        equal = "equal value" if item.normal == normal else "different value"
        rank = _ordering(item.claim.rank, incoming.rank)
        lines.append(f"{name}: {_value(item.claim)} | {item.status.value}, {equal}, {rank}")
    held = "\n".join(lines) or "(no items)"
    user = f"Incoming: {_claim(incoming)}\nItems:\n{held}"
    return [{"role": "system", "content": UPDATE_SYSTEM}, {"role": "user", "content": user}]


def update_completion(action: Action, target: str | None, items: LiveItems) -> str:
    """The answer with the item named as in the prompt. Raises: KeyError for a target that is not there."""
    names = {item.item_id: name for name, item in item_names(items)}
    return _json({"action": action.value, "target": names[target] if target is not None else None})


def item_names(items: LiveItems) -> Sequence[tuple[str, MemoryItem]]:
    """Short names m0, m1, … in the order of first sight: a model cannot copy a hash reliably."""
    ordered = sorted(items, key=lambda item: (item.first_seen, item.item_id))
    return [(f"m{number}", item) for number, item in enumerate(ordered)]


def pair_line(entity: Entity, slot: Slot) -> str:
    """One pair: its name, its enum's values or its form, and what it is about (or else its aliases)."""
    values = f"{{{', '.join(slot.values)}}}" if slot.values else f"({slot.form.value})"
    many = ", many" if slot.cardinality is Cardinality.MANY else ""
    return f"{entity.entity}.{slot.slot} {values}{many}: {slot.about or ', '.join(slot.names)}"


def quoted(text: str) -> str:
    """The text as lines that begin with `> `, its control tokens broken up."""
    return "\n".join(f"> {line}" for line in sanitised(text).splitlines()) or "> "


def sanitised(text: str) -> str:
    """The text with every chat-template control token of the common families broken by a space."""
    broken = re.sub(r"<\|(?=\S)", "< |", text)
    broken = re.sub(r"(?<=\S)\|>", "| >", broken)
    broken = re.sub(rf"<(/?(?:{_BARE_TOKENS})>)", r"< \1", broken)
    return re.sub(r"\[(/?INST)\]", r"[ \1 ]", broken)


def _extract(note: Note, tail: str) -> list[Message]:
    user = f"Note ({note.evidence_type.value}):\n{quoted(note.text)}\n{tail}"
    return [{"role": "system", "content": EXTRACT_SYSTEM}, {"role": "user", "content": user}]


def _facts(note: Note, entity: Entity, slot: Slot, *, stated: bool = False) -> str:
    """What code finds of a pair: which of its names the note holds, and the value that rules would read.

    Nothing for a pair that is not named, unless it is known to be stated: then the reading.
    """
    text = sanitised(note.text)
    named = named_parts(text, entity, slot)
    if not named and not stated:
        return ""
    found = [f"{' and '.join(named)} named"] if named else []
    reading = best_reading(text, entity, slot)
    if reading is not None:
        removed = "removed " if reading.value is None else ""
        value = reading.value if reading.value is not None else reading.retires
        found.append(f"reads {removed}{_json(value) if value is not None else ''}".rstrip())
    return f" [{'; '.join(found)}]" if found else ""


def _scope_line(note: Note, schema: SlotSchema) -> str:
    """The scopes that the note names, found by code; nothing where it names none."""
    named = named_scopes(note.text, schema)
    return "".join(f" {kind}: {', '.join((*names, ANY_SCOPE))}." for kind, names in named.items())


def _value_fields(
    note: Note, schema: SlotSchema, claim: StateClaim, scopes: Mapping[str, Sequence[str]]
) -> dict[str, str | None]:
    """Value, the member that is retired if any, and the scope in so far as the note names scopes."""
    slot, text = schema.slot(claim.entity, claim.slot), sanitised(note.text)

    def said(value: str) -> str:
        return as_allowed(text, sanitised(value), slot)

    fields = {"value": None if claim.value is None else said(claim.value)}
    if claim.retires is not None:
        fields["retires"] = said(claim.retires)
    for kind, names in scopes.items():
        scope = getattr(claim, kind)
        fields[kind] = scope if scope in names else ANY_SCOPE
    return fields


def _value(claim: StateClaim) -> str:
    if claim.value is not None:
        return f"{_json(sanitised(claim.value))} ({claim.evidence.type.value})"
    gone = f"removed {_json(sanitised(claim.retires))}" if claim.retires is not None else "removed"
    return f"{gone} ({claim.evidence.type.value})"


def _claim(claim: StateClaim) -> str:
    return f"{sanitised(str(claim.key))} = {_value(claim)}"


def _ordering(item: object, incoming: object) -> str:
    """Strength first, then time (paper 3.2), said in words."""
    if item == incoming:
        return "incoming ranks equal"
    return f"incoming ranks {'higher' if incoming > item else 'lower'}"  # type: ignore[operator]


def _json(data: object) -> str:
    """Compact, as vLLM holds every answer to under `disable_any_whitespace`: trained as it is served."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
