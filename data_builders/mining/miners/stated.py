"""From what a file states to facts: the form of a value, and names that are unique in the file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact
from data_builders.mining.miners.trees import Kind, Leaf
from operators.normal import Form

MAX_VALUE_CHARS = 120
_VERSION = re.compile(
    r"(?:[\^~<>=!]{1,3} ?)?v?\d+(?:\.(?:\d+|x|\*))+(?:[-+.]?[A-Za-z0-9]+)*|[\^~<>=!]{1,3} ?\d\S*|v\d+"
)
_UNIT = r"[nmu]?s|secs?|seconds?|m|min(?:ute)?s?|h|hours?|d|days?|weeks?|%|[kKmMgG]i?[bB]?|px"
_NUMBER = re.compile(rf"[+-]?\d[\d_,]*(?:\.\d+)?(?: ?(?:{_UNIT}))?")
_COMPUTED = ("${{", "$((", "<<", "$[", "{{")
_DIGEST = re.compile(r"(?:sha\d+[-:])?[0-9a-f]{32,}|sha\d+[-:]\S+", re.IGNORECASE)
_TOKEN = re.compile(r"(?=\S*[a-z])(?=\S*[A-Z])(?=\S*\d)[A-Za-z0-9+/=_]{28,}")
_COMMON_NAMES = frozenset(
    """build builds check checks ci clean coverage cron default deploy docs format image install job lint
    main make name package publish release run schedule setup steps style test tests type types update
    version""".split()
)


@dataclass(frozen=True, slots=True)
class Stated:
    """A fact whose thing is not settled yet.

    `thing` is the short name, `scopes` are longer and longer names (`jobs.test.UV_VERSION`) for the case
    that the short one has several values in the file.
    """

    thing: str
    slot: str
    value: str
    form: Form
    scopes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    many: bool = False


def settle(stated: Iterable[Stated]) -> list[Fact]:
    """Facts with unique things: the short name where its values agree, else the first scope where they do.

    Values that are computed, empty, digests, keys or too long are no facts. Of what then still repeats,
    the last holds.
    """
    found = [each for each in stated if _is_value(each.value)]
    names = [(each.thing, *each.scopes) for each in found]
    level = [0] * len(found)
    for _ in range(max(map(len, names), default=0)):
        groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, each in enumerate(found):
            groups[names[index][level[index]], each.slot].append(index)
        for group in groups.values():
            if len({found[index].value for index in group if not found[index].many}) > 1:
                for index in group:
                    level[index] = min(level[index] + 1, len(names[index]) - 1)
    facts: dict[tuple[str, str, str | None], Fact] = {}
    for index, each in enumerate(found):
        thing = names[index][level[index]]
        short = (each.thing,) if thing != each.thing else ()
        aliases = tuple(dict.fromkeys(a for a in (*short, *each.aliases) if a and a != thing))
        fact = Fact(thing, each.slot, each.value, each.form, each.many, aliases)
        key = (thing, each.slot, each.value if each.many else None)
        facts.pop(key, None)
        facts[key] = fact
    return list(facts.values())


def form_of(found: Leaf, *, key: str = "", decimals: Form = Form.VERSION) -> Form:
    """The form of a scalar; `decimals` says what `3.10` without quotes is when the key does not tell."""
    text = found.text.strip()
    if found.kind is Kind.FLAG:
        return Form.FLAG
    if found.kind is Kind.NUMBER:
        return Form.NUMBER
    if "version" in key.lower() and text[:1].isdigit():
        return Form.VERSION
    if _NUMBER.fullmatch(text):
        is_decimal = "." in text and text.replace(".", "").isdigit()
        if not is_decimal:
            return Form.NUMBER
        return decimals if found.kind is Kind.PLAIN else Form.VERSION
    if _VERSION.fullmatch(text):
        return Form.VERSION
    return Form.TEXT if any(char.isspace() for char in text) else Form.NAME


def distinctive(name: str) -> tuple[str, ...]:
    """The name as an alias (in kebab and snake case too), or nothing if it is a word that any text has."""
    plain = name.strip()
    if len(plain) < 4 or plain.lower() in _COMMON_NAMES or plain.isdigit():
        return ()
    if not (set("-_/.") & set(plain)) and plain.islower() and len(plain) < 8:
        return ()
    spellings = (plain, plain.replace("_", "-"), plain.replace("-", "_")) if plain.isascii() else (plain,)
    return tuple(dict.fromkeys(spellings))


def dotted(*parts: str) -> str:
    """A path of keys; a part that holds a dot is quoted, as TOML does."""
    return ".".join(f'"{part}"' if "." in part else part for part in parts)


def image_facts(
    reference: str, *, place: str, scopes: Sequence[str] = (), aliases: Sequence[str] = ()
) -> list[Stated]:
    """What a container image states: the image at that place, and the tag of the image of that name.

    Args:
        reference: such as `ghcr.io/astral-sh/uv:0.9@sha256:…`; the digest is no fact.
        place: the thing that runs on the image (`jobs.test.container`, a stage).
        scopes: longer names of the place, for when the file uses several tags of the image.
    """
    name, tag = split_image(reference)
    if not name or "$" in reference or any(char.isspace() for char in reference):
        return []
    whole = f"{name}:{tag}" if tag else name
    last = name.rpartition("/")[2]
    found = [Stated(place, "image", whole, Form.NAME, tuple(scopes), tuple(aliases))]
    if tag:
        form = Form.VERSION if tag.lstrip("v")[:1].isdigit() else Form.NAME
        within = tuple(f"{scope}.{name}" for scope in (place, *scopes))
        found.append(Stated(name, "image-tag", tag, form, within, (last,)))
    return found


def split_image(reference: str) -> tuple[str, str]:
    """Name and tag of an image, either of them empty where there is none."""
    plain = reference.strip().removeprefix("docker://").partition("@")[0]
    folder, slash, last = plain.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{folder}{slash}{name}", tag


IMAGE_SLOTS = {
    "image": ("image", "base image", "container"),
    "image-tag": ("image", "tag", "base image", "version"),
}


def _is_value(value: str) -> bool:
    if not value.strip() or len(value) > MAX_VALUE_CHARS or not value.isprintable():
        return False
    if any(mark in value for mark in _COMPUTED):
        return False
    return not (_DIGEST.fullmatch(value) or _TOKEN.fullmatch(value))
