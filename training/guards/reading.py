"""Reading what the guards look at, without torch: small JSON files, a safetensors header, rows, versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from packaging.requirements import Requirement
from tokenizers import Tokenizer

from data_builders.examples import Example
from operators.adapter_checks import PEFT_CONFIG
from operators.adapters import CARD, WEIGHTS
from operators.errors import InputError
from training.guards.inspected import AdapterFiles, BaseFiles, Environment, Json, RenderedRow
from training.guards.template import render

_GROUP = 256


def read_base(folder: Path, card: Mapping[str, str] | None = None) -> BaseFiles:
    """The small files of a base's folder. Raises: InputError without config.json or tokenizer.json."""
    tokenizer = read_json(folder / "tokenizer.json", needed=True)
    settings = read_json(folder / "tokenizer_config.json")
    tokens = dict(tokenizer.get("model", {}).get("vocab", {}))
    added = tokenizer.get("added_tokens") or []
    tokens.update({token["content"]: token["id"] for token in added})
    template = folder / "chat_template.jinja"
    stored = settings.get("chat_template")
    if isinstance(stored, list):  # several by name
        stored = next((named["template"] for named in stored if named.get("name") == "default"), None)
    return BaseFiles(
        folder=folder,
        config=read_json(folder / "config.json", needed=True),
        generation=read_json(folder / "generation_config.json"),
        tokens=tokens,
        special=frozenset(token["content"] for token in added if token.get("special")),
        template=template.read_text("utf-8") if template.is_file() else stored,
        card=card,
    )


def read_adapter(folder: Path) -> AdapterFiles:
    """An adapter's folder. Raises: InputError for a folder without adapter_config.json or weights."""
    if not (folder / WEIGHTS).is_file():
        hint = "give a folder that `latticemind train` wrote (weights as safetensors)"
        raise InputError(f"no {WEIGHTS} here", file=folder, hint=hint)
    return AdapterFiles(
        folder=folder,
        config=read_json(folder / PEFT_CONFIG, needed=True),
        card=read_json(folder / CARD),
        merged=read_json(folder / "config.json"),
    )


def read_json(path: Path, *, needed: bool = False) -> Json:
    """A JSON object from a file; empty where the file is absent and not needed. Raises: InputError."""
    if not path.is_file() and not needed:
        return {}
    if not path.is_file():
        raise InputError("no such file", file=path, hint="give a complete model or adapter folder")
    try:
        found = json.loads(path.read_bytes())
    except ValueError as fault:
        raise InputError("not JSON", file=path, hint="fetch or train it again") from fault
    if not isinstance(found, dict):
        raise InputError("not a JSON object", file=path, hint="fetch or train it again")
    return found


def render_rows(
    examples: Sequence[Example], base: BaseFiles, progress: Callable[[int], None] = lambda _: None
) -> Iterator[RenderedRow]:
    """The examples as the model will see them. `progress` gets the number of rows done.

    Raises: InputError for a base without a chat template, or whose template refuses a row.
    """
    if base.template is None:
        raise InputError("the base has no chat template", file=base.folder, hint="use an instruct base")
    tokenizer = Tokenizer.from_file(str(base.folder / "tokenizer.json"))

    @cache
    def text_of(token: int) -> str:
        return str(tokenizer.decode([token], skip_special_tokens=False))

    for start in range(0, len(examples), _GROUP):
        group = examples[start : start + _GROUP]
        texts = [_texts(example, base.template) for example in group]
        flat = [text for pair in texts for text in pair]
        ids = [tuple(found.ids) for found in tokenizer.encode_batch(flat, add_special_tokens=False)]
        for at, example in enumerate(group):
            yield _row(example, texts[at][0], ids[2 * at], ids[2 * at + 1], text_of)
        progress(start + len(group))


def read_environment() -> Environment:
    """Installed distributions, and what the installed LatticeMind's [train] extra asks for."""
    versions = {found.name.lower(): found.version for found in distributions() if found.name}
    try:
        asked = [Requirement(line) for line in requires("latticemind") or []]
    except PackageNotFoundError:
        asked = []
    ranges = {
        found.name.lower(): str(found.specifier)
        for found in asked
        if found.marker is not None and _for_training(found) and found.name != "latticemind"
    }
    return Environment(versions, ranges)


def _for_training(found: Requirement) -> bool:
    """Whether the requirement is of the extras [local] or [train] and of no plain installation."""
    marker = found.marker
    return marker is not None and any(marker.evaluate({"extra": extra}) for extra in ("local", "train"))


def _texts(example: Example, template: str) -> tuple[str, str]:
    """The prompt alone, ready for the answer, and the prompt with its completion."""
    try:
        prompt = render(template, example.prompt, answer_next=True)
        return prompt, render(template, [*example.prompt, *example.completion])
    except TemplateError as fault:
        hint = f"the chat template says: {fault}"
        raise InputError(f"the base's template refuses row {example.id}", hint=hint) from fault


def _row(
    example: Example, prompt: str, prompt_ids: tuple[int, ...], full_ids: tuple[int, ...], text_of: Any
) -> RenderedRow:
    messages = [*example.prompt, *example.completion]
    return RenderedRow(
        id=example.id,
        roles=tuple(message["role"] for message in messages),
        texts=tuple(message["content"] for message in messages),
        tail=prompt[-80:],
        tokens=len(full_ids),
        labels=tuple(text_of(token) for token in full_ids[len(prompt_ids) :]),
        prompt_is_prefix=full_ids[: len(prompt_ids)] == prompt_ids,
    )
