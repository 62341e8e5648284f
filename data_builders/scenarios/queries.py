"""Questions about the end of a scenario, with the tokens of right and wrong answers out of its books."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from data_builders.scenarios.phrasing import Scribe
from data_builders.scenarios.vocabulary import Shape, SlotRecipe, Vocabulary
from data_builders.scenarios.world import Fact, Place, World
from data_builders.trajectory import Change, Query, QueryKind, contains
from operators.claims import ANY_SCOPE
from operators.normal import Form

SHORT_COMMIT = 12
FLAG_ANSWERS = {"on": ("on", "enabled", "true"), "off": ("off", "disabled", "false")}
EVERYDAY = frozenset({"on", "true"})  # in any sentence: they give nothing away
GONE = ("removed", "gone", "none", "no longer", "dropped", "deleted", "unset")
HOPS: dict[Shape, int] = dict.fromkeys(Shape, 1) | {
    Shape.CURRENT_JOIN: 2, Shape.SCOPED_BEFORE: 2, Shape.PROVENANCE_NEXT: 2, Shape.PROVENANCE_ENDED: 2,
    Shape.TEMPORAL_RETURN: 2, Shape.TEMPORAL_WHEN: 2, Shape.STALE_ENDED: 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Draft:
    """A question before it has words. Each of `answers` is one thing to name, in all its spellings."""

    shape: Shape
    place: Place
    fields: dict[str, str]
    answers: tuple[tuple[str, ...], ...]
    wrong: tuple[str, ...] = ()


def ask(
    rng: random.Random, vocabulary: Vocabulary, world: World, scribe: Scribe, *, per_kind: int
) -> tuple[Query, ...]:
    """Up to `per_kind` questions of each kind, every third over several hops where the world has any."""
    drafts = list(_Examiner(vocabulary, world, scribe).drafts())
    rng.shuffle(drafts)
    queries: list[Query] = []
    for kind in QueryKind:
        mine = [draft for draft in drafts if draft.shape.startswith(kind)]
        asked = 0
        while mine and asked < per_kind:
            wanted = 2 if asked % 3 == 2 or (per_kind < 3 and asked) else 1
            draft = next((d for d in mine if HOPS[d.shape] == wanted), mine[0])
            mine.remove(draft)
            query = _worded(rng, vocabulary, draft, name=f"q{len(queries) + 1:02d}")
            if query is not None:
                queries.append(query)
                asked += 1
    return tuple(queries)


def _worded(rng: random.Random, vocabulary: Vocabulary, draft: _Draft, *, name: str) -> Query | None:
    """The question in one of its wordings; None if each of them gives the answer away."""
    flat = [spelling for answer in draft.answers for spelling in answer]
    one_spelling = all(len(answer) == 1 for answer in draft.answers)
    templates = vocabulary.questions[draft.shape]
    for template in rng.sample(templates, len(templates)):
        question = template.format_map(draft.fields)
        if not any(contains(question, spelling) for spelling in flat if spelling not in EVERYDAY):
            break
    else:
        return None
    return Query(
        id=f"{name}-{draft.place.key}", kind=QueryKind(draft.shape.split("-")[0]), hops=HOPS[draft.shape],
        question=question[0].upper() + question[1:] if question.startswith("the ") else question,
        required=tuple(flat) if one_spelling else (), any_of=() if one_spelling else tuple(flat),
        forbidden=tuple(t for t in dict.fromkeys(draft.wrong) if not any(contains(f, t) for f in flat)),
    )  # fmt: skip


class _Examiner:
    """Finds every question that the books can answer."""

    def __init__(self, vocabulary: Vocabulary, world: World, scribe: Scribe) -> None:
        self._vocabulary = vocabulary
        self._world = world
        self._scribe = scribe
        self._single = [p for p in world.places if p.member is None and world.backed(p)]

    def drafts(self) -> Iterator[_Draft]:
        for place in self._single:
            yield from self._state(place)
            yield from self._commits(place)
            yield from self._dates(place)
        yield from self._joins()
        yield from self._members()

    def _state(self, place: Place) -> Iterator[_Draft]:
        """What holds, where, and what held before."""
        now, facts = self._world.value(place), self._world.facts(place)
        scoped = place.key[2:] != (ANY_SCOPE, ANY_SCOPE)
        wrong = self._wrong(place)
        shape = Shape.SCOPED_VALUE if scoped else Shape.CURRENT_VALUE
        yield self._draft(shape, place, [self._spellings(place, now)], wrong=wrong)
        if wrong and self._world.disputes(place):
            yield self._draft(Shape.STALE_VALUE, place, [self._spellings(place, now)], wrong=wrong)
        if len(facts) > 1 and facts[-1].change is not Change.REFINES:
            before = self._spellings(place, facts[-2].value)
            yield self._draft(Shape.SCOPED_BEFORE if scoped else Shape.TEMPORAL_BEFORE, place, [before])
        if scoped and now and self._quotable(place) and now not in self._world.siblings(place.key):
            where = place.key.env if place.key.env != ANY_SCOPE else place.key.branch
            names = (where, *self._vocabulary.names[where])
            yield self._draft(Shape.SCOPED_WHERE, place, [names], value=self._say(place, now))

    def _commits(self, place: Place) -> Iterator[_Draft]:
        facts = self._world.facts(place)
        commits = [_short(fact) for fact in facts]
        yield self._draft(Shape.PROVENANCE_SET, place, [(commits[-1],)], wrong=commits[:-1])
        for number, (one, after) in enumerate(pairwise(facts)):
            others = [*commits[:number], *commits[number + 2 :]]
            if after.change is Change.REFINES:
                continue
            yield self._draft(
                Shape.PROVENANCE_NEXT, place, [(_short(after),)], wrong=others, commit=_short(one)
            )
            if one.value in self._world.overtaken(place) and self._quotable(place):
                held = [fact for fact in facts if fact.value is not None and fact.value == one.value]
                if len(held) == 1:
                    for shape in (Shape.PROVENANCE_ENDED, Shape.STALE_ENDED):
                        said = self._say(place, one.value or "")
                        wrong = [c for c in commits if c != _short(after)]
                        yield self._draft(shape, place, [(_short(after),)], wrong=wrong, value=said)

    def _dates(self, place: Place) -> Iterator[_Draft]:
        facts = self._world.facts(place)
        days = [f"{fact.date:%Y-%m-%d}" for fact in facts]
        yield self._draft(Shape.TEMPORAL_DATE, place, [(days[-1],)], wrong=days[:-1])
        returns = [n for n, fact in enumerate(facts) if fact.change is Change.REVERTS]
        for number in returns:
            value = facts[number].value
            if self._quotable(place) and [facts[n].value for n in returns].count(value) == 1:
                wrong = [*days[:number], *days[number + 1 :]]
                said = self._say(place, value or "")
                yield self._draft(Shape.TEMPORAL_RETURN, place, [(days[number],)], wrong=wrong, value=said)

    def _joins(self) -> Iterator[_Draft]:
        """Two places of different pairs: one picks the object or the moment, the other gives the answer."""
        for one in self._single:
            for other in self._single:
                if one.key[:2] == other.key[:2] or not self._quotable(other):
                    continue
                yield from self._join(one, other)
                yield from self._moment(one, other)

    def _join(self, one: Place, other: Place) -> Iterator[_Draft]:
        """`other` names the entity by what it has: only where no second entity ever had that."""
        value = self._world.value(other)
        same_thing = one.key.entity == other.key.entity and one.key[2:] == other.key[2:] == (ANY_SCOPE,) * 2
        if value is None or not same_thing or self._holders(other.key.slot, value) != 1:
            return
        now = self._spellings(one, self._world.value(one))
        second = {"slot2": _words(other.key.slot), "value2": self._say(other, value)}
        yield self._draft(Shape.CURRENT_JOIN, one, [now], wrong=self._wrong(one), **second)

    def _moment(self, one: Place, other: Place) -> Iterator[_Draft]:
        """What `one` was when `other` got a value that it got only once."""
        if other.key[2:] != (ANY_SCOPE, ANY_SCOPE):
            return
        facts = self._world.facts(other)
        for fact in facts:
            before = [f for f in self._world.facts(one) if f.date < fact.date]
            same = any(f.date == fact.date for f in self._world.facts(one))
            once = fact.value is not None and [f.value for f in facts].count(fact.value) == 1
            if before and before[-1].value is not None and once and not same:
                said = self._say(other, fact.value or "")
                second = {"slot2": _words(other.key.slot), "entity2": other.key.entity, "value2": said}
                answer = self._spellings(one, before[-1].value)
                yield self._draft(Shape.TEMPORAL_WHEN, one, [answer], **second)

    def _members(self) -> Iterator[_Draft]:
        for key in dict.fromkeys(place.key for place in self._world.places if place.member is not None):
            present = self._world.members(key)
            known = [p.member for p in self._world.places if p.key == key and p.member]
            if present:
                gone = [member for member in known if member not in present]
                yield self._draft(Shape.CURRENT_MEMBERS, Place(key), [(m,) for m in present], wrong=gone)

    def _draft(
        self,
        shape: Shape,
        place: Place,
        answers: list[tuple[str, ...]],
        *,
        wrong: Iterable[str] = (),
        **more: str,
    ) -> _Draft:
        key = place.key
        scope = "" if key[2:] == (ANY_SCOPE, ANY_SCOPE) else self._scribe.scope(key)
        fields = {
            "entity": self._scribe.entity(key.entity), "slot": _words(key.slot), "scope": scope,
                "within": f" in {scope}" if scope else "", **more,
        }  # fmt: skip
        return _Draft(shape, place, fields, tuple(answers), tuple(wrong))

    def _wrong(self, place: Place) -> tuple[str, ...]:
        """All spellings of overtaken and disputed values, and of what other scopes hold."""
        now = self._world.value(place)
        wrong = (
            *self._world.overtaken(place),
            *self._world.disputes(place),
            *self._world.siblings(place.key),
        )
        return tuple(s for v in dict.fromkeys(wrong) if v != now for s in self._spellings(place, v))

    def _spellings(self, place: Place, value: str | None) -> tuple[str, ...]:
        """What an answer may call the value."""
        recipe = self._recipe(place)
        if value is None:
            return GONE
        if recipe.form is Form.FLAG:
            return FLAG_ANSWERS[value]
        if recipe.values:
            return tuple(dict.fromkeys((value, value.replace("_", " "), *recipe.values[value])))
        if recipe.form is Form.NUMBER:
            return tuple(dict.fromkeys((value, value.replace(" ", ""))))
        return (value,)

    def _say(self, place: Place, value: str) -> str:
        return self._scribe.word(self._recipe(place), value)

    def _quotable(self, place: Place) -> bool:
        """On and off are no names for a state."""
        return self._recipe(place).form is not Form.FLAG

    def _recipe(self, place: Place) -> SlotRecipe:
        return self._vocabulary.recipes[place.key.slot]

    def _holders(self, slot: str, value: str) -> int:
        return len(
            {p.key.entity for p in self._single if p.key.slot == slot and self._world.value(p) == value}
        )


def _short(fact: Fact) -> str:
    return (fact.commit or "")[:SHORT_COMMIT]


def _words(slot: str) -> str:
    return slot.replace("_", " ")
