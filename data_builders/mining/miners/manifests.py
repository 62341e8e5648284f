"""What the miners of manifests share: slots, bounded parsing, and facts that stay unique in their file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from data_builders.mining.facts import Fact, UnreadableError
from operators.normal import Form

MAX_CHARS = 1_000_000
"""No manifest that people write is longer; beyond it parsers of nested formats take seconds."""
MAX_KEY_PARTS = 200
"""tomllib's time and memory go with the square of the parts of a dotted key."""
MAX_VALUE = 120
_LONG_HASH = re.compile(r"[0-9a-fA-F]{32}")
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")
_ORDINARY = frozenset(
    """api app cli client common config core css data db env errors exec fs go http image io js json lib log
    main math mod net node plugin proto python rand react rust sdk server sync sys term test text time tools
    ts types ui utils vue web yaml""".split()
)
"""Last parts of dotted or slashed names that many packages share, hence no alias of any."""

LANGUAGES: dict[str, tuple[str, ...]] = {
    "go": ("golang", "go version"),
    "node": ("nodejs", "node.js", "node version"),
    "python": ("cpython", "python version", "minimum python version"),
    "rust": ("rustc", "rust version", "rust toolchain"),
}
"""Languages with the other names texts use for them."""


@dataclass(frozen=True, slots=True)
class SlotKind:
    """The form and cardinality of all values of a slot, and the words texts use for it."""

    form: Form
    words: tuple[str, ...]
    many: bool = False


def requirement_slot(*words: str) -> SlotKind:
    """A slot that holds a version specifier."""
    return SlotKind(Form.VERSION, (*words, "version"))


DEPENDENCY = requirement_slot("dependency", "requirement")
SOURCE = SlotKind(Form.NAME, ("source", "url"))
VERSION = SlotKind(Form.VERSION, ("version", "release"))
REQUIRED_VERSION = SlotKind(
    Form.VERSION, ("required version", "minimum version", "minimum supported version")
)
PACKAGE = SlotKind(Form.NAME, ("package", "dependency"), many=True)


def words_of(slots: Mapping[str, SlotKind]) -> dict[str, tuple[str, ...]]:
    """The slots as the protocol wants them."""
    return {slot: kind.words for slot, kind in slots.items()}


def is_plain(text: str) -> bool:
    """Whether it is one short printable line without a password or a long hash."""
    return len(text) <= MAX_VALUE and _is_plain(text)


@lru_cache(maxsize=1 << 14)
def _without_spaces(thing: str) -> str:
    """Entities hold no spaces: `cfg(all(a, b = "c"))` becomes `cfg(all(a,b="c"))`; other spaces `_`."""
    return re.sub(r"\s+", "_", re.sub(r"\s*([,=<>!~]+)\s*", r"\1", thing.strip()))


@lru_cache(maxsize=1 << 16)
def _is_plain(text: str) -> bool:
    return (
        bool(text.strip())
        and text.isprintable()
        and not _LONG_HASH.search(text)
        and not _PASSWORD.search(text)
    )


class Facts:
    """Collects the facts of a file; of several with the same key the last stays, at the first one's place.

    What is not plain text (`is_plain`), or no text at all where the format wants text, is left out.
    A boolean (in a slot of that form only) becomes `on` or `off`.
    """

    def __init__(self, slots: Mapping[str, SlotKind]) -> None:
        self._slots = slots
        self._found: dict[tuple[str, str, str], Fact] = {}

    def add(self, thing: object, slot: str, value: object, aliases: tuple[str, ...] = ()) -> None:
        kind = self._slots[slot]
        if kind.form is Form.FLAG:
            value = ("on" if value else "off") if isinstance(value, bool) else None
        if not (isinstance(thing, str) and isinstance(value, str) and is_plain(thing) and is_plain(value)):
            return
        thing, value = _without_spaces(thing), value.strip()
        others = tuple(dict.fromkeys(a for a in aliases if a.casefold() != thing.casefold() and is_plain(a)))
        key = (thing, slot, value if kind.many else "")
        self._found[key] = Fact(thing, slot, value, kind.form, kind.many, others)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._found.values())


def read_toml(text: str) -> dict[str, object]:
    """Raises: UnreadableError for anything tomllib cannot read, or will not in reasonable time."""
    if any(part.count(".") > MAX_KEY_PARTS for line in text.split("\n") for part in line.split("=")):
        raise UnreadableError("a key of too many parts")
    try:
        return tomllib.loads(_bounded(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not TOML: {str(error)[:MAX_VALUE]}") from None


def read_json(text: str) -> dict[str, object]:
    """Raises: UnreadableError for anything that is not a JSON object."""
    try:
        found = json.loads(_bounded(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {str(error)[:MAX_VALUE]}") from None
    if not isinstance(found, dict):
        raise UnreadableError("not a JSON object")
    return found


def read_lines(text: str) -> list[str]:
    """The lines of a line-based format. Raises: UnreadableError for a binary or oversized file."""
    return re.split(r"\r\n|\n|\r", _bounded(text))


def _bounded(text: str) -> str:
    if len(text) > MAX_CHARS:
        raise UnreadableError(f"{len(text):,} characters are no manifest")
    if "\0" in text:
        raise UnreadableError("binary")
    return text.removeprefix("\ufeff")


def table(parent: object, *keys: str) -> dict[str, object]:
    """The table at that path; an empty one where there is none or something else."""
    for key in keys:
        parent = parent.get(key) if isinstance(parent, dict) else None
    return parent if isinstance(parent, dict) else {}


def items(parent: object, *keys: str) -> list[object]:
    """The list at that path; an empty one where there is none or something else."""
    found = table(parent, *keys[:-1]).get(keys[-1])
    return found if isinstance(found, list) else []


def base_name(path: str) -> str:
    return path.rpartition("/")[2]


def package_aliases(name: str) -> tuple[str, ...]:
    """Other spellings of a package's name: without its scope or host, its last part, with `-` or `_`.

    `github.com/alecthomas/chroma/v2` is also `alecthomas/chroma` and `chroma`; `@vitejs/plugin-vue` is also
    `plugin-vue`. A last part that many packages share is no alias, nor is the package that `@types/…` is for.
    """
    parts = [part for part in name.removeprefix("@").split("/") if part]
    if len(parts) > 1 and re.fullmatch(r"v\d+", parts[-1]):
        parts = parts[:-1]
    found = []
    if len(parts) > 1:
        hosted = "." in parts[0]
        found += ["/".join(parts), "/".join(parts[1:])] if hosted else []
        last = re.sub(r"\.v\d+$", "", parts[-1])
        if last.casefold() not in _ORDINARY and len(last) > 2 and not name.startswith("@types/"):
            found.append(last)
    else:
        found += [name.replace("_", "-"), name.replace("-", "_")]
    return tuple(alias for alias in dict.fromkeys(found) if alias != name)
