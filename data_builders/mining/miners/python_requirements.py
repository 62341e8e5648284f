"""Requirement strings of Python packages (PEP 508), for the miners of the files that hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from data_builders.mining.miners.manifests import PACKAGE, SOURCE, Facts, SlotKind
from operators.normal import Form

PYTHON_SLOTS = {
    "source": SOURCE,
    "package": PACKAGE,
    "dependency_extra": SlotKind(Form.NAME, ("extra", "extras"), many=True),
}
"""The slots `add_requirements` fills besides that of the version."""
MAX_REQUIREMENT = 1_000


@dataclass(frozen=True, slots=True)
class PythonRequirement:
    """`name` is canonical (PEP 503), `written` the file's; `specifier` is empty where any version will do."""

    name: str
    written: str
    specifier: str
    url: str
    extras: tuple[str, ...]
    marker: str

    @property
    def aliases(self) -> tuple[str, ...]:
        return (self.written, self.name.replace("-", "_"))


def parse_requirement(text: str) -> PythonRequirement | None:
    """The requirement, its specifier spelled as written; None for what is none (a path, an option, prose)."""
    return _parse(text) if len(text) <= MAX_REQUIREMENT else None


@lru_cache(maxsize=1 << 14)
def _parse(text: str) -> PythonRequirement | None:
    try:
        found = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None
    url = (found.url or "").partition("#")[0]
    marker = str(found.marker) if found.marker else ""
    specifier = "" if url else _as_written(text, found)
    return PythonRequirement(
        canonicalize_name(found.name), found.name, specifier, url, tuple(sorted(found.extras)), marker
    )


def _as_written(text: str, found: Requirement) -> str:
    """The specifier's own characters; packaging sorts the parts of `>=1,<2`."""
    raw = text.partition(";")[0].strip().removeprefix(found.name).strip()
    if raw.startswith("["):
        raw = raw.partition("]")[2]
    raw = raw.strip(" ()")
    try:
        return raw if SpecifierSet(raw) == found.specifier else str(found.specifier)
    except InvalidSpecifier:
        return str(found.specifier)


def add_requirements(
    facts: Facts,
    texts: Iterable[object],
    *,
    slot: str,
    group: str,
    prefix: str = "",
    aliases: tuple[str, ...] = (),
) -> None:
    """Adds the requirements of one list: which packages it holds, their specifiers, extras and URLs.

    `group` names the list and `aliases` its other names; `prefix` goes before each thing's name where a file
    has several such lists. A package listed more than once is told apart by its markers (where these are
    equal, the requirement last in the alphabet stands), so that the order of a list does not matter.
    """
    parsed = (parse_requirement(text.strip()) for text in texts if isinstance(text, str))
    found = sorted((p for p in parsed if p), key=lambda p: (p.name, p.marker, p.specifier, p.url))
    times = Counter(name for name, _ in {(p.name, p.marker) for p in found})
    for one in found:
        facts.add(group, "package", one.name, aliases)
        thing = f"{prefix}{one.name}"
        if times[one.name] > 1 and one.marker:
            thing += f"({one.marker})"
        others = (*((one.name,) if thing != one.name else ()), *one.aliases)
        facts.add(thing, slot, one.specifier, others)
        facts.add(thing, "source", one.url, others)
        for extra in one.extras:
            facts.add(thing, "dependency_extra", extra, others)
