"""The words of the scenarios: entities, slots with value recipes, phrasings, questions; read and checked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from math import prod
from pathlib import Path
from string import Formatter
from typing import Annotated

from pydantic import BeforeValidator, Field

from operators.normal import CLOSED_FORMS, Form, normal_text
from operators.schema import Cardinality, Entity, FrozenModel, Slot
from operators.sources import Located, load_yaml

VOCABULARY = Path(__file__).resolve().parents[2] / "configs" / "scenarios" / "vocabulary.yaml"
MIN_PHRASINGS = 12
MIN_VALUES = 12
MIN_WORDINGS = 5
SHARED_FIELDS = frozenset({"entity", "slot", "value", "old", "scope", "turned", "claim"})
OWN_FIELDS = frozenset({"entity", "slot", "value", "old", "turned"})
QUESTION_FIELDS = frozenset(
    {"entity", "slot", "value", "scope", "within", "commit", "entity2", "slot2", "value2"}
)


def _lines(block: object) -> object:
    """A block of text is one phrasing a line."""
    if not isinstance(block, str):
        return block
    return tuple(line.strip() for line in block.splitlines() if line.strip())


Phrasings = Annotated[tuple[str, ...], BeforeValidator(_lines)]


class Group(StrEnum):
    """The software area of an entity; a slot names the groups it goes with."""

    SERVICE = "service"
    DATABASE = "database"
    PIPELINE = "pipeline"
    CLIENT = "client"
    JOB = "job"
    INFRASTRUCTURE = "infrastructure"
    LIBRARY = "library"
    DOCUMENT = "document"


class Role(StrEnum):
    """What a phrasing that several slots share is for."""

    REMOVAL = "removal"
    RETIREMENT = "retirement"
    REVERT = "revert"
    RESTATE = "restate"
    STALE = "stale"
    DOCUMENTATION = "documentation"
    SCOPED = "scoped"
    HEDGED = "hedged"
    BELIEF = "belief"
    FRAMED = "framed"


class Shape(StrEnum):
    """What a question asks for; the part before the first hyphen is its kind."""

    CURRENT_VALUE = "current-value"
    CURRENT_JOIN = "current-join"
    CURRENT_MEMBERS = "current-members"
    SCOPED_VALUE = "scoped-value"
    SCOPED_WHERE = "scoped-where"
    SCOPED_BEFORE = "scoped-before"
    PROVENANCE_SET = "provenance-set"
    PROVENANCE_ENDED = "provenance-ended"
    PROVENANCE_NEXT = "provenance-next"
    TEMPORAL_DATE = "temporal-date"
    TEMPORAL_BEFORE = "temporal-before"
    TEMPORAL_RETURN = "temporal-return"
    TEMPORAL_WHEN = "temporal-when"
    STALE_VALUE = "stale-value"
    STALE_ENDED = "stale-ended"


class Thing(FrozenModel):
    """An entity that scenarios may cast."""

    entity: str = Field(pattern=r"^[a-z][a-z0-9_./-]*$")
    group: Group
    aliases: tuple[str, ...] = Field(min_length=2, max_length=3)


class SlotRecipe(FrozenModel):
    """A slot, the values it can take, and how people say that it has or gets one.

    `recipe` is composed of `parts`; `details` may follow a text value and make it more precise.
    """

    slot: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    about: str
    aliases: tuple[str, ...] = Field(min_length=1)
    form: Form
    cardinality: Cardinality = Cardinality.ONE
    groups: tuple[Group, ...] = Field(min_length=1)
    values: dict[str, tuple[str, ...]] = Field(default={})
    recipe: str = ""
    parts: dict[str, tuple[str, ...]] = Field(default={})
    details: tuple[str, ...] = ()
    change: Phrasings
    state: Phrasings

    @cached_property
    def as_slot(self) -> Slot:
        """The slot as a schema knows it."""
        return Slot(
            slot=self.slot, about=self.about, aliases=self.aliases, form=self.form,
            values=self.values, cardinality=self.cardinality,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """How many different values there are."""
        if self.form is Form.FLAG:
            return 2
        return len(self.values) or prod(len(choices) for choices in self.parts.values())

    def pool(self, rng: random.Random, size: int) -> tuple[str, ...]:
        """Up to `size` values, none of which stands inside another."""
        if self.form is Form.FLAG:
            return tuple(rng.sample(("on", "off"), 2))
        if self.values:
            return tuple(rng.sample(sorted(self.values), min(size, len(self.values))))
        chosen: list[str] = []
        for _ in range(20 * size):
            value = self.recipe.format(**{part: rng.choice(names) for part, names in self.parts.items()})
            if not any(value in other or other in value for other in chosen):
                chosen.append(value)
            if len(chosen) == size:
                break
        return tuple(chosen)


class Vocabulary(FrozenModel):
    """All words of the scenarios, as `configs/scenarios/vocabulary.yaml` holds them."""

    entities: tuple[Thing, ...]
    envs: dict[str, tuple[str, ...]]
    branches: dict[str, tuple[str, ...]]
    slots: tuple[SlotRecipe, ...]
    shared: dict[Role, Phrasings]
    headings: Phrasings
    irrelevant: Phrasings
    questions: dict[Shape, Phrasings]

    @cached_property
    def recipes(self) -> dict[str, SlotRecipe]:
        return {recipe.slot: recipe for recipe in self.slots}

    @cached_property
    def fitting(self) -> dict[str, tuple[SlotRecipe, ...]]:
        """The slots that go with each entity, by the entity's name."""
        return {
            thing.entity: tuple(recipe for recipe in self.slots if thing.group in recipe.groups)
            for thing in self.entities
        }

    @cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The aliases of each entity and each scope."""
        return {t.entity: t.aliases for t in self.entities} | self.envs | self.branches

    def as_entity(self, name: str, recipes: list[SlotRecipe]) -> Entity:
        """The entity of that name with these slots."""
        slots = tuple(recipe.as_slot for recipe in recipes)
        return Entity(entity=name, aliases=self.names[name], slots=slots)

    def usable(self, role: Role, recipe: SlotRecipe) -> tuple[str, ...]:
        """The shared phrasings of that role that fit the slot's form."""
        return tuple(phrasing for phrasing in self.shared[role] if _fits(phrasing, role, recipe))


def load_vocabulary(path: Path = VOCABULARY) -> Vocabulary:
    """Read and check a vocabulary. Raises: InputError with file, line and field."""
    located = load_yaml(path, Vocabulary)
    _check_names(located)
    for field, phrasings, known, least in _phrasings(located.value):
        if len(set(phrasings)) < least:
            raise located.fault(f"{len(set(phrasings))} phrasings, {least} are needed", field)
        for phrasing in phrasings:
            unknown = sorted(fields(phrasing) - known)
            if unknown:
                raise located.fault(
                    f"unknown placeholder {unknown[0]!r} in {phrasing!r}", field,
                    hint=f"known here: {', '.join(sorted(known))}",
                )  # fmt: skip
    for number, recipe in enumerate(located.value.slots):
        _check_recipe(located, recipe, ("slots", number))
    return located.value


def fields(phrasing: str) -> set[str]:
    """The names of the placeholders in a phrasing."""
    return {name for _, name, _, _ in Formatter().parse(phrasing) if name is not None}


def _fits(phrasing: str, role: Role, recipe: SlotRecipe) -> bool:
    """A flag is turned, a member is only ever claimed, and every other value is named."""
    if role in (Role.REMOVAL, Role.RETIREMENT, Role.SCOPED):
        return True
    if recipe.cardinality is Cardinality.MANY:
        return "{claim}" in phrasing
    if recipe.form is Form.FLAG:
        return "{turned}" in phrasing or not fields(phrasing) & {"value", "old"}
    return "{turned}" not in phrasing


def _phrasings(
    vocabulary: Vocabulary,
) -> Iterator[tuple[tuple[str | int, ...], tuple[str, ...], frozenset[str], int]]:
    """Every block of phrasings: its field, its lines, the placeholders it may use, its least size."""
    for number, recipe in enumerate(vocabulary.slots):
        own = OWN_FIELDS if recipe.form is Form.FLAG else OWN_FIELDS - {"turned"}
        yield ("slots", number, "change"), (*recipe.change, *recipe.state), own, MIN_PHRASINGS
        yield ("slots", number, "state"), recipe.state, own - {"old"}, MIN_WORDINGS
    for role in Role:
        yield ("shared", role), vocabulary.shared.get(role, ()), SHARED_FIELDS, 2 * MIN_WORDINGS
    for shape in Shape:
        yield ("questions", shape), vocabulary.questions.get(shape, ()), QUESTION_FIELDS, MIN_WORDINGS
    yield ("headings",), vocabulary.headings, frozenset(), MIN_WORDINGS
    yield ("irrelevant",), vocabulary.irrelevant, frozenset({"other"}), 40


def _check_names(located: Located[Vocabulary]) -> None:
    """No two entities, slots or scopes may be called the same."""
    vocabulary = located.value
    seen: set[str] = set()
    called = [(name, (name, *aliases)) for name, aliases in vocabulary.names.items()]
    for name, names in called:
        for plain in {normal_text(alias.replace("_", " ")) for alias in names}:
            if plain in seen:
                raise located.fault(f"{name} shares the name {plain!r} with another", ("entities",))
            seen.add(plain)
    for key, entries in (
        ("entities", [t.entity for t in vocabulary.entities]),
        ("slots", vocabulary.recipes),
    ):
        if len(set(entries)) < len(getattr(vocabulary, key)):
            raise located.fault("a name is given twice", (key,))


def _check_recipe(located: Located[Vocabulary], recipe: SlotRecipe, field: tuple[str | int, ...]) -> None:
    """The values are there, and the recipe uses its parts."""
    if (recipe.form is Form.ENUM) != bool(recipe.values):
        raise located.fault("`values` goes with an enum, and only with it", field)
    if fields(recipe.recipe) != set(recipe.parts):
        raise located.fault("`recipe` and `parts` name different placeholders", (*field, "recipe"))
    least = MIN_VALUES if recipe.form not in CLOSED_FORMS else 2
    if recipe.size < least:
        raise located.fault(f"{recipe.size} values, {least} are needed", field)
