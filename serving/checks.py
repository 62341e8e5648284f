"""What a server has to pass before it is ready: the right base, working adapters, schemas that bind."""

from __future__ import annotations

from collections.abc import Sequence

from operators.adapters import BaseCard
from operators.canaries import Canary
from operators.claims import content_hash
from operators.errors import EndpointError
from operators.learned.answers import RELATION_SCHEMA
from operators.models.replies import ServedModel
from operators.models.text import TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind
from operators.prompts import Message
from serving.registry import Registry, ServedAdapter

IMPOSSIBLE: tuple[Message, ...] = (
    {"role": "system", "content": "You are a poet."},
    {"role": "user", "content": "Write a poem about the sea. Do not use JSON, brackets or quotation marks."},
)
"""No model answers this with the relation of two claims unless the schema binds it (T45)."""


def check_answers(model: TextModel, registry: Registry) -> None:
    """Every adapter answers as it was recorded, and the schema is honoured.

    The base is asked by itself: in one batch with adapters vLLM's CPU build lends it the weights of one of
    them (docs/serving.md). Raises: EndpointError for the first that does not.
    """
    canaries = [(adapter.name, canary) for adapter in registry.adapters for canary in adapter.card.canaries]
    by_base = iter(model.complete([canary.request(None) for _, canary in canaries]))
    by_adapter = iter(model.complete([canary.request(name) for name, canary in canaries]))
    for adapter in registry.adapters:
        pairs = [(next(by_adapter), next(by_base)) for _ in adapter.card.canaries]
        refuse_wrong_answers(adapter, pairs)
    for name in (None, *(adapter.name for adapter in registry.adapters)):
        (outcome,) = model.complete([TextRequest(IMPOSSIBLE, RELATION_SCHEMA, 40, name)])
        if outcome.value is None:
            raise EndpointError(
                f"{name or 'the base'} does not keep to a schema ({outcome.kind.value}: {outcome.detail})",
                hint="serve with structured outputs: backend xgrammar, disable_any_whitespace (T45, T47)",
            )


def refuse_wrong_answers(adapter: ServedAdapter, pairs: Sequence[tuple[Outcome[str], Outcome[str]]]) -> None:
    """`pairs` are what the adapter and the base answered to each of its canaries.

    More than half have to be as recorded: number formats differ between servers, and a close call may fall
    the other way. Raises: EndpointError.
    """
    canaries = adapter.card.canaries
    if not canaries:
        raise EndpointError(
            f"{adapter.name} has no canary: nothing tells its answers from the base's",
            hint="it changes no answer, or was trained before canaries were recorded: train it again",
        )
    away = next((o for pair in pairs for o in pair if o.kind is OutcomeKind.UNAVAILABLE), None)
    if away is not None:
        raise EndpointError(f"no answer to the canaries of {adapter.name}: {away.detail}")
    if all(mine.value == bases.value for mine, bases in pairs):
        raise EndpointError(
            f"{adapter.name} has no effect: it answers as the base does (T34, T35)",
            hint="the server has not loaded its weights: look for skipped modules in the server's log",
        )
    kept = sum(mine.value == canary.answer for canary, (mine, _) in zip(canaries, pairs, strict=True))
    if 2 * kept <= len(canaries):
        raise EndpointError(
            f"{adapter.name} answers {kept} of {len(canaries)} canaries as recorded:\n"
            f"{_shown(canaries, pairs)}",
            hint="another base or other weights answer under this name, or a quantised base: see `parity`",
        )


def check_models(entries: Sequence[ServedModel], registry: Registry) -> None:
    """The server lists every adapter, on the one base (T33, T43). Raises: EndpointError."""
    listed = {entry.id: entry for entry in entries}
    for adapter in registry.adapters:
        entry = listed.get(adapter.name)
        if entry is None:
            raise EndpointError(f"the server does not list {adapter.name}", hint="see its log")
        if entry.parent not in (None, registry.base.id):
            raise EndpointError(
                f"{adapter.name} runs on {entry.parent}, it was trained on {registry.base.id} (T33)",
                hint="serve the base it was trained on",
            )


def check_tokens(canary: Canary, tokens: Sequence[int], base: BaseCard) -> None:
    """The server makes the same tokens of a prompt as training did. Raises: EndpointError (T21, T33)."""
    if content_hash(list(tokens)) != canary.prompt_hash:
        raise EndpointError(
            f"the server makes other tokens of a prompt than {base.id} did in training",
            hint="its tokenizer or chat template is another: serve the base's own, without --chat-template",
        )


def _shown(canaries: Sequence[Canary], pairs: Sequence[tuple[Outcome[str], Outcome[str]]]) -> str:
    lines = []
    for canary, (mine, _) in zip(canaries, pairs, strict=True):
        found = mine.value if mine.value is not None else f"({mine.kind.value}: {mine.detail})"
        lines.append(f"  recorded {canary.answer[:120]}\n  answered {found[:120]}")
    return "\n".join(lines)
