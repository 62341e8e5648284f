"""Who plays in a scenario: the entities, the keys that will live, and the pool of values of each slot."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import ceil

from data_builders.scenarios.vocabulary import SlotRecipe, Thing, Vocabulary
from operators.claims import ANY_SCOPE, Key
from operators.normal import Form
from operators.schema import Cardinality, SlotSchema

Scope = tuple[str, str]  # branch, env
UNSCOPED: Scope = (ANY_SCOPE, ANY_SCOPE)


@dataclass(frozen=True, slots=True)
class Cast:
    """What a scenario plays with.

    Every role of a value (current, overtaken, other scope, guess) draws from the one pool of its slot.
    `spikes` are branches that only distractors speak of.
    """

    schema: SlotSchema
    keys: tuple[Key, ...]
    pools: dict[str, tuple[str, ...]]
    spikes: tuple[str, ...]


def draw_cast(rng: random.Random, vocabulary: Vocabulary, *, length: int, scoped_share: float) -> Cast:
    """Cast a scenario of `length` sessions; `scoped_share` of the pairs live in several scopes."""
    branches = rng.sample(sorted(vocabulary.branches), 5)
    layout = _layout(rng, sorted(vocabulary.envs), branches[:2], size=_key_count(length), share=scoped_share)
    things = rng.sample(vocabulary.entities, min(ceil(0.6 * len(layout)) + 1, len(vocabulary.entities)))
    used: dict[str, list[SlotRecipe]] = {thing.entity: [] for thing in things}
    keys: list[Key] = []
    sizes: dict[str, int] = {}
    for scopes in layout:
        thing = rng.choice(things[:-1] or things)
        recipe = _pick(rng, vocabulary, thing, used=used, scopes=scopes)
        used[thing.entity].append(recipe)
        room = 6 if recipe.cardinality is Cardinality.MANY else 3 + len(scopes)
        sizes[recipe.slot] = max(sizes.get(recipe.slot, 0), room)
        keys += [Key(thing.entity, recipe.slot, branch, env) for branch, env in scopes]
    pools = {slot: vocabulary.recipes[slot].pool(rng, size) for slot, size in sizes.items()}
    for thing in things:
        unused = [recipe for recipe in vocabulary.fitting[thing.entity] if recipe not in used[thing.entity]]
        used[thing.entity] += rng.sample(unused, min(2, len(unused)))
    schema = SlotSchema(
        entities=tuple(vocabulary.as_entity(name, recipes) for name, recipes in used.items()),
        branches={branch: vocabulary.branches[branch] for branch in branches},
        envs=vocabulary.envs,
    )
    return Cast(schema, tuple(keys), pools, tuple(branches[2:]))


def _key_count(length: int) -> int:
    """Few enough keys that each has a history: 6 for 12 sessions, at most 24."""
    return max(1, min(24, round(0.4 * length) + 1))


def _layout(
    rng: random.Random, envs: list[str], branches: list[str], *, size: int, share: float
) -> list[list[Scope]]:
    """The scopes of each pair, `size` keys in all: a scoped pair, an unscoped one, then as chance has it."""
    layout: list[list[Scope]] = []
    left = size
    while left:
        scoped = left >= 2 and size > 2 and len(layout) != 1 and (not layout or rng.random() < share)
        if not scoped:
            layout.append([UNSCOPED])
        elif share > 0.5:
            others = [UNSCOPED, *((branch, ANY_SCOPE) for branch in branches)]
            names = rng.sample(envs, 2)
            scopes = [(ANY_SCOPE, env) for env in names] + rng.sample(others, rng.randint(0, 2))
            layout.append(scopes[:left])
        else:
            layout.append([(ANY_SCOPE, rng.choice(envs)), UNSCOPED])
        left -= len(layout[-1])
    return layout


def _pick(
    rng: random.Random,
    vocabulary: Vocabulary,
    thing: Thing,
    *,
    used: dict[str, list[SlotRecipe]],
    scopes: list[Scope],
) -> SlotRecipe:
    """A slot for the entity, often one that another entity has already; scoped slots need room to differ."""
    free = [recipe for recipe in vocabulary.fitting[thing.entity] if recipe not in used[thing.entity]]
    if len(scopes) > 1:
        free = [
            r
            for r in free
            if r.form is not Form.FLAG and r.cardinality is Cardinality.ONE and r.size >= len(scopes) + 2
        ]
    elsewhere = {recipe.slot for recipes in used.values() for recipe in recipes}
    shared = [recipe for recipe in free if recipe.slot in elsewhere]
    return rng.choice(shared if shared and rng.random() < 0.35 else free)
