"""What a preflight looks at: a recipe, a base's small files, rendered rows, an adapter's files, versions.

Everything is read from files without torch; a part that was not given is None and its guards say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A train config as it stands in its file, or as its model dumps it: scalars may be text or typed."""

    data: Json

    def text(self, dotted: str) -> str | None:
        """A scalar as lower-case text (`true`, `bfloat16`, `16`); None where it is missing or null."""
        found = self.get(dotted)
        return None if found is None else str(found).strip().lower()

    def get(self, dotted: str) -> Any:
        """Whatever stands at a dotted path; None where nothing does."""
        place: Any = self.data
        for part in dotted.split("."):
            if not isinstance(place, Mapping) or part not in place:
                return None
            place = place[part]
        return place

    def settings(self) -> Iterator[tuple[str, str]]:
        """Every key at every depth, with its dotted path."""
        yield from _keys(self.data, "")


def _keys(place: Json, above: str) -> Iterator[tuple[str, str]]:
    for key, value in place.items():
        path = f"{above}{key}"
        yield str(key), path
        if isinstance(value, Mapping):
            yield from _keys(value, f"{path}.")


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The small files of a base model's folder. Absent files are empty mappings.

    `tokens` maps the tokenizer's whole vocabulary, added tokens included, to ids; `special` are its control
    tokens; `template` is the chat template, None where the base has none. `card` is what adapters record of
    their base (id, revision, config_hash, tokenizer_hash); None where it is not known.
    """

    folder: Path
    config: Json
    generation: Json
    tokens: Mapping[str, int]
    special: frozenset[str]
    template: str | None
    card: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """One example as the model will see it.

    `roles` and `texts` are its messages'; `tail` is the end of the prompt's text, for people. `tokens` counts
    prompt and completion; `labels` are the trained tokens as text, in order. `prompt_is_prefix`: whether the
    prompt's token ids open those of prompt with completion.
    """

    id: str
    roles: tuple[str, ...]
    texts: tuple[str, ...]
    tail: str
    tokens: int
    labels: tuple[str, ...]
    prompt_is_prefix: bool


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter's folder: PEFT's config and its card (adapter.json), as they stand.

    `merged` is the config.json of a merged model that stands in the same folder, empty without one.
    """

    folder: Path
    config: Json
    card: Json
    merged: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Environment:
    """Installed versions by lower-case distribution name, and the ranges that LatticeMind asks for."""

    versions: Mapping[str, str]
    ranges: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Inspected:
    """All that one preflight looks at."""

    recipe: Recipe
    environment: Environment
    base: BaseFiles | None = None
    rows: tuple[RenderedRow, ...] = ()
    adapter: AdapterFiles | None = None
