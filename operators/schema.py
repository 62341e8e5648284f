"""The slot schema: which entity.slot pairs exist, what they are called, what values they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field, model_validator

from operators.claims import ANY_SCOPE, StateClaim
from operators.errors import SchemaError
from operators.normal import Form, normal_text, normal_value


class Cardinality(StrEnum):
    ONE = "one"
    MANY = "many"


class FrozenModel(BaseModel):
    """A model that cannot be changed and takes no unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Slot(FrozenModel):
    """One property of an entity. `values` names an enum's values and their aliases."""

    slot: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    about: str = ""
    aliases: tuple[str, ...] = ()
    form: Form = Form.TEXT
    values: dict[str, tuple[str, ...]] = {}
    cardinality: Cardinality = Cardinality.ONE

    @model_validator(mode="after")
    def _values_go_with_enum(self) -> Slot:
        if bool(self.values) != (self.form is Form.ENUM):
            raise ValueError("an enum slot needs `values`, and only an enum slot has them")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """What a text may call the slot: its name in words, then its aliases."""
        return (self.slot.replace("_", " "), *self.aliases)


class Entity(FrozenModel):
    """A thing that has state."""

    entity: str = Field(pattern=r"^\S+$")
    about: str = ""
    aliases: tuple[str, ...] = ()
    slots: tuple[Slot, ...] = Field(min_length=1)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.entity.replace("_", " "), *self.aliases)


class SlotSchema(FrozenModel):
    """All entities with their slots, and the scopes that texts may name (`*` is always there)."""

    entities: tuple[Entity, ...] = Field(min_length=1)
    branches: dict[str, tuple[str, ...]] = {}
    envs: dict[str, tuple[str, ...]] = {}

    @model_validator(mode="after")
    def _names_are_unique(self) -> SlotSchema:
        pairs = [(e.entity, s.slot) for e in self.entities for s in e.slots]
        twice = sorted({f"{entity}.{slot}" for entity, slot in pairs if pairs.count((entity, slot)) > 1})
        if twice:
            raise ValueError(f"defined twice: {', '.join(twice)}")
        return self

    @cached_property
    def _slots(self) -> dict[tuple[str, str], Slot]:
        return {(e.entity, s.slot): s for e in self.entities for s in e.slots}

    def pairs(self) -> Iterator[tuple[Entity, Slot]]:
        """Every supported pair, in the file's order."""
        return ((entity, slot) for entity in self.entities for slot in entity.slots)

    def slot(self, entity: str, slot: str) -> Slot:
        """The slot of that name.

        Raises: SchemaError, naming the nearest pairs there are.
        """
        found = self._slots.get((entity, slot))
        if found is None:
            known = [f"{e}.{s}" for e, s in self._slots if entity == e or slot == s][:5]
            raise SchemaError(
                f"no slot {entity}.{slot} in the schema",
                hint=f"near it: {', '.join(known)}" if known else "see the schema's entities",
            )
        return found

    def normal(self, claim: StateClaim) -> str | None:
        """The normal form of the claim's value; None for a removal. Raises: SchemaError."""
        if claim.value is None:
            return None
        return self.normal_of(claim.entity, claim.slot, claim.value)

    def normal_of(self, entity: str, slot: str, value: str) -> str:
        """The normal form of a value of that slot. Raises: SchemaError."""
        found = self.slot(entity, slot)
        return normal_value(value, found.form, found.values)

    def canonical(self, claim: StateClaim) -> StateClaim:
        """The claim under the schema's own names (aliases of entity, slot and scopes resolved).

        Raises: SchemaError for a pair that the schema lacks.
        """
        if (claim.entity, claim.slot) in self._slots and claim.branch == claim.env == ANY_SCOPE:
            return claim
        entity = _resolve(claim.entity, {e.entity: e.names for e in self.entities})
        owner = next((e for e in self.entities if e.entity == entity), None)
        slot = _resolve(claim.slot, {s.slot: s.names for s in owner.slots} if owner else {})
        self.slot(entity, slot)
        branch, env = _resolve(claim.branch, self.branches), _resolve(claim.env, self.envs)
        return replace(claim, entity=entity, slot=slot, branch=branch, env=env)


def _resolve(name: str, names: dict[str, tuple[str, ...]]) -> str:
    """The canonical name that `name` or its normal form stands for; `name` itself if there is none."""
    if name in names or name == ANY_SCOPE:
        return name
    plain = normal_text(name)
    for canonical, aliases in names.items():
        if plain in {normal_text(canonical), *map(normal_text, aliases)}:
            return canonical
    return name
