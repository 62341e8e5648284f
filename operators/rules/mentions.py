"""Finding the schema's names in a sentence: entities, slots, values and scopes by their aliases."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from operators.claims import ANY_SCOPE
from operators.schema import Entity, Slot, SlotSchema

_BRANCH = re.compile(
    r"\b(?:on|in) (?:the |our |my )?[`'\"]?(\w[\w./-]*)[`'\"]? branch\b"
    r"|\bbranch [`'\"](\w[\w./-]*)[`'\"]",
    re.IGNORECASE,
)
_NOT_BRANCHES = frozenset(
    {"the", "a", "this", "that", "any", "another", "other", "feature", "same", "release", "old", "new"}
)


@dataclass(frozen=True, slots=True)
class Mention:
    """Where a name stands in a sentence."""

    start: int
    end: int


class NameMatcher:
    """Names that may be written with spaces, hyphens or underscores, in any case, singular or plural."""

    __slots__ = ("_pattern",)

    def __init__(self, names: Iterable[str]) -> None:
        words = [re.split(r"[\s_-]+", name.strip()) for name in sorted(set(names), key=len, reverse=True)]
        choices = "|".join(r"[\s_-]+".join(map(re.escape, parts)) for parts in words if any(parts))
        self._pattern = re.compile(rf"(?<![\w])(?:{choices})(?:e?s)?(?![\w])", re.IGNORECASE)

    @staticmethod
    @lru_cache(maxsize=1 << 14)
    def of(names: tuple[str, ...]) -> NameMatcher:
        """The matcher for these names; equal names share one."""
        return NameMatcher(names)

    def find(self, text: str) -> list[Mention]:
        return [Mention(m.start(), m.end()) for m in self._pattern.finditer(text)]


@dataclass(frozen=True, slots=True)
class Target:
    """A pair with the matchers for its names and, for an enum, its values."""

    entity: Entity
    slot: Slot
    entity_names: NameMatcher
    slot_names: NameMatcher
    values: dict[str, NameMatcher]
    only_slot: bool
    unique_slot: bool

    @staticmethod
    def of(entity: Entity, slot: Slot, *, unique_slot: bool = False) -> Target:
        """The pair made ready; whether its slot's name is unique is for the schema to say."""
        values = {name: NameMatcher.of((name, *aliases)) for name, aliases in slot.values.items()}
        return Target(
            entity, slot, NameMatcher.of(entity.names), NameMatcher.of(slot.names), values,
            only_slot=len(entity.slots) == 1, unique_slot=unique_slot,
        )  # fmt: skip


class SchemaIndex:
    """A schema made ready for matching; build it once per schema."""

    def __init__(self, schema: SlotSchema) -> None:
        self.schema = schema
        owners: dict[str, int] = {}
        for _, slot in schema.pairs():
            owners[slot.slot] = owners.get(slot.slot, 0) + 1
        self.targets = tuple(
            Target.of(entity, slot, unique_slot=owners[slot.slot] == 1) for entity, slot in schema.pairs()
        )
        self._branches = {name: NameMatcher.of((name, *aliases)) for name, aliases in schema.branches.items()}
        self._envs = {name: NameMatcher.of((name, *aliases)) for name, aliases in schema.envs.items()}

    def branch(self, text: str) -> str:
        """The branch a sentence speaks of: a known one, else one it calls a branch, else `*`."""
        for name, matcher in self._branches.items():
            if matcher.find(text):
                return name
        match = _BRANCH.search(text)
        named = (match[1] or match[2]) if match else ""
        return named if named and named.lower() not in _NOT_BRANCHES else ANY_SCOPE

    def env(self, text: str) -> str:
        """The environment a sentence names, else `*`."""
        return next((name for name, matcher in self._envs.items() if matcher.find(text)), ANY_SCOPE)


def named_scopes(text: str, schema: SlotSchema) -> dict[str, tuple[str, ...]]:
    """The branches and envs that a text names, under `branch` and `env`; a kind without any is absent."""
    found = {
        kind: tuple(name for name, aliases in scopes.items() if NameMatcher.of((name, *aliases)).find(text))
        for kind, scopes in (("branch", schema.branches), ("env", schema.envs))
    }
    return {kind: names for kind, names in found.items() if names}
