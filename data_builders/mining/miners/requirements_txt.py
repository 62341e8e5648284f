"""requirements.txt, constraints.txt and the `.in` files they are compiled from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import ClassVar

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.manifests import (
    DEPENDENCY,
    Facts,
    base_name,
    read_lines,
    requirement_slot,
    words_of,
)
from data_builders.mining.miners.python_requirements import PYTHON_SLOTS, add_requirements

_SLOTS = {
    "dependency": DEPENDENCY,
    "constraint": requirement_slot("constraint", "pin"),
    **PYTHON_SLOTS,
}
_NAMES = ("requirements*", "*[-_.]requirements", "constraints*", "*[-_.]constraints")


class RequirementsMiner:
    """Reads pip's requirement files.

    pip's own reader is private, and the published ones are out of date or open the files that `-r` names, so
    lines are cut here (comments, continuations, options) and each requirement is left to `packaging`.
    """

    name: ClassVar[str] = "requirements"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_SLOTS)

    def wants(self, path: str) -> bool:
        """`requirements*.txt`, `constraints*.txt`, also with `.in`, and all in a `requirements` folder."""
        stem, dot, ending = base_name(path).casefold().rpartition(".")
        if not dot or ending not in {"txt", "in"}:
            return False
        folder = base_name(path.rpartition("/")[0]).casefold()
        return folder == "requirements" or any(fnmatchcase(stem, name) for name in _NAMES)

    def read(self, path: str, text: str) -> list[Fact]:
        """Lines without a requirement by name (options, paths) are passed over. Raises: UnreadableError."""
        facts = Facts(_SLOTS)
        if "constraints" in base_name(path).casefold():
            add_requirements(facts, _requirements(text), slot="constraint", group="constraints")
        else:
            group, aliases = "requirements", ("dependencies", "dependency", "requirement")
            add_requirements(facts, _requirements(text), slot="dependency", group=group, aliases=aliases)
        return list(facts)


def _requirements(text: str) -> Iterator[str]:
    """The logical lines without comments and options, as pip's file format defines them."""
    held = ""
    for line in read_lines(text):
        comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            held += line[:-1] + " "
            continue
        yield from _requirement(held + ("" if comment else line))
        held = ""
    yield from _requirement(held)


def _requirement(line: str) -> Iterator[str]:
    bare = re.split(r"(?:^|\s)(?:#|--?[A-Za-z])", line, maxsplit=1)[0].strip()
    if bare:
        yield bare
