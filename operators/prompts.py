"""The one home of prompts: data builders, training and serving render with these functions.

A note stands in a prompt as quoted lines with model control tokens broken up, so that nothing inside it can
become an instruction boundary. What is arithmetic (scores, recency, scope, equality) is computed here and
handed over as facts; a model is asked only what words mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from typing_extensions import TypedDict

from operators.claims import Action, Comparison, MemoryItem, Note, StateClaim
from operators.items import LiveItems
from operators.schema import SlotSchema

PROMPT_VERSION = "1"
"""Stamped on examples and adapters; change it with any change of what the functions below render."""


class Message(TypedDict):
    role: str
    content: str


EXTRACT_SYSTEM = (
    "You read one note about a software project and list the state claims it makes. Use only the listed "
    "entity.slot pairs. A value is copied from the note, except on/off for flags and the listed names for "
    "enums; null means the thing was removed. Use * for a branch or env the note does not name. A guess, a "
    'question or a plan claims nothing. Answer with JSON: {"claims": [{"entity", "slot", "value", "branch", '
    '"env", "retires"}]}; the list may be empty.'
)
COMPARE_SYSTEM = (
    "Two claims about the state of a software project are given with computed facts. Say how the incoming "
    "claim relates to the incumbent (same, refines, contradicts, unrelated) and which holds (incoming, "
    'incumbent, both, undecided). Answer with JSON: {"relation", "winner"}.'
)
UPDATE_SYSTEM = (
    "A memory holds items for one key; an incoming claim is given with computed facts. Choose add, merge, "
    "supersede or contest, and the id of the item it concerns (null for add). Answer with JSON: "
    '{"action", "target"}.'
)


def extract_messages(note: Note, schema: SlotSchema) -> list[Message]:
    """System and user message for extract-state."""
    user = (
        f"Supported pairs:\n{schema_lines(schema)}\n\nNote ({note.evidence_type.value}):\n{quoted(note.text)}"
    )
    return [{"role": "system", "content": EXTRACT_SYSTEM}, {"role": "user", "content": user}]


def extract_completion(claims: Iterable[StateClaim]) -> str:
    """The answer that lists these claims, in their order."""
    fields = ("entity", "slot", "value", "branch", "env", "retires")
    return _json({"claims": [{field: _clean(getattr(claim, field)) for field in fields} for claim in claims]})


def compare_messages(incumbent: StateClaim, incoming: StateClaim, schema: SlotSchema) -> list[Message]:
    """System and user message for compare-claims, with the facts that code computes."""
    facts = {
        "same_key": incumbent.key == incoming.key,
        "same_normal_form": incumbent.key == incoming.key
        and schema.normal(incumbent) == schema.normal(incoming),
        "stronger": _ordering(incumbent.evidence.score, incoming.evidence.score),
        "newer": _ordering(incumbent.timestamp, incoming.timestamp),
    }
    user = f"Incumbent: {_claim(incumbent)}\nIncoming: {_claim(incoming)}\nFacts: {_json(facts)}"
    return [{"role": "system", "content": COMPARE_SYSTEM}, {"role": "user", "content": user}]


def compare_completion(comparison: Comparison) -> str:
    return _json({"relation": comparison.relation.value, "winner": comparison.winner.value})


def update_messages(items: LiveItems, incoming: StateClaim, schema: SlotSchema) -> list[Message]:
    """System and user message for update-memory; items are named by `item_names`."""
    normal = schema.normal(incoming)
    lines = []
    for name, item in item_names(items):
        facts = {
            "status": item.status.value,
            "same_normal_form": item.normal == normal,
            "stronger": _ordering(item.claim.evidence.score, incoming.evidence.score),
            "newer": _ordering(item.claim.timestamp, incoming.timestamp),
        }
        lines.append(f"{name}: {_claim(item.claim)} {_json(facts)}")
    held = "\n".join(lines) or "(no items)"
    user = f"Items:\n{held}\nIncoming: {_claim(incoming)}"
    return [{"role": "system", "content": UPDATE_SYSTEM}, {"role": "user", "content": user}]


def update_completion(action: Action, target: str | None, items: LiveItems) -> str:
    """The answer with the item named as in the prompt. Raises: KeyError for a target that is not there."""
    names = {item.item_id: name for name, item in item_names(items)}
    return _json({"action": action.value, "target": names[target] if target is not None else None})


def item_names(items: LiveItems) -> Sequence[tuple[str, MemoryItem]]:
    """Short names m0, m1, … in the order of first sight: a model cannot copy a hash reliably."""
    ordered = sorted(items, key=lambda item: (item.first_seen, item.item_id))
    return [(f"m{number}", item) for number, item in enumerate(ordered)]


def schema_lines(schema: SlotSchema) -> str:
    """One line a pair: its names, form, enum values and cardinality."""
    lines = []
    for entity, slot in schema.pairs():
        values = f" {{{', '.join(slot.values)}}}" if slot.values else ""
        many = ", many" if slot.cardinality == "many" else ""
        names = ", ".join((*entity.aliases, *slot.aliases))
        lines.append(
            f"- {entity.entity}.{slot.slot} ({slot.form.value}{values}{many}): {slot.about or names}"
        )
    for kind, scopes in (("branches", schema.branches), ("envs", schema.envs)):
        if scopes:
            lines.append(f"{kind}: {', '.join(sorted(scopes))}")
    return "\n".join(lines)


def quoted(text: str) -> str:
    """The text as lines that begin with `> `, its control tokens broken up."""
    return "\n".join(f"> {line}" for line in sanitised(text).splitlines()) or "> "


def sanitised(text: str) -> str:
    """The text with every chat-template control token of the common families broken by a space."""
    broken = re.sub(r"<\|(?=\S)", "< |", text)
    broken = re.sub(r"(?<=\S)\|>", "| >", broken)
    broken = re.sub(r"<(/?(?:s|bos|eos|start_of_turn|end_of_turn|think|tool_call)>)", r"< \1", broken)
    return re.sub(r"\[(/?INST)\]", r"[ \1 ]", broken)


def _clean(text: str | None) -> str | None:
    return sanitised(text) if text is not None else None


def _claim(claim: StateClaim) -> str:
    what = {
        "key": str(claim.key),
        "value": _clean(claim.value),
        "evidence": claim.evidence.type.value,
        "commit": bool(claim.evidence.commit),
    }
    if claim.retires is not None:
        what["retires"] = sanitised(claim.retires)
    return _json(what)


def _ordering(incumbent: object, incoming: object) -> str:
    if incumbent == incoming:
        return "equal"
    return "incoming" if incoming > incumbent else "incumbent"  # type: ignore[operator]


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)
