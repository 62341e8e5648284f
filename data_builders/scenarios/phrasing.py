"""From a claim to the words of a note."""

from __future__ import annotations

import random
from dataclasses import dataclass

from data_builders.scenarios.vocabulary import Role, SlotRecipe, Vocabulary, fields
from data_builders.trajectory import Change, GoldClaim
from operators.claims import ANY_SCOPE, Key
from operators.normal import Form
from operators.schema import SlotSchema

FLAG_WORDS = {"on": ("on", "enabled"), "off": ("off", "disabled")}
FLAG_PARTICIPLES = {
    "on": ("turned on", "switched on", "enabled"),
    "off": ("turned off", "switched off", "disabled"),
}
FRAMED = (Change.INTRODUCES, Change.REPLACES, Change.REFINES)
GUESSES = (Role.HEDGED, Role.BELIEF)
_FINAL = (".", "?", ":", "!")


@dataclass(frozen=True, slots=True)
class Saying:
    """A claim to put into words: `old` is what held before, `role` how it is said (None: by its change)."""

    gold: GoldClaim
    old: str | None = None
    role: Role | None = None


class Scribe:
    """Writes the notes of one scenario."""

    def __init__(self, rng: random.Random, vocabulary: Vocabulary, schema: SlotSchema) -> None:
        self._rng = rng
        self._vocabulary = vocabulary
        self._schema = schema

    def note(self, sayings: list[Saying]) -> str:
        """A note that makes the claims: terse, as points, or with things around that do not matter.

        With no sayings it is chatter without a state.
        """
        clauses: list[str] = []
        last = ""
        for saying in sayings:
            clauses.append(self._clause(saying, after=last))
            last = saying.gold.entity
        style = self._rng.choice(("terse", "points", "talk"))
        if style == "terse" and clauses:
            return " ".join(map(_sentence, clauses))
        clauses = self._surround(clauses, most=3 if style == "talk" else 1)
        if style == "talk":
            return " ".join(map(_sentence, clauses))
        heading = [self._rng.choice(self._vocabulary.headings)] if self._rng.random() < 0.5 else []
        return "\n".join([*heading, *(f"- {clause}" for clause in clauses)])

    def _surround(self, clauses: list[str], *, most: int) -> list[str]:
        """The clauses with up to `most` irrelevant ones around them (at least one if there is no clause)."""
        count = self._rng.randint(0 if clauses else 1, most)
        around = [
            line.format_map({"other": self.entity(self._rng.choice(self._vocabulary.entities).entity)})
            for line in self._rng.sample(self._vocabulary.irrelevant, count)
        ]
        before = self._rng.randint(0, len(around))
        return [*around[:before], *clauses, *around[before:]]

    def _clause(self, saying: Saying, *, after: str) -> str:
        gold = saying.gold
        recipe = self._vocabulary.recipes[gold.slot]
        text = self._fill(self._template(saying, recipe), saying, recipe, after=after)
        if gold.key[2:] == (ANY_SCOPE, ANY_SCOPE):
            return text
        wrapper = self._rng.choice(self._vocabulary.shared[Role.SCOPED])
        return wrapper.format_map({"claim": text, "scope": self.scope(gold.key)})

    def _template(self, saying: Saying, recipe: SlotRecipe) -> str:
        """A phrasing whose placeholders can all be filled."""
        change = saying.gold.change
        if saying.role in GUESSES or (saying.role is not None and self._rng.random() < 0.7):
            choices = self._vocabulary.usable(saying.role, recipe)
        elif change is Change.REMOVES:
            role = Role.RETIREMENT if saying.gold.retires else Role.REMOVAL
            choices = self._vocabulary.usable(role, recipe)
        elif change is Change.REVERTS and self._rng.random() < 0.6:
            choices = self._vocabulary.usable(Role.REVERT, recipe)
        elif change is Change.RESTATES and self._rng.random() < 0.5:
            choices = self._vocabulary.usable(Role.RESTATE, recipe)
        elif change in FRAMED and self._rng.random() < 0.25:
            choices = self._vocabulary.usable(Role.FRAMED, recipe)
        elif change in (Change.RESTATES, Change.DISPUTES) or self._rng.random() < 0.25:
            choices = recipe.state if self._rng.random() < 0.75 else recipe.change
        else:
            choices = recipe.change
        return self._rng.choice([t for t in choices if saying.old is not None or "{old}" not in t])

    def _fill(self, template: str, saying: Saying, recipe: SlotRecipe, *, after: str = "") -> str:
        gold = saying.gold
        value = gold.value or gold.retires or ""
        pronoun = gold.entity == after and template.startswith("{entity} ") and self._rng.random() < 0.5
        words = {
            "entity": "it" if pronoun else self.entity(gold.entity),
            "slot": self._rng.choice((recipe.slot.replace("_", " "), *recipe.aliases)),
            "value": self.word(recipe, value),
            "old": self.word(recipe, saying.old or ""),
        }
        if recipe.form is Form.FLAG:
            words["turned"] = self._rng.choice(FLAG_PARTICIPLES[value or "off"])
        if "claim" in fields(template):
            words["claim"] = self._fill(self._rng.choice(recipe.state), saying, recipe)
        return template.format_map(words)

    def entity(self, name: str) -> str:
        if self._rng.random() < 0.35:
            return f"the {self._rng.choice(self._vocabulary.names[name])}"
        return self._rng.choice((name, name, name.replace("_", " ")))

    def scope(self, key: Key) -> str:
        """What a text calls the scope of the key."""
        if key.branch != ANY_SCOPE:
            return self._rng.choice((f"branch {key.branch}", f"the {self._schema.branches[key.branch][0]}"))
        return self._rng.choice((key.env, *self._schema.envs[key.env]))

    def word(self, recipe: SlotRecipe, value: str) -> str:
        """One spelling of the value: a flag or an enum has several, everything else stands verbatim."""
        if recipe.form is Form.FLAG:
            return self._rng.choice(FLAG_WORDS.get(value, (value,)))
        if value in recipe.values:
            return self._rng.choice((value, value.replace("_", " "), *recipe.values[value]))
        return value


def _sentence(clause: str) -> str:
    """The clause with a capital, unless it opens with an identifier, and a final stop."""
    first = clause.split(" ", 1)[0]
    plain = first.strip(",:").isalpha()
    text = clause[0].upper() + clause[1:] if plain else clause
    return text if text.endswith(_FINAL) else f"{text}."
